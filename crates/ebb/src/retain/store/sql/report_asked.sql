-- How often each thing was asked for about subjects from $1 to $2. Index: audit_at; read only.
SELECT a.action, count(*) FROM ebb.audit a
WHERE a.action IN ('delete', 'mark', 'restore', 'hold', 'release', 'erase_requested', 'retry', 'override', 'floor') AND a.at BETWEEN $1 AND $2
GROUP BY a.action ORDER BY a.action
