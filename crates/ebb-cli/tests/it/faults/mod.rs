//! What goes wrong in the life of a node, done to real nodes on a real server: whatever dies, hangs or disappears,
//! nothing goes early, nothing due is forgotten, and the audit tells exactly what went.

mod change;
pub(crate) mod disk;
mod erasure;
mod kills;
mod lease;
mod network;
mod start;
mod stop;

use std::path::Path;
use std::time::Duration;

use ebb::policy::{Kind, Policy, Spec, Wanted};
use ebb::{Engine, Keys};
use ebb_testkit::{Node, TestDatabase, eventually};
use serde_json::{Value, json};

/// Long enough for a busy machine, short enough to notice.
const SOON: Duration = Duration::from_secs(180);

fn ebb_bin() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ebb"))
}

/// The ebb.toml of a node.
fn config(name: &str, lease: &str) -> String {
    format!(
        "[http]\nlisten = \"127.0.0.1:0\"\n[node]\nname = \"{name}\"\nlease = \"{lease}\"\n\
         [log]\nlevel = \"debug,sqlx=warn\"\nformat = \"json\"\n"
    )
}

/// `ebb run` under a name.
fn node(name: &str, url: &str) -> Node {
    Node::spawn(ebb_bin(), url, &config(name, "2s"), &["run"])
}

/// Makes exactly these expire policies so.
async fn apply(db: &TestDatabase, policies: &[(&str, Value)]) {
    apply_with(db, Keys::default(), policies).await;
}

async fn apply_with(db: &TestDatabase, keys: Keys, policies: &[(&str, Value)]) {
    let wanted: Vec<Wanted> = policies
        .iter()
        .map(|(name, spec)| {
            let spec: Spec = spec.as_object().unwrap().clone();
            let policy = Policy::parse(Kind::Expire, name, &spec).unwrap();
            Wanted { kind: Kind::Expire, name: (*name).to_owned(), spec, policy }
        })
        .collect();
    let engine = Engine::new(db.open(), keys);
    engine.apply(&wanted, true, "test").await.unwrap();
    engine.database().close().await;
}

/// A policy over `table` whose runs last: a few rows, a pause, again.
fn slowly(table: &str) -> Value {
    json!({
        "table": table, "column": "expires_at", "every": "1s", "brake": { "share": 1.0 },
        "batch": { "rows": 10, "pause": "20ms", "timeout": "2s" },
    })
}

/// A table with a ledger: a trigger writes down each row that goes, when it was due and when it went.
async fn ledger_table(db: &TestDatabase, name: &str, partition_by: &str) {
    db.execute(&format!(
        "CREATE TABLE public.{name} (id bigint GENERATED ALWAYS AS IDENTITY, expires_at timestamptz, filler text) {partition_by};
         CREATE INDEX ON public.{name} (expires_at);
         CREATE TABLE public.{name}_gone (id bigint, expires_at timestamptz, at timestamptz);
         CREATE FUNCTION public.{name}_ledger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.{name}_gone VALUES (OLD.id, OLD.expires_at, clock_timestamp()); RETURN NULL;
         END $$;
         CREATE TRIGGER ledger AFTER DELETE ON public.{name} FOR EACH ROW EXECUTE FUNCTION public.{name}_ledger()"
    ))
    .await;
}

/// Rows that are due already.
async fn insert_due(db: &TestDatabase, table: &str, rows: u32) {
    db.execute(&format!(
        "INSERT INTO public.{table} (expires_at, filler)
         SELECT clock_timestamp() - n * interval '1 millisecond', repeat('x', 50) FROM generate_series(1, {rows}) AS n"
    ))
    .await;
}

async fn gone(db: &TestDatabase, table: &str) -> i64 {
    db.scalar(&format!("SELECT count(*) FROM public.{table}_gone")).await
}

async fn due(db: &TestDatabase, table: &str) -> i64 {
    db.scalar(&format!("SELECT count(*) FROM public.{table} WHERE expires_at <= clock_timestamp()")).await
}

/// What the audit and the run history say went under a policy.
async fn recorded(db: &TestDatabase, policy: &str) -> (i64, i64) {
    let audit =
        format!("SELECT COALESCE(sum(rows), 0)::int8 FROM ebb.audit WHERE action = 'expire' AND policy = '{policy}'");
    let runs = format!("SELECT COALESCE(sum(rows), 0)::int8 FROM ebb.run WHERE policy = '{policy}'");
    (db.scalar(&audit).await, db.scalar(&runs).await)
}

/// Nothing went early, nothing went twice, and both records agree with what went.
async fn assert_accounted_for(db: &TestDatabase, table: &str, policy: &str) {
    let gone = gone(db, table).await;
    assert_eq!(recorded(db, policy).await, (gone, gone), "audit and run history against {gone} rows gone");
    let early: i64 = db.scalar(&format!("SELECT count(*) FROM public.{table}_gone WHERE expires_at > at")).await;
    assert_eq!(early, 0, "rows went before their time");
    let twice: i64 = db.scalar(&format!("SELECT count(*) - count(DISTINCT id) FROM public.{table}_gone")).await;
    assert_eq!(twice, 0, "rows went twice");
}

/// Waits until some, but not all, of the rows of a table are gone: a run is in its middle.
async fn wait_for_mid_run(db: &TestDatabase, table: &str) {
    let before = gone(db, table).await;
    eventually(SOON, || async { gone(db, table).await > before }).await;
    assert!(due(db, table).await > 0, "the run is over already");
}

/// SIGTERM, and a clean end in time.
async fn stop(mut node: Node) {
    node.term();
    let status = node.wait_within(SOON).await;
    assert!(status.success(), "{status}:\n{}", node.output());
}
