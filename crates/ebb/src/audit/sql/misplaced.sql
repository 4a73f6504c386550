-- Records that wait for a seal and should not: a block has them already, or they were deleted before any had.
-- Index: audit_leaf_record, audit_pkey; the list of those that wait is short. Lock: none.
SELECT waiting.record, waiting.sealed
FROM (
    SELECT p.record,
           EXISTS (SELECT FROM ebb.audit_leaf AS l WHERE l.record = p.record) AS sealed,
           EXISTS (SELECT FROM ebb.audit AS a WHERE a.id = p.record) AS stored
    FROM ebb.audit_pending AS p
) AS waiting
WHERE waiting.sealed OR NOT waiting.stored
ORDER BY waiting.record
LIMIT 1000
