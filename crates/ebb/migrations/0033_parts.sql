-- What goes in parts: links that were ended before are counted with the deletion, as rows that went are.

ALTER TABLE ebb.deletion ADD COLUMN unlinked jsonb NOT NULL DEFAULT '{}';

-- Two objects of counts as one.
CREATE FUNCTION ebb.add_counts(jsonb, jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$
    SELECT COALESCE(jsonb_object_agg(name, total), '{}') FROM (
        SELECT part.key AS name, sum(part.value::bigint) AS total
        FROM (SELECT * FROM jsonb_each_text($1) UNION ALL SELECT * FROM jsonb_each_text($2)) AS part
        GROUP BY part.key) AS summed
$$;

-- Subjects that failed are told apart from those that somebody held.
ALTER TABLE ebb.run ADD COLUMN failed bigint NOT NULL DEFAULT 0;
CREATE OR REPLACE VIEW ebb.v_runs AS
SELECT r.id AS run,
       r.policy,
       r.policy_version,
       r.chore,
       r.leaf AS table_name,
       r.node,
       r.status,
       r.rows,
       r.batches,
       r.skipped,
       r.due,
       r.cutoff,
       r.shape,
       r.error,
       r.started_at,
       r.finished_at,
       extract(epoch FROM COALESCE(r.finished_at, clock_timestamp()) - r.started_at)::float8 AS seconds,
       CASE WHEN r.rows > 0 THEN
           (r.rows / GREATEST(extract(epoch FROM COALESCE(r.finished_at, clock_timestamp()) - r.started_at), 0.001))::float8
       END AS rows_per_second,
       r.failed
FROM ebb.run r;

-- As before; a soft delete at no time that can be counted from counts from now.
CREATE OR REPLACE FUNCTION ebb.delete_subject(policy text, id text, by text DEFAULT current_user) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    opened ebb.deletion;
    moment timestamptz := ebb.now();
    held timestamptz;
BEGIN
    PERFORM FROM ebb.deletion d WHERE d.policy = delete_subject.policy AND d.subject_id = delete_subject.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed') FOR UPDATE;
    root := ebb.touch_subject(policy, 'look', id, NULL, NULL);
    IF root.id IS NULL THEN
        RAISE EXCEPTION 'policy % knows no subject %', policy, quote_literal(id) USING ERRCODE = 'no_data_found';
    END IF;
    -- Looked at under the lock of the subject's row: whoever was first has committed by now.
    SELECT * INTO opened FROM ebb.deletion d WHERE d.policy = delete_subject.policy AND d.subject_id = root.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed');
    IF FOUND AND root.deleted_at IS NULL AND opened.state <> 'erasing' THEN
        UPDATE ebb.deletion d
        SET state = 'restored', closed_at = clock_timestamp(), closed_by = 'application', blocked = NULL, error = NULL
        WHERE d.id = opened.id;
        PERFORM ebb.note_subject('restore', policy, opened.id, 'application');
        opened := NULL;
    END IF;
    IF opened.id IS NULL THEN
        IF isfinite(root.deleted_at) THEN
            moment := root.deleted_at;
        END IF;
        INSERT INTO ebb.deletion (policy, subject_id, tenant, deleted_at, due_at, opened_by)
        VALUES (policy, root.id, root.tenant, moment, ebb.retained_until(policy, root.tenant, moment, false), by)
        RETURNING * INTO opened;
        PERFORM ebb.touch_subject(policy, 'delete', root.id, moment, opened.due_at);
        PERFORM ebb.note_subject('delete', policy, opened.id, by, jsonb_build_object('due_at', opened.due_at));
    END IF;
    SELECT COALESCE(h.until, 'infinity') INTO held FROM ebb.hold h
    WHERE h.policy = delete_subject.policy AND h.subject_id = root.id AND h.lifted_at IS NULL
      AND (h.until IS NULL OR h.until > ebb.now());
    RETURN GREATEST(opened.due_at, held);
END
$$;
