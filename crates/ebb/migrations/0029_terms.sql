-- Records that keep nothing of whoever is gone.

-- Whether a name is that of a subject itself: its id or a part of that, or what its policy contacts it by.
CREATE FUNCTION ebb.is_subject(policy text, subject text, name text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    call text;
    found boolean;
BEGIN
    IF subject IS NULL OR name IN ('application', 'ebb') THEN
        RETURN false;
    END IF;
    IF lower(btrim(name)) = lower(subject) THEN
        RETURN true;
    END IF;
    SELECT r.subject_call INTO call FROM ebb.retain r WHERE r.policy = $1;
    IF call IS NULL THEN
        RETURN false;
    END IF;
    BEGIN
        EXECUTE format('SELECT EXISTS (SELECT FROM ebb.%I($1, $2, NULL, NULL))', call) INTO found
            USING 'is ' || lower(btrim(name)), subject;
    EXCEPTION WHEN case_not_found THEN
        -- Made by an older version; the next `ebb apply` makes it anew.
        found := false;
    END;
    RETURN found;
END
$$;

-- As before, without what would name the subject for ever: records are never changed. The reason of a hold is with the hold, until the
-- subject is erased.
CREATE OR REPLACE FUNCTION ebb.note_subject(action text, policy text, deletion uuid, by_name text, details jsonb DEFAULT '{}') RETURNS void
LANGUAGE sql SET search_path = pg_catalog AS $$
    INSERT INTO ebb.audit (action, policy, policy_version, relation, rows, by_name, details)
    SELECT $1, $2, p.version, r.relation, 0,
           CASE WHEN ebb.is_subject($2, COALESCE((SELECT d.subject_id FROM ebb.deletion d WHERE d.id = $3),
                                                 (SELECT h.subject_id FROM ebb.hold h WHERE h.id = ($5 ->> 'hold')::bigint)), $4)
                THEN 'the subject' ELSE left(COALESCE($4, session_user::text), 200) END,
           jsonb_strip_nulls(jsonb_build_object('deletion', $3) || ($5 - 'reason'))
    FROM ebb.retain r LEFT JOIN ebb.policy p ON p.kind = 'retain' AND p.name = r.policy WHERE r.policy = $2
$$;
