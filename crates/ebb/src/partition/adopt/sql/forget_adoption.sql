-- An adoption ($1) is over. Expects adoption_pkey.
DELETE FROM ebb.adoption WHERE relation = $1
