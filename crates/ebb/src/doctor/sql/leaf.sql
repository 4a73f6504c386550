-- How a leaf ($1) is looked after; $2 is the name of the due column. Expects pg_class and pg_index; read only.
SELECT COALESCE(s.n_live_tup, 0) AS live,
       COALESCE(s.n_dead_tup, 0) AS dead,
       COALESCE(s.n_tup_ins, 0) AS inserted,
       COALESCE(s.n_tup_del, 0) AS deleted,
       COALESCE(s.last_autovacuum, s.last_vacuum) AS vacuumed_at,
       c.reltuples >= 0 AND (s.last_analyze IS NOT NULL OR s.last_autoanalyze IS NOT NULL) AS analyzed,
       c.relispartition AS is_partition,
       EXISTS (SELECT FROM unnest(c.reloptions) o
               WHERE lower(o) IN ('autovacuum_enabled=false', 'autovacuum_enabled=off', 'autovacuum_enabled=0',
                                  'autovacuum_enabled=no')) AS autovacuum_off,
       current_setting('autovacuum') = 'off' AS autovacuum_off_everywhere,
       (SELECT format('%I.%I', n.nspname, ic.relname)
        FROM pg_index i
        JOIN pg_class ic ON ic.oid = i.indexrelid
        JOIN pg_namespace n ON n.oid = ic.relnamespace
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = c.oid AND NOT i.indisvalid AND i.indpred IS NULL AND a.attname = $2
        LIMIT 1) AS invalid_index
FROM pg_class c
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE c.oid = $1::int8::oid
