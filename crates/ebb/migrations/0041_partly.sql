-- Who changed rows of a subject that goes in parts for some of the edges that lead to their table, and for which: after that transaction a
-- row is still to be changed for the others.

ALTER TABLE ebb.deletion ADD COLUMN partly jsonb NOT NULL DEFAULT '{}';
