-- Due times of open deletions follow their policy: the nearest with the change itself, the others when marking comes by, in batches. One
-- statement over a million of them takes longer than a statement may, and the policy could not be changed at all.

-- Whether there are deletions that marking has still to look at.
ALTER TABLE ebb.retain ADD COLUMN renews boolean NOT NULL DEFAULT false;
