//! What changes while the parts are filled is noted by a trigger, by key, in the writer's own transaction.

use super::Composer;
use crate::partition::split::store::Hindrances;
use crate::pg::{Literal, Relation, block, quoted};

/// The trigger that notes changes, and the one that notes TRUNCATE. Triggers fire by name, and this one before all others:
/// what another one changes on the same row then finds its copy.
const TRIGGER: &str = "\"!ebb_split\"";
const TRUNCATED: &str = "ebb_split_truncate";
/// Where the print of the table goes that writers compare.
const PRINT: &str = "{print}";

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
    /// would keep others from deleting what it refers to: it goes at once. A plan that a session keeps may be older than
    /// most of the rows: it goes by index.
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
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER \
             SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS {}",
            self.note,
            quoted(&format!(
                "DECLARE written bigint; is_ours boolean; is_like boolean; moment text; BEGIN {body} RETURN NULL; END"
            ))
        )
    }

    /// The function that writes rows to the parts; it knows the table as it is when this runs.
    pub(super) fn write_function(&self) -> String {
        block(&format!(
            "BEGIN EXECUTE replace({}, {}, quote_literal({})); END",
            quoted(&self.note_function(Noting::Rows)),
            Literal(PRINT),
            self.print()
        ))
    }

    /// A statement for each part, of which the one runs that a row belongs to; most belong to the newest. They are written
    /// out, because a statement that is put together for a row is planned for it, too.
    fn by_part(&self, row: &str, statement: impl Fn(&Relation) -> String) -> String {
        let cases =
            self.parts.iter().enumerate().rev().map(|(n, (part, _))| format!("WHEN {n} THEN {}; ", statement(part)));
        let bucket = format!("width_bucket({row}.{}, {})", self.of.column, self.thresholds());
        format!("CASE {bucket} {}END CASE;", cases.collect::<String>())
    }

    /// By key, and whether what went was written by this very transaction, or later than it began to write.
    fn delete_copy(&self) -> String {
        let (same, own) = (self.same("c", "OLD"), "age(c.xmin) <= age(pg_current_xact_id()::xid)");
        self.by_part("OLD", |part| format!("DELETE FROM ONLY {part} c WHERE {same} RETURNING {own} INTO is_ours"))
    }

    /// How many rows were written to the part: one, or none where its key must be noted. What a part refuses (the table was
    /// altered, or a copy that is about to go has the same value) is no reason to fail the writer. A part of a table that
    /// was not altered refuses nothing else, and no row takes a transaction id of its own.
    fn write_copy(&self) -> String {
        let copy = self.put_copy();
        format!(
            "{} IF is_like THEN {copy} GET DIAGNOSTICS written = ROW_COUNT; \
             ELSE written := 0; BEGIN {copy} GET DIAGNOSTICS written = ROW_COUNT; \
             EXCEPTION WHEN serialization_failure OR deadlock_detected OR lock_not_available THEN RAISE; \
             WHEN OTHERS THEN written := 0; END; END IF;",
            self.look()
        )
    }

    /// Whether the table is what it was when writers began to write to the parts: asked once a statement, which nobody can
    /// alter it within. A transaction with an older view of the catalog does not know.
    fn look(&self) -> String {
        format!(
            "moment := concat_ws(' ', TG_RELID, NEW.xmin, NEW.cmin); \
             is_like := current_setting('ebb.split_like', true) IS NOT DISTINCT FROM moment; \
             IF NOT is_like THEN \
             is_like := current_setting('transaction_isolation') = 'read committed' AND {} = {PRINT}; \
             IF is_like THEN PERFORM set_config('ebb.split_like', moment, true); END IF; END IF;",
            self.print()
        )
    }

    /// What of the catalog lets a part refuse what the partition takes, as an expression: columns, constraints, and what
    /// the owner may.
    fn print(&self) -> String {
        format!(
            "(SELECT concat_ws(' ', c.relowner, c.relforcerowsecurity, c.relacl, \
             (SELECT string_agg(a.xmin::text, ' ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0), \
             (SELECT string_agg(k.xmin::text, ' ' ORDER BY k.oid) FROM pg_constraint k WHERE k.conrelid = c.oid)) \
             FROM pg_class c WHERE c.oid = {})",
            self.of.partition_oid
        )
    }

    /// Whether the owner, with whose rights a writer writes to the parts, sees every row of the partition.
    fn is_source_open(&self) -> bool {
        let Hindrances { is_forced, lacking, .. } = &self.of.hindrances;
        !is_forced && !lacking.iter().any(|right| right == "SELECT")
    }

    /// The row as it is by now: a trigger that fired before may have changed it again. Where that cannot be read, as it was
    /// written, which it still is if this transaction had not written its copy, or nobody has changed or locked it since.
    fn put_copy(&self) -> String {
        let (columns, log) = (self.plain_columns(""), &self.log);
        let noted = |row: &str| format!("EXISTS (SELECT FROM {log} l WHERE {})", self.same(row, "l"));
        let row = if self.is_source_open() {
            let (values, partition, same) = (self.plain_columns("h."), &self.of.partition, self.same("h", "NEW"));
            format!("SELECT {values} FROM ONLY {partition} h WHERE {same} AND NOT {}", noted("h"))
        } else {
            let (values, is_last) = (self.plain_columns("NEW."), "is_ours IS NOT TRUE OR NEW.xmax::text = '0'");
            format!("SELECT {values} WHERE ({is_last}) AND NOT {}", noted("NEW"))
        };
        self.by_part("NEW", |part| {
            format!("INSERT INTO {part} ({columns}) OVERRIDING SYSTEM VALUE {row} ON CONFLICT DO NOTHING")
        })
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
