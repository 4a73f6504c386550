-- Subjects ($1) too large for one transaction, and whoever goes along with them, are claimed: from here on they cannot be restored. A
-- record of each says when, and by which version ($2) of the policy over a table ($3), in a run ($4) of a node ($5): they may be erased by
-- another. Index: deletion_pkey. Lock: the rows, held already.
WITH claimed AS (
    UPDATE ebb.deletion SET state = 'erasing', blocked = NULL WHERE id = ANY ($1) AND state IN ('pending', 'warned')
    RETURNING id, policy
)
INSERT INTO ebb.audit (action, policy, policy_version, relation, run, node, by_name, details)
SELECT 'claim', c.policy, $2, $3, $4, $5, 'ebb', jsonb_build_object('deletion', c.id, 'claimed_at', ebb.now()) FROM claimed c
