//! A foreign key that moves with the table it refers to: the column is added to the referring table, filled by trigger and
//! in batches, and made part of the key. Invariants: at no moment is a row accepted that refers to nothing, nor one removed
//! that is referred to; the way back leaves nothing of it behind.

mod stand_in;

pub(crate) use stand_in::trigger_function;

use serde::{Deserialize, Serialize};

use super::fill::Fill;
use super::subject::outside_quotes;
use super::{How, Step};
use crate::pg::{Ident, Literal, Relation, block};

/// The column that is added.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Added {
    pub(super) name: String,
    pub(super) column_type: String,
}

/// A foreign key that moves; kept in the plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Moved {
    pub(super) table: (String, String),
    pub(super) name: String,
    /// As it was.
    pub(super) definition: String,
    pub(super) comment: Option<String>,
    pub(super) on_delete: String,
    pub(super) on_update: String,
    pub(super) columns: Vec<String>,
    pub(super) referenced: Vec<String>,
    pub(super) owner: String,
    #[serde(default)]
    pub(super) has_update_triggers: bool,
    /// None where the key names the partition column already.
    pub(super) added: Option<Added>,
    pub(super) target: (String, String),
    pub(super) target_column: String,
    pub(super) target_owner: String,
    pub(super) mark: String,
    pub(super) n: usize,
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
        carry.extend(self.carry_function(false));
        // Also a row that only moves gets its column: the filling does not come back for it.
        carry.extend(self.carry_on(false));
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
            quietly: self.has_update_triggers,
        };
        vec![
            Step::new(&format!("let {label} carry {}", added.name), How::Short, carry),
            Step { fill: Some(fill), ..Step::new(&format!("fill {} of {label}", added.name), How::Fill, Vec::new()) },
            Step::new(
                &format!("no row of {label} is without it"),
                How::Short,
                [
                    vec![format!(
                        "ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ({} OR {column} IS NOT NULL) NOT VALID",
                        known.join(" OR ")
                    )],
                    self.carry_on(true),
                ]
                .concat(),
            ),
            Step::proof("prove that", &table, &check, true),
            Step::proof(&format!("prove the foreign key of {label}"), &table, &key, false),
        ]
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
        sql.push(block(&format!(
            "BEGIN IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = {}::regclass AND conname = {}) THEN \
             ALTER TABLE {table} ADD CONSTRAINT {name} {} NOT VALID; {} END IF; END",
            Literal(&table.to_string()),
            Literal(&self.name),
            self.definition,
            self.commented().map_or(String::new(), |sql| sql + ";")
        )));
        sql
    }

    /// On the way back, before anything is detached: the foreign key lets go of the table that will hide.
    pub(crate) fn let_go(&self) -> String {
        format!("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}", self.table(), Ident::new(&self.name))
    }
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| Ident::new(name).to_string()).collect::<Vec<_>>().join(", ")
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
