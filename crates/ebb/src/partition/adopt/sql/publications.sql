-- The publications that have a table ($1): by name, or because they have all. Row filters and column lists came with 15,
-- so they are read through JSON. Read only.
SELECT p.pubname::text AS name, p.puballtables AS all_tables, p.pubviaroot AS via_root,
       EXISTS (SELECT FROM pg_catalog.pg_publication_rel o JOIN pg_catalog.pg_class c ON c.oid = o.prrelid
               WHERE o.prpubid = p.oid AND c.relkind = 'p') AS has_partitioned,
       COALESCE(' (' || (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
           FROM pg_catalog.pg_attribute a
           WHERE a.attrelid = r.prrelid AND a.attnum::text = ANY (string_to_array(to_jsonb(r) ->> 'prattrs', ' '))) || ')', '') AS columns,
       to_jsonb(r) ->> 'prqual' IS NOT NULL AS has_filter
FROM pg_catalog.pg_publication p
LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = $1::int8::oid
WHERE p.puballtables OR r.oid IS NOT NULL
ORDER BY p.pubname
