//! The triggers of a foreign key that moves: the one that fills in what callers do not name, and, while rows are on their
//! way back and no foreign key sees them all, those on both sides that stand in for it.

use super::{Moved, list};
use crate::pg::{Ident, Literal, Relation, quoted};

impl Moved {
    /// The trigger that fills in what callers do not name, and refuses what refers to nothing. While rows are on their way
    /// back no foreign key sees them all: then it also locks what it finds, and looks twice, since a row may be moving.
    pub(super) fn carry(&self, stands_in: bool) -> Vec<String> {
        let mut sql = self.carry_function(stands_in);
        sql.extend(self.carry_on(true));
        sql
    }

    /// The trigger itself: for every update while rows may move past the filling, then for those that matter.
    pub(super) fn carry_on(&self, only_changes: bool) -> Vec<String> {
        let (table, function, trigger) = (self.table(), self.function("carry"), self.carry_trigger());
        let mut of = self.columns.clone();
        of.extend(self.added.iter().map(|added| added.name.clone()));
        let of = if only_changes { format!(" OF {}", list(&of)) } else { String::new() };
        vec![
            format!("DROP TRIGGER IF EXISTS {trigger} ON {table}"),
            format!(
                "CREATE TRIGGER {trigger} BEFORE INSERT OR UPDATE{of} ON {table} FOR EACH ROW EXECUTE FUNCTION {function}()"
            ),
            format!("ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}"),
        ]
    }

    pub(super) fn carry_function(&self, stands_in: bool) -> Vec<String> {
        let (target, function) = (self.target(), self.function("carry"));
        let missing: Vec<String> =
            self.columns.iter().map(|name| format!("NEW.{} IS NULL", Ident::new(name))).collect();
        let same: Vec<String> =
            self.columns.iter().map(|name| format!("NEW.{0} IS NOT DISTINCT FROM OLD.{0}", Ident::new(name))).collect();
        let lock = if stands_in { " LIMIT 1 FOR KEY SHARE" } else { " LIMIT 2" };
        let theirs = Ident::new(&self.target_column);
        let look = format!(
            "SELECT array_agg(at) INTO found FROM (SELECT t.{theirs} AS at FROM {target} t WHERE {}{lock}) x",
            self.matches("t", "NEW", false)
        );
        let (forget, known, put) = match &self.added {
            Some(added) => {
                let mine = Ident::new(&added.name);
                let given = format!(
                    "IF NEW.{mine} IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.{mine} IS DISTINCT FROM OLD.{mine} OR ({})) THEN RETURN NEW; END IF;",
                    same.join(" AND ")
                );
                (format!("NEW.{mine} := NULL;"), given, format!("NEW.{mine} := found[1];"))
            }
            None => (String::new(), String::new(), String::new()),
        };
        // A key that stands in is asked whatever the caller named.
        let known = if stands_in { String::new() } else { known };
        let again = if stands_in { format!("IF found IS NULL THEN {look}; END IF;") } else { String::new() };
        let twice = if stands_in {
            String::new()
        } else {
            format!(
                "IF cardinality(found) > 1 THEN RAISE cardinality_violation USING MESSAGE = {}, HINT = {}; END IF;",
                Literal(&format!("more than one row of {} has this key", target.label())),
                Literal(&format!(
                    "name the time of the one that is meant: {}",
                    self.added.as_ref().map_or("", |added| added.name.as_str())
                ))
            )
        };
        let body = format!(
            "DECLARE found {}[]; BEGIN IF {} THEN {forget} RETURN NEW; END IF; {known} {look}; {again} \
             IF found IS NULL THEN RAISE foreign_key_violation USING MESSAGE = {}, SCHEMA = {}, TABLE = {}, CONSTRAINT = {}; END IF; \
             {twice} {put} RETURN NEW; END",
            self.added.as_ref().map_or("text", |added| added.column_type.as_str()),
            missing.join(" OR "),
            Literal(&format!(
                "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
                self.table.1, self.name
            )),
            Literal(&self.table.0),
            Literal(&self.table.1),
            Literal(&self.name),
        );
        trigger_function(&function, &body, &self.target_owner)
    }

    /// While rows are outside of the table, no foreign key sees them: triggers on both sides stand in for it.
    pub(crate) fn stand_in(&self) -> Vec<String> {
        let (table, function) = (self.table(), self.function("keep"));
        let mine = self.matches("c", "OLD", true);
        let refuse = format!(
            "IF EXISTS (SELECT FROM {table} c WHERE {mine}) THEN RAISE foreign_key_violation USING MESSAGE = {}, SCHEMA = {}, TABLE = {}, CONSTRAINT = {}; END IF;",
            Literal(&format!(
                "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
                self.target.1, self.name, self.table.1
            )),
            Literal(&self.target.0),
            Literal(&self.target.1),
            Literal(&self.name)
        );
        let set = |value: &dyn Fn(&str) -> String| {
            let pairs = self.columns.iter().zip(&self.referenced);
            let sets: Vec<String> =
                pairs.map(|(mine, theirs)| format!("{} = {}", Ident::new(mine), value(theirs))).collect();
            format!("UPDATE {table} c SET {} WHERE {mine};", sets.join(", "))
        };
        let null = set(&|_| "NULL".to_owned());
        let deleted = match self.on_delete.as_str() {
            "c" => format!("DELETE FROM {table} c WHERE {mine};"),
            "n" => null.clone(),
            _ => refuse.clone(),
        };
        let updated = match self.on_update.as_str() {
            "c" => set(&|theirs| format!("NEW.{}", Ident::new(theirs))),
            "n" => null,
            _ => refuse,
        };
        let same: Vec<String> = self
            .referenced
            .iter()
            .map(|name| format!("NEW.{0} IS NOT DISTINCT FROM OLD.{0}", Ident::new(name)))
            .collect();
        let body = format!(
            "BEGIN IF TG_OP = 'DELETE' THEN {deleted} ELSIF NOT ({}) THEN {updated} END IF; RETURN NULL; END",
            same.join(" AND ")
        );
        let mut sql = trigger_function(&function, &body, &self.owner);
        sql.extend(self.carry(true));
        sql.push(self.keep_on(&self.target()));
        sql
    }

    /// The trigger on the side that is referred to.
    pub(crate) fn keep_on(&self, relation: &Relation) -> String {
        format!(
            "CREATE TRIGGER {} AFTER DELETE OR UPDATE OF {} ON {relation} FOR EACH ROW EXECUTE FUNCTION {}()",
            self.keep_trigger(),
            list(&self.referenced),
            self.function("keep")
        )
    }

    pub(crate) fn keep_no_more(&self, relation: &Relation) -> String {
        format!("DROP TRIGGER IF EXISTS {} ON {relation}", self.keep_trigger())
    }
}

/// A function for triggers, with the rights of a table's owner, for nobody else.
pub(crate) fn trigger_function(function: &Relation, body: &str, owner: &str) -> Vec<String> {
    vec![
        format!(
            "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {}",
            quoted(body)
        ),
        format!("REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"),
        format!("ALTER FUNCTION {function}() OWNER TO {}", Ident::new(owner)),
    ]
}
