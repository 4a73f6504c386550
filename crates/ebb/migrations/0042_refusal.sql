-- What stands in the way of touching a subject's row is told apart: a policy that does not fit its table any more, a trigger that finds
-- no name under the path it runs with, and what the table itself refuses.

-- As before. What the policy's function, or a trigger under it, does not find is no mistake of the caller's: it says what helps. An id is
-- read when its row is looked up; what is wrong with a value after that comes from the table.
CREATE OR REPLACE FUNCTION ebb.touch_subject(policy text, op text, subject text, moment timestamptz, due timestamptz,
                                             OUT id text, OUT deleted_at timestamptz, OUT tenant text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres'
SET bytea_output = 'hex' SET extra_float_digits = 1 AS $$
DECLARE
    call text;
    enabled boolean;
    verb text := split_part(op, ' ', 1);
    query text;
    place text;
BEGIN
    SELECT r.subject_call, p.enabled INTO call, enabled
    FROM ebb.retain r JOIN ebb.policy p ON p.kind = 'retain' AND p.name = r.policy
    WHERE r.policy = touch_subject.policy AND r.subjects;
    IF call IS NULL THEN
        RAISE EXCEPTION 'there is no retain policy % with subjects', quote_literal(policy)
            USING ERRCODE = 'undefined_object', HINT = 'ebb policy list shows those there are';
    END IF;
    IF op = 'delete' AND NOT enabled THEN
        RAISE EXCEPTION 'policy % is disabled: nobody would erase what is deleted now', policy
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('ebb policy set %s enabled=true', policy);
    END IF;
    query := format('SELECT * FROM ebb.%I($1, $2, $3, $4)', call);
    BEGIN
        EXECUTE query INTO id, deleted_at, tenant USING op, subject, moment, due;
    EXCEPTION
        WHEN case_not_found THEN
            IF verb = 'former' THEN
                RETURN;
            ELSIF verb = op THEN
                RAISE;
            END IF;
            EXECUTE query INTO id, deleted_at, tenant USING verb, subject, moment, due;
        WHEN data_exception OR integrity_constraint_violation THEN
            IF verb NOT IN ('look', 'name', 'is') THEN
                RAISE;
            END IF;
            RAISE EXCEPTION 'no subject of % can have the id %: %', policy, quote_literal(subject), SQLERRM
                USING ERRCODE = 'invalid_text_representation',
                      HINT = 'an id is the primary key as text; of several columns a JSON array of texts';
        WHEN undefined_table OR undefined_column OR undefined_function OR undefined_object OR invalid_schema_name THEN
            GET STACKED DIAGNOSTICS place = PG_EXCEPTION_CONTEXT;
            place := split_part(place, chr(10), 1);
            IF strpos(place, format('ebb.%I(', call)) > 0 OR strpos(place, 'ebb.touch_subject(') > 0 THEN
                RAISE EXCEPTION 'the table is not what policy % says: %', policy, SQLERRM
                    USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'mend the table or the policy, then: ebb apply';
            END IF;
            RAISE EXCEPTION 'a trigger of the table failed: % (%)', SQLERRM, place
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = format('it runs with search_path = %s, without schemas in which others may create: name the schema in the trigger, '
                                    'SET search_path on its function, or REVOKE CREATE as ebb doctor prints it, then: ebb apply',
                                    (SELECT substr(s, 13) FROM pg_proc p, unnest(p.proconfig) s
                                     WHERE p.pronamespace = 'ebb'::regnamespace AND p.proname = call AND starts_with(s, 'search_path=')));
    END;
    IF verb = 'delete' AND deleted_at IS NULL OR verb = 'restore' AND (id IS NULL OR deleted_at IS NOT NULL) THEN
        RAISE EXCEPTION 'the row of subject % of policy % stayed as it was', quote_literal(subject), policy
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'a trigger of its table keeps it';
    END IF;
END
$$;
