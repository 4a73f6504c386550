-- Makes this commit durable where the session's is not: a seal that is published and then lost in a crash would look
-- like a tail that was cut off.
-- Index: none. Lock: none.
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'
