-- Nobody is written to about an erasure that does not come any more: the policy was switched off or only observes, or nothing of the
-- subject's tenant goes. Who is warned later is warned anew, with the dates of then.

-- Takes back the warnings of deletions that no sink has yet; one that is being sent at this moment stays. Without a warning a deletion
-- is as if nobody had thought of one; where somebody else holds it, only its state says so later.
CREATE FUNCTION ebb.withdraw_warnings(deletions uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    events uuid[] := ARRAY(SELECT w.event FROM ebb.warning w WHERE w.deletion = ANY ($1) AND w.accepted_at IS NULL);
BEGIN
    IF events <> '{}' THEN
        PERFORM ebb.event_end(events, false, false);
        UPDATE ebb.deletion d SET state = 'pending'
        WHERE d.id IN (SELECT o.id FROM ebb.deletion o
                       WHERE o.id = ANY ($1) AND o.state = 'warned'
                         AND NOT EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = o.id AND w.step = 0)
                       FOR UPDATE SKIP LOCKED);
    END IF;
END
$$;

-- As before: of one.
CREATE OR REPLACE FUNCTION ebb.withdraw_warnings(deletion uuid) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT ebb.withdraw_warnings(ARRAY[$1])
$$;

-- Who is never due, as things stand, is not warned.
CREATE TRIGGER never_due AFTER UPDATE OF due_at ON ebb.deletion
    FOR EACH ROW WHEN (NEW.due_at = 'infinity' AND OLD.due_at <> 'infinity' AND NEW.state IN ('pending', 'warned'))
    EXECUTE FUNCTION ebb.deletion_needs_no_warning();
