-- Whether a table ($1) should have a sandbox: nodes run as ebb_node, its owner is somebody else, and one with fewer rights
-- than a superuser or the owner of the ebb schema, to whom a trigger must not be handed. Read only.
SELECT EXISTS (
    SELECT
    FROM pg_class c
    JOIN pg_roles o ON o.oid = c.relowner
    JOIN pg_roles node ON node.rolname = 'ebb_node'
    LEFT JOIN pg_namespace e ON e.nspname = 'ebb'
    WHERE c.oid = $1::int8::oid AND o.oid <> node.oid AND NOT o.rolsuper
      AND NOT COALESCE(pg_has_role(o.oid, e.nspowner, 'MEMBER'), false))
