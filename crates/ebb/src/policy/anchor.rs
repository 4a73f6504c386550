//! What policies were about when somebody applied them: a table and its columns by their numbers, which no other name changes.
//! Invariants: only a change that somebody asked for moves an anchor, and of a policy that is switched off none does; a number counts in
//! the database that gave it.

use std::collections::HashMap;
use std::fmt;

use sqlx::PgConnection;

use super::{Kind, Policy, RetainForm};
use crate::pg::{Relation, catalog};
use crate::{Error, Result, sql};

/// The tables and columns that policies were about, by the names these have now. None, where there is no schema yet.
#[derive(Debug, Default)]
pub(crate) struct Anchors(Vec<Anchor>);

#[derive(Debug, sqlx::FromRow)]
struct Anchor {
    #[sqlx(try_from = "String")]
    kind: Kind,
    policy: String,
    typed: String,
    schema: String,
    name: String,
    /// What its columns are called now, by the names they had; none for one that is gone.
    #[sqlx(json)]
    columns: HashMap<String, Option<String>>,
}

impl Anchors {
    pub(crate) async fn read(connection: &mut PgConnection) -> Result<Self> {
        Ok(Self(sql!("anchors" as Anchor).fetch_all(connection).await?))
    }

    /// The table that a policy was about when it was applied with this name of it.
    pub(crate) fn table(&self, kind: Kind, policy: &str, typed: &str) -> Option<Relation> {
        self.of(kind, policy, typed).map(|anchor| Relation::new(&anchor.schema, &anchor.name))
    }

    /// What a column of that table is called now, where the policy went by it: none, if it is gone.
    pub(crate) fn column(&self, kind: Kind, policy: &str, typed: &str, column: &str) -> Option<Option<&str>> {
        let columns = &self.of(kind, policy, typed)?.columns;
        let now = columns.get(column).or_else(|| columns.get(&column.to_lowercase()))?;
        Some(now.as_deref())
    }

    fn of(&self, kind: Kind, policy: &str, typed: &str) -> Option<&Anchor> {
        let named =
            |anchor: &&Anchor| (anchor.kind, anchor.policy.as_str(), anchor.typed.as_str()) == (kind, policy, typed);
        self.0.iter().find(named)
    }
}

/// Columns of a policy's table that have the names of others.
#[derive(Debug, Clone)]
pub(crate) struct Moved {
    table: String,
    /// What they are called, and what those that were meant are called now.
    columns: Vec<(String, Option<String>)>,
}

impl Moved {
    pub(crate) fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|(name, _)| name == column)
    }

    /// What helps.
    pub(crate) const FIX: &str = "name the one that was meant; or, if it is this one by now, say --yes to `ebb apply`";

    /// The refusal of whoever has not agreed to it.
    pub(crate) fn refusal(&self, policy: &str) -> Error {
        Error::refused(format!("policy {policy}: {self}")).with_hint(Self::FIX)
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((column, now)) = self.columns.first() else { return Ok(()) };
        write!(f, "column {column} of {} is another one than when the policy was applied: that one is ", self.table)?;
        match now {
            Some(now) => write!(f, "called {now} now"),
            None => f.write_str("gone"),
        }
    }
}

/// A table that a policy was about when it was applied, and that lost its name to another one.
#[derive(Debug, Clone)]
pub(crate) struct Left {
    /// What it is called now, and which one has its name.
    pub(crate) now: String,
    pub(crate) table: String,
}

impl Left {
    /// What helps.
    pub(crate) fn fix(&self) -> String {
        let Self { now, table } = self;
        format!("say table = {now:?} where that one was meant; or, if it is {table} by now, say --yes to `ebb apply`")
    }

    /// The refusal of whoever has not agreed to it.
    pub(crate) fn refusal(&self, policy: &str) -> Error {
        Error::refused(format!("policy {policy}: {self}")).with_hint(self.fix())
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { now, table } = self;
        write!(
            f,
            "{table} is another table than when the policy was applied: that one is called {now} now, and its rows would be left behind"
        )
    }
}

/// The table that a policy takes rows of by what they say, and the columns that say it.
fn about(policy: &Policy) -> Option<(&str, Vec<&str>)> {
    match policy {
        Policy::Expire(expire) => Some((&expire.table, vec![&expire.column])),
        Policy::Retain(retain) => {
            let column = match &retain.form {
                RetainForm::Direct(direct) => &direct.column,
                RetainForm::Subjects(subjects) => &subjects.deleted_at,
            };
            let columns = [Some(column), retain.tenant.as_ref()].into_iter().flatten();
            Some((&retain.table, columns.map(String::as_str).collect()))
        }
        _ => None,
    }
}

/// From now on a policy is about what has these names now; without its table, or switched off, it stays with what it was about.
pub(crate) async fn put(connection: &mut PgConnection, policy: &Policy) -> Result<()> {
    let Some((typed, names)) = about(policy) else { return Ok(()) };
    let table = match catalog::table(connection, typed).await {
        Err(error) if error.is_config() => return Ok(()),
        table => table?,
    };
    let (mut columns, mut numbers) = (Vec::new(), Vec::new());
    for name in names {
        if let Ok(column) = catalog::column(connection, &table.relation, table.oid, name).await {
            columns.push(column.name.as_str().to_owned());
            numbers.push(column.number);
        }
    }
    let query =
        sql!("put_anchor").bind(policy.kind().as_str()).bind(policy.name()).bind(typed).bind(i64::from(table.oid));
    query.bind(columns).bind(numbers).bind(policy.enabled()).execute(connection).await?;
    Ok(())
}

/// Columns that a policy goes by and that are others than when it was applied.
pub(crate) async fn moved(connection: &mut PgConnection, policy: &Policy) -> Result<Option<Moved>> {
    let Some((typed, names)) = about(policy) else { return Ok(None) };
    let table = match catalog::table(connection, typed).await {
        Err(error) if error.is_config() => return Ok(None),
        table => table?,
    };
    let query = sql!("moved_columns" as (String, Option<String>)).bind(policy.kind().as_str()).bind(policy.name());
    let mut columns = query.bind(i64::from(table.oid)).fetch_all(connection).await?;
    columns.retain(|(column, _)| names.iter().any(|name| name == column || name.to_lowercase() == *column));
    let moved = Moved { table: table.relation.label(), columns };
    Ok(Some(moved).filter(|moved| !moved.columns.is_empty()))
}

/// The table that a policy would leave behind because another one has its name.
pub(crate) async fn left_behind(connection: &mut PgConnection, policy: &Policy) -> Result<Option<Left>> {
    match about(policy) {
        Some((typed, _)) => named_anew(connection, (policy.kind(), policy.name()), typed).await,
        None => Ok(None),
    }
}

/// The same for one that is known by its name.
pub(crate) async fn named_anew(
    connection: &mut PgConnection,
    (kind, policy): (Kind, &str),
    typed: &str,
) -> Result<Option<Left>> {
    let table = match catalog::table(connection, typed).await {
        Err(error) if error.is_config() => return Ok(None),
        table => table?,
    };
    let query = sql!("left_behind" scalar String).bind(kind.as_str()).bind(policy).bind(i64::from(table.oid));
    let now = query.fetch_optional(connection).await?;
    Ok(now.map(|now| Left { now, table: table.relation.label() }))
}

/// Whether the column that a policy is to go by is the one that had another name when it was applied.
pub(crate) async fn is_same(
    connection: &mut PgConnection,
    (kind, policy): (Kind, &str),
    before: &str,
    wanted: &str,
) -> Result<bool> {
    let query = sql!("same_column" scalar bool).bind(kind.as_str()).bind(policy);
    Ok(query.bind(before).bind(wanted).fetch_one(connection).await?)
}

/// Refuses to follow a policy whose columns are others than when it was applied.
pub(crate) async fn holds(connection: &mut PgConnection, policy: &Policy) -> Result<()> {
    match moved(connection, policy).await? {
        Some(moved) => Err(Error::config(moved.to_string()).with_hint(Moved::FIX)),
        None => Ok(()),
    }
}
