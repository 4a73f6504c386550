//! The plan: every statement of an adoption, and of what takes it back, written from the catalog before the first one
//! runs. Invariants: each step is a transaction of milliseconds, or holds no lock that traffic waits for; a step that was
//! done is not done again; the names that people know move to the new table in the one step that is the cutover.

mod back;
mod identity;
mod names;
mod parent;
mod there;

use serde::{Deserialize, Serialize};

pub(crate) use names::fitting;
pub(crate) use parent::derived_checks;

use super::Request;
use super::fill::Fill;
use super::guard::{self, Backfill};
use super::moved::Moved;
use super::referrers;
use super::subject::{Bound, Index, Subject};
use crate::pg::{Ident, Literal, Relation};
use crate::{Error, Result};

/// The constraint that proves the first partition's bound.
pub(crate) const BOUND: &str = "ebb_bound";

/// How a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// In one short transaction, under a lock time-out, tried again.
    Short,
    /// Long, but nobody waits for it.
    Long,
    /// Outside of a transaction; what it makes is looked for before.
    Index,
    /// In batches: the guard's keys.
    Backfill,
    /// In batches: the column that a referring table carries.
    Fill,
    /// Each statement in a short transaction of its own; one that was done is not done again.
    Each,
    /// The short transaction that ends it: names move, the table is attached.
    Cutover,
}

/// One step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// What it does, in words.
    pub title: String,
    /// How it runs.
    pub how: How,
    /// What it says to the server.
    pub sql: Vec<String>,
    /// The index that it makes, for `Index`: schema, name.
    pub index: Option<(String, String)>,
    /// What it fills, for `Fill`.
    #[serde(default)]
    pub fill: Option<Fill>,
    /// The table that it reads from end to end, for `Long`: schema, name; and whether for a check, by one plain scan.
    #[serde(default)]
    pub(crate) reads: Option<((String, String), bool)>,
}

impl Step {
    /// One that proves a constraint of a table.
    pub(crate) fn proof(title: &str, table: &Relation, constraint: &Ident, check: bool) -> Self {
        let sql = format!("ALTER TABLE {table} VALIDATE CONSTRAINT {constraint}");
        let named = (table.schema.as_str().to_owned(), table.name.as_str().to_owned());
        Self { reads: Some((named, check)), ..Self::new(title, How::Long, vec![sql]) }
    }

    pub(crate) fn new(title: &str, how: How, sql: Vec<String>) -> Self {
        Self { title: title.into(), how, sql, index: None, fill: None, reads: None }
    }
}

/// A key that must be unique again on the way back, as the server compares it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) name: String,
    /// As people read it: columns and expressions.
    pub(crate) columns: Vec<String>,
    /// Whether it is of columns alone, and of all rows.
    pub(crate) is_plain: bool,
    pub(crate) expressions: Vec<String>,
    pub(crate) operators: Vec<String>,
    pub(crate) predicate: Option<String>,
    pub(crate) nulls_not_distinct: bool,
    /// ` DEFERRABLE …`, or nothing.
    pub(crate) deferrable: String,
}

impl Key {
    fn of(index: &Index) -> Self {
        Self {
            name: index.constraint_name.clone().unwrap_or_else(|| index.name.clone()),
            columns: index.key_columns.clone(),
            is_plain: !index.has_expressions && index.predicate.is_none(),
            expressions: index.key_expressions.clone(),
            operators: index.key_operators.clone(),
            predicate: index.predicate.clone(),
            nulls_not_distinct: index.nulls_not_distinct,
            deferrable: index.deferrable().to_owned(),
        }
    }
}

/// Everything that was decided.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub(crate) schema: String,
    pub(crate) table: String,
    /// What the old table is called afterwards.
    pub(crate) history: String,
    /// What the new one is called before, and again after a rollback.
    pub(crate) parent: String,
    pub(crate) column: String,
    pub(crate) kind: String,
    pub(crate) zone: String,
    /// Where the first partition ends, on the calendar and as a constant.
    pub(crate) bound: String,
    pub(crate) literal: String,
    /// There.
    pub(crate) steps: Vec<Step>,
    /// Which of them swaps the keys, counted from zero.
    pub(crate) swap: Option<usize>,
    /// The keys that are guarded; in a plan that a former version wrote, at most one.
    #[serde(default, rename = "backfill")]
    guarded: Option<Backfill>,
    #[serde(default)]
    backfills: Vec<Backfill>,
    /// And back: indexes to build first, keys that must be unique again, and the statements of the way back.
    pub(crate) back_indexes: Vec<Step>,
    pub(crate) back_keys: Vec<Key>,
    pub(crate) back: Vec<String>,
    /// Or back before the cutover: the keys as they were on the table itself, and what undoes each short step.
    pub(crate) abandon_indexes: Vec<Step>,
    pub(crate) abandon_keys: Vec<String>,
    pub(crate) abandon: Vec<String>,
    /// Names that the old table's indexes and statistics get.
    #[serde(default)]
    pub(crate) wanted: Vec<String>,
    #[serde(default)]
    pub(crate) owner: String,
    /// The foreign keys of other tables that move with it.
    #[serde(default)]
    pub(crate) referrers: Vec<Moved>,
    /// What a rollback left to `finish`: former partitions, as (schema, name).
    #[serde(default)]
    pub(crate) leftovers: Vec<(String, String)>,
    /// The policy's spec, for ebb.toml and for the database.
    pub(crate) spec: serde_json::Value,
}

impl Plan {
    /// What will be done, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What guards the keys knows about them.
    pub(crate) fn backfills(&self) -> impl Iterator<Item = &Backfill> {
        self.guarded.iter().chain(&self.backfills)
    }

    pub(crate) fn relation(&self) -> Relation {
        Relation::new(&self.schema, &self.table)
    }

    pub(crate) fn history(&self) -> Relation {
        Relation::new(&self.schema, &self.history)
    }

    /// A table that nobody knows, for a while.
    pub(crate) fn scratch(&self, relid: i64) -> Relation {
        Relation::new(&self.schema, format!("ebb_{relid}_old"))
    }

    pub(crate) fn parent(&self) -> Relation {
        Relation::new(&self.schema, &self.parent)
    }
}

/// Composes the statements about one table.
struct Composer<'a> {
    subject: &'a Subject,
    request: &'a Request,
    table: Relation,
    parent: Relation,
    history: Relation,
    column: Ident,
    referrers: Vec<Moved>,
}

pub(super) fn compose(
    subject: &Subject,
    request: &Request,
    bound: &Bound,
    ahead: &[(String, String, String)],
) -> Result<Plan> {
    let head = &subject.head;
    let schema = head.schema_name.clone();
    let history = fitting(&head.table_name, "_history");
    let parent = format!("ebb_{}_parent", head.oid);
    let c = Composer {
        subject,
        request,
        table: subject.relation(),
        parent: Relation::new(&schema, &parent),
        history: Relation::new(&schema, &history),
        column: subject.column(),
        referrers: referrers::moved(subject),
    };
    let kind = head.kind.clone().ok_or_else(|| Error::usage("the column tells no time"))?;
    let mut steps = c.bound(&bound.literal);
    let backfills = Backfill::all(subject, request, &bound.bound);
    let guards = guard::create(subject, request, &c.table, guard::Watch::Everything);
    if !guards.is_empty() {
        steps.push(Step::new("guard the keys by trigger", How::Short, guards));
        steps.push(Step::new("claim the keys of the rows that are there", How::Backfill, Vec::new()));
    }
    steps.extend(c.new_indexes()?);
    steps.extend(c.referrers.iter().flat_map(Moved::steps));
    steps.push(Step::new("prepare the partitioned table, unseen", How::Short, c.prepare()?));
    steps.push(Step::new("and its partitions", How::Each, c.partitions(ahead)));
    let swap = subject.indexes.iter().any(Index::must_grow).then_some(steps.len());
    if swap.is_some() {
        steps.push(Step::new("swap the keys", How::Short, c.swap_keys()));
    }
    steps.push(Step::new("move the name and attach the table", How::Cutover, c.cutover(&bound.literal)));
    Ok(Plan {
        schema,
        table: head.table_name.clone(),
        history,
        parent,
        column: head.column_name.clone(),
        kind,
        zone: request.zone.clone(),
        bound: bound.bound.clone(),
        literal: bound.literal.clone(),
        steps,
        swap,
        guarded: None,
        backfills,
        back_indexes: c.indexes_as_before(&c.history),
        back_keys: c.growing().map(|(_, index)| Key::of(index)).collect(),
        back: c.back(),
        abandon_indexes: c.indexes_as_before(&c.table),
        abandon_keys: c.keys_as_before(),
        abandon: c.abandon(),
        wanted: c.wanted(),
        owner: head.owner.clone(),
        referrers: c.referrers,
        leftovers: Vec::new(),
        spec: request.spec(&subject.relation().label(), &head.column_name).into(),
    })
}

impl Composer<'_> {
    fn temporary(&self, mark: &str, n: usize) -> Ident {
        Ident::new(format!("ebb_{}_{mark}{n}", self.subject.head.oid))
    }

    fn in_schema(&self, name: &Ident) -> Relation {
        Relation::new(&self.subject.head.schema_name, name.as_str())
    }

    fn indexes(&self) -> impl Iterator<Item = (usize, &Index)> {
        self.subject.indexes.iter().enumerate()
    }

    fn growing(&self) -> impl Iterator<Item = (usize, &Index)> {
        self.indexes().filter(|(_, index)| index.must_grow())
    }
}

fn unread(index: &Index) -> Error {
    Error::failed(format!("cannot read the definition of index {}", index.name))
}

pub(crate) fn comment(what: &str, on: &str, text: &str) -> String {
    format!("COMMENT ON {what} {on} IS {}", Literal(text))
}

/// `PRIMARY KEY USING INDEX i DEFERRABLE …`: the constraint as it was, over an index that exists.
fn using_index(index: &Index, new: &Ident) -> String {
    let kind = if index.is_primary { "PRIMARY KEY" } else { "UNIQUE" };
    format!("{kind} USING INDEX {new}{}", index.deferrable())
}
