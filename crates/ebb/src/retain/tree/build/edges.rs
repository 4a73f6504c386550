//! Which edges lead to a table, and what each does: foreign keys that the graph has, and links that the policy names.
//! Invariant: an edge is in the tree with an action that somebody chose, or is refused by name.

use super::super::entry::{children, entry};
use super::{Builder, Edge, EdgeAction, Finding, Wishes, idents, same};
use crate::Result;
use crate::pg::{Ident, Operators, Relation};
use crate::policy::{Child, ChildAction, Unnamed};
use crate::retain::graph::{Collation, ForeignKey, Graph, GraphTable, OnDelete, Unserved};

impl<'a> Builder<'a> {
    /// Entries of `children` that no foreign key stands behind.
    pub(super) fn links(&mut self) -> Result<()> {
        'entries: for (at, (table, child)) in self.wishes.children.iter().enumerate() {
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
                let (of, theirs) = (self.table(of)?, of == root && of != *table);
                let Some(name) = names.iter().find(|name| of.column(name).is_none()) else { continue };
                let (relation, message) = (of.relation.clone(), format!("it has no column {name}"));
                let (message, fix) = match theirs {
                    false => (message, None),
                    true => (
                        format!("{message}, and children says that {columns} of {} refers to it", named.label()),
                        Some(format!(
                            "`references` names a column of {}; what belongs to another table needs a foreign key to it: \
                             ALTER TABLE {named} ADD FOREIGN KEY ({}) REFERENCES … NOT VALID",
                            relation.label(),
                            idents(&child.columns).iter().map(Ident::to_string).collect::<Vec<_>>().join(", ")
                        )),
                    ),
                };
                self.refuse(&relation, message, fix);
                continue 'entries;
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
                operators: self.operators((*table, &child.columns), (root, &child.references), None)?,
                on_delete: by_itself.find(|on_delete| on_delete.acts()),
                kept,
                only: None,
                distinct,
                nullable: Vec::new(),
                loose: true,
                undecided: false,
                given: None,
                action,
            };
            self.add(edge)?;
        }
        Ok(())
    }

    fn add(&mut self, edge: Edge) -> Result<()> {
        let (child, parent) = (self.nodes[edge.child], self.nodes[edge.parent]);
        if edge.action == EdgeAction::Delete
            && self.doomed.insert(child)
            && let Some(given) = &edge.given
        {
            self.supposed.insert(child, given.clone());
        }
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
        if let Some(cast) = edge.operators.iter().find_map(Operators::cast) {
            return self.compared_as(table, edge, cast);
        }
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
        let missing = table.unindexed(&columns).into_iter().map(|(leaf, why)| (leaf.relation.clone(), why));
        let missing: Vec<(Relation, Unserved)> = missing.collect();
        let relation = table.relation.clone();
        let soon: Vec<Relation> =
            table.soon_unindexed(&columns).into_iter().map(|leaf| leaf.relation.clone()).collect();
        for on in soon {
            let leaf = on.label();
            let message = format!("{leaf} has no index on {list}; when it has grown, the policy stops for lack of one");
            let fix = Some(format!("CREATE INDEX CONCURRENTLY ON {on} ({ordered})"));
            self.findings.push(Finding { refuses: false, table: relation.label(), message, fix });
        }
        for (on, why) in missing {
            let leaf = on.label();
            let why = match why {
                Unserved::Partial(predicate) => format!("only part of {leaf} is in an index on {list} ({predicate})"),
                Unserved::Collation => format!(
                    "the index of {leaf} on {list} has another collation than it is compared by, and every batch would read all of it"
                ),
                Unserved::None => format!("{leaf} has no index on {list}, and every batch would read all of it"),
            };
            self.refuse(&relation, why, Some(format!("CREATE INDEX CONCURRENTLY ON {on} ({ordered})")));
        }
        Ok(())
    }

    /// The server has no index by which it finds rows whose values it has to cast, and neither has Ebb.
    fn compared_as(&mut self, table: u32, edge: &Edge, cast: &str) -> Result<()> {
        let columns = edge.child_columns.iter().map(Ident::as_str).collect::<Vec<_>>().join(", ");
        let parent = self.table(self.nodes[edge.parent])?.relation.clone();
        let table = self.table(table)?;
        let (relation, large) = (table.relation.clone(), table.large().map(|leaf| leaf.relation.label()));
        for leaf in large.collect::<Vec<_>>() {
            let message = format!(
                "{columns} is of another type than what it refers to: both are compared as {cast}, no index of {leaf} serves, and \
                 every batch would read all of it"
            );
            self.refuse(&relation, message, Some(format!("give the columns of {relation} and {parent} one type")));
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
    pub(super) fn follow(&mut self, key: &ForeignKey) -> Result<()> {
        let child = self.table(key.child)?.relation.clone();
        let named = self.named(key);
        if let Some(partition) = &key.only_partition {
            let message = format!("foreign key {} refers to the one partition {}", key.name, partition.label());
            let fix = format!(
                "ALTER TABLE {child} DROP CONSTRAINT {name}, ADD CONSTRAINT {name} {}",
                self.definition(key)?,
                name = Ident::new(&key.name)
            );
            self.refuse(&child, message, Some(fix));
        }
        if self.declared(key) {
            return Ok(());
        }
        if key.temporal {
            let message = format!(
                "foreign key {} is over periods: which rows belong to a subject is not told by equal values",
                key.name
            );
            let fix = format!(
                "ALTER TABLE {child} DROP CONSTRAINT {}, and name its other columns in children, with references",
                Ident::new(&key.name)
            );
            self.refuse(&child, message, Some(fix));
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
            let lacking = key.missing_in.iter().map(Relation::label).collect::<Vec<_>>().join(", ");
            let message =
                format!("{lacking} lacks the foreign key to {} that its siblings have", key.parent_columns.join(", "));
            let definition = self.definition(key)?;
            let add = |partition: &Relation| {
                format!("ALTER TABLE {partition} ADD CONSTRAINT {} {definition}", Ident::new(&key.name))
            };
            let fix = key.missing_in.iter().map(add).collect::<Vec<_>>().join(";\n");
            self.refuse(&child, message, Some(fix));
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
                self.ask(key)?;
                ChildAction::Keep
            }
        };
        let undecided = wish == ChildAction::Keep && named.is_none();
        let (wish, kept) = self.kept_longer(key.child, (&key.set_columns, Some(key)), wish, named.is_some())?;
        let action =
            if undecided { EdgeAction::Keep } else { self.action(key.child, &key.set_columns, &wish, Some(key)) };
        let table = self.table(key.child)?;
        let loose = key.deferrable || !table.emptied(&key.child_columns, key.full).is_empty();
        let nullable = idents(&table.ended(&key.child_columns, key.full));
        let edge = Edge {
            key: Some(key.name.clone()),
            child: self.node(key.child),
            parent: self.node(key.parent),
            child_columns: idents(&key.child_columns),
            parent_columns: idents(&key.parent_columns),
            operators: self.operators(
                (key.child, &key.child_columns),
                (key.parent, &key.parent_columns),
                Some(&key.operators),
            )?,
            on_delete: Some(key.on_delete),
            kept,
            only: None,
            distinct: true,
            loose,
            nullable,
            undecided,
            given: self.supposed.get(&key.parent).cloned(),
            action,
        };
        self.add(edge)
    }

    /// A foreign key about which nobody has said anything: what can become of its rows, to be chosen from.
    fn ask(&mut self, key: &ForeignKey) -> Result<()> {
        let (table, home) = (self.table(key.child)?, self.home(key.child));
        let (relation, label) = (table.relation.clone(), table.relation.label());
        let mut actions = vec!["delete"];
        if !table.emptied(&key.set_columns, key.full).is_empty() {
            actions.push("nullify");
        }
        if !key.child_columns.iter().any(|name| table.has_in_key(name)) {
            actions.push("anonymize");
        }
        let entry = entry(&label, &key.child_columns, &[], &actions);
        let mut keepers = self.wishes.keepers.iter();
        let own = keepers.find(|keeper| keeper.table == home && keeper.is_of_subjects());
        let subjects = own.map_or(String::new(), |own| {
            format!(
                "; they are subjects of policy {}, whom `delete` takes along, each with a record (erase_along)",
                own.policy
            )
        });
        let message = format!(
            "foreign key {} ({}) says ON DELETE {}: nobody has said what becomes of its rows{subjects}",
            key.name,
            key.child_columns.join(", "),
            key.on_delete.words()
        );
        self.refuse(&relation, message, Some(children(&entry)));
        self.undecided.push((entry, self.supposed.get(&key.parent).cloned()));
        Ok(())
    }

    /// A foreign key as SQL writes it, to the whole of the table that it refers to.
    fn definition(&self, key: &ForeignKey) -> Result<String> {
        let list = |names: &[String]| idents(names).iter().map(Ident::to_string).collect::<Vec<_>>().join(", ");
        let full = if key.full { " MATCH FULL" } else { "" };
        let deferrable = if key.deferrable { " DEFERRABLE" } else { "" };
        Ok(format!(
            "FOREIGN KEY ({}) REFERENCES {} ({}){full} ON DELETE {}{deferrable}",
            list(&key.child_columns),
            self.table(key.parent)?.relation,
            list(&key.parent_columns),
            key.on_delete.words()
        ))
    }

    /// By what columns of a link are compared: by operators that both sides have, or those that are given, and by which collation.
    fn operators(
        &self,
        child: (u32, &[String]),
        parent: (u32, &[String]),
        given: Option<&[Operators]>,
    ) -> Result<Vec<Operators>> {
        let own = |(table, names): (u32, &[String])| -> Result<Vec<(Operators, Collation)>> {
            let table = self.table(table)?;
            let of = |name: &String| {
                let found = table.column(name).map(|found| (found.operators.clone(), found.collation.clone()));
                found.unwrap_or_else(|| (Operators::built_in(), Collation::default()))
            };
            Ok(names.iter().map(of).collect())
        };
        let pairs = own(child)?.into_iter().zip(own(parent)?).enumerate();
        let compared = pairs.map(|(at, ((one, own), (other, theirs)))| {
            let given = given.and_then(|given| given.get(at)).cloned();
            given.unwrap_or_else(|| one.with(&other)).collated(own.beside(&theirs))
        });
        Ok(compared.collect())
    }

    pub(super) fn named(&self, key: &ForeignKey) -> Option<(usize, &'a Child)> {
        let wishes: &'a Wishes<'a> = self.wishes;
        let found = wishes.children.iter().enumerate().find(|(_, (table, child))| {
            *table == key.child
                && same(&key.child_columns, &child.columns)
                && (child.references.is_empty() || same(&key.parent_columns, &child.references))
        });
        found.map(|(at, (_, child))| (at, *child))
    }
}
