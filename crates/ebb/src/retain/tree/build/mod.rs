//! Makes the tree of a policy out of the catalog's graph and what the policy says. Invariant: every table that something
//! leads to is looked at, and whatever cannot be erased safely is a finding; it asks nobody and changes nothing.

mod choice;
mod edges;
mod order;
mod triggers;

use std::collections::{BTreeMap, BTreeSet};

use self::order::Walk;
use super::entry::proposal;
use super::{Column, Edge, EdgeAction, Finding, Kept, Node, Size, Tree};
use crate::pg::{Ident, Relation};
use crate::policy::{Child, Term, Unnamed};
use crate::retain::graph::{ForeignKey, Graph, GraphColumn, GraphTable};
use crate::retain::keeper::Keeper;
use crate::retain::reader::Reader;
use crate::retain::store::rows::Path;
use crate::{Error, Result};

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
        followed: BTreeSet::new(),
        supposed: BTreeMap::new(),
        undecided: Vec::new(),
    };
    builder.links()?;
    builder.explore()?;
    builder.suppose()?;
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
    /// Doomed tables whose foreign keys were looked at.
    followed: BTreeSet<u32>,
    /// Tables that are doomed only if rows of a table go, which nobody has decided yet.
    supposed: BTreeMap<u32, String>,
    /// Entries that `children` needs yet, each with such a condition.
    undecided: Vec<(String, Option<String>)>,
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

    /// Follows every foreign key that leads to a doomed table, also to one that turned out to be doomed after it was met.
    fn explore(&mut self) -> Result<()> {
        let graph = self.graph;
        let next = |builder: &Self| {
            let mut nodes = builder.nodes.iter().copied();
            nodes.find(|table| builder.doomed.contains(table) && !builder.followed.contains(table))
        };
        while let Some(table) = next(self) {
            self.followed.insert(table);
            for key in graph.keys.iter().filter(|key| key.parent == table) {
                self.under(table, |builder| builder.follow(key))?;
            }
        }
        Ok(())
    }

    /// Looks below edges about which nobody has decided as if their rows went, so that everything is asked at once.
    fn suppose(&mut self) -> Result<()> {
        let mut next = 0;
        while let Some(edge) = self.edges.get(next) {
            next += 1;
            let table = self.nodes[edge.child];
            if edge.undecided && self.doomed.insert(table) {
                let label = self.table(table)?.relation.label();
                self.supposed.insert(table, label);
                self.explore()?;
            }
        }
        Ok(())
    }

    /// What is found about a table that goes only on a condition says so.
    fn under<T>(&mut self, table: u32, looks: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let (from, given) = (self.findings.len(), self.supposed.get(&table).cloned());
        let found = looks(self)?;
        if let Some(given) = given {
            for finding in &mut self.findings[from..] {
                finding.message = format!("if rows of {given} go: {}", finding.message);
            }
        }
        Ok(found)
    }

    /// A foreign key that not all partitions have is declared as a link over the whole table, which is an edge already.
    fn declared(&self, key: &ForeignKey) -> bool {
        !key.missing_in.is_empty() && self.named(key).is_some_and(|(_, link)| !link.references.is_empty())
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
        for component in &order {
            let supposed =
                component.iter().map(|node| self.nodes[*node]).find(|table| self.supposed.contains_key(table));
            let table = supposed.unwrap_or(self.nodes[component[0]]);
            self.under(table, |builder| {
                builder.bound(component)?;
                builder.inseparable(component)
            })?;
        }
        let mut nodes = Vec::new();
        for (at, oid) in self.nodes.clone().into_iter().enumerate() {
            let circle = order.iter().find(|component| component.contains(&at));
            let circle = circle.map_or(&[][..], Vec::as_slice);
            nodes.push(self.under(oid, |builder| builder.make_node(at, oid, circle))?);
        }
        let proposal = proposal(&self.undecided, !self.wishes.children.is_empty());
        Ok(Tree { nodes, edges: self.edges, order, groups, findings: self.findings, proposal, path: Path::default() })
    }

    /// Refuses a circle that no order of statements gets out of.
    fn bound(&mut self, component: &[usize]) -> Result<()> {
        let inside = |edge: &&Edge| component.contains(&edge.child) && component.contains(&edge.parent);
        let inside = self.edges.iter().filter(inside).filter(|edge| edge.action == EdgeAction::Delete);
        if component.len() == 1 || inside.clone().any(|edge| edge.loose) {
            return Ok(());
        }
        let label = |node: &usize| Ok(self.table(self.nodes[*node])?.relation.label());
        let circle: Vec<String> = component.iter().map(label).collect::<Result<_>>()?;
        let message =
            format!("{} refer to each other in a circle without a nullable or deferrable edge", circle.join(", "));
        let mut keys = inside.filter_map(|edge| Some((edge.child, edge.key.clone()?)));
        let fix = match keys.next() {
            Some((child, key)) => {
                let table = &self.table(self.nodes[child])?.relation;
                Some(format!("ALTER TABLE {table} ALTER CONSTRAINT {} DEFERRABLE", Ident::new(key)))
            }
            None => None,
        };
        let relation = self.table(self.nodes[component[0]])?.relation.clone();
        self.refuse(&relation, message, fix);
        Ok(())
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
                    match inside.iter().find_map(|edge| self.loosened(edge)) {
                        Some(statement) => format!("{statement} lets them go in parts"),
                        None => {
                            "a column that may be null, or a CHECK that allows it, lets them go in parts".to_owned()
                        }
                    },
                ),
                false => (
                    "no foreign key stands behind it",
                    "a foreign key on a nullable column lets them go in parts".to_owned(),
                ),
            };
            let message = format!(
                "rows that refer to each other in a circle through {} go in one transaction, however many: {why}",
                names.join(", ")
            );
            self.findings.push(Finding { refuses: false, table, message, fix: Some(fix) });
        }
        Ok(())
    }

    /// The statement after which a column of a foreign key may be null, where one can be.
    fn loosened(&self, edge: &Edge) -> Option<String> {
        edge.key.as_ref()?;
        let table = self.table(self.nodes[edge.child]).ok()?;
        let column = edge.child_columns.iter().find(|name| table.can_be_loosened(name.as_str()))?;
        Some(format!("ALTER TABLE {} ALTER COLUMN {column} DROP NOT NULL", table.relation))
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
            let (lacks, fix) = match table.defers_its_key() {
                true => ("its primary key is DEFERRABLE", "DROP CONSTRAINT …, ADD PRIMARY KEY (…) NOT DEFERRABLE"),
                false => ("it has no primary key", "ADD PRIMARY KEY (…)"),
            };
            let message = match at {
                0 => format!("{lacks}: a subject could not be named"),
                _ => format!("{lacks}, and rows of other tables refer to it"),
            };
            self.refuse(&relation, message, Some(format!("ALTER TABLE {relation} {fix}")));
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
            let message = "other tables inherit from it, and foreign keys do not see their rows";
            let fix = format!(
                "ALTER TABLE ONE_THAT_INHERITS NO INHERIT {relation}, for each, with a policy of its own where it has subjects; or make \
                 them its partitions"
            );
            self.refuse(&relation, message.into(), Some(fix));
        }
        let touched = doomed || self.edges.iter().any(|edge| edge.child == at && edge.action != EdgeAction::Keep);
        if let Some(rule) = table.rules.first().filter(|_| touched) {
            let message = format!("rule {rule} makes something else of what is deleted or changed there");
            let fix = format!("DROP RULE {} ON {relation}; a trigger can do the same", Ident::new(rule));
            self.refuse(&relation, message, Some(fix));
        }
        let nameless = table.leaves.iter().filter(|leaf| touched && table.nameless.contains(&leaf.oid));
        for leaf in nameless.map(|leaf| leaf.relation.label()) {
            let message = format!(
                "changes of {leaf} are published, and it has no replica identity: the server lets no row of it go or change"
            );
            let fix = format!("ALTER TABLE {leaf} REPLICA IDENTITY FULL; or give it a primary key");
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
        let wide = |column: &GraphColumn| Some((Ident::new(&column.name), Size::of(&column.sql_type)?));
        let wide = table.columns.iter().filter_map(wide).collect();
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
            wide,
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

fn same(one: &[String], other: &[String]) -> bool {
    one.len() == other.len() && one.iter().all(|name| other.contains(name))
}

fn idents(names: &[String]) -> Vec<Ident> {
    names.iter().map(Ident::new).collect()
}
