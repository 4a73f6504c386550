//! Tables whose names need quotes, as Prisma and TypeORM make them: everything that knows a table by its name knows these.

use ebb::retain::open_snapshot;

use super::told::questions;
use crate::harness::{Ebb, wanted};

/// Users with threads, messages, sessions and a profile of the same key; capitals, blanks, dots and quotes in their names.
const FORUM: &str = r#"
    CREATE SCHEMA "App.Data";
    CREATE TABLE "App.Data"."User" ("Id" bigint PRIMARY KEY, "Deleted At" timestamptz, "Tenant.Id" text);
    CREATE TABLE "App.Data"."User_Profile" ("Id" bigint PRIMARY KEY REFERENCES "App.Data"."User" ON DELETE CASCADE);
    CREATE TABLE "App.Data"."The ""Thread""" ("Id" bigint PRIMARY KEY, "userId" bigint REFERENCES "App.Data"."User" ON DELETE CASCADE,
        "At" timestamptz DEFAULT now() - interval '120 days');
    CREATE TABLE "App.Data"."Message.Log" ("Id" bigint PRIMARY KEY, "userId" bigint REFERENCES "App.Data"."User" ON DELETE CASCADE,
        "thread" bigint);
    CREATE TABLE "App.Data"."Session" ("Id" bigint PRIMARY KEY, "userId" bigint REFERENCES "App.Data"."User" ON DELETE CASCADE,
        "At" timestamptz DEFAULT now() - interval '1 day');
    CREATE INDEX ON "App.Data"."The ""Thread""" ("userId"); CREATE INDEX ON "App.Data"."Message.Log" ("userId");
    CREATE INDEX ON "App.Data"."Message.Log" ("thread"); CREATE INDEX ON "App.Data"."Session" ("userId");
    INSERT INTO "App.Data"."User" SELECT n FROM generate_series(1, 4) n;
    INSERT INTO "App.Data"."User_Profile" SELECT n FROM generate_series(1, 4) n;
    INSERT INTO "App.Data"."The ""Thread""" SELECT n * 10, n FROM generate_series(1, 2) n;
    INSERT INTO "App.Data"."Message.Log" SELECT n * 100, n, 10 FROM generate_series(1, 4) n;
    INSERT INTO "App.Data"."Session" SELECT n * 10, n FROM generate_series(1, 4) n"#;

/// The policy `users` over it, with more keys.
fn users(more: &str) -> String {
    format!(
        r#"[[retain]]
name = "users"
table = '"App.Data"."User"'
deleted_at = "Deleted At"
tenant = "Tenant.Id"
grace = "90d"
brake = {{ share = "off" }}
{more}
"#
    )
}

fn sweep(table: &str) -> String {
    format!(
        "[[expire]]\nname = \"sweep\"\ntable = '{table}'\ncolumn = \"At\"\nolder_than = \"1h\"\nbrake = {{ share = \"off\" }}\n"
    )
}

const THREADS: &str = r#""App.Data"."The ""Thread""""#;
const SESSIONS: &str = r#""App.Data"."Session""#;

impl Ebb {
    async fn ids_of(&self, table: &str) -> String {
        self.list("\"Id\"", &format!("\"App.Data\".{table}")).await
    }

    /// What a plan of the policy `users` finds, a line each.
    async fn found_in_tree(&self, config: &str) -> String {
        let plan = self.engine.plan(&wanted(config).unwrap()).await.unwrap();
        plan.trees[0].findings.iter().map(|found| format!("{}: {}\n", found.table, found.message)).collect()
    }
}

#[tokio::test]
async fn a_sweep_takes_nobody_along_whatever_tables_are_called() {
    let ebb = Ebb::with(FORUM).await;
    let both = users("") + &sweep(THREADS);
    ebb.apply(&both).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '2', 'court')").await;
    let key = r#"ALTER TABLE "App.Data"."Message.Log" ADD CONSTRAINT along FOREIGN KEY ("thread") REFERENCES "App.Data"."The ""Thread""" ON DELETE CASCADE"#;
    ebb.db.execute(key).await;
    let says = r#"deleting rows of "App.Data"."The ""Thread""" takes rows of "App.Data"."Message.Log" along"#;
    let refused = ebb.try_apply(&both).await.unwrap_err().to_string();
    assert!(refused.contains(says), "{refused}");
    let doctor = ebb.engine.doctor(&questions(&both)).await.unwrap();
    assert!(doctor.findings.iter().any(|found| found.evidence.contains(says)), "{:?}", doctor.findings);
    ebb.once("sweep").await;
    assert_eq!(
        (ebb.ids_of(r#""The ""Thread""""#).await, ebb.ids_of("\"Message.Log\"").await),
        ("10,20".into(), "100,200,300,400".into())
    );
    let stopped: String = ebb.db.scalar("SELECT stopped FROM ebb.policy WHERE name = 'sweep'").await;
    assert!(stopped.contains(says), "{stopped}");
    // Without it the gate keeps what is on hold, and nothing else.
    ebb.db.execute(r#"ALTER TABLE "App.Data"."Message.Log" DROP CONSTRAINT along"#).await;
    ebb.apply(&both).await;
    ebb.once("sweep").await;
    assert_eq!(ebb.ids_of(r#""The ""Thread""""#).await, "20");
    ebb.apply(&(users("") + &sweep(SESSIONS))).await;
    ebb.once("sweep").await;
    assert_eq!(ebb.ids_of("\"Session\"").await, "20");
}

#[tokio::test]
async fn a_policy_with_open_requests_stays_with_its_table_whatever_that_is_called() {
    let ebb = Ebb::with(FORUM).await;
    ebb.db
        .execute(
            r#"CREATE TABLE "App.Data"."Admin" ("Id" bigint PRIMARY KEY, "Deleted At" timestamptz, "Tenant.Id" text)"#,
        )
        .await;
    ebb.apply(&users("")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    let refused = ebb.try_apply(&users("").replace("\"User\"", "\"Admin\"")).await.unwrap_err().to_string();
    let says = r#"policy users has open deletions or holds of subjects of "App.Data"."User", and cannot be about "App.Data"."Admin""#;
    assert!(refused.contains(says), "{refused}");
}

#[tokio::test]
async fn a_table_of_the_tree_is_no_suspect_and_one_outside_is_named_as_it_must_be_written() {
    let ebb = Ebb::with(FORUM).await;
    assert_eq!(ebb.found_in_tree(&users("")).await, "");
    ebb.db
        .execute(r#"CREATE TABLE "App.Data"."User_Note" ("Id" bigint PRIMARY KEY); CREATE TABLE "App.Data"."Guest Book" ("userId" bigint)"#)
        .await;
    let named = ebb.found_in_tree(&users("")).await;
    assert_eq!(
        named,
        "\"App.Data\".\"Guest Book\": its column userId looks like an id of \"App.Data\".\"User\", and no foreign key says so: its rows stay\n\
         \"App.Data\".\"User_Note\": its column Id looks like an id of \"App.Data\".\"User\", and no foreign key says so: its rows stay\n"
    );
}

#[tokio::test]
async fn a_partition_that_lacks_something_is_named_as_it_must_be_written() {
    let ebb = Ebb::with(FORUM).await;
    ebb.db
        .execute(
            r#"CREATE TABLE "App.Data"."Visit" ("day" int NOT NULL, "userId" bigint, note text) PARTITION BY RANGE ("day");
               CREATE TABLE "App.Data"."Visit 1" PARTITION OF "App.Data"."Visit" FOR VALUES FROM (1) TO (2);
               CREATE TABLE "App.Data"."Visit 2" PARTITION OF "App.Data"."Visit" FOR VALUES FROM (2) TO (3);
               ALTER TABLE "App.Data"."Visit 1" ADD FOREIGN KEY ("userId") REFERENCES "App.Data"."User" ON DELETE CASCADE;
               INSERT INTO "App.Data"."Visit" SELECT 1, NULL, repeat('x', 100) FROM generate_series(1, 20000)"#,
        )
        .await;
    let found = ebb.found_in_tree(&users("")).await;
    assert!(found.contains("\"App.Data\".\"Visit\": \"App.Data\".\"Visit 2\" lacks the foreign key"), "{found}");
    ebb.db.execute(r#"ALTER TABLE "App.Data"."Visit 2" ADD FOREIGN KEY ("userId") REFERENCES "App.Data"."User" ON DELETE CASCADE"#).await;
    let refused = ebb.try_apply(&users("")).await.unwrap_err();
    assert!(refused.to_string().contains("\"App.Data\".\"Visit 1\" has no index on \"userId\""), "{refused}");
    let mends = refused.hint().unwrap().to_owned();
    assert_eq!(mends, "CREATE INDEX CONCURRENTLY ON \"App.Data\".\"Visit 1\" (\"userId\")");
    ebb.db.execute(&mends).await;
    ebb.apply(&users("")).await;
    let refused = ebb.try_apply(&users("").replace("\"User\"", "\"Visit 1\"")).await.unwrap_err();
    let says = "\"App.Data\".\"Visit 1\" is a partition of \"App.Data\".\"Visit\"";
    assert!(refused.to_string().contains(says), "{refused}");
}

#[tokio::test]
async fn subjects_live_and_go_whatever_their_tables_are_called() {
    let ebb = Ebb::with(FORUM).await;
    ebb.db.execute(r#"INSERT INTO "App.Data"."Session" SELECT 1000 + n, 3 FROM generate_series(1, 21000) n"#).await;
    ebb.apply(&users("snapshot = \"sealed\"\nsnapshot_for = \"30d\"\nmark_at_once = true")).await;
    ebb.db.execute(r#"UPDATE "App.Data"."User" SET "Deleted At" = now() WHERE "Id" IN (1, 2, 3)"#).await;
    ebb.db.execute(r#"UPDATE "App.Data"."User" SET "Deleted At" = NULL WHERE "Id" = 1"#).await;
    ebb.once("users").await;
    assert_eq!((ebb.state("1").await.as_str(), ebb.state("2").await.as_str()), ("restored", "pending"));
    ebb.db.execute("SELECT ebb.place_hold('users', '2', 'court')").await;
    let large: uuid::Uuid = ebb.db.scalar("SELECT id FROM ebb.deletion WHERE subject_id = '3'").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.ids_of("\"User\"").await, ebb.ids_of("\"Session\"").await), ("1,2,4".into(), "10,20,40".into()));
    let mut tx = ebb.engine.database().read().await.unwrap();
    let copy = open_snapshot(&mut tx, &ebb.period_keys(), large, "a test", "tester").await.unwrap();
    assert_eq!((copy.rows, copy.complete), (21_000 + 4, true));
    tx.commit().await.unwrap();
    ebb.db.execute("SELECT ebb.lift_hold('users', '2')").await;
    ebb.once("users").await;
    assert_eq!((ebb.ids_of("\"User\"").await, ebb.erased().await), ("1,4".into(), (2, 21_000 + 4 + 5)));
}
