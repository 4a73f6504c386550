-- These deletions ($1, $2 their rows) are done, $3 and $4 (for some edges) having changed rows that do not say so by their values: nothing
-- that names the subject is left, in older deletions and holds of it neither (where the policy has any: most have none, and are not asked
-- of each). The ids are named twice: joined alone, the index would be walked from its beginning, past whoever is gone. All are of one policy.
-- Index: deletion_pkey, deletion_restored, hold_subject, warning_pkey. Lock: the rows, held already.
WITH done AS (
    SELECT d.id, d.policy, d.subject_id, e.rows
    FROM unnest($1::uuid[], $2::bigint[]) AS e (id, rows)
    JOIN ebb.deletion d ON d.id = e.id
    WHERE d.id = ANY ($1)
), older AS (
    UPDATE ebb.deletion d SET subject_id = NULL, opened_by = NULL, closed_by = NULL, error = NULL
    FROM done
    WHERE d.policy = done.policy AND d.subject_id = done.subject_id AND d.state = 'restored'
      AND EXISTS (SELECT FROM ebb.deletion r WHERE r.policy = (SELECT policy FROM done LIMIT 1) AND r.state = 'restored' AND r.subject_id IS NOT NULL)
), holds AS (
    UPDATE ebb.hold h SET subject_id = NULL, deletion = done.id, reason = '', placed_by = '', lifted_by = NULL,
                           lifted_at = COALESCE(h.lifted_at, ebb.now())
    FROM done
    WHERE h.policy = done.policy AND h.subject_id = done.subject_id
      AND EXISTS (SELECT FROM ebb.hold k WHERE k.policy = (SELECT policy FROM done LIMIT 1) AND k.subject_id IS NOT NULL)
), warnings AS (
    UPDATE ebb.warning w SET error = NULL
    FROM done
    WHERE w.deletion = done.id AND w.error IS NOT NULL
)
UPDATE ebb.deletion d
SET state = 'erased', subject_id = NULL, opened_by = NULL, error = NULL, blocked = NULL, next_try_at = NULL,
    rows = COALESCE(d.rows, 0) + done.rows, writers = d.writers || $3, partly = d.partly || $4,
    written_in = CASE WHEN $3::bigint[] <> '{}' OR $4::jsonb <> '{}' THEN ebb.home() ELSE d.written_in END, closed_at = ebb.now(), closed_by = 'ebb'
FROM done
WHERE d.id = done.id AND d.id = ANY ($1)
