-- When a copy that is made now ends: the first midnight in UTC that is not before its term ($1, in zone $2) is over; and what time it is.
-- No table; read only.
SELECT date_trunc('day', (ebb.later(ebb.now(), $1, $2) AT TIME ZONE 'UTC') + interval '1 day' - interval '1 microsecond')
           AT TIME ZONE 'UTC',
       ebb.now()
