-- Ends the session whose cookie hashes to $1. Expects session_pkey.
SELECT ebb.session_close($1)
