//! The statements that a sweep sends to users' tables, as text, composed from quoted names, checked expressions and
//! constants only. Invariants: every DELETE and UPDATE carries the whole condition itself; ctids are used with ONLY, leaf
//! by leaf. What is sent directly and what a sandbox holds (`sandbox.rs`) is composed by the same functions.

use super::due::Due;
use super::sandbox::Sandbox;
use crate::gate::Held;
use crate::pg::expression::{Change, Expression};
use crate::pg::{Ident, Literal, Relation};

/// What happens to a due row.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Delete,
    /// `SET` list.
    Set(Vec<(Ident, Change)>),
}

/// One leaf made ready: everything a statement over it needs.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) leaf: Relation,
    pub(crate) due: Due,
    pub(crate) filter: Option<Expression>,
    pub(crate) act: Act,
    /// Statements run under this role.
    pub(crate) role: Option<Ident>,
    /// The columns that name a row in the audit, when each row is recorded; empty when it has no key.
    pub(crate) key: Option<Vec<Ident>>,
    /// The function of the table's owner that changes rows, where there is one.
    pub(crate) sandbox: Option<Sandbox>,
    /// Rows of subjects on hold, which stay: what the gate said at the start of the batch.
    pub(crate) held: Vec<Held>,
}

/// Where in a leaf a batch looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Range {
    /// Pages from (inclusive) to (exclusive).
    Pages { from: u64, to: u64 },
    /// Physical order after a row address, at most so many rows.
    Rows { after: String, limit: u64 },
    /// Column order from a value on (inclusive; none: the bottom) to another (inclusive), at most so many rows.
    Keys { from: Option<String>, to: Option<String>, limit: u64 },
    /// These row addresses.
    At { places: Vec<String> },
}

/// Where a plain statement acts: bounded by a look before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Pages from (inclusive) to (exclusive).
    Pages { from: u64, to: u64 },
    /// Values from (inclusive) to (inclusive) and before (exclusive), as far as given.
    Values { from: String, to: Option<String>, before: Option<String> },
}

/// The parts of a careful statement that differ from batch to batch.
pub(super) struct Careful<'a> {
    pub(super) leaf: &'a str,
    pub(super) cutoff: &'a str,
    /// The whole `WHERE` of the pick, order and limit included.
    pub(super) pick: &'a str,
    pub(super) lock: &'a str,
    /// The last place or value of the pick.
    pub(super) last: &'a str,
}

impl Target {
    /// The whole condition that makes a row go, now and at the moment it goes.
    pub(crate) fn condition(&self) -> String {
        self.condition_at(self.due.cutoff_constant())
    }

    /// The same for a cutoff in the column's own terms.
    pub(super) fn condition_at(&self, cutoff: &str) -> String {
        let mut condition = self.due.condition_at(cutoff);
        if let Some(filter) = &self.filter {
            condition = format!("{condition} AND {filter}");
        }
        if let Act::Set(changes) = &self.act {
            // The time of a change is no reason to change a row again.
            let lasting = changes.iter().filter(|(_, change)| !change.moves);
            let changed: Vec<String> = lasting.map(|(_, change)| change.differs.to_string()).collect();
            if !changed.is_empty() {
                condition = format!("{condition} AND ({})", changed.join(" OR "));
            }
        }
        for held in self.held.iter().flat_map(|held| held.conditions(&self.leaf.name)) {
            condition = format!("{condition} AND NOT {held}");
        }
        condition
    }

    /// Whether rows go with rights that do not reach to what says whose they are: those of a role, or of the owner.
    pub(crate) fn borrows_rights(&self) -> bool {
        self.role.is_some() || self.sandbox.is_some()
    }

    /// The same without what holds keep, for statements with such rights: what they act on was picked before.
    pub(crate) fn without_holds(&self) -> Target {
        Target { held: Vec::new(), ..self.clone() }
    }

    fn verb(&self, leaf: &str) -> String {
        match &self.act {
            Act::Delete => format!("DELETE FROM ONLY {leaf}"),
            Act::Set(changes) => {
                let list: Vec<String> =
                    changes.iter().map(|(column, change)| format!("{column} = {}", change.value)).collect();
                format!("UPDATE ONLY {leaf} SET {}", list.join(", "))
            }
        }
    }

    /// The plain statement: everything due in a place, waiting for rows that others hold.
    pub(super) fn plain(&self, place: &Place) -> String {
        let leaf = self.leaf.to_string();
        self.plain_over(&leaf, self.due.cutoff_constant(), &self.place(place))
    }

    pub(super) fn plain_over(&self, leaf: &str, cutoff: &str, place: &str) -> String {
        format!("{} WHERE {place} AND {}", self.verb(leaf), self.condition_at(cutoff))
    }

    /// Whether a batch may be one plain statement: nothing has to be told about each row.
    pub(super) fn is_plain(&self) -> bool {
        self.key.is_none() && matches!(self.act, Act::Delete)
    }

    /// The careful statement: picks rows (passing by held ones with `skip_locked`), changes them by address under the
    /// whole condition, and tells about each. A fifth to a half slower than the plain one.
    pub(super) fn careful(&self, range: &Range, skip_locked: bool) -> String {
        self.careful_over(Careful {
            leaf: &self.leaf.to_string(),
            cutoff: self.due.cutoff_constant(),
            pick: &self.pick(range),
            lock: if skip_locked { LOCK } else { "" },
            last: last(range),
        })
    }

    pub(super) fn careful_over(&self, parts: Careful<'_>) -> String {
        let Careful { leaf, cutoff, pick, lock, last } = parts;
        let (column, condition) = (&self.due.column, self.condition_at(cutoff));
        let (keys, dues) = match &self.key {
            Some(_) => ("array_agg(key)".to_owned(), format!("array_agg({})", self.due.due_at("due"))),
            None => ("NULL::text[]".to_owned(), "NULL::timestamptz[]".to_owned()),
        };
        format!(
            "WITH pick AS MATERIALIZED (SELECT ctid AS place, {column} AS value FROM ONLY {leaf} WHERE {pick} {lock}), \
             gone AS ({verb} WHERE ctid = ANY(ARRAY(SELECT place FROM pick)) AND {condition} {returning}) \
             SELECT (SELECT count(*) FROM pick) AS picked, count(*) AS rows, {due_from} AS due_from, \
                 {due_to} AS due_to, (SELECT {last}::text FROM pick) AS last, {keys} AS keys, {dues} AS dues, \
                 count(*) FILTER (WHERE again) AS again FROM gone",
            verb = self.verb(leaf),
            returning = self.returning(&condition),
            due_from = self.due.due_at("min(due)"),
            due_to = self.due.due_at("max(due)"),
        )
    }

    /// The addresses of the due rows of a range, in its order, with the last value or address.
    pub(super) fn addresses(&self, range: &Range) -> String {
        format!(
            "WITH pick AS MATERIALIZED (SELECT ctid AS place, {} AS value FROM ONLY {} WHERE {}) \
             SELECT COALESCE(array_agg(place::text), '{{}}'), {}::text FROM pick",
            self.due.column,
            self.leaf,
            self.pick(range),
            last(range),
        )
    }

    fn returning(&self, condition: &str) -> String {
        let (column, key) = (&self.due.column, self.key_sql());
        match &self.act {
            Act::Delete => format!("RETURNING {column} AS due, false AS again{key}"),
            // What the column was is gone when it is set itself.
            Act::Set(changes) if changes.iter().any(|(set, _)| set == column) => {
                format!("RETURNING NULL::{} AS due, {condition} AS again{key}", self.due.sql_type())
            }
            Act::Set(_) => format!("RETURNING {column} AS due, {condition} AS again{key}"),
        }
    }

    /// Which rows a careful statement picks: place, condition, order and limit.
    fn pick(&self, range: &Range) -> String {
        let condition = self.condition();
        match range {
            Range::Pages { from, to } => format!("{} AND {condition}", pages(*from, *to)),
            // IS TRUE keeps indexes out: only in physical order is the last address a place to go on from.
            Range::Rows { after, limit } => {
                format!("ctid > {}::tid AND ({condition}) IS TRUE LIMIT {limit}", Literal(after))
            }
            // By position: the table may have a column called place or value.
            Range::Keys { from, to, limit } => {
                let between = self.between(from.as_deref(), to.as_deref());
                format!("{between} AND {condition} ORDER BY 2 LIMIT {limit}")
            }
            Range::At { places } => {
                format!("ctid = ANY({}::tid[]) AND {condition}", Literal(&tid_array(places)))
            }
        }
    }

    /// A place as a condition.
    pub(super) fn place(&self, place: &Place) -> String {
        match place {
            Place::Pages { from, to } => pages(*from, *to),
            Place::Values { from, to, before } => {
                let mut text = self.between(Some(from), to.as_deref());
                if let Some(before) = before {
                    text = format!("{text} AND {} < {}", self.due.column, self.due.constant(before));
                }
                text
            }
        }
    }

    /// Column order, both ends inclusive, as a condition.
    pub(super) fn between(&self, from: Option<&str>, to: Option<&str>) -> String {
        let column = &self.due.column;
        let from = from.map(|from| format!("{column} >= {}", self.due.constant(from)));
        let to = to.map(|to| format!("{column} <= {}", self.due.constant(to)));
        match from.into_iter().chain(to).collect::<Vec<_>>() {
            parts if parts.is_empty() => "true".to_owned(),
            parts => parts.join(" AND "),
        }
    }

    fn key_sql(&self) -> String {
        match self.key.as_deref() {
            None => String::new(),
            Some([]) => ", ctid::text AS key".to_owned(),
            Some(columns) => {
                let list: Vec<String> = columns.iter().map(Ident::to_string).collect();
                format!(", jsonb_build_array({})::text AS key", list.join(", "))
            }
        }
    }
}

/// Passes by rows that others hold.
pub(super) const LOCK: &str = "FOR UPDATE SKIP LOCKED";

/// What a pick says about how far it came.
pub(super) fn last(range: &Range) -> &'static str {
    match range {
        Range::Rows { .. } => "max(place)",
        Range::Pages { .. } | Range::Keys { .. } | Range::At { .. } => "max(value)",
    }
}

fn pages(from: u64, to: u64) -> String {
    format!("ctid >= '({from},0)'::tid AND ctid < '({to},0)'::tid")
}

/// Row addresses as the text of an array.
pub(super) fn tid_array(places: &[String]) -> String {
    let quoted: Vec<String> = places.iter().map(|place| format!("\"{place}\"")).collect();
    format!("{{{}}}", quoted.join(","))
}
