-- What an expression would call that is not immutable, the most volatile first: functions ($1), those behind
-- operators ($2), and the input functions of types it converts to ($3). Expects the oid indexes of the catalogs; read only.
WITH called AS (
    SELECT pg_catalog.unnest($1::int8[])::oid AS oid
    UNION SELECT o.oprcode::oid FROM pg_catalog.pg_operator o WHERE o.oid::int8 = ANY($2)
    UNION SELECT t.typinput::oid FROM pg_catalog.pg_type t WHERE t.oid::int8 = ANY($3)
)
SELECT p.oid::pg_catalog.regprocedure::text, p.provolatile = 'v'
FROM pg_catalog.pg_proc p
JOIN called USING (oid)
WHERE p.provolatile <> 'i'
ORDER BY p.provolatile = 'v' DESC, 1 LIMIT 1
