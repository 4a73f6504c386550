-- Policies stay with what they were about when somebody applied them: a table by its number, columns by theirs.

-- The table that a policy names, as `ebb apply` reads it: literally at any of its dots first, like SQL after. Without a schema it is
-- one of public, and never another's.
CREATE OR REPLACE FUNCTION ebb.policy_table(typed text) RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT COALESCE(
        (SELECT c.oid FROM generate_series(1, length(typed)) AS dot (at)
         JOIN pg_namespace n ON n.nspname = left(typed, dot.at - 1)
         JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = substr(typed, dot.at + 1) AND c.relkind IN ('r', 'p')
         WHERE substr(typed, dot.at, 1) = '.' AND strpos(typed, '"') = 0
         ORDER BY dot.at LIMIT 1),
        (SELECT c.oid FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = typed AND c.relkind IN ('r', 'p')
         WHERE n.nspname = 'public' AND strpos(typed, '"') = 0),
        (SELECT c.oid
         FROM (SELECT CASE WHEN typed ~ '^("([^"]|"")+"|[a-zA-Z_][a-zA-Z0-9_$]*)(\.("([^"]|"")+"|[a-zA-Z_][a-zA-Z0-9_$]*))?$'
                           THEN parse_ident(typed) END AS part) AS i
         JOIN pg_namespace n ON n.nspname = CASE cardinality(i.part) WHEN 1 THEN 'public' ELSE i.part[1] END
         JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = i.part[cardinality(i.part)] AND c.relkind IN ('r', 'p')))
$$;
