//! Random interleavings of everything that can be asked about subjects, against a model of a few lines. Runs are also
//! cut off at any moment, as when a node dies: what was begun is then whole or has not happened.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb::retain::Consent;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};

use super::{SHOP, users, warn};
use crate::harness::{Ebb, options, wanted};
use crate::schedule::Ledger;

const USERS: u8 = 5;

#[derive(Debug, Clone)]
enum Op {
    Delete(u8),
    DeleteInApplication(u8),
    Restore(u8),
    RestoreInApplication(u8),
    Hold(u8, Option<u16>),
    Release(u8),
    EraseNow(u8),
    Advance(u16),
    Grace(u16),
    Run,
    CutOff(u16),
}

fn op() -> impl Strategy<Value = Op> {
    let user = || 1..=USERS;
    prop_oneof![
        4 => user().prop_map(Op::Delete),
        1 => user().prop_map(Op::DeleteInApplication),
        2 => user().prop_map(Op::Restore),
        1 => user().prop_map(Op::RestoreInApplication),
        1 => (user(), prop::option::of(1_u16..80)).prop_map(|(user, days)| Op::Hold(user, days)),
        1 => user().prop_map(Op::Release),
        1 => user().prop_map(Op::EraseNow),
        4 => (1_u16..50).prop_map(Op::Advance),
        1 => prop_oneof![Just(30_u16), Just(60), Just(90)].prop_map(Op::Grace),
        3 => Just(Op::Run),
        2 => (0_u16..120).prop_map(Op::CutOff),
    ]
}

/// A subject as the model sees it.
#[derive(Debug, Clone, Default)]
struct Subject {
    /// The day of the soft delete.
    deleted: Option<u32>,
    expedited: bool,
    /// Until which day; none for ever.
    hold: Option<Option<u32>>,
    /// The day on which the sink accepted a warning.
    warned: Option<u32>,
    /// Not before this day, because a hold was lifted.
    not_before: u32,
    gone: bool,
}

const FLOOR: u32 = 20;
const WARN_BEFORE: u32 = 15;

impl Subject {
    fn held(&self, today: u32) -> bool {
        self.hold.is_some_and(|until| until.is_none_or(|until| today < until))
    }

    /// The day from which on it may be erased, as far as is known today.
    fn due_on(&self, grace: u32) -> Option<u32> {
        let term = if self.expedited { FLOOR } else { grace.max(FLOOR) };
        let promised = self.warned.map_or(0, |day| day + WARN_BEFORE).max(self.not_before);
        self.deleted.map(|day| (day + term).max(if self.expedited { 0 } else { promised }))
    }

    fn due(&self, today: u32, grace: u32, warns: bool) -> bool {
        let told = !warns || self.expedited || self.warned.is_some();
        !self.gone && !self.held(today) && told && self.due_on(grace).is_some_and(|day| today >= day)
    }

    /// A node looks whom to warn, and the sink accepts it.
    fn warn(&mut self, today: u32, grace: u32) {
        let open = !self.gone && !self.expedited && !self.held(today) && self.warned.is_none();
        if open && self.due_on(grace).is_some_and(|day| day <= today + WARN_BEFORE) {
            self.warned = Some(today);
        }
    }

    fn restored(&mut self) {
        *self = Self { hold: self.hold, gone: self.gone, ..Self::default() };
    }
}

struct World {
    ebb: Ebb,
    subjects: BTreeMap<u8, Subject>,
    today: u32,
    grace: u32,
    warns: bool,
    engine: ebb::Engine,
    ledger: Ledger,
}

fn config(grace: u32, warns: bool) -> String {
    let keys = "floor = \"20d\"\nbatch = { rows = 2, pause = \"0s\" }";
    let config = match warns {
        true => warn::config(&format!("{keys}\nwarn_before = [\"{WARN_BEFORE}d\"]")),
        false => users(keys),
    };
    config.replace("grace = \"90d\"", &format!("grace = \"{grace}d\""))
}

impl World {
    async fn new(warns: bool) -> Self {
        let ebb = Ebb::with(SHOP).await;
        ebb.db.execute(&format!("DELETE FROM users WHERE id > {USERS}")).await;
        ebb.apply(&config(90, warns)).await;
        let subjects = (1..=USERS).map(|user| (user, Subject::default())).collect();
        let ledger = Ledger::default();
        let engine = ebb.engine.clone().on("h", ledger.clone());
        Self { ebb, subjects, today: 0, grace: 90, warns, engine, ledger }
    }

    async fn call<T>(&self, sql: String) -> Option<T>
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(self.ebb.db.pool()).await.ok()
    }

    async fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let (today, warns) = (self.today, self.warns);
        match *op {
            Op::Delete(user) => {
                let done = self.call::<String>(format!("SELECT ebb.delete_subject('users', '{user}')::text")).await;
                let subject = self.subject(user);
                prop_assert_eq!(done.is_some(), !subject.gone);
                subject.deleted = subject.deleted.or(Some(today)).filter(|_| !subject.gone);
            }
            Op::DeleteInApplication(user) => {
                self.ebb
                    .db
                    .execute(&format!(
                        "UPDATE users SET deleted_at = ebb.now() WHERE id = {user} AND deleted_at IS NULL"
                    ))
                    .await;
                let subject = self.subject(user);
                subject.deleted = subject.deleted.or(Some(today)).filter(|_| !subject.gone);
                self.run(None).await;
            }
            Op::Restore(user) => {
                let done = self.call::<bool>(format!("SELECT ebb.restore_subject('users', '{user}')")).await;
                let subject = self.subject(user);
                prop_assert_eq!(done, Some(subject.deleted.is_some()), "restore of {} on day {}", user, today);
                subject.restored();
            }
            Op::RestoreInApplication(user) => {
                self.ebb.db.execute(&format!("UPDATE users SET deleted_at = NULL WHERE id = {user}")).await;
                let subject = self.subject(user);
                subject.restored();
                // Noticed by marking; until then a new soft delete would go on with the old deletion.
                self.run(None).await;
            }
            Op::Hold(user, days) => {
                let until = days.map_or("NULL".to_owned(), |days| format!("ebb.now() + interval '{days} days'"));
                let done = self
                    .call::<String>(format!("SELECT ebb.place_hold('users', '{user}', 'court', {until})::text"))
                    .await;
                let subject = self.subject(user);
                prop_assert_eq!(done.is_some(), !subject.gone);
                subject.hold = Some(days.map(|days| today + u32::from(days))).filter(|_| !subject.gone);
            }
            Op::Release(user) => {
                let done = self.call::<String>(format!("SELECT ebb.lift_hold('users', '{user}')::text")).await;
                let subject = self.subject(user);
                prop_assert_eq!(done.is_some(), subject.hold.is_some() && !subject.gone);
                if warns && subject.hold.is_some() && subject.warned.is_none() && subject.deleted.is_some() {
                    subject.not_before = subject.not_before.max(today + WARN_BEFORE);
                }
                subject.hold = None;
            }
            Op::EraseNow(user) => {
                let done = self.call::<String>(format!("SELECT ebb.erase_subject('users', '{user}')::text")).await;
                let subject = self.subject(user);
                prop_assert_eq!(done.is_some(), !subject.gone);
                if !subject.gone {
                    (subject.deleted, subject.expedited) = (subject.deleted.or(Some(today)), true);
                }
            }
            Op::Advance(days) => {
                self.ebb.db.advance(&format!("{days} days")).await;
                self.today += u32::from(days);
            }
            Op::Grace(days) => {
                self.grace = u32::from(days);
                let consent = Consent { confirmed: true, reason: None };
                self.ebb
                    .engine
                    .apply_with(&wanted(&config(self.grace, warns)).unwrap(), true, "test", &consent)
                    .await
                    .unwrap();
            }
            Op::Run => self.run(None).await,
            Op::CutOff(after) => {
                self.run(Some(Duration::from_millis(after.into()))).await;
                // Whoever comes next takes over what a dead node held.
                self.ebb.db.execute("UPDATE ebb.lease SET expires_at = '-infinity'").await;
                self.ebb
                    .db
                    .execute("UPDATE ebb.event SET lease_until = '-infinity' WHERE lease_until IS NOT NULL")
                    .await;
                self.whole().await?;
                self.run(None).await;
            }
        }
        if matches!(op, Op::Run | Op::CutOff(_) | Op::DeleteInApplication(_) | Op::RestoreInApplication(_)) {
            self.settle().await?;
        }
        Ok(())
    }

    fn subject(&mut self, user: u8) -> &mut Subject {
        self.subjects.get_mut(&user).unwrap()
    }

    /// Runs a node over everything; with a limit it is dropped in the middle of whatever it does.
    async fn run(&self, cut_off: Option<Duration>) {
        // One after the other, so that what each sees is known; what is accepted settles at the next look.
        let engine = self.engine.clone();
        let chores = match self.warns {
            true => vec!["users:mark", "users:warn", "events", "users:warn", "users:erase"],
            false => vec!["users"],
        };
        let run = tokio::spawn(async move {
            for chore in chores {
                let node = engine.node(options(&[chore]), ebb::spine::Shutdown::new());
                node.run_once(Duration::from_secs(30)).await?;
            }
            Ok::<(), ebb::Error>(())
        });
        match cut_off {
            None => {
                run.await.unwrap().unwrap();
            }
            Some(after) => {
                tokio::time::sleep(after).await;
                run.abort();
                let _ = run.await;
            }
        }
    }

    /// What is due is gone, and nothing else is.
    async fn settle(&mut self) -> Result<(), TestCaseError> {
        let (today, grace, warns) = (self.today, self.grace, self.warns);
        for subject in self.subjects.values_mut() {
            if warns {
                subject.warn(today, grace);
            }
            if subject.due(today, grace, warns) {
                *subject = Subject { gone: true, ..Subject::default() };
            }
        }
        let left: Vec<i64> =
            sqlx::query_scalar("SELECT id FROM users ORDER BY id").fetch_all(self.ebb.db.pool()).await.unwrap();
        let expected: Vec<i64> =
            self.subjects.iter().filter(|(_, subject)| !subject.gone).map(|(user, _)| i64::from(*user)).collect();
        prop_assert_eq!(left, expected, "day {}: {:?}", today, self.subjects);
        self.whole().await
    }

    /// No subject is half there, and every one that is gone has its record.
    async fn whole(&self) -> Result<(), TestCaseError> {
        let half: i64 = self
            .ebb
            .db
            .scalar(
                "SELECT count(*) FROM users u WHERE (SELECT count(*) FROM orders WHERE user_id = u.id) <> 3
                 OR (SELECT count(*) FROM sessions WHERE user_id = u.id) <> 4
                 OR (SELECT count(*) FROM items i JOIN orders o ON o.id = i.order_id WHERE o.user_id = u.id) <> 6",
            )
            .await;
        prop_assert_eq!(half, 0);
        let left: i64 = self.ebb.db.scalar("SELECT count(*) FROM users").await;
        prop_assert_eq!(self.ebb.erased().await, (i64::from(USERS) - left, (i64::from(USERS) - left) * 14));
        // By the audit alone: whoever did not ask for it had the whole time of a warning. By the ledger: nobody heard twice.
        let unwarned: i64 = self
            .ebb
            .db
            .scalar(&format!(
                "SELECT count(*) FROM ebb.audit WHERE action = 'erase' AND {} AND NOT (details ->> 'expedited')::boolean
                 AND ((details ->> 'warned_at') IS NULL OR (details ->> 'warned_at')::timestamptz + interval '{WARN_BEFORE} days'
                      > (details ->> 'erased_at')::timestamptz)",
                self.warns
            ))
            .await;
        prop_assert_eq!(unwarned, 0);
        let got = self.ledger.got();
        let links: std::collections::BTreeSet<String> =
            got.iter().map(|delivery| warn::payload(delivery)["data"]["restore_url"].to_string()).collect();
        let events: std::collections::BTreeSet<uuid::Uuid> = got.iter().map(|delivery| delivery.occurrence).collect();
        prop_assert_eq!(links.len(), events.len(), "a deletion has one warning");
        Ok(())
    }
}

#[test]
fn whatever_is_asked_in_whatever_order_nobody_is_erased_early_late_or_by_half() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cases = std::env::var("EBB_MODEL").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let mut runner =
        TestRunner::new(Cases { cases, failure_persistence: None, max_shrink_iters: 40, ..Cases::default() });
    let result = runner.run(&(any::<bool>(), prop::collection::vec(op(), 30)), |(warns, ops)| {
        runtime.block_on(async {
            let mut world = World::new(warns).await;
            for op in &ops {
                world.apply(op).await?;
            }
            Ok(())
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[tokio::test]
async fn a_restore_and_a_run_that_race_agree_on_who_won() {
    let ebb = Ebb::shop("").await;
    for round in 0..6 {
        let user = 1 + round;
        ebb.db.execute(&format!("SELECT ebb.delete_subject('users', '{user}')")).await;
        ebb.db.advance("91 days").await;
        let (one, two) = (ebb.engine.clone(), ebb.another(ebb.db.open()));
        let run = |engine: ebb::Engine| async move {
            engine
                .node(options(&["users"]), ebb::spine::Shutdown::new())
                .run_once(Duration::from_secs(30))
                .await
                .unwrap();
        };
        let restore = async {
            tokio::time::sleep(Duration::from_millis(round * 12)).await;
            ebb.db.scalar::<bool>(&format!("SELECT ebb.restore_subject('users', '{user}')")).await
        };
        let (restored, (), ()) = tokio::join!(restore, run(one), run(two));
        let there: bool = ebb.db.scalar(&format!("SELECT EXISTS (SELECT FROM users WHERE id = {user})")).await;
        let orders: i64 = ebb.db.scalar(&format!("SELECT count(*) FROM orders WHERE user_id = {user}")).await;
        assert_eq!((there, orders), (restored, if restored { 3 } else { 0 }), "round {round}");
    }
}

#[tokio::test]
async fn a_large_subject_goes_in_parts_that_survive_a_death_and_cannot_be_restored() {
    // Five millions with `make soak`.
    let rows: i64 = std::env::var("EBB_LARGE").ok().and_then(|n| n.parse().ok()).unwrap_or(70_000);
    let ebb = Ebb::shop("").await;
    ebb.db
        .execute(&format!(
            "INSERT INTO sessions SELECT 1000 + n, 1, 'x' FROM generate_series(1, {rows}) n; ANALYZE sessions"
        ))
        .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.delete_subject('users', '2')").await;
    ebb.db.advance("91 days").await;
    // Dropped as soon as the first part is gone.
    let node = ebb.engine.node(options(&["users"]), ebb::spine::Shutdown::new());
    let run = tokio::spawn(node.run_once(Duration::from_secs(30)));
    ebb.until(&format!("SELECT count(*) < {rows} FROM sessions")).await;
    run.abort();
    let _ = run.await;
    ebb.db.execute("UPDATE ebb.lease SET expires_at = '-infinity'").await;
    let left: i64 = ebb.db.scalar("SELECT count(*) FROM sessions WHERE user_id = 1").await;
    if left > 0 {
        assert_eq!(ebb.state("1").await, "erasing");
        assert!(!ebb.db.scalar::<bool>("SELECT ebb.restore_subject('users', '1')").await);
        // A hold keeps what is left.
        ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
        let before: i64 = ebb.db.scalar("SELECT count(*) FROM sessions WHERE user_id = 1").await;
        ebb.once("users").await;
        assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM sessions WHERE user_id = 1").await, before);
        ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    }
    ebb.once("users").await;
    assert_eq!(ebb.rows().await, (10, 30, 60, 40));
    assert_eq!(ebb.erased().await, (2, 28 + rows));
    let sessions: i64 = ebb
        .db
        .scalar("SELECT max((details -> 'tables' ->> 'public.sessions')::int8) FROM ebb.audit WHERE action = 'erase'")
        .await;
    assert_eq!(sessions, 4 + rows);
}
