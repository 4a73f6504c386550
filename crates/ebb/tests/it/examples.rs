//! The examples do what they say, on a real server: compiled in here, and run.

#[allow(dead_code, reason = "its main starts a server of its own")]
#[path = "../../examples/embed.rs"]
mod embed;
#[allow(dead_code, reason = "its main starts a server of its own")]
#[path = "../../examples/handler.rs"]
mod handler;
#[allow(dead_code, reason = "its main reads arguments")]
#[path = "../../examples/worker.rs"]
mod worker;

use crate::harness::Ebb;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_leaves_a_table_that_nobody_refers_to() {
    let ebb = Ebb::with("CREATE SCHEMA scratch").await;
    ebb.apply("[[resources]]\nname = \"scratch\"\ndriver = \"postgres\"\nschema = \"scratch\"\npattern = \"t{snowflake}\"\ngrace = \"0s\"").await;
    worker::run(ebb.db.url(), "scratch").await.unwrap();
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'scratch' AND tablename ~ '^t[0-9]+$'";
    assert_eq!(ebb.db.scalar::<i64>(tables).await, 1);
    ebb.once("scratch:drop").await;
    assert_eq!(ebb.db.scalar::<i64>(tables).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_is_called_again_after_it_failed() {
    let ebb = Ebb::new().await;
    let engine = ebb.another(ebb.db.open()).on("greetings", handler::Greeter);
    handler::work(&engine).await.unwrap();
    let done: String = ebb.db.scalar("SELECT string_agg(state || ' ' || attempts, ',') FROM ebb.v_events").await;
    assert_eq!(done, "done 2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_engine_claims_sweeps_and_stops() {
    let ebb = Ebb::new().await;
    embed::work(&ebb.engine).await.unwrap();
    assert_eq!(
        ebb.db.scalar::<i64>("SELECT count(*) FROM public.token WHERE expires_at <= now() - interval '1 minute'").await,
        0
    );
    assert!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.token").await >= 300);
}
