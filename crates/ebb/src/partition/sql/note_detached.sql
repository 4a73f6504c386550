-- A partition ($1) is out of its table: from here its time detached counts. Expects detached_pkey.
UPDATE ebb.detached SET state = 'detached', detached_at = ebb.now() WHERE relid = $1::int8::oid AND state = 'detaching'
