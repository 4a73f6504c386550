-- Forgets links ($1) that were looked at. Index: late_link_pkey.
DELETE FROM ebb.late_link WHERE id = ANY($1)
