//! The way there, on the table itself: its bound, the wider keys, and the cutover.

use super::identity::move_identity;
use super::names::Names;
use super::{BOUND, Composer, How, Step, unread, using_index};
use crate::Result;
use crate::partition::adopt::guard;
use crate::partition::adopt::moved::Moved;
use crate::partition::adopt::subject::with_column;
use crate::pg::{Ident, Literal};

impl Composer<'_> {
    pub(super) fn bound(&self, literal: &str) -> Vec<Step> {
        let (table, column) = (&self.table, &self.column);
        let check = format!(
            "ALTER TABLE {table} ADD CONSTRAINT {BOUND} CHECK ({column} IS NOT NULL AND {column} < {}) NOT VALID",
            Literal(literal)
        );
        let mut steps = vec![
            Step::new("bound the table", How::Short, vec![check]),
            Step::proof("prove the bound", table, &Ident::new(BOUND), true),
        ];
        if !self.subject.head.not_null {
            let sql = format!("ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL");
            steps.push(Step::new("the proof makes the column NOT NULL", How::Short, vec![sql]));
        }
        steps
    }

    pub(super) fn new_indexes(&self) -> Result<Vec<Step>> {
        self.growing()
            .map(|(n, index)| {
                let name = self.temporary("k", n);
                let body = with_column(&index.body(), &self.column).ok_or_else(|| unread(index))?;
                let sql = format!("CREATE UNIQUE INDEX CONCURRENTLY {name} ON {} {body}", self.table);
                let schema = self.subject.head.schema_name.clone();
                Ok(Step {
                    index: Some((schema, name.as_str().to_owned())),
                    ..Step::new(&format!("build the index that replaces {}", index.name), How::Index, vec![sql])
                })
            })
            .collect()
    }

    /// In one transaction: from here on the old key is not enforced any more, and its wider successor is.
    pub(super) fn swap_keys(&self) -> Vec<String> {
        let table = &self.table;
        let mut sql = vec![format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"), self.portrait("require")];
        sql.extend(self.referrers.iter().filter_map(Moved::swap));
        for (n, index) in self.growing() {
            let (new, old) = (self.temporary("k", n), Ident::new(&index.name));
            match &index.constraint_name {
                Some(name) => {
                    let name = Ident::new(name);
                    sql.push(format!("ALTER TABLE {table} DROP CONSTRAINT {name}"));
                    sql.push(format!("ALTER TABLE {table} ADD CONSTRAINT {name} {}", using_index(index, &new)));
                }
                None => {
                    sql.push(format!("DROP INDEX {}", self.in_schema(&old)));
                    sql.push(format!("ALTER INDEX {} RENAME TO {old}", self.in_schema(&new)));
                }
            }
            let own = self.in_schema(&old);
            sql.extend(index.column_statistics.iter().map(|change| format!("ALTER INDEX {own} {change}")));
            if index.is_replica_identity {
                sql.push(format!("ALTER TABLE {table} REPLICA IDENTITY USING INDEX {old}"));
            }
        }
        sql.push(self.portrait("keep"));
        sql
    }

    /// What somebody else changed since the plan was written would be lost: looked at under the lock.
    fn portrait(&self, verb: &str) -> String {
        format!(
            "SELECT ebb.{verb}_portrait({}, {}::regclass, {})",
            Literal(&self.table.label()),
            Literal(&self.table.to_string()),
            Literal(self.column.as_str())
        )
    }

    pub(super) fn cutover(&self, literal: &str) -> Vec<String> {
        let (table, parent, history) = (&self.table, &self.parent, &self.history);
        let mut sql = vec![format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"), self.portrait("require")];
        sql.extend(self.referrers.iter().map(Moved::leave));
        let triggers = self.subject.triggers.iter().map(|trigger| trigger.name.clone());
        let triggers = triggers.chain(guard::triggers(self.request));
        sql.extend(triggers.map(|name| format!("DROP TRIGGER {} ON {table}", Ident::new(name))));
        for serial in self.subject.serials() {
            let column = Ident::new(&serial.column_name);
            sql.push(format!("ALTER SEQUENCE {} OWNED BY {parent}.{column}", serial.relation()));
        }
        for identity in self.subject.identities() {
            sql.extend(move_identity(identity, table, parent));
        }
        sql.extend(self.publications(table, "DROP"));
        sql.extend(self.names(table, Names::Away));
        sql.push(format!("ALTER TABLE {table} RENAME TO {}", history.name));
        sql.push(format!("ALTER TABLE {parent} RENAME TO {}", table.name));
        sql.extend(self.names(table, Names::Arrive));
        sql.push(format!(
            "ALTER TABLE {table} ATTACH PARTITION {history} FOR VALUES FROM (MINVALUE) TO ({})",
            Literal(literal)
        ));
        sql.push(format!("ALTER TABLE {history} DROP CONSTRAINT {BOUND}"));
        sql.extend(self.referrers.iter().flat_map(Moved::arrive));
        sql.extend(self.publications(table, "ADD"));
        sql.extend(self.subject.views.iter().map(|view| view.definition.clone()));
        sql.push(self.portrait("keep"));
        sql
    }
}
