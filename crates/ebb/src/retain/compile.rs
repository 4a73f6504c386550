//! From a policy to something that can run: names resolved, the tree built, expressions checked by the server.
//! Invariant: what comes out of here was read from the catalog in the same transaction that uses it.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::graph::Graph;
use super::keeper::Surroundings;
use super::store::rows::{self, Path, Root, SoftDelete, Standing};
use super::tree::{self, EdgeAction, Finding, Marks, Tree, Wishes};
use super::{graph, keeper, path, reader, store, written};
use crate::gate::Held;
use crate::pg::expression::Change;
use crate::pg::{Ident, Relation, catalog, expression};
use crate::policy::{Mirror, Retain, Subjects};
use crate::{Error, Result};

/// A policy over subjects, ready for SQL.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) root: Root,
    pub(crate) tree: Tree,
    /// What an edge sets, by its position in the tree.
    pub(crate) sets: BTreeMap<usize, Set>,
    pub(crate) owner: String,
    pub(crate) oid: u32,
    pub(crate) role: Option<Ident>,
    /// A copy is kept of what goes.
    pub(crate) copies: bool,
}

impl Compiled {
    /// Of what holds keep from a policy, what stops its own subjects. Of those on hold of its own it knows the ids, unless rows are
    /// shared, or a key is equal to one that is written differently.
    pub(crate) fn binding(&self, policy: &str, mut held: Vec<Held>) -> Vec<Held> {
        let (root, shared) = (self.root.relation.label(), self.tree.shares_rows());
        held.retain(|held| held.policy != policy || shared || held.relation == root);
        held
    }
}

/// What becomes of the columns of rows that stay.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    /// (column, SQL).
    pub(crate) values: Vec<(Ident, String)>,
    /// What is true of a row behind its edge that is to be set yet; none where only who wrote it last tells.
    pub(crate) unset: Option<String>,
}

const ANY: &str = "true";

impl Set {
    /// Ends the link: a row that was set is behind its edge no longer.
    fn null(columns: &[Ident]) -> Self {
        let values = columns.iter().map(|column| (column.clone(), "NULL".to_owned())).collect();
        Self { values, unset: Some(ANY.to_owned()) }
    }

    /// Whatever is behind its edge is to be set yet.
    pub(crate) fn ends_link(&self) -> bool {
        self.unset.as_deref() == Some(ANY)
    }

    /// A row that was set says so by its values, unless these come from the time, or from what is set.
    fn anonymous(link: &[Ident], changes: Vec<(Ident, Change)>) -> Self {
        let ends = changes.iter().any(|(column, change)| link.contains(column) && change.is_null());
        let names = || changes.iter().map(|(column, _)| column.as_str());
        let told = |change: &Change| {
            let value = change.value.to_string();
            !change.moves && !names().any(|name| value.contains(name))
        };
        let differs = || changes.iter().map(|(_, change)| change.differs.to_string()).collect::<Vec<_>>();
        let unset = match (ends, changes.iter().all(|(_, change)| told(change))) {
            (true, _) => Some(ANY.to_owned()),
            (false, true) => Some(format!("({})", differs().join(" OR "))),
            (false, false) => None,
        };
        let values = changes.into_iter().map(|(column, change)| (column, rows::change_sql(&change))).collect();
        Self { values, unset }
    }
}

/// The tree alone, with whatever stands in its way.
pub(crate) async fn tree(
    connection: &mut PgConnection,
    policy: &Retain,
    subjects: &Subjects,
) -> Result<(catalog::Table, Tree)> {
    let among = Surroundings::found(connection).await?;
    tree_among(connection, policy, subjects, among).await
}

/// The same beside policies that are not stored yet, or before there is a place to store them.
pub(crate) async fn tree_among(
    connection: &mut PgConnection,
    policy: &Retain,
    subjects: &Subjects,
    among: Surroundings<'_>,
) -> Result<(catalog::Table, Tree)> {
    let table = catalog::table(connection, &policy.table).await?;
    if let Some((_, whole)) = store::partition_of(connection, table.oid).await? {
        let (partition, whole) = (table.relation.label(), whole.label());
        return Err(Error::config(format!("{partition} is a partition of {whole}, which is what others refer to"))
            .with_hint(format!(
                "table = {whole:?}; tenant and tenant_override let some of its subjects have other terms"
            ))
            .at_key("table"));
    }
    let aside = if among.installed { store::graph_aside(connection).await? } else { Vec::new() };
    let mut children = Vec::new();
    for child in &subjects.children {
        let named = catalog::table(connection, &child.table).await?;
        let out = aside.iter().filter(|(_, out_of)| *out_of == Some(named.oid)).map(|(oid, _)| *oid);
        children.extend(std::iter::once(named.oid).chain(out).map(|oid| (oid, child)));
    }
    let mut seeds = vec![table.oid];
    seeds.extend(children.iter().map(|(oid, _)| *oid));
    let graph = graph::read(connection, &seeds, &aside).await?;
    let keepers = keeper::keepers(connection, policy, among).await?;
    let readers = reader::readers(connection, policy, among).await?;
    let (unnamed, grace, marks) = (subjects.unnamed, subjects.grace, marks(subjects));
    let wishes = Wishes { root: table.oid, children, unnamed, grace, keepers, readers, marks };
    let mut tree = tree::build(&graph, &wishes)?;
    let unlike = unlike(connection, &graph, &tree).await?;
    tree.findings.extend(unlike);
    Ok((table, tree))
}

/// Links without a foreign key between columns that the server has no operator for.
async fn unlike(connection: &mut PgConnection, graph: &Graph, tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let type_of = |relation: &Relation, name: &Ident| {
        let table = graph.tables.values().find(|table| table.relation == *relation)?;
        table.column(name.as_str()).map(|column| column.sql_type.clone())
    };
    for edge in tree.edges.iter().filter(|edge| edge.key.is_none() && edge.action != EdgeAction::Keep) {
        let (child, parent) = (&tree.nodes[edge.child].relation, &tree.nodes[edge.parent].relation);
        for ((own, theirs), operators) in edge.child_columns.iter().zip(&edge.parent_columns).zip(&edge.operators) {
            let (Some(own_type), Some(type_of_theirs)) = (type_of(child, own), type_of(parent, theirs)) else {
                continue;
            };
            if own_type == type_of_theirs
                || rows::comparable(connection, operators, (&own_type, &type_of_theirs)).await?
            {
                continue;
            }
            let message = format!(
                "{} is {own_type} and {} of {} is {type_of_theirs}: there is no operator that compares the two",
                own.as_str(),
                theirs.as_str(),
                parent.label()
            );
            let fix = format!(
                "ALTER TABLE {child} ADD COLUMN … {type_of_theirs} GENERATED ALWAYS AS (…) STORED, from {own}, and name that in children"
            );
            findings.push(Finding { refuses: true, table: child.label(), message, fix: Some(fix) });
        }
    }
    Ok(findings)
}

fn marks(subjects: &Subjects) -> Marks<'_> {
    let status = subjects.status.as_ref().map(|status| status.column.as_str());
    let soft: Vec<&str> = [subjects.deleted_at.as_str()].into_iter().chain(status).collect();
    let Mirror { due, notified, attempted, touched } = &subjects.mirror;
    let mirror = [due, notified, attempted, touched].into_iter().flatten().map(String::as_str);
    Marks { own: soft.iter().copied().chain(mirror).collect(), soft }
}

/// Everything that can be wrong with a policy over subjects, by what the database knows.
pub(crate) async fn compile(connection: &mut PgConnection, policy: &Retain, subjects: &Subjects) -> Result<Compiled> {
    let among = Surroundings::found(connection).await?;
    compile_among(connection, policy, subjects, among).await
}

/// The same beside policies that are not stored yet, or before there is a place to store them.
pub(crate) async fn compile_among(
    connection: &mut PgConnection,
    policy: &Retain,
    subjects: &Subjects,
    among: Surroundings<'_>,
) -> Result<Compiled> {
    let (table, mut tree) = tree_among(connection, policy, subjects, among).await?;
    tree.refuse()?;
    tree.path = Path::of(&table.relation, &path::closed(connection, table.oid).await?);
    let (oid, relation) = (table.oid, &table.relation);
    let deleted_at = catalog::column(connection, relation, oid, &subjects.deleted_at).await?;
    if deleted_at.not_null {
        return Err(Error::config(format!(
            "column {} of {} cannot be null, and null means not deleted",
            deleted_at.name,
            relation.label()
        )));
    }
    let time = SoftDelete::of(&deleted_at.base_type, deleted_at.name.as_str())?;
    let tenant = match &policy.tenant {
        Some(tenant) => Some(catalog::column(connection, relation, oid, tenant).await?.name),
        None => None,
    };
    let mut status = None;
    if let Some(named) = &subjects.status {
        let found = catalog::column(connection, relation, oid, &named.column).await?;
        // The bare name of this type means one character.
        let sql_type = if found.base_type == "character" { "bpchar".to_owned() } else { found.base_type };
        let (deleted, active) = (named.deleted.clone(), named.active.clone());
        status = Some(Standing { column: found.name, sql_type, deleted, active });
    }
    for (column, is_time) in mirror_columns(subjects) {
        let found = catalog::column(connection, relation, oid, column).await?;
        if is_time && !matches!(found.base_type.as_str(), "timestamp with time zone" | "timestamp without time zone") {
            return Err(Error::config(format!("mirror column {column} is {}, not a timestamp", found.base_type)));
        }
    }
    let key = tree.nodes[0].key.clone();
    let names: Vec<Ident> = key.iter().map(|column| column.name.clone()).collect();
    written::check(connection, (&table, &names), policy, subjects).await?;
    let unless = match &subjects.unless {
        None => None,
        Some(typed) => {
            let checked = expression::question(connection, relation, &names, typed).await;
            Some(checked.map_err(|error| error.context("`unless`"))?)
        }
    };
    let mut sets = BTreeMap::new();
    for (at, edge) in tree.edges.iter().enumerate() {
        let child = &tree.nodes[edge.child].relation;
        match &edge.action {
            EdgeAction::Nullify(columns) => {
                sets.insert(at, Set::null(columns));
            }
            EdgeAction::Anonymize(changes) => {
                let mut checked = Vec::new();
                for (column, typed) in changes {
                    let column = Ident::new(column);
                    let change = expression::change(connection, child, &column, typed)
                        .await
                        .map_err(|error| error.context(format!("`set` of {} in {}", column.as_str(), child.label())))?;
                    checked.push((column, change));
                }
                sets.insert(at, Set::anonymous(&edge.child_columns, checked));
            }
            EdgeAction::Delete | EdgeAction::Keep => {
                // Rows that stay because of their own term lose their link.
                if let Some(kept) = &edge.kept {
                    sets.insert(at, Set::null(&kept.columns));
                }
            }
        }
    }
    let attempted = subjects.mirror.attempted.as_ref().map(Ident::new);
    let root = Root {
        relation: relation.clone(),
        path: tree.path.clone(),
        key,
        deleted_at: deleted_at.name,
        time,
        zone: policy.zone.clone(),
        tenant,
        attempted,
        status,
        unless,
    };
    let role = policy.role.as_ref().map(Ident::new);
    let copies = subjects.snapshot_for.is_some();
    Ok(Compiled { root, tree, sets, owner: table.owner, oid, role, copies })
}

/// Columns of the root that the policy keeps in step; whether each is a time.
pub(crate) fn mirror_columns(subjects: &Subjects) -> Vec<(&str, bool)> {
    let mirror = &subjects.mirror;
    let times = [&mirror.due, &mirror.notified, &mirror.attempted, &mirror.touched];
    let times = times.into_iter().flatten().map(|name| (name.as_str(), true));
    times.chain(subjects.status.iter().map(|status| (status.column.as_str(), false))).collect()
}

/// Whether an index leads to soft-deleted rows by their time.
pub(crate) async fn leads_by_time(connection: &mut PgConnection, compiled: &Compiled) -> Result<bool> {
    store::leads_by(connection, compiled.oid, compiled.root.deleted_at.as_str()).await
}
