-- Whether a sandbox ($1 name) of a table ($2) is one that a role ($3; null: whoever asks) may use: definer's rights, the
-- table's owner as its own, who is no superuser and cannot become the owner of the ebb schema. Read only.
SELECT EXISTS (
    SELECT
    FROM pg_proc p
    JOIN pg_class c ON c.oid = $2::int8::oid AND c.relowner = p.proowner
    JOIN pg_roles r ON r.oid = p.proowner
    JOIN pg_namespace n ON n.oid = p.pronamespace
    LEFT JOIN pg_namespace e ON e.nspname = 'ebb'
    WHERE n.nspname = 'ebb_sandbox' AND p.proname = $1 AND p.prosecdef
      AND NOT r.rolsuper AND NOT COALESCE(pg_has_role(r.oid, e.nspowner, 'MEMBER'), false)
      AND has_schema_privilege(COALESCE($3, current_user), n.oid, 'USAGE')
      AND has_function_privilege(COALESCE($3, current_user), p.oid, 'EXECUTE'))
