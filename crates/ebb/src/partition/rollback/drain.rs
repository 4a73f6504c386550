//! Rows of the former partitions move into the table, a little at a time. Invariants: a row is seen once at every moment; a
//! writer waits for a batch, not for the drain; nobody takes a row that moves for one that comes or goes.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{attached, moving_triggers, plain_columns, references, told, unique};
use crate::partition::adopt::moved::Moved;
use crate::partition::adopt::store::Adoption;
use crate::partition::adopt::{After, Plan, Progress, Session, prove, short};
use crate::partition::{index, store as partitions};
use crate::pg::{Literal, Relation, block};
use crate::{Error, Result};

/// How long a batch should take: writers to its partition wait for it.
const BATCH_FOR: Duration = Duration::from_millis(40);
const LOCK_WAIT: Duration = Duration::from_millis(60);
/// How often a batch gives way before the drain stops.
const TRIES: u32 = 200;

/// Rows that move back must not set off triggers a second time.
pub(super) async fn refuse_triggers(connection: &mut PgConnection, parent: i64, plan: &Plan) -> Result<()> {
    let triggers = moving_triggers(connection, parent).await?;
    if (triggers == 0 && plan.referrers.is_empty()) || partitions::may_be_quiet(connection).await? {
        return Ok(());
    }
    Err(not_quiet())
}

fn not_quiet() -> Error {
    Error::refused("rows that move back would set off triggers, also those that stand in for foreign keys").with_hint(
        "run it as a superuser, or from 15 on: GRANT SET ON PARAMETER session_replication_role TO CURRENT_USER",
    )
}

/// What hears of rows that move back whatever this session does, in words.
pub(super) async fn loud(connection: &mut PgConnection, parent: i64) -> Result<Option<String>> {
    let told = told(connection, parent).await?;
    Ok((!told.is_empty()).then(|| told.join("; ")))
}

/// Refuses that where there are rows that would have to move.
pub(super) async fn refuse_loud(connection: &mut PgConnection, parent: i64, old: i64) -> Result<()> {
    let Some(loud) = loud(connection, parent).await? else { return Ok(()) };
    for (_, schema, name) in attached(connection, parent).await?.into_iter().filter(|(oid, ..)| *oid != old) {
        let partition = Relation::new(schema, name);
        let sql = format!("SELECT EXISTS (SELECT FROM ONLY {partition})");
        if sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *connection).await? {
            return Err(Error::refused(format!("{} has rows that must move back: {loud}", partition.label())).with_hint(
                "for a trigger: ALTER TABLE … ENABLE TRIGGER … until the rollback is over; for row-level security: ALTER TABLE … NO FORCE \
                 ROW LEVEL SECURITY until then; for a publication: take the table out of it, \
                 roll back, add it again, and refresh subscriptions with copy_data = false (what is written meanwhile they do not get)",
            ));
        }
    }
    Ok(())
}

/// What a foreign key of the table refers to.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct Reference {
    relation: String,
    same: String,
    may: bool,
}

/// How rows move so that nobody hears of it, and that what they refer to stays.
pub(super) struct Quietly {
    /// Said before, or nothing.
    pub(super) silence: Option<&'static str>,
    /// What is held while they move, because a silent session does not ask for it.
    held: Vec<Reference>,
}

/// A role that may not hold what the rows refer to moves them so that the server does, where nothing else would be set off.
pub(super) async fn quietly(connection: &mut PgConnection, plan: &Plan, relid: i64) -> Result<Quietly> {
    let mut held = references(connection, relid).await?;
    let mut silent = partitions::may_be_quiet(connection).await?;
    if silent && held.iter().any(|one| !one.may) && plan.referrers.is_empty() {
        silent = moving_triggers(connection, relid).await? > 0;
    }
    held.retain(|one| silent && one.may);
    Ok(Quietly { silence: silent.then_some("SET LOCAL session_replication_role = replica"), held })
}

impl Quietly {
    /// Moves rows of a child, all in one statement. Whoever deletes a row that they refer to asks the tables one after the
    /// other, and must find them in one of them: so either that waits for this, or this for that.
    pub(super) fn moves(&self, (child, rows): (&Relation, &str), table: &Relation, columns: &str) -> String {
        let held = self.held.iter().enumerate().map(|(n, Reference { relation, same, .. })| {
            format!(
                ", held{n} AS (SELECT FROM {relation} r WHERE EXISTS (SELECT FROM moved m WHERE {same}) FOR KEY SHARE OF r)"
            )
        });
        let counts: Vec<String> =
            (0..self.held.len()).map(|n| format!("(SELECT count(*) FROM held{n}) >= 0")).collect();
        let after = if counts.is_empty() { String::new() } else { format!(" WHERE {}", counts.join(" AND ")) };
        format!(
            "WITH moved AS (DELETE FROM ONLY {child}{rows} RETURNING *){} \
             INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM moved{after}",
            held.collect::<String>()
        )
    }
}

/// Moves the rows of the former partitions into the table, a little at a time.
pub(super) async fn drain(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<u64> {
    let (table, label) = (plan.relation(), adoption.relation.clone());
    // What stands in for a foreign key would take a row that moves for one that goes.
    if !plan.referrers.is_empty() && !partitions::may_be_quiet(&mut session.connection).await? {
        return Err(not_quiet());
    }
    let children = attached(&mut session.connection, adoption.relid).await?;
    let (mut moved, of) = (0, children.len());
    for (n, (oid, schema, name)) in children.iter().enumerate() {
        let child = Relation::new(schema, name);
        watch(Progress::Step(n + 1, of, format!("move the rows of {} back", child.label())));
        let quietly = quietly(&mut session.connection, plan, adoption.relid).await?;
        moved += empty(session, (&table, adoption.relid), (&child, *oid), &quietly, watch).await?;
    }
    // Who has an older view of the tables does not see the rows where they are now, but where they were: the children stay
    // in sight until the last of those has ended.
    if !children.is_empty() {
        watch(Progress::Step(of, of, "wait for who still sees the rows where they were".into()));
        index::outlast(session, &index::outlast_sql(&plan.scratch(adoption.relid)), watch).await?;
    }
    for (oid, schema, name) in children {
        let child = Relation::new(schema, name);
        let mut sql = vec![still_empty(&child), format!("ALTER TABLE {child} NO INHERIT {table}")];
        sql.extend(plan.referrers.iter().map(|moved| moved.keep_no_more(&child)));
        sql.extend(unique::no_triggers(plan, &child));
        short(session, &[oid, adoption.relid], &sql, watch, After::Nothing).await?;
    }
    if !plan.referrers.is_empty() {
        let sql: Vec<String> = plan.referrers.iter().flat_map(Moved::restore).collect();
        short(session, &[adoption.relid], &sql, watch, After::Nothing).await?;
        prove(session, plan).await?;
    }
    let mut sql = unique::no_triggers(plan, &table);
    sql.extend(unique::no_functions(plan, adoption.relid));
    short(session, &[adoption.relid], &sql, watch, After::Done(&label, "rolled back", 0)).await?;
    Ok(moved)
}

/// Whoever writes to a former partition by its own name must not leave a row behind there.
pub(super) fn still_empty(child: &Relation) -> String {
    block(&format!(
        "BEGIN LOCK TABLE ONLY {child} IN ACCESS EXCLUSIVE MODE; IF EXISTS (SELECT FROM ONLY {child}) THEN \
         RAISE EXCEPTION '% has rows again: run the rollback again', {}; END IF; END",
        Literal(&child.label())
    ))
}

/// Functions in people's checks, indexes and generated columns find others as they do for everybody.
pub(super) fn user_path(table: &Relation) -> String {
    format!("SET LOCAL search_path = pg_catalog, {}, public", table.schema)
}

/// Batch after batch until a child is empty. Writers to it, and who locks rows of it, wait for a batch, not for the drain: one
/// who waited for a row instead would find it gone, and not where it is.
async fn empty(
    session: &mut Session,
    (table, relid): (&Relation, i64),
    (child, oid): (&Relation, i64),
    quietly: &Quietly,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<u64> {
    let (mut size, mut moved, mut tries) = (500_u64, 0, 0);
    let count = format!("SELECT count(*) FROM ONLY {child}");
    let total: i64 =
        sqlx::query_scalar(AssertSqlSafe(count)).persistent(false).fetch_one(&mut session.connection).await?;
    let (silence, path) = (quietly.silence.map_or(String::new(), |silence| format!("{silence}; ")), user_path(table));
    loop {
        let began = Instant::now();
        let mut tx = session.connection.begin().await?;
        let sql = format!(
            "SET LOCAL lock_timeout = {}; {silence}{path}; LOCK TABLE ONLY {child} IN EXCLUSIVE MODE",
            LOCK_WAIT.as_millis()
        );
        let tried = async {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await?;
            // Under the lock: a column can have come since the last batch.
            let columns = plain_columns(&mut tx, relid).await?;
            let rows = format!(" WHERE ctid = ANY (ARRAY(SELECT ctid FROM ONLY {child} LIMIT {size}))");
            let batch = quietly.moves((child, &rows), table, &columns);
            Ok::<_, Error>(sqlx::raw_sql(AssertSqlSafe(batch)).execute(&mut *tx).await?.rows_affected())
        };
        match tried.await {
            Ok(rows) => {
                tx.commit().await?;
                (moved, tries) = (moved + rows, 0);
                if rows == 0 {
                    return Ok(moved);
                }
                let total = moved.max(total.max(0) as u64);
                watch(Progress::Share(moved as f64 / total as f64, format!("{moved} of {total} rows moved")));
                let took = began.elapsed();
                let fitting = BATCH_FOR.as_secs_f64() / took.as_secs_f64().max(0.001);
                size = ((size as f64 * fitting.clamp(0.5, 1.5)) as u64).clamp(50, 20_000);
                tokio::time::sleep(took).await;
            }
            Err(error) if matches!(error.sqlstate().as_deref(), Some("55P03" | "40P01")) && tries < TRIES => {
                tx.rollback().await?;
                tries += 1;
                let who = partitions::in_the_way(&mut session.connection, &[oid]).await?;
                watch(Progress::Waiting(who.unwrap_or_else(|| error.to_string())));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => {
                tx.rollback().await?;
                return Err(match error.sqlstate().as_deref() {
                    Some("23505") => error.with_hint(format!(
                        "its key is in {0} and in {1}: delete one of them and run the rollback again; nothing is lost meanwhile",
                        table.label(),
                        child.label()
                    )),
                    _ => error,
                });
            }
        }
    }
}
