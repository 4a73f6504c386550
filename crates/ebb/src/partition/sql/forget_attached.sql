-- What was out and was attached again by somebody is a partition like any other: should it leave once more, by whatever hand, that
-- is another time. Expects detached_pkey.
DELETE FROM ebb.detached d USING pg_catalog.pg_inherits i WHERE i.inhrelid = d.relid AND d.state = 'detached' AND d.home = ebb.home()
