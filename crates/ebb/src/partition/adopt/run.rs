//! Runs a plan, from wherever it stands. Invariants: a short step waits for its locks no longer than traffic may wait
//! behind it, gives way, and tries again a bounded number of times; after any failure the table is as it was before the
//! step; whoever comes next goes on from there.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::fill::fill_column;
use super::store::{self, Adoption};
use super::{How, Plan, Preflight, Request, Step, policy_of, preflight};
use crate::partition::{split::store as split, store as partitions};
use crate::pg::{Database, catalog};
use crate::policy::{self, Kind, Spec};
use crate::{Error, Result};

/// How long a short step waits for a lock: whoever comes behind it waits as long.
pub(super) const LOCK_WAIT: Duration = Duration::from_millis(60);
/// No statement of a short step takes longer: one that does was not foreseen, and gives way.
const SHORT: Duration = Duration::from_millis(1_500);
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
    sqlx::raw_sql(
        "SET TimeZone = 'UTC'; SET search_path = pg_catalog; SET row_security = off; SET statement_timeout = 0; SET lock_timeout = 0; \
         SET default_transaction_isolation = 'read committed'",
    )
    .execute(&mut connection)
    .await?;
    let pid = sqlx::query_scalar("SELECT pg_backend_pid()").persistent(false).fetch_one(&mut connection).await?;
    Ok(Session { connection, database: database.clone(), pid })
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
    if store::find(&mut session.connection, label).await?.is_none() {
        begin(session, request).await?;
    }
    store::hold(&mut session.connection, label, watch).await?;
    let adoption = store::find(&mut session.connection, label)
        .await?
        .ok_or_else(|| Error::refused(format!("the adoption of {label} was taken back meanwhile")))?;
    let plan = adoption.plan()?;
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
        match step.how {
            How::Cutover => cutover(session, &adoption, &plan, step, by, watch).await?,
            _ => execute(session, &adoption, &plan, step, ("adopting", n + 1), watch).await?,
        }
    }
    prove(session, &plan).await?;
    Ok(Some(adopted(false)))
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
    let Preflight { table: label, findings, plan, .. } = preflight(connection, request).await?;
    let Some(plan) = plan else {
        let all: Vec<String> = findings.refusals.iter().map(|one| format!("{} ({})", one.what, one.fix)).collect();
        return Err(Error::refused(format!("{label} cannot be adopted: {}", all.join("; "))));
    };
    let table = catalog::table(connection, &request.table).await?;
    let name = request.policy_name(&table.relation);
    let spec = plan.spec.as_object().cloned().unwrap_or_default();
    policy_of(&name, &spec)?;
    store::begin(connection, &label, i64::from(table.oid), &name, &plan).await
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
                sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut session.connection).await?;
            }
            store::done(&mut session.connection, label, state, number).await
        }
        How::Index => {
            build_index(session, step, watch).await?;
            store::done(&mut session.connection, label, state, number).await
        }
        How::Backfill => {
            backfill(session, plan, watch).await?;
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
    /// The name is back; the plan knows what is left.
    RollingBack(&'a str, &'a Plan),
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
            After::RollingBack(label, plan) => {
                store::keep_plan(tx, label, plan).await?;
                store::done(tx, label, "rolling back", 0).await
            }
            After::Finished(label, plan) => {
                if let Some(backfill) = &plan.backfill {
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
    let bounds = format!(
        "SET LOCAL lock_timeout = {}; SET LOCAL statement_timeout = {}",
        LOCK_WAIT.as_millis(),
        SHORT.as_millis()
    );
    let all = sql.join(";\n");
    calm(session).await?;
    for attempt in 1.. {
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
            Err(error) if matches!(error.sqlstate().as_deref(), Some("55P03" | "40P01" | "57014")) => {
                tx.rollback().await?;
                let who = partitions::in_the_way(&mut session.connection, tables).await?;
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

pub(crate) async fn build_index(
    session: &mut Session,
    step: &Step,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let Some((schema, name)) = &step.index else { return Ok(()) };
    let relation = crate::pg::Relation::new(schema, name);
    match store::index(&mut session.connection, schema, name).await? {
        Some(true) => return Ok(()),
        // Left behind by a build that was killed.
        Some(false) => {
            let sql = format!("DROP INDEX CONCURRENTLY {relation}");
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session.connection).await?;
        }
        None => {}
    }
    let (database, pid, sql) = (session.database.clone(), session.pid, step.sql.join(";"));
    let build = async { Ok::<_, Error>(sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session.connection).await?) };
    tokio::pin!(build);
    loop {
        tokio::select! {
            built = &mut build => {
                built?;
                return Ok(());
            }
            () = tokio::time::sleep(Duration::from_millis(500)) => {
                let mut tx = database.read().await?;
                if let Some((share, phase)) = store::index_progress(&mut tx, pid).await? {
                    watch(Progress::Share(share, phase));
                }
                tx.commit().await?;
            }
        }
    }
}

async fn backfill(session: &mut Session, plan: &Plan, watch: &mut (dyn FnMut(Progress) + Send)) -> Result<()> {
    let Some(backfill) = &plan.backfill else { return Ok(()) };
    let (table, mut page, began) = (plan.relation(), 0, Instant::now());
    loop {
        let at = Instant::now();
        let mut tx = session.connection.begin().await?;
        let next = backfill.batch(&mut tx, &table, page).await?;
        tx.commit().await?;
        let Some(next) = next else { return Ok(()) };
        page = next;
        watch(Progress::Share(0.0, format!("{page} pages in {:.0} s", began.elapsed().as_secs_f64())));
        tokio::time::sleep(at.elapsed().min(Duration::from_secs(1))).await;
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
