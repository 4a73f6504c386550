-- Opens a session with the token $1 ($2: hash of its secret); $3 is the hash of what the cookie says, $4 its term.
SELECT ebb.session_open($1, $2, $3, $4)
