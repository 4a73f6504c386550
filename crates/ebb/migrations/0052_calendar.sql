-- A term after a moment is over: by the calendar of the policy's zone, as everything that is kept for months is counted, and by that of UTC,
-- by which a month may end later. Null where either is.
CREATE FUNCTION ebb.is_over(moment timestamptz, term interval, zone text) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN moment <= ((ebb.now() AT TIME ZONE 'UTC') - term) AT TIME ZONE 'UTC' AND ebb.later(moment, term, COALESCE(zone, 'UTC')) <= ebb.now();

-- The link in a warning that ended acts for whoever was to be warned, also where the warning was taken back or could not be delivered:
-- nobody needs it here, because one that is made anew has a link of its own. Events of applications that are called like one stay as they are.
UPDATE ebb.event_history h SET body = jsonb_set(h.body::jsonb, '{data,data,restore_url}', '"(hidden)"', false)::text
WHERE h.subject_policy IS NOT NULL AND h.state <> 'done'
  AND CASE WHEN starts_with(h.body, '{') THEN
          h.body::jsonb ->> 'type' IN ('deletion_warning', 'deletion_reminder') AND h.body::jsonb -> 'data' ->> 'policy' = h.subject_policy
          AND jsonb_typeof(h.body::jsonb #> '{data,data}') = 'object' END;
DROP TRIGGER hide_link ON ebb.event_history;
CREATE TRIGGER hide_link BEFORE INSERT ON ebb.event_history
    FOR EACH ROW WHEN (NEW.subject_policy IS NOT NULL) EXECUTE FUNCTION ebb.hide_link();

-- Whoever wrote a record may commit after a review has passed its number. Each review says what it could see, and the next one looks
-- for what was written besides; what was passed without that is gone through once more.
ALTER TABLE ebb.review ADD COLUMN snapshot pg_snapshot NOT NULL DEFAULT '1:1:', ADD COLUMN looked_at timestamptz NOT NULL DEFAULT clock_timestamp();
UPDATE ebb.review SET reached = 0;
