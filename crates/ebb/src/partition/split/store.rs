//! What a split says to the database about itself, and what it asks the catalog.

use sqlx::{AssertSqlSafe, PgConnection};

use super::Plan;
use crate::partition::adopt::Progress;
use crate::partition::journal;
use crate::pg::{Ident, Literal, Relation};
use crate::{Result, sql};

/// A split as it stands.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Row {
    pub(crate) relation: String,
    pub(crate) relid: i64,
    pub(crate) state: String,
    pub(crate) step: i32,
    pub(crate) pages: Option<i64>,
    pub(crate) page: i64,
    /// Whether changes were applied since older views of the tables were last waited for.
    pub(crate) applied: bool,
    /// Whether it was begun in the database that this one was restored from.
    pub(crate) elsewhere: bool,
    /// The policies that look after the table.
    pub(crate) policies: Vec<String>,
    plan: serde_json::Value,
}

impl Row {
    pub(crate) fn plan(&self) -> Result<Plan> {
        journal::plan(&self.plan, &self.relation)
    }

    pub(crate) fn steps_done(&self) -> usize {
        self.step.max(0) as usize
    }
}

pub(crate) async fn find(connection: &mut PgConnection, label: &str) -> Result<Option<Row>> {
    Ok(sql!("split" as Row).bind(label).fetch_optional(connection).await?)
}

pub(crate) async fn begin(
    connection: &mut PgConnection,
    label: &str,
    relid: i64,
    plan: &Plan,
    portrait: &[String],
) -> Result<()> {
    sql!("begin_split").bind(label).bind(relid).bind(journal::kept(plan)?).bind(portrait).execute(connection).await?;
    Ok(())
}

/// Refuses where the table does not look any more as it did when the parts were planned.
pub(crate) async fn require_portrait(
    connection: &mut PgConnection,
    label: &str,
    table: i64,
    column: &str,
) -> Result<()> {
    sql!("require_split_portrait").bind(label).bind(table).bind(column).execute(connection).await?;
    Ok(())
}

/// Makes this session the one at work.
pub(crate) async fn hold(
    connection: &mut PgConnection,
    label: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    journal::hold(connection, (include_str!("sql/hold_split.sql"), "ebb.split"), label, watch).await
}

pub(crate) async fn done(connection: &mut PgConnection, label: &str, state: &str, step: usize) -> Result<()> {
    sql!("split_step").bind(label).bind(state).bind(step as i32).execute(connection).await?;
    Ok(())
}

pub(crate) async fn copied(connection: &mut PgConnection, label: &str, page: i64) -> Result<()> {
    sql!("split_page").bind(label).bind(page).execute(connection).await?;
    Ok(())
}

pub(crate) async fn outlasted(connection: &mut PgConnection, label: &str) -> Result<()> {
    sql!("split_outlasted").bind(label).execute(connection).await?;
    Ok(())
}

pub(crate) async fn forget(connection: &mut PgConnection, label: &str) -> Result<()> {
    sql!("forget_split").bind(label).execute(connection).await?;
    Ok(())
}

/// Applies up to so many noted changes; how many.
pub(crate) async fn apply(connection: &mut PgConnection, label: &str, at_most: u64) -> Result<u64> {
    let applied: i32 = sqlx::query_scalar("SELECT ebb.split_apply($1, $2)")
        .persistent(false)
        .bind(label)
        .bind(at_most as i32)
        .fetch_one(connection)
        .await?;
    Ok(applied.max(0) as u64)
}

/// A partition that reaches over more than one period.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Candidate {
    pub(crate) oid: i64,
    pub(crate) schema_name: String,
    pub(crate) table_name: String,
    pub(crate) relkind: String,
    pub(crate) lower_bound: String,
    pub(crate) upper_bound: String,
    pub(crate) pending: bool,
    pub(crate) rows: i64,
    pub(crate) bytes: i64,
}

impl Candidate {
    pub(crate) fn relation(&self) -> Relation {
        Relation::new(&self.schema_name, &self.table_name)
    }
}

pub(crate) async fn candidates(
    connection: &mut PgConnection,
    parent: u32,
    kind: &str,
    by: &str,
) -> Result<Vec<Candidate>> {
    Ok(sql!("candidates" as Candidate).bind(i64::from(parent)).bind(kind).bind(by).fetch_all(connection).await?)
}

/// The oldest value of a column, as text in UTC.
pub(crate) async fn oldest(connection: &mut PgConnection, of: &Relation, column: &Ident) -> Result<Option<String>> {
    // By the column of the table: the bare name would be that of its text, which no index has.
    let sql = format!("SELECT t.{column}::text FROM ONLY {of} AS t ORDER BY t.{column} LIMIT 1");
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_optional(connection).await?)
}

/// A part as the calendar has it: name, from (none: without end), to.
pub(crate) type Period = (String, Option<String>, String);

/// What the parts are cut from.
pub(crate) struct Cut<'a> {
    pub(crate) parent: u32,
    pub(crate) kind: &'a str,
    pub(crate) by: &'a str,
    pub(crate) zone: &'a str,
    pub(crate) oldest: Option<String>,
    pub(crate) since: Option<&'a str>,
}

pub(crate) async fn parts(connection: &mut PgConnection, of: &Candidate, cut: Cut<'_>) -> Result<Vec<Period>> {
    Ok(sql!("parts" as Period)
        .bind(i64::from(cut.parent))
        .bind(cut.kind)
        .bind(cut.by)
        .bind(&of.lower_bound)
        .bind(&of.upper_bound)
        .bind(cut.oldest)
        .bind(cut.since)
        .bind(cut.zone)
        .fetch_all(connection)
        .await?)
}

/// How rows are told apart.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Key {
    pub(crate) columns: Vec<String>,
    pub(crate) operators: Vec<String>,
}

pub(crate) async fn key(connection: &mut PgConnection, parent: u32) -> Result<Option<Key>> {
    Ok(sql!("key" as Key).bind(i64::from(parent)).fetch_optional(connection).await?)
}

/// A foreign key of another table that lets go for the swap.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Referring {
    schema_name: String,
    table_name: String,
    pub(crate) name: String,
    definition: String,
    is_valid: bool,
    comment: Option<String>,
}

impl Referring {
    pub(crate) fn table(&self) -> Relation {
        Relation::new(&self.schema_name, &self.table_name)
    }

    pub(crate) fn let_go(&self) -> String {
        format!("ALTER TABLE {} DROP CONSTRAINT {}", self.table(), Ident::new(&self.name))
    }

    /// As it was; new rows are checked by it from here on.
    pub(crate) fn come_back(&self) -> Vec<String> {
        let (table, name) = (self.table(), Ident::new(&self.name));
        let unproven = if self.is_valid { " NOT VALID" } else { "" };
        let mut sql = vec![format!("ALTER TABLE {table} ADD CONSTRAINT {name} {}{unproven}", self.definition)];
        sql.extend(
            self.comment.iter().map(|text| format!("COMMENT ON CONSTRAINT {name} ON {table} IS {}", Literal(text))),
        );
        sql
    }

    /// And those that were there; none where that was not known before.
    pub(crate) fn proof(&self) -> Option<String> {
        self.is_valid.then(|| format!("ALTER TABLE {} VALIDATE CONSTRAINT {}", self.table(), Ident::new(&self.name)))
    }
}

pub(crate) async fn referring(connection: &mut PgConnection, parent: u32) -> Result<Vec<Referring>> {
    Ok(sql!("referring" as Referring).bind(i64::from(parent)).fetch_all(connection).await?)
}

/// What is in the way: what it is, its name, of which table.
pub(crate) async fn obstacles(
    connection: &mut PgConnection,
    parent: u32,
    partition: i64,
) -> Result<Vec<(String, String, String)>> {
    Ok(sql!("obstacles" as (String, String, String))
        .bind(i64::from(parent))
        .bind(partition)
        .fetch_all(connection)
        .await?)
}

pub(crate) async fn local_indexes(connection: &mut PgConnection, partition: i64) -> Result<Vec<String>> {
    Ok(sql!("local_indexes" scalar String).bind(partition).fetch_all(connection).await?)
}

/// A column.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) is_generated: bool,
    #[sqlx(try_from = "String")]
    pub(crate) told: Told,
}

/// What tells two of its values apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The type itself: equal values have equal bits.
    Value,
    /// The letters, whatever the collation takes for equal.
    Letters,
    /// The text that the value is written as.
    Text,
}

impl From<String> for Told {
    fn from(word: String) -> Self {
        match word.as_str() {
            "value" => Self::Value,
            "letters" => Self::Letters,
            _ => Self::Text,
        }
    }
}

pub(crate) async fn columns(connection: &mut PgConnection, parent: u32) -> Result<Vec<Column>> {
    Ok(sql!("columns" as Column).bind(i64::from(parent)).fetch_all(connection).await?)
}

/// What keeps whoever writes a row of a partition from writing the same to a part.
#[derive(Debug, Clone, Default, sqlx::FromRow)]
pub(crate) struct Hindrances {
    /// Unique keys that are looked at later: two rows that change places would be refused in the parts.
    pub(crate) late: Vec<String>,
    /// Whether row-level security binds the owner, too.
    pub(crate) is_forced: bool,
    /// Rights that the owner does not have.
    pub(crate) lacking: Vec<String>,
}

pub(crate) async fn hindrances(connection: &mut PgConnection, partition: i64) -> Result<Hindrances> {
    Ok(sql!("twofold" as Hindrances).bind(partition).fetch_one(connection).await?)
}

/// The column's type, and the table's owner.
pub(crate) async fn column_type(
    connection: &mut PgConnection,
    parent: u32,
    column: &Ident,
) -> Result<(String, String)> {
    Ok(sql!("column_type" as (String, String))
        .bind(i64::from(parent))
        .bind(column.as_str())
        .fetch_one(connection)
        .await?)
}
