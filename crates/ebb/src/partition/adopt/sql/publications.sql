-- The publications that have a table ($1): by name, or because they have its schema or all tables. Row filters and column
-- lists came with 15, so they are read through JSON. Read only.
SELECT p.pubname::text AS name, r.oid IS NULL AS all_tables, p.pubviaroot AS via_root,
       EXISTS (SELECT FROM pg_catalog.pg_publication_rel o JOIN pg_catalog.pg_class c ON c.oid = o.prrelid
               WHERE o.prpubid = p.oid AND c.relkind = 'p') AS has_partitioned,
       COALESCE(' (' || (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
           FROM pg_catalog.pg_attribute a
           WHERE a.attrelid = r.prrelid
             AND a.attnum::text = ANY (regexp_split_to_array(btrim(translate(to_jsonb(r) ->> 'prattrs', '[],', '   ')), '\s+'))) || ')', '') AS columns,
       to_jsonb(r) ->> 'prqual' IS NOT NULL AS has_filter
FROM pg_catalog.pg_publication p
LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = $1::int8::oid
WHERE p.puballtables OR r.oid IS NOT NULL
   OR EXISTS (SELECT FROM pg_catalog.pg_publication_tables t JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
              JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
              WHERE t.pubname = p.pubname AND c.oid = $1::int8::oid)
ORDER BY p.pubname
