-- A receiver may answer with what it was sent. Of a warning that is a link which acts for whoever is warned, a name and an address: of its
-- answers, those of earlier attempts among them, only what is no text of the receiver's is kept.
CREATE FUNCTION ebb.bare_answer(answer jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN jsonb_typeof(answer) <> 'object' THEN NULL
            WHEN jsonb_typeof(answer -> 'earlier') = 'array'
            THEN jsonb_set(answer - 'body', '{earlier}', (SELECT COALESCE(jsonb_agg(e.attempt #- '{answer,body}' ORDER BY e.n), '[]')
                                                          FROM jsonb_array_elements(answer -> 'earlier') WITH ORDINALITY AS e (attempt, n)))
            ELSE answer - 'body' END;

-- An event of Ebb's own that warns, and not one of an application that is only called like it.
CREATE FUNCTION ebb.is_warning(id uuid, policy text, body text) RETURNS boolean LANGUAGE sql STABLE
RETURN CASE WHEN starts_with(body, '{') THEN
           jsonb_typeof(body::jsonb #> '{data,data}') = 'object'
           AND (body::jsonb ->> 'type' IN ('deletion_warning', 'deletion_reminder') AND body::jsonb -> 'data' ->> 'policy' = policy
                OR EXISTS (SELECT FROM ebb.warning w WHERE w.event = is_warning.id)) END;

-- As before, whatever became of the warning's row meanwhile; answers and errors, too. What is yet to be sent stays as it is.
CREATE OR REPLACE FUNCTION ebb.hide_link() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF ebb.is_warning(NEW.id, NEW.subject_policy, NEW.body) THEN
        NEW.response := ebb.bare_answer(NEW.response);
        NEW.error := replace(NEW.error, COALESCE(NULLIF(NEW.body::jsonb #>> '{data,data,restore_url}', ''), '(hidden)'), '(hidden)');
        IF TG_OP = 'INSERT' THEN
            NEW.body := jsonb_set(NEW.body::jsonb, '{data,data,restore_url}', '"(hidden)"', false)::text;
        END IF;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER hide_link BEFORE UPDATE OF response ON ebb.event
    FOR EACH ROW WHEN (NEW.subject_policy IS NOT NULL) EXECUTE FUNCTION ebb.hide_link();

UPDATE ebb.event e SET response = ebb.bare_answer(e.response)
WHERE e.subject_policy IS NOT NULL AND e.response IS NOT NULL AND ebb.is_warning(e.id, e.subject_policy, e.body);
UPDATE ebb.event_history h SET response = ebb.bare_answer(h.response)
WHERE h.subject_policy IS NOT NULL AND h.response IS NOT NULL AND ebb.is_warning(h.id, h.subject_policy, h.body);
