//! The weekly review: whether anything was erased before its time, and what each tenant takes.

use ebb::audit::Moment;
use ebb::policy::Term;
use ebb::retain::{OverrideChange, Report, TenantTerms};

use super::{SHOP, users};
use crate::harness::{Ebb, execute};

#[tokio::test]
async fn a_premature_erasure_is_found_and_never_forgotten() {
    let ebb = Ebb::shop("tenant = \"tenant_id\"").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.once("audit:audit").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.review").await, 0, "not before its day");
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    ebb.once("audit:audit").await;
    let review = "SELECT (erased, premature)::text FROM ebb.review ORDER BY id DESC LIMIT 1";
    assert_eq!(ebb.db.scalar::<String>(review).await, "(1,0)");
    let tenants =
        "SELECT string_agg(tenant || '=' || rows, ' ' ORDER BY tenant) FROM ebb.tenant_storage WHERE policy = 'users'";
    assert_eq!(ebb.db.scalar::<String>(tenants).await, "=11 t0=4 t1=3 t2=4");
    let storage = ebb.engine.storage().await.unwrap();
    assert_eq!(storage[0].tenants.len(), 3);
    // Somebody erases a day too soon, whatever tells them that it is time.
    ebb.db
        .execute(
            "INSERT INTO ebb.audit (action, policy, policy_version, rows, by_name, details)
             SELECT 'erase', 'users', version, 1, 'x', jsonb_build_object('deletion', gen_random_uuid(),
                 'soft_deleted_at', ebb.now() - interval '89 days', 'erased_at', ebb.now(), 'expedited', false)
             FROM ebb.policy WHERE name = 'users'",
        )
        .await;
    for _ in 0..2 {
        ebb.db.advance("7 days").await;
        ebb.once("audit:audit").await;
        assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.premature").await, 1);
    }
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.audit WHERE action = 'review'").await, 3);
    assert_eq!(ebb.db.scalar::<String>(review).await, "(0,0)");
    // Whoever was deleted before our era is counted like anybody else.
    ebb.db.execute("UPDATE users SET deleted_at = '4713-01-01 BC' WHERE id = 2; UPDATE users SET deleted_at = '0001-01-01 BC' WHERE id = 3").await;
    ebb.once("users").await;
    ebb.db.advance("7 days").await;
    assert!(!ebb.once("audit:audit").await.has_failed());
    assert_eq!(ebb.db.scalar::<String>(review).await, "(2,0)");
    // A policy whose table is gone is passed by.
    ebb.db.execute("DROP TABLE users CASCADE").await;
    ebb.db.advance("7 days").await;
    let finished = ebb.once("audit:audit").await;
    assert!(finished.runs.iter().all(|run| run.note.is_none()), "{finished:?}");
}

/// Writes an erasure into the audit that nobody made, by the newest version of `users`.
async fn forge(ebb: &Ebb, name: &str, details: &str) {
    ebb.db
        .execute(&format!(
            "INSERT INTO ebb.audit (action, policy, policy_version, rows, by_name, details)
             SELECT 'erase', 'users', version, 1, '{name}', jsonb_build_object('deletion', gen_random_uuid(), {details})
             FROM ebb.policy WHERE name = 'users'"
        ))
        .await;
}

/// Puts a request to erase the subject of a deletion on record.
async fn request(ebb: &Ebb, deletion: &str) {
    ebb.db.execute(&format!("SELECT ebb.note_subject('erase_requested', 'users', '{deletion}', 'x')")).await;
}

/// Who wrote the erasures that the report finds too early.
async fn too_early(ebb: &Ebb) -> Vec<String> {
    let mut tx = ebb.engine.database().read().await.unwrap();
    let ever = (Some(Moment::NEG_INFINITY), Some(Moment::INFINITY));
    let report = ebb::retain::report(&mut tx, ever.0, ever.1, None).await;
    let records: Vec<i64> = report.unwrap().premature.iter().map(|found| found.record).collect();
    let names = "SELECT COALESCE(array_agg(by_name ORDER BY id), '{}') FROM ebb.audit WHERE id = ANY ($1)";
    sqlx::query_scalar(names).bind(records).fetch_one(ebb.db.pool()).await.unwrap()
}

fn by_calendar(term: &str, zone: &str, more: &str) -> String {
    users(&format!("zone = \"{zone}\"\n{more}")).replace("90d", term)
}

#[tokio::test]
async fn the_check_counts_months_where_the_policy_does() {
    let ebb = Ebb::with(SHOP).await;
    ebb.apply(&by_calendar("1mo", "Asia/Jakarta", "")).await;
    // The 31st of August in Jakarta, where the month is over on the 30th of September.
    ebb.db.execute("UPDATE users SET deleted_at = '2026-08-30 20:00Z' WHERE id = 1").await;
    ebb.set_clock("2026-09-29 19:55Z").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 12);
    ebb.set_clock("2026-09-29 20:05Z").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 11);
    assert_eq!(too_early(&ebb).await, [""; 0]);
}

#[tokio::test]
async fn an_erasure_a_moment_too_early_is_found_in_every_zone() {
    for (zone, term, deleted, due) in [
        ("UTC", "1mo", "2026-08-30T20:00:00Z", "2026-09-30T20:00:00Z"),
        ("Asia/Jakarta", "1mo", "2026-08-30T20:00:00Z", "2026-09-29T20:00:00Z"),
        // The 30th in Los Angeles and the 31st in Greenwich.
        ("America/Los_Angeles", "1mo", "2026-01-31T05:00:00Z", "2026-03-01T05:00:00Z"),
        ("Pacific/Kiritimati", "1y", "2024-02-28T12:00:00Z", "2025-02-27T12:00:00Z"),
        // Days come before months, and have 24 hours where clocks change.
        ("UTC", "1mo2d", "2026-01-30T12:00:00Z", "2026-03-01T12:00:00Z"),
        ("Europe/Berlin", "1mo", "2026-02-28T23:30:00Z", "2026-03-31T22:30:00Z"),
        ("Europe/Berlin", "30d", "2026-09-25T00:30:00Z", "2026-10-25T00:30:00Z"),
        ("Europe/Berlin", "30d12h", "2026-03-10T12:00:00Z", "2026-04-10T00:00:00Z"),
    ] {
        let ebb = Ebb::with(SHOP).await;
        let times = format!("'soft_deleted_at', '{deleted}', 'erased_at', timestamptz '{due}'");
        ebb.apply(&by_calendar(term, zone, "")).await;
        forge(&ebb, "right", &times).await;
        forge(&ebb, "before its grace", &format!("{times} - interval '1 microsecond'")).await;
        // Whoever is to go at once is kept by the floor alone.
        ebb.apply(&by_calendar(term, zone, &format!("floor = \"{term}\""))).await;
        request(&ebb, "7b1c5a3e-0000-4000-8000-000000000001").await;
        let asked = "'expedited', true, 'deletion', '7b1c5a3e-0000-4000-8000-000000000001'";
        forge(&ebb, "right", &format!("{times}, {asked}")).await;
        forge(&ebb, "below its floor", &format!("{times} - interval '1 microsecond', {asked}")).await;
        assert_eq!(too_early(&ebb).await, ["before its grace", "below its floor"], "{term} in {zone}");
    }
}

#[tokio::test]
async fn the_check_and_the_engine_agree_on_every_calendar() {
    let ebb = Ebb::with(SHOP).await;
    for zone in ["UTC", "Asia/Jakarta", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"] {
        for (term, interval) in [("1mo", "1 mon"), ("1y1mo3d5h", "13 mons 3 days 05:00"), ("45d", "45 days")] {
            ebb.apply(&by_calendar(term, zone, "")).await;
            ebb.db
                .execute(&format!(
                    "INSERT INTO ebb.audit (action, policy, policy_version, rows, by_name, details)
                     SELECT 'erase', 'users', p.version, 1, w.name, jsonb_build_object('soft_deleted_at', d.at,
                         'erased_at', ebb.later(d.at, interval '{interval}', '{zone}') - w.sooner)
                     FROM ebb.policy p, generate_series(timestamptz '2025-12-01Z', '2026-12-01Z', '6 days 05:37') AS d (at),
                          (VALUES ('right', interval '0'), ('early', '1 second')) AS w (name, sooner)
                     WHERE p.name = 'users'"
                ))
                .await;
        }
    }
    let found = too_early(&ebb).await;
    assert!(found.iter().all(|name| name == "early"), "{found:?}");
    let forged = "SELECT count(*) FROM ebb.audit WHERE by_name = 'early'";
    assert_eq!(found.len() as i64, ebb.db.scalar::<i64>(forged).await);
}

/// Whatever the report has about all of time.
async fn whole(ebb: &Ebb) -> Report {
    let mut tx = ebb.engine.database().read().await.unwrap();
    ebb::retain::report(&mut tx, Some(Moment::NEG_INFINITY), Some(Moment::INFINITY), None).await.unwrap()
}

#[tokio::test]
async fn rows_that_go_by_their_age_too_early_are_found() {
    let ebb = Ebb::with(
        "CREATE TABLE visits (id int PRIMARY KEY, at timestamptz NOT NULL);
         INSERT INTO visits SELECT n, timestamptz '2026-01-01' + n * interval '1 day' FROM generate_series(0, 88) n;
         CREATE TABLE p (id int, at timestamptz NOT NULL) PARTITION BY RANGE (at)",
    )
    .await;
    ebb.set_clock("2026-02-01 00:00:00+00").await;
    ebb.apply(
        "[[retain]]\nname = \"visits\"\ntable = \"public.visits\"\ncolumn = \"at\"\nolder_than = \"1mo\"\nfloor = \"30d\"\nbrake = { share = \"off\" }
         [[partition]]\nname = \"p\"\ntable = \"public.p\"\ncolumn = \"at\"\nby = \"month\"\nahead = 2\nkeep = \"1mo\"\nbrake = { share = \"off\" }",
    )
    .await;
    ebb.once("p").await;
    ebb.db.execute("INSERT INTO p VALUES (1, '2026-02-27')").await;
    for day in ["2026-02-15", "2026-03-01", "2026-03-29", "2026-03-31", "2026-04-01"] {
        ebb.set_clock(&format!("{day} 12:00:00+00")).await;
        ebb.once("visits").await;
        ebb.once("p").await;
    }
    let report = whole(&ebb).await;
    assert!(report.is_clean(), "{report:?}");
    // A row is deleted on the day on which it goes, not on the one that it was of.
    let days: Vec<(&str, &str, i64)> =
        report.deleted.iter().map(|one| (one.day.as_str(), one.table.as_str(), one.rows)).collect();
    assert_eq!(days[0], ("2026-02-15", "public.visits", 15));
    assert!(days.contains(&("2026-04-01", "public.p", 1)), "{days:?}");
    // Somebody takes rows a moment too soon: by the term, by the floor, with a partition, or by a policy that nobody has.
    let forge = |action: &'static str, policy: &'static str, version: &'static str, newest: &'static str| {
        format!(
            "INSERT INTO ebb.audit (action, policy, policy_version, relation, rows, cutoff, by_name, details)
             SELECT '{action}', '{policy}', {version}, 'public.x', 7, timestamptz '{newest}Z', '{newest}', '{{\"as_of\": \"2026-03-29T12:00:00Z\"}}'
             FROM ebb.policy p WHERE p.name = '{policy}'"
        )
    };
    for (action, policy, version, newest) in [
        ("expire", "visits", "p.version", "2026-02-27 12:00:00"),
        ("expire", "visits", "p.version", "2026-02-27 12:00:01"),
        ("drop_partition", "p", "p.version", "2026-02-28 12:00:00"),
        ("drop_partition", "p", "p.version", "2026-03-01 12:00:01"),
        ("expire", "visits", "99", "2026-01-01 12:00:00"),
    ] {
        ebb.db.execute(&forge(action, policy, version, newest)).await;
    }
    let report = whole(&ebb).await;
    assert!(!report.is_clean() && report.premature.is_empty());
    let found: Vec<String> =
        report.swept_early.iter().map(|one| format!("{} {}", one.newest, one.not_before)).collect();
    assert_eq!(
        found,
        [
            "2026-02-27T12:00:01Z 2026-03-29T12:00:01Z",
            "2026-03-01T12:00:01Z 2026-04-01T12:00:01Z",
            "2026-01-01T12:00:00Z infinity"
        ]
    );
    assert!(report.csv().contains("swept_early,visits,") && report.csv().contains(",public.x,7,2026-02-27T12:00:01Z,"));
    ebb.set_clock("2100-01-01 00:00:00+00").await;
    ebb.once("audit:audit").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.premature").await, 3);
}

/// Where clocks go back, an hour comes twice: what ends in it has ended when it has come twice.
#[tokio::test]
async fn rows_and_partitions_whose_months_end_in_an_hour_that_comes_twice_are_not_early() {
    let ebb = Ebb::with(
        "CREATE TABLE visits (id int PRIMARY KEY, at timestamptz NOT NULL);
         INSERT INTO visits SELECT n, timestamptz '2026-10-30 22:00Z' + n * interval '10 minutes' FROM generate_series(0, 40) n;
         CREATE TABLE days (id int, at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2027-01-31Z') TO ('2027-02-01Z');
         INSERT INTO days VALUES (1, '2027-01-31 12:00Z');
         CREATE TABLE months (id int, at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE months_9 PARTITION OF months FOR VALUES FROM ('2027-09-01Z') TO ('2027-10-01Z');
         INSERT INTO months VALUES (1, '2027-09-30 23:50Z')",
    )
    .await;
    ebb.set_clock("2027-02-01 00:00Z").await;
    let by_age = |table: &str, more: &str| {
        format!(
            "[[retain]]\nname = \"{table}\"\ntable = \"{table}\"\ncolumn = \"at\"\nbrake = {{ share = \"off\" }}\n{more}\n"
        )
    };
    ebb.apply(
        &(by_age("visits", "older_than = \"1y\"\nzone = \"Europe/London\"")
            + &by_age("days", "older_than = \"1mo\"\nfloor = \"30d\"")
            + "[[partition]]\nname = \"months\"\ntable = \"months\"\ncolumn = \"at\"\nby = \"month\"\nahead = 1\nkeep = \"1mo\"\nzone = \"Europe/Berlin\"\n"),
    )
    .await;
    let left = async |table: &str| ebb.db.scalar::<i64>(&format!("SELECT count(*) FROM {table}")).await;
    // A month after the last of January is over before thirty days are: the floor keeps the partition as it keeps rows.
    for (now, days) in [("2027-03-01 00:00Z", 1), ("2027-03-02 11:59Z", 1), ("2027-03-02 12:01Z", 0)] {
        ebb.set_clock(now).await;
        ebb.once("days").await;
        assert_eq!(left("days").await, days, "{now}");
    }
    // Summer time ends on the 31st of October 2027 at 01:00Z.
    for now in ["2027-10-31 00:30Z", "2027-10-31 00:59Z", "2027-10-31 01:30Z", "2027-10-31 02:30Z"] {
        ebb.set_clock(now).await;
        ebb.once("visits").await;
        let early =
            "SELECT count(*) FROM ebb.audit WHERE action = 'expire' AND due_to > (details ->> 'as_of')::timestamptz";
        assert_eq!(ebb.db.scalar::<i64>(early).await, 0, "{now}");
    }
    assert!(left("visits").await < 20, "they go once it has come twice");
    // In Berlin the partition ends at 02:00 of the 1st of October in summer, and a month later that is an hour later in UTC.
    for (now, months) in [("2027-11-01 00:30Z", 1), ("2027-11-01 01:01Z", 0)] {
        ebb.set_clock(now).await;
        ebb.once("months").await;
        assert_eq!(left("months").await, months, "{now}");
    }
    let report = whole(&ebb).await;
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test]
async fn whose_tenant_lets_nothing_go_went_too_early() {
    let ebb = Ebb::shop("tenant = \"tenant_id\"\ntenant_override = true").await;
    let times = "'soft_deleted_at', ebb.now() - interval '1 year', 'erased_at', ebb.now(), 'tenant', 't1'";
    forge(&ebb, "before", times).await;
    for (name, enabled) in [("off", false), ("on", true)] {
        let mut tx = ebb.engine.database().read().await.unwrap();
        let terms = OverrideChange::Set(TenantTerms { enabled, ..Default::default() });
        ebb::retain::set_override(&mut tx, "users", "t1", &terms, true, "test").await.unwrap();
        tx.commit().await.unwrap();
        forge(&ebb, name, times).await;
        forge(&ebb, "other", &times.replace("t1", "t2")).await;
    }
    assert_eq!(too_early(&ebb).await, ["off"]);
}

#[tokio::test]
async fn a_tenants_report_says_nothing_of_others() {
    let ebb = Ebb::shop("tenant = \"tenant_id\"\ntenant_override = true").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let shorter = OverrideChange::Set(TenantTerms { retention: Some(Term::days(60)), ..Default::default() });
    for tenant in ["t0", "t1"] {
        ebb::retain::set_override(&mut tx, "users", tenant, &shorter, false, "test").await.unwrap();
    }
    tx.commit().await.unwrap();
    ebb.db
        .execute(
            "SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 6) n;
             UPDATE ebb.deletion SET state = 'failed' WHERE tenant IN ('t1', 't2')",
        )
        .await;
    for (tenant, below, failed) in [("t0", 1, 0), ("t1", 1, 2), ("t2", 0, 2)] {
        let mut tx = ebb.engine.database().read().await.unwrap();
        let report = ebb::retain::report(&mut tx, None, None, Some(tenant)).await.unwrap();
        assert!(report.below_default.iter().all(|(_, of, _)| of == tenant), "{:?}", report.below_default);
        assert_eq!(report.below_default.len(), below);
        assert_eq!(report.failed.iter().map(|(_, count)| count).sum::<i64>(), failed, "{tenant}");
    }
    let mut tx = ebb.engine.database().read().await.unwrap();
    let report = ebb::retain::report(&mut tx, None, None, None).await.unwrap();
    assert_eq!((report.below_default.len(), report.failed[0].1), (2, 4));
}

/// What a review found so far: rows of `ebb.premature`, and whether the last run of it went well.
async fn reviewed(ebb: &Ebb) -> i64 {
    let finished = ebb.once("audit:audit").await;
    assert!(!finished.has_failed(), "{finished:?}");
    ebb.db.scalar("SELECT count(*) FROM ebb.premature").await
}

#[tokio::test]
async fn a_large_audit_is_reported_and_reviewed_in_parts_and_nothing_is_left_out() {
    let ebb = Ebb::shop("tenant = \"tenant_id\"\ntenant_override = true").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    for n in 0..20 {
        let terms = OverrideChange::Set(TenantTerms { retention: Some(Term::days(60 + n)), ..Default::default() });
        ebb::retain::set_override(&mut tx, "users", "t1", &terms, true, "test").await.unwrap();
    }
    tx.commit().await.unwrap();
    // One in ten is a day too early: by the policy's own term, or by the one that the tenant was given last.
    ebb.db
        .execute(
            "INSERT INTO ebb.audit (action, policy, policy_version, rows, by_name, details)
             SELECT 'erase', 'users', p.version, 1, 'x', jsonb_build_object('deletion', gen_random_uuid(), 'tenant', 't' || n % 2,
                 'soft_deleted_at', ebb.now() - make_interval(days => CASE WHEN n % 2 = 1 THEN 79 ELSE 90 END - (n % 10 = 3)::int - (n % 10 = 4)::int * (n % 20 / 10)),
                 'erased_at', ebb.now(), 'expedited', n % 10 IN (3, 4), 'tables', jsonb_build_object('public.users', 1, 'public.orders', n % 3))
             FROM ebb.policy p, generate_series(1, 25000) n WHERE p.name = 'users'",
        )
        .await;
    let early = 25_000 / 10 + 25_000 / 20;
    let report = whole(&ebb).await;
    assert_eq!((report.premature.len(), report.erased[0].subjects), (1_000, 25_000), "it shows the first of them");
    // Parts add up to what one question would have answered.
    let days = "extract(epoch FROM (details ->> 'erased_at')::timestamptz - (details ->> 'soft_deleted_at')::timestamptz) / 86400";
    let days = format!("SELECT ARRAY[avg({days}), min({days})]::float8[] FROM ebb.audit WHERE action = 'erase'");
    let days: Vec<f64> = ebb.db.scalar(&days).await;
    let erased = &report.erased[0];
    assert!(
        (erased.average_days - days[0]).abs() < 1e-6 && (erased.shortest_days - days[1]).abs() < 1e-6,
        "{erased:?}"
    );
    let deleted: Vec<(&str, i64)> = report.deleted.iter().map(|one| (one.table.as_str(), one.rows)).collect();
    assert_eq!(deleted, [("public.orders", 25_000), ("public.users", 25_000)]);
    ebb.db.advance("8 days").await;
    assert_eq!(reviewed(&ebb).await, early);
    let parts = "SELECT (count(*), sum(erased), sum(premature))::text FROM ebb.review";
    assert_eq!(ebb.db.scalar::<String>(parts).await, format!("(3,25000,{early})"));
    let again = "SELECT bool_and(v.since = COALESCE(before.until, '-infinity')) FROM ebb.review v LEFT JOIN ebb.review before ON before.id = v.id - 1";
    assert!(ebb.db.scalar::<bool>(again).await, "each goes on where the one before it ended");
}

#[tokio::test]
async fn an_early_erasure_that_is_committed_after_its_place_was_passed_is_found() {
    let ebb = Ebb::shop("").await;
    let early = "INSERT INTO ebb.audit (action, policy, policy_version, rows, by_name, details)
        SELECT 'erase', 'users', p.version, 1, 'x', jsonb_build_object('soft_deleted_at', ebb.now(), 'erased_at', ebb.now())
        FROM ebb.policy p WHERE p.name = 'users'";
    let mut slow = ebb.client().await;
    execute(&mut slow, &format!("BEGIN; {early}")).await;
    // Many others come and are passed, in several parts, while it is still under way.
    ebb.db.execute("INSERT INTO ebb.audit (action, by_name) SELECT 'test', 'x' FROM generate_series(1, 21000)").await;
    for _ in 0..2 {
        ebb.db.advance("8 days").await;
        assert_eq!(reviewed(&ebb).await, 0);
    }
    execute(&mut slow, "COMMIT").await;
    ebb.db.advance("8 days").await;
    assert_eq!(reviewed(&ebb).await, 1);
    // Once, and what else is there is not gone through again.
    ebb.db.advance("8 days").await;
    assert_eq!(reviewed(&ebb).await, 1);
    let found = "SELECT string_agg(premature::text, ',' ORDER BY id) FROM ebb.review WHERE premature > 0";
    assert_eq!(ebb.db.scalar::<String>(found).await, "1");
}

#[tokio::test]
async fn what_went_too_early_is_reported_wherever_it_is_in_a_large_audit() {
    let ebb = Ebb::shop("").await;
    let records = "INSERT INTO ebb.audit (action, policy, policy_version, rows, by_name, details)
         SELECT 'erase', 'users', p.version, 1, 'x', jsonb_build_object('deletion', gen_random_uuid(), 'erased_at', ebb.now(),
             'soft_deleted_at', CASE WHEN n IN (1, 10001, 20002) THEN ebb.now() - interval '89 days' ELSE '-infinity' END)
         FROM ebb.policy p, generate_series($1, $2) n WHERE p.name = 'users'";
    let forge = |from: &str, to: &str| records.replace("$1", from).replace("$2", to);
    ebb.db.execute(&forge("2", "100")).await;
    let report = whole(&ebb).await;
    assert_eq!((report.erased[0].subjects, report.erased[0].average_days), (99, 0.0), "of nobody it is known how long");
    ebb.db.execute(&forge("1", "20002")).await;
    let report = whole(&ebb).await;
    assert_eq!(report.premature.len(), 3);
    assert_eq!((report.erased[0].subjects, report.erased[0].average_days.round()), (20_101, 89.0));
}

#[tokio::test]
async fn a_review_that_fails_and_what_one_found_are_told() {
    let ebb = Ebb::shop("").await;
    forge(&ebb, "early", "'soft_deleted_at', ebb.now(), 'erased_at', ebb.now()").await;
    ebb.db
        .execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no review today''; END';
             CREATE TRIGGER refuse BEFORE INSERT ON ebb.review FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await;
    ebb.db.advance("20 days").await;
    let finished = ebb.once("audit:audit").await;
    assert!(finished.has_failed(), "{finished:?}");
    let told = doctor(&ebb).await;
    assert!(
        told.iter().any(|said| said.contains("audit on ebb.audit failed once") && said.contains("no review today")),
        "{told:?}"
    );
    assert!(
        told.iter().any(|said| said.starts_with("warn review: the audit was not reviewed to its end for ")),
        "{told:?}"
    );
    let status = ebb.engine.status().await.unwrap();
    let own = status.own.iter().find(|unit| unit.chore == "audit").unwrap();
    assert_eq!((own.failures, status.audit.premature), (1, 0));
    ebb.db.execute("DROP TRIGGER refuse ON ebb.review").await;
    assert_eq!(reviewed(&ebb).await, 1);
    let told = doctor(&ebb).await;
    assert_eq!(told, ["fail review: 1 record says that something was deleted before its time"]);
    assert_eq!(ebb.engine.status().await.unwrap().audit.premature, 1);
}

/// What doctor says about reviews and failed work.
async fn doctor(ebb: &Ebb) -> Vec<String> {
    let questions = ebb::doctor::Questions {
        wanted: crate::harness::wanted(&users("")).unwrap(),
        host_time: jiff::Timestamp::now(),
        role: None,
        embedded: false,
    };
    let found = ebb.engine.doctor(&questions).await.unwrap().findings.into_iter();
    let found =
        found.filter(|one| ["review", "stuck"].contains(&one.check) && one.severity > ebb::doctor::Severity::Ok);
    found
        .map(|one| format!("{} {}: {}", format!("{:?}", one.severity).to_lowercase(), one.check, one.evidence))
        .collect()
}

#[tokio::test]
async fn what_the_application_deleted_itself_was_not_erased_too_early() {
    let ebb = Ebb::with(SHOP).await;
    ebb.apply(&super::warn::config("tenant = \"tenant_id\"\ntenant_override = true")).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let shorter = OverrideChange::Set(TenantTerms { retention: Some(Term::days(60)), ..Default::default() });
    ebb::retain::set_override(&mut tx, "users", "t1", &shorter, false, "test").await.unwrap();
    tx.commit().await.unwrap();
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 2) n; DELETE FROM users WHERE id IN (1, 2)").await;
    // By the terms of the tenant that each was last seen with.
    let records = "SELECT COALESCE(string_agg(concat_ws(' ', details ->> 'tenant', details ->> 'already_gone'), ', ' ORDER BY id), '') FROM ebb.audit WHERE action = 'erase'";
    for (day, told) in [("59 days", ""), ("2 days", "t1 true"), ("30 days", "t1 true, t2 true")] {
        ebb.db.advance(day).await;
        ebb.once("users:mark").await;
        ebb.once("users:erase").await;
        assert_eq!(ebb.db.scalar::<String>(records).await, told, "{day}");
    }
    assert_eq!(too_early(&ebb).await, [""; 0]);
    assert_eq!(reviewed(&ebb).await, 0);
    // What Ebb took before somebody else took the rest is judged like anything else.
    forge(&ebb, "parts", "'soft_deleted_at', ebb.now(), 'erased_at', ebb.now(), 'already_gone', true").await;
    assert_eq!(too_early(&ebb).await, ["parts"]);
}

#[tokio::test]
async fn who_was_claimed_went_by_the_version_that_claimed_it() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("INSERT INTO sessions SELECT 1000 + n, 1, '' FROM generate_series(1, 30000) n; SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    // The node ends once it has claimed the subject.
    ebb.db
        .execute(
            "CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not yet''; END';
             CREATE TRIGGER stay BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION stay()",
        )
        .await;
    ebb.apply(&users("").replace("90d", "91d")).await;
    ebb.once("users").await;
    assert_eq!(ebb.state("1").await, "erasing");
    let claimed = "SELECT (c.policy_version = p.version)::text || ' ' || (c.details ->> 'deletion' = d.id::text)::text
                   FROM ebb.audit c, ebb.policy p, ebb.deletion d WHERE c.action = 'claim' AND p.name = 'users'";
    assert_eq!(ebb.db.scalar::<String>(claimed).await, "true true");
    ebb.db.execute("DROP TRIGGER stay ON sessions").await;
    ebb.apply(&users("").replace("90d", "365d")).await;
    ebb.db.advance("1 day").await;
    ebb.once("users").await;
    assert_eq!(ebb.erased().await.0, 1);
    assert_eq!(too_early(&ebb).await, [""; 0]);
    // A claim that came too early is none the better for what was done later.
    ebb.db.execute("UPDATE ebb.audit SET details = details || jsonb_build_object('claimed_at', ebb.now() - interval '2 days') WHERE action = 'claim'").await;
    assert_eq!(too_early(&ebb).await, ["ebb"]);
}

#[tokio::test]
async fn only_a_request_on_record_shortens_the_grace() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.erase_subject('users', '2')").await;
    ebb.db.advance("1 day").await;
    ebb.db.execute("UPDATE ebb.deletion SET expedited = true, due_at = ebb.now() WHERE subject_id = '1'").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 10);
    let mut tx = ebb.engine.database().read().await.unwrap();
    let report = ebb::retain::report(&mut tx, None, None, None).await.unwrap();
    let found: Vec<i64> = report.premature.iter().map(|found| found.record).collect();
    let unasked = "SELECT array_agg(e.id) FROM ebb.audit e WHERE e.action = 'erase' AND NOT EXISTS (
                       SELECT FROM ebb.audit r WHERE r.action = 'erase_requested' AND r.details ->> 'deletion' = e.details ->> 'deletion')";
    assert_eq!(found, ebb.db.scalar::<Vec<i64>>(unasked).await);
    assert_eq!(found.len(), 1);
}

#[tokio::test]
async fn what_a_policy_said_is_what_its_record_says() {
    let ebb = Ebb::shop("").await;
    forge(&ebb, "early", "'soft_deleted_at', ebb.now() - interval '89 days', 'erased_at', ebb.now()").await;
    forge(&ebb, "right", "'soft_deleted_at', ebb.now() - interval '90 days', 'erased_at', ebb.now()").await;
    for change in [
        "SELECT",
        "UPDATE ebb.policy_history SET spec = spec || '{\"grace\": \"1d\"}'",
        "UPDATE ebb.policy_history SET name = 'x' WHERE name = 'users'",
        "DELETE FROM ebb.policy_history",
    ] {
        ebb.db.execute(change).await;
        assert_eq!(too_early(&ebb).await, ["early"], "{change}");
    }
    // By a version that nobody knows nobody goes.
    ebb.db.execute("UPDATE ebb.audit SET policy_version = 99 WHERE by_name = 'right'").await;
    assert_eq!(too_early(&ebb).await, ["early", "right"]);
}

#[tokio::test]
async fn what_was_asked_for_is_counted_by_subjects() {
    let ebb = Ebb::shop("tenant = \"tenant_id\"").await;
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id <= 7").await;
    ebb.once("users:mark").await;
    ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id <= 3").await;
    ebb.once("users:mark").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '9'), ebb.note_subject('replay', 'users', NULL, 'x')").await;
    let asked: Vec<String> =
        whole(&ebb).await.asked.into_iter().map(|(what, times)| format!("{what} {times}")).collect();
    assert_eq!(asked, ["delete 1", "mark 7", "replay 1", "restore 3"]);
}
