-- This node ($1) looks for itself from now on; rows of nodes that died asleep go with it. Expects event_sleeper_pkey.
DELETE FROM ebb.event_sleeper WHERE node = $1 OR until < ebb.clock() - interval '1 day'
