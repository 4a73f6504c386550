-- Cancellations of events that have ended by now go. Expects event_pkey.
DELETE FROM ebb.event_cancel c WHERE NOT EXISTS (SELECT FROM ebb.event e WHERE e.id = c.id)
