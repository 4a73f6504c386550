-- A recurring event ($1). Expects recurring_pkey. Read only.
SELECT r.id, r.kind, r.policy, r.sink, r.next_at, r.month, r.day, to_char(r.at, 'HH24:MI:SS') AS at, r.leap_day, r.cron, r.zone,
       r.missed, r.version, r.passed_over, r.cancelled_at, r.dedupe_key, r.payload
FROM ebb.recurring r WHERE r.id = $1
