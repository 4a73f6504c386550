-- Whether a role ($2; null: whoever asks) may act as the owner of a table ($1). Read only.
SELECT pg_catalog.pg_has_role(COALESCE($2::name, current_user), c.relowner, 'USAGE') FROM pg_catalog.pg_class c WHERE c.oid = $1::int8::oid
