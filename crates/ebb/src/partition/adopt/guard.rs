//! Guards: each a key that stays unique over a window although a partitioned table's own keys contain the time. They work
//! by trigger, and are seeded from the rows that are there before the table's own key gives way.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::preflight::Findings;
use super::run::{LOCK_WAIT, REST, TRIES};
use super::subject::{Index, Subject};
use super::{Progress, Request, Session, sanitized};
use crate::partition::store as partitions;
use crate::pg::{Ident, Literal, Relation, block};
use crate::policy::Period;
use crate::{Error, Result};

/// How long a key is guarded when nothing says how long rows are kept.
const FOR_EVER: &str = "100 years";
/// How long a batch of the backfill should take: writers of its rows wait for it.
const BATCH_FOR: Duration = Duration::from_millis(40);

/// No table has so many.
pub(super) const EVERY_PAGE: i64 = 4_294_967_295;

/// Passes over the table before the backfill gives up: one is enough, since the trigger claims whatever moves.
const PASSES: u32 = 3;

/// The triggers of a guard: for rows that come and go, for those that change, and for all of them at once.
const TRIGGERS: [&str; 3] = ["a_ebb_guard", "a_ebb_guard_update", "a_ebb_guard_truncate"];

/// Those of the n-th guard of a table.
fn names(n: usize) -> [String; 3] {
    TRIGGERS.map(|name| if n == 0 { name.to_owned() } else { format!("{name}_{}", n + 1) })
}

/// Those of every guard that is asked for.
pub(crate) fn triggers(request: &Request) -> impl Iterator<Item = String> {
    (0..request.guard.len()).flat_map(names)
}

pub(crate) fn is_mine(trigger: &str) -> bool {
    trigger.starts_with(TRIGGERS[0])
}

/// Which updates the guard looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// All, as long as rows without a claim may move past the backfill.
    Everything,
    /// Those of the key or of the time.
    Changes,
}

pub(crate) fn check(subject: &Subject, request: &Request, found: &mut Findings) {
    for (n, columns) in request.guard.iter().enumerate() {
        if request.guard[..n].contains(columns) {
            found.refuse(format!("--guard {} is named twice", columns.join(",")), "name each key once");
        }
        check_one(subject, columns, found);
    }
}

fn check_one(subject: &Subject, columns: &[String], found: &mut Findings) {
    let named = || subject.indexes.iter().filter(|index| index.is_unique && index.key_columns == columns);
    let names = columns.join(",");
    match (named().next(), named().find_map(obstacle)) {
        (None, _) => found.refuse(
            format!("--guard {names} names no unique key of the table"),
            "name the columns of a primary or unique key, in its order",
        ),
        (Some(_), Some(_)) if named().any(|index| obstacle(index).is_none()) => {}
        (Some(_), Some(obstacle)) => found.refuse(
            format!("--guard {names} cannot be kept: {obstacle}"),
            "leave --guard out, and see to it that callers do not rely on the key",
        ),
        (Some(_), None) => {}
    }
}

/// Why the guard would not refuse what an index refuses, or refuse what it does not: it compares texts, of every row.
pub(crate) fn obstacle(index: &Index) -> Option<String> {
    if index.has_expressions {
        return Some(format!("{} has an expression", index.name));
    }
    if let Some(predicate) = &index.predicate {
        return Some(format!("{} has only rows where {predicate}", index.name));
    }
    if index.nulls_not_distinct {
        return Some(format!("{} takes NULLs for equal", index.name));
    }
    if !index.deferrable().is_empty() {
        return Some(format!("{} may be checked late (DEFERRABLE), and the guard looks at once", index.name));
    }
    let unlike = index.unlike_text.first()?;
    Some(format!("{unlike}, and equal values of that can be written differently"))
}

/// The namespace of the n-th guard in `ebb.once_key`: this table's, not that of another which had its name before.
fn namespace(subject: &Subject, n: usize) -> String {
    let prefix = if n == 0 { "guard".to_owned() } else { format!("guard{}", n + 1) };
    sanitized(&prefix, &format!("{}-{}", subject.relation().label(), subject.head.oid), 63)
}

/// How long rows are kept after the end of their partition, and so many periods longer, as SQL's interval reads it.
fn kept(request: &Request, periods: i32) -> String {
    let Some(keep) = request.keep else { return FOR_EVER.to_owned() };
    let (interval, (months, days)) = (
        keep.to_interval(),
        match request.by {
            Period::Day => (0, 1),
            Period::Week => (0, 7),
            Period::Month => (1, 0),
            Period::Year => (12, 0),
        },
    );
    format!(
        "{} months {} days {} microseconds",
        interval.months + periods * months,
        interval.days + periods * days,
        interval.microseconds
    )
}

/// The term of a claim: no row outlives it, also one at the beginning of the first partition, which ends up to two periods
/// after the current one.
fn term(request: &Request) -> String {
    kept(request, 3)
}

/// The statements that put the guards on a table: after a row is what it will be, whatever other triggers do to it.
pub(crate) fn create(subject: &Subject, request: &Request, on: &Relation, watch: Watch) -> Vec<String> {
    (0..request.guard.len()).flat_map(|n| create_one(subject, request, n, on, watch)).collect()
}

fn create_one(subject: &Subject, request: &Request, n: usize, on: &Relation, watch: Watch) -> Vec<String> {
    let columns = &request.guard[n];
    let (name, term) = (namespace(subject, n), term(request));
    let mut arguments = vec![name.as_str(), &term, &subject.head.column_name];
    arguments.extend(columns.iter().map(String::as_str));
    let arguments: Vec<String> = arguments.into_iter().map(|text| Literal(text).to_string()).collect();
    let changed = columns.iter().chain([&subject.head.column_name]).map(|column| {
        let column = Ident::new(column);
        format!("OLD.{column} IS DISTINCT FROM NEW.{column}")
    });
    let when = match watch {
        Watch::Everything => String::new(),
        Watch::Changes => format!(" WHEN ({})", changed.collect::<Vec<_>>().join(" OR ")),
    };
    let [rows, updates, truncate] = names(n);
    let guard = format!("EXECUTE FUNCTION ebb.guard({})", arguments.join(", "));
    vec![
        format!("CREATE TRIGGER {rows} AFTER INSERT OR DELETE ON {on} FOR EACH ROW {guard}"),
        format!("CREATE TRIGGER {updates} AFTER UPDATE ON {on} FOR EACH ROW{when} {guard}"),
        format!(
            "CREATE TRIGGER {truncate} AFTER TRUNCATE ON {on} FOR EACH STATEMENT EXECUTE FUNCTION ebb.guard_truncated({})",
            Literal(&name)
        ),
    ]
}

/// What the backfill has to know; kept in the plan.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Backfill {
    pub(crate) namespace: String,
    term: String,
    kind: String,
    zone: String,
    /// Where the partition ends that they are in.
    bound: String,
    column: String,
    pub(crate) columns: Vec<String>,
}

impl Backfill {
    /// One for each guard.
    pub(crate) fn all(subject: &Subject, request: &Request, bound: &str) -> Vec<Self> {
        let one = |(n, columns): (usize, &Vec<String>)| Self {
            namespace: namespace(subject, n),
            term: kept(request, 0),
            kind: subject.head.kind.clone().unwrap_or_default(),
            zone: request.zone.clone(),
            bound: bound.to_owned(),
            column: subject.head.column_name.clone(),
            columns: columns.clone(),
        };
        request.guard.iter().enumerate().map(one).collect()
    }

    /// The key of a row of a table called t, and when it is from. What ebb.guard_key says, written out: a call for every row
    /// would cost more than everything else here.
    fn claim(&self) -> (String, String) {
        let fields: Vec<String> =
            self.columns.iter().map(|column| format!("to_jsonb(t.{}) #>> '{{}}'", Ident::new(column))).collect();
        let list = format!("jsonb_build_array({})::text", fields.join(", "));
        let key = format!(
            "CASE WHEN octet_length({list}) <= 1024 THEN {list} ELSE encode(sha256(convert_to({list}, 'UTF8')), 'hex') END"
        );
        (key, format!("to_jsonb(to_jsonb(t.{}) #>> '{{}}')", Ident::new(&self.column)))
    }

    /// A key with a NULL is not guarded.
    fn known(&self) -> String {
        let known = self.columns.iter().map(|column| format!("t.{} IS NOT NULL", Ident::new(column)));
        known.collect::<Vec<_>>().join(" AND ")
    }

    /// Claims the keys of the rows on some pages. A row that was deleted meanwhile must not leave a claim behind: it is
    /// locked while its key is written. A writer waits for a batch, and a batch gives way.
    async fn batch(&self, tx: &mut PgConnection, table: &Relation, pages: (i64, i64)) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(format!("SET LOCAL lock_timeout = {}", LOCK_WAIT.as_millis())))
            .execute(&mut *tx)
            .await?;
        sqlx::raw_sql(AssertSqlSafe(self.statement(table, pages))).execute(&mut *tx).await?;
        Ok(())
    }

    fn statement(&self, table: &Relation, (from, to): (i64, i64)) -> String {
        let ((key, at), known) = (self.claim(), self.known());
        let [namespace, bound, kind, zone, term] =
            [&self.namespace, &self.bound, &self.kind, &self.zone, &self.term].map(|value| Literal(value));
        format!(
            "WITH live AS MATERIALIZED (
                 SELECT {key} AS key, {at} AS at FROM ONLY {table} t
                 WHERE t.ctid >= '({from},0)' AND t.ctid < '({to},0)' AND {known} FOR KEY SHARE)
             INSERT INTO ebb.once_key (namespace, key, expires_at, result)
             SELECT {namespace}, key, timestamp {bound} AT TIME ZONE ebb.partition_zone({kind}, {zone}) + interval {term}, at
             FROM live ORDER BY key COLLATE \"C\"
             ON CONFLICT DO NOTHING"
        )
    }

    /// The same for the whole table at once, for people, and the look whether every row has its claim.
    pub(super) fn whole(&self, table: &Relation) -> [String; 2] {
        let look = block(&format!(
            "BEGIN IF ({}) > 0 THEN RAISE EXCEPTION '%', {}; END IF; END",
            self.count_unclaimed(table),
            Literal(&no_claim(table))
        ));
        [self.statement(table, (0, EVERY_PAGE)), look]
    }

    /// How many rows have no claim, of those that should have one. Rows and claims are seen as they belong together.
    fn count_unclaimed(&self, table: &Relation) -> String {
        let ((key, _), known, namespace) = (self.claim(), self.known(), Literal(&self.namespace));
        format!(
            "SELECT count(*) FROM ONLY {table} t
             WHERE {known} AND NOT EXISTS (SELECT FROM ebb.once_key k WHERE k.namespace = {namespace} AND k.key = {key})"
        )
    }

    async fn unclaimed(&self, connection: &mut PgConnection, table: &Relation) -> Result<i64> {
        let sql = self.count_unclaimed(table);
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?)
    }
}

fn no_claim(table: &Relation) -> String {
    format!("rows of {} have no claim on their key", table.label())
}

/// Claims the keys of all rows that were there before the trigger, and looks whether every row has its claim.
pub(super) async fn seed(
    session: &mut Session,
    backfill: &Backfill,
    table: &Relation,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    for _ in 0..PASSES {
        pass(session, backfill, table, watch).await?;
        watch(Progress::Share(1.0, "looking whether every row has its claim".into()));
        if backfill.unclaimed(&mut session.connection, table).await? == 0 {
            return Ok(());
        }
    }
    Err(Error::failed(format!("{} after {PASSES} passes", no_claim(table))).with_hint(
        "writers whose triggers are off (session_replication_role) go past the guard; end them and run it again",
    ))
}

async fn pass(
    session: &mut Session,
    backfill: &Backfill,
    table: &Relation,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let (mut page, mut size, mut tries) = (0_i64, 4_i64, 0);
    loop {
        let (at, pages) = (Instant::now(), partitions::pages(&mut session.connection, table).await?);
        if page >= pages {
            return Ok(());
        }
        let mut tx = session.connection.begin().await?;
        match backfill.batch(&mut tx, table, (page, page + size)).await {
            Ok(()) => {
                tx.commit().await?;
                (page, tries) = (page + size, 0);
                let fitting = BATCH_FOR.as_secs_f64() / at.elapsed().as_secs_f64().max(0.001);
                size = ((size as f64 * fitting.clamp(0.5, 1.5)).round() as i64).clamp(1, 200);
                let share = page.min(pages) as f64 / pages as f64;
                watch(Progress::Share(share, format!("{} of {pages} pages", page.min(pages))));
            }
            Err(error) if matches!(error.sqlstate().as_deref(), Some("55P03" | "40P01")) && tries < TRIES => {
                tx.rollback().await?;
                (size, tries) = ((size / 2).max(1), tries + 1);
                watch(Progress::Waiting(format!("a row of {} is in use", table.label())));
            }
            Err(error) => {
                tx.rollback().await?;
                return Err(error.with_hint("run it again; what is claimed stays claimed"));
            }
        }
        tokio::time::sleep(at.elapsed().min(REST)).await;
    }
}
