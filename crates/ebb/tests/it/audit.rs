//! The audit: nothing is lost, nothing is sealed twice, and nothing that was sealed can change unnoticed.

use std::time::Duration;

use ebb::audit::{
    BlockerKind, Destination, Entry, Filter, Moment, Problem, Published, Report, RowEntry, Seal, SigningKey,
    SubjectKey, TrustedKeys, blocker, list, seal_once, unsealed, verify,
};
use ebb::pg::{Database, Guard};
use ebb_testkit::{Server, TempDir, TestDatabase, database};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::harness::run_once;

fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32])
}

struct Audit {
    test: TestDatabase,
    db: Database,
    key: SigningKey,
}

impl Audit {
    async fn new() -> Self {
        let test = database().await;
        Self { db: test.open(), test, key: key() }
    }

    /// On a server of its own, where nothing else runs.
    async fn on(server: &Server, before_migrating: &str) -> Self {
        let test = ebb_testkit::empty_database_on(server).await;
        test.execute(before_migrating).await;
        let audit = Self { db: test.open(), test, key: key() };
        ebb::pg::migrate(&audit.db).await.unwrap();
        audit
    }

    /// Sealed records in blocks of three, the last of them short, and what was published of it.
    async fn with_blocks(records: i64) -> (Self, Published) {
        let audit = Self::new().await;
        for first in (0..records).step_by(3) {
            audit.insert_together(3.min(records - first)).await;
            audit.seal_soon(3).await;
        }
        let dir = TempDir::new();
        let published = Destination::File(dir.path().join("seal")).publish(&audit.db).await.unwrap().unwrap();
        (audit, published)
    }

    /// Records of one transaction become ready for a seal together.
    async fn insert_together(&self, records: i64) {
        let mut tx = self.db.read().await.unwrap();
        for number in 0..records {
            entry(number).insert(&mut tx).await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    async fn insert(&self, records: i64) {
        for number in 0..records {
            let mut tx = self.db.read().await.unwrap();
            entry(number).insert(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
        }
    }

    async fn seal(&self, max: usize) -> Option<Seal> {
        let mut tx = self.db.begin(Guard::default()).await.unwrap();
        let seal = seal_once(&mut tx, &self.key, max).await.unwrap();
        tx.commit().await.unwrap();
        seal
    }

    /// The next block; transactions of other tests may hold it back for a moment, since xids are the whole server's.
    async fn seal_soon(&self, max: usize) -> Seal {
        let begun = std::time::Instant::now();
        loop {
            if let Some(seal) = self.seal(max).await {
                return seal;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "nothing to seal");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn seal_all(&self, max: usize) -> u64 {
        let mut blocks = 0;
        while self.seal(max).await.is_some() {
            blocks += 1;
        }
        blocks
    }

    /// Seals until nothing waits.
    async fn seal_until_done(&self) {
        ebb_testkit::eventually(Duration::from_secs(30), || async {
            self.seal_all(1000).await;
            self.unsealed().await == 0
        })
        .await;
    }

    async fn unsealed(&self) -> i64 {
        let mut tx = self.db.read().await.unwrap();
        unsealed(&mut tx, 100_000).await.unwrap()
    }

    async fn report(&self, published: Option<&Published>) -> Report {
        verify(&self.db, &self.key.trusted(), published).await.unwrap()
    }

    /// Runs statements as an attacker who owns the tables, and returns what verifying then says; nothing stays.
    async fn tampered(&self, sql: &str, published: Option<&Published>) -> Vec<Problem> {
        let saved = ["audit", "audit_block", "audit_leaf", "audit_pending"];
        let save = saved.map(|table| format!("CREATE TABLE IF NOT EXISTS saved.{table} AS TABLE ebb.{table};"));
        let restore = saved.map(|table| {
            format!("DELETE FROM ebb.{table}; INSERT INTO ebb.{table} OVERRIDING SYSTEM VALUE TABLE saved.{table};")
        });
        let past_triggers = "SET LOCAL session_replication_role = replica";
        self.test
            .execute(&format!("CREATE SCHEMA IF NOT EXISTS saved; {} {past_triggers}; {sql}", save.concat()))
            .await;
        let problems = self.report(published).await.problems;
        self.test.execute(&format!("{past_triggers}; {}", restore.concat())).await;
        problems
    }

    async fn session(&self) -> PgConnection {
        PgConnection::connect(self.test.url()).await.unwrap()
    }
}

const TABLES: [&str; 4] = ["audit", "audit_block", "audit_leaf", "audit_pending"];

fn entry(number: i64) -> Entry {
    Entry {
        policy: Some("sessions".into()),
        policy_version: Some(1),
        relation: Some("public.sessions".into()),
        rows: number,
        cutoff: Some(Moment::from_micros(1_700_000_000_000_000 + number)),
        due_from: Some(Moment::NEG_INFINITY),
        due_to: Some(Moment::from_micros(1_699_999_999_000_000)),
        run: Some(number),
        node: Some("a".into()),
        subject: Some([9; 32]),
        details: serde_json::json!({ "why": "due", "at": 1.5 }),
        ..Entry::new("expire", "ebb")
    }
}

async fn run(connection: &mut PgConnection, sql: &str) {
    if let Err(error) = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await {
        panic!("{error}\nin: {sql}");
    }
}

const INSERT: &str = "INSERT INTO ebb.audit (action, by_name) VALUES ('expire', 'test')";

#[tokio::test(flavor = "multi_thread")]
async fn records_are_listed_as_they_were_inserted() {
    let audit = Audit::new().await;
    audit.insert(3).await;
    let mut tx = audit.db.read().await.unwrap();
    let other = Entry { policy: Some("other".into()), ..Entry::new("policy", "someone") };
    let id = other.insert(&mut tx).await.unwrap();

    let all = list(&mut tx, &Filter::default()).await.unwrap();
    assert_eq!(all.len(), 4);
    assert_eq!(all[0].id, id);
    assert_eq!((all[0].by.as_str(), all[0].details.as_str(), all[0].cutoff), ("someone", "{}", None));
    assert_eq!(all[1].due_from, Some(Moment::NEG_INFINITY));
    assert_eq!(all[1].cutoff, Some(Moment::from_micros(1_700_000_000_000_002)));
    assert_eq!(all[1].subject.as_deref(), Some(&[9; 32][..]));
    let json = serde_json::to_value(&all[1]).unwrap();
    assert_eq!(json["due_from"], "-infinity");
    assert_eq!(json["cutoff"], "2023-11-14T22:13:20.000002Z");

    let filter = Filter { policy: Some("sessions".into()), limit: Some(2), ..Filter::default() };
    let page = list(&mut tx, &filter).await.unwrap();
    assert_eq!(page.iter().map(|record| record.rows).collect::<Vec<_>>(), [2, 1]);
    let rest = list(&mut tx, &Filter { after: Some(page[1].id), ..filter }).await.unwrap();
    assert_eq!(rest.iter().map(|record| record.rows).collect::<Vec<_>>(), [0]);
    let since = Filter { since: Some(all[0].at), action: Some("policy".into()), ..Filter::default() };
    assert_eq!(list(&mut tx, &since).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_records_keep_pseudonym_and_due_time_and_not_the_key() {
    let audit = Audit::new().await;
    let subject_key = SubjectKey::from_bytes([5; 32]);
    let rows: Vec<RowEntry> = (0..5000)
        .map(|i| RowEntry::new(&subject_key, &format!("user-{i}"), (i != 3).then(|| Moment::from_micros(i))))
        .collect();
    let mut tx = audit.db.read().await.unwrap();
    assert_eq!(entry(0).insert_rows(&mut tx, &rows).await.unwrap(), 5000);
    assert_eq!(entry(0).insert_rows(&mut tx, &[]).await.unwrap(), 0);
    tx.commit().await.unwrap();

    let mut tx = audit.db.read().await.unwrap();
    let mut records = list(&mut tx, &Filter { limit: Some(5000), ..Filter::default() }).await.unwrap();
    tx.commit().await.unwrap();
    records.reverse();
    for (record, row) in records.iter().zip(&rows) {
        assert_eq!((record.subject.as_deref(), record.rows), (Some(&row.subject[..]), 1));
        assert_eq!((record.due_from, record.due_to), (row.due, row.due));
    }
    audit.seal_until_done().await;
    let report = audit.report(None).await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(report.records, 5000);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_bounded_and_the_last_says_that_nothing_remains() {
    let audit = Audit::new().await;
    assert_eq!(audit.seal(3).await, None);
    audit.insert_together(7).await;
    for expected in [(1, 3, true), (2, 3, true), (3, 1, false)] {
        let seal = audit.seal_soon(3).await;
        assert_eq!((seal.block.number, seal.block.records, seal.more), expected);
    }
    assert_eq!(audit.seal(3).await, None);
    let report = audit.report(None).await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!((report.records, report.unsealed), (7, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_any_column_of_a_record_is_found() {
    let (audit, published) = Audit::with_blocks(7).await;
    let changes = [
        "xid = '1'",
        "at = at + interval '1 microsecond'",
        "action = 'Expire'",
        "policy = 'session'",
        "policy = NULL",
        "policy_version = 2",
        "relation = 'public.session'",
        "rows = rows + 1",
        "cutoff = cutoff + interval '1 microsecond'",
        "due_from = due_to",
        "due_to = NULL",
        "run = NULL",
        "node = ''",
        "by_name = 'else'",
        "session_role = 'else'",
        "subject = set_byte(subject, 31, 8)",
        "details = '{\"at\": 1.50, \"why\": \"due\"}'",
    ];
    for change in changes {
        let sql = format!("UPDATE ebb.audit SET {change} WHERE id = 2");
        let problems = audit.tampered(&sql, Some(&published)).await;
        assert_eq!(problems, [Problem::RecordChanged { record: 2, block: 1 }], "{change}");
    }
    let columns: i64 = audit
        .test
        .scalar("SELECT count(*) FROM pg_attribute WHERE attrelid = 'ebb.audit'::regclass AND attnum > 0")
        .await;
    assert_eq!(columns, 17, "a new column belongs into the encoding and into this test");
    assert_eq!(
        Problem::RecordChanged { record: 2, block: 1 }.to_string(),
        "record 2 was changed after it was sealed in block 1"
    );
    assert!(audit.report(Some(&published)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_any_column_of_a_block_is_found() {
    let (audit, published) = Audit::with_blocks(7).await;
    let changes = [
        "number = 17",
        "previous = set_byte(previous, 0, get_byte(previous, 0) # 1)",
        "root = set_byte(root, 31, get_byte(root, 31) # 1)",
        "root = ''",
        "records = records + 1",
        "sealed_at = sealed_at + interval '1 microsecond'",
        "sealed_at = 'infinity'",
        "key_id = 'ffffffffffffffff'",
        "signature = set_byte(signature, 5, get_byte(signature, 5) # 1)",
        "signature = ''",
        "seal = set_byte(seal, 5, get_byte(seal, 5) # 1)",
    ];
    for block in 1..=3 {
        for change in changes {
            let sql = format!("UPDATE ebb.audit_block SET {change} WHERE number = {block}");
            let problems = audit.tampered(&sql, Some(&published)).await;
            assert!(!problems.is_empty(), "{change} of block {block}");
        }
    }
    for byte in 0..64 {
        let sql = format!(
            "UPDATE ebb.audit_block SET signature = set_byte(signature, {byte}, get_byte(signature, {byte}) # 128)
             WHERE number = 2"
        );
        let problems = audit.tampered(&sql, None).await;
        assert!(problems.contains(&Problem::BlockSignatureWrong { block: 2 }), "byte {byte}: {problems:?}");
    }
    assert!(audit.report(Some(&published)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_inserted_and_moved_records_are_found() {
    let (audit, published) = Audit::with_blocks(7).await;
    let insert = "INSERT INTO ebb.audit (id, xid, action, by_name) OVERRIDING SYSTEM VALUE
                  SELECT 1000, xid, 'expire', 'ebb' FROM ebb.audit WHERE id = 4";
    let cases: [(&str, &[Problem]); 10] = [
        ("DELETE FROM ebb.audit WHERE id = 5", &[Problem::RecordDeleted { record: 5, block: 2 }]),
        (
            "DELETE FROM ebb.audit WHERE id = 5; DELETE FROM ebb.audit_leaf WHERE record = 5",
            &[Problem::BlockCountWrong { block: 2, signed: 3, listed: 2 }],
        ),
        (
            "DELETE FROM ebb.audit_leaf WHERE record = 7",
            &[Problem::BlockCountWrong { block: 3, signed: 1, listed: 0 }, Problem::RecordForgotten { record: 7 }],
        ),
        (insert, &[Problem::RecordForgotten { record: 1000 }]),
        (
            "INSERT INTO ebb.audit_leaf SELECT 2, 3, record + 100, hash FROM ebb.audit_leaf WHERE record = 5",
            &[
                Problem::RecordDeleted { record: 105, block: 2 },
                Problem::BlockCountWrong { block: 2, signed: 3, listed: 4 },
            ],
        ),
        (
            "UPDATE ebb.audit_leaf SET position = -1 - position WHERE block = 1 AND position < 2;
             UPDATE ebb.audit_leaf SET position = 2 + position WHERE block = 1 AND position < 0",
            &[Problem::BlockRootWrong { block: 1 }],
        ),
        (
            "UPDATE ebb.audit_leaf SET position = 5 WHERE block = 1 AND position = 2",
            &[Problem::BlockRootWrong { block: 1 }],
        ),
        (
            "UPDATE ebb.audit_leaf SET hash = set_byte(hash, 0, get_byte(hash, 0) # 1) WHERE record = 7",
            &[Problem::RecordChanged { record: 7, block: 3 }, Problem::BlockRootWrong { block: 3 }],
        ),
        (
            "UPDATE ebb.audit_leaf SET block = 9 WHERE record = 7",
            &[Problem::BlockCountWrong { block: 3, signed: 1, listed: 0 }, Problem::EntriesWithoutBlock { block: 9 }],
        ),
        ("INSERT INTO ebb.audit_pending VALUES (500, '3')", &[Problem::RecordDeletedUnsealed { record: 500 }]),
    ];
    for (sql, expected) in cases {
        assert_eq!(audit.tampered(sql, Some(&published)).await, expected, "{sql}");
    }
    let both = "INSERT INTO ebb.audit_pending SELECT id, xid FROM ebb.audit WHERE id = 2";
    assert_eq!(audit.tampered(both, Some(&published)).await, [Problem::RecordWaitsSealed { record: 2 }]);
    let repeated = "DROP INDEX ebb.audit_leaf_record;
                    INSERT INTO ebb.audit_leaf SELECT 3, 1, record, hash FROM ebb.audit_leaf WHERE record = 1";
    assert_eq!(
        audit.tampered(repeated, Some(&published)).await,
        [Problem::BlockCountWrong { block: 3, signed: 1, listed: 2 }, Problem::RecordRepeated { record: 1 },]
    );
    assert!(audit.report(Some(&published)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_blocks_and_a_cut_off_tail_are_found() {
    let (audit, published) = Audit::with_blocks(12).await;
    assert_eq!(published.number, 4);
    let middle = "DELETE FROM ebb.audit_block WHERE number = 2";
    assert_eq!(audit.tampered(middle, None).await, [Problem::BlockMissing { from: 2, to: 2 }]);

    let tail = "DELETE FROM ebb.audit USING ebb.audit_leaf WHERE record = id AND block > 2;
                DELETE FROM ebb.audit_leaf WHERE block > 2; DELETE FROM ebb.audit_block WHERE number > 2";
    assert_eq!(audit.tampered(tail, None).await, [], "without the published seal nobody can tell");
    assert_eq!(audit.tampered(tail, Some(&published)).await, [Problem::TailCutOff { published: 4, last: 2 }]);
    let everything = "TRUNCATE ebb.audit, ebb.audit_leaf, ebb.audit_block";
    assert_eq!(audit.tampered(everything, Some(&published)).await, [Problem::TailCutOff { published: 4, last: 0 }]);

    let forged = Published { seal: hex::encode([1; 32]), ..published.clone() };
    assert_eq!(
        audit.report(Some(&forged)).await.problems,
        [
            Problem::PublishedDiffers { block: 4 },
            Problem::PublishedUntrusted { block: 4, key_id: published.key_id.clone() },
        ]
    );
    assert!(audit.report(Some(&published)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_signed_again_with_a_foreign_key_is_found() {
    let (mut audit, published) = Audit::with_blocks(5).await;
    let ours = audit.key.trusted();
    // An attacker who owns the database changes a record and seals everything again.
    audit
        .test
        .execute(
            "SET session_replication_role = replica; TRUNCATE ebb.audit_leaf, ebb.audit_block;
             UPDATE ebb.audit SET rows = 0; INSERT INTO ebb.audit_pending SELECT id, xid FROM ebb.audit;
             RESET session_replication_role",
        )
        .await;
    audit.key = SigningKey::from_seed(&[8; 32]);
    audit.seal_until_done().await;
    assert!(audit.report(None).await.is_ok(), "by its own key the forged chain is consistent");

    let report = verify(&audit.db, &ours, Some(&published)).await.unwrap();
    let key_id = audit.key.key_id().to_owned();
    assert!(report.problems.contains(&Problem::BlockKeyUntrusted { block: 1, key_id }), "{report:?}");
    // Claiming the trusted key's id does not help.
    audit.test.execute(&format!("UPDATE ebb.audit_block SET key_id = '{}'", key().key_id())).await;
    let report = verify(&audit.db, &ours, None).await.unwrap();
    assert!(report.problems.contains(&Problem::BlockSignatureWrong { block: 1 }), "{report:?}");
    assert!(!verify(&audit.db, &TrustedKeys::default(), None).await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_a_former_key_verify_after_rotation() {
    let dir = TempDir::new();
    let path = dir.path().join("audit.key");
    let mut audit = Audit::new().await;
    audit.key = SigningKey::create_if_missing(&path).unwrap();
    audit.insert(2).await;
    audit.seal_until_done().await;
    audit.key = SigningKey::rotate(&path).unwrap();
    audit.insert(2).await;
    audit.seal_until_done().await;
    let trusted = TrustedKeys::beside(&path).unwrap();
    let report = verify(&audit.db, &trusted, None).await.unwrap();
    assert!(report.is_ok(), "{report:?}");
    assert!(!audit.report(None).await.is_ok(), "the new key alone does not vouch for the old blocks");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_seal_is_not_replaced_by_one_of_another_chain() {
    let dir = TempDir::new();
    let destination = Destination::beside(&dir.path().join("audit.key"));
    assert_eq!(destination, Destination::File(dir.path().join("audit.key.seal")));
    let audit = Audit::new().await;
    assert_eq!(destination.publish(&audit.db).await.unwrap(), None);
    audit.insert_together(6).await;
    audit.seal_soon(3).await;
    let first = destination.publish(&audit.db).await.unwrap().unwrap();
    assert_eq!(destination.read().unwrap().unwrap(), first);
    audit.seal_soon(1).await;
    let last = destination.publish(&audit.db).await.unwrap().unwrap();
    assert!(last.number > first.number);
    assert_eq!(destination.publish(&audit.db).await.unwrap().unwrap(), last);
    assert!(audit.report(destination.read().unwrap().as_ref()).await.is_ok());

    audit.test.execute(&format!("DELETE FROM ebb.audit_block WHERE number = {}", last.number)).await;
    audit.insert(1).await;
    let refused = destination.publish(&audit.db).await.unwrap_err();
    assert!(refused.is_refused() && refused.hint().is_some(), "{refused:?}");
    assert_eq!(destination.read().unwrap().unwrap(), last);
}

#[tokio::test]
async fn a_seal_that_could_not_be_published_is_published_later() {
    let audit = Audit::new().await;
    let dir = TempDir::new();
    let (signing, missing) = (dir.path().join("audit.key"), dir.path().join("missing"));
    SigningKey::create_if_missing(&signing).unwrap();
    let publish = Destination::File(missing.join("seal"));
    let keys = ebb::Keys { signing: Some(signing), publish: Some(publish.clone()), ..ebb::Keys::default() };
    let engine = ebb::Engine::new(audit.test.open(), keys);
    let seal = async || run_once(&engine, &["audit:seal"]).await.unwrap();
    let named = async || {
        let host_time = jiff::Timestamp::now();
        let asked = ebb::doctor::Questions { wanted: Vec::new(), host_time, role: None, embedded: false };
        let found = engine.doctor(&asked).await.unwrap().findings;
        found.into_iter().find(|found| found.evidence.contains("sealed and not published"))
    };
    audit.insert(3).await;
    ebb_testkit::eventually(Duration::from_secs(30), || async {
        seal().await;
        audit.unsealed().await == 0
    })
    .await;
    assert_eq!(publish.read().unwrap(), None);
    assert!(named().await.is_none(), "it was made a moment ago");
    audit.test.execute("UPDATE ebb.audit_block SET sealed_at = sealed_at - interval '2 minutes'").await;
    assert!(named().await.is_some_and(|found| found.severity == ebb::doctor::Severity::Warn));

    // Nothing new is to be sealed: what is behind is published all the same.
    std::fs::create_dir(&missing).unwrap();
    seal().await;
    let last: i64 = audit.test.scalar("SELECT max(number) FROM ebb.audit_block").await;
    assert_eq!(publish.read().unwrap().map(|published| published.number), Some(last));
    assert!(named().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sealed_past_a_transaction_that_may_still_commit() {
    let audit = Audit::new().await;
    let (mut early, mut late) = (audit.session().await, audit.session().await);
    let mut early = early.begin().await.unwrap();
    run(&mut early, INSERT).await;
    let mut late = late.begin().await.unwrap();
    run(&mut late, INSERT).await;
    late.commit().await.unwrap();
    assert_eq!(audit.seal(10).await, None, "the later record waits for the earlier one");
    assert_eq!(audit.unsealed().await, 1);
    let mut tx = audit.db.read().await.unwrap();
    assert_eq!(blocker(&mut tx).await.unwrap(), None, "nothing has waited for a minute");
    tx.commit().await.unwrap();

    early.commit().await.unwrap();
    audit.seal_until_done().await;
    let order: Vec<i64> = sqlx::query_scalar("SELECT record FROM ebb.audit_leaf ORDER BY block, position")
        .fetch_all(audit.test.pool())
        .await
        .unwrap();
    assert_eq!(order, [1, 2]);
    assert!(audit.report(None).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_in_another_database_holds_sealing_back_and_is_named() {
    // Its own server: transactions of other tests would be named instead.
    let server = ebb_testkit::own_server();
    let audit = Audit::on(&server, "SELECT 1").await;

    let elsewhere = ebb_testkit::empty_database_on(&server).await;
    let mut writer = PgConnection::connect(elsewhere.url()).await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut writer).await.unwrap();
    let mut writer = writer.begin().await.unwrap();
    run(&mut writer, "CREATE TABLE t ()").await;

    audit
        .test
        .execute("INSERT INTO ebb.audit (at, action, by_name) VALUES (now() - interval '2 minutes', 'expire', 'test')")
        .await;
    assert_eq!(audit.seal(10).await, None);
    let mut tx = audit.db.read().await.unwrap();
    let found = blocker(&mut tx).await.unwrap().unwrap();
    assert_eq!((found.kind.clone(), found.record), (BlockerKind::Process(pid), 1));
    assert_eq!(found.database.as_deref(), Some(elsewhere.name()));
    assert!(found.to_string().starts_with(&format!("process {pid} in database")), "{found}");
    tx.commit().await.unwrap();
    writer.rollback().await.unwrap();

    let mut prepared = PgConnection::connect(elsewhere.url()).await.unwrap();
    run(&mut prepared, "BEGIN; CREATE TABLE t (); PREPARE TRANSACTION 'left behind'").await;
    audit.seal_all(10).await;
    assert_eq!(audit.unsealed().await, 0, "the prepared transaction came after the record");
    audit
        .test
        .execute("INSERT INTO ebb.audit (at, action, by_name) VALUES (now() - interval '2 minutes', 'expire', 'test')")
        .await;
    assert_eq!(audit.seal(10).await, None);
    let mut tx = audit.db.read().await.unwrap();
    let found = blocker(&mut tx).await.unwrap().unwrap();
    assert_eq!(found.kind, BlockerKind::Prepared("left behind".into()));
    tx.commit().await.unwrap();
    run(&mut prepared, "ROLLBACK PREPARED 'left behind'").await;
    assert_eq!(audit.seal(10).await.unwrap().block.records, 1);
    let mut tx = audit.db.read().await.unwrap();
    assert_eq!(blocker(&mut tx).await.unwrap(), None);
    tx.commit().await.unwrap();
    assert!(audit.report(None).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_record_is_sealed_once_it_is_committed() {
    let audit = Audit::new().await;
    let name = format!("audit {}", audit.test.name());
    let mut session = audit.session().await;
    run(&mut session, &format!("BEGIN; {INSERT}; PREPARE TRANSACTION '{name}'")).await;
    audit.insert(1).await;
    assert_eq!(audit.seal(10).await, None);
    run(&mut session, &format!("COMMIT PREPARED '{name}'")).await;
    audit.seal_until_done().await;
    let report = audit.report(None).await;
    assert!(report.is_ok() && report.records == 2, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rolled_back_records_leave_gaps_that_are_no_problem() {
    let audit = Audit::new().await;
    for number in 0..6 {
        let mut tx = audit.db.read().await.unwrap();
        entry(number).insert(&mut tx).await.unwrap();
        if number % 2 == 0 {
            tx.rollback().await.unwrap();
        } else {
            tx.commit().await.unwrap();
        }
    }
    audit.seal_until_done().await;
    let report = audit.report(None).await;
    assert!(report.is_ok() && report.records == 3, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_from_another_cluster_are_sealed_whatever_their_xids() {
    let audit = Audit::new().await;
    let with_xid =
        |xid: &str| format!("INSERT INTO ebb.audit (xid, action, by_name) VALUES ('{xid}', 'expire', 'test')");
    // A dump of a cluster that was far ahead, sealed and unsealed; then this cluster's own, lower, xids.
    audit.test.execute(&with_xid("9000000000000000000")).await;
    audit.test.execute(&with_xid("18446744073709551615")).await;
    assert_eq!(audit.seal(10).await.unwrap().block.records, 2, "settled, whatever runs here");
    audit.insert(2).await;
    audit.test.execute(&with_xid("5")).await;
    audit.test.execute(&with_xid("8000000000000000000")).await;
    audit.seal_until_done().await;
    let report = audit.report(None).await;
    assert!(report.is_ok() && report.records == 6, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_sealers_one_fails_cleanly() {
    let audit = Audit::new().await;
    // An xid of another cluster: ready at once, whatever else runs on this server.
    audit
        .test
        .execute("INSERT INTO ebb.audit (xid, action, by_name) VALUES ('9000000000000000000', 'expire', 'test')")
        .await;
    let guard = Guard { lock: Duration::from_secs(20), ..Guard::default() };
    let mut first = audit.db.begin(guard).await.unwrap();
    let sealed = seal_once(&mut first, &audit.key, 10).await.unwrap().unwrap();
    let (db, second_key) = (audit.db.clone(), key());
    let second = tokio::spawn(async move {
        let mut tx = db.begin(guard).await.unwrap();
        seal_once(&mut tx, &second_key, 10).await
    });
    ebb_testkit::eventually(Duration::from_secs(20), || async {
        let waits: i64 = audit
            .test
            .scalar(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' AND pid IN
                     (SELECT pid FROM pg_stat_activity WHERE datname = current_database())",
            )
            .await;
        waits == 1
    })
    .await;
    first.commit().await.unwrap();
    let refused = second.await.unwrap().unwrap_err();
    assert!(refused.is_fenced(), "{refused:?}");
    assert_eq!(sealed.block.number, 1);
    assert_eq!(audit.seal(10).await, None);
    let report = audit.report(None).await;
    assert!(report.is_ok() && report.blocks == 1, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_and_sealers_lose_nothing_and_seal_nothing_twice() {
    let audit = Audit::new().await;
    const WRITERS: i64 = 6;
    const EACH: i64 = 40;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let mut session = audit.session().await;
        writers.spawn(async move {
            for number in 0..EACH {
                let mut tx = session.begin().await.unwrap();
                run(&mut tx, INSERT).await;
                // Some take long, some roll back a part or everything.
                if (number + writer) % 5 == 0 {
                    run(&mut tx, "SELECT pg_sleep(0.02)").await;
                }
                run(&mut tx, &format!("SAVEPOINT s; {INSERT}; ROLLBACK TO s; {INSERT}")).await;
                if (number + writer) % 7 == 0 { tx.rollback().await.unwrap() } else { tx.commit().await.unwrap() }
            }
        });
    }
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut sealers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (db, stopped) = (audit.db.clone(), stopped.clone());
        sealers.spawn(async move {
            while !*stopped.borrow() {
                let mut tx = db.begin(Guard::default()).await.unwrap();
                match seal_once(&mut tx, &key(), 7).await {
                    Ok(_) => tx.commit().await.unwrap(),
                    Err(error) => {
                        assert!(error.is_fenced() || error.sqlstate().as_deref() == Some("55P03"), "{error:?}")
                    }
                }
            }
        });
    }
    let mut reports = 0;
    while !writers.is_empty() {
        let report = audit.report(None).await;
        assert!(report.is_ok(), "verifying while sealing goes on: {report:?}");
        reports += 1;
        while let Some(done) = writers.try_join_next() {
            done.unwrap();
        }
    }
    stop.send(true).unwrap();
    while let Some(done) = sealers.join_next().await {
        done.unwrap();
    }
    audit.seal_until_done().await;
    let rolled_back = (0..WRITERS).flat_map(|w| (0..EACH).filter(move |n| (n + w) % 7 == 0)).count() as u64;
    let report = audit.report(None).await;
    assert!(report.is_ok() && reports > 0, "{report:?}");
    assert_eq!(report.records, 2 * ((WRITERS * EACH) as u64 - rolled_back));
    assert_eq!(report.unsealed, 0);
    // With no xid of another cluster, the chain as a whole is in the order of transactions.
    let disorder: i64 = audit
        .test
        .scalar(
            "SELECT count(*) FROM (SELECT a.xid, lag(a.xid) OVER (ORDER BY l.block, l.position) AS before
             FROM ebb.audit_leaf l JOIN ebb.audit a ON a.id = l.record) x WHERE before > xid",
        )
        .await;
    assert_eq!(disorder, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_can_seal_and_cannot_change_the_audit() {
    // Its own server: roles are the whole server's.
    let server = ebb_testkit::own_server();
    let audit = Audit::on(&server, "CREATE ROLE ebb_node").await;
    let as_node = || async {
        let mut tx = audit.db.read().await.unwrap();
        run(&mut tx, "SET LOCAL ROLE ebb_node").await;
        tx
    };
    let mut tx = as_node().await;
    entry(1).insert(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = as_node().await;
    assert!(seal_once(&mut tx, &audit.key, 10).await.unwrap().is_some());
    tx.commit().await.unwrap();
    let mut tx = as_node().await;
    assert_eq!(blocker(&mut tx).await.unwrap(), None);
    assert_eq!(unsealed(&mut tx, 10).await.unwrap(), 0);
    tx.commit().await.unwrap();

    let mut forbidden = vec!["INSERT INTO ebb.audit_pending VALUES (9, '9')".to_owned()];
    for (table, column) in TABLES.iter().zip(["rows", "records", "position", "record"]) {
        forbidden.push(format!("UPDATE ebb.{table} SET {column} = 9"));
        forbidden.push(format!("DELETE FROM ebb.{table}"));
        forbidden.push(format!("TRUNCATE ebb.{table}"));
    }
    for sql in forbidden {
        let mut tx = as_node().await;
        let error = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *tx).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("42501"), "{sql}");
    }
    let report = audit.report(None).await;
    assert!(report.is_ok() && report.records == 1, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_dump_verifies_and_its_chain_goes_on() {
    let server = ebb_testkit::own_server();
    let (old, published) = Audit::with_blocks(4).await;
    // The old cluster is far ahead of the new one.
    old.test.execute("DO $$ BEGIN FOR i IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$").await;
    old.insert(2).await;
    old.seal_soon(1).await;
    old.insert(3).await;

    let new = ebb_testkit::empty_database_on(&server).await;
    if !old.test.restore_into(&new, &server, &["-n", "ebb"]) {
        return;
    }

    let audit = Audit { db: new.open(), test: new, key: key() };
    let behind: bool = audit
        .test
        .scalar(
            "SELECT max(xid::text::numeric) > pg_snapshot_xmax(pg_current_snapshot())::text::numeric FROM ebb.audit",
        )
        .await;
    assert!(behind, "the new cluster's xids are lower");
    let report = audit.report(Some(&published)).await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(report.records + report.unsealed, 9);
    audit.insert(2).await;
    audit.seal_until_done().await;
    let report = audit.report(Some(&published)).await;
    assert!(report.is_ok() && report.records == 11, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_for_work_does_not_grow_with_what_is_sealed() {
    let audit = Audit::new().await;
    audit
        .test
        .execute(
            "INSERT INTO ebb.audit (action, by_name) SELECT 'expire', 'test' FROM generate_series(1, 50000);
             INSERT INTO ebb.audit_leaf SELECT 1, id, id, '' FROM ebb.audit;
             INSERT INTO ebb.audit (action, by_name) SELECT 'expire', 'test' FROM generate_series(1, 20);
             ANALYZE ebb.audit, ebb.audit_leaf",
        )
        .await;
    // Then a burst that the statistics have not seen.
    audit.test.execute("VACUUM (ANALYZE) ebb.audit_pending").await;
    audit
        .test
        .execute("INSERT INTO ebb.audit (action, by_name) SELECT 'expire', 'x' FROM generate_series(1, 50000)")
        .await;
    let mut tx = audit.db.read().await.unwrap();
    run(&mut tx, include_str!("../../src/audit/sql/prepare_seal.sql")).await;
    let sealable = include_str!("../../src/audit/sql/sealable.sql").replace("$1", "10001");
    let plan: Vec<String> =
        sqlx::query_scalar(AssertSqlSafe(format!("EXPLAIN (COSTS OFF) {sealable}"))).fetch_all(&mut *tx).await.unwrap();
    let plan = plan.join("\n");
    assert!(!plan.contains("Seq Scan") && !plan.contains("audit_leaf"), "{plan}");
    assert_eq!(plan.matches("using audit_pending_order").count(), 2, "{plan}");
    assert!(plan.contains("using audit_pkey"), "{plan}");
}
