-- Who changed rows of a subject that goes in parts, where the rows do not say by their values that they were changed.

ALTER TABLE ebb.deletion ADD COLUMN writers bigint[] NOT NULL DEFAULT '{}';
