-- Sealed snapshots: what was erased, closed with a key of the subject, which is closed with the key of a period. That key
-- is a file outside the database; here is only what tells it from others. On its day it is destroyed, and nothing that
-- was closed with it opens any more, in this database or in a backup of it.

CREATE TABLE ebb.period_key (
    until           timestamptz PRIMARY KEY,                 -- a midnight in UTC: when it is destroyed, and its name
    key_id          text        NOT NULL,                    -- the same for every node, or one of them has another key
    made_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by         text        NOT NULL,                    -- a node
    destroyed_at    timestamptz
);

CREATE TABLE ebb.snapshot (
    deletion        uuid        PRIMARY KEY,
    policy          text        NOT NULL,
    until           timestamptz NOT NULL,                    -- of the period
    wrapped         bytea       NOT NULL,                    -- the subject's key
    parts           integer     NOT NULL,
    rows            bigint      NOT NULL,
    complete        boolean     NOT NULL                     -- a subject that goes in parts is copied in parts
);
CREATE INDEX snapshot_until ON ebb.snapshot (until);

CREATE TABLE ebb.snapshot_part (
    deletion        uuid        NOT NULL,
    part            integer     NOT NULL,
    until           timestamptz NOT NULL,
    sealed          bytea       NOT NULL,
    PRIMARY KEY (deletion, part)
);
CREATE INDEX snapshot_part_until ON ebb.snapshot_part (until);
-- What is sealed does not get smaller.
ALTER TABLE ebb.snapshot_part ALTER COLUMN sealed SET STORAGE EXTERNAL;
