-- How the split of a table ($1) stands. Expects split_pkey.
SELECT relation, relid::int8 AS relid, state, step, pages, page, applied, plan FROM ebb.split WHERE relation = $1
