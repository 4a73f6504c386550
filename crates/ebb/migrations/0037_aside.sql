-- Upkeep steps aside: attaching a partition locks what the table refers to, and whoever writes there waits behind a lock that
-- is waited for. So that is short, is tried again, and who was in the way is named.

-- As before, under a lock time-out of its own.
ALTER FUNCTION ebb.add_partitions(oid, text, text, int, text, text, int) SET lock_timeout = '60ms';

-- Who holds or waits for a lock on a table, or on what it refers to, for longest, in words; null when nobody does.
CREATE FUNCTION ebb.in_the_way(relation oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    SELECT format('pid %s (%s) has been in a transaction for %s s: %s', a.pid, a.application_name,
                  round(extract(epoch FROM clock_timestamp() - a.xact_start)), left(a.query, 80))
    FROM pg_locks l
    JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
      AND (l.relation = in_the_way.relation OR l.relation IN (
           SELECT k.confrelid FROM pg_constraint k WHERE k.contype = 'f' AND k.conrelid = in_the_way.relation))
    ORDER BY a.xact_start
    LIMIT 1
$$;

-- For those who keep partitions ahead with a scheduler of their own: makes what the policy is missing, all of it; how
-- many. Gives way to others and tries again, for about three seconds. Needs the rights of the table's owner.
CREATE OR REPLACE FUNCTION ebb.ensure_partitions(policy text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    found record;
    parent oid;
    who text;
BEGIN
    SELECT p.spec, p.enabled, p.stopped INTO found FROM ebb.policy p WHERE p.kind = 'partition' AND p.name = policy;
    IF found IS NULL THEN
        RAISE EXCEPTION 'there is no partition policy %', quote_literal(policy) USING HINT = 'ebb policy list shows them';
    END IF;
    IF NOT found.enabled OR found.stopped IS NOT NULL THEN
        RAISE EXCEPTION 'partition policy % does not run: %', quote_literal(policy), COALESCE(found.stopped, 'it is disabled');
    END IF;
    parent := ebb.policy_table(found.spec ->> 'table');
    IF parent IS NULL THEN
        RAISE EXCEPTION 'there is no table %', found.spec ->> 'table';
    END IF;
    FOR attempt IN 1 .. 10 LOOP
        BEGIN
            RETURN ebb.add_partitions(parent, found.spec ->> 'column', found.spec ->> 'by', COALESCE((found.spec ->> 'ahead')::int, 12),
                found.spec ->> 'unit', found.spec ->> 'zone', 2147483647);
        EXCEPTION WHEN lock_not_available THEN
            who := COALESCE(ebb.in_the_way(parent), who);
        END;
        PERFORM pg_sleep(0.25);
    END LOOP;
    RAISE EXCEPTION 'no partition of % could be made: %', parent::regclass, COALESCE(who, 'no lock was to be had')
        USING ERRCODE = 'lock_not_available', HINT = 'call it again when that transaction is over';
END
$$;
