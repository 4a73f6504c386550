-- Where the trigger of a policy ($1, also the name of its function) is: on table $2 and looking at columns $3; anywhere else; and whether
-- the right one fires. Catalog only; read only. Triggers that a partition has from its parent do not count.
SELECT COALESCE(bool_or(at_home.yes), false), COALESCE(bool_or(NOT at_home.yes), false),
       COALESCE(bool_or(at_home.yes AND t.tgenabled IN ('O', 'A')), false)
FROM pg_proc p
JOIN pg_trigger t ON t.tgfoid = p.oid AND t.tgparentid = 0
CROSS JOIN LATERAL (
    SELECT t.tgrelid = $2::bigint::oid AND $3::text[] <@ ARRAY(
        SELECT a.attname::text FROM pg_depend d JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attnum = d.refobjsubid
        WHERE d.classid = 'pg_trigger'::regclass AND d.objid = t.oid AND d.refobjid = t.tgrelid) AS yes) AS at_home
WHERE p.pronamespace = 'ebb'::regnamespace AND p.proname = $1
