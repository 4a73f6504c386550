//! What the catalog knows: which table a person meant, the leaves that hold its rows, the type of a column, the index
//! that helps. Invariant: a name becomes a [`Relation`] here and nowhere else, and only when it exists.

use std::collections::{BTreeSet, HashMap};

use sqlx::PgConnection;

use super::Relation;
use crate::{Error, Result, sql};

/// A table a policy may be about: ordinary, partitioned or with inheritance children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its object id.
    pub oid: u32,
    /// Its name.
    pub relation: Relation,
    /// The role that owns it.
    pub owner: String,
    /// Whether its rows are in partitions.
    pub partitioned: bool,
}

/// A table that holds rows itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Its object id.
    pub oid: u32,
    /// Its name.
    pub relation: Relation,
    /// Rows by the last statistics.
    pub rows: u64,
    /// Pages by the last statistics.
    pub pages: u64,
}

/// A column and the time it can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: super::Ident,
    /// Its number, which it keeps under any name.
    pub number: i16,
    /// Its type, through any domain.
    pub base_type: String,
    /// Whether it may be null.
    pub not_null: bool,
}

/// What helps to find due rows by their column.
#[derive(Debug, Clone, PartialEq, Default, sqlx::FromRow)]
pub struct ColumnIndex {
    /// A valid B-tree over all rows that starts with the column.
    pub index_name: Option<String>,
    /// How far heap order follows the column: near ±1 when it does.
    pub correlation: Option<f64>,
    /// `pg_stats.n_distinct`: a count, or minus a share of the rows.
    pub distinct_values: Option<f64>,
    /// The share of nulls.
    pub null_share: Option<f64>,
}

#[derive(sqlx::FromRow)]
struct RelationRow {
    oid: i64,
    schema: String,
    name: String,
    kind: String,
    owner: String,
    persistence: String,
}

impl From<&RelationRow> for Table {
    fn from(row: &RelationRow) -> Self {
        let relation = Relation::new(&row.schema, &row.name);
        Self { oid: row.oid as u32, relation, owner: row.owner.clone(), partitioned: row.kind == "p" }
    }
}

/// Relations that were looked up together, by their names: one statement, however many there are.
#[derive(Default)]
pub(crate) struct Named(HashMap<String, Vec<RelationRow>>);

/// Looks up every relation that any of these could mean.
pub(crate) async fn named<'a>(
    connection: &mut PgConnection,
    typed: impl IntoIterator<Item = &'a str>,
) -> Result<Named> {
    let mut names = BTreeSet::new();
    for (_, name) in typed.into_iter().filter_map(|typed| readings(typed).ok()).flatten() {
        names.insert(name.to_lowercase());
        names.insert(name);
    }
    let names = Vec::from_iter(names);
    let mut found: HashMap<String, Vec<RelationRow>> = HashMap::new();
    for row in sql!("relations" as RelationRow).bind(&names).fetch_all(connection).await? {
        found.entry(row.name.clone()).or_default().push(row);
    }
    Ok(Named(found))
}

impl Named {
    /// The table that was typed; none when there is none, an error when it cannot be one for a policy.
    pub(crate) fn find(&self, typed: &str) -> Result<Option<Table>> {
        // The first reading that names something wins: exactly as typed before folded to lower case.
        for (schema, name) in readings(typed)? {
            let schema = schema.as_deref().unwrap_or("public");
            let mut rows = self.0.get(&name).into_iter().flatten();
            if let Some(row) = rows.find(|row| row.schema == schema) {
                return usable(row, typed).map(Some);
            }
        }
        Ok(None)
    }

    /// Tables of that name in other schemas than the one that is meant where none is named.
    fn elsewhere(&self, typed: &str) -> Vec<String> {
        let unnamed = readings(typed).unwrap_or_default().into_iter().filter(|(schema, _)| schema.is_none());
        let rows = unnamed.filter_map(|(_, name)| self.0.get(&name)).flatten();
        let found: BTreeSet<String> =
            rows.filter_map(|row| usable(row, typed).ok()).map(|table| table.relation.label()).collect();
        Vec::from_iter(found)
    }

    /// The same, with what may have been meant where there is none.
    pub(crate) async fn table(&self, connection: &mut PgConnection, typed: &str) -> Result<Table> {
        match self.find(typed)? {
            Some(table) => Ok(table),
            None => Err(match self.elsewhere(typed).as_slice() {
                [] => unknown_table(connection, typed).await,
                found => {
                    let error = Error::config(format!("there is no table {typed} in schema public"));
                    error.with_hint(match found {
                        [one] => format!("write {one}"),
                        several => format!("write which: {}", several.join(", ")),
                    })
                }
            }),
        }
    }

    /// One of Ebb's own tables.
    pub(crate) fn own(&self, name: &str) -> Result<Table> {
        let mut rows = self.0.get(name).into_iter().flatten();
        match rows.find(|row| row.schema == "ebb") {
            Some(row) => Ok(row.into()),
            None => Err(Error::refused(format!("the ebb schema has no table {name}")).with_hint("run `ebb migrate`")),
        }
    }
}

/// Finds the table that was typed. `a.b`, `"a"."b"`, mixed case and dots inside names all work; without a schema it is one of
/// `public`, whatever others there are or will be.
pub async fn table(connection: &mut PgConnection, typed: &str) -> Result<Table> {
    let named = named(connection, [typed]).await?;
    named.table(connection, typed).await
}

fn usable(row: &RelationRow, typed: &str) -> Result<Table> {
    let refuse = |what: &str, hint: &str| Err(Error::config(format!("{typed} is {what}")).with_hint(hint));
    match row.kind.as_str() {
        "v" => return refuse("a view", "name the table that holds the rows"),
        "m" => return refuse("a materialized view", "name the table that it is made from"),
        "f" => return refuse("a foreign table", "run Ebb on the server that holds the rows"),
        "S" => return refuse("a sequence", "name a table"),
        _ => {}
    }
    if row.schema == "pg_catalog" || row.schema == "information_schema" {
        return refuse("a system catalog", "policies are for your own tables");
    }
    if row.schema == "ebb" {
        return refuse("one of Ebb's own tables", "Ebb sweeps them itself; see [keep]");
    }
    if row.persistence == "t" {
        return refuse("a temporary table", "it goes away with its session");
    }
    Ok(row.into())
}

async fn unknown_table(connection: &mut PgConnection, typed: &str) -> Error {
    let error = Error::config(format!("there is no table {typed}"));
    let Ok(found) = sql!("relation_names" as (String, String)).fetch_all(connection).await else { return error };
    let names: Vec<String> = found.into_iter().map(|(schema, name)| Relation::new(schema, name).label()).collect();
    match nearest(typed, names.iter().map(String::as_str)) {
        Some(name) => error.with_hint(format!("did you mean {name}?")),
        None => error.with_hint("write it as schema.table; names with capitals or dots in double quotes"),
    }
}

/// The candidate nearest to what was typed, when one is near at all.
pub(crate) fn nearest<'a>(typed: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(typed, candidate), candidate))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Every way to read what was typed, most literal first: (schema, name).
fn readings(typed: &str) -> Result<Vec<(Option<String>, String)>> {
    let mut readings = Vec::new();
    if typed.is_empty() || typed.contains('\0') {
        return Err(Error::config("a table has a name").with_hint("write it as schema.table"));
    }
    if !typed.contains('"') {
        for (at, _) in typed.match_indices('.') {
            readings.push((Some(typed[..at].to_owned()), typed[at + 1..].to_owned()));
        }
        readings.push((None, typed.to_owned()));
    }
    if let Some(parts) = sql_name(typed) {
        match parts.as_slice() {
            [name] => readings.push((None, name.clone())),
            [schema, name] => readings.push((Some(schema.clone()), name.clone())),
            _ => {}
        }
    }
    if readings.is_empty() {
        return Err(Error::config(format!("{typed} is not a table name"))
            .with_hint(r#"write it as schema.table, or "Schema"."Table" with the quotes of SQL"#));
    }
    Ok(readings)
}

/// Reads `a."B""c"` the way SQL does: unquoted parts fold to lower case.
fn sql_name(typed: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = typed.trim();
    loop {
        let (part, after) = if let Some(quoted) = rest.strip_prefix('"') {
            let mut part = String::new();
            let mut chars = quoted.char_indices().peekable();
            loop {
                match chars.next()? {
                    (_, '"') if matches!(chars.peek(), Some((_, '"'))) => {
                        part.push('"');
                        chars.next();
                    }
                    (at, '"') => break (part, &quoted[at + 1..]),
                    (_, c) => part.push(c),
                }
            }
        } else {
            let end = rest.find('.').unwrap_or(rest.len());
            (rest[..end].to_lowercase(), &rest[end..])
        };
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None if after.is_empty() => return Some(parts),
            None => return None,
        }
    }
}

/// The tables that hold the rows of `table`; foreign partitions are refused.
pub async fn leaves(connection: &mut PgConnection, oid: u32) -> Result<Vec<Leaf>> {
    leaves_of(connection, &[oid]).await?.of(oid)
}

/// The tables that hold the rows of others, looked up together.
#[derive(Default)]
pub(crate) struct Leaves(HashMap<u32, Vec<LeafRow>>);

#[derive(Clone, sqlx::FromRow)]
struct LeafRow {
    root: i64,
    oid: i64,
    schema: String,
    name: String,
    kind: String,
    rows: i64,
    pages: i64,
}

/// The leaves of many tables, in one statement.
pub(crate) async fn leaves_of(connection: &mut PgConnection, tables: &[u32]) -> Result<Leaves> {
    let tables: BTreeSet<i64> = tables.iter().map(|oid| i64::from(*oid)).collect();
    let mut found: HashMap<u32, Vec<LeafRow>> = HashMap::new();
    for row in sql!("leaves" as LeafRow).bind(Vec::from_iter(tables)).fetch_all(connection).await? {
        found.entry(row.root as u32).or_default().push(row);
    }
    Ok(Leaves(found))
}

impl Leaves {
    /// Those of one of the tables.
    pub(crate) fn of(&self, table: u32) -> Result<Vec<Leaf>> {
        let rows = self.0.get(&table).into_iter().flatten();
        rows.map(|row| {
            let relation = Relation::new(&row.schema, &row.name);
            if row.kind == "f" {
                return Err(Error::config(format!("partition {} is a foreign table", relation.label()))
                    .with_hint("run Ebb on the server that holds its rows, and name there the table itself"));
            }
            Ok(Leaf { oid: row.oid as u32, relation, rows: row.rows.max(0) as u64, pages: row.pages.max(0) as u64 })
        })
        .collect()
    }
}

/// The column that was named, exactly or folded to lower case.
pub async fn column(connection: &mut PgConnection, relation: &Relation, oid: u32, typed: &str) -> Result<Column> {
    #[derive(sqlx::FromRow)]
    struct Row {
        name: String,
        number: i16,
        base_type: String,
        not_null: bool,
    }
    let rows = sql!("columns" as Row).bind(i64::from(oid)).fetch_all(connection).await?;
    let folded = typed.to_lowercase();
    match rows.iter().find(|row| row.name == typed).or_else(|| rows.iter().find(|row| row.name == folded)) {
        Some(row) => Ok(Column {
            name: super::Ident::new(&row.name),
            number: row.number,
            base_type: row.base_type.clone(),
            not_null: row.not_null,
        }),
        None => {
            let error = Error::config(format!("table {} has no column {typed}", relation.label()));
            Err(match nearest(typed, rows.iter().map(|row| row.name.as_str())) {
                Some(name) => error.with_hint(format!("did you mean {name}?")),
                None => error,
            })
        }
    }
}

/// The index and the statistics of a column in one leaf.
pub async fn column_index(connection: &mut PgConnection, leaf: &Leaf, column: &super::Ident) -> Result<ColumnIndex> {
    Ok(sql!("column_index" as ColumnIndex)
        .bind(i64::from(leaf.oid))
        .bind(column.as_str())
        .bind(leaf.relation.schema.as_str())
        .bind(leaf.relation.name.as_str())
        .fetch_one(connection)
        .await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_literally_first_and_like_sql_after() {
        assert_eq!(
            readings("Public.K").expect("a name"),
            vec![(Some("Public".into()), "K".into()), (None, "Public.K".into()), (Some("public".into()), "k".into()),]
        );
        assert_eq!(readings(r#"public."My.Table""#).expect("a name"), vec![(Some("public".into()), "My.Table".into())]);
        assert_eq!(readings(r#""a""b""#).expect("a name"), vec![(None, "a\"b".into())]);
        assert!(readings("").is_err());
        assert!(readings(r#"a."b"#).is_err());
    }
}
