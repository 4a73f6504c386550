-- One word for what fires when rows of tables ($1) go or change: every trigger, those of foreign keys too, every rule, and which
-- partitions they have; whether one of these is on its way out, and nobody sees its rows; and what time it is, by the clock that
-- deletions are opened with. Index: pg_trigger_tgrelid_tgname_index, pg_rewrite_rel_rulename_index, pg_inherits_parent_index. Read only.
SELECT COALESCE(md5(string_agg(concat_ws(' ', f.oid, f.enabled), ',' ORDER BY f.oid)), '') AS word, clock_timestamp() AS at,
       COALESCE(bool_or(f.enabled = 'leaves'), false) AS leaves
FROM (SELECT t.oid, t.tgenabled::text AS enabled FROM pg_catalog.pg_trigger t WHERE t.tgrelid = ANY ($1::text[]::regclass[])
      UNION ALL
      SELECT r.oid, r.ev_enabled::text FROM pg_catalog.pg_rewrite r WHERE r.ev_class = ANY ($1::text[]::regclass[])
      UNION ALL
      SELECT i.inhrelid, CASE WHEN i.inhdetachpending THEN 'leaves' ELSE 'in' END FROM pg_catalog.pg_inherits i
      WHERE i.inhparent = ANY ($1::text[]::regclass[])) AS f
