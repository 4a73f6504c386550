-- The subscriptions that write to any of these tables ($1), and whether they are at work. Read only.
SELECT DISTINCT s.subname::text AS name, s.subenabled AS is_enabled
FROM pg_catalog.pg_subscription_rel r JOIN pg_catalog.pg_subscription s ON s.oid = r.srsubid
WHERE r.srrelid = ANY (SELECT x::oid FROM unnest($1::int8[]) x)
ORDER BY 1
