-- Whether the function ($1) of a policy's trigger is there. Catalog only; read only.
SELECT EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'ebb'::regnamespace AND proname = $1)
