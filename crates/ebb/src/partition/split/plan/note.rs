//! What changes while the parts are filled is noted by a trigger, by key, in the writer's own transaction.

use super::Composer;
use crate::pg::{Ident, Literal};

/// The trigger that notes changes, and the one that notes TRUNCATE.
const TRIGGER: &str = "ebb_split";
const TRUNCATED: &str = "ebb_split_truncate";

impl Composer<'_> {
    /// Notes keys, in the writer's transaction. Once the parts have foreign keys, a row that a part still has and the
    /// partition has not would keep others from deleting what it refers to: it goes at once, and comes back by the log.
    pub(super) fn note_function(&self, at_once: bool) -> String {
        let (log, key) = (&self.log, self.key(""));
        let insert = |row: &str| format!("INSERT INTO {log} ({key}) VALUES ({});", self.key(row));
        let names: Vec<String> = self.parts.iter().map(|(part, _)| Literal(&part.to_string()).to_string()).collect();
        let numbered = self.of.key.columns.iter().zip(&self.of.key.operators).enumerate();
        let condition: Vec<String> =
            numbered.map(|(n, (column, operator))| format!("c.{} {operator} ${}", Ident::new(column), n + 1)).collect();
        let delete = match at_once {
            true => format!(
                " EXECUTE 'DELETE FROM ONLY ' || (ARRAY[{}])[width_bucket(OLD.{}, {}) + 1] || {} USING {};",
                names.join(", "),
                self.of.column,
                self.thresholds(),
                Literal(&format!(" c WHERE {}", condition.join(" AND "))),
                self.key("OLD.")
            ),
            false => String::new(),
        };
        format!(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $ebb$ BEGIN \
             IF TG_OP = 'INSERT' THEN {} \
             ELSIF TG_OP = 'DELETE' THEN {}{delete} \
             ELSIF TG_OP = 'UPDATE' THEN {}{delete} IF NOT ({}) THEN {} END IF; \
             ELSE INSERT INTO {log} DEFAULT VALUES; END IF; RETURN NULL; END $ebb$",
            self.note,
            insert("NEW."),
            insert("OLD."),
            insert("OLD."),
            self.same("NEW", "OLD"),
            insert("NEW.")
        )
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
