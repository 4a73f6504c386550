//! Foreign keys that come in. A partitioned table's keys contain its partition column, so whoever refers to it must carry
//! that column too: it is added to the referring table, filled by trigger and in batches, and made part of the foreign key.
//! Invariants: at no moment is a row accepted that refers to nothing, nor one removed that is referred to; what callers do
//! not name is filled in for them; the way back leaves nothing of it behind.

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::fill::Fill;
use super::plan::fitting;
use super::preflight::Findings;
use super::subject::{Subject, outside_quotes};
use super::{How, Request, Step};
use crate::pg::{Ident, Literal, Relation};
use crate::{Result, sql};

/// A foreign key of another table, as the catalog has it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Referrer {
    name: String,
    schema_name: String,
    table_name: String,
    is_itself: bool,
    relkind: String,
    is_partition: bool,
    owner: String,
    owned: bool,
    inherits: bool,
    definition: String,
    is_valid: bool,
    is_deferrable: bool,
    is_full: bool,
    on_delete: String,
    on_update: String,
    columns: Vec<String>,
    referenced: Vec<String>,
    all_columns: Vec<String>,
    has_update_triggers: bool,
    is_published: bool,
    comment: Option<String>,
}

pub(crate) async fn read(connection: &mut PgConnection, oid: i64) -> Result<Vec<Referrer>> {
    Ok(sql!("referrers" as Referrer).bind(oid).fetch_all(connection).await?)
}

impl Referrer {
    fn table(&self) -> Relation {
        Relation::new(&self.schema_name, &self.table_name)
    }

    /// Whether it names the partition column already, and only has to follow the name.
    fn carries(&self, subject: &Subject) -> bool {
        self.referenced.contains(&subject.head.column_name)
    }

    /// What the column is called that it gets.
    fn new_column(&self, subject: &Subject) -> String {
        fitting(&self.columns.join("_"), &format!("_{}", subject.head.column_name))
    }

    /// Why it cannot move, and the way out.
    fn obstacle(&self, subject: &Subject) -> Option<(&'static str, String)> {
        let (table, name) = (self.table(), Ident::new(&self.name));
        let drop_it = format!("drop it: ALTER TABLE {table} DROP CONSTRAINT {name}");
        let column = self.new_column(subject);
        if self.is_itself {
            return Some(("it refers to its own table, which moves", drop_it));
        }
        if self.relkind != "r" || self.is_partition || self.inherits {
            return Some(("its table is partitioned, or has a parent or children", drop_it));
        }
        if !self.owned {
            return Some((
                "its table belongs to a role that you may not act as",
                format!("GRANT {} TO CURRENT_USER", Ident::new(&self.owner)),
            ));
        }
        if !self.is_valid {
            return Some(("it is NOT VALID", format!("ALTER TABLE {table} VALIDATE CONSTRAINT {name}")));
        }
        if self.is_deferrable {
            return Some((
                "it is DEFERRABLE: the time of a row that comes later in the transaction cannot be filled in",
                format!("ALTER TABLE {table} ALTER CONSTRAINT {name} NOT DEFERRABLE"),
            ));
        }
        if self.is_full || self.on_delete == "d" || self.on_update == "d" {
            return Some(("it is MATCH FULL or sets defaults, which a column more would change", drop_it));
        }
        if !self.carries(subject) && self.all_columns.contains(&column) {
            return Some(("its table has a column of the name that would be added", format!("rename {column}")));
        }
        None
    }

    fn moved(&self, n: usize, subject: &Subject) -> Moved {
        let added = (!self.carries(subject))
            .then(|| Added { name: self.new_column(subject), column_type: subject.head.column_type.clone() });
        Moved {
            table: (self.schema_name.clone(), self.table_name.clone()),
            name: self.name.clone(),
            definition: self.definition.clone(),
            comment: self.comment.clone(),
            on_delete: self.on_delete.clone(),
            on_update: self.on_update.clone(),
            columns: self.columns.clone(),
            referenced: self.referenced.clone(),
            owner: self.owner.clone(),
            added,
            target: (subject.head.schema_name.clone(), subject.head.table_name.clone()),
            target_column: subject.head.column_name.clone(),
            target_owner: subject.head.owner.clone(),
            mark: format!("ebb_{}_", subject.head.oid),
            n,
        }
    }
}

/// Says which keys move, and which cannot.
pub(crate) fn check(subject: &Subject, request: &Request, found: &mut Findings) {
    let column = &subject.head.column_name;
    for referrer in &subject.referrers {
        let (what, label) =
            (format!("foreign key {} of {}", referrer.name, referrer.table().label()), referrer.table().label());
        if !request.move_foreign_keys {
            found.refuse(
                format!("{what} references this table"),
                format!(
                    "a partitioned table's keys contain its partition column, and {label} must carry it: --move-foreign-keys adds it there; \
                     or drop the foreign key"
                ),
            );
            continue;
        }
        if let Some((why, fix)) = referrer.obstacle(subject) {
            found.refuse(format!("{what} cannot move: {why}"), fix);
            continue;
        }
        if referrer.carries(subject) {
            found.change(format!("{what} follows the name to the new table"), "nothing to do");
            continue;
        }
        let added = referrer.new_column(subject);
        found.change(
            format!("{label} gets the column {added}, and {what} includes it"),
            format!("a trigger fills it in where callers do not name it; a {column} that is referred to changes only by ON UPDATE CASCADE"),
        );
        if referrer.is_published {
            found.change(
                format!("{label} is published, and its subscribers would meet a column they do not have"),
                format!("add {added} there before"),
            );
        }
    }
    let names: Vec<_> = subject.referrers.iter().map(|one| (one.table().label(), one.new_column(subject))).collect();
    for (n, (label, added)) in names.iter().enumerate() {
        if names[..n].contains(&names[n]) && request.move_foreign_keys {
            found.refuse(
                format!(
                    "two foreign keys of {label} over the same columns refer to this table, and both would add {added}"
                ),
                "drop one of them",
            );
        }
    }
}

/// Filling sets off triggers of the referring tables, unless this role may silence them: says so before anything changes.
pub(crate) fn check_silence(subject: &Subject, quiet: bool, found: &mut Findings) {
    for referrer in subject.referrers.iter().filter(|one| one.has_update_triggers && !quiet) {
        found.refuse(
            format!("filling {} would set off its triggers", referrer.table().label()),
            "run it as a superuser, or from 15 on: GRANT SET ON PARAMETER session_replication_role TO CURRENT_USER",
        );
    }
}

/// The keys that move with this table.
pub(crate) fn moved(subject: &Subject) -> Vec<Moved> {
    subject.referrers.iter().enumerate().map(|(n, referrer)| referrer.moved(n, subject)).collect()
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Added {
    name: String,
    column_type: String,
}

/// A foreign key that moves; kept in the plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Moved {
    table: (String, String),
    name: String,
    /// As it was.
    definition: String,
    comment: Option<String>,
    on_delete: String,
    on_update: String,
    columns: Vec<String>,
    referenced: Vec<String>,
    owner: String,
    /// None where the key names the partition column already.
    added: Option<Added>,
    target: (String, String),
    target_column: String,
    target_owner: String,
    mark: String,
    n: usize,
}

impl Moved {
    fn table(&self) -> Relation {
        Relation::new(&self.table.0, &self.table.1)
    }

    fn target(&self) -> Relation {
        Relation::new(&self.target.0, &self.target.1)
    }

    fn own(&self, what: &str) -> Ident {
        Ident::new(format!("{}{what}{}", self.mark, self.n))
    }

    fn function(&self, what: &str) -> Relation {
        Relation::new(&self.target.0, self.own(what).as_str())
    }

    /// The last to fire: others may still set what it looks up by.
    fn carry_trigger(&self) -> Ident {
        Ident::new(format!("zz_{}carry{}", self.mark, self.n))
    }

    fn keep_trigger(&self) -> Ident {
        self.own("keep")
    }

    /// `t.a = NEW.x AND …`, over the columns as they were.
    fn matches(&self, left: &str, right: &str, mine_left: bool) -> String {
        let pairs = self.columns.iter().zip(&self.referenced).map(|(mine, theirs)| {
            let (a, b) = if mine_left { (mine, theirs) } else { (theirs, mine) };
            format!("{left}.{} = {right}.{}", Ident::new(a), Ident::new(b))
        });
        pairs.collect::<Vec<_>>().join(" AND ")
    }

    /// The key with the partition column, under a name.
    fn composite(&self, name: &Ident) -> String {
        let (mut mine, mut theirs) = (self.columns.clone(), self.referenced.clone());
        if let Some(added) = &self.added {
            mine.push(added.name.clone());
            theirs.push(self.target_column.clone());
        }
        format!(
            "ALTER TABLE {} ADD CONSTRAINT {name} FOREIGN KEY ({}) REFERENCES {} ({}){} NOT VALID",
            self.table(),
            list(&mine),
            self.target(),
            list(&theirs),
            actions(&self.definition)
        )
    }

    /// Before the keys are swapped: the column, what keeps it right, the key that includes it, and the rows that are there.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let Some(added) = &self.added else { return Vec::new() };
        let (table, column, label) = (self.table(), Ident::new(&added.name), self.table().label());
        let (check, key) = (self.own("c"), self.own("f"));
        let known: Vec<String> = self.columns.iter().map(|name| format!("{} IS NULL", Ident::new(name))).collect();
        let mut carry = vec![format!("ALTER TABLE {table} ADD COLUMN {column} {}", added.column_type)];
        carry.extend(self.carry(false));
        // No row is checked by it yet that does not have the column.
        carry.push(self.composite(&key));
        let fill = Fill {
            table: self.table.clone(),
            target: self.target.clone(),
            column: added.name.clone(),
            target_column: self.target_column.clone(),
            matches: self.matches("c", "t", true),
            columns: self.columns.clone(),
            referenced: self.referenced.clone(),
        };
        vec![
            Step::new(&format!("let {label} carry {}", added.name), How::Short, carry),
            Step { fill: Some(fill), ..Step::new(&format!("fill {} of {label}", added.name), How::Fill, Vec::new()) },
            Step::new(
                &format!("no row of {label} is without it"),
                How::Short,
                vec![format!(
                    "ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ({} OR {column} IS NOT NULL) NOT VALID",
                    known.join(" OR ")
                )],
            ),
            Step::new(
                &format!("prove that, and the foreign key of {label}"),
                How::Long,
                vec![
                    format!("ALTER TABLE {table} VALIDATE CONSTRAINT {check}"),
                    format!("ALTER TABLE {table} VALIDATE CONSTRAINT {key}"),
                ],
            ),
        ]
    }

    /// The trigger that fills in what callers do not name, and refuses what refers to nothing. While rows are on their way
    /// back no foreign key sees them all: then it also locks what it finds, and looks twice, since a row may be moving.
    fn carry(&self, stands_in: bool) -> Vec<String> {
        let (table, target, function) = (self.table(), self.target(), self.function("carry"));
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
        let mut of = self.columns.clone();
        of.extend(self.added.iter().map(|added| added.name.clone()));
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
        let (trigger, mut sql) = (self.carry_trigger(), trigger_function(&function, &body, &self.target_owner));
        sql.push(format!("DROP TRIGGER IF EXISTS {trigger} ON {table}"));
        sql.push(format!(
            "CREATE TRIGGER {trigger} BEFORE INSERT OR UPDATE OF {} ON {table} FOR EACH ROW EXECUTE FUNCTION {function}()",
            list(&of)
        ));
        sql.push(format!("ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}"));
        sql
    }

    /// The old key goes with what it was over; the one that includes the column is in force.
    pub(crate) fn swap(&self) -> Option<String> {
        self.added.as_ref()?;
        Some(format!("ALTER TABLE {} DROP CONSTRAINT {}", self.table(), Ident::new(&self.name)))
    }

    /// At the cutover, before the names move: it lets go of the old table.
    pub(crate) fn leave(&self) -> String {
        let name = if self.added.is_some() { self.own("f") } else { Ident::new(&self.name) };
        format!("ALTER TABLE {} DROP CONSTRAINT {name}", self.table())
    }

    /// And after them: it refers to the new one, under its own name.
    pub(crate) fn arrive(&self) -> Vec<String> {
        let name = Ident::new(&self.name);
        let mut sql = vec![self.composite(&name)];
        sql.extend(self.commented());
        sql
    }

    fn commented(&self) -> Option<String> {
        let text = self.comment.as_ref()?;
        Some(format!("COMMENT ON CONSTRAINT {} ON {} IS {}", Ident::new(&self.name), self.table(), Literal(text)))
    }

    /// What is proven afterwards; a proof that is there already costs nothing.
    pub(crate) fn proof(&self) -> String {
        format!("ALTER TABLE {} VALIDATE CONSTRAINT {}", self.table(), Ident::new(&self.name))
    }

    /// Before the keys are as they were: what depends on the wider ones lets go.
    pub(crate) fn release(&self) -> Vec<String> {
        let table = self.table();
        match self.added {
            Some(_) => vec![format!("ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {}", self.own("f"))],
            None => Vec::new(),
        }
    }

    /// Afterwards: the key as it was, and nothing of what it needed to move.
    pub(crate) fn restore(&self) -> Vec<String> {
        let (table, name) = (self.table(), Ident::new(&self.name));
        let mut sql = vec![
            format!("DROP TRIGGER IF EXISTS {} ON {}", self.keep_trigger(), self.target()),
            format!("DROP FUNCTION IF EXISTS {}()", self.function("keep")),
            format!("DROP TRIGGER IF EXISTS {} ON {table}", self.carry_trigger()),
            format!("DROP FUNCTION IF EXISTS {}()", self.function("carry")),
        ];
        // Its check goes with it.
        sql.extend(
            self.added
                .iter()
                .map(|added| format!("ALTER TABLE {table} DROP COLUMN IF EXISTS {}", Ident::new(&added.name))),
        );
        sql.push(format!(
            "DO $ebb$ BEGIN IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = {}::regclass AND conname = {}) THEN \
             ALTER TABLE {table} ADD CONSTRAINT {name} {} NOT VALID; {} END IF; END $ebb$",
            Literal(&table.to_string()),
            Literal(&self.name),
            self.definition,
            self.commented().map_or(String::new(), |sql| sql + ";")
        ));
        sql
    }

    /// On the way back, before anything is detached: the foreign key lets go of the table that will hide.
    pub(crate) fn let_go(&self) -> String {
        format!("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}", self.table(), Ident::new(&self.name))
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

fn list(names: &[String]) -> String {
    names.iter().map(|name| Ident::new(name).to_string()).collect::<Vec<_>>().join(", ")
}

/// A function for triggers, with the rights of a table's owner, for nobody else.
fn trigger_function(function: &Relation, body: &str, owner: &str) -> Vec<String> {
    vec![
        format!(
            "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $ebb${body}$ebb$"
        ),
        format!("REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"),
        format!("ALTER FUNCTION {function}() OWNER TO {}", Ident::new(owner)),
    ]
}

/// What follows the list of referenced columns: ` ON DELETE CASCADE …`.
fn actions(definition: &str) -> &str {
    let list = outside_quotes(definition, " REFERENCES ").map_or("", |at| &definition[at..]);
    outside_quotes(list, ")").map_or("", |at| &list[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_key_does_when_its_row_goes_is_kept() {
        let key = r#"FOREIGN KEY (a, "b)") REFERENCES public."t)"(x, y) ON UPDATE CASCADE ON DELETE SET NULL (a)"#;
        assert_eq!(actions(key), " ON UPDATE CASCADE ON DELETE SET NULL (a)");
        assert_eq!(actions("FOREIGN KEY (a) REFERENCES public.t(id)"), "");
    }
}
