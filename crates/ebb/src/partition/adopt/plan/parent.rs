//! The partitioned table, made unseen with everything that the old one has.

use super::{BOUND, Composer, comment, unread};
use crate::Result;
use crate::partition::adopt::guard;
use crate::partition::adopt::subject::{Index, with_column};
use crate::pg::{Ident, Literal, Relation, block};

impl Composer<'_> {
    pub(super) fn prepare(&self) -> Result<Vec<String>> {
        let (head, parent) = (&self.subject.head, &self.parent);
        let tablespace =
            head.tablespace.as_ref().map_or(String::new(), |name| format!(" TABLESPACE {}", Ident::new(name)));
        let mut sql = vec![
            format!(
                "CREATE TABLE {parent} (LIKE {} INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING IDENTITY INCLUDING CONSTRAINTS \
                 INCLUDING STORAGE INCLUDING COMPRESSION INCLUDING COMMENTS) PARTITION BY RANGE ({}){tablespace}",
                self.table, self.column
            ),
            format!("ALTER TABLE {parent} DROP CONSTRAINT {BOUND}"),
            format!("ALTER TABLE {parent} OWNER TO {}", Ident::new(&head.owner)),
        ];
        sql.extend(head.column_statistics.iter().map(|change| format!("ALTER TABLE {parent} {change}")));
        sql.extend(head.comment.iter().map(|text| format!("COMMENT ON TABLE {parent} IS {}", Literal(text))));
        for (n, index) in self.indexes() {
            sql.extend(self.parent_index(n, index)?);
        }
        for key in self.subject.foreign_keys() {
            let name = Ident::new(&key.name);
            sql.push(format!("ALTER TABLE {parent} ADD CONSTRAINT {name} {}", key.definition));
            sql.extend(key.comment.iter().map(|text| comment("CONSTRAINT", &format!("{name} ON {parent}"), text)));
        }
        for (n, statistics) in self.subject.statistics.iter().enumerate() {
            let name = Relation::new(&statistics.schema_name, self.temporary("s", n).as_str());
            sql.push(format!("CREATE STATISTICS {name}{} FROM {parent}", statistics.body));
            sql.push(format!("ALTER STATISTICS {name} OWNER TO {}", Ident::new(&statistics.owner)));
            if statistics.target >= 0 {
                sql.push(format!("ALTER STATISTICS {name} SET STATISTICS {}", statistics.target));
            }
            let on = name.to_string();
            sql.extend(statistics.comment.iter().map(|text| comment("STATISTICS", &on, text)));
        }
        match head.replica_identity.as_str() {
            "f" => sql.push(format!("ALTER TABLE {parent} REPLICA IDENTITY FULL")),
            "n" => sql.push(format!("ALTER TABLE {parent} REPLICA IDENTITY NOTHING")),
            _ => {}
        }
        let oid = |relation: &Relation| format!("{}::regclass", Literal(&relation.to_string()));
        sql.push(format!("SELECT ebb.copy_row_security({}, {})", oid(&self.table), oid(parent)));
        sql.push(format!("SELECT ebb.copy_grants({}, {})", oid(&self.table), oid(parent)));
        for trigger in &self.subject.triggers {
            sql.extend(trigger.on(parent)?);
        }
        sql.extend(guard::create(self.subject, self.request, parent, guard::Watch::Changes));
        Ok(sql)
    }

    /// Its partitions, each in a transaction of its own: where the table refers to another, attaching one keeps writers of
    /// that one out. One that is there already is not made again.
    pub(super) fn partitions(&self, ahead: &[(String, String, String)]) -> Vec<String> {
        let (head, parent) = (&self.subject.head, Literal(&self.parent.to_string()).to_string());
        let each = ahead.iter().map(|(name, from, to)| {
            let partition = Relation::new(&head.schema_name, name);
            let kind = Literal(head.kind.as_deref().unwrap_or_default()).to_string();
            let mut sql = vec![format!(
                "PERFORM ebb.create_partition({parent}::regclass, {}, {}, {})",
                Literal(name),
                Literal(from),
                Literal(to)
            )];
            let checks = derived_checks(&partition, &self.column, &kind, from, to);
            sql.push(checks.replacen("SELECT", "PERFORM", 1));
            let changes = head.options.iter().map(|options| format!("SET ({options})")).chain(head.column_options());
            sql.extend(changes.map(|change| format!("ALTER TABLE {partition} {change}")));
            block(&format!(
                "BEGIN IF NOT EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
                 WHERE i.inhparent = {parent}::regclass AND c.relname = {}) THEN {}; END IF; END",
                Literal(name),
                sql.join("; ")
            ))
        });
        each.collect()
    }

    pub(super) fn parent_index(&self, n: usize, index: &Index) -> Result<Vec<String>> {
        let (parent, name) = (&self.parent, self.temporary("p", n));
        let grown = |definition: &str| match index.must_grow() {
            true => with_column(definition, &self.column).ok_or_else(|| unread(index)),
            false => Ok(definition.to_owned()),
        };
        let mut sql = Vec::new();
        match &index.constraint() {
            Some(definition) => {
                sql.push(format!("ALTER TABLE {parent} ADD CONSTRAINT {name} {}", grown(definition)?));
                let constraint = format!("{name} ON {parent}");
                sql.extend(index.constraint_comment.iter().map(|text| comment("CONSTRAINT", &constraint, text)));
            }
            None => {
                let unique = if index.is_unique { "UNIQUE " } else { "" };
                sql.push(format!("CREATE {unique}INDEX {name} ON {parent} {}", grown(&index.body())?));
            }
        }
        sql.extend(index.comment.iter().map(|text| comment("INDEX", &self.in_schema(&name).to_string(), text)));
        sql.extend(
            index.column_statistics.iter().map(|change| format!("ALTER INDEX {} {change}", self.in_schema(&name))),
        );
        if index.is_replica_identity {
            sql.push(format!("ALTER TABLE {parent} REPLICA IDENTITY USING INDEX {name}"));
        }
        Ok(sql)
    }
}

/// What the server needs to know to prune by columns that follow from the partition column.
pub(crate) fn derived_checks(partition: &Relation, column: &Ident, kind: &str, from: &str, to: &str) -> String {
    format!(
        "SELECT ebb.add_derived_checks({}::regclass, {}, {kind}, ebb.partition_moment({kind}, {}), ebb.partition_moment({kind}, {}))",
        Literal(&partition.to_string()),
        Literal(column.as_str()),
        Literal(from),
        Literal(to)
    )
}
