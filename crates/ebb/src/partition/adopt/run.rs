//! Runs a plan, from wherever it stands. Invariants: a short step waits for its locks no longer than traffic may wait
//! behind it, gives way, and tries again a bounded number of times; after any failure the table is as it was before the
//! step; whoever comes next goes on from there.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::fill::fill_column;
use super::store::{self, Adoption};
use super::{How, Plan, Preflight, Request, Step, guard, policy_of, policy_taken, preflight, proof, refuse_policy};
use crate::partition::journal::SETTINGS;
use crate::partition::{index, split::store as split, store as partitions};
use crate::pg::{Database, Relation, catalog};
use crate::policy::{self, Kind, Spec};
use crate::{Error, Result};

/// How long a short step waits for a lock: whoever comes behind it waits as long.
pub(super) const LOCK_WAIT: Duration = Duration::from_millis(60);
/// No statement of a short step takes longer: one that does was not foreseen, and gives way.
const SHORT: Duration = Duration::from_millis(1_500);
/// How long a lock may be held that grows with the number of partitions, unless somebody allows more.
const MAX_LOCK: Duration = Duration::from_millis(200);
/// How often a short step is tried.
pub(super) const TRIES: u32 = 120;
/// How many bounds an adoption goes through before it gives up.
const BOUNDS: u32 = 3;
/// A commit that takes longer says that the disk is busy; how often it is asked before a short step goes on all the same.
const DISK_QUICK: Duration = Duration::from_millis(25);
const DISK_LOOKS: u32 = 50;
/// The rest between tries, at most.
pub(super) const REST: Duration = Duration::from_millis(750);

/// What is being done, for whoever watches.
#[derive(Debug, Clone)]
pub enum Progress {
    /// A step begins: its number, how many there are, what it does.
    Step(usize, usize, String),
    /// How far the step is, from 0 to 1, and in which phase.
    Share(f64, String),
    /// It gave way and tries again: who was in the way.
    Waiting(String),
}

/// What became of it.
#[derive(Debug, Clone)]
pub struct Adopted {
    /// The table.
    pub table: String,
    /// The policy that looks after it now.
    pub policy: String,
    /// Its keys, for ebb.toml.
    pub spec: Spec,
    /// Where the first partition ends.
    pub bound: String,
    /// Whether it was adopted already.
    pub already: bool,
}

/// A session of its own, past any pooler.
pub(crate) struct Session {
    pub(crate) connection: PgConnection,
    pub(crate) database: Database,
    pub(crate) pid: i32,
}

/// Opens the session that works on a table.
pub(crate) async fn prepare_session(database: &Database) -> Result<Session> {
    if !database.has_sessions().await? {
        return Err(Error::refused(
            "this connection goes through a transaction pooler, and CONCURRENTLY needs a session",
        )
        .with_hint("set direct_url in [database] to the server itself"));
    }
    let mut connection = database.session("ebb/adopt").await?;
    sqlx::raw_sql(SETTINGS).execute(&mut connection).await?;
    let pid = sqlx::query_scalar("SELECT pg_backend_pid()").persistent(false).fetch_one(&mut connection).await?;
    Ok(Session { connection, database: database.clone(), pid })
}

/// Where very many partitions change places in one transaction, the lock that others wait for is held no longer than this.
pub(crate) async fn hold_no_longer(session: &mut Session, max_lock: Option<Duration>) -> Result<()> {
    let most = max_lock.unwrap_or(MAX_LOCK).as_millis().min(3_600_000);
    sqlx::raw_sql(AssertSqlSafe(format!("SET ebb.max_lock = {most}"))).execute(&mut session.connection).await?;
    Ok(())
}

/// Adopts a table, or goes on with it.
pub async fn adopt(
    database: &Database,
    request: &Request,
    by: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<Adopted> {
    let mut session = prepare_session(database).await?;
    let label = catalog::table(&mut session.connection, &request.table).await?.relation.label();
    // A bound that has come near is left for a later one; that is a month away, or a day.
    for _ in 0..BOUNDS {
        match try_adopt(&mut session, request, &label, by, watch).await? {
            Some(adopted) => return Ok(adopted),
            None => watch(Progress::Waiting(
                "the first partition would end too soon: beginning again with a later end".into(),
            )),
        }
    }
    Err(Error::refused(format!("{label} takes longer to adopt than its periods last"))
        .with_hint("choose longer ones: --by month"))
}

/// Goes through the plan; none when its bound came too near and everything was taken back.
async fn try_adopt(
    session: &mut Session,
    request: &Request,
    label: &str,
    by: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<Option<Adopted>> {
    // What somebody else begins meanwhile looks like an obstacle, and is what is wanted.
    if store::find(&mut session.connection, label).await?.is_none()
        && let Err(error) = begin(session, request).await
        && store::find(&mut session.connection, label).await?.is_none()
    {
        return Err(error);
    }
    store::hold(&mut session.connection, label, watch).await?;
    let adoption = store::find(&mut session.connection, label)
        .await?
        .ok_or_else(|| Error::refused(format!("the adoption of {label} was taken back meanwhile")))?;
    let plan = adoption.plan()?;
    refuse_other(session, request, &adoption, &plan).await?;
    let spec = plan.spec.as_object().cloned().unwrap_or_default();
    let adopted = |already| Adopted {
        table: label.to_owned(),
        policy: adoption.policy.clone(),
        spec: spec.clone(),
        bound: plan.bound.clone(),
        already,
    };
    match adoption.state.as_str() {
        "adopting" => {}
        "adopted" => {
            prove(session, &plan).await?;
            crate::partition::rollback::give_up(session, &adoption, &plan, watch).await?;
            return Ok(Some(adopted(true)));
        }
        other => {
            return Err(Error::refused(format!("{label} is {other}")).with_hint(format!(
                "end that first: ebb partition rollback {label}, then ebb partition finish {label}"
            )));
        }
    }
    for (n, step) in plan.steps.iter().enumerate().skip(adoption.step.max(0) as usize) {
        watch(Progress::Step(n + 1, plan.steps.len(), step.title.clone()));
        if store::bound_is_near(&mut session.connection, &plan).await? {
            let adoption = Adoption { step: n as i32, ..adoption };
            crate::partition::rollback::abandon(session, &adoption, &plan, watch).await?;
            return Ok(None);
        }
        let done = async {
            store::require_portrait(&mut session.connection, &adoption, &plan.column).await?;
            match step.how {
                How::Cutover => cutover(session, &adoption, &plan, step, by, watch).await,
                _ => execute(session, &adoption, &plan, step, ("adopting", n + 1), watch).await,
            }
        };
        done.await.map_err(|error| changed(error, label))?;
    }
    prove(session, &plan).await?;
    Ok(Some(adopted(false)))
}

/// An adoption that was begun, or is over, is not another one.
async fn refuse_other(session: &mut Session, request: &Request, adoption: &Adoption, plan: &Plan) -> Result<()> {
    let table = catalog::table(&mut session.connection, &request.table).await?;
    let column = catalog::column(&mut session.connection, &table.relation, table.oid, &request.column).await?;
    if adoption.state == "adopting" && i64::from(table.oid) != adoption.relid {
        return Err(Error::refused(format!(
            "{} is not the table whose adoption was begun: it was made anew",
            adoption.relation
        ))
        .with_hint(format!("forget that one first: ebb partition rollback {}", adoption.relation)));
    }
    let Some(differences) = request.differs(adoption, plan, column.name.as_str()) else { return Ok(()) };
    let label = &adoption.relation;
    let (stands, hint) = match adoption.state.as_str() {
        "adopting" => (
            "was begun otherwise",
            format!("go on with the options it was begun with, or take it back first: ebb partition rollback {label}"),
        ),
        _ => (
            "was another",
            format!(
                "its policy changes in ebb.toml; for another column or guard take it back first: ebb partition rollback {label}"
            ),
        ),
    };
    Err(Error::usage(format!("the adoption of {label} {stands}: {differences}")).with_hint(hint))
}

/// Somebody changed the table on the way: the plan does not know what to do with that.
fn changed(error: Error, label: &str) -> Error {
    match error.sqlstate().as_deref() {
        Some("EB002") => Error::refused(error.to_string())
            .with_hint(format!("take back what was prepared, then adopt it again: ebb partition rollback {label}")),
        _ => error,
    }
}

/// What could not be proven before the cutover; whoever comes later does it again, and it costs nothing by then.
pub(crate) async fn prove(session: &mut Session, plan: &Plan) -> Result<()> {
    for moved in &plan.referrers {
        sqlx::raw_sql(AssertSqlSafe(moved.proof())).execute(&mut session.connection).await?;
    }
    Ok(())
}

/// Looks once more, and writes the plan down.
async fn begin(session: &mut Session, request: &Request) -> Result<()> {
    let connection = &mut session.connection;
    // Before anything is read for the plan: what changes from here on is noticed.
    let table = catalog::table(connection, &request.table).await?;
    let column = catalog::column(connection, &table.relation, table.oid, &request.column).await?;
    let portrait = store::portrait(connection, i64::from(table.oid), column.name.as_str()).await?;
    let Preflight { table: label, findings, plan, policy: name, .. } = preflight(connection, request).await?;
    let Some(plan) = plan else {
        let all: Vec<String> = findings.refusals.iter().map(|one| format!("{} ({})", one.what, one.fix)).collect();
        return Err(Error::refused(format!("{label} cannot be adopted: {}", all.join("; "))));
    };
    let spec = plan.spec.as_object().cloned().unwrap_or_default();
    policy_of(&name, &spec)?;
    store::begin(connection, &label, i64::from(table.oid), &name, &plan, &portrait).await
}

/// One step of a plan; what is left of an earlier try goes first.
pub(crate) async fn execute(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    step: &Step,
    (state, number): (&str, usize),
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let label = &adoption.relation;
    match step.how {
        How::Short | How::Cutover => {
            let tables = [adoption.relid];
            short(session, &tables, &step.sql, watch, After::Done(label, state, number)).await
        }
        How::Long => {
            for statement in &step.sql {
                match &step.reads {
                    Some(((schema, name), check)) => {
                        proof::prove(session, (&Relation::new(schema, name), *check), statement, watch).await?
                    }
                    None => {
                        sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut session.connection).await?;
                    }
                }
            }
            store::done(&mut session.connection, label, state, number).await
        }
        How::Index => {
            build_index(session, step, watch).await?;
            store::done(&mut session.connection, label, state, number).await
        }
        How::Each => {
            for (n, statement) in step.sql.iter().enumerate() {
                let one = std::slice::from_ref(statement);
                short(session, &[adoption.relid], one, watch, After::Nothing).await?;
                watch(Progress::Share(
                    (n + 1) as f64 / step.sql.len() as f64,
                    format!("{} of {}", n + 1, step.sql.len()),
                ));
            }
            store::done(&mut session.connection, label, state, number).await
        }
        How::Backfill => {
            for backfill in plan.backfills() {
                guard::seed(session, backfill, &plan.relation(), watch).await?;
            }
            store::done(&mut session.connection, label, state, number).await
        }
        How::Fill => {
            if let Some(fill) = &step.fill {
                fill_column(session, fill, watch).await?;
            }
            store::done(&mut session.connection, label, state, number).await
        }
    }
}

/// What a short transaction writes down, together with what it does.
#[derive(Clone, Copy)]
pub(crate) enum After<'a> {
    Nothing,
    /// A step is done: table, state, number.
    Done(&'a str, &'a str, usize),
    /// The table is adopted, and its policy looks after it.
    Adopted {
        label: &'a str,
        policy: &'a str,
        spec: &'a Spec,
        by: &'a str,
    },
    /// The name is back; the plan knows what is left, and the policy has nothing to look after.
    RollingBack {
        label: &'a str,
        plan: &'a Plan,
        policy: &'a str,
        by: &'a str,
    },
    /// Nothing is left.
    Finished(&'a str, &'a Plan),
    /// A split has come so far.
    Split {
        label: &'a str,
        state: &'a str,
        step: usize,
    },
    /// Nothing is left of a split.
    SplitOver(&'a str),
}

impl After<'_> {
    pub(crate) async fn write(&self, tx: &mut PgConnection) -> Result<()> {
        match self {
            After::Nothing => Ok(()),
            After::Done(label, state, number) => store::done(tx, label, state, *number).await,
            After::Adopted { label, policy, spec, by } => {
                policy::store::lock(tx).await?;
                if let Some(whose) = policy_taken(tx, policy, label).await? {
                    return Err(refuse_policy(policy, &whose));
                }
                let put = policy::store::Put {
                    kind: Kind::Partition,
                    name: policy,
                    spec,
                    enabled: true,
                    stopped: None,
                    source: policy::store::Source::File,
                    by,
                };
                policy::store::put(tx, put).await?;
                store::done(tx, label, "adopted", 0).await
            }
            After::RollingBack { label, plan, policy, by } => {
                // From the moment on at which there is nothing to look after, and not before.
                policy::store::lock(tx).await?;
                let all = policy::store::all(tx).await?;
                let mine = |one: &policy::Stored| one.kind == Kind::Partition && one.name == *policy && one.is_active();
                if let Some(stored) = all.into_iter().find(mine) {
                    let put = policy::store::Put {
                        kind: stored.kind,
                        name: &stored.name,
                        spec: &stored.spec,
                        enabled: false,
                        stopped: None,
                        source: policy::store::Source::File,
                        by,
                    };
                    policy::store::put(tx, put).await?;
                }
                store::keep_plan(tx, label, plan).await?;
                store::done(tx, label, "rolling back", 0).await
            }
            After::Finished(label, plan) => {
                for backfill in plan.backfills() {
                    store::forget_guard(tx, &backfill.namespace).await?;
                }
                split::forget(tx, label).await?;
                store::forget(tx, label).await
            }
            After::Split { label, state, step } => split::done(tx, label, state, *step).await,
            After::SplitOver(label) => split::forget(tx, label).await,
        }
    }
}

/// Waits a while for a disk that answers quickly. Locks are held until the commit is on it, so whoever waits for them
/// waits for the disk too; and what comes before a short step, an index or a copy, leaves it much to do.
async fn calm(session: &mut Session) -> Result<()> {
    let mut quick = 0;
    for _ in 0..DISK_LOOKS {
        let at = Instant::now();
        let commit = sqlx::raw_sql("SELECT pg_logical_emit_message(true, 'ebb', 'is the disk calm?')");
        commit.execute(&mut session.connection).await?;
        quick = if at.elapsed() < DISK_QUICK { quick + 1 } else { 0 };
        match quick {
            0 => tokio::time::sleep(REST.min(Duration::from_millis(100))).await,
            3.. => break,
            _ => {}
        }
    }
    Ok(())
}

/// A short transaction: all of it with what is written down about it, or nothing and another try.
pub(crate) async fn short(
    session: &mut Session,
    tables: &[i64],
    sql: &[String],
    watch: &mut (dyn FnMut(Progress) + Send),
    after: After<'_>,
) -> Result<()> {
    short_after(session, tables, (&[], sql), watch, after).await
}

/// The same with statements that come before every try, in a transaction of their own and while nobody waits.
pub(crate) async fn short_after(
    session: &mut Session,
    tables: &[i64],
    (before, sql): (&[String], &[String]),
    watch: &mut (dyn FnMut(Progress) + Send),
    after: After<'_>,
) -> Result<()> {
    let bounds = format!(
        "SET LOCAL lock_timeout = {}; SET LOCAL statement_timeout = {}",
        LOCK_WAIT.as_millis(),
        SHORT.as_millis()
    );
    let (before, all) = (before.join(";\n"), sql.join(";\n"));
    calm(session).await?;
    for attempt in 1.. {
        if !before.is_empty() {
            let mut tx = session.connection.begin().await?;
            sqlx::raw_sql(AssertSqlSafe(before.clone())).execute(&mut *tx).await?;
            tx.commit().await?;
        }
        let mut tx = session.connection.begin().await?;
        let tried = async {
            sqlx::raw_sql(AssertSqlSafe(bounds.clone())).execute(&mut *tx).await?;
            // First what is written down, while nobody waits; then the table, in one round trip.
            after.write(&mut tx).await?;
            sqlx::raw_sql(AssertSqlSafe(all.clone())).execute(&mut *tx).await?;
            Ok::<_, Error>(())
        }
        .await;
        match tried {
            Ok(()) => {
                tx.commit().await?;
                return Ok(());
            }
            // The last was no lock: the server's own words say what was in the way.
            Err(error) if matches!(error.sqlstate().as_deref(), Some("55P03" | "40P01" | "57014" | "EB006")) => {
                tx.rollback().await?;
                let who = match error.sqlstate().as_deref() {
                    Some("EB006") => None,
                    _ => partitions::in_the_way(&mut session.connection, tables).await?,
                };
                let who = who.unwrap_or_else(|| error.to_string());
                if attempt >= TRIES {
                    return Err(Error::refused(format!("gave way {TRIES} times and got no lock: {who}"))
                        .with_hint("run it again when that transaction is over; what is done stays done"));
                }
                watch(Progress::Waiting(who));
                tokio::time::sleep(REST.min(Duration::from_millis(50 * u64::from(attempt)))).await;
            }
            Err(error) => {
                tx.rollback().await?;
                return Err(error);
            }
        }
    }
    Ok(())
}

/// The index of a step.
pub(crate) async fn build_index(
    session: &mut Session,
    step: &Step,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    match &step.index {
        Some((schema, name)) => index::build(session, &Relation::new(schema, name), step.sql.join(";"), watch).await,
        None => Ok(()),
    }
}

/// The last step, with the policy that looks after the table from then on.
async fn cutover(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    step: &Step,
    by: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let spec = plan.spec.as_object().cloned().unwrap_or_default();
    let (label, name) = (&adoption.relation, adoption.policy.as_str());
    let after = After::Adopted { label, policy: name, spec: &spec, by };
    short(session, &[adoption.relid], &step.sql, watch, after).await
}
