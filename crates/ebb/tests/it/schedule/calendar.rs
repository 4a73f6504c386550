//! Events that come again: wall-clock time in a zone, over clock changes and leap days, missed or moved.

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::Desk;

/// The stated rule, by an independent calendar: of a time that comes twice the first, after a gap its end.
fn instant(local: DateTime, zone: &TimeZone) -> Timestamp {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    match ambiguous.offset() {
        AmbiguousOffset::Gap { .. } => {
            let before = ambiguous.earlier().unwrap();
            zone.following(before).next().unwrap().timestamp()
        }
        _ => ambiguous.earlier().unwrap(),
    }
}

/// Local times around every clock change of a zone from 1970 to 2100, and some that are far from any.
fn interesting(zone: &TimeZone) -> Vec<DateTime> {
    let start: Timestamp = "1970-01-02T00:00:00Z".parse().unwrap();
    let end: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
    let mut times = Vec::new();
    let changes: Vec<Timestamp> =
        zone.following(start).map(|change| change.timestamp()).take_while(|at| *at < end).collect();
    // Rules repeat: all of the past, then every seventh change.
    let sampled =
        changes.iter().enumerate().filter(|(i, at)| **at < "2030-01-01T00:00:00Z".parse().unwrap() || i % 7 == 0);
    for (_, change) in sampled {
        let before = zone.to_datetime(*change - 1.second());
        let after = zone.to_datetime(*change);
        for local in [before, after] {
            for minutes in [-90, -30, -1, 0, 1, 29, 90] {
                times.push(local.saturating_add(minutes.minutes()).round(jiff::Unit::Second).unwrap());
            }
        }
    }
    for year in (1971..2100).step_by(13) {
        times.push(Date::new(year, 2, 28).unwrap().at(9, 0, 0, 0));
    }
    times
}

#[tokio::test]
async fn sql_places_local_times_as_the_calendar_does_in_every_zone_from_1970_to_2100() {
    let desk = Desk::new().await;
    let known: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM pg_timezone_names WHERE name !~ '^(posix|right|Etc|SystemV)/' AND name ~ '/' ORDER BY name",
    )
    .fetch_all(desk.ebb.db.pool())
    .await
    .unwrap();
    let (mut compared, mut zones) = (0_usize, 0);
    for name in known {
        let Ok(zone) = TimeZone::get(&name) else { continue };
        zones += 1;
        let times = interesting(&zone);
        let texts: Vec<String> = times.iter().map(ToString::to_string).collect();
        let wanted: Vec<Timestamp> = times.iter().map(|local| instant(*local, &zone)).collect();
        let seconds: Vec<i64> = wanted.iter().map(|at| at.as_second()).collect();
        let rows: Vec<(String, i64, String, String)> = sqlx::query_as(
            "SELECT t, extract(epoch FROM at)::int8, to_char(at AT TIME ZONE $2, 'YYYY-MM-DD\"T\"HH24:MI:SS'),
                    to_char(to_timestamp(wanted) AT TIME ZONE $2, 'YYYY-MM-DD\"T\"HH24:MI:SS')
             FROM unnest($1::text[], $3::int8[]) WITH ORDINALITY AS u (t, wanted, n),
                  LATERAL ebb.local_instant(t::timestamp, $2) AS at ORDER BY n",
        )
        .bind(&texts)
        .bind(&name)
        .bind(&seconds)
        .fetch_all(desk.ebb.db.pool())
        .await
        .unwrap();
        for ((local, (text, at, shown, shown_wanted)), wanted) in times.iter().zip(&rows).zip(wanted) {
            let got = Timestamp::from_second(*at).unwrap();
            // The server and this program may have zone databases of different age; the rule is what is compared.
            let agree =
                zone.to_datetime(got).to_string() == *shown && zone.to_datetime(wanted).to_string() == *shown_wanted;
            assert!(got == wanted || !agree, "{name} {local} ({text}): {got}, not {wanted}");
            compared += usize::from(agree);
        }
    }
    assert!(zones > 300 && compared > 100_000, "{zones} zones, {compared} times");
}

#[tokio::test]
async fn the_29th_of_february_has_a_day_in_every_year() {
    let desk = Desk::new().await;
    let mut wrong = Vec::new();
    for (leap_day, other) in [("02-28", (2, 28)), ("03-01", (3, 1))] {
        let years: Vec<(i32, String)> = sqlx::query_as(AssertSqlSafe(format!(
            "SELECT y, (ebb.yearly_at(y, 2, 29, '09:00', 'Asia/Jakarta', '{leap_day}') AT TIME ZONE 'Asia/Jakarta')::text
             FROM generate_series(1970, 2100) AS y"
        )))
        .fetch_all(desk.ebb.db.pool())
        .await
        .unwrap();
        for (year, text) in years {
            let leap = Date::new(year as i16, 2, 29);
            let date = leap.unwrap_or_else(|_| Date::new(year as i16, other.0, other.1).unwrap());
            if text != format!("{date} 09:00:00") {
                wrong.push((year, text));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

impl Desk {
    async fn yearly(&self, month: i32, day: i32, zone: &str, key: &str, more: &str) -> Uuid {
        let call = format!(
            "SELECT ebb.schedule_yearly('h', {month}, {day}, '09:00', '{zone}', '{{\"n\": {day}}}', '{key}'{more})"
        );
        self.ebb.db.scalar(&call).await
    }

    async fn next(&self, id: Uuid) -> String {
        self.ebb
            .db
            .scalar(&format!(
                "SELECT to_char(next_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') FROM ebb.recurring WHERE id = '{id}'"
            ))
            .await
    }

    fn due_times(&self) -> Vec<String> {
        self.ledger.got().iter().map(|delivery| delivery.due_at.to_string()).collect()
    }
}

#[tokio::test]
async fn a_birthday_comes_every_year_at_nine_and_each_has_an_id_of_its_own() {
    let desk = Desk::new().await;
    desk.ebb.set_clock("2027-12-01T00:00:00Z").await;
    let id = desk.yearly(2, 29, "Asia/Jakarta", "user-1", "").await;
    for now in ["2028-02-29T01:59:00Z", "2028-02-29T02:00:00Z", "2029-02-28T02:00:00Z", "2030-02-28T02:00:01Z"] {
        desk.ebb.set_clock(now).await;
        desk.once().await;
    }
    assert_eq!(desk.due_times(), ["2028-02-29T02:00:00Z", "2029-02-28T02:00:00Z", "2030-02-28T02:00:00Z"]);
    let got = desk.ledger.got();
    assert!(got.iter().all(|delivery| delivery.event == id));
    let expected: Vec<Uuid> = {
        let ids = format!("SELECT ebb.occurrence_id('{id}', y::text) FROM generate_series(2028, 2030) AS y");
        sqlx::query_scalar(AssertSqlSafe(ids)).fetch_all(desk.ebb.db.pool()).await.unwrap()
    };
    assert_eq!(got.iter().map(|delivery| delivery.occurrence).collect::<Vec<_>>(), expected);
    assert_eq!(desk.next(id).await, "2031-02-28 02:00");
}

#[tokio::test]
async fn whoever_moves_keeps_one_birthday_a_year() {
    let desk = Desk::new().await;
    desk.ebb.set_clock("2027-03-02T00:00:00Z").await;
    let id = desk.yearly(3, 3, "Asia/Jakarta", "user-1", "").await;
    assert_eq!(desk.next(id).await, "2027-03-03 02:00");
    // Still to come: it moves with the person.
    assert_eq!(desk.yearly(3, 3, "America/New_York", "user-1", "").await, id);
    assert_eq!(desk.next(id).await, "2027-03-03 14:00");
    assert_eq!(desk.yearly(3, 3, "Asia/Jakarta", "user-1", "").await, id);
    desk.ebb.set_clock("2027-03-03T02:00:00Z").await;
    desk.once().await;
    assert_eq!(desk.ledger.count(), 1);
    // Nine o'clock is still to come in New York, but this year's greeting has been sent.
    desk.yearly(3, 3, "America/New_York", "user-1", "").await;
    assert_eq!(desk.next(id).await, "2028-03-03 14:00");
    desk.yearly(3, 10, "America/New_York", "user-1", "").await;
    assert_eq!(desk.next(id).await, "2028-03-10 14:00");
    desk.ebb.set_clock("2028-03-10T14:00:00Z").await;
    desk.once().await;
    assert_eq!((desk.due_times().len(), desk.count("ebb.recurring").await), (2, 1));
    // Cancelled, and back again.
    assert!(desk.engine.events().cancel(id).await.unwrap());
    desk.ebb.set_clock("2029-03-11T14:00:00Z").await;
    desk.once().await;
    assert_eq!(desk.ledger.count(), 2);
    assert_eq!(desk.yearly(3, 10, "America/New_York", "user-1", "").await, id);
    assert_eq!(desk.next(id).await, "2030-03-10 13:00", "daylight saving begins on that day in 2030");
}

#[tokio::test]
async fn missed_years_are_made_up_for_as_asked() {
    let desk = Desk::new().await;
    desk.ebb.set_clock("2026-06-01T00:00:00Z").await;
    desk.yearly(7, 1, "UTC", "all", ", 'all'").await;
    desk.yearly(7, 2, "UTC", "latest", ", 'latest'").await;
    let skip = desk.yearly(7, 3, "UTC", "skip", ", 'skip'").await;
    desk.yearly(7, 4, "UTC", "limited", ", 'all', interval '400 days'").await;
    desk.ebb.set_clock("2029-08-01T00:00:00Z").await;
    desk.once().await;
    let mut due = desk.due_times();
    due.sort();
    let all = ["2026-07-01", "2027-07-01", "2028-07-01", "2028-07-04", "2029-07-01", "2029-07-02", "2029-07-04"];
    assert_eq!(due, all.map(|day| format!("{day}T09:00:00Z")));
    assert_eq!(desk.count("ebb.v_events WHERE state = 'skipped'").await, 2, "two of the limited ones were too late");
    let passed: String = desk.ebb.list("dedupe_key || '=' || passed_over", "ebb.recurring").await;
    assert_eq!(passed, "all=0,latest=3,limited=0,skip=4");
    assert_eq!(desk.next(skip).await, "2030-07-03 09:00");
    desk.ebb.set_clock("2030-07-03T09:00:30Z").await;
    desk.once().await;
    assert!(desk.due_times().contains(&"2030-07-03T09:00:00Z".to_owned()), "on time it is not skipped");
}

const SCHEDULE: &str = "[[schedule]]\nname = \"report\"\ncron = \"0 3 * * *\"\nzone = \"Europe/Berlin\"\nsink = \"h\"\npayload = { n = 7 }\n";

#[tokio::test]
async fn a_schedule_fires_by_the_clocks_of_its_zone() {
    let desk = Desk::new().await;
    desk.ebb.set_clock("2026-03-27T12:00:00Z").await;
    desk.ebb.apply(&format!("{SCHEDULE}[sinks.h]\ntype = \"handler\"\n")).await;
    let hours = [
        "2026-03-28T01:59:59Z",
        "2026-03-28T02:00:00Z",
        "2026-03-29T00:59:59Z",
        "2026-03-29T01:00:00Z",
        "2026-03-30T01:00:00Z",
    ];
    for now in hours {
        desk.ebb.set_clock(now).await;
        desk.once().await;
    }
    assert_eq!(desk.due_times(), ["2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T01:00:00Z"]);
    assert_eq!(desk.ledger.numbers(), [7, 7, 7]);
    let got = desk.ledger.got();
    assert!(got[0].event == got[1].event && got[0].occurrence != got[1].occurrence);
}

#[tokio::test]
async fn a_schedule_follows_its_policy() {
    let desk = Desk::new().await;
    desk.ebb.set_clock("2026-06-01T00:00:00Z").await;
    let config = |schedule: &str| format!("{schedule}[sinks.h]\ntype = \"handler\"\n");
    desk.ebb.apply(&config(SCHEDULE)).await;
    let id: Uuid = desk.ebb.db.scalar("SELECT id FROM ebb.recurring").await;
    assert_eq!(desk.next(id).await, "2026-06-01 01:00");
    desk.ebb.apply(&config(SCHEDULE)).await;
    desk.ebb.apply(&config(&SCHEDULE.replace("0 3", "30 4"))).await;
    assert_eq!(desk.next(id).await, "2026-06-01 02:30");
    // A change of the payload does not lose what is due by now.
    desk.ebb.set_clock("2026-06-02T12:00:00Z").await;
    desk.ebb.apply(&config(&SCHEDULE.replace("0 3", "30 4").replace("n = 7", "n = 8"))).await;
    desk.once().await;
    assert_eq!(desk.ledger.numbers(), [8, 8]);
    desk.ebb.apply(&config("")).await;
    desk.ebb.set_clock("2026-06-05T12:00:00Z").await;
    desk.once().await;
    assert_eq!((desk.ledger.count(), desk.count("ebb.recurring WHERE next_at IS NOT NULL").await), (2, 0));
    // Back again it does not make up for the days it was away.
    desk.ebb.apply(&config(SCHEDULE)).await;
    assert_eq!(desk.next(id).await, "2026-06-06 01:00");
    desk.engine
        .set_policy("report", &serde_json::from_str("{\"cron\": \"0 5 * * *\"}").unwrap(), "test")
        .await
        .unwrap();
    assert_eq!(desk.next(id).await, "2026-06-06 03:00");
    assert!(!desk.engine.events().cancel(id).await.unwrap(), "its policy says whether it comes");
}

#[tokio::test]
async fn missed_times_of_a_schedule_are_made_up_for_as_asked() {
    for (missed, due, passed) in [("all", 3, 0), ("latest", 1, 2), ("skip", 0, 3)] {
        let desk = Desk::new().await;
        desk.ebb.set_clock("2026-06-01T12:00:00Z").await;
        desk.ebb.apply(&format!("{SCHEDULE}missed = \"{missed}\"\n[sinks.h]\ntype = \"handler\"\n")).await;
        desk.ebb.set_clock("2026-06-04T12:00:00Z").await;
        desk.once().await;
        let over: i64 = desk.ebb.db.scalar("SELECT passed_over FROM ebb.recurring").await;
        assert_eq!((desk.ledger.count(), over), (due, passed), "{missed}");
        assert!(missed == "skip" || desk.due_times().last().unwrap() == "2026-06-04T01:00:00Z");
    }
}

#[tokio::test]
async fn two_nodes_that_fire_at_once_make_one_occurrence_each() {
    let desk = Desk::new().await;
    desk.ebb.set_clock("2026-06-01T00:00:00Z").await;
    desk.ebb.db.execute("SELECT ebb.schedule_yearly('h', 7, 1, '09:00', 'UTC', '{\"n\": 1}', 'u-' || n) FROM generate_series(1, 2000) AS n").await;
    desk.ebb.set_clock("2026-07-01T09:00:00Z").await;
    let (other, ledger) = desk.another();
    let one = crate::harness::run_once(&desk.engine, &["events"]);
    let (one, two) = tokio::join!(one, crate::harness::run_once(&other, &["events"]));
    one.unwrap();
    two.unwrap();
    desk.once().await;
    assert_eq!(desk.ledger.count() + ledger.count(), 2000);
    assert_eq!((desk.count("ebb.event").await, desk.count("ebb.event_history WHERE state = 'done'").await), (0, 2000));
}
