-- Which installation this is, and on which server and timeline it runs: a clone or a restored backup has another one of
-- the latter. Read only.
SELECT i.id,
       (SELECT system_identifier FROM pg_control_system())::text || '/' || (SELECT timeline_id FROM pg_control_checkpoint())::text AS server
FROM ebb.installation i
