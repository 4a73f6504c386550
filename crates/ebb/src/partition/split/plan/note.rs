//! What changes while the parts are filled is noted by a trigger, by key, in the writer's own transaction.

use super::Composer;
use crate::partition::split::store::Hindrances;
use crate::pg::{Ident, Literal, quoted};

/// The trigger that notes changes, and the one that notes TRUNCATE, quoted. Triggers fire in the order of their names, and this one
/// must be first: another that changes the row again would find no copy of it yet.
const TRIGGER: &str = "\"!ebb_split\"";
const TRUNCATED: &str = "\"!ebb_split_truncate\"";

/// What is written besides a row of the partition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Noting {
    /// Its key, into the log.
    Keys,
    /// The same, and what goes also goes from its part.
    Gone,
    /// The row itself, into its part. The key only where the writer's view is so old that it does not see the copy there,
    /// or where the part does not take the row, and from then on until the log is applied.
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
                let parts = self.parts.iter().map(|(part, _)| part.to_string()).collect::<Vec<_>>();
                format!(
                    "IF TG_OP = 'TRUNCATE' THEN TRUNCATE {parts}; RETURN NULL; END IF; \
                     IF TG_OP <> 'INSERT' THEN {delete} GET DIAGNOSTICS written = ROW_COUNT; \
                     IF written = 0 THEN {old} END IF; END IF; \
                     IF TG_OP <> 'DELETE' THEN {write} IF written = 0 THEN {again} END IF; END IF;",
                    parts = parts.join(", "),
                    delete = self.delete_copy(),
                    old = insert("OLD."),
                    write = self.write_copy(),
                )
            }
        };
        format!(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {}",
            self.note,
            quoted(&format!("DECLARE written bigint; is_ours boolean; BEGIN {body} RETURN NULL; END"))
        )
    }

    /// The part that a row belongs to, as an expression.
    fn part_of(&self, row: &str) -> String {
        let names: Vec<String> = self.parts.iter().map(|(part, _)| Literal(&part.to_string()).to_string()).collect();
        format!("(ARRAY[{}])[width_bucket({row}.{}, {}) + 1]", names.join(", "), self.of.column, self.thresholds())
    }

    /// By key, and whether what went was written by this very transaction, or later than it began to write.
    fn delete_copy(&self) -> String {
        let own = "RETURNING age(c.xmin) <= age(pg_current_xact_id()::xid)";
        format!(
            " EXECUTE 'DELETE FROM ONLY ' || {} || {} INTO is_ours USING {};",
            self.part_of("OLD"),
            Literal(&format!(" c WHERE {} {own}", self.is_key("c"))),
            self.key("OLD.")
        )
    }

    /// How many rows were written to the part: one, or none where its key must be noted. What a part refuses (the table was
    /// altered, or a copy that is about to go has the same value) is no reason to fail the writer.
    fn write_copy(&self) -> String {
        let noted = format!("EXISTS (SELECT FROM {} l WHERE {})", self.log, self.same("NEW", "l"));
        let (noted, copy) = match self.is_source_open() {
            true => (noted, self.copy_source()),
            false => (format!("{noted} OR is_ours"), self.copy_new()),
        };
        format!(
            "written := 0; IF {noted} THEN NULL; ELSE BEGIN {copy} GET DIAGNOSTICS written = ROW_COUNT; \
             EXCEPTION WHEN serialization_failure OR deadlock_detected OR lock_not_available THEN RAISE; \
             WHEN OTHERS THEN written := 0; END; END IF;"
        )
    }

    /// Whether the owner, with whose rights a writer writes to the parts, sees every row of the partition.
    fn is_source_open(&self) -> bool {
        let Hindrances { is_forced, lacking, .. } = &self.of.hindrances;
        !is_forced && !lacking.iter().any(|right| right == "SELECT")
    }

    /// The row as it is by now: a trigger that fired before may have changed it again.
    fn copy_source(&self) -> String {
        let values = format!(
            " ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM ONLY {} h WHERE {}",
            self.plain_columns(""),
            self.plain_columns("h."),
            self.of.partition,
            self.is_key("h")
        );
        format!("EXECUTE 'INSERT INTO ' || {} || {} USING {};", self.part_of("NEW"), Literal(&values), self.key("NEW."))
    }

    /// The row as it was written, which it still is if this transaction had not written its copy.
    fn copy_new(&self) -> String {
        let values =
            format!(" ({}) OVERRIDING SYSTEM VALUE SELECT {}", self.plain_columns(""), self.plain_columns("($1)."));
        format!("EXECUTE 'INSERT INTO ' || {} || {} USING NEW;", self.part_of("NEW"), Literal(&values))
    }

    /// Whether a row has the key that a statement is given.
    fn is_key(&self, row: &str) -> String {
        let numbered = self.of.key.columns.iter().zip(&self.of.key.operators).enumerate();
        let condition =
            numbered.map(|(n, (column, operator))| format!("{row}.{} {operator} ${}", Ident::new(column), n + 1));
        condition.collect::<Vec<_>>().join(" AND ")
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
