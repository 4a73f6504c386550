//! Names that people know, and publications: they move between the two tables as the table's own name does.

use super::Composer;
use crate::partition::adopt::digits;
use crate::pg::{Ident, Relation};

/// Whose names move where.
#[derive(Clone, Copy)]
pub(super) enum Names {
    /// The old table's give way.
    Away,
    /// The new table gets them.
    Arrive,
    /// The new table loses them again.
    Hide,
    /// The old table gets its own back.
    Return,
}

impl Composer<'_> {
    /// The names of indexes, keys and statistics move between the two tables, as the table's own does.
    pub(super) fn names(&self, table: &Relation, way: Names) -> Vec<String> {
        let mut sql = Vec::new();
        for (n, index) in self.indexes() {
            let original = index.constraint_name.as_ref().unwrap_or(&index.name);
            let (original, hidden) = (Ident::new(original), self.temporary("p", n));
            let history = Ident::new(history_name(original.as_str()));
            let (from, to) = match way {
                Names::Away => (&original, &history),
                Names::Arrive => (&hidden, &original),
                Names::Hide => (&original, &hidden),
                Names::Return => (&history, &original),
            };
            sql.push(match index.constraint_name {
                Some(_) => format!("ALTER TABLE {table} RENAME CONSTRAINT {from} TO {to}"),
                None => format!("ALTER INDEX {} RENAME TO {to}", self.in_schema(from)),
            });
        }
        for (n, statistics) in self.subject.statistics.iter().enumerate() {
            let (original, hidden) = (Ident::new(&statistics.name), self.temporary("s", n));
            let history = Ident::new(history_name(&statistics.name));
            let (from, to) = match way {
                Names::Away => (&original, &history),
                Names::Arrive => (&hidden, &original),
                Names::Hide => (&original, &hidden),
                Names::Return => (&history, &original),
            };
            let from = Relation::new(&statistics.schema_name, from.as_str());
            sql.push(format!("ALTER STATISTICS {from} RENAME TO {to}"));
        }
        sql
    }

    /// The names that must be free when the old table's give way.
    pub(super) fn wanted(&self) -> Vec<String> {
        let indexes = self.subject.indexes.iter().map(|index| index.constraint_name.as_ref().unwrap_or(&index.name));
        let statistics = self.subject.statistics.iter().map(|statistics| &statistics.name);
        indexes
            .chain(statistics)
            .map(|name| history_name(name))
            .chain([self.history.name.as_str().to_owned()])
            .collect()
    }

    pub(super) fn publications(&self, table: &Relation, verb: &str) -> Vec<String> {
        let mut sql = Vec::new();
        for publication in self.subject.publications.iter().filter(|publication| !publication.all_tables) {
            let name = Ident::new(&publication.name);
            let columns = if verb == "ADD" { publication.columns.as_str() } else { "" };
            // First: without it a partitioned table cannot have a column list.
            if verb == "ADD" && !publication.via_root {
                sql.push(format!("ALTER PUBLICATION {name} SET (publish_via_partition_root = true)"));
            }
            sql.push(format!("ALTER PUBLICATION {name} {verb} TABLE {table}{columns}"));
        }
        sql
    }
}

/// What belongs to the old table is called so once the name has moved.
fn history_name(name: &str) -> String {
    fitting(name, "_history")
}

/// A name with an ending, within 63 bytes; one that had to be cut says so with digits of its own. An ending that leaves no
/// room for them is cut as well.
pub(crate) fn fitting(name: &str, ending: &str) -> String {
    const LONGEST: usize = 63;
    const DIGITS: usize = 9;
    let whole = format!("{name}{ending}");
    if whole.len() <= LONGEST {
        return whole;
    }
    let (name, ending) = if ending.len() + DIGITS <= LONGEST { (name, ending) } else { (whole.as_str(), "") };
    let room = LONGEST - DIGITS - ending.len();
    format!("{}_{}{ending}", &name[..name.floor_char_boundary(room)], digits(name))
}

#[cfg(test)]
mod tests {
    use super::fitting;

    #[test]
    fn a_name_fits_however_long_it_and_its_ending_are() {
        for (name, ending) in [("t", 10), ("t", 54), ("t", 55), ("t", 69), ("tä".repeat(31).as_str(), 54)] {
            for ending in ["x".repeat(ending), "ä".repeat(ending)] {
                let (one, other) = (fitting(name, &ending), fitting(name, &format!("{ending}y")));
                assert!(one.len() <= 63 && other.len() <= 63, "{one} {other}");
                assert_ne!(one, other);
            }
        }
        assert_eq!(fitting("t", "_history"), "t_history");
        assert!(fitting(&"t".repeat(63), "_history").ends_with("_history"));
    }
}
