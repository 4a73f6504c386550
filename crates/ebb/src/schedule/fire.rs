//! Recurring events fire: each puts an ordinary event in its place and moves on, in one statement. Invariants: the id of an
//! occurrence is a function of its event and its time, so that firing twice makes one; what was missed is made up for as its
//! rule says, and what is not is counted.

use jiff::Timestamp;
use sqlx::PgConnection;

use super::store::{self, DueCron};
use crate::pg::{Database, answered};
use crate::policy::{Cron, Missed, Policy, Schedule, Stored, Zone};
use crate::spine::ANSWER_WITHIN;
use crate::{Error, Result};

/// So many recurring events at a time, and so many occurrences of each.
const AT_ONCE: i64 = 500;
/// An occurrence found later than this counts as missed; `fire_yearly.sql` says the same.
const MISSED_AFTER: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);
/// Occurrences that were passed over are counted no further.
const COUNT_PASSED: usize = 10_000;

/// Fires everything that is due; how many occurrences that made.
pub(super) async fn fire(database: &Database, paused: &[String]) -> Result<u64> {
    let mut total = 0;
    loop {
        let (fired, more) = answered(ANSWER_WITHIN, async {
            let mut tx = database.read().await?;
            let yearly = store::fire_yearly(&mut tx, AT_ONCE, paused).await?;
            let cron = fire_cron(&mut tx, paused).await?;
            tx.commit().await?;
            let passed: i64 = yearly.iter().map(|fired| fired.passed_over).sum::<i64>() + cron.passed_over;
            if passed > 0 {
                tracing::info!(passed_over = passed, "Missed occurrences were passed over, as their rule says");
            }
            let made = yearly.iter().filter(|fired| fired.fires).count() as u64 + cron.made;
            Ok((made, !yearly.is_empty() || cron.events > 0))
        })
        .await?;
        total += fired;
        if !more {
            return Ok(total);
        }
    }
}

#[derive(Default)]
struct Fired {
    events: usize,
    made: u64,
    passed_over: i64,
}

async fn fire_cron(connection: &mut PgConnection, paused: &[String]) -> Result<Fired> {
    let due = store::due_cron(connection, AT_ONCE, paused).await?;
    if due.is_empty() {
        return Ok(Fired::default());
    }
    let (mut occurrences, mut moves) = (Vec::new(), Vec::new());
    for event in &due {
        let plan = plan(event)?;
        occurrences.extend(plan.fire.iter().map(|at| (event.id, *at)));
        moves.push((event.id, plan.next, plan.passed_over as i64));
    }
    store::fire_cron(connection, &occurrences, &moves).await?;
    let passed_over = moves.iter().map(|(_, _, passed)| passed).sum();
    Ok(Fired { events: due.len(), made: occurrences.len() as u64, passed_over })
}

/// What a due event does now.
#[derive(Debug, PartialEq)]
struct Plan {
    fire: Vec<Timestamp>,
    next: Option<Timestamp>,
    passed_over: usize,
}

fn plan(event: &DueCron) -> Result<Plan> {
    let broken = |what: String| Error::failed(format!("recurring event {}: {what}", event.id));
    let cron: Cron = event.cron.parse().map_err(|invalid: crate::policy::Invalid| broken(invalid.message))?;
    let zone: Zone = event.zone.parse().map_err(|invalid: crate::policy::Invalid| broken(invalid.message))?;
    Ok(decide(&cron, &zone, Missed::parse(&event.missed), event.next_at.to_jiff(), event.now.to_jiff()))
}

fn decide(cron: &Cron, zone: &Zone, missed: Missed, due: Timestamp, now: Timestamp) -> Plan {
    let after = |at: Timestamp| cron.next_after(at, zone.rules());
    if missed == Missed::All {
        let mut fire = vec![due];
        let mut next = after(due);
        while let Some(at) = next.filter(|at| *at <= now && fire.len() < AT_ONCE as usize) {
            fire.push(at);
            next = after(at);
        }
        return Plan { fire, next, passed_over: 0 };
    }
    let latest = cron.latest(due, now, zone.rules()).unwrap_or(due);
    let earlier =
        std::iter::successors(Some(due), |at| after(*at)).take_while(|at| *at < latest).take(COUNT_PASSED).count();
    let fires = missed == Missed::Latest || now.duration_since(latest) <= MISSED_AFTER;
    Plan {
        fire: fires.then_some(latest).into_iter().collect(),
        next: after(latest),
        passed_over: earlier + usize::from(!fires),
    }
}

/// Makes the recurring events of `[[schedule]]` those of the policies as this transaction sees them.
pub(crate) async fn follow(connection: &mut PgConnection, stored: &[Stored]) -> Result<()> {
    let schedules: Vec<Schedule> = stored
        .iter()
        .filter(|stored| stored.is_active())
        .filter_map(|stored| match stored.policy() {
            Ok(Policy::Schedule(schedule)) => Some(schedule),
            _ => None,
        })
        .collect();
    if !schedules.is_empty() {
        let now = store::now(connection).await?;
        let next: Vec<_> =
            schedules.iter().map(|schedule| schedule.cron.next_after(now, schedule.zone.rules())).collect();
        store::follow_schedules(connection, &schedules, &next).await?;
    }
    let on: Vec<&str> = schedules.iter().map(|schedule| schedule.name.as_str()).collect();
    store::end_schedules(connection, &on).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn decided(missed: Missed, due: &str, now: &str) -> (Vec<String>, String, usize) {
        let plan = decide(&"0 3 * * *".parse().unwrap(), &Zone::utc(), missed, ts(due), ts(now));
        (plan.fire.iter().map(ToString::to_string).collect(), plan.next.unwrap().to_string(), plan.passed_over)
    }

    #[test]
    fn what_was_missed_is_made_up_for_as_asked() {
        let (due, now) = ("2026-03-01T03:00:00Z", "2026-03-03T12:00:00Z");
        let days = ["2026-03-01T03:00:00Z", "2026-03-02T03:00:00Z", "2026-03-03T03:00:00Z"].map(String::from).to_vec();
        let next = "2026-03-04T03:00:00Z".to_owned();
        assert_eq!(decided(Missed::All, due, now), (days.clone(), next.clone(), 0));
        assert_eq!(decided(Missed::Latest, due, now), (days[2..].to_vec(), next.clone(), 2));
        assert_eq!(decided(Missed::Skip, due, now), (vec![], next.clone(), 3));
        assert_eq!(decided(Missed::Skip, due, "2026-03-03T03:00:20Z"), (days[2..].to_vec(), next, 2));
    }

    #[test]
    fn a_long_absence_is_made_up_for_in_bounded_steps() {
        let plan = decide(
            &"* * * * *".parse().unwrap(),
            &Zone::utc(),
            Missed::All,
            ts("2025-01-01T00:00:00Z"),
            ts("2026-01-01T00:00:00Z"),
        );
        assert_eq!((plan.fire.len(), plan.next), (500, Some(ts("2025-01-01T08:20:00Z"))));
    }
}
