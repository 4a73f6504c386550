-- Since when the audit waits for a review (the last one, or the day that the schema was made), what time it is, and whether
-- somebody asked for the unit ($1). Index: review_pkey, unit_pkey; read only.
SELECT COALESCE((SELECT max(v.until) FROM ebb.review v), (SELECT min(m.applied_at) FROM ebb.migration m)), ebb.now(),
       COALESCE((SELECT u.triggered FROM ebb.unit u WHERE u.unit = $1), false)
