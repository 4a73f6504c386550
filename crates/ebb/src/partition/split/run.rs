//! Runs a split, from wherever it stands, and what takes it back. Invariants: a step and the note that it is done are one
//! transaction wherever a step can be one, and harmless to repeat where it cannot; after any failure, a full disk
//! included, the table is what it was, every change is still noted, and the same command goes on.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::plan::{Act, Plan, Step, batch};
use super::store::{self, Row};
use super::{Preflight, Request, preflight};
use crate::partition::adopt::store as adoptions;
use crate::partition::adopt::{After, Progress, Session, hold_no_longer, prepare_session, short};
use crate::partition::{index, list};
use crate::pg::{Database, Literal, block, catalog};
use crate::policy::{self, Kind, Pacing, Policy};
use crate::spine::pacing::{self, Pacer};
use crate::{Error, Result, control, spine};

/// How long a batch of the log should take; whoever comes behind it on a row waits as long.
const APPLY_FOR: Duration = Duration::from_millis(30);
const LOCK_WAIT: Duration = Duration::from_millis(60);
/// So few entries are left to the short transaction that comes next.
const FEW: u64 = 50;
/// How often what is left may have grown again before the short transaction gets to it.
const SETTLES: u32 = 60;
/// How often a batch gives way before the split stops.
const TRIES: u32 = 200;
/// How long one look at the server's signals counts.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

type Watch<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// What became of it.
#[derive(Debug, Clone)]
pub struct Split {
    /// The table.
    pub table: String,
    /// The partition that was split; it stays outside, empty, until `finish`.
    pub partition: String,
    /// What it was split into.
    pub parts: Vec<String>,
    /// Whether it was split already.
    pub already: bool,
}

/// Splits a partition, or goes on with it.
pub async fn split(database: &Database, request: &Request, watch: Watch<'_>) -> Result<Split> {
    let mut session = prepare_session(database).await?;
    let label = catalog::table(&mut session.connection, &request.table).await?.relation.label();
    // What somebody else begins meanwhile looks like an obstacle, and is what is wanted.
    if store::find(&mut session.connection, &label).await?.is_none()
        && let Err(error) = begin(&mut session, request).await
        && store::find(&mut session.connection, &label).await?.is_none()
    {
        return Err(error);
    }
    hold_no_longer(&mut session, request.max_lock).await?;
    store::hold(&mut session.connection, &label, watch).await?;
    let row = store::find(&mut session.connection, &label)
        .await?
        .ok_or_else(|| Error::refused(format!("the split of {label} was taken back meanwhile")))?;
    let plan = row.plan()?;
    if !["splitting", "split"].contains(&row.state.as_str()) {
        return Err(Error::refused(format!("the split of {label} is being taken back"))
            .with_hint(format!("go on with that first: ebb partition rollback {label}")));
    }
    let already = row.state == "split" && row.steps_done() == plan.steps.len();
    go_on(&mut session, &row, &plan, watch).await?;
    Ok(Split {
        table: label,
        partition: plan.source_label.clone(),
        parts: plan.parts().map(str::to_owned).collect(),
        already,
    })
}

/// Looks once more, and writes the plan down.
async fn begin(session: &mut Session, request: &Request) -> Result<()> {
    // Before anything is read for the plan: what changes from here on is noticed.
    let portrait = portrait(&mut session.connection, request).await?;
    let Preflight { table, findings, plan, partition, .. } = preflight(&mut session.connection, request).await?;
    let Some(plan) = plan else {
        let all: Vec<String> = findings.refusals.iter().map(|one| format!("{} ({})", one.what, one.fix)).collect();
        return Err(Error::refused(format!("{partition} cannot be split: {}", all.join("; "))));
    };
    let relid = catalog::table(&mut session.connection, &partition).await?.oid;
    store::begin(&mut session.connection, &table, i64::from(relid), &plan, &portrait).await
}

/// What the table looks like, by the column that its policy names.
async fn portrait(connection: &mut PgConnection, request: &Request) -> Result<Vec<String>> {
    let table = catalog::table(connection, &request.table).await?;
    let policies = list::policies(connection, Some(&request.table)).await?;
    let Some((_, policy)) = policies.first() else { return Ok(Vec::new()) };
    let column = catalog::column(connection, &table.relation, table.oid, &policy.column).await?;
    adoptions::portrait(connection, i64::from(table.oid), column.name.as_str()).await
}

/// The steps that are not done yet.
async fn go_on(session: &mut Session, row: &Row, plan: &Plan, watch: Watch<'_>) -> Result<()> {
    let (swap, of) = (plan.swap(), plan.steps.len());
    // How far the copy is counts in pages, and a dump puts rows into others.
    if row.elsewhere && row.steps_done() < swap {
        let text =
            format!("the split of {} was under way in the database that this one was restored from", row.relation);
        return Err(Error::refused(text)
            .with_hint(format!("let its parts go, and split again: ebb partition rollback {}", row.relation)));
    }
    for (n, step) in plan.steps.iter().enumerate().skip(row.steps_done()) {
        watch(Progress::Step(n + 1, of, step.title.clone()));
        rest_while_paused(session, row, watch).await?;
        let state = if n >= swap { "split" } else { "splitting" };
        if n < swap && plan.parent > 0 {
            let looked =
                store::require_portrait(&mut session.connection, &row.relation, plan.parent, plan.column()).await;
            looked.map_err(|error| explained(error, row))?;
        }
        let done = After::Split { label: &row.relation, state, step: n + 1 };
        run(session, row, step, done, watch).await.map_err(|error| explained(error, row))?;
    }
    Ok(())
}

/// A disk that is full, or parts that are too many for one short lock, with the ways out.
fn explained(error: Error, row: &Row) -> Error {
    match error.sqlstate().as_deref() {
        Some("EB004") => Error::refused(error.to_string()).with_hint(format!(
            "the table is what it was; allow a longer lock and go on (--max-lock 2s), or let the parts go and take fewer (--since): ebb partition rollback {}",
            row.relation
        )),
        Some("EB002") => Error::refused(error.to_string()).with_hint(format!(
            "the table is what it was, and the parts would not be like it: undo that and split again, or let the parts go: ebb partition rollback {}",
            row.relation
        )),
        Some("42883") => error.with_hint(format!(
            "a check, an index or a generated column of the table calls a function that finds others by search_path: ALTER FUNCTION … SET search_path = …; the table is what it was: ebb partition rollback {}",
            row.relation
        )),
        Some("53100") => error.with_hint(format!(
            "the table is what it was; make space and run it again, or let the parts go: ebb partition rollback {}",
            row.relation
        )),
        _ => error,
    }
}

async fn run(session: &mut Session, row: &Row, step: &Step, done: After<'_>, watch: Watch<'_>) -> Result<()> {
    match step.act {
        Act::Short => short(session, &[row.relid], &step.sql, watch, done).await,
        Act::Alone => {
            index::share_cores(session).await?;
            let mut tx = session.connection.begin().await?;
            sqlx::raw_sql(AssertSqlSafe(step.sql.join(";\n"))).execute(&mut *tx).await?;
            done.write(&mut tx).await?;
            tx.commit().await?;
            Ok(())
        }
        Act::Outside => {
            for statement in &step.sql {
                index::tell(session, statement.clone(), watch).await?;
            }
            done.write(&mut session.connection).await
        }
        Act::Outlast => {
            outlast(session, row, &step.sql, watch).await?;
            done.write(&mut session.connection).await
        }
        Act::Copy => {
            copy(session, row, step, watch).await?;
            done.write(&mut session.connection).await
        }
        Act::Drain => {
            drain(session, row, watch).await?;
            done.write(&mut session.connection).await
        }
        Act::Compare => {
            drain(session, row, watch).await?;
            compare(session, row, step).await?;
            done.write(&mut session.connection).await
        }
        Act::Settled | Act::Swap => settled(session, row, step, done, watch).await,
    }
}

/// Rests as the server's state asks for, and while an operator says so.
struct Pace {
    pacer: Pacer,
    limits: Pacing,
    looked: Option<Instant>,
}

impl Pace {
    async fn new(session: &mut Session) -> Result<Self> {
        let stored = policy::store::all(&mut session.connection).await?;
        let pacing = stored.into_iter().find(|one| one.kind == Kind::Settings && one.name == "pacing");
        let limits = match pacing.map(|stored| stored.policy()).transpose()? {
            Some(Policy::Pacing(limits)) => limits,
            _ => Pacing::default(),
        };
        Ok(Self { pacer: Pacer::adaptive(200, 4, 20_000), limits, looked: None })
    }

    /// Waits while a signal says that others go first.
    async fn turn(&mut self, session: &mut Session, row: &Row, watch: Watch<'_>) -> Result<()> {
        while self.looked.is_none_or(|at| at.elapsed() > LOOK_AGAIN) {
            rest_while_paused(session, row, watch).await?;
            let signals = spine::store::signals(&mut session.connection, row.relid as u32).await?;
            self.pacer.see_others(signals.others > 0);
            self.looked = Some(Instant::now());
            let Some(veto) = pacing::veto(&signals, &self.limits) else { break };
            watch(Progress::Waiting(veto.detail));
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }
}

/// An operator's pause counts between any two batches, as it does for a node.
async fn rest_while_paused(session: &mut Session, row: &Row, watch: Watch<'_>) -> Result<()> {
    loop {
        let pauses = control::pauses(&mut session.connection).await?;
        let ours = |one: &&control::Pause| one.name == control::ALL || row.policies.contains(&one.name);
        let Some(pause) = pauses.iter().find(ours) else { return Ok(()) };
        watch(Progress::Waiting(format!("paused by {}; ebb resume ends that", pause.paused_by)));
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Page after page. A batch and how far it came are one transaction; that it may be lost in a crash of the server loses
/// both.
async fn copy(session: &mut Session, row: &Row, step: &Step, watch: Watch<'_>) -> Result<()> {
    let row = store::find(&mut session.connection, &row.relation).await?.unwrap_or_else(|| row.clone());
    let statement = step.sql.join(";");
    let (mut page, pages, mut pace) = (row.page, row.pages.unwrap_or(0), Pace::new(session).await?);
    while page < pages {
        pace.turn(session, &row, watch).await?;
        let (began, until) = (Instant::now(), (page + pace.pacer.size() as i64).min(pages));
        let batch = batch(&statement, page, until);
        let mut tx = session.connection.begin().await?;
        sqlx::raw_sql("SET LOCAL synchronous_commit = off").execute(&mut *tx).await?;
        sqlx::raw_sql(AssertSqlSafe(batch)).execute(&mut *tx).await?;
        store::copied(&mut tx, &row.relation, until).await?;
        tx.commit().await?;
        page = until;
        watch(Progress::Share(page as f64 / pages as f64, format!("{page} of {pages} pages")));
        let rest = pace.pacer.after(began.elapsed());
        tokio::time::sleep(rest).await;
    }
    Ok(())
}

/// Batch after batch of what was noted, until little is left.
async fn drain(session: &mut Session, row: &Row, watch: Watch<'_>) -> Result<()> {
    let (mut size, mut applied, mut tries) = (500_u64, 0, 0);
    loop {
        rest_while_paused(session, row, watch).await?;
        let began = Instant::now();
        let mut tx = session.connection.begin().await?;
        let bound = format!("SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = {}", LOCK_WAIT.as_millis());
        let tried = async {
            sqlx::raw_sql(AssertSqlSafe(bound)).execute(&mut *tx).await?;
            store::apply(&mut tx, &row.relation, size).await
        };
        match tried.await {
            Ok(count) => {
                tx.commit().await?;
                (applied, tries) = (applied + count, 0);
                if count <= FEW {
                    return Ok(());
                }
                watch(Progress::Share(0.0, format!("{applied} changes applied")));
                let took = began.elapsed();
                let fitting = APPLY_FOR.as_secs_f64() / took.as_secs_f64().max(0.001);
                size = ((size as f64 * fitting.clamp(0.5, 1.5)) as u64).clamp(2 * FEW, 5_000);
                tokio::time::sleep(took / 2).await;
            }
            // 23503: what the row refers to is about to go, and the row with it; 23505: its writer came first.
            Err(error)
                if matches!(error.sqlstate().as_deref(), Some("55P03" | "40P01" | "23503" | "23505"))
                    && tries < TRIES =>
            {
                tx.rollback().await?;
                tries += 1;
                watch(Progress::Waiting(error.to_string()));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => {
                tx.rollback().await?;
                return Err(error);
            }
        }
    }
}

async fn compare(session: &mut Session, row: &Row, step: &Step) -> Result<()> {
    let mut tx = session.connection.begin().await?;
    sqlx::raw_sql("SET LOCAL max_parallel_workers_per_gather = 0").execute(&mut *tx).await?;
    let found: Vec<(i32, i64, i64, bool)> =
        sqlx::query_as(AssertSqlSafe(step.sql.join(";"))).persistent(false).fetch_all(&mut *tx).await?;
    tx.commit().await?;
    let plan = row.plan()?;
    let different: Vec<String> = found
        .into_iter()
        .filter(|(_, source, copy, same)| source != copy || !same)
        .map(|(n, source, copy, _)| {
            let part = plan.parts.get(n.max(0) as usize).map_or("?", |part| part.label.as_str());
            format!("{part} has {copy} rows, and {source} belong there")
        })
        .collect();
    if different.is_empty() {
        return Ok(());
    }
    Err(Error::refused(format!("the parts are not what {} is: {}", plan.source_label, different.join("; "))).with_hint(
        format!("did somebody write to them? The table is what it was: ebb partition rollback {}", row.relation),
    ))
}

/// Waits for whoever looks through a view of the tables that is older than what was applied.
async fn outlast(session: &mut Session, row: &Row, sql: &[String], watch: Watch<'_>) -> Result<()> {
    index::outlast(session, sql, watch).await?;
    store::outlasted(&mut session.connection, &row.relation).await
}

/// A short transaction that first applies what is left, once that is little enough. When the parts are put in place nothing
/// may be left, and whoever looks through a view of the tables that is older than what was applied last would miss that.
async fn settled(session: &mut Session, row: &Row, step: &Step, done: After<'_>, watch: Watch<'_>) -> Result<()> {
    let plan = row.plan()?;
    for _ in 0..SETTLES {
        drain(session, row, watch).await?;
        // Also what somebody applied who was killed before the wait was over.
        let applied = store::find(&mut session.connection, &row.relation).await?.is_some_and(|row| row.applied);
        if applied && step.act == Act::Swap {
            outlast(session, row, &plan.outlast, watch).await?;
        }
        match short(session, &[row.relid], &step.sql, watch, done).await {
            Err(error) if error.sqlstate().as_deref() == Some("EB001") => {
                watch(Progress::Waiting(error.to_string()));
            }
            ended => return ended,
        }
    }
    let why = match step.act {
        Act::Swap if plan.twofold => {
            "are noted all the time, because a trigger changes rows again that are being written"
        }
        Act::Swap => "come all the time, and who looks through an older view of the tables would miss the last of them",
        _ => "come faster than they can be applied",
    };
    Err(Error::refused(format!("changes of {} {why}", row.relation))
        .with_hint("run it again when there is less to do; what is done stays done"))
}

/// Before the swap: the triggers go first, then what was made, and nothing is left.
pub(crate) async fn abandon(session: &mut Session, row: &Row, plan: &Plan, watch: Watch<'_>) -> Result<()> {
    let label = &row.relation;
    if row.steps_done() > 0 {
        watch(Progress::Step(1, 2, "stop noting changes".into()));
        let going = After::Split { label, state: "abandoning", step: row.steps_done() };
        short(session, &[row.relid], &plan.undo_triggers, watch, going).await?;
        watch(Progress::Step(2, 2, "let the parts go".into()));
        let mut tx = session.connection.begin().await?;
        sqlx::raw_sql(AssertSqlSafe(plan.undo.join(";\n"))).execute(&mut *tx).await?;
        store::forget(&mut tx, label).await?;
        tx.commit().await?;
        return Ok(());
    }
    store::forget(&mut session.connection, label).await
}

/// After the swap: the old partition, which is empty, becomes a table that rows can go back to.
pub(crate) async fn prepare_rollback(session: &mut Session, row: &Row, plan: &Plan, watch: Watch<'_>) -> Result<()> {
    go_on(session, row, plan, watch).await?;
    let undone = After::Split { label: &row.relation, state: "undone", step: plan.steps.len() };
    short(session, &[row.relid], &plan.restore, watch, undone).await
}

/// The old partition goes: all of its rows are in the parts since the swap.
pub(crate) async fn finish(session: &mut Session, row: &Row, plan: &Plan, watch: Watch<'_>) -> Result<()> {
    if row.state == "split" {
        go_on(session, row, plan, watch).await?;
    }
    short(session, &[row.relid], &over(row, plan), watch, After::SplitOver(&row.relation)).await
}

/// The statements that drop the partition that was split.
pub(super) fn over(row: &Row, plan: &Plan) -> Vec<String> {
    let look = block(&format!(
        "BEGIN IF EXISTS (SELECT FROM pg_inherits WHERE inhrelid = {}) THEN RAISE EXCEPTION '% belongs to a table again', {}; END IF; END",
        row.relid,
        Literal(&plan.source_label)
    ));
    vec![look, format!("DROP TABLE {}", plan.source)]
}
