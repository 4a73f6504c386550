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

-- What a policy was about when somebody applied it last: the table as the policy names it, its number, and the numbers of the columns that
-- decide about rows. Numbers count where they were given (ebb.home()).
CREATE TABLE ebb.anchor (
    kind            text        NOT NULL,
    policy          text        NOT NULL,
    typed           text        NOT NULL,
    relid           oid         NOT NULL,
    columns         jsonb       NOT NULL,                    -- name: number
    home            text        NOT NULL DEFAULT ebb.home(),
    PRIMARY KEY (kind, policy)
);

-- Policies of before are taken as they are now.
INSERT INTO ebb.anchor (kind, policy, typed, relid, columns)
SELECT p.kind, p.name, p.spec ->> 'table', t.oid,
       (SELECT COALESCE(jsonb_object_agg(a.attname, a.attnum), '{}')
        FROM unnest(ARRAY[p.spec ->> 'column', p.spec ->> 'deleted_at', p.spec ->> 'tenant']) AS named (name)
        CROSS JOIN LATERAL (SELECT a.attname, a.attnum FROM pg_catalog.pg_attribute a
                            WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname IN (named.name, lower(named.name))
                            ORDER BY a.attname <> named.name LIMIT 1) AS a)
FROM ebb.policy p
LEFT JOIN ebb.retain r ON p.kind = 'retain' AND r.policy = p.name
CROSS JOIN LATERAL (SELECT COALESCE(ebb.table_named(r.relation), ebb.policy_table(p.spec ->> 'table')) AS oid) AS t
WHERE p.kind IN ('expire', 'retain') AND t.oid IS NOT NULL;

-- A hold reaches into tables, whatever they are called by now.
ALTER TABLE ebb.reach ADD COLUMN relid oid, ADD COLUMN home text NOT NULL DEFAULT ebb.home();
UPDATE ebb.reach r SET relid = ebb.table_named(r.relation);
