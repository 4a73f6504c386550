-- Nodes look at once for what marking of a policy ($1) has to do. Index: none; units are few.
UPDATE ebb.unit SET triggered = true WHERE policy = $1 AND chore = 'mark' AND NOT triggered
