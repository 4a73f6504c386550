-- Whether an interval ($1) is one of these ($2: day, week, month, year); 30 days are not a month. Read only.
SELECT ($1::text::interval)::text = (('1 ' || $2)::interval)::text
