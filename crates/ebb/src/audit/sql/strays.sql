-- Of the page of records after id $1: which are in no block although they do not wait for one, or in more than one.
-- One statement, one snapshot: sealing goes on meanwhile.
-- Index: audit_pkey, audit_leaf_record, audit_pending_pkey. Lock: none.
WITH page AS MATERIALIZED (
    SELECT id FROM ebb.audit WHERE id > $1 ORDER BY id LIMIT $2
),
claimed AS (
    SELECT page.id, count(l.record) AS blocks
    FROM page LEFT JOIN ebb.audit_leaf AS l ON l.record = page.id
    GROUP BY page.id
)
SELECT (SELECT max(id) FROM page) AS last,
       ARRAY(SELECT id FROM claimed
             WHERE blocks = 0 AND NOT EXISTS (SELECT FROM ebb.audit_pending AS p WHERE p.record = claimed.id)
             ORDER BY id LIMIT 1000) AS forgotten,
       ARRAY(SELECT id FROM claimed WHERE blocks > 1 ORDER BY id LIMIT 1000) AS repeated
