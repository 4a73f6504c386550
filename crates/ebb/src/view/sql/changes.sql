-- A fingerprint of policies, pauses and brakes: few rows, read whole. Read only.
SELECT hashtextextended(
    COALESCE((SELECT string_agg(p.kind || p.name || p.version, ',' ORDER BY p.kind, p.name) FROM ebb.policy p), '') || ';' ||
    COALESCE((SELECT string_agg(x.name || x.paused_at, ',' ORDER BY x.name) FROM ebb.pause x), '') || ';' ||
    COALESCE((SELECT string_agg(b.policy || b.tripped_at || COALESCE(b.allowed_at::text, ''), ',' ORDER BY b.policy) FROM ebb.brake b), ''),
    0)
