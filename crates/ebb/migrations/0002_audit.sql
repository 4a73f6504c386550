-- Proof: every destructive transaction inserts its record here; the sealing chore chains records into signed blocks.

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
CREATE INDEX audit_order ON ebb.audit (xid, id);
CREATE INDEX audit_policy ON ebb.audit (policy, id);

CREATE TABLE ebb.audit_block (
    number          bigint      PRIMARY KEY,
    previous        bytea       NOT NULL,                    -- seal of the block before; 32 zero bytes for the first
    root            bytea       NOT NULL,                    -- Merkle root over the records in (xid, id) order
    records         bigint      NOT NULL,
    last_xid        xid8        NOT NULL,
    last_id         bigint      NOT NULL,
    sealed_at       timestamptz NOT NULL,
    key_id          text        NOT NULL,
    signature       bytea       NOT NULL,
    seal            bytea       NOT NULL UNIQUE              -- hash over everything above: what the next block names
);
