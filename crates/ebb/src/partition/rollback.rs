//! The way back. Before the cutover everything that was prepared goes; after it the old table gets its name and
//! everything else back in one short transaction, and the partitions that have rows become its children, so that every
//! row stays visible once, until they are drained into it. Invariants: nothing is lost and nothing is seen twice; a
//! writer to a child waits for a batch and then finds its row where it is, so no update is lost either.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::adopt::moved::Moved;
use super::adopt::store::{self, Adoption};
use super::adopt::{After, Plan, Progress, Session, execute, prepare_session, prove, short};
use super::{split, store as partitions};
use crate::pg::{Database, Ident, Literal, Relation, catalog};
use crate::policy::{self, Kind};
use crate::{Error, Result, sql};

/// How long a batch of the drain should take: writers to its partition wait for it.
const BATCH_FOR: Duration = Duration::from_millis(40);
const LOCK_WAIT: Duration = Duration::from_millis(60);
/// How often a batch gives way before the drain stops.
const TRIES: u32 = 200;
const TWIN: &str = "a_ebb_twin";

/// What a rollback came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolledBack {
    /// It was before the cutover: nothing is left.
    Abandoned,
    /// The table is what it was; so many rows were moved back into it.
    Back(u64),
    /// A split was under way: it is taken back, and the table is adopted as before.
    Unsplit,
}

/// Takes an adoption back, or goes on with it.
pub async fn rollback(
    database: &Database,
    typed: &str,
    by: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<RolledBack> {
    let mut session = prepare_session(database).await?;
    if let Some(row) = held_split(&mut session, typed, &["splitting", "abandoning"], watch).await? {
        split::abandon(&mut session, &row, &row.plan()?, watch).await?;
        return Ok(RolledBack::Unsplit);
    }
    let (adoption, _) = find(&mut session.connection, typed).await?;
    store::hold(&mut session.connection, &adoption.relation, watch).await?;
    // Whoever held it until now may have come further.
    let (adoption, mut plan) = find(&mut session.connection, typed).await?;
    match adoption.state.as_str() {
        "adopting" => return abandon(&mut session, &adoption, &plan, watch).await,
        "adopted" => back(&mut session, &adoption, &mut plan, by, watch).await?,
        _ => {}
    }
    let moved = drain(&mut session, &adoption, &plan, watch).await?;
    Ok(RolledBack::Back(moved))
}

/// The split of the table that was typed, where it is in one of these states, held by this session.
async fn held_split(
    session: &mut Session,
    typed: &str,
    states: &[&str],
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<Option<split::store::Row>> {
    let label = catalog::table(&mut session.connection, typed).await?.relation.label();
    let found = split::store::find(&mut session.connection, &label).await?;
    if !found.is_some_and(|row| states.contains(&row.state.as_str())) {
        return Ok(None);
    }
    split::store::hold(&mut session.connection, &label, watch).await?;
    // Whoever held it until now may have come further.
    let row = split::store::find(&mut session.connection, &label).await?;
    match row {
        Some(row) if !states.contains(&row.state.as_str()) => {
            Err(Error::refused(format!("the split of {label} has come further meanwhile")).with_hint("run it again"))
        }
        row => Ok(row),
    }
}

/// The adoption of the table that was typed, by whichever of its names.
pub(crate) async fn find(connection: &mut PgConnection, typed: &str) -> Result<(Adoption, Plan)> {
    let table = catalog::table(connection, typed).await?;
    let label = table.relation.label();
    let adoption = store::find(connection, &label).await?.ok_or_else(|| {
        Error::usage(format!("{label} was not adopted, or its adoption is finished"))
            .with_hint("what was never adopted, or was finished, cannot be rolled back")
    })?;
    let plan = adoption.plan()?;
    Ok((adoption, plan))
}

/// Before the cutover: the keys as they were, then everything that was prepared goes.
pub(crate) async fn abandon(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<RolledBack> {
    let swapped = plan.swap.is_some_and(|swap| adoption.step.max(0) as usize > swap);
    let mut sql: Vec<String> = plan.referrers.iter().flat_map(Moved::release).collect();
    if swapped {
        for step in &plan.abandon_indexes {
            watch(Progress::Step(1, 2, step.title.clone()));
            let at = ("adopting", adoption.step.max(0) as usize);
            execute(session, adoption, plan, step, at, watch).await?;
        }
        sql.extend(plan.abandon_keys.iter().cloned());
    }
    sql.extend(plan.abandon.iter().cloned());
    sql.extend(plan.referrers.iter().flat_map(Moved::restore));
    watch(Progress::Step(2, 2, "take back what was prepared".into()));
    let label = &adoption.relation;
    short(session, &[adoption.relid], &sql, watch, After::Done(label, "adopting", 0)).await?;
    prove(session, plan).await?;
    let built = plan.steps.iter().chain(&plan.abandon_indexes).filter_map(|step| step.index.as_ref());
    for (schema, name) in built {
        let relation = Relation::new(schema, name);
        let sql = format!("DROP INDEX CONCURRENTLY IF EXISTS {relation}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session.connection).await?;
    }
    forget_guard(&mut session.connection, plan).await?;
    store::forget(&mut session.connection, label).await?;
    Ok(RolledBack::Abandoned)
}

async fn forget_guard(connection: &mut PgConnection, plan: &Plan) -> Result<()> {
    match &plan.backfill {
        Some(backfill) => store::forget_guard(connection, &backfill.namespace).await,
        None => Ok(()),
    }
}

/// After the cutover: keys first, then the names in one short transaction.
async fn back(
    session: &mut Session,
    adoption: &Adoption,
    plan: &mut Plan,
    by: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let (table, of) = (plan.relation(), plan.back_indexes.len() + 2);
    refuse_twins(&mut session.connection, plan).await?;
    refuse_triggers(&mut session.connection, adoption.relid, plan).await?;
    disable(&mut session.connection, &adoption.policy, by).await?;
    if let Some(row) = held_split(session, &table.label(), &["split"], watch).await? {
        split::prepare_rollback(session, &row, &row.plan()?, watch).await?;
    }
    let was_split = split::store::find(&mut session.connection, &adoption.relation).await?.is_some();
    for (n, step) in plan.back_indexes.clone().iter().enumerate() {
        watch(Progress::Step(n + 1, of, step.title.clone()));
        execute(session, adoption, plan, step, ("adopted", 0), watch).await?;
    }
    watch(Progress::Step(of - 1, of, "move the name back".into()));
    let parent = catalog::table(&mut session.connection, &table.label()).await?.oid;
    let attached: Vec<(i64, String, String)> =
        sql!("attached" as (i64, String, String)).bind(i64::from(parent)).fetch_all(&mut session.connection).await?;
    if !was_split && !attached.iter().any(|(oid, ..)| *oid == adoption.relid) {
        return Err(Error::refused(format!(
            "{} is no longer a partition of {}",
            plan.history().label(),
            table.label()
        ))
        .with_hint("the way back leads through it; if it was dropped, there is none: ebb partition finish"));
    }
    let others: Vec<&(i64, String, String)> = attached.iter().filter(|(oid, ..)| *oid != adoption.relid).collect();
    let known = attached.iter().map(|(oid, ..)| oid.to_string()).collect::<Vec<_>>().join(", ");
    let mut sql = vec![format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")];
    sql.extend(plan.referrers.iter().map(Moved::let_go));
    sql.push(leave(parent, adoption.relid, &known));
    sql.extend(plan.back.iter().cloned());
    sql.extend(plan.referrers.iter().flat_map(Moved::stand_in));
    sql.extend(others.iter().map(|(oid, schema, name)| {
        let partition = Relation::new(schema, name);
        let keep: String = plan.referrers.iter().map(|moved| moved.keep_on(&partition) + "; ").collect();
        format!(
            "DO $ebb$ BEGIN IF NOT (SELECT relispartition FROM pg_class WHERE oid = {oid}) THEN ALTER TABLE {partition} INHERIT {table}; \
             {keep}END IF; END $ebb$"
        )
    }));
    sql.extend(twins(plan));
    plan.leftovers = others.iter().map(|(_, schema, name)| (schema.clone(), name.clone())).collect();
    let tables = [adoption.relid, i64::from(parent)];
    short(session, &tables, &sql, watch, After::RollingBack(&adoption.relation, plan)).await
}

/// The old table leaves, and the partitions that have rows; the empty ones stay with the table that hides again, because
/// each that leaves takes its milliseconds under the lock. One that came meanwhile would be hidden without being known.
fn leave(parent: u32, old: i64, known: &str) -> String {
    format!(
        "DO $ebb$ DECLARE one oid; has_rows boolean; BEGIN \
         FOR one IN SELECT inhrelid FROM pg_inherits WHERE inhparent = {parent} LOOP \
         IF one <> ALL (ARRAY[{known}]::oid[]) THEN RAISE EXCEPTION 'a partition was added meanwhile; run the rollback again'; END IF; \
         EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s)', one::regclass) INTO has_rows; \
         IF has_rows OR one = {old} THEN \
         EXECUTE format('ALTER TABLE %s DETACH PARTITION %s', '{parent}'::regclass, one::regclass); END IF; \
         END LOOP; END $ebb$"
    )
}

/// The triggers that stand in for the unique keys while rows are outside of their index.
fn twins(plan: &Plan) -> Vec<String> {
    let keys = plan.back_keys.iter().enumerate().map(|(n, key)| {
        let arguments: Vec<String> = key.iter().map(|column| Literal(column).to_string()).collect();
        let columns: Vec<String> = key.iter().map(|column| Ident::new(column).to_string()).collect();
        format!(
            "CREATE TRIGGER {TWIN}{n} BEFORE INSERT OR UPDATE OF {} ON {} FOR EACH ROW EXECUTE FUNCTION ebb.no_twin({})",
            columns.join(", "),
            plan.relation(),
            arguments.join(", ")
        )
    });
    keys.collect()
}

/// A key that exists twice by now cannot be unique again: says which.
async fn refuse_twins(connection: &mut PgConnection, plan: &Plan) -> Result<()> {
    for key in &plan.back_keys {
        let columns: Vec<String> = key.iter().map(|column| Ident::new(column).to_string()).collect();
        let (list, table) = (columns.join(", "), plan.relation());
        let known: Vec<String> = columns.iter().map(|column| format!("{column} IS NOT NULL")).collect();
        let sql = format!(
            "SELECT ROW({list})::text FROM {table} WHERE {} GROUP BY {list} HAVING count(*) > 1 LIMIT 20",
            known.join(" AND ")
        );
        let twice: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_all(&mut *connection).await?;
        if !twice.is_empty() {
            return Err(Error::refused(format!(
                "({list}) must be unique again, and these are there twice: {}",
                twice.join(", ")
            ))
            .with_hint(format!("delete one of each, for example: SELECT * FROM {table} WHERE ({list}) = …")));
        }
    }
    Ok(())
}

/// Rows that move back must not set off triggers a second time.
async fn refuse_triggers(connection: &mut PgConnection, relid: i64, plan: &Plan) -> Result<()> {
    let triggers: i64 = sql!("insert_triggers" scalar i64).bind(relid).fetch_one(&mut *connection).await?;
    if (triggers == 0 && plan.referrers.is_empty()) || partitions::may_be_quiet(connection).await? {
        return Ok(());
    }
    Err(loud())
}

fn loud() -> Error {
    Error::refused("rows that move back would set off triggers, also those that stand in for foreign keys").with_hint(
        "run it as a superuser, or from 15 on: GRANT SET ON PARAMETER session_replication_role TO CURRENT_USER",
    )
}

async fn disable(connection: &mut PgConnection, name: &str, by: &str) -> Result<()> {
    let mut tx = connection.begin().await?;
    policy::store::lock(&mut tx).await?;
    let stored = policy::store::all(&mut tx).await?.into_iter().find(|p| p.kind == Kind::Partition && p.name == name);
    if let Some(stored) = stored.filter(policy::Stored::is_active) {
        let put = policy::store::Put {
            kind: stored.kind,
            name: &stored.name,
            spec: &stored.spec,
            enabled: false,
            stopped: None,
            source: policy::store::Source::File,
            by,
        };
        policy::store::put(&mut tx, put).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Moves the rows of the former partitions into the table, a little at a time.
async fn drain(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<u64> {
    let (table, label) = (plan.relation(), adoption.relation.clone());
    // What stands in for a foreign key would take a row that moves for one that goes.
    if !plan.referrers.is_empty() && !partitions::may_be_quiet(&mut session.connection).await? {
        return Err(loud());
    }
    let columns: String =
        sql!("plain_columns" scalar String).bind(adoption.relid).fetch_one(&mut session.connection).await?;
    let children: Vec<(i64, String, String)> =
        sql!("attached" as (i64, String, String)).bind(adoption.relid).fetch_all(&mut session.connection).await?;
    let (mut moved, of) = (0, children.len());
    for (n, (oid, schema, name)) in children.into_iter().enumerate() {
        let child = Relation::new(schema, name);
        watch(Progress::Step(n + 1, of, format!("move the rows of {} back", child.label())));
        moved += empty(session, &table, &child, &columns, oid, watch).await?;
        let mut sql = vec![format!("ALTER TABLE {child} NO INHERIT {table}")];
        sql.extend(plan.referrers.iter().map(|moved| moved.keep_no_more(&child)));
        short(session, &[oid, adoption.relid], &sql, watch, After::Nothing).await?;
    }
    if !plan.referrers.is_empty() {
        let sql: Vec<String> = plan.referrers.iter().flat_map(Moved::restore).collect();
        short(session, &[adoption.relid], &sql, watch, After::Nothing).await?;
        prove(session, plan).await?;
    }
    let count = plan.back_keys.len();
    let sql: Vec<String> = (0..count).map(|n| format!("DROP TRIGGER IF EXISTS {TWIN}{n} ON {table}")).collect();
    short(session, &[adoption.relid], &sql, watch, After::Done(&label, "rolled back", 0)).await?;
    Ok(moved)
}

/// Batch after batch until a child is empty. Writers to it wait for a batch, not for the drain.
async fn empty(
    session: &mut Session,
    table: &Relation,
    child: &Relation,
    columns: &str,
    oid: i64,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<u64> {
    let (mut size, mut moved, mut tries) = (500_u64, 0, 0);
    let silence = if partitions::may_be_quiet(&mut session.connection).await? {
        "SET LOCAL session_replication_role = replica; "
    } else {
        ""
    };
    loop {
        let began = Instant::now();
        let mut tx = session.connection.begin().await?;
        let sql = format!(
            "SET LOCAL lock_timeout = {}; {silence}LOCK TABLE ONLY {child} IN SHARE ROW EXCLUSIVE MODE",
            LOCK_WAIT.as_millis()
        );
        let batch = format!(
            "WITH moved AS (DELETE FROM ONLY {child} WHERE ctid = ANY (ARRAY(SELECT ctid FROM ONLY {child} LIMIT {size})) RETURNING *)
             INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM moved"
        );
        let tried = async {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await?;
            Ok::<_, Error>(sqlx::raw_sql(AssertSqlSafe(batch)).execute(&mut *tx).await?.rows_affected())
        };
        match tried.await {
            Ok(rows) => {
                tx.commit().await?;
                (moved, tries) = (moved + rows, 0);
                if rows == 0 {
                    return Ok(moved);
                }
                watch(Progress::Share(0.0, format!("{moved} rows moved")));
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
                        "that key is in {0} and in {1}: delete one of them and run the rollback again; nothing is lost meanwhile",
                        table.label(),
                        child.label()
                    )),
                    _ => error,
                });
            }
        }
    }
}

/// What `finish` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// The adoption is final.
    Adopted,
    /// The rollback is final: so many empty tables went.
    RolledBack(usize),
    /// The split is final, and the adoption with it: the partition that was split went.
    Split,
}

/// Ends an adoption or a rollback: what is left of it goes, after a look whether anything is in it.
pub async fn finish(database: &Database, typed: &str, watch: &mut (dyn FnMut(Progress) + Send)) -> Result<Finished> {
    let mut session = prepare_session(database).await?;
    if let Some(row) = held_split(&mut session, typed, &["splitting", "abandoning"], watch).await? {
        let command = if row.state == "splitting" { "split" } else { "rollback" };
        return Err(Error::refused(format!("{} is still {}", row.relation, row.state))
            .with_hint(format!("go on with it first: ebb partition {command} {}", row.relation)));
    }
    if let Some(finished) = finish_split(&mut session, typed, watch).await? {
        return Ok(finished);
    }
    let (adoption, plan) = find(&mut session.connection, typed).await?;
    let label = &adoption.relation;
    store::hold(&mut session.connection, label, watch).await?;
    match adoption.state.as_str() {
        "adopted" => {
            prove(&mut session, &plan).await?;
            store::forget(&mut session.connection, label).await?;
            return Ok(Finished::Adopted);
        }
        "rolled back" => {}
        state => {
            let command = if state == "adopting" { "adopt" } else { "rollback" };
            return Err(Error::refused(format!("{label} is still {state}"))
                .with_hint(format!("go on with it first: ebb partition {command} {label}")));
        }
    }
    let leftovers: Vec<Relation> = plan.leftovers.iter().map(|(schema, name)| Relation::new(schema, name)).collect();
    let mut sql = Vec::new();
    for leftover in &leftovers {
        sql.push(format!(
            "DO $ebb$ BEGIN IF to_regclass({0}) IS NOT NULL THEN LOCK TABLE {leftover} IN ACCESS EXCLUSIVE MODE; \
             IF EXISTS (SELECT FROM {leftover}) THEN RAISE EXCEPTION '% still has rows', {0}; END IF; \
             DROP TABLE {leftover}; END IF; END $ebb$",
            Literal(&leftover.to_string())
        ));
    }
    sql.push(format!("DROP TABLE IF EXISTS {}", plan.parent()));
    short(&mut session, &[], &sql, watch, After::Finished(label, &plan)).await?;
    Ok(Finished::RolledBack(leftovers.len() + 1))
}

/// After a split there are two ways: this one ends where its parts stay.
async fn finish_split(
    session: &mut Session,
    typed: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<Option<Finished>> {
    let label = catalog::table(&mut session.connection, typed).await?.relation.label();
    let adoption = store::find(&mut session.connection, &label).await?;
    if adoption.as_ref().is_some_and(|adoption| adoption.state != "adopted") {
        return Ok(None);
    }
    let Some(row) = held_split(session, typed, &["split", "undone"], watch).await? else { return Ok(None) };
    if adoption.is_some() {
        store::hold(&mut session.connection, &label, watch).await?;
        store::forget(&mut session.connection, &label).await?;
    }
    split::finish(session, &row, &row.plan()?, watch).await?;
    Ok(Some(Finished::Split))
}

/// How an adoption stands.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The table.
    pub table: String,
    /// adopting, adopted, splitting, split, rolling back, rolled back.
    pub state: String,
    /// Its policy.
    pub policy: String,
    /// The policy's keys.
    pub spec: policy::Spec,
    /// The statements of the way back, for people.
    pub back: Vec<String>,
}

/// How the adoption of a table stands; none when there is none.
pub async fn standing(database: &Database, typed: &str) -> Result<Option<Standing>> {
    let mut tx = database.read().await?;
    let table = catalog::table(&mut tx, typed).await?;
    let label = table.relation.label();
    let adoption = store::find(&mut tx, &label).await?;
    let row = split::store::find(&mut tx, &label).await?;
    if let Some(row) = row.filter(|row| row.state != "undone") {
        let plan = row.plan()?;
        let back = match (row.state.as_str(), &adoption) {
            ("split", Some(adoption)) => [plan.restore, adoption.plan()?.back].concat(),
            ("split", None) => Vec::new(),
            _ => [plan.undo_triggers, plan.undo].concat(),
        };
        let spec = match &adoption {
            Some(adoption) => adoption.plan()?.spec.as_object().cloned().unwrap_or_default(),
            None => policy::Spec::new(),
        };
        let policy = adoption.map(|adoption| adoption.policy).unwrap_or_default();
        return Ok(Some(Standing { table: label, state: row.state, policy, spec, back }));
    }
    let Some(adoption) = adoption else { return Ok(None) };
    let plan = adoption.plan()?;
    let back = match adoption.state.as_str() {
        "adopting" => plan
            .abandon_indexes
            .iter()
            .flat_map(|step| step.sql.clone())
            .chain(plan.abandon_keys)
            .chain(plan.abandon)
            .collect(),
        _ => {
            let moved = &plan.referrers;
            let (first, last) = (moved.iter().map(Moved::let_go), moved.iter().flat_map(Moved::restore));
            let indexes = plan.back_indexes.iter().flat_map(|step| step.sql.clone());
            indexes.chain(first).chain(plan.back).chain(last).chain(moved.iter().map(Moved::proof)).collect()
        }
    };
    tx.commit().await?;
    Ok(Some(Standing {
        table: adoption.relation,
        state: adoption.state,
        policy: adoption.policy,
        spec: plan.spec.as_object().cloned().unwrap_or_default(),
        back,
    }))
}

/// The same, where there must be one.
pub async fn require_standing(database: &Database, typed: &str) -> Result<Standing> {
    standing(database, typed).await?.ok_or_else(|| {
        Error::usage(format!("{typed} was not adopted, or its adoption is finished"))
            .with_hint("what was never adopted, or was finished, cannot be taken back")
    })
}
