//! What becomes of the rows behind an edge: the action that somebody chose, refused where a constraint or a longer policy of
//! the rows forbids it.

use super::super::entry::{children, entry};
use super::{Builder, EdgeAction, Finding, Kept, Wishes, idents};
use crate::Result;
use crate::pg::Ident;
use crate::policy::ChildAction;
use crate::retain::graph::{ForeignKey, Graph, OnDelete};
use crate::retain::keeper::{self, Keeper};

impl<'a> Builder<'a> {
    /// Rows that policies of their own keep longer stay, without their link: all of them where they are subjects, otherwise
    /// those whose own term is not over.
    pub(super) fn kept_longer(
        &mut self,
        child: u32,
        (columns, key): (&[String], Option<&ForeignKey>),
        wish: ChildAction,
        named: bool,
    ) -> Result<(ChildAction, Option<Kept>)> {
        let (wishes, home): (&'a Wishes<'a>, u32) = (self.wishes, self.home(child));
        if let Some(own) = wishes.keepers.iter().find(|keeper| keeper.table == home && keeper.is_of_subjects())
            && named
            && wish == ChildAction::Delete
        {
            let (table, policy) = (self.table(child)?.relation.label(), &own.policy);
            let message = format!(
                "its rows are subjects of policy {policy}: they go along without its grace, and a record says with whom"
            );
            let fix =
                format!("nullify or anonymize {}, and delete those subjects through their policy", columns.join(", "));
            self.findings.push(Finding { refuses: false, table, message, fix: Some(fix) });
        }
        let of_table = wishes.keepers.iter().filter(|keeper| keeper.table == home);
        let longer: Vec<&Keeper> = of_table.filter(|keeper| keeper.outlasts(&wishes.grace, named)).collect();
        let Some(keeper) = longer.first().filter(|_| wish == ChildAction::Delete) else { return Ok((wish, None)) };
        let table = self.table(child)?;
        let (relation, policy, term) =
            (table.relation.clone(), keeper.policy.clone(), keeper.kept_for(&wishes.grace, named));
        let list = columns.join(", ");
        let Some(nullable) = self.emptied(child, columns, key) else { return Ok((wish, None)) };
        if nullable.is_empty() {
            let message =
                format!("policy {policy} keeps its rows for {term} by a time of their own, and they would go");
            let fix = self.leaving(child, (columns, key), keeper)?;
            self.refuse(&relation, message, Some(fix));
            return Ok((wish, None));
        }
        let stays: Option<Vec<String>> = longer.iter().map(|keeper| keeper.stays(&wishes.grace, named)).collect();
        let (which, decided) = match stays {
            None if named => {
                let message =
                    format!("policy {policy} keeps its rows for {term} by a time of their own, and they would go");
                self.refuse(&relation, message, Some(format!("name an action for {list} that leaves them")));
                return Ok((wish, None));
            }
            None => ("they stay", (ChildAction::Nullify, None)),
            Some(stays) => {
                let condition = stays.join(" OR ");
                let never =
                    keeper::never(&wishes.keepers.iter().filter(|keeper| keeper.table == home).collect::<Vec<_>>());
                let kept = Kept { policy: policy.clone(), condition, columns: idents(&nullable), never };
                ("those stay until then", (wish, Some(kept)))
            }
        };
        self.asked_about(child, &nullable);
        let emptied = nullable.join(", ");
        let message = format!("policy {policy} keeps its rows for {term}: {which}, and {emptied} becomes null");
        self.findings.push(Finding { refuses: false, table: relation.label(), message, fix: None });
        Ok(decided)
    }

    /// How rows that somebody keeps can stay, or go all the same, where their link cannot become null as it is.
    fn leaving(&self, child: u32, (columns, key): (&[String], Option<&ForeignKey>), keeper: &Keeper) -> Result<String> {
        let table = self.table(child)?;
        let columns = key.map_or(columns, |key| &key.child_columns);
        let mut ways = Vec::new();
        if let Some(column) = columns.iter().find(|name| table.can_be_loosened(name)) {
            let column = Ident::new(column.as_str());
            ways.push(format!("ALTER TABLE {} ALTER COLUMN {column} DROP NOT NULL, and they stay", table.relation));
        }
        let along = keeper.is_of_subjects() && keeper.floor.is_none();
        let mut actions = if columns.iter().any(|name| table.has_in_key(name)) { vec![] } else { vec!["anonymize"] };
        if along {
            actions.insert(0, "delete");
        }
        if !actions.is_empty() {
            let with = if along { " (delete takes them along, each with a record: erase_along)" } else { "" };
            ways.push(format!("{}{with}", children(&entry(&table.relation.label(), columns, &[], &actions))));
        }
        Ok(match ways.is_empty() {
            true => format!(
                "let policy {} go, or let its rows refer by a column that is no part of their key",
                keeper.policy
            ),
            false => ways.join("; or "),
        })
    }

    /// Of a link over `columns` those that become null to end it: none that a policy of the rows goes by, and where there is a
    /// choice none that another key has, that others refer to, or that a condition mentions. None where it is refused.
    fn emptied(&mut self, child: u32, columns: &[String], key: Option<&ForeignKey>) -> Option<Vec<String>> {
        let (graph, home): (&'a Graph, u32) = (self.graph, self.home(child));
        let table = graph.tables.get(&child)?;
        let full = key.is_some_and(|key| key.full);
        let nullable = table.emptied(columns, full);
        let wishes: &'a Wishes<'a> = self.wishes;
        let readers = || wishes.readers.iter().filter(|reader| reader.table == home);
        let needed = |name: &String| readers().find(|reader| reader.needs(name));
        let free: Vec<String> = nullable.iter().filter(|name| needed(name).is_none()).cloned().collect();
        let reader = nullable.iter().find_map(|name| Some((name, needed(name)?)));
        if let Some((name, reader)) = reader.filter(|_| free.is_empty() || full) {
            let (relation, policy) = (&table.relation, &reader.policy);
            let message = format!(
                "its link ({}) cannot end without {name}, and policy {policy} goes by that: rows that stay would have another term",
                columns.join(", ")
            );
            let other = key.map_or(columns, |key| &key.child_columns);
            let mut other = other.iter().filter(|name| !full && needed(name).is_none());
            let fix = match other.find(|name| table.column(name).is_some_and(|column| !column.fixed)) {
                Some(other) => format!(
                    "ALTER TABLE {relation} ALTER COLUMN {} DROP NOT NULL, and let ON DELETE SET NULL name it or nothing",
                    Ident::new(other.as_str())
                ),
                None => format!(
                    "let policy {policy} go by a column that is no part of the link; or delete or anonymize the rows"
                ),
            };
            self.refuse(relation, message, Some(fix));
            return None;
        }
        // Where the foreign key names columns itself, somebody has chosen.
        if full || key.is_some_and(|key| key.set_columns != key.child_columns) {
            return Some(free);
        }
        let own_keys = i32::from(key.is_some());
        let shared = |name: &String| {
            table.column(name).is_some_and(|column| column.in_keys > own_keys)
                || graph.keys.iter().any(|key| key.parent == child && key.parent_columns.contains(name))
                || readers().any(|reader| reader.mentions(name))
        };
        let unshared: Vec<String> = free.iter().filter(|name| !shared(name)).cloned().collect();
        Some(if unshared.is_empty() { free } else { unshared })
    }

    /// A CHECK may want one of some columns: whether it does is up to each row.
    fn asked_about(&mut self, table: u32, emptied: &[String]) {
        let Some(found) = self.graph.tables.get(&table) else { return };
        let wanted = |name: &&String| found.column(name).is_some_and(|column| column.wanted && !column.fixed);
        if let Some(name) = emptied.iter().find(wanted) {
            let message = format!(
                "{name} becomes null, and a CHECK asks which columns are: where a row does not satisfy it then, its subject fails"
            );
            let fix = format!("delete those rows; or let the CHECK allow that {name} is null");
            let table = found.relation.label();
            self.findings.push(Finding { refuses: false, table, message, fix: Some(fix) });
        }
    }

    /// The action for a link over `columns`, refused where a constraint forbids it.
    pub(super) fn action(
        &mut self,
        table: u32,
        columns: &[String],
        wish: &ChildAction,
        key: Option<&ForeignKey>,
    ) -> EdgeAction {
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
                let full = key.is_some_and(|key| key.full);
                let Some(nullable) = self.emptied(table, columns, key) else { return EdgeAction::Nullify(Vec::new()) };
                if nullable.is_empty() {
                    let by = match key {
                        Some(key) if key.on_delete == OnDelete::SetNull => "ON DELETE SET NULL",
                        _ => "its action",
                    };
                    let fixed = |name: &String| found.column(name).is_some_and(|column| column.fixed);
                    let not_null =
                        |name: &&String| found.column(name).is_some_and(|column| column.not_null || column.fixed);
                    let not_null: Vec<&String> = columns.iter().filter(not_null).collect();
                    let list = not_null.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
                    let why = if full { " (MATCH FULL: all columns, or none)" } else { "" };
                    let message = format!("{by} would set {list} to null, and the column does not allow it{why}");
                    let fix = not_null.first().map(|name| match (found.has_in_key(name), fixed(name)) {
                        (true, _) => {
                            format!("{name} is part of the primary key of {}: delete the rows", relation.label())
                        }
                        (_, true) => "its type, a CHECK or what it is generated from says so: delete the rows, or let the column be another".to_owned(),
                        (false, false) => {
                            format!("ALTER TABLE {relation} ALTER COLUMN {} DROP NOT NULL", Ident::new(name.as_str()))
                        }
                    });
                    self.refuse(&relation, message, fix);
                }
                self.asked_about(table, &nullable);
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
}
