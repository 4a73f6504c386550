-- What else holds on to a table ($1) or its row type, and would stay with the old one when the name moves: functions by
-- row type or with a parsed body, columns of its row type, policies of other tables, rules that write to it; domains over its row
-- type, and defaults and checks that mention it. And labels of security policies, which would not come along: whoever is kept
-- from a column by one would see it. Read only.
SELECT DISTINCT pg_catalog.pg_describe_object(d.classid, d.objid, 0) AS what
FROM pg_catalog.pg_depend d
WHERE ((d.refclassid = 'pg_class'::regclass AND d.refobjid = $1::int8::oid)
       OR (d.refclassid = 'pg_type'::regclass AND d.refobjid IN (
           SELECT c.reltype FROM pg_catalog.pg_class c WHERE c.oid = $1::int8::oid
           UNION SELECT t.typarray FROM pg_catalog.pg_class c JOIN pg_catalog.pg_type t ON t.oid = c.reltype WHERE c.oid = $1::int8::oid)))
  AND d.deptype = 'n'
  AND (d.classid = 'pg_proc'::regclass
       OR (d.classid = 'pg_rewrite'::regclass AND EXISTS (SELECT FROM pg_catalog.pg_rewrite r WHERE r.oid = d.objid AND r.rulename <> '_RETURN' AND r.ev_class <> $1::int8::oid))
       OR (d.classid = 'pg_policy'::regclass AND NOT EXISTS (SELECT FROM pg_catalog.pg_policy p WHERE p.oid = d.objid AND p.polrelid = $1::int8::oid))
       OR (d.classid = 'pg_class'::regclass AND d.objid <> $1::int8::oid)
       OR d.classid = 'pg_type'::regclass
       OR (d.classid = 'pg_attrdef'::regclass AND NOT EXISTS (SELECT FROM pg_catalog.pg_attrdef a WHERE a.oid = d.objid AND a.adrelid = $1::int8::oid))
       OR (d.classid = 'pg_constraint'::regclass AND EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.oid = d.objid AND k.contype = 'c' AND k.conrelid <> $1::int8::oid)))
UNION
SELECT pg_catalog.format('the security label of %s (%s)', pg_catalog.pg_describe_object(l.classoid, l.objoid, l.objsubid), l.provider)
FROM pg_catalog.pg_seclabel l WHERE l.classoid = 'pg_class'::regclass AND l.objoid = $1::int8::oid
ORDER BY 1
