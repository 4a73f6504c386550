-- Which of the store's names ($1) no resource stands for: unknown, or a tombstone. Asked after the store was listed: a
-- resource is announced before it exists, so whatever was listed and is in use is found here. Under any policy: two that
-- reach one place by different names must not take each other's for orphans. Expects resource_name; read only.
SELECT t.name
FROM unnest($1::text[]) AS t (name)
WHERE NOT EXISTS (SELECT FROM ebb.resource_store s JOIN ebb.resource r ON r.policy = s.policy
                  WHERE r.name = t.name AND r.state <> 'dropped')
