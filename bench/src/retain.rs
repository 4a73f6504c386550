//! Erasing subjects with five child tables, with audit, locks and re-checks: beside the loop that the requirement document
//! has (one transaction and five statements a subject, without its sleeps) and beside bare set-based SQL without any of it.
//! Then beside a saturated foreground; then marking and planning, by size. `EBB_BENCH_SCALE=0.01` tries it small.

use std::time::{Duration, Instant};

use ebb::audit::SubjectKey;
use ebb::config::{Config, Env};
use ebb::pg::{Database, Target};
use ebb::policy::Wanted;
use ebb::spine::{NodeOptions, Shutdown, Status, Summary};
use ebb::{Engine, Keys};
use ebb_testkit::TempDir;
use sqlx::{Connection, PgConnection};

use crate::bed::{Bed, Goal, Result, median};
use crate::gentle::{Pool, pgbench, slice};

const ROUNDS: usize = 3;
const POLICY: &str = "[[retain]]\nname = \"people\"\ntable = \"public.people\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n\
     brake = { share = \"off\" }";

fn scaled(rows: u64) -> u64 {
    let scale: f64 = std::env::var("EBB_BENCH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1.0);
    ((rows as f64 * scale) as u64).max(10)
}

/// All of it, or `retain-erase`, `retain-beside` (a foreground), `retain-grow` (marking and planning, by size).
pub(crate) async fn run(part: &str) -> Result<Vec<Goal>> {
    let wants = |name: &str| ["all", "retain", name].contains(&part);
    let bed = Bed::new().await?;
    let keys = TempDir::new();
    let subject = keys.path().join("subject.key");
    SubjectKey::create_if_missing(&subject)?;
    let pool = Database::open(Target::parse(bed.database.socket_url(), None)?, 8, "ebb/bench");
    let engine = Engine::new(pool, Keys { subject: Some(subject), ..Keys::default() });
    let mut goals = Vec::new();
    if wants("retain-erase") {
        goals.extend(erasing(&bed, &engine).await?);
    }
    if wants("retain-beside") {
        goals.extend(beside_others(&bed, &engine).await?);
    }
    if wants("retain-grow") {
        goals.extend(growing(&bed, &engine).await?);
    }
    Ok(goals)
}

fn wanted() -> Result<Vec<Wanted>> {
    let config = Config::from_str(POLICY, "bench.toml", &Env::from_iter(Vec::<(String, String)>::new()))?;
    let wanted = config.policies.into_iter();
    Ok(wanted.map(|p| Wanted { kind: p.kind, name: p.name, spec: p.spec, policy: p.policy }).collect())
}

/// People, half of them long deleted, each with four rows in each of five tables; marked where Ebb is to erase them.
async fn fill(bed: &Bed, engine: &Engine, due: u64, marked: bool) -> Result<()> {
    let mut sql = String::from("DROP TABLE IF EXISTS c1, c2, c3, c4, c5, people CASCADE; TRUNCATE ebb.deletion;");
    sql += &format!(
        "CREATE TABLE people (id bigint PRIMARY KEY, email text, name text, deleted_at timestamptz);
         INSERT INTO people SELECT n, 'p' || n || '@example.test', md5(n::text),
             CASE WHEN n <= {due} THEN now() - interval '100 days' END FROM generate_series(1, {due} * 2) n;
         CREATE INDEX ON people (deleted_at) WHERE deleted_at IS NOT NULL;"
    );
    for child in 1..=5 {
        sql += &format!(
            "CREATE TABLE c{child} (id bigint PRIMARY KEY, person bigint NOT NULL REFERENCES people ON DELETE CASCADE, body text);
             INSERT INTO c{child} SELECT p * 4 + n, p, md5((p + n)::text) FROM generate_series(1, {due} * 2) p, generate_series(0, 3) n;
             CREATE INDEX ON c{child} (person);"
        );
    }
    bed.database.execute(&sql).await;
    bed.database.execute("VACUUM (ANALYZE, FREEZE)").await;
    engine.apply(&wanted()?, true, "bench").await?;
    if marked {
        once(engine, "people:mark", Shutdown::new()).await?;
    }
    bed.database.execute("CHECKPOINT").await;
    Ok(())
}

/// Runs one chore once; what its run came to.
async fn once(engine: &Engine, chore: &str, shutdown: Shutdown) -> Result<Summary> {
    let options = NodeOptions { only: vec![chore.parse()?], ..NodeOptions::default() };
    Bed::left_alone().await;
    let finished = engine.node(options, shutdown).run_once(Duration::ZERO).await?;
    let run = finished.runs.into_iter().next().ok_or("nothing ran")?;
    if run.status == Status::Failed {
        return Err(run.note.unwrap_or_default().into());
    }
    Ok(run)
}

async fn erased(bed: &Bed) -> u64 {
    bed.database.scalar::<i64>("SELECT count(*) FROM ebb.audit WHERE action = 'erase'").await.unsigned_abs()
}

async fn erasing(bed: &Bed, engine: &Engine) -> Result<Vec<Goal>> {
    let due = scaled(20_000);
    let (mut document, mut bare, mut ebb, mut bounded) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        fill(bed, engine, due, false).await?;
        document.push(document_loop(bed, due.div_ceil(10)).await?);

        fill(bed, engine, due, false).await?;
        let began = Instant::now();
        let set_based: String =
            (1..=5).map(|child| format!("DELETE FROM c{child} USING due WHERE person = due.id;")).collect();
        bed.database
            .execute(&format!(
                "BEGIN; CREATE TEMP TABLE due ON COMMIT DROP AS SELECT id FROM people WHERE deleted_at <= now() - interval '90 days';
                 {set_based} DELETE FROM people USING due WHERE people.id = due.id; COMMIT"
            ))
            .await;
        bare.push(due as f64 / began.elapsed().as_secs_f64());

        fill(bed, engine, due, true).await?;
        let before = erased(bed).await;
        bed.forget_statements().await;
        let run = once(engine, "people:erase", Shutdown::new()).await?;
        bed.tell_statements().await;
        assert_eq!(erased(bed).await - before, due, "every due subject, with its record");
        assert_eq!(
            bed.database.scalar::<i64>("SELECT count(*) FROM c3").await.unsigned_abs(),
            due * 4,
            "and nothing else"
        );
        ebb.push(due as f64 / run.took.as_secs_f64());

        let each = due.div_ceil(run.batches);
        fill(bed, engine, due, false).await?;
        bounded.push(bare_in_batches(bed, due, each).await?);
        println!(
            "retain, round {round}: document's loop {:.0} subjects/s, bare {:.0}/s, bare in batches of {each} {:.0}/s, \
             ebb {:.0}/s in {} batches",
            document[round - 1],
            bare[round - 1],
            bounded[round - 1],
            ebb[round - 1],
            run.batches
        );
    }
    Ok(vec![
        Goal::at_least("retain: subjects/s erased over the document's loop", by_rounds(&ebb, &document), 8.0),
        Goal::at_least("retain: subjects/s erased over bare set-based SQL", by_rounds(&ebb, &bare), 0.45),
        Goal::beside("for comparison, bare set-based SQL over the document's loop", by_rounds(&bare, &document)),
        Goal::beside(
            "for comparison, the same in batches as large as Ebb's, over all at once",
            by_rounds(&bounded, &bare),
        ),
    ])
}

/// The median of what each round came to: a round in which the machine was slow is slow for both sides.
fn by_rounds(measured: &[f64], beside: &[f64]) -> f64 {
    median(measured.iter().zip(beside).map(|(measured, beside)| measured / beside).collect())
}

/// Bare SQL again, with what one transaction takes as bounded as Ebb's. By index: joined with so few, the child tables would be
/// read as a whole for every batch.
async fn bare_in_batches(bed: &Bed, due: u64, each: u64) -> Result<f64> {
    let children: String =
        (1..=5).map(|child| format!("DELETE FROM c{child} WHERE person = ANY (ARRAY(SELECT id FROM due));")).collect();
    let batch = format!(
        "BEGIN; CREATE TEMP TABLE due ON COMMIT DROP AS
             SELECT id FROM people WHERE deleted_at <= now() - interval '90 days' LIMIT {each};
         {children} DELETE FROM people WHERE id = ANY (ARRAY(SELECT id FROM due)); COMMIT"
    );
    let mut connection = PgConnection::connect(bed.database.socket_url()).await?;
    let began = Instant::now();
    for _ in 0..due.div_ceil(each) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(batch.as_str())).execute(&mut connection).await?;
    }
    let took = began.elapsed();
    assert_eq!(
        bed.database.scalar::<i64>("SELECT count(*) FROM people").await.unsigned_abs(),
        due,
        "every due subject went"
    );
    Ok(due as f64 / took.as_secs_f64())
}

/// One transaction and five statements a subject; the fifth table goes by cascade.
async fn document_loop(bed: &Bed, subjects: u64) -> Result<f64> {
    let mut connection = PgConnection::connect(bed.database.socket_url()).await?;
    let ids: Vec<i64> = sqlx::query_scalar(
        "SELECT id FROM people WHERE deleted_at <= now() - interval '90 days' ORDER BY deleted_at LIMIT $1",
    )
    .bind(subjects as i64)
    .fetch_all(&mut connection)
    .await?;
    let began = Instant::now();
    for id in &ids {
        let mut tx = connection.begin().await?;
        for sql in [
            "DELETE FROM c1 WHERE person = $1",
            "DELETE FROM c2 WHERE person = $1",
            "DELETE FROM c3 WHERE person = $1",
            "DELETE FROM c4 WHERE person = $1",
            "DELETE FROM people WHERE id = $1",
        ] {
            sqlx::query(sql).bind(id).execute(&mut *tx).await?;
        }
        tx.commit().await?;
    }
    Ok(ids.len() as f64 / began.elapsed().as_secs_f64())
}

async fn beside_others(bed: &Bed, engine: &Engine) -> Result<Vec<Goal>> {
    pgbench(bed, &["-i", "-q", "-s", "20"])?;
    fill(bed, engine, scaled(100_000), true).await?;
    slice(bed, &mut Pool::default()).await?;
    let (mut alone, mut beside) = (Pool::default(), Pool::default());
    for round in 1..=ROUNDS {
        slice(bed, &mut alone).await?;
        let before = erased(bed).await;
        let shutdown = Shutdown::new();
        let (node, stop) = (engine.clone(), shutdown.clone());
        let erasing = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            // Told to stop before its first batch, a run has nothing to say.
            let options = NodeOptions { only: vec!["people:erase".parse()?], ..NodeOptions::default() };
            node.node(options, stop).run_once(Duration::ZERO).await?;
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        });
        slice(bed, &mut beside).await?;
        shutdown.stop();
        erasing.await??;
        println!("retain beside a foreground, round {round}: {} subjects erased", erased(bed).await - before);
    }
    Ok(vec![Goal::at_most("retain: foreground's 99th percentile over alone", beside.p99() / alone.p99(), 1.5)])
}

/// Marking and planning a tenth of a million and a million soft deletes, out of ten times as many rows, with the index that
/// `ebb apply` asks for.
async fn growing(bed: &Bed, engine: &Engine) -> Result<Vec<Goal>> {
    let mut goals = Vec::new();
    let (mut marking, mut ahead) = (Vec::new(), Vec::new());
    for deleted in [scaled(100_000), scaled(1_000_000)] {
        bed.database
            .execute(&format!(
                "DROP TABLE IF EXISTS c1, c2, c3, c4, c5, people CASCADE; TRUNCATE ebb.deletion;
                 CREATE TABLE people (id bigint PRIMARY KEY, deleted_at timestamptz);
                 INSERT INTO people SELECT n, CASE WHEN n % 10 = 0 THEN now() - (n % 100) * interval '1 day' END
                 FROM generate_series(1, {deleted} * 10) n;
                 CREATE INDEX ON people (deleted_at, id) WHERE deleted_at IS NOT NULL"
            ))
            .await;
        bed.database.execute("VACUUM (ANALYZE) people").await;
        engine.apply(&wanted()?, true, "bench").await?;
        let took = once(engine, "people:mark", Shutdown::new()).await?.took.as_secs_f64();
        assert_eq!(bed.database.scalar::<i64>("SELECT count(*) FROM ebb.deletion").await.unsigned_abs(), deleted);
        bed.database.execute("ANALYZE ebb.deletion").await;
        let again = once(engine, "people:mark", Shutdown::new()).await?.took.as_secs_f64();
        let began = Instant::now();
        let plan = engine.plan(&wanted()?).await?;
        let planning = began.elapsed().as_secs_f64();
        assert!(plan.trees.iter().any(|tree| tree.due > 0), "something is due: {:?}", plan.trees);
        let began = Instant::now();
        let forecast = engine.forecast(&wanted()?, jiff::Timestamp::now(), 30).await?;
        let forecasting = began.elapsed().as_secs_f64();
        let people = forecast.iter().find(|forecast| forecast.policy == "people").ok_or("no forecast")?;
        assert!(people.days.iter().any(|day| day.exact && day.rows > 0), "somebody falls due: {people:?}");
        println!(
            "retain: {deleted} of {} rows marked in {took:.1} s, looked at again in {again:.1} s, planned in {planning:.2} s, \
             forecast in {forecasting:.2} s",
            deleted * 10
        );
        marking.push(took);
        ahead.push(forecasting);
        if marking.len() == 2 {
            goals.push(Goal::at_most("retain: seconds to mark 1M soft deletes of 10M rows", took, 60.0));
            goals.push(Goal::at_most("retain: seconds to look at them again in the next hour's run", again, 60.0));
            goals.push(Goal::at_most("retain: seconds to plan over them", planning, 10.0));
            goals.push(Goal::at_most("retain: seconds to forecast 30 days over them", forecasting, 10.0));
        }
    }
    goals.push(Goal::beside("for comparison, marking ten times as many over a tenth", marking[1] / marking[0]));
    goals.push(Goal::beside("for comparison, forecasting ten times as many over a tenth", ahead[1] / ahead[0]));
    Ok(goals)
}
