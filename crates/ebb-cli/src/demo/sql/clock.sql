-- A demo database: its clock can be moved, for every connection and node at once (`ebb demo advance 1d`). Leases and
-- beats ask the real one. `ebb doctor` fails where a database with real policies has these functions.
-- The key serves the functions that switch sequential scans off: the price the planner then puts on one would have each
-- call of the clock compiled.
CREATE TABLE ebb.clock_offset (only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), shift interval NOT NULL);
INSERT INTO ebb.clock_offset (shift) VALUES ('0');
CREATE OR REPLACE FUNCTION ebb.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS
    'SELECT pg_catalog.now() + (SELECT shift FROM ebb.clock_offset WHERE only_row)';
CREATE OR REPLACE FUNCTION ebb.clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS
    'SELECT pg_catalog.clock_timestamp() + (SELECT shift FROM ebb.clock_offset WHERE only_row)';
