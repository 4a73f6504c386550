//! The plan: every statement of an adoption, and of what takes it back, written from the catalog before the first one
//! runs. Invariants: each step is a transaction of milliseconds, or holds no lock that traffic waits for; a step that was
//! done is not done again; the names that people know move to the new table in the one step that is the cutover.

use serde::{Deserialize, Serialize};

use super::guard::{self, Backfill};
use super::subject::{Bound, Index, Sequence, Subject, Trigger, with_column};
use super::{Request, digits};
use crate::pg::{Ident, Literal, Relation};
use crate::{Error, Result};

/// The constraint that proves the first partition's bound.
pub(crate) const BOUND: &str = "ebb_bound";

/// How a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// In one short transaction, under a lock time-out, tried again.
    Short,
    /// Long, but nobody waits for it.
    Long,
    /// Outside of a transaction; what it makes is looked for before.
    Index,
    /// In batches: the guard's keys.
    Backfill,
    /// The short transaction that ends it: names move, the table is attached.
    Cutover,
}

/// One step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// What it does, in words.
    pub title: String,
    /// How it runs.
    pub how: How,
    /// What it says to the server.
    pub sql: Vec<String>,
    /// The index that it makes, for `Index`: schema, name.
    pub index: Option<(String, String)>,
}

impl Step {
    fn new(title: &str, how: How, sql: Vec<String>) -> Self {
        Self { title: title.into(), how, sql, index: None }
    }
}

/// Everything that was decided.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub(crate) schema: String,
    pub(crate) table: String,
    /// What the old table is called afterwards.
    pub(crate) history: String,
    /// What the new one is called before, and again after a rollback.
    pub(crate) parent: String,
    pub(crate) column: String,
    pub(crate) kind: String,
    pub(crate) zone: String,
    /// Where the first partition ends, on the calendar and as a constant.
    pub(crate) bound: String,
    pub(crate) literal: String,
    /// There.
    pub(crate) steps: Vec<Step>,
    /// Which of them swaps the keys, counted from zero.
    pub(crate) swap: Option<usize>,
    pub(crate) backfill: Option<Backfill>,
    /// And back: indexes to build first, keys that must be unique again, and the statements of the way back.
    pub(crate) back_indexes: Vec<Step>,
    pub(crate) back_keys: Vec<Vec<String>>,
    pub(crate) back: Vec<String>,
    /// Or back before the cutover: the keys as they were on the table itself, and what undoes each short step.
    pub(crate) abandon_indexes: Vec<Step>,
    pub(crate) abandon_keys: Vec<String>,
    pub(crate) abandon: Vec<String>,
    /// What a rollback left to `finish`: former partitions, as (schema, name).
    #[serde(default)]
    pub(crate) leftovers: Vec<(String, String)>,
    /// The policy's spec, for ebb.toml and for the database.
    pub(crate) spec: serde_json::Value,
}

impl Plan {
    /// What will be done, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(crate) fn relation(&self) -> Relation {
        Relation::new(&self.schema, &self.table)
    }

    pub(crate) fn history(&self) -> Relation {
        Relation::new(&self.schema, &self.history)
    }

    pub(crate) fn parent(&self) -> Relation {
        Relation::new(&self.schema, &self.parent)
    }
}

/// Composes the statements about one table.
struct Composer<'a> {
    subject: &'a Subject,
    request: &'a Request,
    table: Relation,
    parent: Relation,
    history: Relation,
    column: Ident,
}

pub(crate) fn compose(
    subject: &Subject,
    request: &Request,
    bound: &Bound,
    ahead: &[(String, String, String)],
) -> Result<Plan> {
    let head = &subject.head;
    let schema = head.schema_name.clone();
    let history = fitting(&head.table_name, "_history");
    let parent = format!("ebb_{}_parent", head.oid);
    let c = Composer {
        subject,
        request,
        table: subject.relation(),
        parent: Relation::new(&schema, &parent),
        history: Relation::new(&schema, &history),
        column: subject.column(),
    };
    let kind = head.kind.clone().ok_or_else(|| Error::usage("the column tells no time"))?;
    let mut steps = c.bound(&bound.literal);
    let backfill = Backfill::new(subject, request);
    if let Some(create) = guard::create(subject, request, &c.table) {
        steps.push(Step::new("guard the key by trigger", How::Short, vec![create]));
        steps.push(Step::new("claim the keys of the rows that are there", How::Backfill, Vec::new()));
    }
    steps.extend(c.new_indexes()?);
    steps.push(Step::new("prepare the partitioned table, unseen", How::Short, c.prepare(ahead)?));
    let swap = subject.indexes.iter().any(Index::must_grow).then_some(steps.len());
    if swap.is_some() {
        steps.push(Step::new("swap the keys", How::Short, c.swap_keys()));
    }
    steps.push(Step::new("move the name and attach the table", How::Cutover, c.cutover(&bound.literal)));
    Ok(Plan {
        schema,
        table: head.table_name.clone(),
        history,
        parent,
        column: head.column_name.clone(),
        kind,
        zone: request.zone.clone(),
        bound: bound.bound.clone(),
        literal: bound.literal.clone(),
        steps,
        swap,
        backfill,
        back_indexes: c.indexes_as_before(&c.history),
        back_keys: subject
            .indexes
            .iter()
            .filter(|index| index.must_grow())
            .map(|index| index.key_columns.clone())
            .collect(),
        back: c.back(),
        abandon_indexes: c.indexes_as_before(&c.table),
        abandon_keys: c.keys_as_before(),
        abandon: c.abandon(),
        leftovers: Vec::new(),
        spec: request.spec(subject),
    })
}

impl Composer<'_> {
    fn temporary(&self, mark: &str, n: usize) -> Ident {
        Ident::new(format!("ebb_{}_{mark}{n}", self.subject.head.oid))
    }

    fn in_schema(&self, name: &Ident) -> Relation {
        Relation::new(&self.subject.head.schema_name, name.as_str())
    }

    fn indexes(&self) -> impl Iterator<Item = (usize, &Index)> {
        self.subject.indexes.iter().enumerate()
    }

    fn growing(&self) -> impl Iterator<Item = (usize, &Index)> {
        self.indexes().filter(|(_, index)| index.must_grow())
    }

    fn bound(&self, literal: &str) -> Vec<Step> {
        let (table, column) = (&self.table, &self.column);
        let check = format!(
            "ALTER TABLE {table} ADD CONSTRAINT {BOUND} CHECK ({column} IS NOT NULL AND {column} < {}) NOT VALID",
            Literal(literal)
        );
        let mut steps = vec![
            Step::new("bound the table", How::Short, vec![check]),
            Step::new("prove the bound", How::Long, vec![format!("ALTER TABLE {table} VALIDATE CONSTRAINT {BOUND}")]),
        ];
        if !self.subject.head.not_null {
            let sql = format!("ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL");
            steps.push(Step::new("the proof makes the column NOT NULL", How::Short, vec![sql]));
        }
        steps
    }

    fn new_indexes(&self) -> Result<Vec<Step>> {
        self.growing()
            .map(|(n, index)| {
                let name = self.temporary("k", n);
                let body = with_column(index.body(), &self.column).ok_or_else(|| unread(index))?;
                let sql = format!("CREATE UNIQUE INDEX CONCURRENTLY {name} ON {} {body}", self.table);
                let schema = self.subject.head.schema_name.clone();
                Ok(Step {
                    index: Some((schema, name.as_str().to_owned())),
                    ..Step::new(&format!("build the index that replaces {}", index.name), How::Index, vec![sql])
                })
            })
            .collect()
    }

    /// In one transaction: from here on the old key is not enforced any more, and its wider successor is.
    fn swap_keys(&self) -> Vec<String> {
        let table = &self.table;
        let mut sql = Vec::new();
        for (n, index) in self.growing() {
            let (new, old) = (self.temporary("k", n), Ident::new(&index.name));
            match (&index.constraint_name, &index.constraint_definition) {
                (Some(name), Some(definition)) => {
                    let name = Ident::new(name);
                    sql.push(format!("ALTER TABLE {table} DROP CONSTRAINT {name}"));
                    sql.push(format!(
                        "ALTER TABLE {table} ADD CONSTRAINT {name} {}",
                        using_index(index, definition, &new)
                    ));
                }
                _ => {
                    sql.push(format!("DROP INDEX {}", self.in_schema(&old)));
                    sql.push(format!("ALTER INDEX {} RENAME TO {old}", self.in_schema(&new)));
                }
            }
            if index.is_replica_identity {
                sql.push(format!("ALTER TABLE {table} REPLICA IDENTITY USING INDEX {old}"));
            }
        }
        sql
    }

    fn prepare(&self, ahead: &[(String, String, String)]) -> Result<Vec<String>> {
        let (head, parent) = (&self.subject.head, &self.parent);
        let tablespace =
            head.tablespace.as_ref().map_or(String::new(), |name| format!(" TABLESPACE {}", Ident::new(name)));
        let mut sql = vec![
            format!(
                "CREATE TABLE {parent} (LIKE {} INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING IDENTITY INCLUDING CONSTRAINTS \
                 INCLUDING STORAGE INCLUDING COMPRESSION INCLUDING COMMENTS) PARTITION BY RANGE ({}){tablespace}",
                self.table, self.column
            ),
            format!("ALTER TABLE {parent} DROP CONSTRAINT {BOUND}"),
            format!("ALTER TABLE {parent} OWNER TO {}", Ident::new(&head.owner)),
        ];
        sql.extend(head.column_statistics.iter().map(|change| format!("ALTER TABLE {parent} {change}")));
        sql.extend(head.comment.iter().map(|text| format!("COMMENT ON TABLE {parent} IS {}", Literal(text))));
        for (n, index) in self.indexes() {
            sql.extend(self.parent_index(n, index)?);
        }
        for key in self.subject.foreign_keys() {
            let name = Ident::new(&key.name);
            sql.push(format!("ALTER TABLE {parent} ADD CONSTRAINT {name} {}", key.definition));
            sql.extend(key.comment.iter().map(|text| comment("CONSTRAINT", &format!("{name} ON {parent}"), text)));
        }
        for (n, statistics) in self.subject.statistics.iter().enumerate() {
            let name = Relation::new(&statistics.schema_name, self.temporary("s", n).as_str());
            sql.push(format!("CREATE STATISTICS {name}{} FROM {parent}", statistics.body));
        }
        match head.replica_identity.as_str() {
            "f" => sql.push(format!("ALTER TABLE {parent} REPLICA IDENTITY FULL")),
            "n" => sql.push(format!("ALTER TABLE {parent} REPLICA IDENTITY NOTHING")),
            _ => {}
        }
        let oid = |relation: &Relation| format!("{}::regclass", Literal(&relation.to_string()));
        sql.push(format!("SELECT ebb.copy_row_security({}, {})", oid(&self.table), oid(parent)));
        sql.push(format!("SELECT ebb.copy_grants({}, {})", oid(&self.table), oid(parent)));
        for trigger in &self.subject.triggers {
            sql.extend(self.trigger(trigger, parent)?);
        }
        sql.extend(guard::create(self.subject, self.request, parent));
        for (name, from, to) in ahead {
            sql.push(format!(
                "SELECT ebb.create_partition({}, {}, {}, {})",
                oid(parent),
                Literal(name),
                Literal(from),
                Literal(to)
            ));
            let partition = Relation::new(&head.schema_name, name);
            let kind = Literal(head.kind.as_deref().unwrap_or_default()).to_string();
            sql.push(derived_checks(&partition, &self.column, &kind, from, to));
            sql.extend(head.options.iter().map(|options| format!("ALTER TABLE {partition} SET ({options})")));
        }
        Ok(sql)
    }

    fn parent_index(&self, n: usize, index: &Index) -> Result<Vec<String>> {
        let (parent, name) = (&self.parent, self.temporary("p", n));
        let grown = |definition: &str| match index.must_grow() {
            true => with_column(definition, &self.column).ok_or_else(|| unread(index)),
            false => Ok(definition.to_owned()),
        };
        let mut sql = Vec::new();
        match &index.constraint_definition {
            Some(definition) => {
                sql.push(format!("ALTER TABLE {parent} ADD CONSTRAINT {name} {}", grown(definition)?));
                let constraint = format!("{name} ON {parent}");
                sql.extend(index.constraint_comment.iter().map(|text| comment("CONSTRAINT", &constraint, text)));
            }
            None => {
                let unique = if index.is_unique { "UNIQUE " } else { "" };
                sql.push(format!("CREATE {unique}INDEX {name} ON {parent} {}", grown(index.body())?));
            }
        }
        sql.extend(index.comment.iter().map(|text| comment("INDEX", &self.in_schema(&name).to_string(), text)));
        if index.is_replica_identity {
            sql.push(format!("ALTER TABLE {parent} REPLICA IDENTITY USING INDEX {name}"));
        }
        Ok(sql)
    }

    /// A trigger as it was, on another table.
    fn trigger(&self, trigger: &Trigger, on: &Relation) -> Result<Vec<String>> {
        let before = format!(" ON {} ", self.subject.head.printed);
        if !trigger.definition.contains(&before) {
            return Err(Error::failed(format!("cannot read the trigger {}", trigger.name)));
        }
        let name = Ident::new(&trigger.name);
        let mut sql = vec![trigger.definition.replacen(&before, &format!(" ON {on} "), 1)];
        let switch = match trigger.enabled.as_str() {
            "D" => Some("DISABLE"),
            "R" => Some("ENABLE REPLICA"),
            "A" => Some("ENABLE ALWAYS"),
            _ => None,
        };
        sql.extend(switch.map(|switch| format!("ALTER TABLE {on} {switch} TRIGGER {name}")));
        sql.extend(trigger.comment.iter().map(|text| comment("TRIGGER", &format!("{name} ON {on}"), text)));
        Ok(sql)
    }

    fn cutover(&self, literal: &str) -> Vec<String> {
        let (table, parent, history) = (&self.table, &self.parent, &self.history);
        let mut sql = vec![format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")];
        let mine = self.request.guard.as_ref().map(|_| guard::TRIGGER);
        let triggers = self.subject.triggers.iter().map(|trigger| trigger.name.as_str()).chain(mine);
        sql.extend(triggers.map(|name| format!("DROP TRIGGER {} ON {table}", Ident::new(name))));
        for serial in self.subject.serials() {
            let column = Ident::new(&serial.column_name);
            sql.push(format!("ALTER SEQUENCE {} OWNED BY {parent}.{column}", serial.relation()));
        }
        for identity in self.subject.identities() {
            sql.extend(move_identity(identity, table, parent));
        }
        sql.extend(self.publications(table, "DROP"));
        sql.extend(self.names(table, Names::Away));
        sql.push(format!("ALTER TABLE {table} RENAME TO {}", history.name));
        sql.push(format!("ALTER TABLE {parent} RENAME TO {}", table.name));
        sql.extend(self.names(table, Names::Arrive));
        sql.push(format!(
            "ALTER TABLE {table} ATTACH PARTITION {history} FOR VALUES FROM (MINVALUE) TO ({})",
            Literal(literal)
        ));
        sql.push(format!("ALTER TABLE {history} DROP CONSTRAINT {BOUND}"));
        sql.extend(self.publications(table, "ADD"));
        sql.extend(self.subject.views.iter().map(|view| view.definition.clone()));
        sql
    }

    /// The names of indexes, keys and statistics move between the two tables, as the table's own does.
    fn names(&self, table: &Relation, way: Names) -> Vec<String> {
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

    fn publications(&self, table: &Relation, verb: &str) -> Vec<String> {
        let mut sql = Vec::new();
        for publication in self.subject.publications.iter().filter(|publication| !publication.all_tables) {
            let name = Ident::new(&publication.name);
            let columns = if verb == "ADD" { publication.columns.as_str() } else { "" };
            sql.push(format!("ALTER PUBLICATION {name} {verb} TABLE {table}{columns}"));
            if verb == "ADD" && !publication.via_root {
                sql.push(format!("ALTER PUBLICATION {name} SET (publish_via_partition_root = true)"));
            }
        }
        sql
    }

    /// The keys as they were, built while the wider ones are still in force.
    fn indexes_as_before(&self, on: &Relation) -> Vec<Step> {
        let steps = self.growing().map(|(n, index)| {
            let name = self.temporary("b", n);
            let sql = format!("CREATE UNIQUE INDEX CONCURRENTLY {name} ON {on} {}", index.body());
            Step {
                index: Some((self.subject.head.schema_name.clone(), name.as_str().to_owned())),
                ..Step::new(&format!("build {} as it was", index.name), How::Index, vec![sql])
            }
        });
        steps.collect()
    }

    /// Puts them in force, with everything that belonged to them.
    fn keys_as_before(&self) -> Vec<String> {
        let (table, mut sql) = (&self.table, Vec::new());
        for (n, index) in self.growing() {
            let (new, old) = (self.temporary("b", n), Ident::new(&index.name));
            match (&index.constraint_name, &index.constraint_definition) {
                (Some(name), Some(definition)) => {
                    let name = Ident::new(name);
                    sql.push(format!("ALTER TABLE {table} DROP CONSTRAINT {name}"));
                    sql.push(format!(
                        "ALTER TABLE {table} ADD CONSTRAINT {name} {}",
                        using_index(index, definition, &new)
                    ));
                    let constraint = format!("{name} ON {table}");
                    sql.extend(index.constraint_comment.iter().map(|text| comment("CONSTRAINT", &constraint, text)));
                }
                _ => {
                    sql.push(format!("DROP INDEX {}", self.in_schema(&old)));
                    sql.push(format!("ALTER INDEX {} RENAME TO {old}", self.in_schema(&new)));
                }
            }
            sql.extend(index.comment.iter().map(|text| comment("INDEX", &self.in_schema(&old).to_string(), text)));
            if index.is_replica_identity {
                sql.push(format!("ALTER TABLE {table} REPLICA IDENTITY USING INDEX {old}"));
            }
            if index.is_clustered {
                sql.push(format!("ALTER TABLE {table} CLUSTER ON {old}"));
            }
        }
        sql
    }

    /// Whatever was prepared before the cutover goes; what was not is not missed.
    fn abandon(&self) -> Vec<String> {
        let (table, parent) = (&self.table, &self.parent);
        let mut sql = vec![
            format!("DROP TABLE IF EXISTS {parent}"),
            format!("ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {BOUND}"),
        ];
        if self.request.guard.is_some() {
            sql.push(format!("DROP TRIGGER IF EXISTS {} ON {table}", guard::TRIGGER));
        }
        if !self.subject.head.not_null {
            sql.push(format!("ALTER TABLE {table} ALTER COLUMN {} DROP NOT NULL", self.column));
        }
        sql
    }

    /// The way back, once no partition is attached any more: the new table hides again, the old one gets everything back.
    fn back(&self) -> Vec<String> {
        let (table, parent, history) = (&self.table, &self.parent, &self.history);
        let mut sql = self.publications(table, "DROP");
        sql.extend(self.names(table, Names::Hide));
        sql.push(format!("ALTER TABLE {table} RENAME TO {}", parent.name));
        sql.push(format!("ALTER TABLE {history} RENAME TO {}", table.name));
        sql.extend(self.names(table, Names::Return));
        sql.extend(self.keys_as_before());
        if !self.subject.head.not_null {
            sql.push(format!("ALTER TABLE {table} ALTER COLUMN {} DROP NOT NULL", self.column));
        }
        for serial in self.subject.serials() {
            let column = Ident::new(&serial.column_name);
            sql.push(format!("ALTER SEQUENCE {} OWNED BY {table}.{column}", serial.relation()));
        }
        for identity in self.subject.identities() {
            sql.extend(move_identity_back(identity, table, parent));
        }
        for trigger in &self.subject.triggers {
            sql.extend(self.trigger(trigger, table).unwrap_or_default());
        }
        for publication in self.subject.publications.iter().filter(|publication| !publication.all_tables) {
            let name = Ident::new(&publication.name);
            sql.push(format!("ALTER PUBLICATION {name} ADD TABLE {table}{}", publication.columns));
            if !publication.via_root {
                sql.push(format!("ALTER PUBLICATION {name} SET (publish_via_partition_root = false)"));
            }
        }
        sql.extend(self.subject.views.iter().map(|view| view.definition.clone()));
        sql
    }
}

/// Whose names move where.
#[derive(Clone, Copy)]
enum Names {
    /// The old table's give way.
    Away,
    /// The new table gets them.
    Arrive,
    /// The new table loses them again.
    Hide,
    /// The old table gets its own back.
    Return,
}

/// What the server needs to know to prune by columns that follow from the partition column.
pub(crate) fn derived_checks(partition: &Relation, column: &Ident, kind: &str, from: &str, to: &str) -> String {
    format!(
        "SELECT ebb.add_derived_checks({}::regclass, {}, {kind}, ebb.partition_moment({kind}, {}), ebb.partition_moment({kind}, {}))",
        Literal(&partition.to_string()),
        Literal(column.as_str()),
        Literal(from),
        Literal(to)
    )
}

fn unread(index: &Index) -> Error {
    Error::failed(format!("cannot read the definition of index {}", index.name))
}

fn comment(what: &str, on: &str, text: &str) -> String {
    format!("COMMENT ON {what} {on} IS {}", Literal(text))
}

/// `PRIMARY KEY USING INDEX i DEFERRABLE …`: the constraint as it was, over an index that exists.
fn using_index(index: &Index, definition: &str, new: &Ident) -> String {
    let kind = if index.is_primary { "PRIMARY KEY" } else { "UNIQUE" };
    let tail = definition.find(" DEFERRABLE").map_or("", |at| &definition[at..]);
    format!("{kind} USING INDEX {new}{tail}")
}

/// The new table's own sequence goes on where the old one was, under its name and with its grants.
fn move_identity(identity: &Sequence, table: &Relation, parent: &Relation) -> Vec<String> {
    let (column, old) = (Ident::new(&identity.column_name), identity.relation());
    let new = format!("pg_get_serial_sequence({}, {})", Literal(&parent.to_string()), Literal(&identity.column_name));
    let mut sql = vec![
        // Changes nothing, but nobody draws a number from here on.
        format!("ALTER SEQUENCE {old} CACHE {}", identity.cache),
        format!("SELECT setval({new}, s.last_value, s.is_called) FROM {old} s"),
        format!("ALTER TABLE {table} ALTER COLUMN {column} DROP IDENTITY"),
        format!(
            "DO $ebb$ BEGIN EXECUTE 'ALTER SEQUENCE ' || {new} || ' RENAME TO ' || {}; END $ebb$",
            Literal(&Ident::new(&identity.name).to_string())
        ),
    ];
    sql.extend(identity.grants.clone());
    sql.extend(identity.comment.iter().map(|text| comment("SEQUENCE", &old.to_string(), text)));
    sql
}

fn move_identity_back(identity: &Sequence, table: &Relation, parent: &Relation) -> Vec<String> {
    let (column, name) = (Ident::new(&identity.column_name), identity.relation());
    let hidden = Relation::new(&identity.schema_name, format!("{}_seq", parent.name.as_str()));
    let always = if identity.identity == "a" { "ALWAYS" } else { "BY DEFAULT" };
    let cycle = if identity.cycle { "CYCLE" } else { "NO CYCLE" };
    let mut sql = vec![
        format!("ALTER SEQUENCE {name} CACHE {}", identity.cache),
        format!("ALTER SEQUENCE {name} RENAME TO {}", hidden.name),
        format!(
            "ALTER TABLE {table} ALTER COLUMN {column} ADD GENERATED {always} AS IDENTITY (SEQUENCE NAME {name} START WITH {} \
             INCREMENT BY {} MINVALUE {} MAXVALUE {} CACHE {} {cycle})",
            identity.start, identity.increment, identity.minimum, identity.maximum, identity.cache
        ),
        format!("SELECT setval({}, s.last_value, s.is_called) FROM {hidden} s", Literal(&name.to_string())),
    ];
    sql.extend(identity.grants.clone());
    sql.extend(identity.comment.iter().map(|text| comment("SEQUENCE", &name.to_string(), text)));
    sql
}

/// What belongs to the old table is called so once the name has moved.
fn history_name(name: &str) -> String {
    fitting(name, "_history")
}

/// A name with an ending, within 63 bytes; one that had to be cut says so with digits of its own.
pub(crate) fn fitting(name: &str, ending: &str) -> String {
    if name.len() + ending.len() <= 63 {
        return format!("{name}{ending}");
    }
    let digits = digits(name);
    let mut cut = name.to_owned();
    while cut.len() + ending.len() + 9 > 63 {
        cut.pop();
    }
    format!("{cut}_{digits}{ending}")
}
