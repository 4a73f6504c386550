-- One word for what fires when rows of tables ($1) go or change: every trigger, those of foreign keys too, and every rule, of them and
-- of their partitions at every level, and which partitions they have; whether one of these is on its way out, and nobody sees its
-- rows; one word for the policies that may keep rows, and those of them over just these tables, with their versions; and what time it is,
-- by the clock that deletions are opened with. Index: pg_trigger_tgrelid_tgname_index, pg_rewrite_rel_rulename_index, pg_inherits_parent_index, policy_pkey. Read only.
WITH RECURSIVE place AS (
    SELECT t.name::oid AS oid FROM unnest($1::text[]::regclass[]) AS t (name)
    UNION
    SELECT i.inhrelid FROM place JOIN pg_catalog.pg_inherits i ON i.inhparent = place.oid
), over AS (
    SELECT p.name, p.version
    FROM place
    JOIN pg_catalog.pg_class c ON c.oid = place.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN ebb.retain r ON parse_ident(r.relation) = ARRAY[n.nspname::text, c.relname::text]
    JOIN ebb.policy p ON p.kind = 'retain' AND p.name = r.policy
)
SELECT COALESCE(md5(string_agg(concat_ws(' ', f.oid, f.enabled), ',' ORDER BY f.oid)), '') AS word,
       COALESCE(bool_or(f.enabled = 'leaves'), false) AS leaves,
       (SELECT COALESCE(md5(string_agg(concat_ws(' ', p.name, p.version, p.enabled), ',' ORDER BY p.name)), '')
        FROM ebb.policy p WHERE p.kind = 'retain') AS kept_by,
       ARRAY(SELECT p.name FROM over p ORDER BY p.name) AS keepers,
       ARRAY(SELECT p.version FROM over p ORDER BY p.name) AS versions,
       clock_timestamp() AS at
FROM (SELECT t.oid, t.tgenabled::text AS enabled FROM place JOIN pg_catalog.pg_trigger t ON t.tgrelid = place.oid
      UNION ALL
      SELECT r.oid, r.ev_enabled::text FROM place JOIN pg_catalog.pg_rewrite r ON r.ev_class = place.oid
      UNION ALL
      SELECT i.inhrelid, CASE WHEN i.inhdetachpending THEN 'leaves' ELSE 'in' END
      FROM place JOIN pg_catalog.pg_inherits i ON i.inhparent = place.oid) AS f
