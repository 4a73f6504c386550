-- Refuses (EB002) where a table ($1 its label, $2 its oid, $3 its column) was changed since its split was planned. Read only.
SELECT ebb.require_split_portrait($1, $2::int8::oid, $3)
