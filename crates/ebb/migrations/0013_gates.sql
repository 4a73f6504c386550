-- Gates: a hold on a subject also binds policies that would take rows of its tree by themselves. Whoever places a hold
-- locks the gates of those policies FOR UPDATE; their batches take the gate FOR KEY SHARE first and look for holds in a
-- later statement. So a batch has ended before a hold counts, or it sees the hold.

-- Every policy that takes rows, and the tables it takes them of (of a partitioned table the root).
CREATE TABLE ebb.gate (
    policy          text        PRIMARY KEY,
    relations       text[]      NOT NULL,
    bound           boolean     NOT NULL DEFAULT false       -- a hold can reach one of its tables
);

-- How far a hold reaches: of every table of an approved tree, what is true of a row "ebb:row" of a subject on hold.
-- Any one of the conditions is enough.
CREATE TABLE ebb.reach (
    policy          text        NOT NULL,
    relation        text        NOT NULL,
    conditions      text[]      NOT NULL,                    -- rows that go with it or refer to it
    erased          text[]      NOT NULL,                    -- rows that go with it
    PRIMARY KEY (policy, relation)
);
CREATE INDEX reach_relation ON ebb.reach (relation);

CREATE OR REPLACE FUNCTION ebb.place_hold(policy text, id text, reason text, until timestamptz DEFAULT NULL,
                                          by text DEFAULT current_user) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
BEGIN
    IF btrim(COALESCE(reason, '')) = '' THEN
        RAISE EXCEPTION 'a hold has a reason' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF until <= ebb.now() THEN
        RAISE EXCEPTION 'a hold until % would be over already', until USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM ebb.deletion d WHERE d.policy = place_hold.policy AND d.subject_id = place_hold.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed') FOR UPDATE;
    root := ebb.touch_subject(policy, 'look', id, NULL, NULL);
    IF root.id IS NULL THEN
        RAISE EXCEPTION 'policy % knows no subject %', policy, quote_literal(id) USING ERRCODE = 'no_data_found';
    END IF;
    -- Batches that take rows of the tree by themselves have ended after this, and others wait until the hold is there.
    PERFORM FROM ebb.gate g
    WHERE g.relations && ARRAY(SELECT r.relation FROM ebb.reach r WHERE r.policy = place_hold.policy)
    ORDER BY g.policy FOR UPDATE;
    INSERT INTO ebb.hold AS h (policy, subject_id, reason, until, placed_at, placed_by)
    VALUES (policy, root.id, reason, until, ebb.now(), by)
    ON CONFLICT (policy, subject_id) WHERE lifted_at IS NULL
    DO UPDATE SET reason = EXCLUDED.reason, until = EXCLUDED.until, placed_by = EXCLUDED.placed_by;
    PERFORM ebb.note_subject('hold', policy, (SELECT d.id FROM ebb.deletion d WHERE d.policy = place_hold.policy
        AND d.subject_id = root.id AND d.state IN ('pending', 'warned', 'erasing', 'failed')), by,
        jsonb_build_object('reason', reason, 'until', until));
END
$$;
