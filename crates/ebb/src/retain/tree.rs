//! The tree of a policy: which rows go with a subject, through which edge, in which order. Invariants: every edge into
//! the tree has an action that somebody chose (the schema by CASCADE or SET NULL, or an entry of `children`); what
//! cannot be erased safely is refused by name, with the statement that mends it; nothing outside the tree is touched.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::graph::{ForeignKey, Graph, GraphTable, OnDelete};
use super::keeper::Keeper;
use crate::pg::{Ident, Relation};
use crate::policy::{Child, ChildAction, Term, Unnamed};
use crate::{Error, Result};

/// What erasing a subject does.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
    /// Nodes whose rows go, parents first; tables that refer to each other in a circle go together.
    pub(crate) order: Vec<Vec<usize>>,
    pub(crate) findings: Vec<Finding>,
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
    pub(crate) triggers: Vec<String>,
    pub(crate) tuples: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: Ident,
    pub(crate) sql_type: String,
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
    pub(crate) action: EdgeAction,
    pub(crate) on_delete: Option<OnDelete>,
    /// Where rows go: those that stay all the same.
    pub(crate) kept: Option<Kept>,
    /// A condition on its rows `n`, where only some are looked at.
    pub(crate) only: Option<String>,
    /// Values that tell parents apart: otherwise two subjects may share one.
    pub(crate) distinct: bool,
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
            && self
                .graph
                .keys
                .iter()
                .any(|key| key.parent == table && !self.edges.iter().any(|edge| self.is(edge, key)))
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
            let (wish, kept) = self.kept_longer(*table, &child.columns, child.action.clone(), true)?;
            let action = self.action(*table, &child.columns, &wish, None);
            let distinct = self.table(root)?.is_unique(&child.references);
            let edge = Edge {
                key: None,
                child: self.node(*table),
                parent: 0,
                child_columns: idents(&child.columns),
                parent_columns: idents(&child.references),
                on_delete: None,
                kept,
                only: None,
                distinct,
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
        let names: Vec<String> = edge.child_columns.iter().map(|name| name.as_str().to_owned()).collect();
        if edge.action != EdgeAction::Keep {
            self.indexed(self.nodes[edge.child], &names)?;
        }
        self.edges.push(edge);
        Ok(())
    }

    /// A large table is not walked for every batch.
    fn indexed(&mut self, table: u32, columns: &[String]) -> Result<()> {
        let table = self.table(table)?;
        let list = idents(columns).iter().map(Ident::to_string).collect::<Vec<_>>().join(", ");
        let missing: Vec<(String, Option<String>)> = table
            .unindexed(columns)
            .into_iter()
            .map(|(leaf, partial)| (leaf.label.clone(), partial.map(str::to_owned)))
            .collect();
        let relation = table.relation.clone();
        for (leaf, partial) in missing {
            let why = match partial {
                Some(predicate) => format!("only part of {leaf} is in an index on {list} ({predicate})"),
                None => format!("{leaf} has no index on {list}, and every batch would read all of it"),
            };
            let on = if leaf == relation.label() { relation.to_string() } else { leaf };
            self.refuse(&relation, why, Some(format!("CREATE INDEX CONCURRENTLY ON {on} ({list})")));
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
        if !key.missing_in.is_empty() {
            if let Some((_, link)) = named
                && !link.references.is_empty()
            {
                return Ok(()); // declared as a link over the whole table
            }
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
        let (wish, kept) = self.kept_longer(key.child, &key.set_columns, wish, named.is_some())?;
        let action =
            if refused { EdgeAction::Keep } else { self.action(key.child, &key.set_columns, &wish, Some(key)) };
        let table = self.table(key.child)?;
        let nullable = key.child_columns.iter().any(|name| table.column(name).is_some_and(|column| !column.not_null));
        let edge = Edge {
            key: Some(key.name.clone()),
            child: self.node(key.child),
            parent: self.node(key.parent),
            child_columns: idents(&key.child_columns),
            parent_columns: idents(&key.parent_columns),
            on_delete: Some(key.on_delete),
            kept,
            only: None,
            distinct: true,
            loose: key.deferrable || nullable,
            action,
        };
        self.add(edge)
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

    /// Rows that policies of their own keep longer stay, without their link: all of them where they are subjects, otherwise
    /// those whose own term is not over.
    fn kept_longer(
        &mut self,
        child: u32,
        columns: &[String],
        wish: ChildAction,
        named: bool,
    ) -> Result<(ChildAction, Option<Kept>)> {
        let wishes: &'a Wishes<'a> = self.wishes;
        let of_table = wishes.keepers.iter().filter(|keeper| keeper.table == child);
        let longer: Vec<&Keeper> = of_table.filter(|keeper| keeper.outlasts(&wishes.grace, named)).collect();
        let Some(keeper) = longer.first().filter(|_| wish == ChildAction::Delete) else { return Ok((wish, None)) };
        let table = self.table(child)?;
        let (relation, policy, term) =
            (table.relation.clone(), keeper.policy.clone(), keeper.floor.unwrap_or(keeper.retention));
        let nullable: Vec<String> =
            columns.iter().filter(|name| table.column(name).is_some_and(|column| !column.not_null)).cloned().collect();
        let list = columns.join(", ");
        if nullable.is_empty() {
            let message = format!("policy {policy} keeps its rows for {term}, longer than this one, and they would go");
            let fix = format!(
                "name an action for {list} that leaves them: nullify (the column must allow null) or anonymize"
            );
            self.refuse(&relation, message, Some(fix));
            return Ok((wish, None));
        }
        let stays: Option<Vec<String>> = longer.iter().map(|keeper| keeper.stays(named)).collect();
        let (which, decided) = match stays {
            None if named => {
                let message =
                    format!("policy {policy} keeps its rows for {term}, longer than this one, and they would go");
                self.refuse(&relation, message, Some(format!("name an action for {list} that leaves them")));
                return Ok((wish, None));
            }
            None => ("they stay", (ChildAction::Nullify, None)),
            Some(stays) => {
                let condition = stays.join(" OR ");
                let kept = Kept { policy: policy.clone(), condition, columns: idents(&nullable) };
                ("those stay until then", (wish, Some(kept)))
            }
        };
        let message = format!("policy {policy} keeps its rows for {term}: {which}, and {list} becomes null");
        self.findings.push(Finding { refuses: false, table: relation.label(), message, fix: None });
        Ok(decided)
    }

    /// The action for a link over `columns`, refused where a constraint forbids it.
    fn action(&mut self, table: u32, columns: &[String], wish: &ChildAction, key: Option<&ForeignKey>) -> EdgeAction {
        let Some(found) = self.graph.tables.get(&table) else { return EdgeAction::Keep };
        let relation = found.relation.clone();
        match wish {
            ChildAction::Delete => EdgeAction::Delete,
            ChildAction::Keep => {
                if let Some(key) = key {
                    let message = format!("its rows cannot be kept as they are: foreign key {} forbids it", key.name);
                    self.refuse(&relation, message, Some("nullify or anonymize the link".into()));
                }
                EdgeAction::Keep
            }
            ChildAction::Nullify => {
                let not_null: Vec<String> = columns
                    .iter()
                    .filter(|name| found.column(name).is_some_and(|column| column.not_null))
                    .cloned()
                    .collect();
                if not_null.len() == columns.len() {
                    let by = match key {
                        Some(key) if key.on_delete == OnDelete::SetNull => "ON DELETE SET NULL",
                        _ => "its action",
                    };
                    let list = not_null.join(", ");
                    let message = format!("{by} would set {list} to null, and the column does not allow it");
                    let fix = format!("ALTER TABLE {relation} ALTER COLUMN {} DROP NOT NULL", Ident::new(&not_null[0]));
                    self.refuse(&relation, message, Some(fix));
                }
                // One null is enough for a reference over several columns to end.
                let nullable: Vec<String> = columns.iter().filter(|name| !not_null.contains(name)).cloned().collect();
                EdgeAction::Nullify(idents(&nullable))
            }
            ChildAction::Anonymize(set) => {
                if let Some(name) = set.iter().map(|(name, _)| name).find(|name| found.column(name).is_none()) {
                    let message = format!("it has no column {name} to anonymize");
                    self.refuse(&relation, message, None);
                }
                let links = key.map_or(columns, |key| &key.child_columns);
                if let Some(key) = key
                    && !set.iter().any(|(name, _)| links.contains(name))
                {
                    let message = format!(
                        "anonymizing leaves {} as it is, and foreign key {} forbids that",
                        links.join(", "),
                        key.name
                    );
                    self.refuse(&relation, message, Some(format!("add {} = \"null\" to its set", links[0])));
                }
                EdgeAction::Anonymize(set.clone())
            }
        }
    }

    fn finish(mut self) -> Result<Tree> {
        for at in 0..self.wishes.children.len() {
            if !self.used.contains(&at) {
                let (table, child) = self.wishes.children[at];
                let relation = self.table(table)?.relation.clone();
                let message = format!(
                    "children names its column {}, which nothing that is erased leads to",
                    child.columns.join(", ")
                );
                self.refuse(&relation, message, Some("take the entry out, or give references".into()));
            }
        }
        let order = self.order();
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
        let mut nodes = Vec::new();
        for (at, oid) in self.nodes.clone().into_iter().enumerate() {
            nodes.push(self.make_node(at, oid)?);
        }
        Ok(Tree { nodes, edges: self.edges, order, findings: self.findings })
    }

    fn make_node(&mut self, at: usize, oid: u32) -> Result<Node> {
        let table = self.graph.tables.get(&oid).cloned().ok_or_else(|| Error::failed("a table vanished"))?;
        let relation = table.relation.clone();
        let doomed = self.doomed.contains(&oid);
        let referred = |edge: &&Edge| edge.parent == at && edge.action != EdgeAction::Keep;
        let inner = doomed && (at == 0 || self.edges.iter().any(|edge| referred(&edge)));
        let column = |name: &str| -> Option<Column> {
            table.column(name).map(|found| Column { name: Ident::new(name), sql_type: found.sql_type.clone() })
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
        if doomed && !table.delete_triggers.is_empty() {
            let names = table.delete_triggers.join(", ");
            let message =
                format!("trigger {names} runs for every row that goes; what it does elsewhere is in no count");
            self.findings.push(Finding { refuses: false, table: relation.label(), message, fix: None });
        }
        if at == 0 && !table.update_triggers.is_empty() {
            let names = table.update_triggers.join(", ");
            let message = format!(
                "trigger {names} deletes rows when a row is updated: what a restore needs may be gone after a soft delete"
            );
            self.findings.push(Finding { refuses: false, table: relation.label(), message, fix: None });
        }
        let (tuples, triggers) = (table.tuples(), if doomed { table.delete_triggers.clone() } else { Vec::new() });
        Ok(Node { relation, doomed, inner, key, read, triggers, tuples })
    }

    /// Strongly connected components of the doomed tables, parents first (Tarjan).
    fn order(&self) -> Vec<Vec<usize>> {
        let mut below: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for edge in self.edges.iter().filter(|edge| edge.action == EdgeAction::Delete) {
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

struct Walk<'a> {
    below: &'a BTreeMap<usize, Vec<usize>>,
    /// When a node was met, and the earliest node that it leads back to.
    index: BTreeMap<usize, (usize, usize)>,
    stack: Vec<usize>,
    components: Vec<Vec<usize>>,
}

impl Walk<'_> {
    fn visit(&mut self, node: usize) {
        let met = self.index.len();
        self.index.insert(node, (met, met));
        self.stack.push(node);
        let mut lowest = met;
        for child in self.below.get(&node).into_iter().flatten() {
            if !self.index.contains_key(child) {
                self.visit(*child);
                lowest = lowest.min(self.index[child].1);
            } else if self.stack.contains(child) {
                lowest = lowest.min(self.index[child].0);
            }
        }
        self.index.insert(node, (met, lowest));
        if lowest == met
            && let Some(at) = self.stack.iter().position(|on| *on == node)
        {
            let mut component = self.stack.split_off(at);
            component.sort_unstable();
            self.components.push(component);
        }
    }
}

impl Tree {
    /// What was approved and what is compared with it later: tables, their triggers, edges and actions.
    pub(crate) fn shape(&self) -> Shape {
        let mut tables: Vec<ShapeTable> = self
            .nodes
            .iter()
            .map(|node| ShapeTable {
                table: node.relation.label(),
                erased: node.doomed,
                triggers: node.triggers.clone(),
            })
            .collect();
        let mut edges: Vec<ShapeEdge> = self.edges.iter().map(|edge| self.shape_edge(edge)).collect();
        tables.sort();
        edges.sort();
        Shape { tables, edges }
    }

    fn shape_edge(&self, edge: &Edge) -> ShapeEdge {
        let names = |columns: &[Ident]| columns.iter().map(|name| name.as_str().to_owned()).collect();
        ShapeEdge {
            table: self.nodes[edge.child].relation.label(),
            columns: names(&edge.child_columns),
            parent: self.nodes[edge.parent].relation.label(),
            references: names(&edge.parent_columns),
            foreign_key: edge.key.clone(),
            on_delete: edge.on_delete.map(|on_delete| on_delete.words().to_owned()),
            action: edge.action.word().to_owned(),
            kept_by: edge.kept.as_ref().map(|kept| kept.policy.clone()),
        }
    }

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

    /// Edges that lead to a node.
    pub(crate) fn into(&self, node: usize) -> impl Iterator<Item = (usize, &Edge)> {
        self.edges.iter().enumerate().filter(move |(_, edge)| edge.child == node)
    }

    /// Edges by which others refer to a node.
    pub(crate) fn onto(&self, node: usize) -> impl Iterator<Item = (usize, &Edge)> {
        self.edges.iter().enumerate().filter(move |(_, edge)| edge.parent == node)
    }
}

/// A tree as people approve it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Shape {
    /// Every table that is touched.
    pub tables: Vec<ShapeTable>,
    /// Every edge, with its action.
    pub edges: Vec<ShapeEdge>,
}

/// A table of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
pub struct ShapeTable {
    /// Its name.
    pub table: String,
    /// Whether rows of it go.
    pub erased: bool,
    /// What somebody lets happen when they do.
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
}

impl std::fmt::Display for ShapeEdge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} ({}) -> {} ({}): {}",
            self.table,
            self.columns.join(", "),
            self.parent,
            self.references.join(", "),
            self.action
        )?;
        self.kept_by.iter().try_for_each(|policy| write!(f, ", nullify while policy {policy} keeps it"))
    }
}

impl Shape {
    /// What another shape has more, less or otherwise, in words.
    pub(crate) fn differences(&self, now: &Shape) -> Vec<String> {
        let mut said = Vec::new();
        // That rows stay for longer needs nobody's consent; that they do not any more does.
        let fewer = |edge: &ShapeEdge| ShapeEdge { kept_by: None, ..edge.clone() };
        let known = |edge: &&ShapeEdge| self.edges.contains(edge) || self.edges.contains(&fewer(edge));
        let still = |edge: &&ShapeEdge| {
            now.edges.iter().any(|now| now == *edge || (edge.kept_by.is_none() && fewer(now) == **edge))
        };
        said.extend(now.edges.iter().filter(|edge| !known(edge)).map(|edge| format!("new: {edge}")));
        said.extend(self.edges.iter().filter(|edge| !still(edge)).map(|edge| format!("gone: {edge}")));
        for table in now.tables.iter().filter(|table| !self.tables.contains(table)) {
            let triggers = if table.triggers.is_empty() {
                String::new()
            } else {
                format!(", triggers {}", table.triggers.join(", "))
            };
            said.push(format!("table {}{triggers}", table.table));
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

fn same(one: &[String], other: &[String]) -> bool {
    one.len() == other.len() && one.iter().all(|name| other.contains(name))
}

fn idents(names: &[String]) -> Vec<Ident> {
    names.iter().map(Ident::new).collect()
}
