-- Which of these events ($1) somebody cancelled while a node held them. Expects event_cancel_pkey. Read only.
SELECT c.id FROM ebb.event_cancel c WHERE c.id = ANY ($1)
