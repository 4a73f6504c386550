-- The spine: one clock, policies with history, units under leases, runs, nodes, and the operator's controls.

CREATE SCHEMA IF NOT EXISTS ebb;
REVOKE ALL ON SCHEMA ebb FROM PUBLIC;

-- One clock. ebb.now() is for policy cutoffs and inlines to now(); ebb.clock() is for terms compared at the moment of
-- use. A test or demo database replaces both with ones that add an offset; leases and beats never ask them.
CREATE FUNCTION ebb.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT pg_catalog.now()';
CREATE FUNCTION ebb.clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS 'SELECT pg_catalog.clock_timestamp()';

-- What people asked for. kind 'settings' holds [pacing], [keep] and the like; spec has the keys of ebb.toml.
CREATE TABLE ebb.policy (
    kind            text        NOT NULL,
    name            text        NOT NULL,
    spec            jsonb       NOT NULL,
    enabled         boolean     NOT NULL DEFAULT true,
    version         bigint      NOT NULL DEFAULT 1,
    source          text        NOT NULL,                    -- file | runtime | ebb (built in, or disabled by a node)
    stopped         text,                                    -- why a node stopped it: a table that is gone, say
    changed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_by      text        NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE UNIQUE INDEX policy_name ON ebb.policy (name)
    WHERE kind IN ('expire', 'retain', 'partition', 'resources', 'schedule');

CREATE TABLE ebb.policy_history (
    kind            text        NOT NULL,
    name            text        NOT NULL,
    version         bigint      NOT NULL,
    spec            jsonb       NOT NULL,
    enabled         boolean     NOT NULL,
    source          text        NOT NULL,
    stopped         text,
    changed_at      timestamptz NOT NULL,
    changed_by      text        NOT NULL,                    -- what the caller said; session_role is what the server knows
    session_role    text        NOT NULL DEFAULT session_user,
    PRIMARY KEY (kind, name, version)
);

-- A unit is one (chore, policy, leaf table). Any node may run it when next_at has passed and it gets the lease.
CREATE TABLE ebb.unit (
    unit            text        PRIMARY KEY,                 -- chore/policy/schema.table
    chore           text        NOT NULL,
    policy          text        NOT NULL,
    leaf            text        NOT NULL,
    next_at         timestamptz NOT NULL DEFAULT '-infinity',
    triggered       boolean     NOT NULL DEFAULT false,
    failures        integer     NOT NULL DEFAULT 0,
    last_run        bigint,
    last_success_at timestamptz,
    shape           text,                                    -- how the last run went through the table, and why
    throttle        text,                                    -- why it rests at the moment
    vacuum          text,                                    -- what became of the last VACUUM
    pending         bigint,
    oldest_due      timestamptz,
    counted_at      timestamptz
);

-- Who may change what a unit covers. Its own table: heartbeats update it, batches lock it FOR KEY SHARE.
CREATE TABLE ebb.lease (
    unit            text        PRIMARY KEY,
    holder          uuid,                                    -- fresh for every boot of a node
    node            text,
    generation      bigint      NOT NULL DEFAULT 0,
    expires_at      timestamptz NOT NULL DEFAULT '-infinity' -- by clock_timestamp(), never by ebb.now()
);

CREATE TABLE ebb.run (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    unit            text        NOT NULL,
    chore           text        NOT NULL,
    policy          text        NOT NULL,
    policy_version  bigint      NOT NULL,
    leaf            text        NOT NULL,
    node            text        NOT NULL,
    generation      bigint      NOT NULL,
    status          text        NOT NULL DEFAULT 'running',  -- running success failed stopped braked observed abandoned
    cutoff          timestamptz,
    rows            bigint      NOT NULL DEFAULT 0,
    batches         bigint      NOT NULL DEFAULT 0,
    skipped         bigint      NOT NULL DEFAULT 0,
    due             bigint,                                  -- estimated or counted at the start, where it was
    shape           text,
    error           text,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at     timestamptz
);
CREATE INDEX run_started_at ON ebb.run (started_at);
CREATE INDEX run_unit ON ebb.run (unit, id);

CREATE TABLE ebb.node (
    id              uuid        PRIMARY KEY,
    name            text        NOT NULL,
    version         text        NOT NULL,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    listens         boolean     NOT NULL DEFAULT false
);
CREATE INDEX node_seen_at ON ebb.node (seen_at);

CREATE TABLE ebb.sample (
    at              timestamptz NOT NULL DEFAULT clock_timestamp(),
    metric          text        NOT NULL,
    labels          jsonb       NOT NULL DEFAULT '{}',
    value           double precision NOT NULL
);
CREATE INDEX sample_at ON ebb.sample (at);

-- The operator's veto. name '*' is everything.
CREATE TABLE ebb.pause (
    name            text        PRIMARY KEY,
    reason          text,
    paused_by       text        NOT NULL,
    paused_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A run that would have taken too much, and what somebody allowed instead.
CREATE TABLE ebb.brake (
    policy          text        PRIMARY KEY,
    due             bigint      NOT NULL,
    allowed_before  text        NOT NULL,                    -- the limit it met, in words
    tripped_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    allow_rows      bigint,
    allowed_by      text,
    allowed_at      timestamptz
);
