-- The first record that may be about something from $1 on (a record is made after the moment that it names, unless the clock was moved),
-- and the last that there is; (1, 0) where there is none. Found by halving: numbers and times of records go up together, but for what
-- clocks and transactions make of it, which is less than a day. Index: audit_pkey; read only.
WITH RECURSIVE ends AS (
    SELECT COALESCE(min(a.id), 1) AS first, COALESCE(max(a.id), 0) AS last,
           CASE WHEN ebb.now() = now() THEN $1::timestamptz - interval '1 day' ELSE '-infinity' END AS since
    FROM ebb.audit a
), halved (low, high) AS (
    SELECT ends.first, ends.last FROM ends WHERE ends.since > '-infinity'
    UNION ALL
    SELECT CASE WHEN later.yes THEN h.low ELSE h.middle + 1 END, CASE WHEN later.yes THEN h.middle ELSE h.high END
    FROM (SELECT low, high, (low + high) / 2 AS middle FROM halved WHERE low < high) h
    CROSS JOIN LATERAL (
        SELECT COALESCE((SELECT a.at >= (SELECT ends.since FROM ends) FROM ebb.audit a WHERE a.id >= h.middle ORDER BY a.id LIMIT 1), true) AS yes
    ) later
)
SELECT COALESCE((SELECT max(low) FROM halved), ends.first), ends.last FROM ends
