//! How far a hold reaches: which rows of a table belong to a subject on hold, as SQL that other duties can ask without
//! knowing any of this. Invariant: every row that erasing the subject would take or change is one, also where only its
//! link would end, because keeping a row for longer can be mended and the opposite cannot.

use std::collections::BTreeMap;

use super::compile::Compiled;
use super::tree::{Column, Edge, EdgeAction, Tree};
use crate::gate::{ROW, Reach};
use crate::pg::{Literal, Operators};

/// Longer ways up are walked step by step instead of being written out.
const MOST_WAYS: usize = 16;

/// Of every table of the tree, what is true of a row of a subject on hold; any of it is enough.
pub(crate) fn reach(policy: &str, compiled: &Compiled) -> BTreeMap<String, Reach> {
    let up = |referring| Up { policy, tree: &compiled.tree, key: &compiled.root.key, referring };
    let nodes = compiled.tree.nodes.iter().enumerate().filter(|(_, node)| !node.is_out);
    let of = |at| Reach { conditions: up(true).of(at), erased: up(false).of(at) };
    nodes.map(|(at, node)| (node.relation.label(), of(at))).collect()
}

struct Up<'a> {
    policy: &'a str,
    tree: &'a Tree,
    key: &'a [Column],
    /// Rows count that only refer to a subject.
    referring: bool,
}

impl Up<'_> {
    fn of(&self, node: usize) -> Vec<String> {
        match self.ways(node, &mut Vec::new()) {
            Some(0) => Vec::new(),
            Some(ways) if ways <= MOST_WAYS => self.written_out(node, ROW, 1),
            _ => vec![self.step_by_step(node)],
        }
    }

    /// How many ways lead up from a node to the root; none where there is a circle on the way.
    fn ways(&self, node: usize, path: &mut Vec<usize>) -> Option<usize> {
        if path.contains(&node) {
            return None;
        }
        path.push(node);
        let mut ways = usize::from(node == 0);
        for edge in self.edges(node, path.len() == 1) {
            ways += self.ways(edge.parent, path)?;
        }
        path.pop();
        Some(ways)
    }

    /// The edges that lead up from a row: from the row itself any that counts, beyond it those by which rows go.
    fn edges(&self, node: usize, own: bool) -> impl Iterator<Item = &Edge> {
        let own = own && self.referring;
        self.tree.into(node).map(|(_, edge)| edge).filter(move |edge| own || edge.action == EdgeAction::Delete)
    }

    fn written_out(&self, node: usize, row: &str, depth: usize) -> Vec<String> {
        let mut conditions = Vec::new();
        if node == 0 {
            let own = |column: &Column| (format!("{row}.{}", column.name), column.operators.clone());
            let columns: Vec<(String, Operators)> = self.key.iter().map(own).collect();
            conditions.push(self.on_hold(&columns));
        }
        for edge in self.edges(node, depth == 1) {
            conditions.push(match self.names_the_subject(edge, row) {
                Some(columns) => self.on_hold(&columns),
                None => {
                    let parent = format!("\"ebb:{depth}\"");
                    let above = self.written_out(edge.parent, &parent, depth + 1).join(" OR ");
                    let link = link(edge, row, &parent);
                    let relation = &self.tree.nodes[edge.parent].relation;
                    format!("EXISTS (SELECT FROM {relation} AS {parent} WHERE {link} AND ({above}))")
                }
            });
        }
        conditions
    }

    /// The columns of a row that are its subject's key, where its link is to that and nothing hangs above the root.
    fn names_the_subject(&self, edge: &Edge, row: &str) -> Option<Vec<(String, Operators)>> {
        if edge.parent != 0 || edge.parent_columns.len() != self.key.len() || self.edges(0, false).next().is_some() {
            return None;
        }
        let column = |key: &Column| {
            let at = edge.parent_columns.iter().position(|name| *name == key.name)?;
            Some((format!("{row}.{}", edge.child_columns[at]), edge.operators[at].clone()))
        };
        self.key.iter().map(column).collect()
    }

    /// Whether somebody holds the subject whose key these columns are. The id is read as the key's own type, so that
    /// its own equality decides, and an index on either side can be used.
    fn on_hold(&self, columns: &[(String, Operators)]) -> String {
        let same: Vec<String> = columns
            .iter()
            .zip(self.key)
            .enumerate()
            .map(|(at, ((column, operators), key))| match self.key.len() {
                1 => operators.same(column, &format!("\"ebb:hold\".subject_id::{}", key.sql_type)),
                _ => {
                    let part = format!("(\"ebb:hold\".subject_id::jsonb ->> {at})::{}", key.sql_type);
                    operators.same(column, &part)
                }
            })
            .collect();
        format!("EXISTS (SELECT {} AND {})", self.holds(), same.join(" AND "))
    }

    fn holds(&self) -> String {
        format!(
            "FROM ebb.hold AS \"ebb:hold\" WHERE \"ebb:hold\".policy = {} AND \"ebb:hold\".lifted_at IS NULL \
             AND (\"ebb:hold\".until IS NULL OR \"ebb:hold\".until > ebb.now())",
            Literal(self.policy)
        )
    }

    /// For tables below a circle: from the row to what it refers to, and on, until nothing new is found.
    fn step_by_step(&self, node: usize) -> String {
        let mut first: Vec<String> = Vec::new();
        if node == 0 {
            first.push(format!("SELECT 0, {}", texts(self.key, ROW)));
        }
        for edge in self.edges(node, true) {
            let parent = &self.tree.nodes[edge.parent];
            first.push(format!(
                "SELECT {}, {} FROM {} AS \"ebb:p\" WHERE {}",
                edge.parent,
                texts(&parent.key, "\"ebb:p\""),
                parent.relation,
                link(edge, ROW, "\"ebb:p\"")
            ));
        }
        let goes = |edge: &&Edge| edge.action == EdgeAction::Delete && self.tree.nodes[edge.child].inner;
        let inner = self.tree.edges.iter().filter(goes);
        let next: Vec<String> = inner
            .map(|edge| {
                let (child, parent) = (&self.tree.nodes[edge.child], &self.tree.nodes[edge.parent]);
                // Keys of other tables are of other types: read only where it is this table's.
                let mine: Vec<String> = child
                    .key
                    .iter()
                    .enumerate()
                    .map(|(at, column)| {
                        let key = format!(
                            "CASE WHEN \"ebb:up\".node = {} THEN (\"ebb:up\".key)[{}]::{} END",
                            edge.child,
                            at + 1,
                            column.sql_type
                        );
                        column.operators.same(&format!("\"ebb:c\".{}", column.name), &key)
                    })
                    .collect();
                format!(
                    "SELECT {}, {} FROM {} AS \"ebb:c\" JOIN {} AS \"ebb:p\" ON {} WHERE {}",
                    edge.parent,
                    texts(&parent.key, "\"ebb:p\""),
                    child.relation,
                    parent.relation,
                    link(edge, "\"ebb:c\"", "\"ebb:p\""),
                    mine.join(" AND ")
                )
            })
            .collect();
        let id = match self.key.len() {
            1 => "(\"ebb:up\".key)[1]".to_owned(),
            _ => "pg_catalog.to_jsonb(\"ebb:up\".key)::text".to_owned(),
        };
        format!(
            "EXISTS (WITH RECURSIVE \"ebb:up\" (node, key) AS (({}) UNION \
             SELECT \"ebb:next\".node, \"ebb:next\".key FROM \"ebb:up\", LATERAL ({}) AS \"ebb:next\" (node, key)) \
             SELECT FROM \"ebb:up\" WHERE \"ebb:up\".node = 0 AND EXISTS (SELECT {} AND \"ebb:hold\".subject_id = {id}))",
            first.join(" UNION ALL "),
            next.join(" UNION ALL "),
            self.holds()
        )
    }
}

fn texts(key: &[Column], row: &str) -> String {
    let list: Vec<String> = key.iter().map(|column| format!("{row}.{}::text", column.name)).collect();
    format!("ARRAY[{}]", list.join(", "))
}

fn link(edge: &Edge, child: &str, parent: &str) -> String {
    let pairs = edge.child_columns.iter().zip(&edge.parent_columns).zip(&edge.operators);
    let pairs: Vec<String> = pairs
        .map(|((own, theirs), operators)| operators.same(&format!("{parent}.{theirs}"), &format!("{child}.{own}")))
        .collect();
    pairs.join(" AND ")
}
