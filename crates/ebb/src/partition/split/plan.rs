//! The plan of a split: every statement of it, and of what takes it back, written from the catalog before the first one
//! runs. Invariants: what people use is locked in three steps only (the trigger, the foreign keys, the swap), each for
//! milliseconds; nothing that takes time is left to the swap: bounds are proven, indexes built, rows compared before.

use serde::{Deserialize, Serialize};

use super::store::{Key, Period, Referring};
use crate::partition::adopt::subject::{Constraint, Index, outside_quotes};
use crate::partition::adopt::{BOUND, derived_checks};
use crate::pg::{Ident, Literal, Relation};
use crate::{Error, Result};

/// The trigger that notes changes, and the one that notes TRUNCATE.
const TRIGGER: &str = "ebb_split";
const TRUNCATED: &str = "ebb_split_truncate";
/// The constraint of the old partition after the swap: it takes no more rows.
const OVER: &str = "ebb_split_over";
/// As many changes are applied under a lock, and no more.
const SETTLE: u32 = 500;

/// How a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// In one short transaction, under a lock time-out, tried again.
    Short,
    /// In one transaction that nobody waits for.
    Alone,
    /// In batches: rows from page to page.
    Copy,
    /// Outside of a transaction.
    Outside,
    /// In batches: what changed meanwhile.
    Drain,
    /// One look that must find no difference.
    Compare,
    /// Short, after what is left to apply has become little.
    Settled,
    /// The same: the parts take the partition's place.
    Swap,
}

/// One step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// What it does, in words.
    pub title: String,
    /// How it runs.
    pub act: Act,
    /// What it says to the server.
    pub sql: Vec<String>,
}

impl Step {
    fn new(title: impl Into<String>, act: Act, sql: Vec<String>) -> Self {
        Self { title: title.into(), act, sql }
    }
}

/// One part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Quoted.
    pub(crate) relation: String,
    /// For people.
    pub(crate) label: String,
}

/// Everything that was decided. The words that `ebb.split_apply` reads are among them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub(crate) source: String,
    pub(crate) source_label: String,
    log: String,
    column: String,
    thresholds: String,
    columns: String,
    source_columns: String,
    log_key: String,
    same_source: String,
    same_copy: String,
    locks: bool,
    pub(crate) parts: Vec<Part>,
    pub(crate) steps: Vec<Step>,
    /// Takes the triggers off again; then what was made goes.
    pub(crate) undo_triggers: Vec<String>,
    pub(crate) undo: Vec<String>,
    /// Makes the old partition an empty table that rows can go back to.
    pub(crate) restore: Vec<String>,
}

impl Plan {
    /// What will be done, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The names of the parts, oldest first.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.label.as_str())
    }

    /// Where in the steps the parts take the partition's place.
    pub(crate) fn swap(&self) -> usize {
        self.steps.iter().position(|step| step.act == Act::Swap).unwrap_or(self.steps.len())
    }
}

/// What is split, as the catalog describes it.
pub(crate) struct Source {
    pub(crate) table: Relation,
    pub(crate) parent_oid: i64,
    pub(crate) partition: Relation,
    pub(crate) partition_oid: i64,
    pub(crate) column: Ident,
    pub(crate) kind: String,
    pub(crate) column_type: String,
    pub(crate) owner: String,
    pub(crate) key: Key,
    pub(crate) columns: Vec<(String, bool)>,
    pub(crate) indexes: Vec<Index>,
    pub(crate) local_indexes: Vec<String>,
    pub(crate) foreign_keys: Vec<Constraint>,
    pub(crate) old_foreign_keys: Vec<Constraint>,
    pub(crate) referring: Vec<Referring>,
}

struct Composer<'a> {
    of: &'a Source,
    parts: Vec<(Relation, &'a Period)>,
    staging: Relation,
    log: Relation,
    note: Relation,
}

pub(crate) fn compose(of: &Source, periods: &[Period]) -> Result<Plan> {
    let schema = of.partition.schema.as_str();
    let own = |what: &str| Relation::new(schema, format!("ebb_{}_{what}", of.partition_oid));
    let table_schema = of.table.schema.as_str();
    let c = Composer {
        of,
        parts: periods.iter().map(|period| (Relation::new(table_schema, &period.0), period)).collect(),
        staging: own("split"),
        log: own("log"),
        note: own("note"),
    };
    let restored = of
        .old_foreign_keys
        .iter()
        .map(|key| format!("ALTER TABLE {} ADD CONSTRAINT {} {}", of.partition, Ident::new(&key.name), key.definition));
    Ok(Plan {
        source: of.partition.to_string(),
        source_label: of.partition.label(),
        log: c.log.to_string(),
        column: of.column.as_str().to_owned(),
        thresholds: c.thresholds(),
        columns: c.plain_columns(""),
        source_columns: c.plain_columns("h."),
        log_key: c.key("l."),
        same_source: c.same("h", "l"),
        same_copy: c.same("c", "l"),
        locks: false,
        parts: c.parts.iter().map(|(part, _)| Part { relation: part.to_string(), label: part.label() }).collect(),
        steps: c.steps()?,
        undo_triggers: c.drop_triggers("IF EXISTS "),
        undo: c.undo(),
        restore: [
            format!("ALTER TABLE {} DROP CONSTRAINT {OVER}", of.partition),
            format!("TRUNCATE ONLY {}", of.partition),
        ]
        .into_iter()
        .chain(restored)
        .collect(),
    })
}

impl Composer<'_> {
    fn steps(&self) -> Result<Vec<Step>> {
        let label = Literal(&self.of.table.label()).to_string();
        let mut steps = vec![
            Step::new("prepare the parts, unseen", Act::Alone, self.prepare()?),
            Step::new("note every change from here on", Act::Short, self.note_changes(&label)),
            Step::new("copy the rows", Act::Copy, vec![self.copy()]),
            Step::new("let the parts stand alone", Act::Alone, self.stand_alone()),
        ];
        for (part, _) in &self.parts {
            let indexes = self.indexes(part)?;
            if !indexes.is_empty() {
                steps.push(Step::new(format!("build the indexes of {}", part.label()), Act::Alone, indexes));
            }
            let vacuum = vec![format!("VACUUM (ANALYZE) {part}")];
            steps.push(Step::new(format!("count and map {}", part.label()), Act::Outside, vacuum));
        }
        let drain = vec![format!("SELECT ebb.split_apply({label}, 1000)")];
        steps.push(Step::new("apply what changed meanwhile", Act::Drain, drain));
        steps.push(Step::new("compare the rows", Act::Compare, vec![self.compare()]));
        if !self.of.foreign_keys.is_empty() {
            steps.extend(self.carry_foreign_keys(&label));
        }
        steps.push(Step::new("put the parts in its place", Act::Swap, self.swap(&label)));
        for (part, _) in &self.parts {
            let sql = vec![format!("ALTER TABLE {part} DROP CONSTRAINT {BOUND}")];
            steps.push(Step::new(format!("take the proof of its bounds off {}", part.label()), Act::Short, sql));
        }
        let proofs: Vec<String> = self.of.referring.iter().filter_map(Referring::proof).collect();
        if !proofs.is_empty() {
            steps.push(Step::new("prove the foreign keys that refer to the table", Act::Alone, proofs));
        }
        let tidy = vec![format!("DROP TABLE {}", self.log), format!("DROP FUNCTION {}()", self.note)];
        steps.push(Step::new("stop noting changes", Act::Alone, tidy));
        Ok(steps)
    }

    /// Where each part but the first begins, for `width_bucket`.
    fn thresholds(&self) -> String {
        let bounds: Vec<String> = self.parts.iter().map(|(_, period)| Literal(&period.2).to_string()).collect();
        let inner = bounds.split_last().map_or(&[][..], |(_, inner)| inner);
        format!("ARRAY[{}]::{}[]", inner.join(", "), self.of.column_type)
    }

    fn plain_columns(&self, prefix: &str) -> String {
        let plain = self.of.columns.iter().filter(|(_, generated)| !generated);
        plain.map(|(name, _)| format!("{prefix}{}", Ident::new(name))).collect::<Vec<_>>().join(", ")
    }

    fn key(&self, prefix: &str) -> String {
        let columns = self.of.key.columns.iter().map(|column| format!("{prefix}{}", Ident::new(column)));
        columns.collect::<Vec<_>>().join(", ")
    }

    /// Whether two rows have the same key, by the operators of the index: it is found by them, wherever they are.
    fn same(&self, one: &str, other: &str) -> String {
        let pairs = self.of.key.columns.iter().zip(&self.of.key.operators).map(|(column, operator)| {
            let column = Ident::new(column);
            format!("{one}.{column} {operator} {other}.{column}")
        });
        pairs.collect::<Vec<_>>().join(" AND ")
    }

    fn prepare(&self) -> Result<Vec<String>> {
        let (table, column, staging, owner) =
            (&self.of.table, &self.of.column, &self.staging, Ident::new(&self.of.owner));
        let mut sql = vec![
            format!(
                "CREATE TABLE {staging} (LIKE {table} INCLUDING DEFAULTS INCLUDING GENERATED) PARTITION BY RANGE ({column})"
            ),
            format!("ALTER TABLE {staging} OWNER TO {owner}"),
            self.index(self.key_index()?, staging)?,
        ];
        let oid = |relation: &Relation| format!("{}::regclass", Literal(&relation.to_string()));
        for (part, period) in &self.parts {
            let (_, from, to) = period;
            sql.push(format!(
                "SELECT ebb.partition_table({}, {}, {})",
                oid(table),
                oid(&self.of.partition),
                Literal(part.name.as_str())
            ));
            let above = from.as_ref().map_or(String::new(), |from| format!(" AND {column} >= {}", Literal(from)));
            sql.push(format!(
                "ALTER TABLE {part} ADD CONSTRAINT {BOUND} CHECK ({column} IS NOT NULL{above} AND {column} < {})",
                Literal(to)
            ));
            if let Some(from) = from {
                sql.push(derived_checks(part, column, &Literal(&self.of.kind).to_string(), from, to));
            }
            sql.push(format!("ALTER TABLE {staging} ATTACH PARTITION {part} {}", bounds(period)));
        }
        let (log, partition, note) = (&self.log, &self.of.partition, &self.note);
        sql.extend([
            format!("CREATE TABLE {log} AS SELECT {} FROM ONLY {partition} WITH NO DATA", self.key("")),
            format!("ALTER TABLE {log} ADD COLUMN ebb_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
            format!("ALTER TABLE {log} OWNER TO {owner}"),
            self.note_function(false),
            format!("ALTER FUNCTION {note}() OWNER TO {owner}"),
            format!("REVOKE EXECUTE ON FUNCTION {note}() FROM PUBLIC"),
        ]);
        Ok(sql)
    }

    /// Notes keys, in the writer's transaction. Once the parts have foreign keys, a row that a part still has and the
    /// partition has not would keep others from deleting what it refers to: it goes at once, and comes back by the log.
    fn note_function(&self, at_once: bool) -> String {
        let (log, key) = (&self.log, self.key(""));
        let insert = |row: &str| format!("INSERT INTO {log} ({key}) VALUES ({});", self.key(row));
        let names: Vec<String> = self.parts.iter().map(|(part, _)| Literal(&part.to_string()).to_string()).collect();
        let numbered = self.of.key.columns.iter().zip(&self.of.key.operators).enumerate();
        let condition: Vec<String> =
            numbered.map(|(n, (column, operator))| format!("c.{} {operator} ${}", Ident::new(column), n + 1)).collect();
        let delete = match at_once {
            true => format!(
                " EXECUTE 'DELETE FROM ONLY ' || (ARRAY[{}])[width_bucket(OLD.{}, {}) + 1] || {} USING {};",
                names.join(", "),
                self.of.column,
                self.thresholds(),
                Literal(&format!(" c WHERE {}", condition.join(" AND "))),
                self.key("OLD.")
            ),
            false => String::new(),
        };
        format!(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $ebb$ BEGIN \
             IF TG_OP = 'INSERT' THEN {} \
             ELSIF TG_OP = 'DELETE' THEN {}{delete} \
             ELSIF TG_OP = 'UPDATE' THEN {}{delete} IF NOT ({}) THEN {} END IF; \
             ELSE INSERT INTO {log} DEFAULT VALUES; END IF; RETURN NULL; END $ebb$",
            self.note,
            insert("NEW."),
            insert("OLD."),
            insert("OLD."),
            self.same("NEW", "OLD"),
            insert("NEW.")
        )
    }

    /// Also for changes that come by replication. Whoever wrote before has ended when the trigger is there, so the pages
    /// of this moment, and the log, are everything.
    fn note_changes(&self, label: &str) -> Vec<String> {
        let (partition, note) = (&self.of.partition, &self.note);
        vec![
            format!(
                "CREATE TRIGGER {TRIGGER} AFTER INSERT OR UPDATE OR DELETE ON {partition} FOR EACH ROW EXECUTE FUNCTION {note}()"
            ),
            format!(
                "CREATE TRIGGER {TRUNCATED} AFTER TRUNCATE ON {partition} FOR EACH STATEMENT EXECUTE FUNCTION {note}()"
            ),
            format!("ALTER TABLE {partition} ENABLE ALWAYS TRIGGER {TRIGGER}"),
            format!("ALTER TABLE {partition} ENABLE ALWAYS TRIGGER {TRUNCATED}"),
            format!(
                "UPDATE ebb.split SET pages = pg_relation_size({}::regclass) / current_setting('block_size')::int WHERE relation = {label}",
                Literal(&partition.to_string())
            ),
        ]
    }

    /// One batch; the pages are filled in. What an earlier batch or a newer version of a row brought is there already.
    fn copy(&self) -> String {
        let columns = self.plain_columns("");
        format!(
            "INSERT INTO {} ({columns}) SELECT {columns} FROM ONLY {} WHERE ctid >= '({FROM},0)' AND ctid < '({TO},0)' ON CONFLICT DO NOTHING",
            self.staging, self.of.partition
        )
    }

    fn stand_alone(&self) -> Vec<String> {
        let staging = &self.staging;
        let detach = self.parts.iter().map(|(part, _)| format!("ALTER TABLE {staging} DETACH PARTITION {part}"));
        detach.chain([format!("DROP TABLE {staging}")]).collect()
    }

    fn key_index(&self) -> Result<&Index> {
        let name = &self.of.key.index_name;
        self.of
            .indexes
            .iter()
            .find(|index| index.name == *name)
            .ok_or_else(|| Error::failed(format!("index {name} is gone")))
    }

    fn index(&self, index: &Index, on: &Relation) -> Result<String> {
        match &index.constraint_definition {
            Some(definition) => Ok(format!("ALTER TABLE {on} ADD {definition}")),
            None => {
                let unique = if index.is_unique { "UNIQUE " } else { "" };
                plain_index(unique, &index.definition, on)
            }
        }
    }

    fn indexes(&self, part: &Relation) -> Result<Vec<String>> {
        let others = self.of.indexes.iter().filter(|index| index.name != self.of.key.index_name);
        let mut sql = others.map(|index| self.index(index, part)).collect::<Result<Vec<_>>>()?;
        for definition in &self.of.local_indexes {
            let unique = if definition.starts_with("CREATE UNIQUE ") { "UNIQUE " } else { "" };
            sql.push(plain_index(unique, definition, part)?);
        }
        Ok(sql)
    }

    /// In one statement, and so of one moment: rows and sums of both sides, without the keys that are still noted.
    fn compare(&self) -> String {
        let sums = |alias: &str, from: &str, group: &str| {
            let all: Vec<String> =
                self.of.columns.iter().map(|(name, _)| format!("{alias}.{}", Ident::new(name))).collect();
            format!(
                "SELECT {group} AS n, count(*) AS rows, COALESCE(sum(hashtextextended(ROW({})::text, 0)), 0) AS sum FROM ONLY {from} {alias} \
                 WHERE NOT EXISTS (SELECT FROM {} l WHERE {})",
                all.join(", "),
                self.log,
                self.same(alias, "l")
            )
        };
        let bucket = format!("width_bucket(h.{}, {})", self.of.column, self.thresholds());
        let copies: Vec<String> =
            self.parts.iter().enumerate().map(|(n, (part, _))| sums("c", &part.to_string(), &n.to_string())).collect();
        format!(
            "WITH source AS ({} GROUP BY 1), copy AS ({}) \
             SELECT n, COALESCE(source.rows, 0), COALESCE(copy.rows, 0), COALESCE(source.sum, 0) = COALESCE(copy.sum, 0) \
             FROM source FULL JOIN copy USING (n) ORDER BY n",
            sums("h", &self.of.partition.to_string(), &bucket),
            copies.join(" UNION ALL ")
        )
    }

    fn carry_foreign_keys(&self, label: &str) -> Vec<Step> {
        let mut steps = vec![Step::new(
            "let rows that go also go from the parts",
            Act::Settled,
            vec![
                format!("LOCK TABLE ONLY {} IN SHARE ROW EXCLUSIVE MODE", self.of.partition),
                format!("SELECT ebb.split_settle({label}, {SETTLE})"),
                self.note_function(true),
                format!("UPDATE ebb.split SET plan = plan || '{{\"locks\": true}}' WHERE relation = {label}"),
            ],
        )];
        for (part, _) in &self.parts {
            let add = |key: &Constraint| {
                format!("ALTER TABLE {part} ADD CONSTRAINT {} {} NOT VALID", Ident::new(&key.name), key.definition)
            };
            let sql = self.of.foreign_keys.iter().map(add).collect();
            steps.push(Step::new(format!("foreign keys of {}", part.label()), Act::Short, sql));
            let prove = |key: &Constraint| format!("ALTER TABLE {part} VALIDATE CONSTRAINT {}", Ident::new(&key.name));
            let sql = self.of.foreign_keys.iter().map(prove).collect();
            steps.push(Step::new(format!("prove the foreign keys of {}", part.label()), Act::Alone, sql));
        }
        steps
    }

    fn drop_triggers(&self, if_exists: &str) -> Vec<String> {
        [TRIGGER, TRUNCATED].map(|name| format!("DROP TRIGGER {if_exists}{name} ON {}", self.of.partition)).into()
    }

    /// The old partition keeps its rows until `finish`, but no foreign key (others could not delete what its rows refer
    /// to), and takes no more.
    fn swap(&self, label: &str) -> Vec<String> {
        let (table, partition) = (&self.of.table, &self.of.partition);
        let mut sql = vec![
            format!("LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE"),
            format!("LOCK TABLE ONLY {partition} IN ACCESS EXCLUSIVE MODE"),
        ];
        sql.extend(self.of.referring.iter().map(Referring::let_go));
        sql.push(format!("ALTER TABLE {table} DETACH PARTITION {partition}"));
        sql.extend(
            self.of
                .old_foreign_keys
                .iter()
                .map(|key| format!("ALTER TABLE {partition} DROP CONSTRAINT {}", Ident::new(&key.name))),
        );
        sql.push(format!("SELECT ebb.split_settle({label}, {SETTLE})"));
        if !self.of.foreign_keys.is_empty() {
            sql.push("SET CONSTRAINTS ALL IMMEDIATE".into());
        }
        sql.extend(self.drop_triggers(""));
        sql.push(format!("ALTER TABLE {partition} ADD CONSTRAINT {OVER} CHECK (false) NOT VALID"));
        let by_index = self.of.indexes.iter().any(|index| index.is_replica_identity);
        for (part, period) in &self.parts {
            sql.push(format!("ALTER TABLE {table} ATTACH PARTITION {part} {}", bounds(period)));
            if by_index {
                sql.push(format!(
                    "SELECT ebb.copy_replica_identity({}, {}::regclass)",
                    self.of.parent_oid,
                    Literal(&part.to_string())
                ));
            }
        }
        sql.extend(self.of.referring.iter().flat_map(Referring::come_back));
        sql
    }

    fn undo(&self) -> Vec<String> {
        let tables = std::iter::once(&self.staging).chain(self.parts.iter().map(|(part, _)| part)).chain([&self.log]);
        let mut sql: Vec<String> = tables.map(|table| format!("DROP TABLE IF EXISTS {table}")).collect();
        sql.push(format!("DROP FUNCTION IF EXISTS {}()", self.note));
        sql
    }
}

/// Where the pages of a batch go in the statement that copies it.
pub(crate) const FROM: &str = "{from}";
pub(crate) const TO: &str = "{to}";

fn bounds((_, from, to): &Period) -> String {
    let from = from.as_ref().map_or("MINVALUE".to_owned(), |from| Literal(from).to_string());
    format!("FOR VALUES FROM ({from}) TO ({})", Literal(to))
}

fn plain_index(unique: &str, definition: &str, on: &Relation) -> Result<String> {
    let at = outside_quotes(definition, " USING ")
        .ok_or_else(|| Error::failed(format!("cannot read the index {definition}")))?;
    Ok(format!("CREATE {unique}INDEX ON {on}{}", &definition[at..]))
}
