//! The way back. Before the cutover everything that was prepared goes; after it the old table gets its name and
//! everything else back in one short transaction, and the partitions that have rows become its children, so that every
//! row stays visible once, until they are drained into it. Invariants: nothing is lost and nothing is seen twice; a
//! writer to a child waits for a batch and then finds its row where it is, so no update is lost either.

mod drain;
mod finish;
mod fresh;
mod script;
mod standing;
mod unique;

pub(crate) use finish::give_up;
pub use finish::{Finished, finish};
pub use script::{finish_script, rollback_script};
pub use standing::{Standing, require_standing, standing};

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection};

use super::adopt::moved::Moved;
use super::adopt::store::{self, Adoption};
use super::adopt::{
    After, Plan, Progress, Session, Step, execute, guard, hold_no_longer, prepare_session, prove, short, short_after,
    subject,
};
use super::{split, store as partitions};
use crate::pg::{Database, Ident, Literal, Relation, block, catalog};
use crate::{Error, Result, sql};

/// How many partitions may come between two tries of the transaction that takes the name back.
const MEANWHILE: u32 = 5;

/// More partitions with rows than this take so long that the lock is looked at while they are taken along.
const MANY: usize = 24;
const ALONG: &str = "taking so many partitions with rows along";

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
    rollback_within(database, typed, by, None, watch).await
}

/// The same, with the time for which taking very many partitions along may hold the table's lock; 200 ms when absent.
pub async fn rollback_within(
    database: &Database,
    typed: &str,
    by: &str,
    max_lock: Option<Duration>,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<RolledBack> {
    let mut session = prepare_session(database).await?;
    hold_no_longer(&mut session, max_lock).await?;
    if let Some(row) = held_split(&mut session, typed, &["splitting", "abandoning"], watch).await? {
        split::abandon(&mut session, &row, &row.plan()?, watch).await?;
        return Ok(RolledBack::Unsplit);
    }
    let (adoption, _) = find(&mut session.connection, typed).await?;
    store::hold(&mut session.connection, &adoption.relation, watch).await?;
    // Whoever held it until now may have come further.
    let (adoption, mut plan) = find(&mut session.connection, typed).await?;
    let gone = partitions::place(&mut session.connection, adoption.relid).await?.is_none();
    if gone && adoption.state != "adopting" {
        return Err(Error::refused(format!("the table that was adopted as {} was dropped", adoption.relation))
            .with_hint(format!(
                "what has its name now is another; forget the adoption: ebb partition finish {}",
                adoption.relation
            )));
    }
    refuse_other_place(&mut session, &adoption, &plan).await?;
    match adoption.state.as_str() {
        "adopting" => return abandon(&mut session, &adoption, &plan, watch).await,
        "adopted" => back(&mut session, &adoption, &mut plan, by, watch).await?,
        _ => {}
    }
    let moved = drain::drain(&mut session, &adoption, &plan, watch).await?;
    Ok(RolledBack::Back(moved))
}

/// The cutover of an adoption that is not known to be past it: somebody's own statements, which wrote nothing down.
async fn refuse_other_place(session: &mut Session, adoption: &Adoption, plan: &Plan) -> Result<()> {
    let place = partitions::place(&mut session.connection, adoption.relid).await?;
    let moved = place.is_some_and(|place| place.parent.is_some() || place.relation() != plan.relation());
    if adoption.state != "adopting" || !moved {
        return Ok(());
    }
    Err(Error::refused(format!("the table whose adoption was begun is {} by now", plan.history().label())).with_hint(format!(
        "whoever moved it must say so: UPDATE ebb.adoption SET state = 'adopted', step = 0 WHERE relation = {}; then roll back",
        Literal(&adoption.relation)
    )))
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
            build(session, adoption, plan, step, at, watch).await?;
        }
        sql.extend(plan.abandon_keys.iter().cloned());
    }
    sql.extend(plan.abandon.iter().cloned());
    sql.extend(plan.referrers.iter().flat_map(Moved::restore));
    watch(Progress::Step(2, 2, "take back what was prepared".into()));
    // Each alone: where the table refers to another, dropping one keeps everybody out of that for milliseconds.
    if let Ok(hidden) = catalog::table(&mut session.connection, &plan.parent().label()).await {
        for (_, schema, name) in attached(&mut session.connection, i64::from(hidden.oid)).await? {
            let drop = [format!("DROP TABLE IF EXISTS {}", Relation::new(schema, name))];
            short(session, &[adoption.relid], &drop, watch, After::Nothing).await?;
        }
    }
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
    for backfill in plan.backfills() {
        store::forget_guard(connection, &backfill.namespace).await?;
    }
    Ok(())
}

/// After the cutover: keys first, then the names in one short transaction.
async fn back(
    session: &mut Session,
    adoption: &Adoption,
    plan: &mut Plan,
    by: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let table = plan.relation();
    let of = plan.back_indexes.len() + 1 + usize::from(!plan.back_keys.is_empty());
    let parent = catalog::table(&mut session.connection, &table.label()).await?.oid;
    refuse(session, adoption, plan, parent).await?;
    if let Some(row) = held_split(session, &table.label(), &["split"], watch).await? {
        split::prepare_rollback(session, &row, &row.plan()?, watch).await?;
    }
    let was_split = split::store::find(&mut session.connection, &adoption.relation).await?.is_some();
    for (n, step) in plan.back_indexes.clone().iter().enumerate() {
        watch(Progress::Step(n + 1, of, step.title.clone()));
        build(session, adoption, plan, step, ("adopted", 0), watch).await?;
    }
    if plan.back_keys.is_empty() {
        return swap(session, adoption, plan, (parent, was_split), (of, by), watch).await;
    }
    // From here on no key comes unseen; building them took its time.
    watch(Progress::Step(of - 1, of, "note every key that comes from here on".into()));
    short(session, &[], &fresh::note(plan, adoption.relid), watch, After::Nothing).await?;
    let swapped = swap(session, adoption, plan, (parent, was_split), (of, by), watch).await;
    if let Err(error) = swapped {
        // What stopped it is what counts; whatever is left of this goes the next time.
        let _ = forget_notes(session, adoption, plan, watch).await;
        return Err(error);
    }
    Ok(())
}

/// Nothing is noted any more, and nothing is left of it.
async fn forget_notes(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let noted = noted(&mut session.connection, plan, adoption.relid).await?;
    if noted.is_empty() {
        return short(session, &[], &unique::no_functions(plan, adoption.relid), watch, After::Nothing).await;
    }
    short(session, &[], &fresh::rest(plan, adoption.relid), watch, After::Nothing).await?;
    for (oid, schema, name) in noted {
        let sql = unique::no_triggers(plan, &Relation::new(schema, name));
        short(session, &[oid], &sql, watch, After::Nothing).await?;
    }
    short(session, &[], &unique::no_functions(plan, adoption.relid), watch, After::Nothing).await
}

/// The transaction in which the name moves, until it gets its locks.
async fn swap(
    session: &mut Session,
    adoption: &Adoption,
    plan: &mut Plan,
    (parent, was_split): (u32, bool),
    (of, by): (usize, &str),
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let table = plan.relation();
    let mut known = Vec::new();
    // Until it is taken back the table is looked after: a partition can come at any moment.
    for attempt in 1.. {
        let attached = attached(&mut session.connection, i64::from(parent)).await?;
        if !was_split && !attached.iter().any(|(oid, ..)| *oid == adoption.relid) {
            return Err(Error::refused(format!(
                "{} is no longer a partition of {}",
                plan.history().label(),
                table.label()
            ))
            .with_hint("the way back leads through it; if it was dropped, there is none: ebb partition finish"));
        }
        let filled = filled(&mut session.connection, parent).await?;
        // One that gets its first row after this look is noticed under the lock, and comes into the next.
        let others = attached.iter().filter(|(oid, ..)| *oid != adoption.relid && filled.contains(oid));
        let with_rows: Vec<Relation> =
            [plan.history()].into_iter().chain(others.map(|(_, schema, name)| Relation::new(schema, name))).collect();
        watch_keys(session, adoption, plan, (parent, &with_rows), &mut known, watch).await?;
        if attempt == 1 {
            watch(Progress::Step(of, of, "move the name back".into()));
        }
        let only: Vec<String> = with_rows.iter().map(|one| format!("ONLY {one}")).collect();
        let (noted, last) =
            (fresh::refuse_noted(plan, adoption.relid, &only), fresh::refuse_last(plan, adoption.relid, &only));
        let sql = statements(session, adoption, plan, parent, (&attached, &filled), last).await?;
        // Once more right before the lock: what is left for under it came while this waited.
        let sql: Vec<String> = noted.iter().cloned().chain(sql).collect();
        let tables: Vec<i64> = attached.iter().map(|(oid, ..)| *oid).chain([i64::from(parent)]).collect();
        let others = attached.iter().filter(|(oid, ..)| *oid != adoption.relid);
        plan.leftovers = others.map(|(_, schema, name)| (schema.clone(), name.clone())).collect();
        let after = After::RollingBack { label: &adoption.relation, plan, policy: &adoption.policy, by };
        match short_after(session, &tables, (&noted, &sql), watch, after).await {
            Err(error) if error.sqlstate().as_deref() == Some("EB003") && attempt < MEANWHILE => {}
            done => return done.map_err(|error| changed(error, &table)),
        }
    }
    Ok(())
}

/// Every key of these tables is noted from here on, or the triggers that do so are there already; then none of them is there
/// twice. Each table in a transaction of its own: writers wait for one at a time.
async fn watch_keys(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    (parent, tables): (u32, &[Relation]),
    known: &mut Vec<Relation>,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let new: Vec<&Relation> = tables.iter().filter(|table| !known.contains(table)).collect();
    if plan.back_keys.is_empty() || new.is_empty() {
        return Ok(());
    }
    for (n, table) in new.iter().enumerate() {
        let oid = catalog::table(&mut session.connection, &table.label()).await?.oid;
        let sql = unique::triggers(plan, adoption.relid, table);
        short(session, &[i64::from(oid)], &sql, watch, After::Nothing).await?;
        watch(Progress::Share((n + 1) as f64 / new.len() as f64, format!("{} of {}", n + 1, new.len())));
    }
    let spread = spread(&mut session.connection, parent, adoption.relid).await?;
    unique::refuse_twins(&mut session.connection, plan, spread).await?;
    known.extend(new.into_iter().cloned());
    Ok(())
}

/// Builds a key as it was. One that is there twice stops that at its end: only then is every row looked at, to say which, and
/// what was begun goes, because it may refuse rows already.
async fn build(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    step: &Step,
    at: (&str, usize),
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let built = execute(session, adoption, plan, step, at, watch).await;
    let Err(error) = built else { return Ok(()) };
    if error.sqlstate().as_deref() != Some("23505") {
        return Err(error);
    }
    if let Some((schema, name)) = &step.index {
        let sql = format!("DROP INDEX CONCURRENTLY IF EXISTS {}", Relation::new(schema, name));
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session.connection).await?;
    }
    let table = catalog::table(&mut session.connection, &plan.relation().label()).await?.oid;
    let spread = spread(&mut session.connection, table, adoption.relid).await?;
    unique::refuse_all_twins(&mut session.connection, plan, spread).await?;
    Err(error.with_hint("the key was there twice, and is not any more: run it again"))
}

/// Everything that stops it before it begins.
async fn refuse(session: &mut Session, adoption: &Adoption, plan: &Plan, parent: u32) -> Result<()> {
    let table = plan.relation();
    refuse_changes(session, adoption, plan, parent).await?;
    let subscribed = subject::subscriptions(&mut session.connection, &[i64::from(parent), adoption.relid]).await?;
    if let Some(name) = subscribed.iter().find(|one| one.is_enabled).map(|one| Ident::new(&one.name)) {
        return Err(Error::refused(format!("subscription {name} writes to {}, and would go on with the one that hides", table.label()))
            .with_hint(format!(
                "ALTER SUBSCRIPTION {name} DISABLE; roll back; ALTER SUBSCRIPTION {name} REFRESH PUBLICATION WITH (copy_data = false); ALTER SUBSCRIPTION {name} ENABLE"
            )));
    }
    refuse_subpartitioned(session, parent, &table).await?;
    refuse_leaving(session, parent, &table).await?;
    refuse_new_names(session, plan).await?;
    refuse_borrowed(session, parent).await?;
    let spread = spread(&mut session.connection, parent, adoption.relid).await?;
    unique::refuse_twins(&mut session.connection, plan, spread).await?;
    drain::refuse_triggers(&mut session.connection, i64::from(parent), plan).await?;
    drain::refuse_loud(&mut session.connection, i64::from(parent), adoption.relid).await?;
    Ok(())
}

/// The rows of a partition move back from where they are; this knows no partitions of partitions.
async fn refuse_subpartitioned(session: &mut Session, parent: u32, table: &Relation) -> Result<()> {
    let found: Option<String> =
        sql!("subpartitioned" scalar String).bind(i64::from(parent)).fetch_optional(&mut session.connection).await?;
    let Some(name) = found else { return Ok(()) };
    Err(Error::refused(format!("partition {name} is no ordinary table, and its rows would not move back")).with_hint(format!(
        "take it out before: ALTER TABLE {table} DETACH PARTITION {name}; roll back; INSERT INTO {table} SELECT * FROM {name}"
    )))
}

/// What is half out of the table is neither in it nor beside it.
async fn refuse_leaving(session: &mut Session, parent: u32, table: &Relation) -> Result<()> {
    let found: Option<String> =
        sql!("leaving" scalar String).bind(i64::from(parent)).fetch_optional(&mut session.connection).await?;
    let Some(name) = found else { return Ok(()) };
    Err(Error::refused(format!("partition {name} is on its way out of {}: its detach was cancelled", table.label()))
        .with_hint(format!(
            "end that first: ebb partition maintain {}, or ALTER TABLE {table} DETACH PARTITION {name} FINALIZE; its rows stay in a table of their own",
            table.label()
        )))
}

/// What the old table's things are called by now is how they are found.
async fn refuse_new_names(session: &mut Session, plan: &Plan) -> Result<()> {
    let found = store::taken(&mut session.connection, &plan.schema, &plan.wanted).await?;
    let Some(gone) = plan.wanted.iter().find(|name| !found.contains(name)) else { return Ok(()) };
    let history = plan.history();
    Err(Error::refused(format!("{}.{gone} is not there any more, and the way back would give it its old name", plan.schema))
        .with_hint(format!(
            "was it renamed, or built anew when the type of a column changed? See \\d {history}, then ALTER INDEX … RENAME TO {}; nothing was changed",
            Ident::new(gone)
        )))
}

/// The sequence of an identity is made anew: who draws numbers from it would go on with the one that hides.
async fn refuse_borrowed(session: &mut Session, parent: u32) -> Result<()> {
    let sequences = subject::sequences(&mut session.connection, i64::from(parent)).await?;
    let mut borrowed = sequences.iter().filter(|one| !one.identity.is_empty() && !one.users.is_empty());
    let Some(sequence) = borrowed.next() else { return Ok(()) };
    Err(Error::refused(format!(
        "{} uses {}, the sequence of an identity, which is made anew",
        sequence.users.join(" and "),
        sequence.relation().label()
    ))
    .with_hint("drop it before and create it after; nothing was changed"))
}

/// The transaction of the way back, with what is said for each partition that may have rows. Those without any, of which there
/// can be a thousand, cost nothing while everybody waits.
async fn statements(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    parent: u32,
    (attached, filled): (&[(i64, String, String)], &[i64]),
    last: Vec<String>,
) -> Result<Vec<String>> {
    let table = plan.relation();
    refuse_subpartitioned(session, parent, &table).await?;
    let triggers = subject::triggers(&mut session.connection, i64::from(parent)).await?;
    let others = attached.iter().filter(|(oid, ..)| *oid != adoption.relid && filled.contains(oid));
    let others: Vec<&(i64, String, String)> = others.collect();
    let list = |oids: &mut dyn Iterator<Item = i64>| oids.map(|oid| oid.to_string()).collect::<Vec<_>>().join(", ");
    let known = (list(&mut attached.iter().map(|one| one.0)), list(&mut others.iter().map(|one| one.0)));
    let loud = drain::loud(&mut session.connection, i64::from(parent)).await?;
    let mut sql = vec![
        format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"),
        "SELECT ebb.locked()".into(),
        format!(
            "SELECT ebb.carry_changes({}, {parent}, {}, {}, false)",
            Literal(&adoption.relation),
            adoption.relid,
            Literal(&plan.column)
        ),
    ];
    sql.extend(plan.referrers.iter().map(Moved::let_go));
    // Not before every lock is there: who has one of these and waits for the table would have to be waited for.
    sql.extend(last);
    sql.push(leave(parent, adoption.relid, (&known.0, &known.1), loud.as_deref()));
    sql.extend(plan.back.iter().cloned());
    sql.extend(plan.referrers.iter().flat_map(Moved::stand_in));
    // What noted keys refuses them from here on.
    sql.extend(unique::functions(plan, adoption.relid));
    for (oid, schema, name) in &others {
        let partition = Relation::new(schema, name);
        let mut own =
            vec![format!("PERFORM ebb.drop_derived_checks({oid})"), format!("ALTER TABLE {partition} INHERIT {table}")];
        if others.len() > MANY {
            own.push(format!("PERFORM ebb.within_lock({})", Literal(ALONG)));
        }
        own.extend(plan.referrers.iter().map(|moved| moved.keep_on(&partition)));
        // What the table's row triggers do they do for the rows in here, too.
        for trigger in triggers.iter().filter(|trigger| trigger.is_row && !guard::is_mine(&trigger.name)) {
            own.extend(trigger.on(&partition)?);
        }
        sql.push(block(&format!(
            "BEGIN IF NOT (SELECT relispartition FROM pg_class WHERE oid = {oid}) THEN {}; END IF; END",
            own.join("; ")
        )));
    }
    Ok(sql)
}

/// The old table leaves, and the partitions that have rows; the empty ones stay with the table that hides again, because
/// each that leaves takes its milliseconds under the lock: very many are too many for a short one. One that came meanwhile
/// would be hidden without being known, one that left would come back, one that got its first row is not provided for, and
/// rows that cannot move quietly must not have come since that was looked at. The old table leaves last: whoever deletes a row that others refer to asks them in the order in
/// which they left, and must ask the table that rows move into after those that they come from.
fn leave(parent: u32, old: i64, (known, filled): (&str, &str), loud: Option<&str>) -> String {
    let loud = loud.map_or(String::new(), |words| {
        let words = Literal(words);
        format!(
            "IF has_rows AND one <> {old} THEN RAISE EXCEPTION USING ERRCODE = 'EB002', MESSAGE = {words}; END IF; "
        )
    });
    let along = Literal(ALONG);
    block(&format!(
        "DECLARE one oid; has_rows boolean; n int := 0; BEGIN \
         IF EXISTS (SELECT unnest(ARRAY[{known}]::oid[]) EXCEPT SELECT inhrelid FROM pg_inherits WHERE inhparent = {parent} AND NOT inhdetachpending) \
         THEN RAISE EXCEPTION USING ERRCODE = 'EB003', MESSAGE = 'a partition is leaving; run the rollback again'; END IF; \
         FOR one IN SELECT inhrelid FROM pg_inherits WHERE inhparent = {parent} AND (inhrelid = {old} OR \
         inhrelid <> ALL (ARRAY[{known}]::oid[]) OR pg_relation_size(inhrelid) > 0) ORDER BY inhrelid = {old}, inhrelid LOOP \
         IF one <> ALL (ARRAY[{known}]::oid[]) THEN RAISE EXCEPTION USING ERRCODE = 'EB003', \
         MESSAGE = 'partitions are added all the time; run the rollback again'; END IF; \
         has_rows := pg_relation_size(one) > 0; \
         IF has_rows THEN EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s)', one::regclass) INTO has_rows; END IF; {loud}\
         IF has_rows AND one <> {old} AND one <> ALL (ARRAY[{filled}]::oid[]) THEN RAISE EXCEPTION USING ERRCODE = 'EB003', \
         MESSAGE = 'partitions get their first rows all the time; run the rollback again'; END IF; \
         IF has_rows OR one = {old} THEN \
         EXECUTE format('ALTER TABLE %s DETACH PARTITION %s', '{parent}'::regclass, one::regclass); \
         n := n + 1; IF n > {MANY} THEN PERFORM ebb.within_lock({along}); END IF; END IF; \
         END LOOP; END"
    ))
}

/// What somebody made or changed since the table was adopted, and the old one would not have.
async fn refuse_changes(session: &mut Session, adoption: &Adoption, plan: &Plan, parent: u32) -> Result<()> {
    let looked = sql!("refuse_changes")
        .bind(&adoption.relation)
        .bind(i64::from(parent))
        .bind(adoption.relid)
        .bind(&plan.column)
        .execute(&mut session.connection)
        .await;
    looked.map(|_| ()).map_err(|error| changed(error.into(), &plan.relation()))
}

fn changed(error: Error, table: &Relation) -> Error {
    match error.sqlstate().as_deref() {
        Some("EB004") => Error::refused(error.to_string())
            .with_hint("the table is what it was; allow a longer lock: ebb partition rollback --max-lock 2s"),
        Some("EB005") => Error::refused(error.to_string())
            .with_hint(format!("delete one of each in {}; nothing was changed", table.label())),
        Some("EB002") => Error::refused(error.to_string()).with_hint(format!(
            "undo it before, and do it again on {} when that is an ordinary table; nothing was changed",
            table.label()
        )),
        _ => error,
    }
}

/// The partitions or children of a table: oid, schema, name.
async fn attached(connection: &mut PgConnection, oid: i64) -> Result<Vec<(i64, String, String)>> {
    Ok(sql!("attached" as (i64, String, String)).bind(oid).fetch_all(connection).await?)
}

/// The partitions of a table that may have rows.
async fn filled(connection: &mut PgConnection, oid: u32) -> Result<Vec<i64>> {
    Ok(sql!("filled" scalar i64).bind(i64::from(oid)).fetch_all(connection).await?)
}

/// Whether a rollback was begun and not ended: what it builds for itself is there.
pub(crate) async fn is_begun(connection: &mut PgConnection, adoption: &Adoption) -> Result<bool> {
    let plan = adoption.plan()?;
    Ok(sql!("rollback_begun" scalar bool).bind(&plan.schema).bind(adoption.relid).fetch_one(connection).await?)
}

/// The tables on which keys are noted, or were when a rollback was killed.
async fn noted(connection: &mut PgConnection, plan: &Plan, relid: i64) -> Result<Vec<(i64, String, String)>> {
    let functions = (0..plan.back_keys.len()).map(|n| unique::function(plan, relid, n).name.as_str().to_owned());
    Ok(sql!("noted" as (i64, String, String))
        .bind(&plan.schema)
        .bind(functions.collect::<Vec<_>>())
        .fetch_all(connection)
        .await?)
}

/// How the rows of a partitioned table are spread over the old one and the others.
async fn spread(connection: &mut PgConnection, parent: u32, old: i64) -> Result<unique::Spread> {
    Ok(sql!("spread" as unique::Spread).bind(i64::from(parent)).bind(old).fetch_one(connection).await?)
}

/// The columns of a table that can be written.
pub(super) async fn plain_columns(connection: &mut PgConnection, oid: i64) -> Result<String> {
    Ok(sql!("plain_columns" scalar String).bind(oid).fetch_one(connection).await?)
}

/// What the foreign keys of a table refer to.
async fn references(connection: &mut PgConnection, oid: i64) -> Result<Vec<drain::Reference>> {
    Ok(sql!("references" as drain::Reference).bind(oid).fetch_all(connection).await?)
}

/// How many triggers of people a row that moves would set off.
async fn moving_triggers(connection: &mut PgConnection, oid: i64) -> Result<i64> {
    Ok(sql!("moving_triggers" scalar i64).bind(oid).fetch_one(connection).await?)
}

/// What would tell others of a row that only moves, whatever this session does, in words.
async fn told(connection: &mut PgConnection, oid: i64) -> Result<Vec<String>> {
    Ok(sql!("told" scalar String).bind(oid).fetch_all(connection).await?)
}
