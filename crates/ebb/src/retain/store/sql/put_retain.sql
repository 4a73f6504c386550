-- What nodes and functions need to know of a policy: $1 policy, $2 table, $3 subjects, $4 grace, $5 floor, $6 zone,
-- $7 tenant_override, $8 function, $9 tree, $10 its tables, $11 by, $12 when to warn, $13 whether to proceed unwarned,
-- $14 whether the tree is approved with it; otherwise the one of before stays.
-- Index: retain_pkey.
INSERT INTO ebb.retain AS r (policy, relation, subjects, grace, floor, zone, tenant_override, subject_call, tree, tables, approved_by,
                             warn_before, proceed)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (policy) DO UPDATE
SET relation = EXCLUDED.relation, subjects = EXCLUDED.subjects, grace = EXCLUDED.grace, floor = EXCLUDED.floor,
    zone = EXCLUDED.zone, tenant_override = EXCLUDED.tenant_override, subject_call = EXCLUDED.subject_call,
    tree = CASE WHEN $14 THEN EXCLUDED.tree ELSE r.tree END, tables = CASE WHEN $14 THEN EXCLUDED.tables ELSE r.tables END,
    approved_by = CASE WHEN $14 THEN EXCLUDED.approved_by ELSE r.approved_by END,
    approved_at = CASE WHEN $14 THEN clock_timestamp() ELSE r.approved_at END,
    warn_before = EXCLUDED.warn_before, proceed = EXCLUDED.proceed
