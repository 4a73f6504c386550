-- One word for what fires when rows of tables ($1) go or change: every trigger, those of foreign keys too, and every rule, of them and
-- of their partitions at every level, and which partitions they have; whether one of these is on its way out, and nobody sees its
-- rows; one word for the policies that may keep rows; and what time it is, by the clock that deletions are opened with.
-- Index: pg_trigger_tgrelid_tgname_index, pg_rewrite_rel_rulename_index, pg_inherits_parent_index, policy_pkey. Read only.
WITH RECURSIVE place AS (
    SELECT t.name::oid AS oid FROM unnest($1::text[]::regclass[]) AS t (name)
    UNION
    SELECT i.inhrelid FROM place JOIN pg_catalog.pg_inherits i ON i.inhparent = place.oid
)
SELECT COALESCE(md5(string_agg(concat_ws(' ', f.oid, f.enabled), ',' ORDER BY f.oid)), '') AS word,
       COALESCE(bool_or(f.enabled = 'leaves'), false) AS leaves,
       (SELECT COALESCE(md5(string_agg(concat_ws(' ', p.name, p.version, p.enabled), ',' ORDER BY p.name)), '')
        FROM ebb.policy p WHERE p.kind = 'retain') AS kept_by,
       clock_timestamp() AS at
FROM (SELECT t.oid, t.tgenabled::text AS enabled FROM place JOIN pg_catalog.pg_trigger t ON t.tgrelid = place.oid
      UNION ALL
      SELECT r.oid, r.ev_enabled::text FROM place JOIN pg_catalog.pg_rewrite r ON r.ev_class = place.oid
      UNION ALL
      SELECT i.inhrelid, CASE WHEN i.inhdetachpending THEN 'leaves' ELSE 'in' END
      FROM place JOIN pg_catalog.pg_inherits i ON i.inhparent = place.oid) AS f
