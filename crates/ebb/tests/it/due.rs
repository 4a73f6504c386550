//! When a row is due, by every type that tells a time. The promise: never early.

use crate::harness::{Ebb, succeeded};

#[tokio::test]
async fn a_timestamptz_is_due_when_it_has_passed_and_null_and_infinity_stay() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamptz); CREATE INDEX ON t (at);
         INSERT INTO t VALUES (1, now() - interval '1 hour'), (2, now() + interval '1 hour'), (3, NULL),
                              (4, 'infinity'), (5, '-infinity'), (6, now() - interval '1 second')",
    )
    .await;
    succeeded(&ebb.sweep("").await, 3);
    assert_eq!(ebb.left().await, "2,3,4");
    ebb.db.advance("2 hours").await;
    succeeded(&ebb.again().await, 1);
    assert_eq!(ebb.left().await, "3,4");
    let from: bool = ebb.db.scalar("SELECT bool_or(due_from = '-infinity') FROM ebb.audit").await;
    assert!(from, "the oldest due time is in the record");
}

#[tokio::test]
async fn a_timestamp_without_zone_is_read_in_the_policys_zone() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamp); CREATE INDEX ON t (at)").await;
    ebb.set_clock("2024-06-15 12:00Z").await;
    // 19:00 in Jakarta at the cutoff: in UTC's eyes 18:59 would be seven hours ahead.
    ebb.db
        .execute("INSERT INTO t VALUES (1, '2024-06-15 18:59'), (2, '2024-06-15 19:01'), (3, '2024-06-15 12:01')")
        .await;
    succeeded(&ebb.sweep("zone = \"Asia/Jakarta\"").await, 2);
    assert_eq!(ebb.left().await, "2");
    let due: bool = ebb
        .db
        .scalar("SELECT due_from = '2024-06-15 05:01Z' AND due_to = '2024-06-15 11:59Z' FROM ebb.audit WHERE action = 'expire'")
        .await;
    assert!(due);
}

#[tokio::test]
async fn west_of_greenwich_a_timestamp_is_not_hours_early() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamp); CREATE INDEX ON t (at)").await;
    ebb.set_clock("2024-06-15 12:00Z").await;
    ebb.db
        .execute("INSERT INTO t VALUES (1, '2024-06-15 07:59'), (2, '2024-06-15 08:01'), (3, '2024-06-15 11:59')")
        .await;
    succeeded(&ebb.sweep("zone = \"America/New_York\"").await, 1);
    assert_eq!(ebb.left().await, "2,3");
}

#[tokio::test]
async fn an_hour_that_comes_twice_is_over_when_it_has_come_twice() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamp); CREATE INDEX ON t (at)").await;
    ebb.db.advance("0").await;
    ebb.db
        .execute("INSERT INTO t VALUES (1, '2024-11-03 00:30'), (2, '2024-11-03 01:30'), (3, '2024-11-03 02:30')")
        .await;
    ebb.policy("zone = \"America/New_York\"").await;
    // 01:40 for the first time; row 2 may mean the second 01:30, fifty minutes ahead.
    ebb.set_clock("2024-11-03 05:40Z").await;
    succeeded(&ebb.again().await, 1);
    assert_eq!(ebb.left().await, "2,3");
    ebb.set_clock("2024-11-03 06:40Z").await;
    succeeded(&ebb.again().await, 1);
    assert_eq!(ebb.left().await, "3");
}

/// In Berlin 02:00 to 03:00 of the 30th of March 2025 was left out. A month later nothing that came after it is a month old at 02:30; and
/// what is a month old in an hour that is left out is so once it would have been over.
#[tokio::test]
async fn an_hour_that_is_left_out_makes_nothing_older() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamptz)").await;
    ebb.set_clock("2025-03-01 00:00Z").await;
    ebb.db
        .execute(
            "INSERT INTO t VALUES (1, '2025-02-28 00:25Z'), (2, '2025-02-28 01:25Z'), (3, '2025-02-28 02:10Z'),
                 (4, '2025-03-30 00:20Z'), (5, '2025-03-30 01:25Z'), (6, '2025-03-30 01:40Z')",
        )
        .await;
    ebb.policy("older_than = \"1mo\"\nzone = \"Europe/Berlin\"\nbrake = { share = \"off\" }").await;
    let moments = [
        ("2025-03-28 00:24Z", "1,2,3,4,5,6"),
        ("2025-03-28 02:09Z", "3,4,5,6"),
        ("2025-03-28 02:11Z", "4,5,6"),
        // 02:30 of the 30th of April: what was at 03:25 then is not a month old.
        ("2025-04-30 00:30Z", "5,6"),
        ("2025-04-30 01:24Z", "5,6"),
        ("2025-04-30 01:26Z", "6"),
        ("2025-04-30 01:41Z", ""),
    ];
    for (now, left) in moments {
        ebb.set_clock(now).await;
        ebb.again().await;
        assert_eq!(ebb.left().await, left, "{now}");
    }
    let early =
        "SELECT count(*) FROM ebb.audit WHERE action = 'expire' AND due_to > (details ->> 'as_of')::timestamptz";
    assert_eq!(ebb.db.scalar::<i64>(early).await, 0);
    // What ends in the hour itself: 02:30 of the 28th of February and a month, in a year whose hour it is.
    ebb.db.execute("INSERT INTO t VALUES (7, '2026-02-28 01:30Z'), (8, '2026-02-28 00:30Z')").await;
    for (now, left) in [("2026-03-28 01:29Z", "7"), ("2026-03-29 01:31Z", "")] {
        ebb.set_clock(now).await;
        ebb.again().await;
        assert_eq!(ebb.left().await, left, "{now}");
    }
    assert_eq!(ebb.db.scalar::<i64>(early).await, 0);
}

#[tokio::test]
async fn a_date_is_due_when_its_day_has_ended_in_the_zone() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at date); CREATE INDEX ON t (at)").await;
    ebb.db.execute("INSERT INTO t VALUES (1, '2024-06-14'), (2, '2024-06-15'), (3, '2024-06-16'), (4, 'infinity'), (5, '-infinity')").await;
    ebb.policy("zone = \"Asia/Jakarta\"").await;
    ebb.set_clock("2024-06-15 16:55Z").await;
    succeeded(&ebb.again().await, 2);
    assert_eq!(ebb.left().await, "2,3,4", "the 15th lasts until 17:00 UTC");
    ebb.set_clock("2024-06-15 17:00:01Z").await;
    succeeded(&ebb.again().await, 1);
    assert_eq!(ebb.left().await, "3,4");
    let due: bool =
        ebb.db.scalar("SELECT bool_or(due_to = '2024-06-15 17:00Z') FROM ebb.audit WHERE action = 'expire'").await;
    assert!(due, "due is the end of the day");
}

#[tokio::test]
async fn integers_count_seconds_or_milliseconds() {
    for (unit, kind, scale) in [("s", "bigint", 1_i64), ("s", "integer", 1), ("ms", "bigint", 1000)] {
        let ebb = Ebb::with(&format!("CREATE TABLE t (id int, at {kind})")).await;
        ebb.set_clock("2024-06-15 12:00:00.5Z").await;
        let now = 1_718_452_800 * scale;
        ebb.db
            .execute(&format!(
                "INSERT INTO t VALUES (1, {}), (2, {now}), (3, {}), (4, NULL), (5, 0), (6, -1)",
                now - scale,
                now + 300 * scale
            ))
            .await;
        succeeded(&ebb.sweep(&format!("unit = \"{unit}\"")).await, 4);
        assert_eq!(ebb.left().await, "3,4", "{unit} {kind}");
    }
}

#[tokio::test]
async fn an_integer_beyond_any_calendar_does_not_stop_the_sweep() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at bigint)").await;
    ebb.db.execute(&format!("INSERT INTO t VALUES (1, {}), (2, 1), (3, {})", i64::MIN, i64::MAX)).await;
    succeeded(&ebb.sweep("unit = \"s\"").await, 2);
    assert_eq!(ebb.left().await, "3");
    ebb.db.execute(&format!("INSERT INTO t VALUES (1, {})", i64::MIN)).await;
    succeeded(&ebb.sweep("unit = \"ms\"\nolder_than = \"1y\"").await, 1);
}

#[tokio::test]
async fn older_than_counts_calendar_months_and_years() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamptz)").await;
    ebb.set_clock("2024-03-31 12:00Z").await;
    ebb.db
        .execute(
            "INSERT INTO t VALUES (1, '2024-02-29 11:59Z'), (2, '2024-02-29 12:01Z'), (3, '2024-03-01 00:00Z'),
             (4, '2023-03-31 11:59Z')",
        )
        .await;
    succeeded(&ebb.sweep("older_than = \"1mo\"").await, 2);
    assert_eq!(ebb.left().await, "2,3");
    ebb.db.execute("INSERT INTO t VALUES (4, '2023-03-31 11:59Z'), (5, '2023-03-31 12:01Z')").await;
    succeeded(&ebb.sweep("older_than = \"1y\"").await, 1);
    assert_eq!(ebb.left().await, "2,3,5");
}

#[tokio::test]
async fn a_month_is_a_month_of_the_zone() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamp); CREATE INDEX ON t (at)").await;
    // Midnight of 1 March in Jakarta is still February in UTC, and a month from there would end on 29 March.
    ebb.db.advance("0").await;
    ebb.db.execute("INSERT INTO t VALUES (1, '2024-03-01 00:00')").await;
    ebb.policy("older_than = \"1mo\"\nzone = \"Asia/Jakarta\"").await;
    for early in ["2024-03-29 17:01Z", "2024-03-31 16:59Z"] {
        ebb.set_clock(early).await;
        succeeded(&ebb.again().await, 0);
    }
    ebb.set_clock("2024-03-31 17:01Z").await;
    succeeded(&ebb.again().await, 1);
    let due: bool =
        ebb.db.scalar("SELECT bool_and(due_from = '2024-03-31 17:00Z') FROM ebb.audit WHERE action = 'expire'").await;
    assert!(due);
}

#[tokio::test]
async fn a_date_and_a_term_are_due_when_the_day_has_ended_and_the_term_has_passed() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at date); CREATE INDEX ON t (at)").await;
    ebb.db.advance("0").await;
    ebb.db.execute("INSERT INTO t VALUES (1, '2024-06-01')").await;
    ebb.policy("older_than = \"12h\"").await;
    ebb.set_clock("2024-06-02 11:59Z").await;
    succeeded(&ebb.again().await, 0);
    ebb.set_clock("2024-06-02 12:01Z").await;
    succeeded(&ebb.again().await, 1);
}

#[tokio::test]
async fn a_domain_counts_as_what_it_is_over() {
    let ebb = Ebb::with(
        "CREATE DOMAIN moment AS timestamptz; CREATE DOMAIN ending AS moment CHECK (VALUE > '2000-01-01');
         CREATE TABLE t (id int, at ending);
         INSERT INTO t VALUES (1, now() - interval '1 day'), (2, now() + interval '1 day')",
    )
    .await;
    succeeded(&ebb.sweep("").await, 1);
    assert_eq!(ebb.left().await, "2");
}

#[tokio::test]
async fn what_a_database_or_role_sets_by_default_changes_nothing() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, at timestamp);
         CREATE INDEX ON t (at);
         DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET datestyle = ''German''', current_database());
                     EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Jakarta''', current_database());
                     EXECUTE format('ALTER DATABASE %I SET standard_conforming_strings = off', current_database());
                     EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''serializable''', current_database());
                     EXECUTE format('ALTER DATABASE %I SET intervalstyle = ''sql_standard''', current_database()); END $$",
    )
    .await;
    ebb.db
        .execute(
            "INSERT INTO t SELECT n, (now() AT TIME ZONE 'UTC') - n * interval '1 minute' FROM generate_series(1, 50) n;
             INSERT INTO t SELECT 100 + n, (now() AT TIME ZONE 'UTC') + n * interval '1 minute' FROM generate_series(1, 5) n",
        )
        .await;
    succeeded(
        &ebb.sweep(
            r#"batch = { rows = 7, pause = "0s" }
        where = "id <> 3 and at < now() + interval '1 day 2 hours' and id::text <> 'a\\b'""#,
        )
        .await,
        49,
    );
    assert_eq!(ebb.left().await, "3,101,102,103,104,105");
}

#[tokio::test]
async fn a_database_that_quotes_every_name_has_dates_all_the_same() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, at date); CREATE INDEX ON t (at);
         CREATE TABLE m (id int, at date NOT NULL) PARTITION BY RANGE (at);
         DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET quote_all_identifiers = on', current_database()); END $$",
    )
    .await;
    ebb.db.execute("INSERT INTO t SELECT n, current_date - n FROM generate_series(-3, 3) n").await;
    let mut quoting = ebb.client().await;
    let quotes: String = sqlx::query_scalar("SHOW quote_all_identifiers").fetch_one(&mut quoting).await.unwrap();
    assert_eq!(quotes, "on");
    succeeded(&ebb.sweep("").await, 3);
    assert_eq!(ebb.left().await, "-3,-2,-1,0");
    // Also for whoever calls a function in a session of their own.
    let partitioned = "[[partition]]\nname = \"m\"\ntable = \"public.m\"\ncolumn = \"at\"\nby = \"month\"\nahead = 3\n";
    ebb.apply(&format!("{}\n{partitioned}", crate::harness::policy(""))).await;
    let made: i32 = sqlx::query_scalar("SELECT ebb.ensure_partitions('m')").fetch_one(&mut quoting).await.unwrap();
    assert!(made > 0, "{made}");
}
