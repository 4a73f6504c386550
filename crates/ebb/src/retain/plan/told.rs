//! What a plan names besides the tree: accounts that rows of others are given to, columns that look like links, links that look like
//! others'. Invariant: what it proposes is complete, and works as it stands.

use sqlx::PgConnection;

use crate::Result;
use crate::pg::{Ident, Literal, Relation};
use crate::policy::{Retain, Subjects};
use crate::retain::compile::Compiled;
use crate::retain::store::rows;
use crate::retain::tree::{Finding, Shape, Tree, children, entry, text};
use crate::retain::{MissingColumn, look, store, work};

/// Rows that others are given to instead of a subject: whoever they are about is a subject as well, or goes with one, or is not
/// there.
pub(super) async fn ghosts(
    connection: &mut PgConnection,
    compiled: &Compiled,
    policy: &Retain,
    installed: bool,
) -> Result<Vec<Finding>> {
    let (tree, mut findings) = (&compiled.tree, Vec::new());
    for (at, edge) in tree.edges.iter().enumerate().filter(|(_, edge)| edge.key.is_some()) {
        let (child, parent) = (&tree.nodes[edge.child].relation, &tree.nodes[edge.parent]);
        let Some(set) = compiled.sets.get(&at).filter(|set| !set.ends_link()) else { continue };
        let Some(row) = rows::given(connection, tree, edge, set).await? else { continue };
        let names: Vec<&str> = edge.child_columns.iter().map(Ident::as_str).collect();
        let (names, whose) = (names.join(", "), parent.relation.label());
        let mut warn = |message: String, fix: String| {
            findings.push(Finding { refuses: false, table: child.label(), message, fix: Some(fix) });
        };
        let key: Vec<Ident> = parent.key.iter().map(|column| column.name.clone()).collect();
        let same = (parent.read.as_slice(), edge.parent_columns.as_slice(), edge.parent_columns.as_slice());
        if !rows::any(connection, &parent.relation, same, &row, "true").await? {
            let message = format!(
                "its rows are given to a row of {whose} by {names} that is not there: subjects who have such rows fail"
            );
            warn(message, format!("insert it into {whose}"));
        } else if edge.parent != 0 {
            let message = format!(
                "its rows are given to a row of {whose} by {names} that goes with its own subject, who fails then"
            );
            warn(message, "let that row belong to nobody".to_owned());
        } else {
            let own = rows::named_by(&row.row(0), &parent.read, &key);
            if let Some(id) = &own
                && is_protected(connection, compiled, policy.name.as_str(), id, installed).await?
            {
                continue;
            }
            let message = format!(
                "its rows are given to a row of {whose} by {names} that is a subject itself: soft-deleted, it fails for as long as it has them"
            );
            let values: Vec<String> = row.row(0).into_iter().flatten().collect();
            let fix = match (own.is_some(), policy.subjects()) {
                (true, Some(subjects)) => protection(subjects, &parent.relation, &edge.parent_columns, &values),
                _ => format!("let no application delete that row of {whose}"),
            };
            warn(message, fix);
        }
    }
    Ok(findings)
}

/// Whether an account stays, whoever deletes it.
async fn is_protected(
    connection: &mut PgConnection,
    compiled: &Compiled,
    policy: &str,
    id: &str,
    installed: bool,
) -> Result<bool> {
    if installed && store::hold_of(connection, policy, id).await?.is_some() {
        return Ok(true);
    }
    Ok(!look::unless(connection, compiled, &[id]).await?.holds.is_empty())
}

/// The `unless` that keeps one row, besides what it keeps already. A hold would do that too, and bind whoever shares a row with it.
fn protection(subjects: &Subjects, relation: &Relation, columns: &[Ident], values: &[String]) -> String {
    let table = plain(&relation.name);
    let same = columns.iter().zip(values).map(|(column, value)| {
        let value = match value.parse::<i64>() {
            Ok(number) => number.to_string(),
            Err(_) => Literal(value).to_string(),
        };
        format!("{table}.{} = {value}", plain(column))
    });
    let same = same.collect::<Vec<_>>().join(" and ");
    let condition = match &subjects.unless {
        Some(known) => format!("({known}) or {same}"),
        None => same,
    };
    format!("unless = {}", text(&condition))
}

/// A name as people write it, quoted where SQL needs it.
fn plain(name: &Ident) -> String {
    let word = name.as_str();
    let simple = word.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    // Tables that are often called so, which are words of SQL.
    let reserved = ["user", "order", "group", "table", "column", "grant", "check", "end", "all"].contains(&word);
    if simple && !reserved { word.to_owned() } else { name.to_string() }
}

/// A column that the policy names and its table lacks.
pub(super) fn missing(column: MissingColumn) -> Finding {
    let MissingColumn { policy, table, column, statement } = column;
    let message = format!("it has no column {column}, which policy {policy} names");
    Finding { refuses: true, table, message, fix: Some(statement) }
}

/// Columns that look as if they held subjects' ids without a foreign key.
pub(super) async fn suspects(connection: &mut PgConnection, policy: &Retain, known: &Shape) -> Result<Vec<Finding>> {
    let table = work::table(connection, policy).await?;
    let root = table.relation.label();
    let has_children = policy.subjects().is_some_and(|subjects| !subjects.children.is_empty());
    let mut findings = Vec::new();
    for suspect in store::suspects(connection, table.oid, known).await? {
        let stay = match known.tables.iter().any(|known| known.table == suspect.table) {
            true => "rows that only it leads to stay",
            false => "its rows stay",
        };
        let column = &suspect.column;
        let message = format!("its column {column} looks like an id of {root}, and no foreign key says so: {stay}");
        let columns: Vec<String> =
            suspect.columns.iter().map(|name| name.clone().unwrap_or_else(|| "…".into())).collect();
        let mut actions = vec!["delete", "anonymize", "keep"];
        if suspect.nullable {
            actions.insert(1, "nullify");
        }
        let proposed = entry(&suspect.table, &columns, &suspect.references, &actions);
        let proposed = match has_children {
            true => format!("add to children: {proposed}"),
            false => children(&proposed),
        };
        let first = suspect.other_type.map_or(String::new(), |other| {
            let at = suspect.columns.iter().position(|name| name.as_ref() == Some(column)).unwrap_or(0);
            format!(
                "it is {} and {} of {root} is {other}: give it that type, or add a column of it GENERATED ALWAYS AS an expression; then ",
                suspect.sql_type, suspect.references[at]
            )
        });
        let fix = Some(format!("if they belong to a subject: {first}{proposed}"));
        findings.push(Finding { refuses: false, table: suspect.table, message, fix });
    }
    Ok(findings)
}

/// Links of `children` whose column is called after another table: an order's id taken for a user's.
pub(super) async fn misread(connection: &mut PgConnection, root: u32, tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for edge in tree.edges.iter().filter(|edge| edge.key.is_none() && !tree.nodes[edge.child].is_out) {
        let (child, whose) = (&tree.nodes[edge.child].relation, tree.nodes[0].relation.label());
        let [column] = edge.child_columns.as_slice() else { continue };
        let meant = store::meant_by_name(connection, root, column.as_str()).await?;
        let Some((other, key)) = meant.into_iter().find(|(other, _)| *other != child.label()) else { continue };
        let message = format!(
            "children takes its column {} for {} of {whose}; by its name it refers to {other}",
            column.as_str(),
            edge.parent_columns[0].as_str()
        );
        let fix = format!(
            "if it does: ALTER TABLE {child} ADD FOREIGN KEY ({column}) REFERENCES {other} ({}) NOT VALID, and take `references` out of its entry",
            key.iter().map(|name| Ident::new(name).to_string()).collect::<Vec<_>>().join(", ")
        );
        findings.push(Finding { refuses: false, table: child.label(), message, fix: Some(fix) });
    }
    Ok(findings)
}
