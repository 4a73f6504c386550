-- How many keys nobody has destroyed an hour after their day came; nodes look every few seconds. Read only.
SELECT count(*) FROM ebb.period_key WHERE destroyed_at IS NULL AND until <= ebb.now() - interval '1 hour'
