//! Which partitions a statement reads, proven by the server's own plan. Invariant: nothing is executed: statements are
//! only planned, in a read-only transaction, one at a time.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::statements::{behind_explain, parameter, statements};
use super::{list, store};
use crate::pg::catalog::{self, Table};
use crate::pg::{Ident, Literal};
use crate::{Error, Result, sql};

/// A statement to look at.
#[derive(Debug, Clone)]
pub struct Shape {
    /// What it is.
    pub name: String,
    /// The statement.
    pub sql: String,
    /// The most partitions that it has to read; none when nobody knows.
    pub reachable: Option<usize>,
    /// What it would read at most, were it written as the advice says; none when that is the same.
    pub best: Option<usize>,
    /// What would let it read fewer.
    pub advice: String,
}

/// What the server would do.
#[derive(Debug, Clone, Serialize)]
pub struct Explained {
    /// What it is.
    pub name: String,
    /// The statement.
    pub sql: String,
    /// The partitions it reads.
    pub reads: Vec<String>,
    /// Out of so many.
    pub partitions: usize,
    /// By these indexes.
    pub indexes: Vec<String>,
    /// Whether any of them is read from end to end.
    pub scans: bool,
    /// The most it has to read.
    pub reachable: Option<usize>,
    /// Whether it reads more than that.
    pub falls_short: bool,
    /// What it comes to, and what would help, in words.
    pub words: String,
}

/// Plans every shape against a table.
pub async fn explain(connection: &mut PgConnection, typed: &str, shapes: Option<Vec<Shape>>) -> Result<Vec<Explained>> {
    sqlx::raw_sql("SET TRANSACTION READ ONLY").execute(&mut *connection).await?;
    let table = catalog::table(connection, typed).await?;
    let leaves: BTreeSet<String> =
        catalog::leaves(connection, table.oid).await?.into_iter().map(|leaf| leaf.relation.label()).collect();
    let shapes = match shapes {
        Some(shapes) => shapes,
        None => usual(connection, &table).await?,
    };
    // Callers' statements may leave out the schema of the table.
    let path = format!("SET LOCAL search_path = {}, public", table.relation.schema);
    sqlx::raw_sql(AssertSqlSafe(path)).execute(&mut *connection).await?;
    let mut explained = Vec::new();
    for shape in shapes {
        explained.push(one(connection, &leaves, shape).await?);
    }
    Ok(explained)
}

/// Statements of a file, one after the other; each must read no more than `expect` partitions.
pub fn shapes(text: &str, expect: Option<usize>) -> Vec<Shape> {
    let shape = |(n, sql): (usize, String)| {
        Shape {
        name: format!("statement {}", n + 1),
        reachable: expect,
        best: None,
        advice: match sql.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("delete")) {
            true => "name the partition column in its WHERE; what ages out by it becomes a drop of whole partitions with `keep`".into(),
            false => "name the partition column in its WHERE".into(),
        },
        sql,
    }
    };
    let planned = statements(text).into_iter().map(|sql| behind_explain(&sql).to_owned());
    planned.enumerate().map(shape).collect()
}

#[derive(sqlx::FromRow)]
struct Columns {
    column_name: String,
    key_columns: Vec<String>,
    key_types: Vec<String>,
    derived: Option<String>,
    /// The statement that says what the derived column is now.
    derived_now: Option<String>,
    /// The statement that says how many partitions begin with a value of it.
    derived_in: Option<String>,
    /// Partitions without a beginning: no column has one value in them.
    open_ended: i64,
    expiry: Option<String>,
    /// The statement by which a guard tells the time of a key, and what its parameters are.
    guard: Option<String>,
    this: String,
    next: String,
    ahead: String,
}

/// The five shapes that a table of time-ordered rows meets: insert, count, update by key, clean up, list.
async fn usual(connection: &mut PgConnection, table: &Table) -> Result<Vec<Shape>> {
    let shape = store::partitioned(connection, table.oid, "", None).await?;
    let Some(column) = shape.key_column else {
        return Err(Error::usage(format!("{} is not partitioned by one column", table.relation.label()))
            .with_hint("explain is for partitioned tables; adopt it first: ebb partition adopt"));
    };
    // Without a policy nobody knows what a period is; a month is the usual one.
    let policy = list::policies(connection, Some(&table.relation.label())).await;
    let policy = policy.ok().and_then(|found| found.into_iter().next()).map(|(_, policy)| policy);
    let (by, unit) = policy.as_ref().map_or(("month", None), |policy| (policy.by.as_str(), policy.unit_word()));
    let columns: Columns = sql!("explain_columns" as Columns)
        .bind(i64::from(table.oid))
        .bind(&column)
        .bind(by)
        .bind(unit)
        .bind(policy.as_ref().map_or("UTC", |policy| policy.zone.name()))
        .fetch_one(&mut *connection)
        .await?;
    let (relation, name) = (&table.relation, Ident::new(&columns.column_name));
    let literal = |text: &str| Literal(text).to_string();
    let (this, next) = (literal(&columns.this), literal(&columns.next));
    let mut shapes = vec![
        Shape {
            name: "insert".into(),
            sql: format!("INSERT INTO {relation} ({name}) VALUES ({this})"),
            reachable: Some(0),
            best: None,
            advice: "an insert finds its partition without reading any".into(),
        },
        Shape {
            name: "count one period".into(),
            sql: format!("SELECT count(*) FROM {relation} WHERE {name} >= {this} AND {name} < {next}"),
            reachable: Some(1),
            best: None,
            advice: format!("compare {name} itself with constants, not an expression over it"),
        },
        Shape {
            name: "list over three periods".into(),
            sql: format!(
                "SELECT DISTINCT {} FROM {relation} WHERE {name} >= {this} AND {name} < {} LIMIT 50000",
                columns.key_columns.first().map_or_else(|| name.to_string(), |key| Ident::new(key).to_string()),
                literal(&columns.ahead)
            ),
            reachable: Some(3),
            best: None,
            advice: format!("compare {name} itself with constants, not an expression over it"),
        },
    ];
    if let (Some(derived), Some((value, begin_with_it))) = (&columns.derived, derived_now(connection, &columns).await?)
    {
        let derived = Ident::new(derived);
        shapes.push(Shape {
            name: "count by a derived column".into(),
            sql: format!("SELECT count(*) FROM {relation} WHERE {derived} = {}", literal(&value)),
            reachable: Some(begin_with_it.max(1) + columns.open_ended.max(0) as usize),
            best: None,
            advice: format!(
                "the server does not know that {derived} follows from {name}: add {name} >= … AND {name} < … to the WHERE; \
                 partitions that Ebb makes have a CHECK on {derived}, those of history after `ebb partition split`"
            ),
        });
    }
    let key: Vec<(&String, &String)> =
        columns.key_columns.iter().zip(&columns.key_types).filter(|(key, _)| **key != columns.column_name).collect();
    if !key.is_empty() {
        let conditions: Vec<String> =
            key.iter().map(|(key, ty)| format!("{} = NULL::{ty}", Ident::new(key.as_str()))).collect();
        // A NULL would be planned as nothing at all; a parameter is planned as any value.
        let conditions = conditions.join(" AND ").replace("NULL::", "(SELECT NULL)::");
        shapes.push(Shape {
            name: "update by key".into(),
            sql: format!("UPDATE {relation} SET {name} = {name} WHERE {conditions}"),
            reachable: None,
            best: Some(1),
            advice: match &columns.guard {
                Some(tells) => {
                    format!("the key may be in any partition: name {name} too, as below; the guard knows it: {tells}")
                }
                None => format!(
                    "the key may be in any partition: name {name} too, as below; --guard lets callers look it up"
                ),
            },
        });
        shapes.push(Shape {
            name: "update by key and time".into(),
            sql: format!("UPDATE {relation} SET {name} = {name} WHERE {conditions} AND {name} = {this}"),
            reachable: Some(1),
            best: None,
            advice: format!("compare {name} itself with constants, not an expression over it"),
        });
    }
    let expiry = columns.expiry.as_ref().unwrap_or(&columns.column_name);
    if *expiry != columns.column_name {
        shapes.push(Shape {
            name: "delete what is expired".into(),
            sql: format!("DELETE FROM {relation} WHERE {} < now()", Ident::new(expiry.as_str())),
            reachable: None,
            best: Some(0),
            advice: match policy.and_then(|policy| policy.keep) {
                Some(keep) => format!(
                    "{expiry} may be past in any partition: leave it to keep = \"{keep}\", which drops whole partitions"
                ),
                None => format!("{expiry} may be past in any partition: let `keep` drop whole partitions instead"),
            },
        });
    }
    Ok(shapes)
}

/// What a derived column is now, and how many partitions begin with that; none where it depends on more than the
/// partition column.
async fn derived_now(connection: &mut PgConnection, columns: &Columns) -> Result<Option<(String, usize)>> {
    let (Some(now), Some(count)) = (&columns.derived_now, &columns.derived_in) else { return Ok(None) };
    let mut inner = connection.begin().await?;
    let found = async {
        let value: Option<String> =
            sqlx::query_scalar(AssertSqlSafe(now.clone())).persistent(false).fetch_one(&mut *inner).await?;
        let Some(value) = value else { return Ok::<_, sqlx::Error>(None) };
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(count.clone()))
            .persistent(false)
            .bind(&value)
            .fetch_one(&mut *inner)
            .await?;
        Ok(Some((value, count.max(0) as usize)))
    }
    .await;
    inner.rollback().await?;
    Ok(found.ok().flatten())
}

async fn one(connection: &mut PgConnection, leaves: &BTreeSet<String>, shape: Shape) -> Result<Explained> {
    if let Some(parameter) = parameter(&shape.sql) {
        return Err(Error::usage(format!("{} has the parameter {parameter}", shape.name))
            .with_hint("put a value in its place: which partitions are read depends on it"));
    }
    // Sent as one prepared statement: a second one behind it is refused by the server.
    let sql = format!("EXPLAIN (FORMAT JSON, VERBOSE, COSTS OFF) {}", shape.sql);
    let plan: Value =
        sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await.map_err(|error| {
            let error = Error::from(error).context(&shape.name);
            match error.sqlstate().as_deref() {
                Some("25006") => error.with_hint(
                    "a function that it calls says that it is immutable, and writes: nothing is executed here",
                ),
                _ => error,
            }
        })?;
    let (mut reads, mut whole, mut indexes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    walk(&plan, &mut |node| {
        let text = |key: &str| node.get(key).and_then(Value::as_str);
        let kind = text("Node Type").unwrap_or_default();
        if let (Some(schema), Some(name)) = (text("Schema"), text("Relation Name"))
            && kind.contains("Scan")
        {
            let label = crate::pg::Relation::new(schema, name).label();
            if leaves.contains(&label) {
                if kind == "Seq Scan" {
                    whole.insert(label.clone());
                }
                reads.insert(label);
            }
        }
        indexes.extend(text("Index Name").map(str::to_owned));
    });
    let falls_short = shape.reachable.is_some_and(|reachable| reads.len() > reachable);
    let advised = match shape.best {
        Some(best) => reads.len() > best,
        None => falls_short || (shape.reachable.is_none() && reads.len() > 1 && reads.len() == leaves.len()),
    };
    let how = in_words(&reads, &whole, &indexes, leaves.len());
    let words = if advised { format!("{how}; {}", shape.advice) } else { how };
    Ok(Explained {
        name: shape.name,
        sql: shape.sql,
        reads: reads.into_iter().collect(),
        partitions: leaves.len(),
        indexes: indexes.into_iter().collect(),
        scans: !whole.is_empty(),
        reachable: shape.reachable,
        falls_short,
        words,
    })
}

/// Names are said up to here; then how many more there are.
const NAMED: usize = 4;

fn in_words(reads: &BTreeSet<String>, whole: &BTreeSet<String>, indexes: &BTreeSet<String>, of: usize) -> String {
    let names = |all: &BTreeSet<String>| {
        let mut some: Vec<&str> = all.iter().take(NAMED).map(String::as_str).collect();
        let more = format!("{} more", all.len().saturating_sub(NAMED));
        if all.len() > NAMED {
            some.push(&more);
        }
        some.join(", ")
    };
    if reads.is_empty() {
        return "reads no partition".to_owned();
    }
    let mut ways = Vec::new();
    if !indexes.is_empty() {
        ways.push(format!("by {}", names(indexes)));
    }
    if whole.len() == reads.len() {
        ways.push("from end to end".to_owned());
    } else if !whole.is_empty() {
        ways.push(format!("{} from end to end", names(whole)));
    }
    format!("reads {} of {of} partitions ({}), {}", reads.len(), names(reads), ways.join(", and "))
}

fn walk(value: &Value, visit: &mut impl FnMut(&Value)) {
    match value {
        Value::Object(node) => {
            if node.contains_key("Node Type") {
                visit(value);
            }
            node.values().for_each(|inner| walk(inner, visit));
        }
        Value::Array(items) => items.iter().for_each(|inner| walk(inner, visit)),
        _ => {}
    }
}
