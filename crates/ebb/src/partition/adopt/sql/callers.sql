-- Functions (triggers' too) that write to a table whose name is $1 with ON CONFLICT, that set its column $2, or that name
-- ONLY it. A text search: it can be wrong both ways, and is shown as advice. Read only.
SELECT p.oid::regprocedure::text AS who,
       p.prosrc ~* ('insert\s+into\s+("?\w+"?\.)?"?' || $1 || '"?\M.*on\s+conflict\s*(\(|on\s+constraint|do\M)') AS on_conflict,
       p.prosrc ~* ('(update\s+(only\s+)?|merge\s+into\s+(only\s+)?)("?\w+"?\.)?"?' || $1 || '"?\M.*set\M[^;]*\m"?' || $2 || '"?\s*=') AS sets_column,
       p.prosrc ~* ('\monly\s+\(?("?\w+"?\.)?"?' || $1 || '"?\M') AS names_only
FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_language l ON l.oid = p.prolang AND l.lanname IN ('sql', 'plpgsql')
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'ebb')
  AND p.prosrc ~* ('\m' || $1 || '\M')
