//! The columns of its root table that a policy writes. Invariant: each has one meaning, and takes what it will be given: a mirror that
//! is also the soft delete would take back, or put off, what it mirrors.

use sqlx::PgConnection;

use super::store::{self, WrittenColumn};
use crate::pg::{Ident, catalog};
use crate::policy::{Retain, StatusColumn, Subjects};
use crate::{Error, Result};

/// Refuses what cannot be written, or means something else already.
pub(super) async fn check(
    connection: &mut PgConnection,
    (table, key): (&catalog::Table, &[Ident]),
    policy: &Retain,
    subjects: &Subjects,
) -> Result<()> {
    let mut known: Vec<(String, &str)> = key.iter().map(|name| (name.as_str().to_owned(), "its key")).collect();
    for (name, meaning) in read(policy, subjects) {
        match resolved(connection, table, name).await {
            // Only warnings want whatever is missing of these: nobody stays because of it.
            Err(error) if error.is_config() => {}
            name => known.push((name?, meaning)),
        }
    }
    let deleted_at = resolved(connection, table, &subjects.deleted_at).await?;
    if store::written_column(connection, table.oid, &deleted_at).await?.is_own {
        let text = format!("column {deleted_at} is generated: nobody can delete or restore a subject by it");
        return Err(refused("deleted_at", text));
    }
    for (name, entry, emptied) in written(subjects) {
        let name = resolved(connection, table, name).await?;
        if let Some((_, meaning)) = known.iter().find(|(other, _)| *other == name) {
            return Err(refused(
                entry,
                format!("column {name} is {meaning}, and cannot be written for `{entry}`, too"),
            ));
        }
        let column = store::written_column(connection, table.oid, &name).await?;
        if column.is_own {
            return Err(refused(entry, format!("column {name} is generated: nobody can write it")));
        }
        if emptied && column.wants_value {
            let text = format!("column {name} cannot be null, which it is while nobody is deleted");
            let fix = format!("ALTER TABLE {} ALTER {} DROP NOT NULL", table.relation, Ident::new(&name));
            return Err(refused(entry, text).with_hint(fix));
        }
        if let Some(status) = subjects.status.as_ref().filter(|_| entry == "status") {
            values(connection, status, &column).await?;
        }
        known.push((name, if entry == "status" { "`status`" } else { "another `mirror`" }));
    }
    Ok(())
}

/// Columns that say something else already.
fn read<'a>(policy: &'a Retain, subjects: &'a Subjects) -> Vec<(&'a str, &'static str)> {
    let contact = subjects.warning.as_ref().map(|warning| &warning.contact);
    let contact = contact.into_iter().flat_map(|contact| [Some(&contact.email), contact.name.as_ref()]).flatten();
    let tenant = policy.tenant.iter().map(|name| (name.as_str(), "`tenant`"));
    let read = tenant.chain(contact.map(|name| (name.as_str(), "`contact`")));
    read.chain([(subjects.deleted_at.as_str(), "`deleted_at`")]).collect()
}

/// Columns that are written, which key of the policy names them, and whether they are emptied, too.
fn written(subjects: &Subjects) -> Vec<(&str, &'static str, bool)> {
    let mirror = &subjects.mirror;
    let mirrors = [(&mirror.due, true), (&mirror.notified, true), (&mirror.attempted, true), (&mirror.touched, false)];
    let mirrors = mirrors.into_iter().filter_map(|(name, emptied)| Some((name.as_deref()?, "mirror", emptied)));
    subjects.status.iter().map(|status| (status.column.as_str(), "status", false)).chain(mirrors).collect()
}

/// What the status is set to is something that its column can say.
async fn values(connection: &mut PgConnection, status: &StatusColumn, column: &WrittenColumn) -> Result<()> {
    let StatusColumn { deleted, active, .. } = status;
    if deleted == active {
        return Err(refused("status", format!("{deleted:?} means both deleted and active")));
    }
    for value in [deleted, active] {
        let kept = store::kept_as(connection, value, column).await?;
        if kept.as_ref() != Some(value) {
            return Err(refused(
                "status",
                format!("column {} is {} and cannot be {value:?}", column.name, column.sql_type),
            ));
        }
    }
    Ok(())
}

async fn resolved(connection: &mut PgConnection, table: &catalog::Table, name: &str) -> Result<String> {
    let column = catalog::column(connection, &table.relation, table.oid, name).await?;
    Ok(column.name.as_str().to_owned())
}

fn refused(entry: &'static str, text: String) -> Error {
    Error::config(text).at_key(entry)
}
