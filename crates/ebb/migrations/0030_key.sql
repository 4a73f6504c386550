-- The subject key is a file outside the database; here is only what tells it from others, since its first use. A node with
-- another key would make pseudonyms that no replay matches, and links that the other nodes do not know.
CREATE TABLE ebb.subject_key (
    one             boolean     PRIMARY KEY DEFAULT true CHECK (one),
    key_id          text        NOT NULL,
    known_since     timestamptz NOT NULL DEFAULT clock_timestamp(),
    used_by         text        NOT NULL                     -- the node that used it first
);
