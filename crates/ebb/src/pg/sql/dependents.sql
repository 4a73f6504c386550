-- Objects outside the ebb schema that depend on something inside it: a view over a table, a default or a trigger that
-- calls a function. DROP SCHEMA … CASCADE would take them too. Expects pg_depend (refclassid, refobjid); read only.
WITH own AS (
    SELECT 'pg_catalog.pg_class'::pg_catalog.regclass AS class, oid FROM pg_catalog.pg_class
    WHERE relnamespace = pg_catalog.to_regnamespace('ebb')
    UNION ALL
    SELECT 'pg_catalog.pg_proc'::pg_catalog.regclass, oid FROM pg_catalog.pg_proc
    WHERE pronamespace = pg_catalog.to_regnamespace('ebb')
    UNION ALL
    SELECT 'pg_catalog.pg_type'::pg_catalog.regclass, oid FROM pg_catalog.pg_type
    WHERE typnamespace = pg_catalog.to_regnamespace('ebb')
)
SELECT DISTINCT CASE WHEN r.oid IS NULL THEN pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)
                     ELSE pg_catalog.pg_describe_object('pg_catalog.pg_class'::pg_catalog.regclass, r.ev_class, 0) END AS what
FROM pg_catalog.pg_depend d
JOIN own ON own.class = d.refclassid AND own.oid = d.refobjid
-- A rule, a trigger, a default or a constraint belongs to the table it is on.
LEFT JOIN pg_catalog.pg_rewrite r ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND r.oid = d.objid
LEFT JOIN pg_catalog.pg_trigger t ON d.classid = 'pg_catalog.pg_trigger'::pg_catalog.regclass AND t.oid = d.objid
LEFT JOIN pg_catalog.pg_attrdef f ON d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND f.oid = d.objid
LEFT JOIN pg_catalog.pg_constraint k ON d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND k.oid = d.objid
LEFT JOIN pg_catalog.pg_class c
       ON c.oid = coalesce(r.ev_class, t.tgrelid, f.adrelid, k.conrelid,
                           CASE WHEN d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass THEN d.objid END)
LEFT JOIN pg_catalog.pg_proc p ON d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND p.oid = d.objid
LEFT JOIN pg_catalog.pg_type y ON d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND y.oid = d.objid
-- Row types, array types and TOAST tables follow their owner by other means than 'n'.
WHERE d.deptype = 'n'
  -- A trigger that `mark_at_once` asked for is Ebb's own.
  AND NOT (t.oid IS NOT NULL AND starts_with(t.tgname, 'mark:'))
  AND coalesce(c.relnamespace, p.pronamespace, y.typnamespace, 0)
      NOT IN (pg_catalog.to_regnamespace('ebb')::pg_catalog.oid, 'pg_toast'::pg_catalog.regnamespace::pg_catalog.oid)
ORDER BY what
