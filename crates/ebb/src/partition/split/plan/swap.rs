//! The parts take the partition's place, and what takes that back.

use super::note::Noting;
use super::{Act, Composer, Step, bounds};
use crate::partition::adopt::comment;
use crate::partition::adopt::subject::Constraint;
use crate::partition::split::store::{Hindrances, Referring};
use crate::pg::{Ident, Literal, Relation};

/// The constraint of the old partition after the swap: it takes no more rows.
const OVER: &str = "ebb_split_over";
/// As many changes are applied under a lock, and no more.
const SETTLE: u32 = 500;
/// More parts than this take so long that the lock is looked at while they are put in place.
pub(crate) const MANY: usize = 24;

impl Composer<'_> {
    /// From here on a writer writes to the parts, too; where that cannot be, rows that go also go from them.
    pub(super) fn write_parts(&self, label: &str) -> Step {
        let (title, function) = match self.of.is_twofold() {
            true => ("write every change to the parts, too", self.write_function()),
            false => ("let rows that go also go from the parts", self.note_function(Noting::Gone)),
        };
        let sql = vec![
            format!("LOCK TABLE ONLY {} IN SHARE ROW EXCLUSIVE MODE", self.of.partition),
            format!("SELECT ebb.split_settle({label}, {SETTLE})"),
            format!("TRUNCATE {}", self.log),
            // Every writer looks there for its key, also when nobody goes on for long and many are noted.
            format!("CREATE INDEX ON {} ({})", self.log, self.key("")),
            function,
            format!("UPDATE ebb.split SET plan = plan || '{{\"locks\": true}}' WHERE relation = {label}"),
        ];
        Step::new(title, Act::Settled, sql)
    }

    pub(super) fn carry_foreign_keys(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (part, _) in self.parts.iter().filter(|_| !self.of.foreign_keys.is_empty()) {
            let add = |key: &Constraint| {
                format!("ALTER TABLE {part} ADD CONSTRAINT {} {} NOT VALID", Ident::new(&key.name), key.definition)
            };
            let sql = self.of.foreign_keys.iter().map(add).collect();
            steps.push(Step::new(format!("foreign keys of {}", part.label()), Act::Short, sql));
            let prove = |key: &Constraint| format!("ALTER TABLE {part} VALIDATE CONSTRAINT {}", Ident::new(&key.name));
            let sql = self.of.foreign_keys.iter().map(prove).collect();
            steps.push(Step::new(format!("prove the foreign keys of {}", part.label()), Act::Alone, sql));
        }
        steps
    }

    /// The old partition stays until `finish`, for a way back that leads through it, but neither its rows (nothing would take
    /// out of them whoever is erased, or what expires) nor a foreign key, and takes no more.
    pub(super) fn swap(&self, label: &str) -> Vec<String> {
        let (table, partition) = (&self.of.table, &self.of.partition);
        let mut sql = vec![
            format!("LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE"),
            format!("LOCK TABLE ONLY {partition} IN ACCESS EXCLUSIVE MODE"),
            "SELECT ebb.locked()".into(),
            format!(
                "SELECT ebb.require_split_portrait({label}, {}, {})",
                self.of.parent_oid,
                Literal(self.of.column.as_str())
            ),
        ];
        sql.extend(self.of.referring.iter().map(Referring::let_go));
        sql.push(format!("ALTER TABLE {table} DETACH PARTITION {partition}"));
        sql.extend(
            self.of
                .old_foreign_keys
                .iter()
                .map(|key| format!("ALTER TABLE {partition} DROP CONSTRAINT {}", Ident::new(&key.name))),
        );
        // What is applied in this very moment would be missed by whoever looks through an older view.
        sql.push(format!("SELECT ebb.split_settle({label}, 0)"));
        if !self.of.foreign_keys.is_empty() {
            sql.push("SET CONSTRAINTS ALL IMMEDIATE".into());
        }
        sql.extend(self.drop_triggers(""));
        sql.push(format!("TRUNCATE ONLY {partition}"));
        sql.push(format!("ALTER TABLE {partition} ADD CONSTRAINT {OVER} CHECK (false)"));
        let by_index = self.of.indexes.iter().any(|index| index.is_replica_identity);
        for (n, (part, period)) in self.parts.iter().enumerate() {
            if n >= MANY {
                let what = format!("putting {} parts in place", self.parts.len());
                sql.push(format!("SELECT ebb.within_lock({})", Literal(&what)));
            }
            sql.extend(self.bind_owner(part));
            sql.push(format!("ALTER TABLE {table} ATTACH PARTITION {part} {}", bounds(period)));
            if by_index {
                sql.push(format!(
                    "SELECT ebb.copy_replica_identity({}, {}::regclass)",
                    self.of.parent_oid,
                    Literal(&part.to_string())
                ));
            }
        }
        sql.extend(self.of.referring.iter().flat_map(Referring::come_back));
        sql
    }

    /// From here on the owner of a part may do with it what the table allows, as everybody else has all along.
    fn bind_owner(&self, part: &Relation) -> Vec<String> {
        let Hindrances { is_forced, lacking, .. } = &self.of.hindrances;
        let forced = is_forced.then(|| format!("ALTER TABLE {part} FORCE ROW LEVEL SECURITY"));
        let owner = Ident::new(&self.of.owner);
        let rights = (!lacking.is_empty()).then(|| format!("REVOKE {} ON {part} FROM {owner}", lacking.join(", ")));
        forced.into_iter().chain(rights).collect()
    }

    pub(super) fn undo(&self) -> Vec<String> {
        let tables = std::iter::once(&self.staging)
            .chain(self.parts.iter().map(|(part, _)| part))
            .chain([&self.log, &self.scratch]);
        let mut sql: Vec<String> = tables.map(|table| format!("DROP TABLE IF EXISTS {table}")).collect();
        sql.push(format!("DROP FUNCTION IF EXISTS {}()", self.note));
        sql
    }

    /// Makes the old partition a table that rows can go back to.
    pub(super) fn restore(&self) -> Vec<String> {
        let partition = &self.of.partition;
        let keys = self.of.old_foreign_keys.iter().flat_map(|key| {
            let name = Ident::new(&key.name);
            let add = format!("ALTER TABLE {partition} ADD CONSTRAINT {name} {}", key.definition);
            let on = format!("{name} ON {partition}");
            std::iter::once(add).chain(key.comment.iter().map(move |text| comment("CONSTRAINT", &on, text)))
        });
        std::iter::once(format!("ALTER TABLE {partition} DROP CONSTRAINT {OVER}")).chain(keys).collect()
    }
}
