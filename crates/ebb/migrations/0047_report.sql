-- When a term is over that a policy's history or the audit has as it was written (mo is months), by the calendar of a zone: its days and
-- hours first, a day being 24 hours, then its months. For reports alone: it shares nothing with what erases.
CREATE FUNCTION ebb.reported_end(since timestamptz, written text, zone text) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN part.months = interval '0' THEN after.days ELSE ((after.days AT TIME ZONE zone) + part.months) AT TIME ZONE zone END
    FROM (SELECT regexp_replace(written, '(\d)mo', '\1mon', 'g')::interval AS whole) term
    CROSS JOIN LATERAL (SELECT date_trunc('month', term.whole) AS months) part
    CROSS JOIN LATERAL (SELECT ((since AT TIME ZONE 'UTC') + (term.whole - part.months)) AT TIME ZONE 'UTC' AS days) after
$$;
