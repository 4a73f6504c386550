-- What the report asks of the audit is found there: what each version of a policy said, what tenants were given, and by which version
-- and when a subject was claimed. Few records have it among many, and each index has those alone: an erasure is in none of them.
CREATE INDEX audit_version ON ebb.audit (policy, policy_version, id) WHERE action = 'policy';
CREATE INDEX audit_override ON ebb.audit (policy, (details ->> 'tenant'), id) WHERE action = 'override';
CREATE INDEX audit_claim ON ebb.audit ((details ->> 'deletion'), id) WHERE action = 'claim';

-- Reviews go through the audit in the order of its records, some at a time: up to which one. Whatever was there before this is gone
-- through once more.
ALTER TABLE ebb.review ADD COLUMN reached bigint NOT NULL DEFAULT 0;

-- Where the application had deleted the row itself, nothing of it was Ebb's to delete too early.
DELETE FROM ebb.premature p USING ebb.audit a
WHERE a.id = p.record AND a.action = 'erase' AND a.rows = 0 AND (a.details ->> 'already_gone')::boolean;

-- A term as it was written (mo is months), and when it is over, as ebb.reported_end has it; made for very many records, of which few have
-- a term of their own: what was written is read once, and the rest becomes part of the question.
CREATE FUNCTION ebb.reported_term(written text) RETURNS interval LANGUAGE sql STABLE
RETURN regexp_replace(written, '([0-9])mo', '\1mon', 'g')::interval;
CREATE FUNCTION ebb.reported_after(since timestamptz, term interval, zone text) RETURNS timestamptz LANGUAGE sql STABLE
RETURN CASE WHEN date_trunc('month', term) = interval '0' THEN ((since AT TIME ZONE 'UTC') + term) AT TIME ZONE 'UTC'
            ELSE (((((since AT TIME ZONE 'UTC') + (term - date_trunc('month', term))) AT TIME ZONE 'UTC') AT TIME ZONE zone)
                  + date_trunc('month', term)) AT TIME ZONE zone END;
