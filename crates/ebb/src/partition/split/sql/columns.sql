-- The columns of a table ($1), in order: name, whether it is generated, and what tells its values apart bit by bit: the
-- type's own equality, that of letters, or only the text that a value is written as. Read only.
SELECT a.attname::text AS name, a.attgenerated <> '' AS is_generated,
       CASE WHEN a.atttypid IN ('text'::regtype, 'varchar'::regtype) THEN 'letters'
            WHEN a.atttypid IN ('bool'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype, 'uuid'::regtype, 'bytea'::regtype,
                                'date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype) THEN 'value'
            ELSE 'text' END AS told
FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1::int8::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
