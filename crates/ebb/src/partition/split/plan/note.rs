//! What changes while the parts are filled is noted by a trigger, by key, in the writer's own transaction.

use super::Composer;
use crate::pg::{Ident, Literal, quoted};

/// The trigger that notes changes, and the one that notes TRUNCATE.
const TRIGGER: &str = "ebb_split";
const TRUNCATED: &str = "ebb_split_truncate";

/// What is written besides a row of the partition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Noting {
    /// Its key, into the log.
    Keys,
    /// The same, and what goes also goes from its part.
    Gone,
    /// The row itself, into its part. The key only where the writer's view is so old that it does not see the copy there,
    /// and from then on until the log is applied.
    Rows,
}

impl Composer<'_> {
    /// In the writer's transaction. Once the parts have foreign keys, a row that a part still has and the partition has not
    /// would keep others from deleting what it refers to: it goes at once.
    pub(super) fn note_function(&self, noting: Noting) -> String {
        let (log, key) = (&self.log, self.key(""));
        let insert = |row: &str| format!("INSERT INTO {log} ({key}) VALUES ({});", self.key(row));
        let (is_new, again) = (format!("NOT ({})", self.same("NEW", "OLD")), insert("NEW."));
        let body = match noting {
            Noting::Keys | Noting::Gone => {
                let delete = if noting == Noting::Gone { self.delete_copy() } else { String::new() };
                format!(
                    "IF TG_OP = 'INSERT' THEN {again} \
                     ELSIF TG_OP = 'DELETE' THEN {old}{delete} \
                     ELSIF TG_OP = 'UPDATE' THEN {old}{delete} IF {is_new} THEN {again} END IF; \
                     ELSE INSERT INTO {log} DEFAULT VALUES; END IF;",
                    old = insert("OLD.")
                )
            }
            Noting::Rows => {
                let noted = |row: &str| format!("EXISTS (SELECT FROM {log} l WHERE {})", self.same(row, "l"));
                let parts = self.parts.iter().map(|(part, _)| part.to_string()).collect::<Vec<_>>();
                format!(
                    "IF TG_OP = 'TRUNCATE' THEN TRUNCATE {parts}; RETURN NULL; END IF; \
                     IF TG_OP <> 'INSERT' THEN {delete} GET DIAGNOSTICS gone = ROW_COUNT; \
                     IF gone = 0 THEN {old} END IF; END IF; \
                     IF TG_OP <> 'DELETE' THEN IF {noted} THEN {again} ELSE {copy} END IF; END IF;",
                    parts = parts.join(", "),
                    delete = self.delete_copy(),
                    old = insert("OLD."),
                    noted = noted("NEW"),
                    copy = self.insert_copy()
                )
            }
        };
        format!(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {}",
            self.note,
            quoted(&format!("DECLARE gone bigint; BEGIN {body} RETURN NULL; END"))
        )
    }

    /// The part that a row belongs to, as an expression.
    fn part_of(&self, row: &str) -> String {
        let names: Vec<String> = self.parts.iter().map(|(part, _)| Literal(&part.to_string()).to_string()).collect();
        format!("(ARRAY[{}])[width_bucket({row}.{}, {}) + 1]", names.join(", "), self.of.column, self.thresholds())
    }

    fn delete_copy(&self) -> String {
        let numbered = self.of.key.columns.iter().zip(&self.of.key.operators).enumerate();
        let condition: Vec<String> =
            numbered.map(|(n, (column, operator))| format!("c.{} {operator} ${}", Ident::new(column), n + 1)).collect();
        format!(
            " EXECUTE 'DELETE FROM ONLY ' || {} || {} USING {};",
            self.part_of("OLD"),
            Literal(&format!(" c WHERE {}", condition.join(" AND "))),
            self.key("OLD.")
        )
    }

    fn insert_copy(&self) -> String {
        let values =
            format!(" ({}) OVERRIDING SYSTEM VALUE SELECT {}", self.plain_columns(""), self.plain_columns("($1)."));
        format!("EXECUTE 'INSERT INTO ' || {} || {} USING NEW;", self.part_of("NEW"), Literal(&values))
    }

    /// Also for changes that come by replication. Whoever wrote before has ended when the trigger is there, so the pages
    /// of this moment, and the log, are everything.
    pub(super) fn note_changes(&self, label: &str) -> Vec<String> {
        let (partition, note) = (&self.of.partition, &self.note);
        vec![
            format!(
                "CREATE TRIGGER {TRIGGER} AFTER INSERT OR UPDATE OR DELETE ON {partition} FOR EACH ROW EXECUTE FUNCTION {note}()"
            ),
            format!(
                "CREATE TRIGGER {TRUNCATED} AFTER TRUNCATE ON {partition} FOR EACH STATEMENT EXECUTE FUNCTION {note}()"
            ),
            format!("ALTER TABLE {partition} ENABLE ALWAYS TRIGGER {TRIGGER}"),
            format!("ALTER TABLE {partition} ENABLE ALWAYS TRIGGER {TRUNCATED}"),
            format!(
                "UPDATE ebb.split SET pages = pg_relation_size({}::regclass) / current_setting('block_size')::int WHERE relation = {label}",
                Literal(&partition.to_string())
            ),
        ]
    }

    pub(super) fn drop_triggers(&self, if_exists: &str) -> Vec<String> {
        [TRIGGER, TRUNCATED].map(|name| format!("DROP TRIGGER {if_exists}{name} ON {}", self.of.partition)).into()
    }
}
