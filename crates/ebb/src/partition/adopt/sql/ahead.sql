-- The partitions that a table ($1, of kind $2) gets besides its first: from $3 on, by $4, until $5 periods after the
-- current one in zone $6, no further than the type of its column ($7). A name that is taken gives way. Read only.
SELECT ebb.free_partition_name($1::int8::oid, ebb.partition_suffix($4, start)) AS name,
       ebb.partition_literal($2, start) AS lower_bound, ebb.partition_literal($2, least(start + ('1 ' || $4)::interval, ebb.partition_limit($1::int8::oid, $7))) AS upper_bound
FROM generate_series($3::text::timestamp, greatest($3::text::timestamp,
         date_trunc($4, ebb.now() AT TIME ZONE ebb.partition_zone($2, $6)) + $5::int * ('1 ' || $4)::interval), ('1 ' || $4)::interval) start
WHERE start < COALESCE(ebb.partition_limit($1::int8::oid, $7), 'infinity')
ORDER BY start
