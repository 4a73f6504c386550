//! Foreign keys that come in. A partitioned table's keys contain its partition column, so whoever refers to it must carry
//! that column too. Here is who refers, what stands in the way of moving, and what changes for callers.

use sqlx::PgConnection;

use super::Request;
use super::moved::{Added, Moved};
use super::plan::fitting;
use super::preflight::Findings;
use super::subject::Subject;
use crate::pg::{Ident, Relation};
use crate::{Result, sql};

/// A foreign key of another table, as the catalog has it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Referrer {
    name: String,
    schema_name: String,
    table_name: String,
    is_itself: bool,
    relkind: String,
    is_partition: bool,
    owner: String,
    owned: bool,
    inherits: bool,
    definition: String,
    is_valid: bool,
    is_deferrable: bool,
    is_full: bool,
    on_delete: String,
    on_update: String,
    columns: Vec<String>,
    referenced: Vec<String>,
    all_columns: Vec<String>,
    has_update_triggers: bool,
    is_published: bool,
    comment: Option<String>,
}

pub(crate) async fn read(connection: &mut PgConnection, oid: i64) -> Result<Vec<Referrer>> {
    Ok(sql!("referrers" as Referrer).bind(oid).fetch_all(connection).await?)
}

impl Referrer {
    fn table(&self) -> Relation {
        Relation::new(&self.schema_name, &self.table_name)
    }

    /// Whether it names the partition column already, and only has to follow the name.
    fn carries(&self, subject: &Subject) -> bool {
        self.referenced.contains(&subject.head.column_name)
    }

    /// What the column is called that it gets.
    fn new_column(&self, subject: &Subject) -> String {
        fitting(&self.columns.join("_"), &format!("_{}", subject.head.column_name))
    }

    /// Why it cannot move, and the way out.
    fn obstacle(&self, subject: &Subject) -> Option<(&'static str, String)> {
        let (table, name) = (self.table(), Ident::new(&self.name));
        let drop_it = format!("drop it: ALTER TABLE {table} DROP CONSTRAINT {name}");
        let column = self.new_column(subject);
        if self.is_itself {
            return Some(("it refers to its own table, which moves", drop_it));
        }
        if self.relkind != "r" || self.is_partition || self.inherits {
            return Some(("its table is partitioned, or has a parent or children", drop_it));
        }
        if !self.owned {
            return Some((
                "its table belongs to a role that you may not act as",
                format!("GRANT {} TO CURRENT_USER", Ident::new(&self.owner)),
            ));
        }
        if subject.head.is_forced && !self.carries(subject) {
            return Some((
                "row-level security is forced upon the owner of this table, who would not see every row that is referred to",
                format!("ALTER TABLE {} NO FORCE ROW LEVEL SECURITY", subject.relation()),
            ));
        }
        if !self.is_valid {
            return Some(("it is NOT VALID", format!("ALTER TABLE {table} VALIDATE CONSTRAINT {name}")));
        }
        if self.is_deferrable {
            return Some((
                "it is DEFERRABLE: the time of a row that comes later in the transaction cannot be filled in",
                format!("ALTER TABLE {table} ALTER CONSTRAINT {name} NOT DEFERRABLE"),
            ));
        }
        if self.is_full || self.on_delete == "d" || self.on_update == "d" {
            return Some(("it is MATCH FULL or sets defaults, which a column more would change", drop_it));
        }
        if !self.carries(subject) && self.all_columns.contains(&column) {
            return Some(("its table has a column of the name that would be added", format!("rename {column}")));
        }
        None
    }

    fn moved(&self, n: usize, subject: &Subject) -> Moved {
        let added = (!self.carries(subject))
            .then(|| Added { name: self.new_column(subject), column_type: subject.head.column_type.clone() });
        Moved {
            table: (self.schema_name.clone(), self.table_name.clone()),
            name: self.name.clone(),
            definition: self.definition.clone(),
            comment: self.comment.clone(),
            on_delete: self.on_delete.clone(),
            on_update: self.on_update.clone(),
            columns: self.columns.clone(),
            referenced: self.referenced.clone(),
            owner: self.owner.clone(),
            has_update_triggers: self.has_update_triggers,
            added,
            target: (subject.head.schema_name.clone(), subject.head.table_name.clone()),
            target_column: subject.head.column_name.clone(),
            target_owner: subject.head.owner.clone(),
            mark: format!("ebb_{}_", subject.head.oid),
            n,
        }
    }
}

/// Says which keys move, and which cannot.
pub(crate) fn check(subject: &Subject, request: &Request, found: &mut Findings) {
    let column = &subject.head.column_name;
    for referrer in &subject.referrers {
        let (what, label) =
            (format!("foreign key {} of {}", referrer.name, referrer.table().label()), referrer.table().label());
        if !request.move_foreign_keys {
            found.refuse(
                format!("{what} references this table"),
                format!(
                    "a partitioned table's keys contain its partition column, and {label} must carry it: --move-foreign-keys adds it there; \
                     or drop the foreign key"
                ),
            );
            continue;
        }
        if let Some((why, fix)) = referrer.obstacle(subject) {
            found.refuse(format!("{what} cannot move: {why}"), fix);
            continue;
        }
        if referrer.carries(subject) {
            found.change(format!("{what} follows the name to the new table"), "nothing to do");
            continue;
        }
        let added = referrer.new_column(subject);
        found.change(
            format!("{label} gets the column {added}, and {what} includes it"),
            format!("a trigger fills it in where callers do not name it; a {column} that is referred to changes only by ON UPDATE CASCADE"),
        );
        if referrer.is_published {
            found.change(
                format!("{label} is published, and its subscribers would meet a column they do not have"),
                format!("add {added} there before"),
            );
        }
    }
    let names: Vec<_> = subject.referrers.iter().map(|one| (one.table().label(), one.new_column(subject))).collect();
    for (n, (label, added)) in names.iter().enumerate() {
        if names[..n].contains(&names[n]) && request.move_foreign_keys {
            found.refuse(
                format!(
                    "two foreign keys of {label} over the same columns refer to this table, and both would add {added}"
                ),
                "drop one of them",
            );
        }
    }
}

/// Filling sets off triggers of the referring tables, unless this role may silence them: says so before anything changes.
pub(crate) fn check_silence(subject: &Subject, quiet: bool, found: &mut Findings) {
    for referrer in subject.referrers.iter().filter(|one| one.has_update_triggers && !quiet) {
        found.refuse(
            format!("filling {} would set off its triggers", referrer.table().label()),
            "run it as a superuser, or from 15 on: GRANT SET ON PARAMETER session_replication_role TO CURRENT_USER",
        );
    }
}

/// The keys that move with this table.
pub(crate) fn moved(subject: &Subject) -> Vec<Moved> {
    subject.referrers.iter().enumerate().map(|(n, referrer)| referrer.moved(n, subject)).collect()
}
