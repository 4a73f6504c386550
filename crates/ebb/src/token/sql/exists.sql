-- Whether a token works at the moment. Read only, through the function: a node cannot read the table.
SELECT ebb.token_exists()
