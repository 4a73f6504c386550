-- The demo's own database, empty again. Takes everything with it.
DROP SCHEMA IF EXISTS ebb CASCADE;
DROP SCHEMA IF EXISTS public CASCADE;
CREATE SCHEMA public;
