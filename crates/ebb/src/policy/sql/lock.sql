-- One apply at a time; readers go on. Held until the transaction ends.
LOCK TABLE ebb.policy IN SHARE ROW EXCLUSIVE MODE
