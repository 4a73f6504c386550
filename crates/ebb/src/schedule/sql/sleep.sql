-- This node ($1) sleeps until $2, unless somebody writes an event due before that. Expects event_sleeper_pkey.
INSERT INTO ebb.event_sleeper (node, until) VALUES ($1, $2) ON CONFLICT (node) DO UPDATE SET until = EXCLUDED.until
