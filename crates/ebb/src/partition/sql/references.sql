-- What the foreign keys of a table ($1) refer to: the table, and the condition that a row of it (r) is the one that a row (m)
-- refers to, by the operators of the key; and whether this role may keep such rows from going. Read only.
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS relation,
       (SELECT string_agg(pg_catalog.format('r.%I OPERATOR(%I.%s) m.%I', theirs.attname, s.nspname, o.oprname, mine.attname), ' AND ' ORDER BY i)
        FROM generate_subscripts(k.conkey, 1) i
        JOIN pg_catalog.pg_attribute mine ON mine.attrelid = k.conrelid AND mine.attnum = k.conkey[i]
        JOIN pg_catalog.pg_attribute theirs ON theirs.attrelid = k.confrelid AND theirs.attnum = k.confkey[i]
        JOIN pg_catalog.pg_operator o ON o.oid = k.conpfeqop[i]
        JOIN pg_catalog.pg_namespace s ON s.oid = o.oprnamespace) AS same,
       pg_catalog.has_table_privilege(c.oid, 'SELECT') AND pg_catalog.has_any_column_privilege(c.oid, 'UPDATE')
       AND NOT pg_catalog.row_security_active(c.oid) AS may
FROM pg_catalog.pg_constraint k
JOIN pg_catalog.pg_class c ON c.oid = k.confrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE k.conrelid = $1::int8::oid AND k.contype = 'f'
  -- A key into a partitioned table has a row more for each partition.
  AND (k.conparentid = 0 OR NOT EXISTS (SELECT FROM pg_catalog.pg_constraint p WHERE p.oid = k.conparentid AND p.conrelid = k.conrelid))
ORDER BY k.conname
