//! Random interleavings of everything that can be asked about subjects, against a model of a few lines. The node is a
//! process of its own, killed at any moment; whatever is asked while it runs is answered truly, and whoever won, the
//! subject is then whole or gone with a record.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ebb::pg::{Database, Target};
use ebb::retain::Consent;
use ebb::schedule::sink::{Delivery, Sink, Verdict};
use ebb_testkit::Peer;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;
use tokio::time::Instant;

use super::{SHOP, users, warn};
use crate::harness::{Ebb, engine, options, run_once, wanted};

/// What is asked about one subject.
#[derive(Debug, Clone, Copy)]
enum Act {
    Delete,
    Restore,
    Hold(Option<u16>),
    Release,
    EraseNow,
    DeleteInApplication,
    RestoreInApplication,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        5 => Just(Act::Delete),
        3 => Just(Act::Restore),
        2 => prop::option::of(1_u16..80).prop_map(Act::Hold),
        2 => Just(Act::Release),
        1 => Just(Act::EraseNow),
    ]
}

/// What the application does with the row itself is noticed when a node looks next, so it comes last.
fn acts() -> impl Strategy<Value = Vec<Act>> {
    let last = prop_oneof![
        9 => Just(None),
        1 => Just(Some(Act::DeleteInApplication)),
        1 => Just(Some(Act::RestoreInApplication)),
    ];
    (prop::collection::vec(act(), 0..3), last).prop_map(|(mut acts, last)| {
        acts.extend(last);
        acts
    })
}

/// What happens to all of them, and then a node looks.
#[derive(Debug, Clone)]
struct Round {
    advance: u16,
    grace: Option<u16>,
    /// The node runs while things are asked, not after it.
    at_once: bool,
    /// After so many milliseconds the node is killed, and another takes over.
    kill: Option<u16>,
}

fn round() -> impl Strategy<Value = Round> {
    let days = prop_oneof![1 => Just(0), 3 => 1_u16..50];
    let grace = prop::option::weighted(0.15, prop_oneof![Just(30_u16), Just(60), Just(90)]);
    (days, grace, any::<bool>(), prop::option::weighted(0.4, 0_u16..600))
        .prop_map(|(advance, grace, at_once, kill)| Round { advance, grace, at_once, kill })
}

#[derive(Debug, Clone)]
struct Game {
    warns: bool,
    batch: u16,
    rounds: Vec<Round>,
    /// For each subject what is asked in each round.
    subjects: Vec<Vec<Vec<Act>>>,
}

const ROUNDS: usize = 10;

fn game(subjects: usize) -> impl Strategy<Value = Game> {
    let life = prop::collection::vec(acts(), ROUNDS);
    let batch = prop_oneof![Just(2_u16), Just(9), Just(100)];
    (any::<bool>(), batch, prop::collection::vec(round(), ROUNDS), prop::collection::vec(life, subjects))
        .prop_map(|(warns, batch, rounds, subjects)| Game { warns, batch, rounds, subjects })
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
    /// While a node ran it was due for a moment, and may have gone.
    was_due: bool,
    /// While a node ran it was to be warned for a moment, and may have been.
    was_to_be_warned: bool,
}

const FLOOR: u32 = 20;
const WARN_BEFORE: u32 = 15;

/// What everybody shares.
#[derive(Debug, Clone, Copy)]
struct Day {
    today: u32,
    grace: u32,
    warns: bool,
}

impl Subject {
    fn held(&self, day: Day) -> bool {
        self.hold.is_some_and(|until| until.is_none_or(|until| day.today < until))
    }

    /// The day from which on it may be erased, as far as is known today.
    fn due_on(&self, day: Day) -> Option<u32> {
        let term = if self.expedited { FLOOR } else { day.grace.max(FLOOR) };
        let promised = self.warned.map_or(0, |day| day + WARN_BEFORE).max(self.not_before);
        self.deleted.map(|day| (day + term).max(if self.expedited { 0 } else { promised }))
    }

    fn due(&self, day: Day) -> bool {
        let told = !day.warns || self.expedited || self.warned.is_some();
        !self.gone && !self.held(day) && told && self.due_on(day).is_some_and(|due| day.today >= due)
    }

    fn to_be_warned(&self, day: Day) -> bool {
        let open = !self.gone && !self.expedited && !self.held(day) && self.warned.is_none();
        day.warns && open && self.due_on(day).is_some_and(|due| due <= day.today + WARN_BEFORE)
    }

    /// A node that runs may see it as it is now.
    fn seen(&mut self, day: Day) {
        self.was_due |= self.due(day);
        self.was_to_be_warned |= self.to_be_warned(day);
    }

    fn restored(&mut self) {
        *self = Self { hold: self.hold, was_due: self.was_due, ..Self::default() };
    }

    fn went(&mut self) {
        *self = Self { gone: true, ..Self::default() };
    }

    /// An answer says whether the subject is there: the model must agree, or learn who won.
    fn is_there(&mut self, there: bool) -> Result<bool, TestCaseError> {
        if !there && self.was_due {
            self.went();
        }
        prop_assert_eq!(there, !self.gone, "{:?}", self);
        Ok(there)
    }

    /// What an act did.
    fn asked(&mut self, act: Act, answer: bool, day: Day) -> Result<(), TestCaseError> {
        match act {
            Act::Delete => {
                if self.is_there(answer)? {
                    self.deleted = self.deleted.or(Some(day.today));
                }
            }
            Act::Restore => {
                if self.deleted.is_some() && self.is_there(answer)? {
                    self.restored();
                } else {
                    prop_assert!(!answer, "{:?}", self);
                }
            }
            Act::Hold(days) => {
                if self.is_there(answer)? {
                    // The later end of both, where one was in force.
                    let until = days.map(|days| day.today + u32::from(days));
                    let before = self.hold.filter(|_| self.held(day));
                    self.hold =
                        Some(before.map_or(until, |before| before.zip(until).map(|(one, other)| one.max(other))));
                }
            }
            Act::Release => {
                if self.hold.is_some() && self.is_there(answer)? {
                    if day.warns && self.warned.is_none() && self.deleted.is_some() {
                        self.not_before = self.not_before.max(day.today + WARN_BEFORE);
                    }
                    self.hold = None;
                } else {
                    prop_assert!(!answer, "{:?}", self);
                }
            }
            Act::EraseNow => {
                if self.is_there(answer)? {
                    (self.deleted, self.expedited) = (self.deleted.or(Some(day.today)), true);
                }
            }
            // Of a row that is deleted already it says nothing.
            Act::DeleteInApplication => {
                if self.deleted.is_none() && self.is_there(answer)? {
                    self.deleted = Some(day.today);
                }
            }
            Act::RestoreInApplication => {
                if self.is_there(answer)? {
                    self.restored();
                }
            }
        }
        Ok(())
    }
}

struct World {
    ebb: Ebb,
    subjects: BTreeMap<usize, Subject>,
    day: Day,
    batch: u16,
    node: Peer,
}

fn config(day: Day, batch: u16) -> String {
    let keys = format!("floor = \"{FLOOR}d\"\nbatch = {{ rows = {batch}, pause = \"0s\" }}");
    let config = match day.warns {
        true => warn::config(&format!("{keys}\nwarn_before = [\"{WARN_BEFORE}d\"]")),
        false => users(&keys),
    };
    config.replace("grace = \"90d\"", &format!("grace = \"{}d\"", day.grace))
}

impl World {
    async fn new(game: &Game) -> Self {
        let ebb = Ebb::with(SHOP).await;
        let many = game.subjects.len();
        ebb.db
            .execute(&format!(
                "TRUNCATE users CASCADE;
                 INSERT INTO users (id, email, name) SELECT n, n || '@example.test', 'n' FROM generate_series(1, {many}) n;
                 INSERT INTO orders SELECT u * 100 + n, u, 1 + u % {many}, 5 FROM generate_series(1, {many}) u, generate_series(1, 3) n;
                 INSERT INTO items SELECT o.id, n FROM orders o, generate_series(1, 2) n;
                 INSERT INTO sessions SELECT u * 10 + n, u, 'ip' FROM generate_series(1, {many}) u, generate_series(1, 4) n;
                 CREATE TABLE heard (event uuid, link text)"
            ))
            .await;
        let day = Day { today: 0, grace: 90, warns: game.warns };
        ebb.apply(&config(day, game.batch)).await;
        let subjects = (1..=many).map(|user| (user, Subject::default())).collect();
        let node = start(&ebb).await;
        Self { ebb, subjects, day, batch: game.batch, node }
    }

    async fn play(&mut self, round: &Round, acts: &BTreeMap<usize, &[Act]>) -> Result<(), TestCaseError> {
        self.ebb.db.advance(&format!("{} days", round.advance)).await;
        self.day.today += u32::from(round.advance);
        if let Some(grace) = round.grace {
            self.day.grace = grace.into();
            let consent = Consent { confirmed: true, reason: None };
            let wanted = wanted(&config(self.day, self.batch)).unwrap();
            self.ebb.engine.apply_with(&wanted, true, "test", &consent).await.unwrap();
        }
        for subject in self.subjects.values_mut() {
            (subject.was_due, subject.was_to_be_warned) = (false, false);
        }
        // When the node that was told to look is to be killed.
        let mut end = if round.at_once { self.look(round) } else { None };
        for (user, acts) in acts {
            for act in *acts {
                if end.is_some_and(|end| Instant::now() >= end) {
                    self.node.kill9();
                }
                self.ask(*user, *act, round.at_once).await?;
            }
        }
        if !round.at_once {
            end = self.look(round);
        }
        if let Some(end) = end {
            tokio::time::sleep_until(end).await;
            self.node.kill9();
            self.take_over().await;
            self.whole().await?;
        } else {
            self.looked().await?;
        }
        // Once more: for whatever the first had left, or passed by because somebody asked just then.
        self.node.say(self.chores());
        self.looked().await?;
        self.settle().await
    }

    fn look(&mut self, round: &Round) -> Option<Instant> {
        self.node.say(self.chores());
        round.kill.map(|after| Instant::now() + Duration::from_millis(after.into()))
    }

    async fn looked(&mut self) -> Result<(), TestCaseError> {
        let answer = self.node.hear().await;
        prop_assert_eq!(answer.as_deref(), Some("done"));
        Ok(())
    }

    /// One after the other, so that what each sees is known; what is accepted settles at the next look.
    fn chores(&self) -> &'static str {
        match self.day.warns {
            true => "users:mark users:warn events users:warn users:erase",
            false => "users",
        }
    }

    async fn ask(&mut self, user: usize, act: Act, at_once: bool) -> Result<(), TestCaseError> {
        let day = self.day;
        let subject = self.subjects.get_mut(&user).unwrap();
        if at_once {
            subject.seen(day);
        }
        let call = |sql: String| answered(self.ebb.db.pool(), sql);
        let answer = match act {
            Act::Delete => call(format!("SELECT ebb.delete_subject('users', '{user}') IS NOT NULL")).await,
            Act::Restore => call(format!("SELECT ebb.restore_subject('users', '{user}')")).await,
            Act::Hold(days) => {
                let until = days.map_or("NULL".to_owned(), |days| format!("ebb.now() + interval '{days} days'"));
                call(format!("SELECT true FROM ebb.place_hold('users', '{user}', 'court', {until})")).await
            }
            Act::Release => call(format!("SELECT true FROM ebb.lift_hold('users', '{user}')")).await,
            Act::EraseNow => call(format!("SELECT ebb.erase_subject('users', '{user}') IS NOT NULL")).await,
            Act::DeleteInApplication => {
                call(format!("WITH done AS (UPDATE users SET deleted_at = ebb.now() WHERE id = {user} AND deleted_at IS NULL RETURNING 1)
                              SELECT EXISTS (SELECT FROM done)"))
                .await
            }
            Act::RestoreInApplication => {
                call(format!("WITH done AS (UPDATE users SET deleted_at = NULL WHERE id = {user} RETURNING 1)
                              SELECT EXISTS (SELECT FROM done)"))
                .await
            }
        };
        subject.asked(act, answer, day)?;
        if at_once {
            subject.seen(day);
        }
        Ok(())
    }

    /// Another node, which need not wait until the dead one's leases are over. What the server still did for that one is.
    async fn take_over(&mut self) {
        self.node = start(&self.ebb).await;
        self.ebb
            .until(&format!(
                "SELECT count(*) = 0 FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name LIKE '{NODE}%' AND (xact_start IS NOT NULL OR state = 'active')"
            ))
            .await;
        self.ebb.db.execute("UPDATE ebb.lease SET expires_at = '-infinity'").await;
        self.ebb.db.execute("UPDATE ebb.event SET lease_until = '-infinity' WHERE lease_until IS NOT NULL").await;
    }

    /// What is due is gone, who is to be warned is warned, and nothing else has happened.
    async fn settle(&mut self) -> Result<(), TestCaseError> {
        let day = self.day;
        let warned: Vec<String> = sqlx::query_scalar(
            "SELECT d.subject_id FROM ebb.deletion d JOIN ebb.warning w ON w.deletion = d.id
             WHERE d.state IN ('pending', 'warned') AND w.accepted_at IS NOT NULL",
        )
        .fetch_all(self.ebb.db.pool())
        .await
        .unwrap();
        let warned: BTreeSet<usize> = warned.iter().map(|id| id.parse().unwrap()).collect();
        for (user, subject) in &mut self.subjects {
            if subject.due(day) {
                subject.went();
            } else if !subject.gone {
                let warned = warned.contains(user);
                if subject.to_be_warned(day) || (warned && subject.was_to_be_warned && subject.deleted.is_some()) {
                    subject.warned = subject.warned.or(Some(day.today));
                }
                prop_assert_eq!(warned, subject.warned.is_some(), "{}: {:?} {:?}", user, day, subject);
            }
        }
        let left: Vec<i64> =
            sqlx::query_scalar("SELECT id FROM users ORDER BY id").fetch_all(self.ebb.db.pool()).await.unwrap();
        let left: BTreeSet<usize> = left.into_iter().map(|id| usize::try_from(id).unwrap()).collect();
        for (user, subject) in &self.subjects {
            prop_assert_eq!(left.contains(user), !subject.gone, "{}: {:?} {:?}", user, day, subject);
        }
        self.whole().await
    }

    /// No subject is half there, and every one that is gone has its record, in one look at all of it.
    async fn whole(&self) -> Result<(), TestCaseError> {
        let many = self.subjects.len();
        let wrong: String = self
            .ebb
            .db
            .scalar(&format!(
                "SELECT concat_ws(', ',
                    (SELECT 'half: ' || string_agg(u.id::text, ' ') FROM users u
                     WHERE (SELECT count(*) FROM orders WHERE user_id = u.id) <> 3
                        OR (SELECT count(*) FROM sessions WHERE user_id = u.id) <> 4
                        OR (SELECT count(*) FROM items i JOIN orders o ON o.id = i.order_id WHERE o.user_id = u.id) <> 6),
                    (SELECT 'records: ' || count(*) || ' of ' || {many} - (SELECT count(*) FROM users) FROM ebb.audit WHERE action = 'erase'
                     HAVING count(*) <> {many} - (SELECT count(*) FROM users) OR COALESCE(sum(rows), 0) <> 14 * count(*)),
                    -- By the audit alone: whoever did not ask for it had the whole time of a warning.
                    (SELECT 'unwarned: ' || string_agg(details::text, ' ') FROM ebb.audit
                     WHERE action = 'erase' AND {} AND NOT (details ->> 'expedited')::boolean
                       AND ((details ->> 'warned_at') IS NULL OR (details ->> 'warned_at')::timestamptz + interval '{WARN_BEFORE} days'
                            > (details ->> 'erased_at')::timestamptz)),
                    -- By whom the sink heard of: a deletion has one warning.
                    (SELECT 'warned twice: ' || count(DISTINCT event) FROM heard HAVING count(DISTINCT event) <> count(DISTINCT link)))",
                self.day.warns
            ))
            .await;
        prop_assert_eq!(wrong, "");
        Ok(())
    }
}

/// Whether a statement answers yes; no subject of that id is a no, and anything else that fails is wrong.
async fn answered(pool: &PgPool, sql: String) -> bool {
    match sqlx::query_scalar(AssertSqlSafe(sql.clone())).persistent(false).fetch_one(pool).await {
        Ok(answer) => answer,
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("P0002") => false,
        Err(error) => panic!("{error}\nin: {sql}"),
    }
}

/// How the server knows the connections of a node.
const NODE: &str = "ebb/model";

async fn start(ebb: &Ebb) -> Peer {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "retain::model::node", "--nocapture", "--test-threads", "1"]);
    command.env("EBB_URL", ebb.db.url()).env("EBB_KEYS", ebb.keys());
    let mut peer = Peer::spawn(command);
    assert_eq!(peer.hear().await.as_deref(), Some("ready"));
    peer
}

/// Does the chores that a line names, one after the other, until its input ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of the model, which starts it by itself"]
async fn node() {
    let url = std::env::var("EBB_URL").expect("only the model starts it");
    let keys = std::env::var("EBB_KEYS").unwrap();
    let mut lines = Peer::asked();
    let database = Database::open(Target::parse(&url, None).unwrap(), 4, NODE);
    let engine = engine(database, Path::new(&keys)).on("h", Heard(PgPool::connect_lazy(&url).unwrap()));
    Peer::answer("ready");
    while let Some(line) = lines.recv().await {
        let mut answer = "done".to_owned();
        for chore in line.split(' ') {
            if let Err(error) = run_once(&engine, &[chore]).await {
                answer = error.to_string();
            }
        }
        Peer::answer(&answer);
    }
}

/// A sink that writes down what it takes where a death of its process cannot reach it.
struct Heard(PgPool);

impl Sink for Heard {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Verdict> {
        async move {
            let link = warn::payload(delivery)["data"]["restore_url"].to_string();
            let insert = sqlx::query("INSERT INTO heard VALUES ($1, $2)").bind(delivery.occurrence).bind(link);
            insert.execute(&self.0).await.unwrap();
            Verdict::Delivered { response: None }
        }
        .boxed()
    }
}

/// So many lives of subjects, a hundred to a game: EBB_MODEL, ten thousand with `make soak`.
#[test]
fn whatever_is_asked_in_whatever_order_nobody_is_erased_early_late_or_by_half() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lives: u32 = std::env::var("EBB_MODEL").ok().and_then(|n| n.parse().ok()).unwrap_or(90);
    let a_game = if lives < 1000 { 30 } else { 100 };
    let cases = lives.div_ceil(a_game);
    let mut runner =
        TestRunner::new(Cases { cases, failure_persistence: None, max_shrink_iters: 40, ..Cases::default() });
    let result = runner.run(&game(a_game as usize), |game| {
        runtime.block_on(async {
            let mut world = World::new(&game).await;
            for (at, round) in game.rounds.iter().enumerate() {
                let acts =
                    game.subjects.iter().enumerate().map(|(user, life)| (user + 1, life[at].as_slice())).collect();
                world.play(round, &acts).await?;
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
