-- The brake of a policy ($1) trips: $2 due, $3 the limit in words. An allowance that was too small goes. Expects brake_pkey;
-- locks the row.
INSERT INTO ebb.brake (policy, due, allowed_before) VALUES ($1, $2, $3)
ON CONFLICT (policy) DO UPDATE
SET due = EXCLUDED.due, allowed_before = EXCLUDED.allowed_before, tripped_at = clock_timestamp(),
    allow_rows = NULL, allowed_by = NULL, allowed_at = NULL
