-- A partition ($1) that was taken out is gone. Expects detached_pkey.
DELETE FROM ebb.detached WHERE relid = $1::int8::oid
