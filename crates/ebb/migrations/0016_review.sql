-- Erasing, looked after: subjects with very many events, subjects that are stuck, the weekly review.

-- Some of what ebb.forget_subject_events does: at most so many events, those to come first. How many it met.
CREATE FUNCTION ebb.forget_some_subject_events(policy text, id text, most bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    pending uuid[];
    finished uuid[];
BEGIN
    pending := ARRAY(SELECT e.id FROM ebb.event e WHERE e.subject_policy = $1 AND e.subject_id = $2 LIMIT $3);
    DELETE FROM ebb.event_key k USING ebb.event e
    WHERE e.id = ANY (pending) AND k.sink = e.sink AND k.key = e.dedupe_key;
    PERFORM ebb.event_end(pending, true, true);
    finished := ARRAY(SELECT h.id FROM ebb.event_history h WHERE h.subject_policy = $1 AND h.subject_id = $2
                      LIMIT $3 - cardinality(pending));
    DELETE FROM ebb.event_key k USING ebb.event_history h
    WHERE h.id = ANY (finished) AND h.subject_policy = $1 AND h.subject_id = $2 AND k.sink = h.sink AND k.key = h.dedupe_key;
    UPDATE ebb.event_history h SET body = '', response = NULL, error = NULL, dedupe_key = NULL, subject_id = NULL
    WHERE h.id = ANY (finished) AND h.subject_policy = $1 AND h.subject_id = $2;
    RETURN cardinality(pending) + cardinality(finished);
END
$$;

-- Subjects that could not be erased are few among many: status, metric and doctor look for them.
CREATE INDEX deletion_failed ON ebb.deletion (policy) WHERE state = 'failed';

-- What the weekly review found: every erasure before its time that is on record, and when it last looked.
CREATE TABLE ebb.premature (
    record          bigint      PRIMARY KEY,                 -- of ebb.audit
    policy          text        NOT NULL,
    found_at        timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE ebb.review (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    since           timestamptz NOT NULL,
    until           timestamptz NOT NULL,
    erased          bigint      NOT NULL,                    -- subjects in that time
    premature       bigint      NOT NULL,                    -- of them before their time
    stuck           bigint      NOT NULL
);

-- What the rows of a policy take, tenant by tenant, when the review last measured it. Tenant '': all of them.
CREATE TABLE ebb.tenant_storage (
    policy          text        NOT NULL,
    tenant          text        NOT NULL,
    rows            bigint      NOT NULL,
    bytes           bigint      NOT NULL,                    -- its share of the table with indexes
    exact           boolean     NOT NULL,                    -- counted; otherwise from a sample
    at              timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (policy, tenant)
);
