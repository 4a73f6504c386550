-- Nothing that names a subject outlives it: neither an event that is scheduled while it is erased, nor what is kept of former deletions
-- and holds when the application deletes the row itself.

-- As before; and the subject's row is locked against its erasing, as a foreign key would, so that whoever erases comes after this event
-- and takes it along, or was before it and there is nobody any more whose it could be. Of what is there already nothing is refused: an
-- occurrence goes where its calendar is, in the transaction that has that locked; an event that is tried again may be of somebody whom the
-- application deleted itself. A function of the policy that another version made names the subject without looking for it.
CREATE OR REPLACE FUNCTION ebb.name_subject() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    how text := 'name locked';
    known boolean := false;
    id text;
BEGIN
    IF NOT EXISTS (SELECT FROM ebb.retain r WHERE r.policy = NEW.subject_policy AND r.subjects) THEN
        RETURN NEW;
    END IF;
    IF TG_TABLE_NAME = 'event' THEN
        known := NEW.token > 0;
        IF NEW.recurring IS NOT NULL AND NOT known THEN
            how := 'name';
        END IF;
    END IF;
    id := (ebb.touch_subject(NEW.subject_policy, how, NEW.subject_id, NULL, NULL)).id;
    IF id IS NULL AND NOT known THEN
        RAISE EXCEPTION 'policy % knows no subject %', NEW.subject_policy, quote_literal(NEW.subject_id) USING ERRCODE = 'no_data_found',
            HINT = 'An event of a subject goes with it: schedule it while the row is there, or without a subject.';
    END IF;
    NEW.subject_id := COALESCE(id, NEW.subject_id);
    RETURN NEW;
EXCEPTION WHEN case_not_found THEN
    RETURN NEW;     -- the policy was applied by a version that did not ask; the next apply makes its function anew
END
$$;

-- How far the marking of a policy has looked for former deletions, and for holds, whose subjects' rows are gone; null: from the beginning.
ALTER TABLE ebb.retain ADD COLUMN restored_after uuid, ADD COLUMN lifted_after bigint;
CREATE INDEX deletion_former ON ebb.deletion (policy, id) WHERE state = 'restored' AND subject_id IS NOT NULL;
CREATE INDEX hold_named ON ebb.hold (policy, id) WHERE subject_id IS NOT NULL;
