-- Schemas in which anybody may create functions and operators, of those where policies' expressions and keys are looked up: public,
-- and those of tables ($1). Index: the catalog's; read only.
SELECT n.nspname::text
FROM pg_catalog.pg_namespace n
WHERE (n.nspname = 'public' OR n.nspname = ANY ($1::text[]))
  AND EXISTS (SELECT FROM aclexplode(COALESCE(n.nspacl, acldefault('n', n.nspowner))) AS a
              WHERE a.grantee = 0 AND a.privilege_type = 'CREATE')
ORDER BY 1
