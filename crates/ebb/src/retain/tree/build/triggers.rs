//! Triggers that destroy what no count has: those that run for rows that go, those that delete when rows are changed, and
//! those that overwrite at a soft delete what a restore would need. Told from their texts; none is run to find out.

use super::{Builder, EdgeAction, Finding, Marks};
use crate::pg::body::{self, Target};
use crate::retain::graph::{GraphTable, WrittenTrigger};

/// Values that only say when something happened.
const CLOCKS: [&str; 7] = [
    "now",
    "current_timestamp",
    "current_date",
    "localtimestamp",
    "clock_timestamp",
    "statement_timestamp",
    "transaction_timestamp",
];

impl Builder<'_> {
    /// Names the triggers of a table that destroy: those that run for rows that go, and those that do when rows change.
    /// Rows that go do so with those of their `circle`; where they stay there is none.
    pub(super) fn triggers(&mut self, at: usize, table: &GraphTable, circle: &[usize]) -> (Vec<String>, Vec<String>) {
        let goes = if circle.is_empty() { Vec::new() } else { table.delete_triggers.clone() };
        let changes = if self.changes(at, circle) { table.update_triggers.clone() } else { Vec::new() };
        let label = table.relation.label();
        let mut warn = |message| {
            self.findings.push(Finding { refuses: false, table: label.clone(), message, fix: None });
        };
        if !goes.is_empty() {
            let names = goes.join(", ");
            warn(format!("trigger {names} runs for every row that goes; what it does elsewhere is in no count"));
        }
        if !changes.is_empty() {
            let names = changes.join(", ");
            warn(format!("trigger {names} deletes rows when a row loses its link; what it deletes is in no count"));
        }
        if at == 0 && !table.update_triggers.is_empty() {
            let names = table.update_triggers.join(", ");
            warn(format!(
                "trigger {names} deletes rows when a row is updated: what a restore needs may be gone after a soft delete"
            ));
        }
        for trigger in &table.written_triggers {
            let lost = overwritten(trigger, &self.wishes.marks).join(", ");
            if !lost.is_empty() {
                let name = &trigger.name;
                warn(format!(
                    "trigger {name} changes {lost} at a soft delete: a restore does not bring back what was there"
                ));
            }
        }
        (goes, changes)
    }

    /// Whether rows of a table are changed: they stay and lose their link, or lose it before they go in a circle.
    fn changes(&self, at: usize, circle: &[usize]) -> bool {
        self.edges.iter().filter(|edge| edge.child == at).any(|edge| match edge.action {
            EdgeAction::Nullify(_) | EdgeAction::Anonymize(_) => true,
            EdgeAction::Delete => edge.kept.is_some() || !edge.nullable.is_empty() && circle.contains(&edge.parent),
            EdgeAction::Keep => false,
        })
    }
}

/// What a trigger that knows of soft deletes sets, besides what the policy itself writes and what only tells the time.
fn overwritten(trigger: &WrittenTrigger, marks: &Marks<'_>) -> Vec<String> {
    let texts: Vec<Vec<String>> = trigger.texts.iter().filter_map(|text| body::words(text)).collect();
    let definition = body::words(&trigger.definition).unwrap_or_default();
    let is_mark = |word: &String| marks.soft.contains(&word.trim_start_matches('"'));
    if !texts.iter().chain([&definition]).flatten().any(is_mark) {
        return Vec::new();
    }
    let mut lost: Vec<String> = Vec::new();
    for words in &texts {
        for (target, value) in body::assigned(words) {
            let value = value.map_or(&[][..], |at| &words[at..]);
            match target {
                Target::Column(name) if marks.own.contains(&name.as_str()) || harmless(value, &name) => {}
                Target::Column(name) => lost.push(name),
                Target::Row => lost.push("the row".to_owned()),
            }
        }
        let own = |columns: &[String]| columns.iter().all(|name| marks.own.contains(&name.as_str()));
        let updated = body::updated(words).into_iter().filter(|(_, columns)| !own(columns));
        lost.extend(updated.map(|(table, _)| format!("rows of {table}")));
    }
    lost.sort();
    lost.dedup();
    lost
}

/// The time, or what the column was.
fn harmless(value: &[String], column: &str) -> bool {
    let word = |at: usize| value.get(at).map_or("", String::as_str);
    CLOCKS.contains(&word(0)) || (word(0) == "old" && word(2).trim_start_matches('"') == column && word(3) == ";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_is_named_for_what_a_restore_would_not_bring_back() {
        let marks = Marks { soft: vec!["deleted_at", "status"], own: vec!["deleted_at", "status", "touched_at"] };
        let told = |definition: &str, text: &str| {
            let trigger = WrittenTrigger {
                name: "t".to_owned(),
                definition: format!("CREATE TRIGGER t BEFORE UPDATE {definition} ON users EXECUTE FUNCTION f()"),
                texts: vec![text.to_owned()],
            };
            overwritten(&trigger, &marks).join(", ")
        };
        let soft =
            |does: &str| told("", &format!("BEGIN IF NEW.deleted_at IS NOT NULL THEN {does} END IF; RETURN NEW; END"));
        assert_eq!(
            soft("NEW.email := NULL; UPDATE profiles SET bio = NULL WHERE id = NEW.id;"),
            "email, rows of profiles"
        );
        assert_eq!(soft("NEW := jsonb_populate_record(NEW, '{\"email\": null}');"), "the row");
        assert_eq!(soft("SELECT 'gone', now() INTO NEW.name, NEW.touched_at;"), "name");
        assert_eq!(told("OF deleted_at", "BEGIN NEW.email = 'x'; RETURN NEW; END"), "email");
        assert_eq!(told("", "BEGIN IF NEW.status = 'deleted' THEN NEW.email = ''; END IF; RETURN NEW; END"), "email");
        for nothing in [
            "NEW.updated_at := now();",
            "NEW.updated_at = current_timestamp;",
            "NEW.status := 'deleted';",
            "NEW.email := OLD.email;",
            "UPDATE profiles SET deleted_at = NEW.deleted_at WHERE id = NEW.id;",
            "INSERT INTO log VALUES (NEW.id, NEW.email);",
        ] {
            assert_eq!(soft(nothing), "", "{nothing}");
        }
        assert_eq!(told("", "BEGIN NEW.email := lower(NEW.email); RETURN NEW; END"), "", "it knows of no soft delete");
    }
}
