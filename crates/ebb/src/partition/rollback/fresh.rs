//! Keys that come while the rollback waits for its lock. Whether one is there twice takes too long to look at under the lock, and
//! without it a writer can put one there after the look. So from before the look on every key that is written is noted, and
//! under the lock only the last of those are looked up. Invariant: no name moves while a key is there twice.

use super::unique::{ALONE, BY_INDEX, function, twice};
use crate::partition::adopt::moved::trigger_function;
use crate::partition::adopt::{Key, Plan};
use crate::pg::{Ident, Literal, Relation, block};

/// So many looks there are under the lock, and no more: each key is looked for in every table that has rows.
const LOOKS: usize = 16_000;

/// What was noted of a key.
pub(super) fn notes(plan: &Plan, relid: i64, n: usize) -> Relation {
    Relation::new(&plan.schema, format!("ebb_{relid}_fresh{n}"))
}

/// The functions that note every key, wherever their triggers are; what a former try noted goes.
pub(super) fn note(plan: &Plan, relid: i64) -> Vec<String> {
    let (table, owner) = (plan.relation(), Ident::new(&plan.owner));
    let each = plan.back_keys.iter().enumerate().flat_map(|(n, key)| {
        let (notes, named, rows) = (notes(plan, relid, n), key.named(), key.rows());
        let mut sql = vec![
            format!("DROP TABLE IF EXISTS {notes}"),
            format!("CREATE UNLOGGED TABLE {notes} AS SELECT {named} FROM {table} WHERE false"),
            format!("ALTER TABLE {notes} OWNER TO {owner}"),
        ];
        let body = format!(
            "#variable_conflict use_column\nBEGIN INSERT INTO {notes} SELECT {named} FROM (SELECT NEW.*) r WHERE {rows}; RETURN NULL; END"
        );
        sql.extend(trigger_function(&function(plan, relid, n), &body, &plan.owner));
        sql
    });
    each.collect()
}

/// Nobody notes any more, and nobody's lock is needed for that.
pub(super) fn rest(plan: &Plan, relid: i64) -> Vec<String> {
    let each = 0..plan.back_keys.len();
    each.flat_map(|n| trigger_function(&function(plan, relid, n), "BEGIN RETURN NULL; END", &plan.owner)).collect()
}

/// Looks up what was noted until now in the tables that have rows, while nobody waits; by whichever way is the shortest for as many.
pub(super) fn refuse_noted(plan: &Plan, relid: i64, tables: &[String]) -> Vec<String> {
    let keys = plan.back_keys.iter().enumerate().map(|(n, key)| {
        let (notes, noted, found) = (notes(plan, relid, n), key.noted(), key.joined(tables));
        block(&format!(
            "DECLARE keys text; BEGIN WITH gone AS (DELETE FROM {notes} RETURNING *), m AS MATERIALIZED (SELECT DISTINCT * FROM gone) \
             SELECT string_agg(x.key, ', ') INTO keys FROM (SELECT ROW({noted})::text FROM ({found}) m GROUP BY {noted} HAVING count(*) > 1 LIMIT 20) x (key); \
             {} END",
            raise(plan, key)
        ))
    });
    keys.collect()
}

/// The same of the last ones, under the lock. Where there are more than a few the lock came too late: they are looked up before
/// the next try.
pub(super) fn refuse_last(plan: &Plan, relid: i64, tables: &[String]) -> Vec<String> {
    let few = (LOOKS / tables.len().max(1)).clamp(50, 4_000);
    let look = |(n, key): (usize, &Key)| {
        let notes = notes(plan, relid, n).to_string();
        block(&format!(
            "DECLARE keys text; BEGIN \
             IF (SELECT count(*) > {few} FROM (SELECT FROM {notes} LIMIT {few} + 1) x) THEN RAISE EXCEPTION USING ERRCODE = 'EB006', \
             MESSAGE = 'keys come faster than they can be looked up'; END IF; \
             SELECT string_agg(x.key, ', ') INTO keys FROM (SELECT DISTINCT ROW({})::text FROM {notes} m CROSS JOIN LATERAL \
             (SELECT count(*) AS of FROM ({} LIMIT 2) x) c WHERE c.of > 1 LIMIT 20) x (key); {} END",
            key.noted(),
            key.found_in(tables),
            raise(plan, key)
        ))
    };
    let looks: Vec<String> = plan.back_keys.iter().enumerate().map(look).collect();
    if looks.is_empty() {
        return looks;
    }
    let (settings, back) = ([ALONE, BY_INDEX].map(str::to_owned), "RESET enable_seqscan".to_owned());
    settings.into_iter().chain(looks).chain([back]).collect()
}

/// Says which keys are there twice, in a block that has them.
pub(super) fn raise(plan: &Plan, key: &Key) -> String {
    format!(
        "IF keys IS NOT NULL THEN RAISE EXCEPTION USING ERRCODE = 'EB005', MESSAGE = {} || keys, HINT = {}; END IF;",
        Literal(&twice(key, "")),
        Literal(&key.delete_one(plan))
    )
}
