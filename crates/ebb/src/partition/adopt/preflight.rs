//! What stands in the way of adopting a table, all of it at once, each with the way out; and what changes for callers.
//! Invariant: looking changes nothing.

use serde::Serialize;

use super::stamp::Stamp;
use super::subject::{Bound, Subject};
use super::{Request, guard, referrers};

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is the case.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

/// Everything that was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Findings {
    /// Nothing is done while one of these is there.
    pub refusals: Vec<Finding>,
    /// What will be different for callers.
    pub changes: Vec<Finding>,
}

impl Findings {
    pub(crate) fn refuse(&mut self, what: impl Into<String>, fix: impl Into<String>) {
        self.refusals.push(Finding { what: what.into(), fix: fix.into() });
    }

    pub(crate) fn change(&mut self, what: impl Into<String>, fix: impl Into<String>) {
        self.changes.push(Finding { what: what.into(), fix: fix.into() });
    }
}

/// Looks at what the catalog says.
pub(crate) fn check(subject: &Subject, request: &Request) -> Findings {
    let mut found = Findings::default();
    table(subject, &mut found);
    column(subject, request, &mut found);
    indexes(subject, request, &mut found);
    constraints(subject, &mut found);
    referrers::check(subject, request, &mut found);
    dependents(subject, &mut found);
    publications(subject, &mut found);
    subscriptions(subject, &mut found);
    guard::check(subject, request, &mut found);
    found
}

fn table(subject: &Subject, found: &mut Findings) {
    let (head, label) = (&subject.head, subject.relation().label());
    if head.relkind == "p" {
        found.refuse(
            format!("{label} is partitioned already"),
            "give it a [[partition]] policy: its upkeep needs no adoption",
        );
    }
    if head.is_partition {
        found.refuse(format!("{label} is itself a partition"), "adopt the table that it is a partition of");
    }
    if head.persistence != "p" {
        let what = if head.persistence == "u" { "unlogged" } else { "temporary" };
        found.refuse(
            format!("{label} is {what}"),
            format!("a table worth partitioning is logged: ALTER TABLE {} SET LOGGED", head.printed),
        );
    }
    if head.has_children || (head.is_child && !head.is_partition) {
        found.refuse(
            format!("{label} has inheritance children or a parent"),
            format!("end the inheritance first: ALTER TABLE … NO INHERIT {}", head.printed),
        );
    }
    if head.has_rules {
        found.refuse(
            format!("{label} has rules"),
            "replace them by triggers; a rule stays with the table it was made on",
        );
    }
    if head.is_typed {
        found.refuse(format!("{label} is a typed table"), format!("ALTER TABLE {} NOT OF", head.printed));
    }
    if head.access_method != "heap" {
        found.refuse(
            format!("{label} uses the access method {}", head.access_method),
            "this version adopts heap tables only",
        );
    }
    if !head.owned {
        found.refuse(
            format!("{label} belongs to {}, and you may not act as that role", head.owner),
            format!("connect as {0}, or: GRANT {0} TO CURRENT_USER", head.owner),
        );
    }
    for role in &head.may_not_create {
        found.refuse(
            format!("{role} may not create tables in schema {}", head.schema_name),
            format!(
                "GRANT CREATE ON SCHEMA {} TO {}",
                crate::pg::Ident::new(&head.schema_name),
                crate::pg::Ident::new(role)
            ),
        );
    }
    if head.row_transition_tables {
        found.refuse(
            format!("{label} has a row trigger with a transition table, which a partitioned table cannot have"),
            "make it FOR EACH STATEMENT",
        );
    }
}

fn column(subject: &Subject, request: &Request, found: &mut Findings) {
    let (head, label) = (&subject.head, subject.relation().label());
    let name = &head.column_name;
    if head.is_generated {
        found.refuse(
            format!("column {name} is generated, and PostgreSQL does not partition by generated columns"),
            "name the column that it is generated from",
        );
    }
    if head.kind.is_none() {
        found.refuse(
            format!("column {name} is {}, which tells no time", head.column_type),
            "it must be timestamptz, timestamp, date, uuid (version 7), bigint with --unit s or ms, or integer seconds",
        );
    }
    if request.unit.is_some() && head.kind.as_deref().is_some_and(|kind| kind != "s" && kind != "ms") {
        found.refuse(format!("--unit is for integers, and column {name} is {}", head.column_type), "leave --unit out");
    }
    if !head.not_null {
        found.change(
            format!("column {name} becomes NOT NULL"),
            "callers that leave it out or write NULL are refused from the first step on",
        );
    }
    for trigger in subject.triggers.iter().filter(|trigger| trigger.is_row && trigger.names_its_table()) {
        found.change(
            format!(
                "trigger {} asks for the name of its table, which is that of a partition from then on",
                trigger.name
            ),
            "give it the name by an argument (TG_ARGV)",
        );
    }
    for trigger in subject.triggers.iter().filter(|trigger| trigger.is_between) {
        found.refuse(
            format!("constraint trigger {} names another table (FROM), and the server leaves such a one on a partition that is detached", trigger.name),
            "make it without FROM",
        );
    }
    for trigger in subject.triggers.iter().filter(|trigger| trigger.is_after_update) {
        found.change(
            format!("trigger {} does not fire for an update that moves a row to another partition: that deletes and inserts it", trigger.name),
            format!("let it fire for those too, or leave {name} of a row as it is"),
        );
    }
    for trigger in &subject.triggers {
        let own = &trigger.name;
        match trigger.stamps(name) {
            Stamp::Yes if trigger.is_before_insert => found.refuse(
                format!("trigger {own} gives a new row its {name}, and a row finds its partition before it fires"),
                format!("give it by a default: ALTER TABLE {label} ALTER COLUMN {} SET DEFAULT now(); and take it out of the trigger", subject.column()),
            ),
            Stamp::Yes if trigger.is_before_update => found.change(
                format!("trigger {own} gives a row that is updated another {name}, and with it another partition"),
                "that costs a delete and an insert: take it out of the trigger if the time of a row is not to change",
            ),
            Stamp::May(why) if trigger.is_before_insert => found.change(
                format!("trigger {own} may give a new row its {name} ({why}), and a row finds its partition before it fires"),
                "look whether it does: such rows are refused",
            ),
            Stamp::May(why) if trigger.is_before_update => found.change(
                format!("trigger {own} may give a row that is updated another {name} ({why}), and with it another partition"),
                "look whether it does: that costs a delete and an insert",
            ),
            _ => {}
        }
    }
    for caller in subject.callers.iter().filter(|caller| caller.names_only) {
        found.change(
            format!("{} seems to name ONLY {label}", caller.who),
            "ONLY of a partitioned table has no rows: leave the word out there",
        );
    }
    for caller in subject.callers.iter().filter(|caller| caller.sets_column) {
        found.change(
            format!("{} seems to update {name} of {label}", caller.who),
            "a row whose time changes moves to another partition; that costs a delete and an insert",
        );
    }
}

fn indexes(subject: &Subject, request: &Request, found: &mut Findings) {
    let column = &subject.head.column_name;
    for index in &subject.indexes {
        if index.is_exclusion {
            found.refuse(
                format!("{} is an exclusion constraint, which cannot span partitions", index.name),
                "drop it, or leave this table as it is",
            );
        } else if !index.is_valid {
            found.refuse(
                format!("index {} is invalid", index.name),
                format!("DROP INDEX CONCURRENTLY {}", crate::pg::Relation::new(&subject.head.schema_name, &index.name)),
            );
        } else if index.is_of_row {
            found.refuse(
                format!("index {} is about the row as a whole, which would stay that of the old table", index.name),
                "name the columns instead",
            );
        } else if index.must_grow() && index.is_full {
            found.refuse(
                format!(
                    "index {} has as many columns as PostgreSQL allows, and would need {column} besides",
                    index.name
                ),
                "leave a column out (those of INCLUDE count), or leave this table as it is",
            );
        } else if index.must_grow() {
            let key = index.key_columns.join(", ");
            let (kept, obstacle) = (request.guard.contains(&index.key_columns), guard::obstacle(index));
            let fix = match obstacle {
                None if kept => "the guard keeps it unique over its window".to_owned(),
                None => format!("if callers rely on it: --guard {}", index.key_columns.join(",")),
                Some(obstacle) => {
                    format!("if callers rely on it, leave this table as it is: the guard cannot keep it, {obstacle}")
                }
            };
            let of = index.predicate.as_ref().map_or(String::new(), |predicate| format!(" where {predicate}"));
            found.change(
                format!("{} becomes unique by ({key}, {column}){of}: two rows with the same ({key}) can exist at different times", index.name),
                fix,
            );
        }
    }
    if subject.indexes.iter().any(super::subject::Index::must_grow) {
        for caller in subject.callers.iter().filter(|caller| caller.on_conflict) {
            found.change(
                format!(
                    "{} inserts with ON CONFLICT, and a key changes: with its columns as target it will be refused, by its name or without a target it will find only rows of the same {column}",
                    caller.who
                ),
                match request.guard.is_empty() {
                    false => format!("add {column} to a target of columns; a duplicate of another {column} gets unique_violation (23505) from the guard of its key, whatever the target: catch that"),
                    true => format!("add {column} to a target of columns; a duplicate of another {column} comes in, whatever the target: to refuse it, --guard"),
                },
            );
        }
    }
}

fn constraints(subject: &Subject, found: &mut Findings) {
    for constraint in &subject.constraints {
        let name = crate::pg::Ident::new(&constraint.name);
        if !constraint.is_enforced {
            let fix = match constraint.kind.as_str() {
                "f" => format!("ALTER TABLE {} ALTER CONSTRAINT {name} ENFORCED", subject.head.printed),
                _ => format!(
                    "ALTER TABLE {} DROP CONSTRAINT {name}, and add it again so that it is enforced",
                    subject.head.printed
                ),
            };
            found.refuse(format!("constraint {} is NOT ENFORCED", constraint.name), fix);
        } else if !constraint.is_valid {
            found.refuse(
                format!("constraint {} is NOT VALID", constraint.name),
                format!("ALTER TABLE {} VALIDATE CONSTRAINT {name}", subject.head.printed),
            );
        }
        if constraint.no_inherit && constraint.kind == "c" {
            found.refuse(
                format!("check {} is NO INHERIT, which a partitioned table cannot have", constraint.name),
                "make it an ordinary check",
            );
        }
        if constraint.no_inherit && constraint.kind == "n" {
            found.refuse(
                format!("NOT NULL {} is NO INHERIT, which a partitioned table cannot have", constraint.name),
                format!("ALTER TABLE {} ALTER CONSTRAINT {name} INHERIT", subject.head.printed),
            );
        }
        if constraint.is_of_row {
            found.refuse(
                format!(
                    "check {} is about the row as a whole, which would stay that of the old table",
                    constraint.name
                ),
                "name the columns instead",
            );
        }
        if let Some(table) = constraint.references_table.as_deref().filter(|_| constraint.kind == "f") {
            found.change(
                format!("foreign key {} is carried over", constraint.name),
                format!("attaching locks {table} against writes for the same milliseconds"),
            );
        }
    }
}

fn dependents(subject: &Subject, found: &mut Findings) {
    for view in &subject.views {
        if view.relkind == "m" {
            found.refuse(
                format!("materialized view {} reads this table and would go on reading the old one", view.name),
                format!("drop it before and create it after: DROP MATERIALIZED VIEW {}", view.name),
            );
        } else if !view.owned {
            found.refuse(
                format!(
                    "view {} belongs to {}, and you may not act as that role to make it again",
                    view.name, view.owner
                ),
                format!("connect as one who may, or: GRANT {} TO CURRENT_USER", crate::pg::Ident::new(&view.owner)),
            );
        } else if view.reads_only {
            found.refuse(
                format!(
                    "view {} reads ONLY this table, which has no rows of its own once it is partitioned",
                    view.name
                ),
                "make it read the table without ONLY",
            );
        } else if view.needs_key && subject.indexes.iter().any(super::subject::Index::must_grow) {
            found.refuse(
                format!(
                    "view {} groups by a key of this table that changes, and shows columns that it does not group by",
                    view.name
                ),
                "name those columns in its GROUP BY too",
            );
        } else {
            found.change(format!("view {} is made again over the new table", view.name), "nothing to do");
        }
    }
    for (right, whose, giver) in &subject.given_on {
        found.change(
            format!("the right {right} of {whose}, which {giver} gave, is given by the owner"),
            format!("it does not end any more when {giver} loses it"),
        );
    }
    for sequence in subject.identities() {
        for user in &sequence.users {
            found.refuse(
                format!("{user} uses {}, the sequence of an identity, which is made anew", sequence.relation().label()),
                "drop it before and create it after",
            );
        }
    }
    for what in &subject.clingers {
        found.refuse(
            format!("{what} depends on this table or its row type, and would stay with the old one"),
            "drop it before and create it after",
        );
    }
}

fn publications(subject: &Subject, found: &mut Findings) {
    for publication in &subject.publications {
        let name = crate::pg::Ident::new(&publication.name);
        if publication.has_filter {
            found.refuse(
                format!("publication {} has a row filter on this table", publication.name),
                format!(
                    "take the table out before and add it after: ALTER PUBLICATION {name} DROP TABLE {}",
                    subject.head.printed
                ),
            );
        } else if !publication.via_root && (publication.all_tables || publication.has_partitioned) {
            found.refuse(
                format!("publication {} would publish partitions under their own names", publication.name),
                format!("ALTER PUBLICATION {name} SET (publish_via_partition_root = true)"),
            );
        } else if !publication.via_root {
            found.change(
                format!(
                    "publication {} gets publish_via_partition_root, so that subscribers see one table",
                    publication.name
                ),
                "nothing to do",
            );
        }
    }
}

/// An integer cannot tell the time of every partition ahead: those that it can are made, the last until its end.
pub(crate) fn check_reach(subject: &Subject, bound: &Bound, ahead: &[(String, String, String)], found: &mut Findings) {
    let Some(ends) = &subject.head.type_ends else { return };
    let what = format!("column {} is an integer, which ends on {ends}", subject.head.column_name);
    let reaches = |literal: &str| literal.parse::<i64>().is_ok_and(|at| at >= i64::from(i32::MAX));
    if reaches(&bound.literal) {
        found.refuse(
            format!("{what}, and the first partition would end after that"),
            "shorter periods: --by month; or a column that is bigint",
        );
    } else if ahead.last().is_some_and(|(_, _, to)| reaches(to)) {
        found.change(
            format!("{what}: partitions are made until then, and not as many ahead as asked for"),
            "make it bigint before: that takes a rewrite, and a partition column cannot be changed afterwards",
        );
    }
}

fn subscriptions(subject: &Subject, found: &mut Findings) {
    for subscription in &subject.subscriptions {
        let name = crate::pg::Ident::new(&subscription.name);
        let after = format!(
            "ALTER SUBSCRIPTION {name} REFRESH PUBLICATION WITH (copy_data = false); ALTER SUBSCRIPTION {name} ENABLE"
        );
        let what = format!("subscription {} writes to this table, and does not know the new one", subscription.name);
        if subscription.is_enabled {
            found.refuse(what, format!("ALTER SUBSCRIPTION {name} DISABLE; adopt it; {after}"));
        } else {
            found.change(what, format!("afterwards: {after}"));
        }
    }
}

/// Looks at what the rows say.
pub(crate) fn check_rows(subject: &Subject, bound: &Bound, nulls: bool, found: &mut Findings) {
    let (printed, column) = (&subject.head.printed, subject.column());
    if nulls {
        found.refuse(
            format!("column {} has NULLs", subject.head.column_name),
            format!("give them a time: UPDATE {printed} SET {column} = … WHERE {column} IS NULL"),
        );
    }
    if bound.too_far {
        let newest = bound.newest.clone().unwrap_or_default();
        if subject.head.kind.as_deref() == Some("uuid") {
            found.refuse(
                format!("the greatest value of {column} would be of {newest}: these are not uuids of version 7, which begin with their time"),
                "name a column that tells the time",
            );
            return;
        }
        found.refuse(
            format!("the newest row is far in the future ({newest}): its partition would be one of very many"),
            format!("look at it: SELECT * FROM {printed} ORDER BY {column} DESC LIMIT 10; mend or delete it, or raise --ahead"),
        );
    }
}
