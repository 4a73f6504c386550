//! The tree of a policy: which rows go with a subject, through which edge, in which order. Invariants: every edge into
//! the tree has an action that somebody chose (the schema by CASCADE or SET NULL, or an entry of `children`); what
//! cannot be erased safely is refused by name, with the statement that mends it; nothing outside the tree is touched.

mod build;
mod entry;
mod shape;

pub(crate) use build::{Marks, Wishes, build};
pub(crate) use entry::{children, entry, text};
pub use shape::{Shape, ShapeEdge, ShapeTable};

use serde::Serialize;

use super::graph::OnDelete;
use super::store::rows::{Path, Rows};
use crate::pg::{Ident, Operators, Relation};
use crate::{Error, Result};

/// What a row is taken to have in its small columns and in their names.
const SMALL: u32 = 200;
/// Of more ways to the rows of a subject not all are counted.
const MOST_PATHS: usize = 60;

/// What erasing a subject does.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
    /// Nodes whose rows go, parents first; tables that refer to each other in a circle go together.
    pub(crate) order: Vec<Vec<usize>>,
    /// The same where links that are only ended count too: what refers to each other in any way goes in one statement, so that
    /// nothing that goes has to lose a link before.
    pub(crate) groups: Vec<Vec<usize>>,
    pub(crate) findings: Vec<Finding>,
    /// What `children` needs yet, to be pasted.
    pub(crate) proposal: Option<String>,
    /// Where its statements look names up.
    pub(crate) path: Path,
}

/// A table that erasing touches. The first node of a tree is its root.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) relation: Relation,
    /// Whether its rows go; otherwise only their links are changed.
    pub(crate) doomed: bool,
    /// Rows of others refer to its rows, so these are read and locked before anything goes.
    pub(crate) inner: bool,
    /// What tells its rows apart, where that is needed.
    pub(crate) key: Vec<Column>,
    /// What is read of its rows: the key, then whatever others refer to.
    pub(crate) read: Vec<Column>,
    /// The other policy whose subjects its rows are, which go: what is known of them goes too.
    pub(crate) subjects_of: Option<String>,
    /// Triggers that run for rows that go.
    pub(crate) triggers: Vec<String>,
    /// Triggers that delete when rows are changed that stay, or before they go.
    pub(crate) destroyers: Vec<String>,
    /// A trigger may keep a row as it is that is to be changed, or make it so again.
    pub(crate) updates_hindered: bool,
    pub(crate) tuples: u64,
    /// Columns that may be large, with how their size is asked for.
    wide: Vec<(Ident, Size)>,
    /// It is a partition that Ebb has taken out: nobody is asked about it.
    pub(crate) is_out: bool,
}

/// How the size of a value is asked for, which need not be read for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Text,
    Bytes,
    /// As it is stored: what it is like otherwise only who reads it knows.
    Stored,
}

impl Size {
    /// Of a type; none where its values are always small.
    fn of(sql_type: &str) -> Option<Self> {
        let name = sql_type.split('(').next().unwrap_or(sql_type).trim_end();
        match name {
            "text" | "character varying" | "character" => Some(Self::Text),
            "bytea" => Some(Self::Bytes),
            "boolean" | "smallint" | "integer" | "bigint" | "real" | "double precision" | "date" | "uuid"
            | "interval" => None,
            _ if sql_type.starts_with("time") => None,
            _ => Some(Self::Stored),
        }
    }
}

impl Node {
    /// About how many bytes a row is as text, as SQL.
    pub(crate) fn bytes(&self, row: &str) -> String {
        let of = |(column, size): &(Ident, Size)| match size {
            Size::Text => format!("pg_catalog.octet_length({row}.{column})"),
            Size::Bytes => format!("2::int8 * pg_catalog.octet_length({row}.{column})"),
            Size::Stored => format!("pg_catalog.pg_column_size({row}.{column})"),
        };
        let wide = self.wide.iter().map(|column| format!(" + COALESCE({}, 0)", of(column)));
        format!("({SMALL}::int8{})", wide.collect::<String>())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: Ident,
    pub(crate) sql_type: String,
    /// By what its values are compared.
    pub(crate) operators: Operators,
}

/// Rows of `child` that refer to rows of `parent`.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    /// The foreign key's name; none for a link without one.
    pub(crate) key: Option<String>,
    pub(crate) child: usize,
    pub(crate) parent: usize,
    pub(crate) child_columns: Vec<Ident>,
    pub(crate) parent_columns: Vec<Ident>,
    /// By what each of its columns is compared with the parent's.
    pub(crate) operators: Vec<Operators>,
    pub(crate) action: EdgeAction,
    /// What the server does by itself; of a link, in a partition that has a foreign key where not all of them do.
    pub(crate) on_delete: Option<OnDelete>,
    /// Where rows go: those that stay all the same.
    pub(crate) kept: Option<Kept>,
    /// A condition on its rows `n`, where only some are looked at.
    pub(crate) only: Option<String>,
    /// Values that tell parents apart: otherwise two subjects may share one.
    pub(crate) distinct: bool,
    /// Columns of a foreign key that may become null: it can be ended before its rows go.
    pub(crate) nullable: Vec<Ident>,
    loose: bool,
    /// Nobody has said what becomes of its rows; nothing is erased until somebody does.
    pub(crate) undecided: bool,
    /// It is there only if rows of this table go, which nobody has decided yet.
    pub(crate) given: Option<String>,
}

/// Rows that a policy of their own keeps longer than their subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) policy: String,
    /// What is true of such a row `n`.
    pub(crate) condition: String,
    /// The link's columns that become null.
    pub(crate) columns: Vec<Ident>,
    /// What is true of those that no policy will take at any time.
    pub(crate) never: Option<String>,
}

impl Edge {
    /// What is read of its parent, as its child's columns are compared with it.
    pub(crate) fn compared(&self, read: &[Column]) -> Vec<Column> {
        let operators = |column: &Column| {
            let at = self.parent_columns.iter().position(|name| *name == column.name);
            at.map_or_else(|| column.operators.clone(), |at| self.operators[at].clone())
        };
        read.iter().map(|column| Column { operators: operators(column), ..column.clone() }).collect()
    }

    /// The server itself deletes or changes its rows when what they refer to goes.
    pub(crate) fn cascades(&self) -> bool {
        self.on_delete.is_some_and(OnDelete::acts)
    }

    /// Why a subject waits who shares its value with somebody.
    pub(crate) fn shared(&self) -> String {
        let columns: Vec<&str> = self.parent_columns.iter().map(Ident::as_str).collect();
        format!("a subject that may not go yet has the same {}", columns.join(", "))
    }

    /// The same edge, of whose rows only some are looked at.
    pub(crate) fn narrowed(&self, only: &str) -> Self {
        let only = match &self.only {
            Some(before) => format!("{before} AND {only}"),
            None => only.to_owned(),
        };
        Self { only: Some(only), ..self.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EdgeAction {
    Delete,
    Nullify(Vec<Ident>),
    Keep,
    /// Columns and the expressions that were typed for them.
    Anonymize(Vec<(String, String)>),
}

impl EdgeAction {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Nullify(_) => "nullify",
            Self::Keep => "keep",
            Self::Anonymize(_) => "anonymize",
        }
    }
}

/// Something about the schema that erasing meets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Nothing is erased while it is so.
    pub refuses: bool,
    /// The table it is about.
    pub table: String,
    /// What was found.
    pub message: String,
    /// What mends it.
    pub fix: Option<String>,
}

/// What mends a finding by itself: nothing where it is an entry of `children` that the proposal has.
pub(crate) fn mends<'a>(finding: &'a Finding, proposal: Option<&str>) -> Option<&'a str> {
    let entry = |fix: &str| fix.strip_prefix("children = [").and_then(|rest| rest.strip_suffix(']')).map(str::to_owned);
    let fix = finding.fix.as_deref()?;
    let proposed = |entry: String| proposal.is_some_and(|proposal| proposal.contains(&entry));
    (!entry(fix).is_some_and(proposed)).then_some(fix)
}

/// All that stands in the way, and all that mends it.
pub(crate) fn refusal(findings: &[Finding], proposal: Option<&str>) -> Option<Error> {
    let refusals: Vec<&Finding> = findings.iter().filter(|finding| finding.refuses).collect();
    if refusals.is_empty() {
        return None;
    }
    let told = refusals.iter().map(|finding| format!("{}: {}", finding.table, finding.message));
    let error = Error::several(told.collect());
    let fixes = refusals.iter().filter_map(|finding| mends(finding, proposal));
    let mut fixes: Vec<&str> = fixes.chain(proposal).collect();
    fixes.dedup();
    Some(if fixes.is_empty() { error } else { error.with_hint(fixes.join("\n")) })
}

impl Tree {
    /// An error when something stands in the way.
    pub(crate) fn refuse(&self) -> Result<()> {
        refusal(&self.findings, self.proposal.as_deref()).map_or(Ok(()), Err)
    }

    /// Whether a row can go with more than one subject.
    pub(crate) fn shares_rows(&self) -> bool {
        let deletes = |node: usize| self.into(node).filter(|(_, edge)| edge.action == EdgeAction::Delete);
        (0..self.nodes.len()).any(|node| deletes(node).count() > usize::from(node != 0))
            || self.edges.iter().any(|edge| !edge.distinct)
    }

    /// A trigger runs for rows that go, and may write others.
    pub(crate) fn has_triggers(&self) -> bool {
        self.nodes.iter().any(|node| !node.triggers.is_empty())
    }

    /// Nothing but Ebb's own statements decides what refers to what: no trigger, no expression, no other policy.
    pub(crate) fn is_quiet(&self) -> bool {
        let told = |edge: &Edge| edge.kept.is_some() || matches!(edge.action, EdgeAction::Anonymize(_));
        self.nodes.iter().all(|node| node.triggers.is_empty() && !node.updates_hindered) && !self.edges.iter().any(told)
    }

    /// Every way on which rows go with a subject, at any depth and through no table twice, and every way to rows that are
    /// changed because of it (`sets` says of an edge that it has such); of very many the shortest.
    pub(crate) fn paths(&self, sets: impl Fn(usize) -> bool) -> Vec<(Vec<&Edge>, Rows)> {
        let mut paths: Vec<(Vec<&Edge>, Rows)> = vec![(Vec::new(), Rows::Go)];
        let mut next = 0;
        while next < paths.len() && paths.len() <= MOST_PATHS {
            let (path, rows) = paths[next].clone();
            let at = path.last().map_or(0, |edge| edge.child);
            for (position, edge) in self.onto(at).filter(|_| rows == Rows::Go) {
                let longer = || path.iter().copied().chain([edge]).collect();
                if sets(position) {
                    paths.push((longer(), Rows::Stay));
                }
                let again = edge.child == 0 || path.iter().any(|passed| passed.child == edge.child);
                if edge.action == EdgeAction::Delete && !again {
                    paths.push((longer(), Rows::Go));
                }
            }
            next += 1;
        }
        paths.split_off(1)
    }

    /// Links behind which two subjects can have the same rows.
    pub(crate) fn shared_links(&self) -> impl Iterator<Item = &Edge> {
        let shared = |edge: &&Edge| edge.key.is_none() && !edge.distinct && edge.action != EdgeAction::Keep;
        self.edges.iter().filter(shared)
    }

    /// The tables that a table refers to in a circle, itself among them; none where it is in no circle.
    pub(crate) fn circle(&self, node: usize) -> Option<&[usize]> {
        let to_itself = |(_, edge): (usize, &Edge)| edge.parent == node && edge.action == EdgeAction::Delete;
        let component = self.order.iter().find(|component| component.contains(&node))?;
        (component.len() > 1 || self.into(node).any(to_itself)).then_some(component)
    }

    /// Whether two tables are in the same circle.
    pub(crate) fn circles(&self, one: usize, other: usize) -> bool {
        self.circle(one).is_some_and(|circle| circle.contains(&other))
    }

    /// Whether subjects hang on each other through other tables alone, and every reference to those may end before they go.
    pub(crate) fn is_parted(&self) -> bool {
        let back = |(_, edge): &(usize, &Edge)| edge.action == EdgeAction::Delete;
        self.into(0).filter(back).all(|(_, edge)| edge.parent != 0 && !edge.nullable.is_empty())
    }

    /// Whether subjects hang on each other.
    pub(crate) fn leads_back(&self) -> bool {
        self.into(0).any(|(_, edge)| edge.action == EdgeAction::Delete)
    }

    /// Whether a subject can take rows of another along, or another itself.
    pub(crate) fn leads_to_others(&self) -> bool {
        self.leads_back() || self.shared_links().next().is_some()
    }

    /// Edges that lead to a node.
    pub(crate) fn into(&self, node: usize) -> impl Iterator<Item = (usize, &Edge)> {
        self.edges.iter().enumerate().filter(move |(_, edge)| edge.child == node)
    }

    /// Edges by which others refer to a node, in the order in which their rows go.
    pub(crate) fn deepest_first(&self, node: usize) -> Vec<(usize, &Edge)> {
        let mut edges: Vec<(usize, &Edge)> = self.onto(node).collect();
        let depth = |child: usize| self.order.iter().position(|component| component.contains(&child));
        edges.sort_by_key(|(_, edge)| std::cmp::Reverse(depth(edge.child)));
        edges
    }

    /// Edges by which others refer to a node.
    pub(crate) fn onto(&self, node: usize) -> impl Iterator<Item = (usize, &Edge)> {
        self.edges.iter().enumerate().filter(move |(_, edge)| edge.parent == node)
    }
}
