-- Settings of a sealing transaction. Durable, where the session's commits are not: a seal that is published and then
-- lost in a crash would look like a tail that was cut off. By index: after a burst the statistics of the waiting list
-- still say "short", and reading and sorting all of a million took 1.1 s a block instead of 65 ms.
-- Index: none. Lock: none.
SELECT set_config('enable_seqscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                                            WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)
