-- Counts what a part of a large subject ($1) took: $2 rows, $3 of them by table. Index: deletion_pkey.
UPDATE ebb.deletion
SET rows = COALESCE(rows, 0) + $2, attempts = 0, error = NULL,
    parts = (SELECT COALESCE(jsonb_object_agg(name, total), '{}') FROM (
                 SELECT part.key AS name, sum(part.value::bigint) AS total
                 FROM (SELECT * FROM jsonb_each_text(parts) UNION ALL SELECT * FROM jsonb_each_text($3)) AS part
                 GROUP BY part.key) AS summed)
WHERE id = $1
