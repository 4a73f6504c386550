-- The keys of these periods ($1) with these ids ($2) were destroyed. Index: period_key_pkey. Returns those that were not known to be.
UPDATE ebb.period_key k SET destroyed_at = ebb.now() FROM unnest($1::timestamptz[], $2::text[]) AS d (until, key_id)
WHERE k.until = d.until AND k.key_id = d.key_id AND k.destroyed_at IS NULL
RETURNING k.until, k.key_id
