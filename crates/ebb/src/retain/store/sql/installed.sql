-- Whether the schema is there with everything that a look at subjects asks. Read only.
SELECT pg_catalog.to_regprocedure('ebb.is_over(text, text, timestamptz, boolean)') IS NOT NULL AND pg_catalog.to_regprocedure('ebb.home()') IS NOT NULL
