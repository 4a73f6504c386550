-- How often a leaf ($1) was vacuumed by hand, for telling whether one was skipped; null where nothing is counted. Read only.
SELECT CASE WHEN current_setting('track_counts')::bool THEN pg_stat_get_vacuum_count($1::int8::oid) END
