-- When a block is sealed: the database's clock, to the microsecond that is signed and stored.
-- Index: none. Lock: none.
SELECT clock_timestamp()
