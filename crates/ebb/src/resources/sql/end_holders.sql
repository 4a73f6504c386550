-- Ends holders ($1) and all they refer to; the rows are locked FOR UPDATE by the statement before. Expects holder_pkey and
-- reference_holder.
SELECT ebb.holder_end($1)
