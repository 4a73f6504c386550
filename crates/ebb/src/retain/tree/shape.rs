//! A tree as people approve it: what is stored with the policy, compared with what the catalog says later, and told in words.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Edge, EdgeAction, Node, Tree};
use crate::pg::Ident;

impl Tree {
    /// What was approved and what is compared with it later: tables, their triggers, edges and actions. What upkeep takes out
    /// of a table that was approved is no other.
    pub(crate) fn shape(&self) -> Shape {
        self.shape_of(|node| !node.is_out, |edge| edge.given.is_none())
    }

    /// The same with that, too.
    pub(crate) fn whole_shape(&self) -> Shape {
        self.shape_of(|_| true, |edge| edge.given.is_none())
    }

    /// The same with what is there only if rows go about which nobody has decided yet.
    pub(crate) fn possible_shape(&self) -> Shape {
        self.shape_of(|node| !node.is_out, |_| true)
    }

    fn shape_of(&self, counts: impl Fn(&Node) -> bool, leads: impl Fn(&Edge) -> bool) -> Shape {
        let led_to = |at: usize| at == 0 || self.into(at).any(|(_, edge)| leads(edge));
        let goes = |at: usize| self.into(at).any(|(_, edge)| leads(edge) && edge.action == EdgeAction::Delete);
        let mut tables: Vec<ShapeTable> = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(at, node)| counts(node) && led_to(*at))
            .map(|(at, node)| ShapeTable {
                table: node.relation.label(),
                erased: at == 0 || goes(at),
                triggers: node
                    .triggers
                    .iter()
                    .chain(&node.destroyers)
                    .filter(|name| !is_own(name))
                    .cloned()
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect(),
            })
            .collect();
        let known = self.edges.iter().filter(|edge| counts(&self.nodes[edge.child]) && leads(edge));
        let mut edges: Vec<ShapeEdge> = known.map(|edge| self.shape_edge(edge)).collect();
        tables.sort();
        edges.sort();
        let key = self.nodes[0].key.iter().map(|column| column.name.as_str().to_owned()).collect();
        Shape { tables, edges, key }
    }

    /// What an edge is called, whatever becomes of its rows.
    pub(crate) fn name_of(&self, edge: &Edge) -> String {
        self.shape_edge(edge).name()
    }

    fn shape_edge(&self, edge: &Edge) -> ShapeEdge {
        let names = |columns: &[Ident]| columns.iter().map(|name| name.as_str().to_owned()).collect();
        ShapeEdge {
            table: self.nodes[edge.child].relation.label(),
            columns: names(&edge.child_columns),
            parent: self.nodes[edge.parent].relation.label(),
            references: names(&edge.parent_columns),
            foreign_key: edge.key.clone(),
            on_delete: edge.on_delete.filter(|_| edge.key.is_some()).map(|on_delete| on_delete.words().to_owned()),
            action: edge.action.word().to_owned(),
            kept_by: edge.kept.as_ref().map(|kept| kept.policy.clone()),
            emptied: match (&edge.action, &edge.kept) {
                (EdgeAction::Nullify(columns), _) => Some(names(columns)),
                (_, kept) => kept.as_ref().map(|kept| names(&kept.columns)),
            },
            undecided: edge.undecided,
            given: edge.given.clone(),
        }
    }
}

/// A tree as people approve it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Shape {
    /// Every table that is touched.
    pub tables: Vec<ShapeTable>,
    /// Every edge, with its action.
    pub edges: Vec<ShapeEdge>,
    /// The columns that subjects are known by; none where that was not written down yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
}

/// A table of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
pub struct ShapeTable {
    /// Its name.
    pub table: String,
    /// Whether rows of it go.
    pub erased: bool,
    /// What somebody lets happen when they do, or destroys when they change.
    pub triggers: Vec<String>,
}

/// An edge of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
pub struct ShapeEdge {
    /// The table that refers.
    pub table: String,
    /// By these columns.
    pub columns: Vec<String>,
    /// To this table.
    pub parent: String,
    /// And these columns of it.
    pub references: Vec<String>,
    /// The constraint, when there is one.
    pub foreign_key: Option<String>,
    /// What PostgreSQL would do by itself.
    pub on_delete: Option<String>,
    /// What Ebb does.
    pub action: String,
    /// The policy whose rows stay while it keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<String>,
    /// The columns that become null in rows that stay; none where that was not written down yet, or is not what happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emptied: Option<Vec<String>>,
    /// Nobody has said what becomes of its rows, and nothing is erased until somebody does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undecided: bool,
    /// It is there only if rows of this table go, which nobody has decided yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<String>,
}

impl ShapeTable {
    /// What is new of it, in words: all of it, or what became of its triggers and rows.
    fn difference(&self, before: Option<&Self>) -> String {
        let (name, triggers) = (&self.table, self.triggers.join(", "));
        let Some(before) = before else {
            return match triggers.is_empty() {
                true => format!("table {name}"),
                false => format!("table {name}, triggers {triggers}"),
            };
        };
        let beyond = |one: &Self, other: &Self| -> Vec<String> {
            let only = one.triggers.iter().filter(|trigger| !is_own(trigger) && !other.triggers.contains(trigger));
            only.cloned().collect()
        };
        let named = |triggers: Vec<String>, what: &str| match triggers.as_slice() {
            [] => None,
            [one] => Some(format!("trigger {one} is {what}")),
            several => Some(format!("triggers {} are {what}", several.join(", "))),
        };
        let rows = (self.erased != before.erased).then(|| match self.erased {
            true => "its rows go".to_owned(),
            false => "its rows stay".to_owned(),
        });
        let said = [named(beyond(self, before), "new"), named(beyond(before, self), "gone"), rows];
        format!("table {name}: {}", said.into_iter().flatten().collect::<Vec<_>>().join("; "))
    }
}

impl ShapeEdge {
    fn name(&self) -> String {
        format!("{} ({}) -> {} ({})", self.table, self.columns.join(", "), self.parent, self.references.join(", "))
    }
}

impl std::fmt::Display for ShapeEdge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name(), if self.undecided { "undecided" } else { &self.action })?;
        // Of a single column there is nothing to choose.
        let emptied = self.emptied.as_ref().filter(|_| self.columns.len() > 1);
        let emptied = emptied.map_or(String::new(), |columns| format!(" {}", columns.join(", ")));
        match &self.kept_by {
            Some(policy) => write!(f, ", nullify{emptied} while policy {policy} keeps it"),
            None => write!(f, "{emptied}"),
        }
    }
}

impl Shape {
    /// Whether another shape has the same tables and edges, and only which rows stay because a policy keeps them is different.
    pub(crate) fn differs_in_keepers(&self, now: &Shape) -> bool {
        let bare = |shape: &Shape| {
            let edges = shape.edges.iter().map(|edge| ShapeEdge { kept_by: None, emptied: None, ..edge.clone() });
            let mut edges: Vec<ShapeEdge> = edges.collect();
            edges.sort();
            (shape.tables.clone(), edges, shape.key.clone())
        };
        self != now && bare(self) == bare(now)
    }

    /// What another shape has more, less or otherwise, in words.
    pub(crate) fn differences(&self, now: &Shape) -> Vec<String> {
        let mut said = Vec::new();
        if !self.key.is_empty() && self.key != now.key {
            let (one, other) = (now.key.join(", "), self.key.join(", "));
            said.push(format!("subjects are known by {one}; open deletions and holds name them by {other}"));
        }
        // That rows stay for longer needs nobody's consent; that they do not any more does.
        let fewer = |edge: &ShapeEdge| match &edge.kept_by {
            Some(_) => ShapeEdge { kept_by: None, emptied: None, ..edge.clone() },
            None => edge.clone(),
        };
        // What becomes null is compared where it was written down.
        let same = |before: &ShapeEdge, now: &ShapeEdge| match &before.emptied {
            Some(_) => before == now,
            None => *before == ShapeEdge { emptied: None, ..now.clone() },
        };
        let meets = |before: &ShapeEdge, now: &ShapeEdge| same(before, now) || same(before, &fewer(now));
        let known = |now: &&ShapeEdge| self.edges.iter().any(|before| meets(before, now));
        let still = |before: &&ShapeEdge| now.edges.iter().any(|now| meets(before, now));
        said.extend(now.edges.iter().filter(|edge| !known(edge)).map(|edge| format!("new: {edge}")));
        said.extend(self.edges.iter().filter(|edge| !still(edge)).map(|edge| format!("gone: {edge}")));
        let same = |one: &ShapeTable, other: &ShapeTable| {
            (&one.table, one.erased) == (&other.table, other.erased)
                && one.triggers.iter().filter(|name| !is_own(name)).eq(&other.triggers)
        };
        for table in now.tables.iter().filter(|now| !self.tables.iter().any(|table| same(table, now))) {
            let before = self.tables.iter().find(|before| before.table == table.table);
            said.push(table.difference(before));
        }
        said.extend(
            self.tables
                .iter()
                .filter(|table| !now.tables.iter().any(|other| other.table == table.table))
                .map(|table| format!("gone: table {}", table.table)),
        );
        said
    }
}

/// A trigger of Ebb's own: it lets rows go, and comes and goes with a split or a guard.
fn is_own(trigger: &str) -> bool {
    let name = ["!", "a_", "zz_"].iter().find_map(|first| trigger.strip_prefix(first)).unwrap_or(trigger);
    name.starts_with("ebb_")
}
