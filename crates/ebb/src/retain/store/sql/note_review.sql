-- The audit was reviewed from $1 to $2, up to the record $6: $3 subjects erased, $4 before their time, $5 stuck; but for what the
-- transactions that are not in the snapshot $7 had not committed yet.
INSERT INTO ebb.review (since, until, erased, premature, stuck, reached, snapshot) VALUES ($1, $2, $3, $4, $5, $6, $7::text::pg_snapshot)
