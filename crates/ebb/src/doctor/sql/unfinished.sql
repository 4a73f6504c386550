-- What was begun on a table (adopting, splitting, the way back) while no session is at it; where rows are refused from some
-- moment on meanwhile, that moment, and whether it is less than two days away; of a split, whether writers write to the parts, too.
-- When a session of another role began cannot be seen by everybody: its process counts then. Read only.
SELECT a.relation, 'adopt' AS what, a.state, CASE WHEN a.state = 'adopting' AND a.step > 0 THEN a.plan ->> 'bound' END AS refuses_from,
       COALESCE(a.state = 'adopting' AND a.step > 0
           AND ebb.now() AT TIME ZONE ebb.partition_zone(a.plan ->> 'kind', a.plan ->> 'zone') > (a.plan ->> 'bound')::timestamp - interval '2 days', false) AS near
FROM ebb.adoption a
WHERE a.state IN ('adopting', 'rolling back')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity s WHERE s.pid = a.holder_pid AND COALESCE(s.backend_start = a.holder_start, s.usesysid IS NOT NULL AND s.datname = current_database()))
UNION ALL
-- A rollback that was begun: what it builds for itself refuses keys of the old table, or notes every key that is written.
SELECT a.relation, 'rollback', a.state, NULL, false
FROM ebb.adoption a
WHERE a.state = 'adopted'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity s WHERE s.pid = a.holder_pid AND COALESCE(s.backend_start = a.holder_start, s.usesysid IS NOT NULL AND s.datname = current_database()))
  AND EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
              WHERE n.nspname = a.plan ->> 'schema' AND c.relname ~ pg_catalog.format('^ebb_%s_(b|fresh)\d+$', a.relid))
UNION ALL
SELECT p.relation, 'split', p.state, NULL,
       COALESCE(p.state = 'splitting' AND (p.plan ->> 'twofold')::boolean AND (p.plan ->> 'locks')::boolean, false)
FROM ebb.split p
WHERE p.state IN ('splitting', 'abandoning')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity s WHERE s.pid = p.holder_pid AND COALESCE(s.backend_start = p.holder_start, s.usesysid IS NOT NULL AND s.datname = current_database()))
UNION ALL
-- A former version let the partition that was split keep every row of then, whatever was deleted or has expired since.
SELECT p.relation, 'finish', p.plan ->> 'source_label', NULL, false
FROM ebb.split p
WHERE p.state = 'split' AND pg_catalog.pg_relation_size(ebb.table_named(p.plan ->> 'source')) > 0
ORDER BY 1
