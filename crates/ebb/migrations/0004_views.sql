-- What people and dashboards read: views whose columns stay as they are, whatever becomes of the tables underneath.
-- Columns are only ever added, at the end.

-- Policies, and whether anything happens to them. state: active | observe | paused | braked | stopped | disabled;
-- reason says why for the last four, remedy what ends it.
CREATE VIEW ebb.v_policies AS
SELECT p.kind,
       p.name,
       p.spec ->> 'description' AS description,
       p.spec ->> 'table' AS table_name,
       CASE WHEN NOT p.enabled THEN 'disabled'
            WHEN p.stopped IS NOT NULL THEN 'stopped'
            WHEN pause.name IS NOT NULL THEN 'paused'
            WHEN brake.policy IS NOT NULL THEN 'braked'
            WHEN p.spec ->> 'mode' = 'observe' THEN 'observe'
            ELSE 'active' END AS state,
       CASE WHEN NOT p.enabled THEN NULL
            WHEN p.stopped IS NOT NULL THEN p.stopped
            WHEN pause.name IS NOT NULL THEN
                CASE pause.name WHEN '*' THEN 'everything is paused' ELSE 'paused' END
                || ' by ' || pause.paused_by || COALESCE(': ' || pause.reason, '')
            WHEN brake.policy IS NOT NULL THEN
                'about ' || brake.due || ' rows are due, more than the brake allows (' || brake.allowed_before || ')'
            END AS reason,
       CASE WHEN NOT p.enabled THEN NULL
            WHEN p.stopped IS NOT NULL THEN 'ebb apply'
            WHEN pause.name = '*' THEN 'ebb resume'
            WHEN pause.name IS NOT NULL THEN 'ebb resume ' || p.name
            WHEN brake.policy IS NOT NULL THEN 'ebb resume ' || p.name || ' --allow ' || brake.due
            END AS remedy,
       p.enabled,
       p.version,
       p.source,
       p.changed_at,
       p.changed_by,
       p.spec
FROM ebb.policy p
LEFT JOIN LATERAL (
    SELECT x.name, x.paused_by, x.reason FROM ebb.pause x
    WHERE x.name IN ('*', p.name) AND p.kind NOT IN ('settings', 'once', 'sink')
    ORDER BY x.name LIMIT 1
) pause ON true
LEFT JOIN ebb.brake ON brake.policy = p.name AND brake.allow_rows IS NULL AND p.kind NOT IN ('settings', 'once', 'sink');
COMMENT ON VIEW ebb.v_policies IS 'Policies with their state, why, and the command that ends it';

-- Runs, newest ones with the highest run. status: running | success | failed | stopped | braked | observed | abandoned.
CREATE VIEW ebb.v_runs AS
SELECT r.id AS run,
       r.policy,
       r.policy_version,
       r.chore,
       r.leaf AS table_name,
       r.node,
       r.status,
       r.rows,
       r.batches,
       r.skipped,
       r.due,
       r.cutoff,
       r.shape,
       r.error,
       r.started_at,
       r.finished_at,
       extract(epoch FROM COALESCE(r.finished_at, clock_timestamp()) - r.started_at)::float8 AS seconds,
       CASE WHEN r.rows > 0 THEN
           (r.rows / GREATEST(extract(epoch FROM COALESCE(r.finished_at, clock_timestamp()) - r.started_at), 0.001))::float8
       END AS rows_per_second
FROM ebb.run r;
COMMENT ON VIEW ebb.v_runs IS 'Every run that is kept, with its result and its speed';

-- What is due and not done, a row for each unit of work. pending, oldest_due and counted_at are from the last look.
CREATE VIEW ebb.v_backlog AS
SELECT u.policy,
       u.chore,
       u.leaf AS table_name,
       u.pending,
       CASE WHEN u.pending > 0 THEN u.oldest_due END AS oldest_due,
       u.counted_at,
       CASE WHEN isfinite(u.next_at) AND u.next_at < ebb.now() THEN ebb.now() - u.next_at END AS late_by,
       u.next_at,
       u.last_success_at,
       u.failures,
       u.throttle,
       u.shape,
       u.vacuum,
       CASE WHEN l.expires_at > clock_timestamp() THEN l.node END AS held_by
FROM ebb.unit u
LEFT JOIN ebb.lease l ON l.unit = u.unit;
COMMENT ON VIEW ebb.v_backlog IS 'Work that is due, late, failing or resting, by policy and table';

-- The proof. block is null until the record is sealed.
CREATE VIEW ebb.v_audit AS
SELECT a.id,
       a.at,
       a.action,
       a.policy,
       a.policy_version,
       a.relation AS table_name,
       a.rows,
       a.cutoff,
       a.due_from,
       a.due_to,
       a.run,
       a.node,
       a.by_name,
       a.session_role,
       encode(a.subject, 'hex') AS subject,
       a.details,
       l.block,
       b.sealed_at
FROM ebb.audit a
LEFT JOIN ebb.audit_leaf l ON l.record = a.id
LEFT JOIN ebb.audit_block b ON b.number = l.block;
COMMENT ON VIEW ebb.v_audit IS 'Audit records and the block that seals each';
