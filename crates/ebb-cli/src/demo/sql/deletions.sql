-- How the deletions of accounts stand, and whether everybody who was warned has had the time that was promised.
SELECT count(*) FILTER (WHERE warning = 'accepted') AS warned,
       count(*) FILTER (WHERE state = 'erased') AS erased,
       count(*) FILTER (WHERE state = 'restored') AS restored,
       (SELECT count(*) FROM ebb.hold WHERE policy = 'accounts' AND lifted_at IS NULL) AS held,
       COALESCE(bool_and(due_at <= ebb.now()) FILTER (WHERE state = 'warned' AND NOT on_hold), true) AS over,
       (SELECT count(*) FROM public.account) AS accounts,
       (SELECT COALESCE(sum(rows), 0)::int8 FROM ebb.audit WHERE action = 'erase' AND policy = 'accounts') AS rows
FROM ebb.v_deletions WHERE policy = 'accounts'
