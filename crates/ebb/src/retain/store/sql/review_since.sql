-- From when on the audit was not reviewed yet, with a day that is looked at twice, and until when it can be. Index: review_pkey;
-- read only.
SELECT COALESCE((SELECT max(v.until) - interval '1 day' FROM ebb.review v), '-infinity'::timestamptz), ebb.now()
