-- What a table ($1, to be partitioned by $2) looks like. Read only.
SELECT ebb.table_portrait($1::int8::oid, $2)
