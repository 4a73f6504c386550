-- Whether changes were applied ($2) to the parts of a split ($1) that an older view of the tables may not have. Expects split_pkey.
UPDATE ebb.split SET applied = $2 WHERE relation = $1 AND applied <> $2
