//! Two batches at a time: on a server of their own, where nobody else is at work.

use ebb::pg::Database;
use ebb::spine::Status;
use ebb_testkit::{Server, empty_database_on, eventually, own_server};

use crate::harness::{Ebb, SOON, execute, run_once};

/// People 1 to 1500 are due, with three letters each. A ledger has who went, and how many other batches were under way then.
const PEOPLE: &str = "
    CREATE TABLE people (id bigint PRIMARY KEY, deleted_at timestamptz);
    CREATE TABLE letters (id bigint PRIMARY KEY, person bigint NOT NULL REFERENCES people ON DELETE CASCADE);
    CREATE INDEX ON letters (person);
    INSERT INTO people SELECT n, CASE WHEN n <= 1500 THEN now() - interval '100 days' END FROM generate_series(1, 1600) n;
    INSERT INTO letters SELECT p * 10 + n, p FROM generate_series(1, 1600) p, generate_series(1, 3) n;
    CREATE TABLE ledger (id bigint, beside bigint);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.ledger SELECT g.id, (SELECT count(*) FROM pg_stat_activity
            WHERE application_name LIKE 'ebb/%/erase/%' AND xact_start IS NOT NULL AND pid <> pg_backend_pid()) FROM gone g;
        RETURN NULL; END $$;
    CREATE TRIGGER note AFTER DELETE ON people REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note();
    ANALYZE";

/// A database of the server with tables, and with a policy over subjects of one of them.
async fn with_policy(server: &Server, sql: &[&str], table: &str, more: &str) -> Ebb {
    let db = empty_database_on(server).await;
    ebb::pg::migrate(&db.open()).await.unwrap();
    for sql in sql {
        db.execute(sql).await;
    }
    let ebb = Ebb::on(db).await;
    ebb.apply(&over(table, more)).await;
    ebb
}

fn over(table: &str, more: &str) -> String {
    let policy = format!("name = \"{table}\"\ntable = \"{table}\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"");
    format!("[[retain]]\n{policy}\n{more}")
}

async fn people(server: &Server, more: &str) -> Ebb {
    let ebb = with_policy(server, &[PEOPLE, more], "people", "brake = { share = \"off\" }").await;
    ebb.once("people:mark").await;
    ebb
}

/// Everybody who was due went once, with a record each that says what went, and nobody else did.
async fn assert_erased_once(ebb: &Ebb) {
    let went = "(SELECT count(*) FROM ledger) = 1500 AND (SELECT count(DISTINCT id) FROM ledger) = 1500
        AND (SELECT count(*) FROM people) = 100 AND (SELECT count(*) FROM letters) = 300";
    assert!(ebb.db.scalar::<bool>(&format!("SELECT {went}")).await);
    let recorded = "SELECT count(*) = 1500 AND count(DISTINCT subject) = 1500 AND min(rows) = 4 AND max(rows) = 4
        FROM ebb.audit WHERE action = 'erase'";
    assert!(ebb.db.scalar::<bool>(recorded).await);
    let closed = "SELECT count(*) FROM ebb.deletion WHERE state = 'erased' AND attempts = 0 AND error IS NULL";
    assert_eq!(ebb.db.scalar::<i64>(closed).await, 1500);
    let counted = "SELECT rows = 6000 FROM ebb.run WHERE chore = 'erase' ORDER BY id DESC LIMIT 1";
    assert!(ebb.db.scalar::<bool>(counted).await, "the run counts what both did");
}

#[tokio::test(flavor = "multi_thread")]
async fn alone_on_a_server_two_batches_at_a_time_erase_everybody_once() {
    let server = own_server();
    let ebb = people(&server, "").await;
    let run = ebb.once("people:erase").await.runs.remove(0);
    assert_eq!((run.status, run.rows, run.skipped), (Status::Success, 6000, 0), "{run:?}");
    assert_erased_once(&ebb).await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT max(beside) FROM ledger").await, 1, "two at a time, and no more");

    // Beside somebody who is at work it is one at a time.
    let ebb = people(&server, "").await;
    let mut other = ebb.client().await;
    let busy = tokio::spawn(async move { execute(&mut other, "SELECT pg_sleep(600)").await });
    ebb.until("EXISTS (SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%')").await;
    ebb.once("people:erase").await;
    ebb.db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'").await;
    assert!(busy.await.is_err(), "it was at work all the time");
    assert_erased_once(&ebb).await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT max(beside) FROM ledger").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_second_connection_it_is_one_batch_at_a_time() {
    let server = own_server();
    let ebb = people(&server, "").await;
    let engine = ebb.another(Database::open(ebb.db.target(), 1, "ebb/test"));
    let run = run_once(&engine, &["people:erase"]).await.unwrap().runs.remove(0);
    assert_eq!((run.status, run.rows, run.skipped), (Status::Success, 6000, 0), "{run:?}");
    assert_erased_once(&ebb).await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT max(beside) FROM ledger").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_meet_each_other_go_on_one_at_a_time() {
    let server = own_server();
    let tally = "CREATE TABLE tally (gone bigint); INSERT INTO tally VALUES (0);
         CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             UPDATE public.tally SET gone = gone + (SELECT count(*) FROM went); RETURN NULL; END $$;
         CREATE TRIGGER tell AFTER DELETE ON letters REFERENCING OLD TABLE AS went FOR EACH STATEMENT EXECUTE FUNCTION tell()";
    let ebb = people(&server, tally).await;
    let run = ebb.once("people:erase").await.runs.remove(0);
    assert_eq!((run.status, run.rows, run.skipped), (Status::Success, 6000, 0), "{run:?}");
    assert_erased_once(&ebb).await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT gone FROM tally").await, 4500);
}

/// Whoever comes to person 1 takes five seconds, in two statements: longer than a transaction may be idle beside it.
const SLOW: &str = "
    CREATE TABLE calls (person bigint NOT NULL REFERENCES people ON DELETE CASCADE); CREATE INDEX ON calls (person);
    INSERT INTO calls SELECT id FROM people;
    CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN IF OLD.person = 1 THEN PERFORM pg_sleep(2.5); END IF; RETURN OLD; END';
    CREATE TRIGGER linger BEFORE DELETE ON letters FOR EACH ROW WHEN (OLD.id % 10 = 1) EXECUTE FUNCTION linger();
    CREATE TRIGGER linger BEFORE DELETE ON calls FOR EACH ROW EXECUTE FUNCTION linger();";

/// A policy whose batches may take some time; a statement, and an idle transaction, four seconds.
const PATIENT: &str = "brake = { share = \"off\" }\nbatch = { timeout = \"4s\" }";

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_takes_its_time_ends_whether_or_not_there_is_another_beside_it() {
    let server = own_server();
    // With three there is nothing to do for a second batch; with 1500 the second is done long before the first.
    for (due, beside) in [(3, 0), (1500, 1)] {
        let fewer = format!("UPDATE people SET deleted_at = NULL WHERE id > {due}");
        let ebb = with_policy(&server, &[PEOPLE, SLOW, &fewer], "people", PATIENT).await;
        ebb.once("people:mark").await;
        let run = ebb.once("people:erase").await.runs.remove(0);
        assert_eq!((run.status, run.rows, run.skipped, run.failed), (Status::Success, due * 5, 0, 0), "{run:?}");
        let slow = "SELECT beside FROM ledger WHERE id = 1";
        assert_eq!(ebb.db.scalar::<i64>(slow).await, beside, "{due} people");
        let untroubled = "SELECT count(*) FROM ebb.audit WHERE action = 'claim'";
        assert_eq!(ebb.db.scalar::<i64>(untroubled).await, 0, "nobody is to blame");
    }
}

/// Accounts 1 to 12000 are soft-deleted. A ledger has whose due time was written, and how many batches were under way then.
const ACCOUNTS: &str = "
    CREATE TABLE accounts (id bigint PRIMARY KEY, deleted_at timestamptz, due timestamptz);
    INSERT INTO accounts SELECT n, CASE WHEN n <= 12000 THEN now() - n % 80 * interval '1 day' END
    FROM generate_series(1, 12500) n;
    CREATE INDEX ON accounts (deleted_at, id) WHERE deleted_at IS NOT NULL;
    CREATE TABLE ledger (id bigint, beside bigint);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.ledger SELECT n.id, (SELECT count(*) FROM pg_stat_activity
            WHERE application_name LIKE 'ebb/%/mark/%' AND xact_start IS NOT NULL AND pid <> pg_backend_pid()) FROM now_so n;
        RETURN NULL; END $$;
    CREATE TRIGGER note AFTER UPDATE ON accounts REFERENCING NEW TABLE AS now_so FOR EACH STATEMENT EXECUTE FUNCTION note();
    ANALYZE";

async fn accounts(server: &Server, more: &str) -> Ebb {
    with_policy(server, &[ACCOUNTS, more], "accounts", "mirror = { due = \"due\" }").await
}

/// Every account that is soft-deleted has one open deletion, whose due time its row has, and nobody else has one.
async fn assert_marked_once(ebb: &Ebb, accounts: i64) {
    let marked =
        "SELECT count(*) FROM accounts a JOIN ebb.deletion d ON d.subject_id = a.id::text AND d.state = 'pending'
        WHERE a.deleted_at = d.deleted_at AND a.due = d.due_at";
    assert_eq!(ebb.db.scalar::<i64>(marked).await, accounts);
    let open = "SELECT count(*) FROM ebb.deletion WHERE state <> 'restored'";
    assert_eq!(ebb.db.scalar::<i64>(open).await, accounts);
}

#[tokio::test(flavor = "multi_thread")]
async fn alone_on_a_server_two_batches_at_a_time_mark_everybody_once() {
    let server = own_server();
    let ebb = accounts(&server, "").await;
    let run = ebb.once("accounts:mark").await.runs.remove(0);
    assert_eq!((run.status, run.rows), (Status::Success, 12_000), "{run:?}");
    assert_marked_once(&ebb, 12_000).await;
    let ledger = "SELECT count(*) = 12000 AND count(DISTINCT id) = 12000 AND max(beside) = 1 FROM ledger";
    assert!(ebb.db.scalar::<bool>(ledger).await, "two at a time, and no more");

    ebb.db.execute("UPDATE accounts SET deleted_at = NULL WHERE id % 4 = 0 AND id <= 12000").await;
    let run = ebb.once("accounts:mark").await.runs.remove(0);
    assert_eq!((run.status, run.rows), (Status::Success, 3_000), "{run:?}");
    assert_marked_once(&ebb, 9_000).await;
    let recorded = "SELECT sum(rows)::bigint FROM ebb.audit WHERE action = 'restore'";
    assert_eq!(ebb.db.scalar::<i64>(recorded).await, 3_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_marking_that_meet_each_other_go_on_one_at_a_time() {
    let server = own_server();
    let tally = "CREATE TABLE tally (told bigint); INSERT INTO tally VALUES (0);
         CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             UPDATE public.tally SET told = told + (SELECT count(*) FROM now_so); RETURN NULL; END $$;
         CREATE TRIGGER tell AFTER UPDATE ON accounts REFERENCING NEW TABLE AS now_so FOR EACH STATEMENT EXECUTE FUNCTION tell()";
    let ebb = accounts(&server, tally).await;
    let run = ebb.once("accounts:mark").await.runs.remove(0);
    assert_eq!((run.status, run.rows), (Status::Success, 12_000), "{run:?}");
    assert_marked_once(&ebb, 12_000).await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT told FROM tally").await, 12_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_marking_that_takes_its_time_ends_with_the_one_beside_it() {
    let server = own_server();
    let slow = "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN IF NEW.id = 1 THEN PERFORM pg_sleep(2.5); END IF; RETURN NEW; END';
         CREATE TRIGGER linger BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION linger();
         CREATE CONSTRAINT TRIGGER linger_on AFTER UPDATE ON accounts DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION linger();
         UPDATE accounts SET deleted_at = now() - interval '80 days' WHERE id = 1";
    let more = "mirror = { due = \"due\" }\nbatch = { timeout = \"4s\" }";
    let ebb = with_policy(&server, &[ACCOUNTS, slow], "accounts", more).await;
    let run = ebb.once("accounts:mark").await.runs.remove(0);
    assert_eq!((run.status, run.rows), (Status::Success, 12_000), "{run:?}");
    assert_marked_once(&ebb, 12_000).await;
    let ledger = "SELECT count(DISTINCT id) = 12000 AND max(beside) FILTER (WHERE id = 1) = 1 FROM ledger";
    assert!(ebb.db.scalar::<bool>(ledger).await, "two at a time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_can_be_changed_while_one_batch_waits_for_the_other() {
    let server = own_server();
    let ebb = with_policy(&server, &[PEOPLE, SLOW], "people", PATIENT).await;
    ebb.once("people:mark").await;
    let node = ebb.start(&["people:erase"]);
    let waiting = "SELECT count(*) FILTER (WHERE wait_event = 'PgSleep') = 1 AND count(*) FILTER (WHERE state = 'idle in transaction' AND clock_timestamp() - state_change > interval '200 ms') = 1
        FROM pg_stat_activity WHERE application_name LIKE 'ebb/%/erase/%' AND xact_start IS NOT NULL";
    let own = ebb.db.open();
    eventually(SOON, || async {
        let mut session = own.session("ebb/test").await.unwrap();
        sqlx::query_scalar(waiting).fetch_one(&mut session).await.unwrap()
    })
    .await;
    ebb.apply(&over("people", &format!("description = \"another\"\n{PATIENT}"))).await;
    assert!(
        ebb.db.scalar::<bool>("SELECT EXISTS (SELECT FROM people WHERE id = 1)").await,
        "it was at work all the while"
    );
    node.stop().await;
}
