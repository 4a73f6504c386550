//! Keys that come while the rollback waits for its lock. Whether one is there twice takes too long to look at under the lock, and
//! without it a writer can put one there after the look. So from before the look on every key that is written is noted, and
//! under the lock only the last of those are looked up. Invariant: no name moves while a key is there twice.

use super::unique::{ALONE, BY_INDEX, twice};
use crate::partition::adopt::moved::trigger_function;
use crate::partition::adopt::{Key, Plan};
use crate::pg::{Ident, Literal, Relation, block};

const TRIGGER: &str = "a_ebb_fresh";

/// So many keys are looked up under the lock, and no more: each is looked for in every partition.
const FEW: u32 = 100;

pub(super) fn is_mine(trigger: &str) -> bool {
    trigger.starts_with(TRIGGER)
}

/// One key's notes, and the function that makes them.
fn names(plan: &Plan, relid: i64, n: usize) -> (Relation, Relation) {
    let name = |what| Relation::new(&plan.schema, format!("ebb_{relid}_{what}{n}"));
    (name("fresh"), name("note"))
}

/// The statements from which on every key is noted. Whoever wrote before has ended by then.
pub(super) fn note(plan: &Plan, relid: i64) -> Vec<String> {
    let (table, owner) = (plan.relation(), Ident::new(&plan.owner));
    let mut sql = forget(plan, relid);
    for (n, key) in plan.back_keys.iter().enumerate() {
        let (notes, function) = names(plan, relid, n);
        let (named, rows) = (key.named(), key.rows());
        sql.push(format!("CREATE UNLOGGED TABLE {notes} AS SELECT {named} FROM {table} WHERE false"));
        sql.push(format!("ALTER TABLE {notes} OWNER TO {owner}"));
        let body = format!(
            "#variable_conflict use_column\nBEGIN INSERT INTO {notes} SELECT {named} FROM (SELECT NEW.*) r WHERE {rows}; RETURN NULL; END"
        );
        sql.extend(trigger_function(&function, &body, &plan.owner));
        sql.push(format!(
            "CREATE TRIGGER {TRIGGER}{n} AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {function}()"
        ));
        sql.push(format!("ALTER TABLE {table} ENABLE ALWAYS TRIGGER {TRIGGER}{n}"));
    }
    sql
}

/// Nothing is noted any more, and nothing is left of it.
pub(super) fn forget(plan: &Plan, relid: i64) -> Vec<String> {
    let each = (0..plan.back_keys.len()).map(|n| names(plan, relid, n));
    each.flat_map(|(notes, function)| {
        [format!("DROP FUNCTION IF EXISTS {function}() CASCADE"), format!("DROP TABLE IF EXISTS {notes}")]
    })
    .collect()
}

/// Looks up what was noted until now, while nobody waits.
pub(super) fn refuse_noted(plan: &Plan, relid: i64) -> Vec<String> {
    let keys = plan.back_keys.iter().enumerate().map(|(n, key)| {
        let (notes, _) = names(plan, relid, n);
        let gone = format!("WITH gone AS (DELETE FROM {notes} RETURNING *)");
        block(&format!("DECLARE keys text; BEGIN {gone} {} END", refuse(plan, key, "gone")))
    });
    [ALONE.to_owned(), BY_INDEX.to_owned()].into_iter().chain(keys).collect()
}

/// The same of the last ones, under the lock. Where there are more than a few the lock came too late: they are looked up before
/// the next try.
pub(super) fn refuse_last(plan: &Plan, relid: i64) -> Vec<String> {
    let look = |(n, key): (usize, &Key)| {
        let (notes, _) = names(plan, relid, n);
        block(&format!(
            "DECLARE keys text; BEGIN \
             IF (SELECT count(*) > {FEW} FROM (SELECT FROM {notes} LIMIT {FEW} + 1) x) THEN RAISE EXCEPTION USING ERRCODE = 'lock_not_available', \
             MESSAGE = 'keys come faster than they can be looked up'; END IF; {} END",
            refuse(plan, key, &notes.to_string())
        ))
    };
    let settings = BY_INDEX.to_owned();
    let back = "RESET enable_seqscan".to_owned();
    match plan.back_keys.is_empty() {
        true => Vec::new(),
        false => std::iter::once(settings).chain(plan.back_keys.iter().enumerate().map(look)).chain([back]).collect(),
    }
}

/// Says which of these keys are there twice, in a block that has `keys`.
fn refuse(plan: &Plan, key: &Key, noted: &str) -> String {
    format!(
        "SELECT string_agg(x.key, ', ') INTO keys FROM (SELECT DISTINCT ROW({})::text FROM {noted} m CROSS JOIN LATERAL \
         (SELECT count(*) AS of FROM (SELECT FROM {} t WHERE {} AND {} LIMIT 2) x) c WHERE c.of > 1 LIMIT 20) x (key); \
         IF keys IS NOT NULL THEN RAISE EXCEPTION USING ERRCODE = 'EB005', MESSAGE = {} || keys, HINT = {}; END IF;",
        key.noted(),
        plan.relation(),
        key.rows(),
        key.same(),
        Literal(&twice(key, "")),
        Literal(&key.delete_one(plan))
    )
}
