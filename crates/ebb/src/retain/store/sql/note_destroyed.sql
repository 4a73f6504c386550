-- The keys of these periods ($1) were destroyed. Index: period_key_pkey. Returns those that were not known to be.
UPDATE ebb.period_key SET destroyed_at = ebb.now() WHERE until = ANY($1) AND destroyed_at IS NULL RETURNING until, key_id
