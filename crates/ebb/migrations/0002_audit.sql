-- Proof: every destructive transaction inserts its record here; the sealing chore chains records into signed blocks.
-- Nothing in these tables is ever updated. Which block a record belongs to is a row of its own, so that a node needs no
-- right to change what it wrote, and so that records restored from another cluster, whose xids mean nothing here, are
-- found by what was sealed and not by comparing numbers.

CREATE TABLE ebb.audit (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid             xid8        NOT NULL DEFAULT pg_current_xact_id(),
    at              timestamptz NOT NULL DEFAULT clock_timestamp(),
    action          text        NOT NULL,                    -- expire | policy | pause | resume | …
    policy          text,
    policy_version  bigint,
    relation        text,
    rows            bigint      NOT NULL DEFAULT 0,
    cutoff          timestamptz,
    due_from        timestamptz,                             -- the oldest and newest due time among the rows
    due_to          timestamptz,
    run             bigint,
    node            text,
    by_name         text        NOT NULL,                    -- what the caller said
    session_role    text        NOT NULL DEFAULT session_user, -- what the server knows
    subject         bytea,                                   -- HMAC under a key outside the database
    details         jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_policy ON ebb.audit (policy, id);
CREATE INDEX audit_at ON ebb.audit USING brin (at);

CREATE TABLE ebb.audit_block (
    number          bigint      PRIMARY KEY,                 -- 1, 2, 3 …: two sealers cannot both make the next one
    previous        bytea       NOT NULL,                    -- seal of the block before; 32 zero bytes for the first
    root            bytea       NOT NULL,                    -- Merkle root over the block's records in (xid, id) order
    records         bigint      NOT NULL,
    sealed_at       timestamptz NOT NULL,
    key_id          text        NOT NULL,
    signature       bytea       NOT NULL,                    -- Ed25519 over everything above
    seal            bytea       NOT NULL UNIQUE              -- hash over everything above: what the next block names
);

-- Which block a record is in, where, and what it hashed to: a changed record can be named, not only its block.
CREATE TABLE ebb.audit_leaf (
    block           bigint      NOT NULL,
    position        integer     NOT NULL,                    -- 0 … records - 1
    record          bigint      NOT NULL,
    hash            bytea       NOT NULL,
    PRIMARY KEY (block, position)
);
CREATE UNIQUE INDEX audit_leaf_record ON ebb.audit_leaf (record);

-- The records that no block has yet: short however long the audit is. Kept by the two triggers below alone: to take a
-- record off it, a node has to list it in a block, and verifying finds an entry that no signature covers.
CREATE TABLE ebb.audit_pending (
    record          bigint      PRIMARY KEY,
    xid             xid8        NOT NULL
);
CREATE INDEX audit_pending_order ON ebb.audit_pending (xid, record);
ALTER TABLE ebb.audit_pending SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

CREATE FUNCTION ebb.audit_await_seal() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO ebb.audit_pending (record, xid) SELECT id, xid FROM added;
    RETURN NULL;
END
$$;
CREATE TRIGGER await_seal AFTER INSERT ON ebb.audit REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION ebb.audit_await_seal();

CREATE FUNCTION ebb.audit_sealed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    -- An array, not a join: after a burst the statistics still say "short", and a join would read the whole list.
    DELETE FROM ebb.audit_pending WHERE record = ANY (ARRAY(SELECT record FROM added));
    RETURN NULL;
END
$$;
CREATE TRIGGER sealed AFTER INSERT ON ebb.audit_leaf REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION ebb.audit_sealed();
