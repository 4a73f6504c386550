-- The brake of a policy ($1) trips: $2 due subjects, $3 the limit in words. Index: brake_pkey.
INSERT INTO ebb.brake (policy, due, allowed_before) VALUES ($1, $2, $3)
ON CONFLICT (policy) DO UPDATE
SET due = EXCLUDED.due, allowed_before = EXCLUDED.allowed_before, tripped_at = clock_timestamp(),
    allow_rows = NULL, allowed_by = NULL, allowed_at = NULL
