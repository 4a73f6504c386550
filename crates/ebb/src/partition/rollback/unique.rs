//! The unique keys on the way back. Before it, a key that exists twice stops it; while rows of the former partitions are
//! outside of the table's index, triggers on the table and on them stand in for it. Invariant: whatever the index compares
//! (expressions, some rows only, NULLs, a collation) they compare, and they see a row as every other trigger has left it.

use sqlx::{AssertSqlSafe, PgConnection};

use crate::partition::adopt::moved::trigger_function;
use crate::partition::adopt::{Key, Plan};
use crate::pg::{Ident, Literal, Relation};
use crate::{Error, Result};

const TWIN: &str = "a_ebb_twin";

impl Key {
    /// The rows that the index has.
    fn rows(&self) -> String {
        let known =
            self.expressions.iter().filter(|_| !self.nulls_not_distinct).map(|key| format!("{key} IS NOT NULL"));
        let of = self.predicate.iter().map(|predicate| format!("({predicate})")).chain(known).collect::<Vec<_>>();
        if of.is_empty() { "true".to_owned() } else { of.join(" AND ") }
    }
}

/// A key that exists twice by now cannot be unique again: says which.
pub(super) async fn refuse_twins(connection: &mut PgConnection, plan: &Plan) -> Result<()> {
    for key in &plan.back_keys {
        let (list, table, rows) = (key.expressions.join(", "), plan.relation(), key.rows());
        let sql =
            format!("SELECT ROW({list})::text FROM {table} WHERE {rows} GROUP BY {list} HAVING count(*) > 1 LIMIT 20");
        let twice: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_all(&mut *connection).await?;
        if !twice.is_empty() {
            let of = key.predicate.as_ref().map_or(String::new(), |predicate| format!(" where {predicate}"));
            return Err(Error::refused(format!(
                "({}){of} must be unique again for {}, and these are there twice: {}",
                key.columns.join(", "),
                key.name,
                twice.join(", ")
            ))
            .with_hint(format!("delete one of each, for example: SELECT * FROM {table} WHERE ({list}) = …")));
        }
    }
    Ok(())
}

fn function(plan: &Plan, relid: i64, n: usize) -> Relation {
    Relation::new(&plan.schema, format!("ebb_{relid}_one{n}"))
}

/// The functions that look, one for each key: of the rows in the table and its children one has a key.
pub(super) fn functions(plan: &Plan, relid: i64) -> Vec<String> {
    let keys = plan.back_keys.iter().enumerate();
    keys.flat_map(|(n, key)| trigger_function(&function(plan, relid, n), &body(plan, key, relid), &plan.owner))
        .collect()
}

/// Two rows of the table are told apart by its own index. A key that comes to be in a child, which is rare, waits for
/// everybody else's to be settled, and they for it.
fn body(plan: &Plan, key: &Key, relid: i64) -> String {
    let (table, rows, row) = (plan.relation(), key.rows(), "(SELECT NEW.*) r");
    let lock = format!(
        "IF TG_RELID = {relid} THEN PERFORM pg_advisory_xact_lock_shared({relid}); ELSE PERFORM pg_advisory_xact_lock({relid}); END IF;"
    );
    let pairs = || key.expressions.iter().zip(&key.operators).enumerate();
    let mine = pairs().map(|(n, (mine, _))| format!("{mine} AS ebb_k{n}")).collect::<Vec<_>>().join(", ");
    let same = pairs().map(|(n, (theirs, equals))| match key.nulls_not_distinct {
        true => format!("({theirs} {equals} m.ebb_k{n} OR ({theirs} IS NULL AND m.ebb_k{n} IS NULL))"),
        false => format!("{theirs} {equals} m.ebb_k{n}"),
    });
    let same = same.collect::<Vec<_>>().join(" AND ");
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
        "#variable_conflict use_column\nDECLARE twice boolean; BEGIN {unchanged} {lock} \
         SELECT count(*) > 1 INTO twice FROM (SELECT FROM {table} t, (SELECT {mine} FROM {row} WHERE {rows}) m WHERE {rows} AND {same} LIMIT 2) x; \
         IF twice THEN RAISE unique_violation USING MESSAGE = {}, SCHEMA = {}, TABLE = {}, CONSTRAINT = {}; END IF; RETURN NULL; END",
        Literal(&format!("duplicate key value violates unique constraint \"{}\"", key.name)),
        Literal(&plan.schema),
        Literal(&plan.table),
        Literal(&key.name)
    )
}

/// The triggers on the table, or on one of its children.
pub(super) fn triggers(plan: &Plan, relid: i64, on: &Relation) -> Vec<String> {
    let keys = plan.back_keys.iter().enumerate().map(|(n, key)| {
        let (kind, when) = match key.deferrable.as_str() {
            "" => ("", ""),
            deferrable => ("CONSTRAINT ", deferrable),
        };
        format!(
            "CREATE {kind}TRIGGER {TWIN}{n} AFTER INSERT OR UPDATE ON {on}{when} FOR EACH ROW EXECUTE FUNCTION {}()",
            function(plan, relid, n)
        )
    });
    keys.collect()
}

pub(super) fn no_triggers(plan: &Plan, on: &Relation) -> Vec<String> {
    (0..plan.back_keys.len()).map(|n| format!("DROP TRIGGER IF EXISTS {TWIN}{n} ON {on}")).collect()
}

pub(super) fn no_functions(plan: &Plan, relid: i64) -> Vec<String> {
    (0..plan.back_keys.len()).map(|n| format!("DROP FUNCTION IF EXISTS {}()", function(plan, relid, n))).collect()
}
