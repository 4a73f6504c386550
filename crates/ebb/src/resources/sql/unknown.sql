-- Which of the store's names ($2) no resource of the policy ($1) stands for: unknown, or a tombstone. Asked after the store
-- was listed: a resource is announced before it exists, so whatever was listed and is in use is found here. Expects
-- resource_name; read only.
SELECT t.name
FROM unnest($2::text[]) AS t (name)
WHERE NOT EXISTS (SELECT FROM ebb.resource r WHERE r.policy = $1 AND r.name = t.name AND r.state <> 'dropped')
