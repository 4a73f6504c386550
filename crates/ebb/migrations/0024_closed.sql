-- An erased deletion names nobody: it has no place in the index by subject, which grew by every one. Whoever is erased is asked
-- for restored deletions of before: few, and found without going through the open ones.
DROP INDEX ebb.deletion_subject;
CREATE INDEX deletion_subject ON ebb.deletion (policy, subject_id, opened_at) WHERE subject_id IS NOT NULL;
CREATE INDEX deletion_restored ON ebb.deletion (policy, subject_id) WHERE state = 'restored' AND subject_id IS NOT NULL;
