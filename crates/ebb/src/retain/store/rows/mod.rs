//! SQL over users' tables, composed from quoted names, types of the catalog and checked expressions only. Values travel
//! as arrays of text and are cast back to the column's own type. Here is what the statements have in common: rows that
//! travel, and the join with them.

mod comparable;
mod id;
mod look;
mod reach;
mod session;
mod subjects;
mod take;
mod tenant;
mod unmarked;

pub(crate) use comparable::comparable;
pub(crate) use id::{id_parts, id_sql, id_text, named_by};
pub(crate) use look::{
    Changed, Extent, Link, any, blocked, blocked_soon, changed, collect, count_by, count_distinct, count_staying,
    existing, extent, given, lock, lock_roots, read_roots, sharing, sizes, still_linked, whose,
};
pub(crate) use reach::{Reach, reach};
pub(crate) use session::{
    Path, apart, as_role, back_from_role, bound, end_apart, end_savepoint, lock_tables, savepoint,
};
pub(crate) use subjects::{
    Care, Mirrored, Page, Refused, Seen, Standing, everybody, hide, mirror, mirror_warning, out_of_step, set_mirror,
    soft_deleted, unmirror,
};
pub(crate) use take::{
    Copied, Most, Taken, begun_before, change_sql, cut, delete_rows, delete_through, not_written_by, unlink, written_by,
};
pub(crate) use tenant::has_tenant;
pub(crate) use unmarked::{Terms, later, undated, unmarked, unmarked_by_day};

use std::collections::HashSet;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Postgres};

use crate::audit::Moment;
use crate::pg::{Ident, Literal, Relation};
use crate::policy::Zone;
use crate::retain::tree::{Column, Edge, Node};
use crate::{Error, Result};

/// Rows that will go, column by column, each with the position of its subject in the batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doomed {
    pub(crate) columns: Vec<Vec<Option<String>>>,
    pub(crate) subjects: Vec<i32>,
}

impl Doomed {
    pub(crate) fn with(columns: usize) -> Self {
        Self { columns: vec![Vec::new(); columns], subjects: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.subjects.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.subjects.is_empty()
    }

    pub(crate) fn push(&mut self, values: Vec<Option<String>>, subject: i32) {
        debug_assert_eq!(values.len(), self.columns.len(), "a row has every column that is read");
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value);
        }
        self.subjects.push(subject);
    }

    pub(crate) fn row(&self, at: usize) -> Vec<Option<String>> {
        self.columns.iter().map(|column| column[at].clone()).collect()
    }

    pub(crate) fn tail(&self, from: usize) -> Doomed {
        Doomed {
            columns: self.columns.iter().map(|column| column[from..].to_vec()).collect(),
            subjects: self.subjects[from..].to_vec(),
        }
    }

    /// Those that are none of some others, of the same table.
    pub(crate) fn without(self, others: Option<&Doomed>, table: &Node) -> Doomed {
        let Some(others) = others else { return self };
        let key = |rows: &Doomed, at: usize| rows.row(at)[..table.key.len()].to_vec();
        let known: HashSet<Vec<Option<String>>> = (0..others.len()).map(|at| key(others, at)).collect();
        let mut rest = Doomed::with(self.columns.len());
        for at in (0..self.len()).filter(|at| !known.contains(&key(&self, *at))) {
            rest.push(self.row(at), self.subjects[at]);
        }
        rest
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
        self.subjects.truncate(rows);
    }
}

/// The root table and the columns of it that a deletion is about.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) relation: Relation,
    pub(crate) path: Path,
    pub(crate) key: Vec<Column>,
    pub(crate) deleted_at: Ident,
    pub(crate) time: SoftDelete,
    pub(crate) zone: Zone,
    pub(crate) tenant: Option<Ident>,
    pub(crate) attempted: Option<Ident>,
    pub(crate) status: Option<Standing>,
    /// The definition of a view that says of every row whether `unless` holds; its last column.
    pub(crate) unless: Option<String>,
}

impl Root {
    /// Whether a soft delete is a later one than another. A day says too little.
    pub(crate) fn is_later(&self, one: Moment, other: Moment) -> bool {
        self.time != SoftDelete::Date && one.micros().saturating_sub(other.micros()) > 1_000_000
    }
}

/// What a soft-delete column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SoftDelete {
    TimestampTz,
    Timestamp,
    Date,
}

impl SoftDelete {
    pub(crate) fn of(base_type: &str, name: &str) -> Result<Self> {
        match base_type {
            "timestamp with time zone" => Ok(Self::TimestampTz),
            "timestamp without time zone" => Ok(Self::Timestamp),
            "date" => Ok(Self::Date),
            other => Err(Error::config(format!("column {name} is {other}, which is no time"))
                .with_hint("a soft-delete column is a timestamptz, timestamp or date")),
        }
    }

    /// The moment that a value stands for: a day when it has ended.
    pub(crate) fn moment(self, value: &str, zone: &Zone) -> String {
        let zone = Literal(zone.name());
        match self {
            Self::TimestampTz => format!("{value}::timestamptz"),
            Self::Timestamp => format!("({value} AT TIME ZONE {zone})"),
            Self::Date => format!("(({value} OPERATOR(pg_catalog.+) 1)::timestamp AT TIME ZONE {zone})"),
        }
    }

    /// The earliest moment that a value may stand for: of a day when it began, of a time a second before, which is more
    /// than a column may have rounded.
    pub(crate) fn earliest(self, value: &str, zone: &Zone) -> String {
        match self {
            Self::TimestampTz | Self::Timestamp => {
                format!("({} OPERATOR(pg_catalog.-) interval '1 second')", self.moment(value, zone))
            }
            Self::Date => format!("({value}::timestamp AT TIME ZONE {})", Literal(zone.name())),
        }
    }

    /// A moment as a value of the column.
    pub(crate) fn value(self, moment: &str, zone: &Zone) -> String {
        let zone = Literal(zone.name());
        match self {
            Self::TimestampTz => moment.to_owned(),
            Self::Timestamp => format!("({moment} AT TIME ZONE {zone})"),
            Self::Date => format!("({moment} AT TIME ZONE {zone})::date"),
        }
    }
}

/// A subject's own row, locked.
#[derive(Debug, Clone, Default)]
pub(crate) struct RootRow {
    pub(crate) subject: i32,
    pub(crate) values: Vec<Option<String>>,
    /// Null: the application has taken its soft delete back.
    pub(crate) deleted_at: Option<Moment>,
    /// Since when it may have been soft-deleted: its column may say less than a deletion knows.
    pub(crate) since: Option<Moment>,
    pub(crate) tenant: Option<String>,
    /// What a deletion of it replaces, as JSON.
    pub(crate) former: Option<String>,
}

impl RootRow {
    /// Whether its soft delete is a later one than that of a deletion: somebody had taken that one back.
    pub(crate) fn is_later(&self, deletion: Moment) -> bool {
        self.since.is_some_and(|since| since >= deletion)
    }
}

/// The values of some columns, column by column.
type Values<'a> = Vec<&'a [Option<String>]>;

/// `unnest` over the values of these columns, and the join of `n` with it.
struct Join {
    from: String,
    on: String,
    arrays: usize,
}

fn join(of: &[Ident], values: &[Column], first: usize) -> Join {
    debug_assert_eq!(of.len(), values.len(), "a link pairs its columns");
    let arrays: Vec<String> =
        values.iter().enumerate().map(|(at, value)| format!("${}::text[]::{}[]", first + at, value.sql_type)).collect();
    let names: Vec<String> = (0..values.len()).map(|at| format!("\"ebb:{at}\"")).collect();
    let pairs = of.iter().zip(values).enumerate();
    let on: Vec<String> = pairs
        .map(|(at, (column, value))| value.operators.same(&format!("n.{column}"), &format!("p.\"ebb:{at}\"")))
        .collect();
    Join {
        from: format!(
            "unnest({}, ${}::int[]) AS p ({}, \"ebb:s\")",
            arrays.join(", "),
            first + values.len(),
            names.join(", ")
        ),
        on: on.join(" AND "),
        arrays: values.len(),
    }
}

/// The same of one column as a condition alone: an index is gone through for all values at once, without a join.
fn among(of: &Ident, value: &Column, at: usize) -> String {
    value.operators.any(&format!("n.{of}"), &format!("${at}::text[]::{}[]", value.sql_type))
}

/// The values of some columns among those that were read.
fn pick<'a>(doomed: &'a Doomed, read: &[Column], wanted: &[Ident]) -> Result<(Vec<Column>, Values<'a>)> {
    let mut columns = Vec::new();
    let mut values = Vec::new();
    for name in wanted {
        let at = read.iter().position(|column| column.name == *name);
        let at = at.ok_or_else(|| Error::failed(format!("column {name} was not read")))?;
        columns.push(read[at].clone());
        values.push(doomed.columns[at].as_slice());
    }
    Ok((columns, values))
}

/// A condition on rows `n` that are none of some others, and the keys of those.
#[derive(Default)]
struct Outside<'a> {
    on: String,
    keys: Option<(Values<'a>, &'a [i32])>,
}

impl<'a> Outside<'a> {
    fn bind(&self, query: Query<'a>) -> Query<'a> {
        match &self.keys {
            Some((values, subjects)) => bind(query, values, subjects),
            None => query,
        }
    }
}

/// What is true of rows of a table that do not go along; their keys are the parameters from `first` on.
fn outside<'a>(table: &Node, along: Option<&'a Doomed>, first: usize) -> Result<Outside<'a>> {
    let Some(along) = along else { return Ok(Outside::default()) };
    let key: Vec<Ident> = table.key.iter().map(|column| column.name.clone()).collect();
    let (columns, values) = pick(along, &table.read, &key)?;
    let own = join(&key, &columns, first);
    let on = match columns.as_slice() {
        // Hashed whatever the planner expects; it might go through all of them for each row otherwise.
        [column] => {
            let any = format!("ANY (SELECT p.\"ebb:0\" FROM {})", own.from);
            format!(" AND NOT ({})", column.operators.same(&format!("n.{}", column.name), &any))
        }
        _ => format!(" AND NOT EXISTS (SELECT FROM {} WHERE {})", own.from, own.on),
    };
    Ok(Outside { on, keys: Some((values, &along.subjects)) })
}

/// Which rows behind an edge, where a policy of their own keeps some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    Go,
    Stay,
}

impl Rows {
    /// Of an edge's rows that refer to their parents `on` these terms, the ones that are meant.
    fn behind(self, edge: &Edge, on: &str) -> String {
        let on = match &edge.only {
            None => on.to_owned(),
            Some(only) => format!("{on} AND {only}"),
        };
        match (&edge.kept, self) {
            (None, _) => on,
            (Some(kept), Self::Go) => format!("{on} AND ({}) IS NOT TRUE", kept.condition),
            (Some(kept), Self::Stay) => format!("{on} AND ({})", kept.condition),
        }
    }
}

type Query<'q> = sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments>;

fn bind<'q>(mut query: Query<'q>, values: &[&'q [Option<String>]], subjects: &'q [i32]) -> Query<'q> {
    for column in values {
        query = query.bind(*column);
    }
    query.bind(subjects)
}

async fn fetch(
    connection: &mut PgConnection,
    sql: &str,
    values: &[&[Option<String>]],
    subjects: &[i32],
) -> Result<Vec<PgRow>> {
    let query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
    Ok(bind(query, values, subjects).fetch_all(connection).await?)
}

fn texts(columns: &[Column]) -> String {
    columns.iter().map(|column| format!("n.{}::text, ", column.name)).collect()
}
