-- Whether the policies that may keep rows are those of a word ($3), those over a tree's tables ($1, at versions $2) until the transaction
-- ends: whoever changes one comes before it or after it; and whether none of these counts from a column that took the name of another.
-- Index: policy_pkey, anchor_pkey, pg_attribute_relid_attnam_index. Lock: their rows FOR SHARE; one that somebody is changing is not waited
-- for, because that may be waiting for this batch.
WITH still AS MATERIALIZED (
    SELECT p.kind, p.name, p.enabled AND NOT p.spec ? 'deleted_at' AS counts
    FROM ebb.policy p JOIN unnest($1::text[], $2::int8[]) AS k (name, version) ON k.name = p.name AND k.version = p.version
    WHERE p.kind = 'retain'
    FOR SHARE OF p SKIP LOCKED
)
SELECT (SELECT count(*) FROM still s WHERE NOT (s.counts AND ebb.columns_moved(s.kind, s.name))) = cardinality($1)
       AND $3 = COALESCE(md5(string_agg(concat_ws(' ', p.name, p.version, p.enabled), ',' ORDER BY p.name)), '')
FROM ebb.policy p WHERE p.kind = 'retain'
