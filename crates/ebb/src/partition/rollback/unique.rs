//! The unique keys on the way back. Before it, a key that exists twice stops it; while rows of the former partitions are
//! outside of the table's index, triggers on the table and on them stand in for it. They are there before the name moves, one
//! table after the other, because each would take its time under that lock, and note what comes (`fresh`) until then. Invariant: whatever the index compares
//! (expressions, some rows only, NULLs, a collation) they compare, and they see a row as every other trigger has left it.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::fresh;
use crate::partition::adopt::moved::trigger_function;
use crate::partition::adopt::{Key, Plan};
use crate::pg::{Ident, Literal, Relation, block};
use crate::{Error, Result};

const TWIN: &str = "a_ebb_twin";

/// Of a key that takes NULLs for equal so many columns are told apart by which of them are NULL.
const NULLABLE: usize = 3;

/// How many times larger than everything else the old table must be for the others' rows to be looked up in it, one by one.
const MUCH_LARGER: i64 = 8;

/// Beside others a look takes one core.
pub(super) const ALONE: &str = "SET LOCAL max_parallel_workers_per_gather = 0";
/// Along the indexes, in their order: what is sorted or hashed instead goes to the disk once it is much, and whoever commits
/// meanwhile waits for that.
const IN_ORDER: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; \
                        SET LOCAL enable_hashagg = off";

/// One key after the other.
pub(super) const BY_INDEX: &str = "SET LOCAL enable_seqscan = off";

/// How the rows are spread over the partitions.
#[derive(Debug, Clone, Copy, Default, sqlx::FromRow)]
pub(super) struct Spread {
    /// Bytes of the old table, and of the partitions beside it.
    pub(super) one: i64,
    pub(super) others: i64,
    /// Pages, and those of which an index can answer alone.
    pub(super) pages: i64,
    pub(super) visible: i64,
}

/// One question to the server: the keys that are there twice.
struct Look {
    settings: &'static str,
    sql: String,
}

impl Key {
    /// The rows that the index has.
    pub(super) fn rows(&self) -> String {
        let known = (!self.nulls_not_distinct).then(|| self.known());
        let of: Vec<String> = self.predicate.iter().map(|predicate| format!("({predicate})")).chain(known).collect();
        if of.is_empty() { "true".to_owned() } else { of.join(" AND ") }
    }

    fn known(&self) -> String {
        self.expressions.iter().map(|key| format!("{key} IS NOT NULL")).collect::<Vec<_>>().join(" AND ")
    }

    /// The expressions, named for whoever looks at them from outside.
    pub(super) fn named(&self) -> String {
        let named = self.expressions.iter().enumerate().map(|(n, key)| format!("{key} AS ebb_k{n}"));
        named.collect::<Vec<_>>().join(", ")
    }

    /// The same from there.
    pub(super) fn noted(&self) -> String {
        (0..self.expressions.len()).map(|n| format!("m.ebb_k{n}")).collect::<Vec<_>>().join(", ")
    }

    /// Whether a row of a table has them: one condition, or where NULLs are equal one for each way to have some. An index
    /// answers each of these, and none that asks for both at once.
    fn same(&self) -> Vec<String> {
        let equal = |n: usize| format!("{} {} m.ebb_k{n}", self.expressions[n], self.operators[n]);
        let null = |n: usize| format!("{} IS NULL AND m.ebb_k{n} IS NULL", self.expressions[n]);
        let all =
            |each: &dyn Fn(usize) -> String| (0..self.expressions.len()).map(each).collect::<Vec<_>>().join(" AND ");
        match self.expressions.len() {
            _ if !self.nulls_not_distinct => vec![all(&equal)],
            columns if columns <= NULLABLE => {
                let ways = 0..1_usize << columns;
                ways.map(|way| all(&|n| if way >> n & 1 == 0 { equal(n) } else { null(n) })).collect()
            }
            _ => {
                let known = all(&|n| format!("m.ebb_k{n} IS NOT NULL"));
                vec![all(&equal), format!("NOT ({known}) AND {}", all(&|n| format!("({} OR {})", equal(n), null(n))))]
            }
        }
    }

    /// The rows that have them in any of these tables, as a query.
    pub(super) fn found_in(&self, tables: &[String]) -> String {
        let (rows, same) = (self.rows(), self.same());
        let look = |table: &String| {
            let each = same.iter().map(|same| format!("SELECT 1 FROM {table} t WHERE {rows} AND {same}"));
            each.collect::<Vec<_>>().join(" UNION ALL ")
        };
        tables.iter().map(look).collect::<Vec<_>>().join(" UNION ALL ")
    }

    /// The same for many of them at once: m, as often as it is there.
    pub(super) fn joined(&self, tables: &[String]) -> String {
        let (rows, same) = (self.rows(), self.same());
        let each = tables.iter().flat_map(|table| same.iter().map(move |same| (table, same)));
        let each = each.map(|(table, same)| format!("SELECT m.* FROM m, {table} t WHERE {rows} AND {same}"));
        each.collect::<Vec<_>>().join(" UNION ALL ")
    }

    /// What to do about one that is there twice.
    pub(super) fn delete_one(&self, plan: &Plan) -> String {
        format!(
            "delete one of each, for example: SELECT * FROM {} WHERE ({}) = …",
            plan.relation(),
            self.expressions.join(", ")
        )
    }

    fn grouped(&self, table: &Relation, rows: &str) -> String {
        let list = self.expressions.join(", ");
        format!("SELECT ROW({list})::text FROM {table} WHERE {rows} GROUP BY {list} HAVING count(*) > 1 LIMIT 20")
    }

    /// Every row against every other.
    fn whole(&self, plan: &Plan, spread: Spread) -> Look {
        let in_order = self.is_plain && spread.pages > 0 && spread.visible * 2 >= spread.pages;
        let settings = if in_order { IN_ORDER } else { "" };
        Look { settings, sql: self.grouped(&plan.relation(), &self.rows()) }
    }

    /// The rows beyond the old table among themselves, and each against that one, which tells its own apart by an index of
    /// its own. A key with a NULL in it, where that counts, no index finds by another's.
    fn beyond(&self, plan: &Plan) -> Vec<Look> {
        let (table, history, rows) = (plan.relation(), plan.history(), self.rows());
        let beyond = format!("{} >= {}", Ident::new(&plan.column), Literal(&plan.literal));
        let same = self.expressions.iter().zip(&self.operators).enumerate();
        let same: Vec<String> = same.map(|(n, (theirs, equals))| format!("{theirs} {equals} m.ebb_k{n}")).collect();
        let mut looks = vec![
            Look { settings: IN_ORDER, sql: self.grouped(&table, &format!("{beyond} AND {rows}")) },
            Look {
                settings: IN_ORDER,
                sql: format!(
                    "SELECT ROW({})::text FROM (SELECT {} FROM {table} WHERE {beyond} AND {rows} AND {known}) m \
                     CROSS JOIN LATERAL (SELECT FROM ONLY {history} WHERE {rows} AND {} LIMIT 1) h LIMIT 20",
                    self.noted(),
                    self.named(),
                    same.join(" AND "),
                    known = self.known()
                ),
            },
        ];
        if self.nulls_not_distinct {
            let unknown = format!("{rows} AND NOT ({})", self.known());
            looks.push(Look { settings: "", sql: self.grouped(&table, &unknown) });
        }
        looks
    }

    async fn refuse(&self, connection: &mut PgConnection, plan: &Plan, look: Look) -> Result<()> {
        let mut tx = connection.begin().await?;
        let settings = [ALONE, look.settings].join("; ");
        sqlx::raw_sql(AssertSqlSafe(settings)).execute(&mut *tx).await?;
        let keys: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(look.sql)).persistent(false).fetch_all(&mut *tx).await?;
        tx.commit().await?;
        if keys.is_empty() {
            return Ok(());
        }
        Err(Error::refused(twice(self, &keys.join(", "))).with_hint(self.delete_one(plan)))
    }
}

/// How an error says that keys are there twice.
pub(super) fn twice(key: &Key, keys: &str) -> String {
    let of = key.predicate.as_ref().map_or(String::new(), |predicate| format!(" where {predicate}"));
    format!("({}){of} must be unique again for {}, and these are there twice: {keys}", key.columns.join(", "), key.name)
}

/// A key that exists twice by now cannot be unique again: says which. Where nearly all rows are in the old table only the
/// others are looked at: the index that is built for that one tells its own rows apart.
pub(super) async fn refuse_twins(connection: &mut PgConnection, plan: &Plan, spread: Spread) -> Result<()> {
    let apart = spread.others.saturating_mul(MUCH_LARGER) <= spread.one;
    for key in &plan.back_keys {
        let looks = if apart { key.beyond(plan) } else { vec![key.whole(plan, spread)] };
        for look in looks {
            key.refuse(connection, plan, look).await?;
        }
    }
    Ok(())
}

/// The same of every row as statements, each a look of its own.
pub(super) fn looks(plan: &Plan, spread: Spread) -> Vec<Vec<String>> {
    let look = |key: &Key| {
        let Look { settings, sql } = key.whole(plan, spread);
        let settings = [ALONE, settings].into_iter().filter(|one| !one.is_empty()).map(str::to_owned);
        let refuse = format!(
            "DECLARE keys text; BEGIN SELECT string_agg(x.key, ', ') INTO keys FROM ({sql}) x (key); \
             {} END",
            fresh::raise(plan, key)
        );
        settings.chain([block(&refuse)]).collect()
    };
    plan.back_keys.iter().map(look).collect()
}

/// The same of every row, wherever it is.
pub(super) async fn refuse_all_twins(connection: &mut PgConnection, plan: &Plan, spread: Spread) -> Result<()> {
    for key in &plan.back_keys {
        key.refuse(connection, plan, key.whole(plan, spread)).await?;
    }
    Ok(())
}

/// The function of a key's triggers: first it notes, then it refuses.
pub(super) fn function(plan: &Plan, relid: i64, n: usize) -> Relation {
    Relation::new(&plan.schema, format!("ebb_{relid}_one{n}"))
}

/// The functions that look, one for each key: of the rows in the table and its children one has a key.
pub(super) fn functions(plan: &Plan, relid: i64) -> Vec<String> {
    let keys = plan.back_keys.iter().enumerate();
    keys.flat_map(|(n, key)| trigger_function(&function(plan, relid, n), &body(plan, key, relid), &plan.owner))
        .collect()
}

/// Two rows of the table are told apart by its own index. A key that comes to be in a child, which is rare, waits for
/// everybody else's to be settled, and they for it. A row that only moves has been looked at.
fn body(plan: &Plan, key: &Key, relid: i64) -> String {
    let (table, rows) = (plan.relation(), key.rows());
    let lock = format!(
        "IF TG_RELID = {relid} THEN PERFORM pg_advisory_xact_lock_shared({relid}); ELSE PERFORM pg_advisory_xact_lock({relid}); END IF;"
    );
    let (mine, found) = (key.named(), key.found_in(&[table.to_string()]));
    let stays = key.columns.iter().zip(&key.operators).map(|(column, equals)| {
        let column = Ident::new(column);
        format!("COALESCE(NEW.{column} {equals} OLD.{column}, NEW.{column} IS NULL AND OLD.{column} IS NULL)")
    });
    let unchanged = match key.is_plain {
        true => format!(
            "IF TG_OP = 'UPDATE' THEN IF {} THEN RETURN NULL; END IF; END IF;",
            stays.collect::<Vec<_>>().join(" AND ")
        ),
        false => String::new(),
    };
    format!(
        "#variable_conflict use_column\nDECLARE twice boolean; BEGIN \
         IF current_setting('session_replication_role') = 'replica' THEN RETURN NULL; END IF; {unchanged} {lock} \
         SELECT count(*) > 1 INTO twice FROM (SELECT {mine} FROM (SELECT NEW.*) r WHERE {rows}) m CROSS JOIN LATERAL ({found} LIMIT 2) x; \
         IF twice THEN RAISE unique_violation USING MESSAGE = {}, SCHEMA = {}, TABLE = {}, CONSTRAINT = {}; END IF; RETURN NULL; END",
        Literal(&format!("duplicate key value violates unique constraint \"{}\"", key.name)),
        Literal(&plan.schema),
        Literal(&plan.table),
        Literal(&key.name)
    )
}

/// The triggers on a table that has keys to be looked at, whatever the session that writes to it; those that are there stay.
pub(super) fn triggers(plan: &Plan, relid: i64, on: &Relation) -> Vec<String> {
    let keys = plan.back_keys.iter().enumerate().map(|(n, key)| {
        let (kind, when) = match key.deferrable.as_str() {
            "" => ("", ""),
            deferrable => ("CONSTRAINT ", deferrable),
        };
        block(&format!(
            "BEGIN IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = {}::regclass AND tgname = '{TWIN}{n}') THEN \
             CREATE {kind}TRIGGER {TWIN}{n} AFTER INSERT OR UPDATE ON {on}{when} FOR EACH ROW EXECUTE FUNCTION {}(); \
             ALTER TABLE {on} ENABLE ALWAYS TRIGGER {TWIN}{n}; END IF; END",
            Literal(&on.to_string()),
            function(plan, relid, n)
        ))
    });
    keys.collect()
}

pub(super) fn no_triggers(plan: &Plan, on: &Relation) -> Vec<String> {
    (0..plan.back_keys.len()).map(|n| format!("DROP TRIGGER IF EXISTS {TWIN}{n} ON {on}")).collect()
}

/// Nothing is left of them, nor of what was noted.
pub(super) fn no_functions(plan: &Plan, relid: i64) -> Vec<String> {
    let each = (0..plan.back_keys.len()).flat_map(|n| {
        let (function, notes) = (function(plan, relid, n), fresh::notes(plan, relid, n));
        // Where somebody wrote to a partition that has no rows any more, it hides with its trigger.
        [format!("DROP FUNCTION IF EXISTS {function}() CASCADE"), format!("DROP TABLE IF EXISTS {notes}")]
    });
    each.collect()
}
