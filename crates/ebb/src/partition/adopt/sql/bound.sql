-- From the newest value of a column ($2, as text) of kind $1 in zone $3: where the first partition must end when
-- periods are $4 (at least one whole period after the current one, and after the newest row), whether that is
-- beyond the $5 periods that would be made ahead, and how long it is until then. Read only.
WITH here AS (
    SELECT date_trunc($4, ebb.now() AT TIME ZONE ebb.partition_zone($1, $3)) AS this, ('1 ' || $4)::interval AS step,
           ebb.partition_moment($1, $2) AS newest
), ends AS (
    SELECT here.*, greatest(here.this + 2 * here.step,
        CASE WHEN isfinite(here.newest) THEN date_trunc($4, here.newest) + here.step END) AS bound
    FROM here
)
SELECT ends.bound::text AS bound, ebb.partition_literal($1, ends.bound) AS literal,
       COALESCE(ends.newest > ends.this + ($5::int + 1) * ends.step, false) AS too_far, ends.newest::text AS newest
FROM ends
