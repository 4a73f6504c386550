-- What the database knows of each policy besides its keys: the next run of its earliest unit that takes rows, what was allowed past
-- its brake, whether it is paused. Expects policy_pkey; units are few. Read only.
SELECT p.name AS policy,
       (SELECT min(u.next_at) FROM ebb.unit u WHERE u.policy = p.name AND u.chore IN ('expire', 'erase')) AS next_at,
       b.allow_rows,
       CASE WHEN v.state = 'paused' THEN v.reason END AS paused
FROM ebb.policy p
JOIN ebb.v_policies v ON v.kind = p.kind AND v.name = p.name
LEFT JOIN ebb.brake b ON b.policy = p.name
WHERE p.kind IN ('expire', 'retain')
