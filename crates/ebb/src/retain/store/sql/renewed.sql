-- Every open deletion of a policy ($1) is due when that says. Index: retain_pkey. Lock: its row; whoever changes the policy meanwhile
-- makes it another version, and this transaction does not count.
UPDATE ebb.retain SET renews = false WHERE policy = $1
