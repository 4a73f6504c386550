//! The tree of a policy: which rows go with a subject, through which edge, in which order. Invariants: every edge into
//! the tree has an action that somebody chose (the schema by CASCADE or SET NULL, or an entry of `children`); what
//! cannot be erased safely is refused by name, with the statement that mends it; nothing outside the tree is touched.

mod choice;
mod order;
mod shape;
mod triggers;

pub use shape::{Shape, ShapeEdge, ShapeTable};

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use self::order::Walk;
use super::graph::{Collation, ForeignKey, Graph, GraphTable, OnDelete, Unserved};
use super::keeper::Keeper;
use super::reader::Reader;
use super::store::rows::{Path, Rows};
use crate::pg::{Ident, Operators, Relation};
use crate::policy::{Child, ChildAction, Term, Unnamed};
use crate::{Error, Result};

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
    /// It is a partition that Ebb has taken out: nobody is asked about it.
    pub(crate) is_out: bool,
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

/// What the policy says about its tree, with names resolved.
#[derive(Debug, Clone)]
pub(crate) struct Wishes<'a> {
    pub(crate) root: u32,
    pub(crate) children: Vec<(u32, &'a Child)>,
    pub(crate) unnamed: Unnamed,
    pub(crate) grace: Term,
    pub(crate) keepers: Vec<Keeper>,
    pub(crate) readers: Vec<Reader>,
    pub(crate) marks: Marks<'a>,
}

/// Columns of the root that say that it is soft-deleted, and all that are written because of it.
#[derive(Debug, Clone)]
pub(crate) struct Marks<'a> {
    pub(crate) soft: Vec<&'a str>,
    pub(crate) own: Vec<&'a str>,
}

/// Makes the tree. Whatever stands in its way is in its findings.
pub(crate) fn build(graph: &Graph, wishes: &Wishes<'_>) -> Result<Tree> {
    let mut builder = Builder {
        graph,
        wishes,
        nodes: vec![wishes.root],
        doomed: BTreeSet::from([wishes.root]),
        edges: Vec::new(),
        used: BTreeSet::new(),
        findings: Vec::new(),
    };
    builder.links()?;
    let mut next = 0;
    // Nodes are appended while their edges are followed.
    while next < builder.nodes.len() {
        let table = builder.nodes[next];
        if builder.doomed.contains(&table) {
            for key in graph.keys.iter().filter(|key| key.parent == table) {
                builder.follow(key)?;
            }
        }
        next += 1;
        // A table that was only to be unlinked may turn out to be doomed through another edge.
        if let Some(again) = builder.nodes.iter().position(|table| builder.unfollowed(*table)) {
            next = next.min(again);
        }
    }
    builder.finish()
}

struct Builder<'a> {
    graph: &'a Graph,
    wishes: &'a Wishes<'a>,
    nodes: Vec<u32>,
    doomed: BTreeSet<u32>,
    edges: Vec<Edge>,
    /// Entries of `children` that turned out to be about something.
    used: BTreeSet<usize>,
    findings: Vec<Finding>,
}

impl<'a> Builder<'a> {
    fn table(&self, oid: u32) -> Result<&GraphTable> {
        self.graph.tables.get(&oid).ok_or_else(|| Error::failed(format!("table {oid} vanished while it was read")))
    }

    fn refuse(&mut self, table: &Relation, message: String, fix: Option<String>) {
        self.findings.push(Finding { refuses: true, table: table.label(), message, fix });
    }

    /// The table that others know it by: that of a partition which is out.
    fn home(&self, oid: u32) -> u32 {
        self.graph.tables.get(&oid).and_then(|table| table.out_of).unwrap_or(oid)
    }

    fn node(&mut self, oid: u32) -> usize {
        match self.nodes.iter().position(|known| *known == oid) {
            Some(at) => at,
            None => {
                self.nodes.push(oid);
                self.nodes.len() - 1
            }
        }
    }

    /// Whether a doomed table has foreign keys that were not looked at yet.
    fn unfollowed(&self, table: u32) -> bool {
        self.doomed.contains(&table)
            && self.graph.keys.iter().any(|key| {
                key.parent == table && !self.declared(key) && !self.edges.iter().any(|edge| self.is(edge, key))
            })
    }

    /// A foreign key that not all partitions have is declared as a link over the whole table, which is an edge already.
    fn declared(&self, key: &ForeignKey) -> bool {
        !key.missing_in.is_empty() && self.named(key).is_some_and(|(_, link)| !link.references.is_empty())
    }

    fn is(&self, edge: &Edge, key: &ForeignKey) -> bool {
        edge.key.as_deref() == Some(&key.name)
            && self.nodes[edge.child] == key.child
            && self.nodes[edge.parent] == key.parent
            && edge.child_columns.iter().map(Ident::as_str).eq(key.child_columns.iter().map(String::as_str))
    }

    /// Entries of `children` that no foreign key stands behind.
    fn links(&mut self) -> Result<()> {
        for (at, (table, child)) in self.wishes.children.iter().enumerate() {
            let (root, named) = (self.wishes.root, self.table(*table)?.relation.clone());
            let behind = |key: &&ForeignKey| {
                key.child == *table && same(&key.child_columns, &child.columns) && key.missing_in.is_empty()
            };
            if self.graph.keys.iter().any(|key| behind(&key)) {
                continue;
            }
            self.used.insert(at);
            let columns = child.columns.join(", ");
            let has = |of: &GraphTable, names: &[String]| names.iter().all(|name| of.column(name).is_some());
            let lacks = child.references.is_empty() || !has(self.table(*table)?, &child.columns);
            if lacks && self.home(*table) != *table {
                continue;
            }
            if child.references.is_empty() {
                let message = format!("no foreign key of {} has column {columns}", named.label());
                self.refuse(&named, message, Some("say what it refers to: references = \"COLUMN OF THE ROOT\"".into()));
                continue;
            }
            for (of, names) in [(*table, &child.columns), (root, &child.references)] {
                let table = self.table(of)?;
                if let Some(name) = names.iter().find(|name| table.column(name).is_none()) {
                    let (relation, message) = (table.relation.clone(), format!("it has no column {name}"));
                    self.refuse(&relation, message, None);
                    return Ok(());
                }
            }
            let (wish, kept) = self.kept_longer(*table, (&child.columns, None), child.action.clone(), true)?;
            let action = self.action(*table, &child.columns, &wish, None);
            let distinct = self.table(root)?.is_unique(&child.references);
            // Some of its partitions may have a foreign key all the same.
            let of_some = |key: &&ForeignKey| {
                key.child == *table && key.parent == root && same(&key.child_columns, &child.columns)
            };
            let mut by_itself = self.graph.keys.iter().filter(of_some).map(|key| key.on_delete);
            let edge = Edge {
                key: None,
                child: self.node(*table),
                parent: 0,
                child_columns: idents(&child.columns),
                parent_columns: idents(&child.references),
                operators: self.operators((*table, &child.columns), (root, &child.references))?,
                on_delete: by_itself.find(|on_delete| on_delete.acts()),
                kept,
                only: None,
                distinct,
                nullable: Vec::new(),
                loose: true,
                action,
            };
            self.add(edge)?;
        }
        Ok(())
    }

    fn add(&mut self, edge: Edge) -> Result<()> {
        if edge.action == EdgeAction::Delete {
            self.doomed.insert(self.nodes[edge.child]);
        }
        let (child, parent) = (self.nodes[edge.child], self.nodes[edge.parent]);
        if edge.action != EdgeAction::Keep {
            self.indexed(child, &edge)?;
            for (table, columns) in [(child, &edge.child_columns), (parent, &edge.parent_columns)] {
                self.plain(table, columns)?;
            }
        }
        self.unshared(child, &edge)?;
        self.edges.push(edge);
        Ok(())
    }

    /// What is written to rows that stay is nothing that others refer to: the server would change those too, or refuse.
    fn unshared(&mut self, table: u32, edge: &Edge) -> Result<()> {
        let written: Vec<&str> = match (&edge.action, &edge.kept) {
            (EdgeAction::Nullify(columns), _) => columns.iter().map(Ident::as_str).collect(),
            (EdgeAction::Anonymize(set), _) => set.iter().map(|(name, _)| name.as_str()).collect(),
            (_, Some(kept)) => kept.columns.iter().map(Ident::as_str).collect(),
            _ => return Ok(()),
        };
        let graph: &'a Graph = self.graph;
        for key in graph.keys.iter().filter(|key| key.parent == table && key.enforced) {
            let Some(column) = key.parent_columns.iter().find(|name| written.contains(&name.as_str())) else {
                continue;
            };
            let (relation, by) = (self.table(table)?.relation.clone(), self.table(key.child)?.relation.label());
            let message = format!(
                "{column} of rows that stay is to be another, and {by} refers to it by foreign key {}: its rows would change \
                 with it, which nobody approved, or stand in the way",
                key.name
            );
            let fix = format!(
                "let {by} refer to another column of {relation}; or name an action for {} that leaves {column} as it is, or delete",
                edge.child_columns.iter().map(Ident::as_str).collect::<Vec<_>>().join(", ")
            );
            self.refuse(&relation, message, Some(fix));
        }
        Ok(())
    }

    /// A large table is not walked for every batch.
    fn indexed(&mut self, table: u32, edge: &Edge) -> Result<()> {
        let table = self.table(table)?;
        let own = |name: &Ident| table.column(name.as_str()).and_then(|column| column.collation.name());
        let columns = edge.child_columns.iter().zip(&edge.operators).map(|(name, operators)| {
            let by = operators.collation().or_else(|| own(name));
            (name.as_str().to_owned(), by.map(str::to_owned))
        });
        let columns: Vec<(String, Option<String>)> = columns.collect();
        let list = edge.child_columns.iter().map(Ident::to_string).collect::<Vec<_>>().join(", ");
        let ordered =
            edge.child_columns.iter().zip(&edge.operators).map(|(name, operators)| match operators.collation() {
                Some(by) if own(name) != Some(by) => format!("{name} COLLATE {by}"),
                _ => name.to_string(),
            });
        let ordered = ordered.collect::<Vec<_>>().join(", ");
        let missing = table.unindexed(&columns).into_iter().map(|(leaf, why)| (leaf.label.clone(), why));
        let missing: Vec<(String, Unserved)> = missing.collect();
        let relation = table.relation.clone();
        let soon: Vec<String> = table.soon_unindexed(&columns).into_iter().map(|leaf| leaf.label.clone()).collect();
        for leaf in soon {
            let message = format!("{leaf} has no index on {list}; when it has grown, the policy stops for lack of one");
            let on = if leaf == relation.label() { relation.to_string() } else { leaf };
            let fix = Some(format!("CREATE INDEX CONCURRENTLY ON {on} ({ordered})"));
            self.findings.push(Finding { refuses: false, table: relation.label(), message, fix });
        }
        for (leaf, why) in missing {
            let why = match why {
                Unserved::Partial(predicate) => format!("only part of {leaf} is in an index on {list} ({predicate})"),
                Unserved::Collation => format!(
                    "the index of {leaf} on {list} has another collation than it is compared by, and every batch would read all of it"
                ),
                Unserved::None => format!("{leaf} has no index on {list}, and every batch would read all of it"),
            };
            let on = if leaf == relation.label() { relation.to_string() } else { leaf };
            self.refuse(&relation, why, Some(format!("CREATE INDEX CONCURRENTLY ON {on} ({ordered})")));
        }
        Ok(())
    }

    /// Values that stand for several are not told apart as others are.
    fn plain(&mut self, table: u32, columns: &[Ident]) -> Result<()> {
        let found = self.table(table)?;
        let is_array =
            |name: &&Ident| found.column(name.as_str()).is_some_and(|column| column.sql_type.ends_with("[]"));
        if let Some(name) = columns.iter().find(is_array) {
            let relation = found.relation.clone();
            let message = format!("{} is an array, and links are followed by plain values only", name.as_str());
            let fix =
                format!("link by another column; or by one GENERATED ALWAYS AS an expression over {}", name.as_str());
            self.refuse(&relation, message, Some(fix));
        }
        Ok(())
    }

    /// Gives a foreign key its action and adds what it leads to.
    fn follow(&mut self, key: &ForeignKey) -> Result<()> {
        let child = self.table(key.child)?.relation.clone();
        let named = self.named(key);
        if let Some(partition) = &key.only_partition {
            let message = format!("foreign key {} refers to the one partition {partition}", key.name);
            self.refuse(&child, message, Some("let it refer to the whole table".into()));
        }
        if self.declared(key) {
            return Ok(());
        }
        if key.temporal {
            let message = format!(
                "foreign key {} is over periods: which rows belong to a subject is not told by equal values",
                key.name
            );
            let fix = "DROP CONSTRAINT, and name the other columns in children, with references";
            self.refuse(&child, message, Some(fix.into()));
        }
        if !key.enforced {
            let message = format!(
                "foreign key {} is not enforced: rows that somebody adds while a subject is erased stay",
                key.name
            );
            let fix = format!("ALTER TABLE {child} ALTER CONSTRAINT {} ENFORCED", Ident::new(&key.name));
            self.findings.push(Finding { refuses: false, table: child.label(), message, fix: Some(fix) });
        }
        if !key.missing_in.is_empty() {
            let lacking = key.missing_in.join(", ");
            let message =
                format!("{lacking} lacks the foreign key to {} that its siblings have", key.parent_columns.join(", "));
            let fix = "add it there, or name the whole table in children, with references";
            self.refuse(&child, message, Some(fix.into()));
        }
        let wish = match (named, key.on_delete, self.wishes.unnamed) {
            (Some((at, child)), ..) => {
                self.used.insert(at);
                child.action.clone()
            }
            (None, OnDelete::Cascade, _) => ChildAction::Delete,
            (None, OnDelete::SetNull, _) => ChildAction::Nullify,
            (None, _, Unnamed::Delete) => ChildAction::Delete,
            (None, _, Unnamed::Refuse) => {
                let columns = key.child_columns.join(", ");
                let message = format!(
                    "foreign key {} ({columns}) says ON DELETE {}: nobody has said what becomes of its rows",
                    key.name,
                    key.on_delete.words()
                );
                let column = if key.child_columns.len() == 1 {
                    format!("{:?}", key.child_columns[0])
                } else {
                    format!("{:?}", key.child_columns)
                };
                let fix = format!(
                    "children = [{{ table = {:?}, column = {column}, action = \"delete\" | \"nullify\" | \"anonymize\" }}]",
                    child.label()
                );
                self.refuse(&child, message, Some(fix));
                ChildAction::Keep
            }
        };
        let refused = wish == ChildAction::Keep && named.is_none();
        let (wish, kept) = self.kept_longer(key.child, (&key.set_columns, Some(key)), wish, named.is_some())?;
        let action =
            if refused { EdgeAction::Keep } else { self.action(key.child, &key.set_columns, &wish, Some(key)) };
        let table = self.table(key.child)?;
        let loose = key.deferrable || !table.emptied(&key.child_columns, key.full).is_empty();
        let nullable = idents(&table.ended(&key.child_columns, key.full));
        let edge = Edge {
            key: Some(key.name.clone()),
            child: self.node(key.child),
            parent: self.node(key.parent),
            child_columns: idents(&key.child_columns),
            parent_columns: idents(&key.parent_columns),
            operators: self.operators((key.child, &key.child_columns), (key.parent, &key.parent_columns))?,
            on_delete: Some(key.on_delete),
            kept,
            only: None,
            distinct: true,
            loose,
            nullable,
            action,
        };
        self.add(edge)
    }

    fn operators(&self, child: (u32, &[String]), parent: (u32, &[String])) -> Result<Vec<Operators>> {
        let own = |(table, names): (u32, &[String])| -> Result<Vec<(Operators, Collation)>> {
            let table = self.table(table)?;
            let of = |name: &String| {
                let found = table.column(name).map(|found| (found.operators.clone(), found.collation.clone()));
                found.unwrap_or_else(|| (Operators::built_in(), Collation::default()))
            };
            Ok(names.iter().map(of).collect())
        };
        let pairs = own(child)?.into_iter().zip(own(parent)?);
        Ok(pairs.map(|((one, own), (other, theirs))| one.with(&other).collated(own.beside(&theirs))).collect())
    }

    fn named(&self, key: &ForeignKey) -> Option<(usize, &'a Child)> {
        let wishes: &'a Wishes<'a> = self.wishes;
        let found = wishes.children.iter().enumerate().find(|(_, (table, child))| {
            *table == key.child
                && same(&key.child_columns, &child.columns)
                && (child.references.is_empty() || same(&key.parent_columns, &child.references))
        });
        found.map(|(at, (_, child))| (at, *child))
    }

    fn finish(mut self) -> Result<Tree> {
        for at in 0..self.wishes.children.len() {
            let (table, child) = self.wishes.children[at];
            if !self.used.contains(&at) && self.home(table) == table {
                let relation = self.table(table)?.relation.clone();
                let message = format!(
                    "children names its column {}, which nothing that is erased leads to",
                    child.columns.join(", ")
                );
                self.refuse(&relation, message, Some("take the entry out, or give references".into()));
            }
        }
        let (order, groups) = self.order();
        for component in order.iter().filter(|component| component.len() > 1) {
            let inside = |edge: &&Edge| component.contains(&edge.child) && component.contains(&edge.parent);
            let inside = self.edges.iter().filter(inside).filter(|edge| edge.action == EdgeAction::Delete);
            if !inside.clone().any(|edge| edge.loose) {
                let names: Vec<String> = inside.filter_map(|edge| edge.key.clone()).collect();
                let circle: Vec<String> = component
                    .iter()
                    .map(|node| Ok(self.table(self.nodes[*node])?.relation.label()))
                    .collect::<Result<_>>()?;
                let relation = self.table(self.nodes[component[0]])?.relation.clone();
                let message = format!(
                    "{} refer to each other in a circle without a nullable or deferrable edge",
                    circle.join(", ")
                );
                let fix =
                    format!("ALTER TABLE … ALTER CONSTRAINT {} DEFERRABLE", names.first().cloned().unwrap_or_default());
                self.refuse(&relation, message, Some(fix));
            }
        }
        for component in &order {
            self.inseparable(component)?;
        }
        let mut nodes = Vec::new();
        for (at, oid) in self.nodes.clone().into_iter().enumerate() {
            let circle = order.iter().find(|component| component.contains(&at));
            nodes.push(self.make_node(at, oid, circle.map_or(&[][..], Vec::as_slice))?);
        }
        Ok(Tree { nodes, edges: self.edges, order, groups, findings: self.findings, path: Path::default() })
    }

    /// Names a circle whose rows cannot be parted: no column of it may become null before they go.
    fn inseparable(&mut self, component: &[usize]) -> Result<()> {
        let inside = |edge: &&Edge| component.contains(&edge.child) && component.contains(&edge.parent);
        let inside = self.edges.iter().filter(|edge| edge.action == EdgeAction::Delete).filter(inside);
        let inside: Vec<&Edge> = inside.collect();
        let subjects = inside.iter().filter(|edge| edge.child == 0);
        let bound = match component.contains(&0) {
            true => subjects.clone().any(|edge| edge.nullable.is_empty()),
            false => !inside.is_empty() && inside.iter().all(|edge| edge.nullable.is_empty()),
        };
        if bound {
            let table = self.table(self.nodes[component[0]])?.relation.label();
            let columns = |edge: &Edge| edge.child_columns.iter().map(Ident::as_str).collect::<Vec<_>>().join(", ");
            let named = |edge: &&Edge| edge.key.clone().unwrap_or_else(|| columns(edge));
            let names: BTreeSet<String> = inside.iter().map(named).collect();
            let names: Vec<String> = names.into_iter().collect();
            let (why, fix) = match inside.iter().any(|edge| edge.key.is_some()) {
                true => (
                    "no column of it may be null, or a CHECK or the column itself, which is generated, says what it has to be",
                    "ALTER TABLE … ALTER COLUMN … DROP NOT NULL, or a CHECK that allows null, lets them go in parts",
                ),
                false => {
                    ("no foreign key stands behind it", "a foreign key on a nullable column lets them go in parts")
                }
            };
            let message = format!(
                "rows that refer to each other in a circle through {} go in one transaction, however many: {why}",
                names.join(", ")
            );
            self.findings.push(Finding { refuses: false, table, message, fix: Some(fix.to_owned()) });
        }
        Ok(())
    }

    fn make_node(&mut self, at: usize, oid: u32, circle: &[usize]) -> Result<Node> {
        let table = self.graph.tables.get(&oid).cloned().ok_or_else(|| Error::failed("a table vanished"))?;
        let relation = table.relation.clone();
        let doomed = self.doomed.contains(&oid);
        let referred = |edge: &&Edge| edge.parent == at && (edge.action != EdgeAction::Keep || edge.cascades());
        let mut keepers = self.wishes.keepers.iter();
        let subjects = keepers.find(|keeper| doomed && keeper.table == self.home(oid) && keeper.is_of_subjects());
        let subjects_of = subjects.map(|keeper| keeper.policy.clone());
        let inner = doomed && (at == 0 || subjects_of.is_some() || self.edges.iter().any(|edge| referred(&edge)));
        let column = |name: &str| -> Option<Column> {
            let found = table.column(name)?;
            let (sql_type, operators) = (found.sql_type.clone(), found.operators.clone());
            Some(Column { name: Ident::new(name), sql_type, operators })
        };
        let key: Vec<Column> = if inner {
            table.key().unwrap_or_default().iter().filter_map(|name| column(name)).collect()
        } else {
            Vec::new()
        };
        if inner && key.is_empty() {
            let message = "it has no primary key, and rows of other tables refer to it".to_owned();
            let message =
                if at == 0 { "it has no primary key: a subject could not be named".to_owned() } else { message };
            self.refuse(&relation, message, Some(format!("ALTER TABLE {relation} ADD PRIMARY KEY (…)")));
        }
        let mut read = key.clone();
        for edge in self.edges.iter().filter(referred).filter(|_| inner) {
            for name in edge.parent_columns.iter().filter_map(|name| column(name.as_str())) {
                if !read.contains(&name) {
                    read.push(name);
                }
            }
        }
        if table.inherited {
            self.refuse(&relation, "other tables inherit from it, and foreign keys do not see their rows".into(), None);
        }
        let touched = doomed || self.edges.iter().any(|edge| edge.child == at && edge.action != EdgeAction::Keep);
        if let Some(rule) = table.rules.first().filter(|_| touched) {
            let message = format!("rule {rule} makes something else of what is deleted or changed there");
            let fix = format!("DROP RULE {} ON {relation}; a trigger can do the same", Ident::new(rule));
            self.refuse(&relation, message, Some(fix));
        }
        if at == 0 && self.edges.iter().any(|edge| edge.child == 0 && edge.action == EdgeAction::Delete) {
            let message =
                "subjects hang on each other: one goes only when all that would go along with it may go as well";
            let fix = "children = [{ table, column, action = \"nullify\" }] lets each go by itself";
            let (table, message, fix) = (relation.label(), message.to_owned(), Some(fix.to_owned()));
            self.findings.push(Finding { refuses: false, table, message, fix });
        }
        let (triggers, destroyers) = self.triggers(at, &table, circle);
        let (tuples, updates_hindered, is_out) = (table.tuples(), table.updates_hindered, table.out_of.is_some());
        Ok(Node {
            relation,
            doomed,
            inner,
            key,
            read,
            subjects_of,
            triggers,
            destroyers,
            updates_hindered,
            tuples,
            is_out,
        })
    }

    /// The doomed tables, parents first, by what goes, and in groups by what refers. Rows that only lose a link come after those
    /// of their table that go, or both would count; of a group, by what goes alone.
    fn order(&self) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
        let goes = self.components(|edge| edge.action == EdgeAction::Delete);
        let groups =
            self.components(|edge| edge.action != EdgeAction::Keep && self.doomed.contains(&self.nodes[edge.child]));
        let of = |group: &Vec<usize>| goes.iter().filter(|one| group.contains(&one[0])).cloned().collect::<Vec<_>>();
        (groups.iter().flat_map(of).collect(), groups)
    }

    /// Strongly connected components of the doomed tables by some of their edges, parents first (Tarjan).
    fn components(&self, by: impl Fn(&Edge) -> bool) -> Vec<Vec<usize>> {
        let mut below: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for edge in self.edges.iter().filter(|edge| by(edge)) {
            below.entry(edge.parent).or_default().push(edge.child);
        }
        let (index, stack, components) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut walk = Walk { below: &below, index, stack, components };
        for node in 0..self.nodes.len() {
            if self.doomed.contains(&self.nodes[node]) && !walk.index.contains_key(&node) {
                walk.visit(node);
            }
        }
        walk.components.reverse();
        walk.components
    }
}

impl Tree {
    /// An error when something stands in the way.
    pub(crate) fn refuse(&self) -> Result<()> {
        let refusals: Vec<&Finding> = self.findings.iter().filter(|finding| finding.refuses).collect();
        let Some(first) = refusals.first() else { return Ok(()) };
        let told: Vec<String> =
            refusals.iter().map(|finding| format!("{}: {}", finding.table, finding.message)).collect();
        let error = Error::config(told.join("; "));
        Err(match &first.fix {
            Some(fix) if refusals.len() == 1 => error.with_hint(fix.clone()),
            _ => {
                let fixes: Vec<&str> = refusals.iter().filter_map(|finding| finding.fix.as_deref()).collect();
                if fixes.is_empty() { error } else { error.with_hint(fixes.join("; ")) }
            }
        })
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

fn same(one: &[String], other: &[String]) -> bool {
    one.len() == other.len() && one.iter().all(|name| other.contains(name))
}

fn idents(names: &[String]) -> Vec<Ident> {
    names.iter().map(Ident::new).collect()
}
