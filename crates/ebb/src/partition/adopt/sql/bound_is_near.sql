-- Whether the end of the first partition ($3, kind $1, zone $2) is less than an hour away. Read only.
SELECT ebb.now() AT TIME ZONE ebb.partition_zone($1, $2) > $3::text::timestamp - interval '1 hour'
