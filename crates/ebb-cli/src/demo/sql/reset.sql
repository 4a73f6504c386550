-- The demo's own database, empty again. Takes everything with it.
DROP SCHEMA IF EXISTS ebb CASCADE;
DROP SCHEMA IF EXISTS public CASCADE;
DROP SCHEMA IF EXISTS scratch CASCADE;
CREATE SCHEMA public;
