-- What a node may do, where the role ebb_node exists: everything with its own state, but the audit only grows.
-- Run again after every migration, as the schema's owner.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'ebb_node') THEN
        GRANT USAGE ON SCHEMA ebb TO ebb_node;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ebb TO ebb_node;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA ebb TO ebb_node;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ebb TO ebb_node;
        REVOKE UPDATE, DELETE, TRUNCATE ON ebb.audit, ebb.audit_block, ebb.audit_leaf FROM ebb_node;
        REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON ebb.audit_pending FROM ebb_node;
        REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON ebb.migration FROM ebb_node;
        -- What a policy was, and what a review has found, stays.
        REVOKE UPDATE, DELETE, TRUNCATE ON ebb.policy_history, ebb.premature, ebb.review FROM ebb_node;
        -- Which key it is stays as it was, unless its owner says that it is lost.
        REVOKE UPDATE, DELETE, TRUNCATE ON ebb.subject_key FROM ebb_node;
        -- Tokens are checked by functions; a trigger on a swept table runs with the node's rights and must not read them.
        REVOKE ALL ON ebb.token, ebb.session FROM ebb_node;
        -- A simple view passes writes on with its owner's rights.
        REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON ebb.v_policies, ebb.v_runs, ebb.v_backlog, ebb.v_audit, ebb.v_resources,
            ebb.v_events, ebb.v_events_late, ebb.v_events_stuck, ebb.v_deletions, ebb.v_holds FROM ebb_node;
    END IF;
    -- What an application may do, where the role ebb_app exists: claim, refer, schedule. The tables stay out of its reach.
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'ebb_app') THEN
        GRANT USAGE ON SCHEMA ebb TO ebb_app;
        GRANT EXECUTE ON FUNCTION
            ebb.once(text, text, interval, bytea), ebb.once_many(text, text[], interval),
            ebb.once_begin(text, text, interval, bytea), ebb.once_complete(text, text, bigint, jsonb),
            ebb.once_release(text, text, bigint), ebb.once_result(text, text) TO ebb_app;
        GRANT EXECUTE ON FUNCTION
            ebb.delete_subject(text, text, text), ebb.restore_subject(text, text, text), ebb.erase_subject(text, text, text),
            ebb.holder_open(text, interval, jsonb), ebb.holder_beat(uuid), ebb.holder_close(uuid),
            ebb.create_intent(text, text, uuid, jsonb), ebb.created(text, text, text), ebb.incref(text, text, uuid),
            ebb.decref(text, text, uuid), ebb.apply_refs(jsonb), ebb.apply_refs_of(text, uuid, text[], text[]) TO ebb_app;
        GRANT EXECUTE ON FUNCTION
            ebb.schedule(text, timestamptz, jsonb, text, interval, text, text), ebb.schedule_many(jsonb),
            ebb.schedule_yearly(text, integer, integer, time, text, jsonb, text, text, interval, text, text, text),
            ebb.cancel(uuid) TO ebb_app;
        -- A hold is an operator's, as over HTTP: who may erase must not be able to lift it first.
        REVOKE EXECUTE ON FUNCTION ebb.place_hold(text, text, text, timestamptz, text), ebb.lift_hold(text, text, text) FROM ebb_app;
    END IF;
END
$$;
REVOKE EXECUTE ON ALL ROUTINES IN SCHEMA ebb FROM PUBLIC;

-- Names of types and tables are looked up in the session's temporary schema first, unless the path has it: last, where nobody can put
-- anything of his own before what a function means.
DO $$
DECLARE
    unpinned regprocedure;
BEGIN
    FOR unpinned IN SELECT p.oid FROM pg_catalog.pg_proc p
                    WHERE p.pronamespace = 'ebb'::regnamespace AND 'search_path=pg_catalog' = ANY (p.proconfig) LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', unpinned);
    END LOOP;
END
$$;

-- What a backslash means in a function must not depend on a database's or a role's setting.
DO $$
DECLARE
    loose regprocedure;
BEGIN
    FOR loose IN SELECT p.oid FROM pg_catalog.pg_proc p
                 WHERE p.pronamespace = 'ebb'::regnamespace AND p.prokind = 'f' AND strpos(p.prosrc, chr(92)) > 0 AND pg_has_role(p.proowner, 'USAGE')
                   AND 'standard_conforming_strings=on' <> ALL (COALESCE(p.proconfig, '{}')) LOOP
        EXECUTE format('ALTER FUNCTION %s SET standard_conforming_strings = on', loose);
    END LOOP;
END
$$;

-- Nor how a type is called that they tell apart by its name.
DO $$
DECLARE
    loose regprocedure;
BEGIN
    FOR loose IN SELECT p.oid FROM pg_catalog.pg_proc p
                 WHERE p.pronamespace = 'ebb'::regnamespace AND p.prokind = 'f' AND strpos(p.prosrc, 'format_type') > 0 AND pg_has_role(p.proowner, 'USAGE')
                   AND 'quote_all_identifiers=off' <> ALL (COALESCE(p.proconfig, '{}')) LOOP
        EXECUTE format('ALTER FUNCTION %s SET quote_all_identifiers = off', loose);
    END LOOP;
END
$$;
