//! The plan of a split: every statement of it, and of what takes it back, written from the catalog before the first one
//! runs. Invariants: what people use is locked in three steps only (the trigger, the foreign keys, the swap), each for
//! milliseconds; nothing that takes time is left to the swap: bounds are proven, indexes built, rows compared before.

mod compare;
mod fill;
mod note;
mod swap;

use serde::{Deserialize, Serialize};

pub(crate) use fill::batch;
pub(crate) use swap::MANY;

use super::store::{Column, Hindrances, Key, Period, Referring};
use crate::Result;
use crate::partition::adopt::BOUND;
use crate::partition::adopt::subject::{Constraint, Index};
use crate::partition::index;
use crate::pg::{Ident, Literal, Relation};

/// How a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// In one short transaction, under a lock time-out, tried again.
    Short,
    /// In one transaction that nobody waits for.
    Alone,
    /// In batches: rows from page to page.
    Copy,
    /// Outside of a transaction.
    Outside,
    /// The same, until nobody sees any more what was there before.
    Outlast,
    /// In batches: what changed meanwhile.
    Drain,
    /// One look that must find no difference.
    Compare,
    /// Short, after what is left to apply has become little.
    Settled,
    /// The same: the parts take the partition's place.
    Swap,
}

/// One step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// What it does, in words.
    pub title: String,
    /// How it runs.
    pub act: Act,
    /// What it says to the server.
    pub sql: Vec<String>,
}

impl Step {
    fn new(title: impl Into<String>, act: Act, sql: Vec<String>) -> Self {
        Self { title: title.into(), act, sql }
    }

    /// What it says to the server, for people: a copy as one batch of every page that a table can have.
    pub fn statements(&self) -> Vec<String> {
        self.statements_from(0)
    }

    /// The same, where a copy has come to a page.
    pub(crate) fn statements_from(&self, page: i64) -> Vec<String> {
        let whole = |sql: &String| batch(sql, page, u32::MAX.into());
        match self.act {
            Act::Copy => self.sql.iter().map(whole).collect(),
            _ => self.sql.clone(),
        }
    }
}

/// One part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Quoted.
    pub(crate) relation: String,
    /// For people.
    pub(crate) label: String,
}

/// Everything that was decided. The words that `ebb.split_apply` reads are among them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub(crate) source: String,
    pub(crate) source_label: String,
    log: String,
    column: String,
    thresholds: String,
    columns: String,
    source_columns: String,
    /// The table that is split, for a look at what it is like; none in a plan that a former version wrote.
    #[serde(default)]
    pub(crate) parent: i64,
    /// What waits for older views of the tables.
    #[serde(default)]
    pub(crate) outlast: Vec<String>,
    /// Whether nothing may be left to apply when the parts are put in place.
    #[serde(default)]
    pub(crate) twofold: bool,
    log_key: String,
    same_source: String,
    same_copy: String,
    locks: bool,
    pub(crate) parts: Vec<Part>,
    pub(crate) steps: Vec<Step>,
    /// Takes the triggers off again; then what was made goes.
    pub(crate) undo_triggers: Vec<String>,
    pub(crate) undo: Vec<String>,
    /// Makes the old partition a table that rows can go back to.
    pub(crate) restore: Vec<String>,
}

impl Plan {
    /// What will be done, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The names of the parts, oldest first.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.label.as_str())
    }

    pub(crate) fn column(&self) -> &str {
        &self.column
    }

    /// Where in the steps the parts take the partition's place.
    pub(crate) fn swap(&self) -> usize {
        self.steps.iter().position(|step| step.act == Act::Swap).unwrap_or(self.steps.len())
    }
}

/// What is split, as the catalog describes it.
pub(crate) struct Source {
    pub(crate) table: Relation,
    pub(crate) parent_oid: i64,
    pub(crate) partition: Relation,
    pub(crate) partition_oid: i64,
    pub(crate) column: Ident,
    pub(crate) kind: String,
    pub(crate) column_type: String,
    pub(crate) owner: String,
    pub(crate) key: Key,
    pub(crate) columns: Vec<Column>,
    pub(crate) indexes: Vec<Index>,
    pub(crate) local_indexes: Vec<String>,
    pub(crate) foreign_keys: Vec<Constraint>,
    pub(crate) old_foreign_keys: Vec<Constraint>,
    pub(crate) referring: Vec<Referring>,
    /// What keeps a writer from writing a row to its part, too, in the same moment.
    pub(crate) hindrances: Hindrances,
}

impl Source {
    /// Whether it can all the same: while nobody sees the parts, they lack what keeps their owner from them.
    fn is_twofold(&self) -> bool {
        self.hindrances.late.is_empty()
    }
}

struct Composer<'a> {
    of: &'a Source,
    parts: Vec<(Relation, &'a Period)>,
    staging: Relation,
    log: Relation,
    scratch: Relation,
    note: Relation,
}

pub(crate) fn compose(of: &Source, periods: &[Period]) -> Result<Plan> {
    let schema = of.partition.schema.as_str();
    let own = |what: &str| Relation::new(schema, format!("ebb_{}_{what}", of.partition_oid));
    let table_schema = of.table.schema.as_str();
    let c = Composer {
        of,
        parts: periods.iter().map(|period| (Relation::new(table_schema, &period.0), period)).collect(),
        staging: own("split"),
        log: own("log"),
        scratch: own("old"),
        note: own("note"),
    };
    Ok(Plan {
        source: of.partition.to_string(),
        source_label: of.partition.label(),
        log: c.log.to_string(),
        column: of.column.as_str().to_owned(),
        thresholds: c.thresholds(),
        columns: c.plain_columns(""),
        source_columns: c.plain_columns("h."),
        parent: of.parent_oid,
        outlast: index::outlast_sql(&c.scratch),
        twofold: of.is_twofold(),
        log_key: c.key("l."),
        same_source: c.same("h", "l"),
        same_copy: c.same("c", "l"),
        locks: false,
        parts: c.parts.iter().map(|(part, _)| Part { relation: part.to_string(), label: part.label() }).collect(),
        steps: c.steps()?,
        undo_triggers: c.drop_triggers("IF EXISTS "),
        undo: c.undo(),
        restore: c.restore(),
    })
}

impl Composer<'_> {
    fn steps(&self) -> Result<Vec<Step>> {
        let label = Literal(&self.of.table.label()).to_string();
        let mut steps = vec![
            Step::new("prepare the parts, unseen", Act::Alone, self.prepare()),
            Step::new("note every change from here on", Act::Short, self.note_changes(&label)),
            Step::new("copy the rows", Act::Copy, vec![self.copy()]),
            Step::new("let the parts stand alone", Act::Alone, self.stand_alone()),
            Step::new("take out what changed while it was copied", Act::Alone, self.take_out()),
        ];
        for (part, _) in &self.parts {
            let indexes = self.indexes(part)?;
            steps.push(Step::new(format!("build the indexes of {}", part.label()), Act::Alone, indexes));
            let vacuum = vec![format!("VACUUM (ANALYZE) {part}")];
            steps.push(Step::new(format!("count and map {}", part.label()), Act::Outside, vacuum));
        }
        let drain = vec![format!("SELECT ebb.split_apply({label}, 1000)")];
        steps.push(Step::new("apply what changed meanwhile", Act::Drain, drain));
        steps.push(Step::new("compare the rows", Act::Compare, vec![self.compare()]));
        let outlast = || {
            let sql = index::outlast_sql(&self.scratch);
            Step::new("wait for who still sees the rows as they were before", Act::Outlast, sql)
        };
        if self.of.is_twofold() || !self.of.foreign_keys.is_empty() {
            steps.push(self.write_parts(&label));
        }
        if self.of.is_twofold() {
            // What such a transaction changes is noted. Once the last one is over nothing is, and at every moment the
            // parts are what the partition is: also for whoever looks through a view of that moment.
            steps.push(outlast());
            let drain = vec![format!("SELECT ebb.split_apply({label}, 1000)")];
            steps.push(Step::new("apply what those have changed", Act::Drain, drain));
        }
        steps.extend(self.carry_foreign_keys());
        steps.push(outlast());
        // Right before the rows of the partition go for good.
        steps.push(Step::new("compare the rows once more", Act::Compare, vec![self.compare()]));
        steps.push(Step::new("put the parts in its place", Act::Swap, self.swap(&label)));
        for (part, _) in &self.parts {
            let sql = vec![format!("ALTER TABLE {part} DROP CONSTRAINT {BOUND}")];
            steps.push(Step::new(format!("take the proof of its bounds off {}", part.label()), Act::Short, sql));
        }
        let proofs: Vec<String> = self.of.referring.iter().filter_map(Referring::proof).collect();
        if !proofs.is_empty() {
            steps.push(Step::new("prove the foreign keys that refer to the table", Act::Alone, proofs));
        }
        let tidy = vec![format!("DROP TABLE {}", self.log), format!("DROP FUNCTION {}()", self.note)];
        steps.push(Step::new("stop noting changes", Act::Alone, tidy));
        Ok(steps)
    }

    /// Where each part but the first begins, for `width_bucket`.
    fn thresholds(&self) -> String {
        let bounds: Vec<String> = self.parts.iter().map(|(_, period)| Literal(&period.2).to_string()).collect();
        let inner = bounds.split_last().map_or(&[][..], |(_, inner)| inner);
        format!("ARRAY[{}]::{}[]", inner.join(", "), self.of.column_type)
    }

    fn plain_columns(&self, prefix: &str) -> String {
        let plain = self.of.columns.iter().filter(|column| !column.is_generated);
        plain.map(|column| format!("{prefix}{}", Ident::new(&column.name))).collect::<Vec<_>>().join(", ")
    }

    fn key(&self, prefix: &str) -> String {
        let columns = self.of.key.columns.iter().map(|column| format!("{prefix}{}", Ident::new(column)));
        columns.collect::<Vec<_>>().join(", ")
    }

    /// Whether two rows have the same key, by the operators of the index: it is found by them, wherever they are.
    fn same(&self, one: &str, other: &str) -> String {
        let pairs = self.of.key.columns.iter().zip(&self.of.key.operators).map(|(column, operator)| {
            let column = Ident::new(column);
            format!("{one}.{column} {operator} {other}.{column}")
        });
        pairs.collect::<Vec<_>>().join(" AND ")
    }
}

fn bounds((_, from, to): &Period) -> String {
    let from = from.as_ref().map_or("MINVALUE".to_owned(), |from| Literal(from).to_string());
    format!("FOR VALUES FROM ({from}) TO ({})", Literal(to))
}
