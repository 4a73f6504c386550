//! The guard: a key that stays unique over a window although a partitioned table's own keys contain the time. It works
//! by trigger, and is seeded from the rows that are there before the table's own key gives way.

use sqlx::{AssertSqlSafe, PgConnection};

use super::preflight::Findings;
use super::subject::Subject;
use super::{Request, sanitized};
use crate::Result;
use crate::pg::{Ident, Literal, Relation};

/// How long a key is guarded when nothing says how long rows are kept.
const FOR_EVER: &str = "100 years";
/// Rows that a batch of the backfill looks at.
const BATCH: i64 = 20_000;

/// The trigger's name; it sorts first, so that no other trigger acts on a row that will not get in.
pub(crate) const TRIGGER: &str = "a_ebb_guard";

pub(crate) fn check(subject: &Subject, request: &Request, found: &mut Findings) {
    let Some(columns) = &request.guard else { return };
    let unique = subject.indexes.iter().any(|index| index.is_unique && index.key_columns == *columns);
    if !unique {
        found.refuse(
            format!("--guard {} names no unique key of the table", columns.join(",")),
            "name the columns of a primary or unique key, in its order",
        );
    }
}

/// The namespace in `ebb.once_key`.
pub(crate) fn namespace(relation: &Relation) -> String {
    sanitized("guard", &relation.label(), 63)
}

/// The term of a claim, as SQL's interval reads it.
pub(crate) fn term(request: &Request) -> String {
    let Some(keep) = request.keep else { return FOR_EVER.to_owned() };
    let interval = keep.to_interval();
    format!("{} months {} days {} microseconds", interval.months, interval.days, interval.microseconds)
}

/// The statement that puts the guard on a table.
pub(crate) fn create(subject: &Subject, request: &Request, on: &Relation) -> Option<String> {
    let columns = request.guard.as_ref()?;
    let (name, term) = (namespace(&subject.relation()), term(request));
    let mut arguments = vec![name.as_str(), &term, &subject.head.column_name];
    arguments.extend(columns.iter().map(String::as_str));
    let arguments: Vec<String> = arguments.into_iter().map(|text| Literal(text).to_string()).collect();
    let of: Vec<String> = columns.iter().map(|column| Ident::new(column).to_string()).collect();
    Some(format!(
        "CREATE TRIGGER {TRIGGER} BEFORE INSERT OR DELETE OR UPDATE OF {} ON {on} FOR EACH ROW EXECUTE FUNCTION ebb.guard({})",
        of.join(", "),
        arguments.join(", ")
    ))
}

/// What the backfill has to know; kept in the plan.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Backfill {
    pub(crate) namespace: String,
    term: String,
    kind: String,
    zone: String,
    column: String,
    columns: Vec<String>,
}

impl Backfill {
    pub(crate) fn new(subject: &Subject, request: &Request) -> Option<Self> {
        Some(Self {
            namespace: namespace(&subject.relation()),
            term: term(request),
            kind: subject.head.kind.clone()?,
            zone: request.zone.clone(),
            column: subject.head.column_name.clone(),
            columns: request.guard.clone()?,
        })
    }

    /// Claims the keys of rows from one page of the table on; the next page, or none at the end. A row that was
    /// deleted meanwhile must not leave a claim behind: it is locked while its key is written.
    pub(crate) async fn batch(&self, tx: &mut PgConnection, table: &Relation, page: i64) -> Result<Option<i64>> {
        let pages: i64 = sqlx::query_scalar(AssertSqlSafe(format!(
            "SELECT pg_relation_size({}) / 8192",
            Literal(&table.to_string())
        )))
        .persistent(false)
        .fetch_one(&mut *tx)
        .await?;
        if page >= pages {
            return Ok(None);
        }
        let next = page + (BATCH / 100).max(1);
        // What ebb.guard_key says, written out: a call for every row would cost more than everything else here.
        let fields: Vec<String> =
            self.columns.iter().map(|column| format!("to_jsonb(t.{}) #>> '{{}}'", Ident::new(column))).collect();
        let (column, key) = (Ident::new(&self.column), format!("jsonb_build_array({})::text", fields.join(", ")));
        let known: Vec<String> =
            self.columns.iter().map(|column| format!("t.{} IS NOT NULL", Ident::new(column))).collect();
        let moment = match self.kind.as_str() {
            "timestamptz" => format!("t.{column}"),
            "timestamp" | "date" => format!("t.{column}::timestamp AT TIME ZONE $3"),
            _ => format!("ebb.partition_moment($2, t.{column}::text) AT TIME ZONE 'UTC'"),
        };
        let sql = format!(
            "WITH live AS MATERIALIZED (
                 SELECT {key} AS key, {moment} AS moment, to_jsonb(t.{column}) AS at FROM ONLY {table} t
                 WHERE t.ctid >= '({page},0)' AND t.ctid < '({next},0)' AND {} FOR KEY SHARE)
             INSERT INTO ebb.once_key (namespace, key, expires_at, result)
             SELECT $1, CASE WHEN octet_length(key) <= 1024 THEN key ELSE encode(sha256(convert_to(key, 'UTF8')), 'hex') END,
                    moment + $4::text::interval, at
             FROM live WHERE moment + $4::text::interval > ebb.clock() AND $2::text IS NOT NULL AND $3::text IS NOT NULL
             ORDER BY key COLLATE \"C\"
             ON CONFLICT DO NOTHING",
            known.join(" AND ")
        );
        sqlx::query(AssertSqlSafe(sql))
            .persistent(false)
            .bind(&self.namespace)
            .bind(&self.kind)
            .bind(&self.zone)
            .bind(&self.term)
            .execute(&mut *tx)
            .await?;
        Ok(Some(next))
    }
}
