//! The way back: before the cutover whatever was prepared goes, after it the old table gets everything back.

use super::identity::move_identity_back;
use super::names::Names;
use super::{BOUND, Composer, How, Step, comment, using_index};
use crate::partition::adopt::guard;
use crate::pg::{Ident, Literal, Relation, block};

impl Composer<'_> {
    /// The keys as they were, built while the wider ones are still in force.
    pub(super) fn indexes_as_before(&self, on: &Relation) -> Vec<Step> {
        let steps = self.growing().map(|(n, index)| {
            let name = self.temporary("b", n);
            let sql = format!("CREATE UNIQUE INDEX CONCURRENTLY {name} ON {on} {}", index.body());
            Step {
                index: Some((self.subject.head.schema_name.clone(), name.as_str().to_owned())),
                ..Step::new(&format!("build {} as it was", index.name), How::Index, vec![sql])
            }
        });
        steps.collect()
    }

    /// Puts them in force, with everything that belonged to them.
    pub(super) fn keys_as_before(&self) -> Vec<String> {
        let (table, mut sql) = (&self.table, Vec::new());
        for (n, index) in self.growing() {
            let (new, old) = (self.temporary("b", n), Ident::new(&index.name));
            match &index.constraint_name {
                Some(name) => {
                    let name = Ident::new(name);
                    sql.push(format!("ALTER TABLE {table} DROP CONSTRAINT {name}"));
                    sql.push(format!("ALTER TABLE {table} ADD CONSTRAINT {name} {}", using_index(index, &new)));
                    let constraint = format!("{name} ON {table}");
                    sql.extend(index.constraint_comment.iter().map(|text| comment("CONSTRAINT", &constraint, text)));
                }
                None => {
                    sql.push(format!("DROP INDEX {}", self.in_schema(&old)));
                    sql.push(format!("ALTER INDEX {} RENAME TO {old}", self.in_schema(&new)));
                }
            }
            let own = self.in_schema(&old).to_string();
            sql.extend(index.comment.iter().map(|text| comment("INDEX", &own, text)));
            sql.extend(index.column_statistics.iter().map(|change| format!("ALTER INDEX {own} {change}")));
            if index.is_replica_identity {
                sql.push(format!("ALTER TABLE {table} REPLICA IDENTITY USING INDEX {old}"));
            }
            if index.is_clustered {
                sql.push(format!("ALTER TABLE {table} CLUSTER ON {old}"));
            }
        }
        sql
    }

    /// Whatever was prepared before the cutover goes; what was not is not missed.
    pub(super) fn abandon(&self) -> Vec<String> {
        let (table, parent) = (&self.table, &self.parent);
        let mut sql = vec![
            format!("DROP TABLE IF EXISTS {parent}"),
            format!("ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {BOUND}"),
        ];
        let triggers = guard::triggers(self.request);
        sql.extend(triggers.map(|trigger| format!("DROP TRIGGER IF EXISTS {trigger} ON {table}")));
        if !self.subject.head.not_null {
            sql.push(format!("ALTER TABLE {table} ALTER COLUMN {} DROP NOT NULL", self.column));
        }
        sql
    }

    /// The way back, once no partition is attached any more: the new table hides again, the old one gets everything back.
    pub(super) fn back(&self) -> Vec<String> {
        let (table, parent, history) = (&self.table, &self.parent, &self.history);
        let mut sql = self.publications(table, "DROP");
        sql.extend(self.names(table, Names::Hide));
        sql.push(format!("ALTER TABLE {table} RENAME TO {}", parent.name));
        sql.push(format!("ALTER TABLE {history} RENAME TO {}", table.name));
        sql.extend(self.names(table, Names::Return));
        sql.extend(self.keys_as_before());
        if !self.subject.head.not_null {
            sql.push(format!("ALTER TABLE {table} ALTER COLUMN {} DROP NOT NULL", self.column));
        }
        for serial in self.subject.serials() {
            let column = Ident::new(&serial.column_name);
            sql.push(format!("ALTER SEQUENCE {} OWNED BY {table}.{column}", serial.relation()));
        }
        for (n, identity) in self.subject.identities().enumerate() {
            sql.extend(move_identity_back(identity, table, parent, n));
        }
        for trigger in &self.subject.triggers {
            // The way there has read it.
            sql.extend(trigger.on(table).unwrap_or_default());
        }
        for publication in self.subject.publications.iter().filter(|publication| !publication.all_tables) {
            let name = Ident::new(&publication.name);
            sql.push(format!("ALTER PUBLICATION {name} ADD TABLE {table}{}", publication.columns));
            if !publication.via_root {
                sql.push(not_through_root(&publication.name));
            }
        }
        sql.extend(self.subject.views.iter().map(|view| view.definition.clone()));
        sql
    }
}

/// As it was before, unless by now it has another partitioned table, by name or by schema: whose partitions would be sent under their own names.
fn not_through_root(publication: &str) -> String {
    block(&format!(
        "BEGIN IF NOT EXISTS (SELECT FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname \
         JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename WHERE p.pubname = {} AND c.relkind = 'p') THEN ALTER PUBLICATION {} SET (publish_via_partition_root = false); END IF; END",
        Literal(publication),
        Ident::new(publication)
    ))
}
