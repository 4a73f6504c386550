//! The foreign-key graph below a root table, as the catalog has it. Invariant: a partitioned table is one table here,
//! whatever its partitions are called; what is true of one partition only is kept, so that it can be refused by name.

use std::collections::BTreeMap;

use serde::Deserialize;
use sqlx::PgConnection;

use super::store;
use crate::pg::{Operators, Relation};
use crate::{Error, Result};

/// Larger leaves are not walked for lack of an index.
const LARGE_BYTES: i64 = 512 * 1024;
/// From here on a leaf is said to grow towards that.
const GROWN_BYTES: i64 = LARGE_BYTES / 4;

/// A table that erasing can reach.
#[derive(Debug, Clone)]
pub(crate) struct GraphTable {
    pub(crate) relation: Relation,
    /// The table that it was a partition of, until Ebb took it out: its rows are as much a subject's as before.
    pub(crate) out_of: Option<u32>,
    /// Other tables inherit from it without being partitions.
    pub(crate) inherited: bool,
    pub(crate) columns: Vec<GraphColumn>,
    pub(crate) delete_triggers: Vec<String>,
    /// Leaves whose changes are published and whose rows nothing tells apart.
    pub(crate) nameless: Vec<u32>,
    /// Rules that make something else of a deletion or a change.
    pub(crate) rules: Vec<String>,
    /// A trigger may keep a row as it is that is to be changed, or make it so again.
    pub(crate) updates_hindered: bool,
    /// Triggers on UPDATE that delete.
    pub(crate) update_triggers: Vec<String>,
    /// Of the root: all of them, with what they run.
    pub(crate) written_triggers: Vec<WrittenTrigger>,
    pub(crate) leaves: Vec<GraphLeaf>,
}

/// A trigger somebody wrote.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct WrittenTrigger {
    pub(crate) name: String,
    pub(crate) definition: String,
    /// Of its function, and of those that it calls.
    pub(crate) texts: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct GraphColumn {
    pub(crate) name: String,
    pub(crate) sql_type: String,
    pub(crate) not_null: bool,
    /// It is generated, or a CHECK says whether it may be null.
    pub(crate) wanted: bool,
    pub(crate) operators: Operators,
    pub(crate) collation: Collation,
    /// It is generated, or of a domain that does not allow null, or a CHECK says so: nobody can set it to null, whatever the table says.
    pub(crate) fixed: bool,
    /// How many foreign keys of its table it is part of.
    pub(crate) in_keys: i32,
}

/// How a column tells texts apart; no name where it is as the database does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Collation {
    name: Option<String>,
    /// It takes texts for the same that differ.
    loose: bool,
}

impl Collation {
    /// What a reference is compared by where its two columns disagree: as the server does where what it refers to takes texts for
    /// the same that differ, and otherwise in any way, so that an index over it can be used.
    pub(crate) fn beside(&self, parent: &Self) -> Option<String> {
        match self.name != parent.name {
            true if parent.loose => parent.name.clone(),
            true => self.name.clone().filter(|_| parent.name.is_some()),
            false => None,
        }
    }

    /// As SQL has it.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

/// Columns of a reference, each with the collation by which it is compared where that is not the database's own.
pub(crate) type Compared<'a> = &'a [(String, Option<String>)];

/// Why an index that a leaf has does not lead to every row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unserved {
    Partial(String),
    /// It is in the order of another collation.
    Collation,
    None,
}

/// A table that holds rows itself.
#[derive(Debug, Clone)]
pub(crate) struct GraphLeaf {
    pub(crate) oid: u32,
    pub(crate) relation: Relation,
    pub(crate) bytes: i64,
    pub(crate) tuples: f64,
    pub(crate) indexes: Vec<GraphIndex>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct GraphIndex {
    pub(crate) columns: Vec<String>,
    /// Of each column, where it is not the database's own.
    collations: Vec<Option<String>>,
    pub(crate) unique: bool,
    pub(crate) primary: bool,
    pub(crate) expressions: bool,
    pub(crate) predicate: Option<String>,
}

/// What PostgreSQL does by itself when the referenced row goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDelete {
    NoAction,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

impl OnDelete {
    /// It deletes or changes rows that refer to one that goes, by itself.
    pub(crate) fn acts(self) -> bool {
        matches!(self, Self::Cascade | Self::SetNull | Self::SetDefault)
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::NoAction => "NO ACTION",
            Self::Restrict => "RESTRICT",
            Self::Cascade => "CASCADE",
            Self::SetNull => "SET NULL",
            Self::SetDefault => "SET DEFAULT",
        }
    }
}

/// A foreign key between two tables of the graph.
#[derive(Debug, Clone)]
pub(crate) struct ForeignKey {
    pub(crate) name: String,
    pub(crate) child: u32,
    pub(crate) parent: u32,
    pub(crate) child_columns: Vec<String>,
    pub(crate) parent_columns: Vec<String>,
    /// By what the server compares each pair of its columns.
    pub(crate) operators: Vec<Operators>,
    /// The columns that are emptied to end it: those that ON DELETE SET NULL names, or all.
    pub(crate) set_columns: Vec<String>,
    pub(crate) on_delete: OnDelete,
    pub(crate) deferrable: bool,
    /// MATCH FULL: all of its columns are null, or none.
    pub(crate) full: bool,
    /// Its last columns are periods, of which one is within others.
    pub(crate) temporal: bool,
    /// The server sees to it.
    pub(crate) enforced: bool,
    /// Partitions that lack it although their siblings have it.
    pub(crate) missing_in: Vec<Relation>,
    /// The one partition that it references, when it is not the whole table.
    pub(crate) only_partition: Option<Relation>,
}

#[derive(Debug, Clone)]
pub(crate) struct Graph {
    pub(crate) tables: BTreeMap<u32, GraphTable>,
    pub(crate) keys: Vec<ForeignKey>,
}

impl GraphTable {
    pub(crate) fn column(&self, name: &str) -> Option<&GraphColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Of a reference over `columns` those that become null to end it; none where that cannot be. One is enough, unless
    /// all must be null or none.
    pub(crate) fn emptied(&self, columns: &[String], full: bool) -> Vec<String> {
        let may_be_null = |name: &&String| self.column(name).is_some_and(|column| !column.not_null && !column.fixed);
        let nullable: Vec<String> = columns.iter().filter(may_be_null).cloned().collect();
        if full && nullable.len() < columns.len() { Vec::new() } else { nullable }
    }

    /// The same of rows that will go, by what their table says of any row.
    pub(crate) fn ended(&self, columns: &[String], full: bool) -> Vec<String> {
        let mut ended = self.emptied(columns, full);
        ended.retain(|name| self.column(name).is_some_and(|column| !column.wanted));
        if full && ended.len() < columns.len() { Vec::new() } else { ended }
    }

    /// The columns that tell its rows apart: the primary key, or any unique key without nulls.
    pub(crate) fn key(&self) -> Option<Vec<String>> {
        let sure = |index: &&GraphIndex| {
            index.unique
                && !index.expressions
                && index.predicate.is_none()
                && index.columns.iter().all(|name| self.column(name).is_some_and(|column| column.not_null))
        };
        // Of a partitioned table every leaf has the key, or the first leaf's is none of the whole.
        let first = self.leaves.first()?;
        let everywhere = |index: &&GraphIndex| {
            self.leaves.iter().all(|leaf| leaf.indexes.iter().filter(sure).any(|other| other.columns == index.columns))
        };
        let mut keys: Vec<&GraphIndex> = first.indexes.iter().filter(sure).filter(everywhere).collect();
        keys.sort_by_key(|index| (!index.primary, index.columns.len()));
        keys.first().map(|index| index.columns.clone())
    }

    /// Whether its primary key has a column.
    pub(crate) fn has_in_key(&self, column: &str) -> bool {
        let mut indexes = self.leaves.iter().flat_map(|leaf| &leaf.indexes);
        indexes.any(|index| index.primary && index.columns.iter().any(|name| name == column))
    }

    /// Whether a column could be null if its table allowed it.
    pub(crate) fn can_be_loosened(&self, column: &str) -> bool {
        !self.has_in_key(column) && self.column(column).is_some_and(|column| !column.fixed)
    }

    /// Its primary key holds at the end of a transaction only.
    pub(crate) fn defers_its_key(&self) -> bool {
        self.leaves.iter().flat_map(|leaf| &leaf.indexes).any(|index| index.primary && !index.unique)
    }

    /// Whether the columns alone tell rows apart.
    pub(crate) fn is_unique(&self, columns: &[String]) -> bool {
        !self.leaves.is_empty()
            && self.leaves.len() == 1
            && self.leaves.iter().all(|leaf| {
                leaf.indexes.iter().any(|index| {
                    index.unique
                        && !index.expressions
                        && index.predicate.is_none()
                        && index.columns.iter().all(|column| columns.contains(column))
                })
            })
    }

    /// The leaves that are too large to be walked.
    pub(crate) fn large(&self) -> impl Iterator<Item = &GraphLeaf> {
        self.leaves.iter().filter(|leaf| leaf.bytes > LARGE_BYTES)
    }

    /// Those of them that no index leads to by these columns, and why.
    pub(crate) fn unindexed(&self, columns: Compared<'_>) -> Vec<(&GraphLeaf, Unserved)> {
        let unindexed = self.large().filter(|leaf| !leaf.leads_by(columns));
        unindexed.map(|leaf| (leaf, leaf.unserved(columns))).collect()
    }

    /// The leaves that will be too large for that before long.
    pub(crate) fn soon_unindexed(&self, columns: Compared<'_>) -> Vec<&GraphLeaf> {
        let grown = |leaf: &&GraphLeaf| leaf.bytes > GROWN_BYTES && leaf.bytes <= LARGE_BYTES;
        self.leaves.iter().filter(grown).filter(|leaf| !leaf.leads_by(columns)).collect()
    }

    /// About how many rows it has.
    pub(crate) fn tuples(&self) -> u64 {
        self.leaves.iter().map(|leaf| leaf.tuples.max(0.0)).sum::<f64>() as u64
    }
}

impl GraphLeaf {
    /// Whether an index leads to every row by these columns.
    fn leads_by(&self, columns: Compared<'_>) -> bool {
        self.indexes.iter().any(|index| index.serves(columns) && index.covers(columns))
    }

    fn unserved(&self, columns: Compared<'_>) -> Unserved {
        let partial = self.indexes.iter().find(|index| index.serves(columns));
        match partial.and_then(|index| index.predicate.clone()) {
            Some(predicate) => Unserved::Partial(predicate),
            None if self.indexes.iter().any(|index| index.begins_with(columns)) => Unserved::Collation,
            None => Unserved::None,
        }
    }
}

impl GraphIndex {
    /// Its first columns are these, in any order, as they are compared.
    fn serves(&self, columns: Compared<'_>) -> bool {
        let own = self.columns.iter().zip(&self.collations).take(columns.len());
        let same = |(name, collation)| columns.iter().any(|(of, by)| of == name && by == collation);
        self.begins_with(columns) && own.into_iter().all(same)
    }

    /// The same, whatever collation it has.
    fn begins_with(&self, columns: Compared<'_>) -> bool {
        let first = |count: usize| self.columns[..count].iter();
        !self.expressions
            && self.columns.len() >= columns.len()
            && first(columns.len()).all(|column| columns.iter().any(|(name, _)| name == column))
    }

    /// Every row that refers to something is in it: whole, or partial only by `column IS NOT NULL`.
    fn covers(&self, columns: Compared<'_>) -> bool {
        let Some(predicate) = &self.predicate else { return true };
        let mut parts = predicate.trim_start_matches('(').trim_end_matches(')').split(") AND (");
        parts.all(|part| {
            part.strip_suffix(" IS NOT NULL").is_some_and(|name| {
                let name = name.trim_matches('"').replace("\"\"", "\"");
                columns.iter().any(|(column, _)| *column == name)
            })
        })
    }
}

/// Reads the graph below `seeds`: the root, and tables that are linked to it without a foreign key. What partitioning has `aside`
/// and is nobody's yet, or any more, is no part of it.
pub(crate) async fn read(connection: &mut PgConnection, seeds: &[u32], aside: &[(u32, Option<u32>)]) -> Result<Graph> {
    let mut rows = store::graph_tables(connection, seeds).await?;
    rows.retain(|row| !aside.contains(&(row.oid as u32, None)));
    let oids: Vec<i64> = rows.iter().map(|row| row.oid).collect();
    let mut tables: BTreeMap<u32, GraphTable> = rows.into_iter().map(|row| (row.oid as u32, row.into())).collect();
    for (oid, out_of) in aside {
        if let Some(table) = tables.get_mut(oid) {
            table.out_of = *out_of;
        }
    }
    for row in store::graph_leaves(connection, &oids).await? {
        if let Some(table) = tables.get_mut(&(row.tab as u32)) {
            table.leaves.push(GraphLeaf {
                oid: row.oid as u32,
                relation: Relation::new(row.schema, row.name),
                bytes: row.bytes,
                tuples: row.tuples,
                indexes: row.indexes.0,
            });
        }
    }
    let mut keys = whole_tables(&tables, store::graph_keys(connection, &oids).await?)?;
    keys.retain(|key| tables.contains_key(&key.child));
    Ok(Graph { tables, keys })
}

impl From<store::TableRow> for GraphTable {
    fn from(row: store::TableRow) -> Self {
        let columns = row.columns.into_iter().zip(row.types).zip(row.not_null).zip(row.wanted).zip(row.operators);
        let more = row.collations.into_iter().zip(row.loose).zip(row.fixed).zip(row.in_keys);
        let columns = columns.zip(more).map(
            |(((((name, sql_type), not_null), wanted), operators), (((collation, loose), fixed), in_keys))| {
                GraphColumn {
                    name,
                    sql_type,
                    not_null,
                    wanted,
                    operators: Operators::of(operators),
                    collation: Collation { name: collation, loose },
                    fixed,
                    in_keys,
                }
            },
        );
        Self {
            relation: Relation::new(row.schema, row.name),
            out_of: None,
            inherited: row.inherited,
            columns: columns.collect(),
            delete_triggers: row.delete_triggers,
            nameless: row.nameless.into_iter().map(|oid| oid as u32).collect(),
            rules: row.rules,
            updates_hindered: row.updates_hindered,
            update_triggers: row.update_triggers,
            written_triggers: row.written_triggers.0,
            leaves: Vec::new(),
        }
    }
}

/// Foreign keys that each partition has for itself become one of the whole table, which remembers who lacks it.
fn whole_tables(tables: &BTreeMap<u32, GraphTable>, rows: Vec<store::KeyRow>) -> Result<Vec<ForeignKey>> {
    let mut keys: Vec<ForeignKey> = Vec::new();
    let mut partitions: Vec<Option<Vec<i64>>> = Vec::new();
    for row in rows {
        let on_delete = match row.on_delete.as_str() {
            "a" => OnDelete::NoAction,
            "r" => OnDelete::Restrict,
            "c" => OnDelete::Cascade,
            "n" => OnDelete::SetNull,
            "d" => OnDelete::SetDefault,
            other => return Err(Error::failed(format!("foreign key {} has the unknown action {other}", row.name))),
        };
        let all = row.set_columns.is_empty() || row.full;
        let set_columns = if all { row.child_columns.clone() } else { row.set_columns };
        let operators = row.operators.into_iter().zip(row.casts);
        let key = ForeignKey {
            operators: operators.map(|(schema, cast)| Operators::of(schema).over(cast)).collect(),
            name: row.name,
            child: row.child as u32,
            parent: row.parent as u32,
            child_columns: row.child_columns,
            parent_columns: row.parent_columns,
            set_columns,
            on_delete,
            deferrable: row.deferrable,
            full: row.full,
            temporal: row.temporal,
            enforced: row.enforced,
            missing_in: Vec::new(),
            only_partition: row.to_partition.then(|| Relation::new(row.parent_schema, row.parent_name)),
        };
        let Some(leaves) = row.child_leaves else {
            keys.push(key);
            partitions.push(None);
            continue;
        };
        let same = |other: &ForeignKey| {
            (other.child, other.parent, &other.child_columns, &other.parent_columns, other.on_delete)
                == (key.child, key.parent, &key.child_columns, &key.parent_columns, key.on_delete)
        };
        let mut of_partitions =
            keys.iter().zip(&mut partitions).filter_map(|(other, with)| Some((other, with.as_mut()?)));
        match of_partitions.find(|(other, _)| same(other)) {
            Some((_, with)) => with.extend(leaves),
            None => {
                keys.push(key);
                partitions.push(Some(leaves));
            }
        }
    }
    for (key, with) in keys.iter_mut().zip(partitions).filter_map(|(key, with)| Some((key, with?))) {
        let leaves = tables.get(&key.child).map(|table| table.leaves.as_slice()).unwrap_or_default();
        let lacking = leaves.iter().filter(|leaf| !with.contains(&i64::from(leaf.oid)));
        key.missing_in = lacking.map(|leaf| leaf.relation.clone()).collect();
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::GraphIndex;

    fn index(columns: &[&str], predicate: Option<&str>) -> GraphIndex {
        GraphIndex {
            columns: columns.iter().map(ToString::to_string).collect(),
            collations: vec![None; columns.len()],
            unique: false,
            primary: false,
            expressions: false,
            predicate: predicate.map(str::to_owned),
        }
    }

    #[test]
    fn a_partial_index_counts_only_where_every_reference_is_in_it() {
        let columns = [("user_id".to_owned(), None)];
        assert!(index(&["user_id"], None).covers(&columns));
        assert!(index(&["user_id"], Some("(user_id IS NOT NULL)")).covers(&columns));
        assert!(!index(&["user_id"], Some("(deleted_at IS NULL)")).covers(&columns));
        assert!(!index(&["user_id"], Some("(user_id > 5)")).covers(&columns));
        assert!(!index(&["user_id"], Some("((user_id IS NOT NULL) AND (open = true))")).covers(&columns));
        let two = [("a".to_owned(), None), ("b".to_owned(), None)];
        assert!(index(&["b", "a", "c"], None).serves(&two));
        assert!(!index(&["a", "c", "b"], None).serves(&two));
        assert!(!index(&["a"], None).serves(&two));
        assert!(index(&["a", "b"], Some("((a IS NOT NULL) AND (b IS NOT NULL))")).covers(&two));
    }

    #[test]
    fn an_index_serves_only_what_is_compared_by_its_collation() {
        let by = |collation: Option<&str>| [("email".to_owned(), collation.map(str::to_owned))];
        let mut c = index(&["email"], None);
        c.collations = vec![Some("pg_catalog.\"C\"".to_owned())];
        assert!(!c.serves(&by(None)) && c.begins_with(&by(None)));
        assert!(c.serves(&by(Some("pg_catalog.\"C\""))));
        assert!(!index(&["email"], None).serves(&by(Some("pg_catalog.\"C\""))));
    }
}
