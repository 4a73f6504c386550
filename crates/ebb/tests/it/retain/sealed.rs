//! Sealed snapshots: the copy is what went, opens with the period's key and with nothing else, and is gone when the key is.

use std::collections::BTreeMap;
use std::fs;

use ebb::Result;
use ebb::audit::{Period, PeriodKeys};
use ebb::retain::{Snapshot, open_snapshot};
use ebb::spine::Status;
use serde_json::Value;
use uuid::Uuid;

use super::found_in_ebb;
use crate::harness::{Ebb, run_once};

const SEALED: &str = "snapshot = \"sealed\"\nsnapshot_for = \"30d\"";

impl Ebb {
    async fn gone(&self, subject: u32) -> Uuid {
        self.db.execute(&format!("SELECT ebb.delete_subject('users', '{subject}')")).await;
        let deletion = format!("SELECT id FROM ebb.deletion WHERE policy = 'users' AND subject_id = '{subject}'");
        let deletion = self.db.scalar(&deletion).await;
        self.db.advance("91 days").await;
        // At noon, so that no test runs into the end of a period.
        self.db
            .execute(
                "UPDATE ebb.clock_offset SET shift = shift + ((date_trunc('day', ebb.now() AT TIME ZONE 'UTC')
                    + interval '36 hours') AT TIME ZONE 'UTC' - ebb.now())",
            )
            .await;
        deletion
    }

    async fn open(&self, keys: &PeriodKeys, deletion: Uuid) -> Result<Vec<(String, Value)>> {
        let mut tx = self.engine.database().read().await.unwrap();
        let snapshot: Snapshot = open_snapshot(&mut tx, keys, deletion, "a test", "tester").await?;
        tx.commit().await.unwrap();
        let mut tx = self.engine.database().read().await.unwrap();
        let mut rows = Vec::new();
        for part in 0..snapshot.parts() {
            for line in snapshot.part(&mut tx, part).await?.lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                rows.push((line["table"].as_str().unwrap().to_owned(), line["row"].clone()));
            }
        }
        assert_eq!((snapshot.rows, snapshot.complete), (rows.len() as i64, true));
        Ok(rows)
    }

    fn key_files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.period_keys().directory()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.contains(".key"));
        names.sort();
        names
    }
}

fn by_table(rows: &[(String, Value)]) -> BTreeMap<String, Vec<String>> {
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (table, row) in rows {
        tables.entry(table.clone()).or_default().push(row.to_string());
    }
    tables.values_mut().for_each(|rows| rows.sort());
    tables
}

#[tokio::test]
async fn a_sealed_copy_is_what_went_and_opens_until_its_key_is_destroyed() {
    let ebb = Ebb::shop(SEALED).await;
    let deletion = ebb.gone(7).await;
    let before = "SELECT jsonb_agg(jsonb_build_object('t', t, 'r', r)) FROM (
        SELECT 'public.users' AS t, row_to_json(n.*) AS r FROM users n WHERE id = 7
        UNION ALL SELECT 'public.orders', row_to_json(n.*) FROM orders n WHERE user_id = 7
        UNION ALL SELECT 'public.items', row_to_json(n.*) FROM items n WHERE order_id IN (SELECT id FROM orders WHERE user_id = 7)
        UNION ALL SELECT 'public.sessions', row_to_json(n.*) FROM sessions n WHERE user_id = 7) AS all_of_it";
    let before: Value = ebb.db.scalar(before).await;
    let before: Vec<(String, Value)> = before
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["t"].as_str().unwrap().to_owned(), row["r"].clone()))
        .collect();
    ebb.once("users").await;
    assert_eq!(ebb.rows().await, (11, 33, 66, 44));
    for word in ["secret-7", "Secret Name 7", "10.0.0.7"] {
        assert_eq!(found_in_ebb(&ebb, word).await, Vec::<String>::new(), "{word} is readable");
    }
    let details: Value = ebb.db.scalar("SELECT details FROM ebb.audit WHERE action = 'erase'").await;
    assert_eq!(details["snapshot"]["rows"], 14);

    let keys = ebb.period_keys();
    let normal = |rows: &[(String, Value)]| -> BTreeMap<String, Vec<String>> {
        // jsonb does not keep the order of columns.
        let sorted = |row: &Value| {
            let columns: BTreeMap<String, Value> = serde_json::from_value(row.clone()).unwrap();
            serde_json::to_value(columns).unwrap()
        };
        by_table(&rows.iter().map(|(table, row)| (table.clone(), sorted(row))).collect::<Vec<_>>())
    };
    let copied = ebb.open(&keys, deletion).await.unwrap();
    assert_eq!(normal(&copied), normal(&before));
    let on_record = "SELECT (by_name, details ->> 'reason')::text FROM ebb.audit WHERE action = 'open_snapshot'";
    assert_eq!(ebb.db.scalar::<String>(on_record).await, "(tester,\"a test\")");

    // Thirty days and at most one more.
    let until: bool = ebb
        .db
        .scalar("SELECT until BETWEEN ebb.now() + interval '30 days' - interval '1 minute' AND ebb.now() + interval '31 days' FROM ebb.snapshot")
        .await;
    assert!(until);
    assert_eq!(ebb.key_files().len(), 1);
    ebb.db.advance("29 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.open(&keys, deletion).await.unwrap().len(), 14);
    ebb.db.advance("2 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.key_files(), Vec::<String>::new());
    let refused = ebb.open(&keys, deletion).await.unwrap_err();
    assert!(refused.is_refused() && refused.to_string().contains("nobody can open it any more"), "{refused}");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.audit WHERE action = 'destroy_key'").await, 1);
    // A backup of the database does not know that the key is gone, and does not have it either.
    ebb.db.execute("UPDATE ebb.period_key SET destroyed_at = NULL").await;
    let refused = ebb.open(&keys, deletion).await.unwrap_err();
    assert!(refused.is_refused() && refused.to_string().contains("is not there"), "{refused}");
    run_once(&ebb.engine, &["keep"]).await.unwrap();
    let left = "SELECT (SELECT count(*) FROM ebb.snapshot) + (SELECT count(*) FROM ebb.snapshot_part)";
    assert_eq!(ebb.db.scalar::<i64>(left).await, 0, "what nobody can open is not kept");
}

#[tokio::test]
async fn a_changed_byte_a_cut_off_part_and_a_copy_in_the_wrong_place_do_not_open() {
    let ebb = Ebb::shop(SEALED).await;
    ebb.db.execute("INSERT INTO orders SELECT 90000 + n, 7, NULL, 0 FROM generate_series(1, 21000) n").await;
    let (large, small) = (ebb.gone(7).await, ebb.gone(8).await);
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 10);
    let keys = ebb.period_keys();
    assert_eq!(ebb.open(&keys, large).await.unwrap().len(), 14 + 21_000);
    let parts = format!("SELECT count(*) FROM ebb.snapshot_part WHERE deletion = '{large}'");
    assert!(ebb.db.scalar::<i64>(&parts).await > 1);
    for damage in [
        format!(
            "UPDATE ebb.snapshot_part SET sealed = set_byte(sealed, 40, 255 - get_byte(sealed, 40)) WHERE deletion = '{small}'"
        ),
        format!(
            "UPDATE ebb.snapshot SET wrapped = set_byte(wrapped, 40, 255 - get_byte(wrapped, 40)) WHERE deletion = '{small}'"
        ),
        format!("DELETE FROM ebb.snapshot_part WHERE deletion = '{small}'"),
        // Two copies change places.
        format!(
            "UPDATE ebb.snapshot s SET wrapped = o.wrapped FROM ebb.snapshot o WHERE s.deletion = '{small}' AND o.deletion = '{large}'"
        ),
        format!("UPDATE ebb.snapshot SET policy = 'others' WHERE deletion = '{small}'"),
    ] {
        ebb.db.execute("DROP TABLE IF EXISTS s, p; CREATE TABLE s AS TABLE ebb.snapshot; CREATE TABLE p AS TABLE ebb.snapshot_part").await;
        ebb.db.execute(&damage).await;
        let refused = ebb.open(&keys, small).await.unwrap_err();
        assert!(!refused.is_unavailable() && !refused.to_string().contains("secret"), "{damage}: {refused}");
        ebb.db.execute("TRUNCATE ebb.snapshot, ebb.snapshot_part; INSERT INTO ebb.snapshot TABLE s; INSERT INTO ebb.snapshot_part TABLE p").await;
    }
    // The last part says that it is the last.
    ebb.db
        .execute(&format!(
            "DELETE FROM ebb.snapshot_part p USING ebb.snapshot s WHERE s.deletion = '{large}' AND p.deletion = s.deletion AND p.part = s.parts - 1;
             UPDATE ebb.snapshot SET parts = parts - 1 WHERE deletion = '{large}'"
        ))
        .await;
    let refused = ebb.open(&keys, large).await.unwrap_err();
    assert!(refused.to_string().contains("is not what was sealed"), "{refused}");
}

#[tokio::test]
async fn without_the_periods_key_nothing_is_erased() {
    let ebb = Ebb::shop(SEALED).await;
    ebb.gone(1).await;
    // Made by a process that died before it erased anything: the key is used.
    let until: ebb::audit::Moment = ebb
        .db
        .scalar("SELECT date_trunc('day', (ebb.now() AT TIME ZONE 'UTC') + interval '31 days' - interval '1 microsecond') AT TIME ZONE 'UTC'")
        .await;
    let made = ebb.period_keys().create_if_missing(Period::ending(until).unwrap()).unwrap();
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 11);
    assert_eq!(ebb.list("key_id", "ebb.period_key").await, made.key_id());

    ebb.db.execute("SELECT ebb.delete_subject('users', '2'); UPDATE users SET deleted_at = deleted_at - interval '91 days' WHERE id = 2; UPDATE ebb.deletion SET deleted_at = deleted_at - interval '91 days', due_at = ebb.now() WHERE subject_id = '2'").await;
    let failed = async |ebb: &Ebb| {
        let finished = ebb.once("users").await;
        let erase = finished.runs.into_iter().find(|run| run.unit.starts_with("erase/")).unwrap();
        assert_eq!((erase.status, ebb.rows().await.0), (Status::Failed, 11), "{erase:?}");
        erase.note.unwrap()
    };
    let file = ebb.period_keys().directory().join(format!("{}.key", made.period()));
    let (directory, away) = (file.parent().unwrap(), file.with_extension("away"));
    fs::rename(&file, &away).unwrap();
    let said = failed(&ebb).await;
    assert!(said.contains("nothing is erased without its key") && said.contains("is not there"), "{said}");
    let doctor = ebb
        .engine
        .doctor(&ebb::doctor::Questions {
            wanted: Vec::new(),
            host_time: jiff::Timestamp::now(),
            role: None,
            embedded: false,
        })
        .await
        .unwrap();
    assert!(doctor.findings.iter().any(|found| found.check == "audit" && found.evidence.contains("is not there")));
    // Another key of that name, as a node with a directory of its own would have made.
    ebb.period_keys().create_if_missing(made.period()).unwrap();
    let said = failed(&ebb).await;
    assert!(said.contains("is not the one that node"), "{said}");
    fs::remove_file(&file).unwrap();
    let elsewhere = directory.with_extension("elsewhere");
    fs::rename(directory, &elsewhere).unwrap();
    let said = failed(&ebb).await;
    assert!(said.contains("nothing is erased without its key"), "{said}");
    fs::rename(&elsewhere, directory).unwrap();
    fs::rename(&away, &file).unwrap();
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 10);
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.snapshot WHERE complete").await, 2);
}

/// A subject is gone, its copy's day has come, and what the database says of the key.
async fn ended() -> (Ebb, String) {
    let ebb = Ebb::shop(SEALED).await;
    ebb.gone(7).await;
    ebb.once("users").await;
    ebb.db.advance("31 days").await;
    let file = ebb.key_files().remove(0);
    (ebb, file)
}

impl Ebb {
    async fn destroyed(&self) -> (i64, i64) {
        let records = "SELECT count(*) FROM ebb.audit WHERE action = 'destroy_key'";
        let keys = "SELECT count(*) FROM ebb.period_key WHERE destroyed_at IS NOT NULL";
        (self.db.scalar(records).await, self.db.scalar(keys).await)
    }

    async fn overdue(&self) -> Option<String> {
        let questions = ebb::doctor::Questions {
            wanted: Vec::new(),
            host_time: jiff::Timestamp::now(),
            role: None,
            embedded: false,
        };
        let findings = self.engine.doctor(&questions).await.unwrap().findings;
        let found = findings.into_iter().find(|found| found.check == "audit" && found.evidence.contains("its day has"));
        found.map(|found| found.evidence)
    }
}

#[tokio::test]
async fn a_key_is_on_record_as_destroyed_only_by_who_had_it() {
    let (ebb, file) = ended().await;
    // A volume that is not mounted, then its empty mount point, then a node with a directory of its own and a key of its own in it.
    let directory = ebb.period_keys().directory().to_owned();
    let elsewhere = directory.with_extension("elsewhere");
    fs::rename(&directory, &elsewhere).unwrap();
    ebb.once("users").await;
    assert_eq!(ebb.destroyed().await, (0, 0));
    let said = ebb.overdue().await.expect("doctor names the key");
    assert!(said.contains("no node has destroyed it"), "{said}");
    ebb.period_keys().create_directory().unwrap();
    ebb.once("users").await;
    assert_eq!(ebb.destroyed().await, (0, 0));
    let period: Period = Period::ending(ebb.db.scalar("SELECT until FROM ebb.period_key").await).unwrap();
    ebb.period_keys().create_if_missing(period).unwrap();
    ebb.once("users").await;
    assert_eq!((ebb.key_files().len(), ebb.destroyed().await), (0, (0, 0)), "another key of that name went");
    assert!(ebb.overdue().await.is_some() && elsewhere.join(&file).exists());
    assert_eq!(ebb.engine.status().await.unwrap().audit.overdue_keys, 1);
    fs::remove_dir_all(&directory).unwrap();
    fs::rename(&elsewhere, &directory).unwrap();
    ebb.once("users").await;
    assert_eq!((ebb.key_files().len(), ebb.destroyed().await), (0, (1, 1)));
    assert_eq!((ebb.overdue().await, ebb.engine.status().await.unwrap().audit.overdue_keys), (None, 0));
}

#[tokio::test]
async fn a_key_whose_destroyer_died_is_put_on_record_by_the_next_look() {
    // Whoever destroys dies before anything is overwritten, before the file is removed, and before the record.
    for died in ["begun", "overwritten", "removed"] {
        let (ebb, file) = ended().await;
        let path = ebb.period_keys().directory().join(file);
        let content = fs::read(&path).unwrap();
        let now: ebb::audit::Moment = ebb.db.scalar("SELECT ebb.now()").await;
        assert_eq!(ebb.period_keys().destroy_until(now).unwrap().len(), 1);
        assert_eq!(ebb.destroyed().await, (0, 0));
        match died {
            "begun" => fs::write(&path, content).unwrap(),
            "overwritten" => fs::write(&path, vec![0; content.len()]).unwrap(),
            _ => {}
        }
        ebb.once("users").await;
        assert_eq!((ebb.key_files().len(), ebb.destroyed().await), (0, (1, 1)), "{died}");
        // A backup of the database does not know of it, the directory does.
        ebb.db.execute("UPDATE ebb.period_key SET destroyed_at = NULL").await;
        ebb.once("users").await;
        assert_eq!(ebb.destroyed().await, (2, 1), "{died}");
    }
}

#[tokio::test]
async fn a_policy_that_keeps_copies_needs_somewhere_to_keep_keys() {
    let ebb = Ebb::with(super::SHOP).await;
    let bare = ebb::Engine::new(ebb.db.open(), ebb::Keys::default());
    let refused = bare.apply(&crate::harness::wanted(&super::users(SEALED)).unwrap(), false, "test").await.unwrap_err();
    assert!(refused.hint().unwrap().contains("period_keys"), "{refused}");
}

/// Replies lose their link when what they answer goes; a project names the task that leads it, an account its picture.
const THREADS: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, picture bigint, deleted_at timestamptz);
    CREATE TABLE pictures (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE);
    ALTER TABLE users ADD FOREIGN KEY (picture) REFERENCES pictures ON DELETE SET NULL;
    CREATE TABLE comments (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE,
        parent_id bigint REFERENCES comments ON DELETE SET NULL);
    CREATE TABLE projects (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE, lead_task bigint);
    CREATE TABLE tasks (id bigint PRIMARY KEY, project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE);
    ALTER TABLE projects ADD FOREIGN KEY (lead_task) REFERENCES tasks ON DELETE SET NULL;
    CREATE TABLE likes (comment_id bigint REFERENCES comments ON DELETE SET NULL, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE);
    CREATE INDEX ON users (picture); CREATE INDEX ON pictures (user_id); CREATE INDEX ON comments (user_id);
    CREATE INDEX ON comments (parent_id); CREATE INDEX ON projects (user_id); CREATE INDEX ON projects (lead_task);
    CREATE INDEX ON tasks (project_id); CREATE INDEX ON likes (comment_id); CREATE INDEX ON likes (user_id);
    INSERT INTO users VALUES (1), (2); INSERT INTO pictures VALUES (1, 1), (2, 2); UPDATE users SET picture = id;
    INSERT INTO comments VALUES (10, 1, NULL), (11, 1, 10), (12, 1, 11), (13, 2, 10);
    INSERT INTO likes VALUES (10, 1), (11, 2);
    INSERT INTO projects VALUES (1, 1), (2, 1), (3, 2); INSERT INTO tasks SELECT n, n FROM generate_series(1, 3) n;
    UPDATE projects SET lead_task = CASE id WHEN 3 THEN 1 ELSE id END;";

const PERIODIC: &str =
    "[[retain]]\nname = \"users\"\ntable = \"users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n";

#[tokio::test]
async fn what_goes_keeps_its_links_in_the_copy_and_counts_only_as_gone() {
    let ebb = Ebb::with(THREADS).await;
    ebb.apply(&format!("{PERIODIC}{SEALED}")).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let shown = ebb::retain::show(&mut tx, "users", "1").await.unwrap();
    tx.commit().await.unwrap();
    let deletion = ebb.gone(1).await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await, ebb.list("id", "comments").await), ("2".into(), "13".into()));
    let links = "SELECT (SELECT count(parent_id) FROM comments) + (SELECT count(lead_task) FROM projects) + (SELECT count(comment_id) FROM likes)";
    assert_eq!(ebb.db.scalar::<i64>(links).await, 0);
    let record: Value = ebb.db.scalar("SELECT details FROM ebb.audit WHERE action = 'erase'").await;
    let counts = |of: &Value| -> BTreeMap<String, u64> {
        let counts = of.as_object().into_iter().flatten();
        counts.map(|(table, rows)| (table.clone(), rows.as_u64().unwrap())).filter(|(_, rows)| *rows > 0).collect()
    };
    let expected = [("public.comments", 1), ("public.likes", 1), ("public.projects", 1)];
    let expected: BTreeMap<String, u64> = expected.map(|(table, rows)| (table.to_owned(), rows)).into();
    assert_eq!(counts(&record["unlinked"]), expected);
    let mut would = shown.would_unlink.clone();
    would.retain(|_, rows| *rows > 0);
    assert_eq!(would, expected);
    let copy = by_table(&ebb.open(&ebb.period_keys(), deletion).await.unwrap());
    assert_eq!(
        copy["public.comments"],
        [
            r#"{"id":10,"user_id":1,"parent_id":null}"#,
            r#"{"id":11,"user_id":1,"parent_id":10}"#,
            r#"{"id":12,"user_id":1,"parent_id":11}"#
        ]
    );
    assert_eq!(
        copy["public.projects"],
        [r#"{"id":1,"user_id":1,"lead_task":1}"#, r#"{"id":2,"user_id":1,"lead_task":2}"#]
    );
    assert_eq!(copy["public.likes"], [r#"{"comment_id":10,"user_id":1}"#]);
    assert!(copy["public.users"][0].contains(r#""picture":1"#), "{copy:?}");
}

#[tokio::test]
async fn what_goes_in_one_part_keeps_its_links_too() {
    let ebb = Ebb::with(THREADS).await;
    ebb.db.execute("INSERT INTO likes SELECT NULL, 1 FROM generate_series(1, 25000); ANALYZE likes").await;
    ebb.apply(&format!("{PERIODIC}{SEALED}")).await;
    let deletion = ebb.gone(1).await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await, ebb.list("id", "comments").await), ("2".into(), "13".into()));
    let unlinked = "SELECT (details #>> '{unlinked,public.comments}')::int8 FROM ebb.audit WHERE action = 'erase'";
    assert_eq!(ebb.db.scalar::<i64>(unlinked).await, 1);
    let copy = by_table(&ebb.open(&ebb.period_keys(), deletion).await.unwrap());
    assert_eq!(
        copy["public.comments"][1..],
        [r#"{"id":11,"user_id":1,"parent_id":10}"#, r#"{"id":12,"user_id":1,"parent_id":11}"#]
    );
    assert_eq!(copy["public.likes"].len(), 25_001);
}

/// Folders with a cover, files in them, notes: all of them large, some by how the server stores them not.
const LIBRARY: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, photo text, deleted_at timestamptz);
    CREATE TABLE folders (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE, cover bytea);
    CREATE TABLE files (id bigint PRIMARY KEY, folder_id bigint NOT NULL REFERENCES folders ON DELETE CASCADE, body text);
    CREATE TABLE notes (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE, body jsonb);
    CREATE INDEX ON folders (user_id); CREATE INDEX ON files (folder_id); CREATE INDEX ON notes (user_id);
    INSERT INTO users SELECT n, repeat('p', 3000000) FROM generate_series(1, 12) n;
    INSERT INTO folders SELECT n, 1, decode(repeat(md5(n::text), 32768), 'hex') FROM generate_series(1, 18) n;
    INSERT INTO files SELECT f * 10 + n, f, repeat(md5(f::text), 16384) FROM generate_series(1, 18) f, generate_series(1, 2) n;
    INSERT INTO notes SELECT n, 1, jsonb_build_array(repeat('x', 1000000)) FROM generate_series(1, 60) n;";

#[tokio::test]
async fn large_rows_go_in_bounded_parts_and_are_all_in_the_copy() {
    let ebb = Ebb::with(LIBRARY).await;
    ebb.apply(&format!("{PERIODIC}{SEALED}")).await;
    let before = "SELECT jsonb_object_agg(t, r) FROM (
        SELECT 'public.users' AS t, sum(length(row_to_json(n.*)::text)) AS r FROM users n WHERE id = 1
        UNION ALL SELECT 'public.folders', sum(length(row_to_json(n.*)::text)) FROM folders n
        UNION ALL SELECT 'public.files', sum(length(row_to_json(n.*)::text)) FROM files n
        UNION ALL SELECT 'public.notes', sum(length(row_to_json(n.*)::text)) FROM notes n) AS all_of_it";
    let deletion = ebb.gone(1).await;
    let before: Value = ebb.db.scalar(before).await;
    let run = ebb.once("users:erase").await.runs.remove(0);
    assert_eq!((run.status, run.failed), (Status::Success, 0), "{run:?}");
    assert_eq!(ebb.erased().await, (1, 1 + 18 + 36 + 60));
    let mut copied: BTreeMap<String, i64> = BTreeMap::new();
    for (table, row) in ebb.open(&ebb.period_keys(), deletion).await.unwrap() {
        *copied.entry(table).or_default() += row.to_string().len() as i64;
    }
    assert_eq!(serde_json::to_value(&copied).unwrap(), before);
    // 18 MB of folders, as many of files, and 60 of notes, of which the server says that they are one.
    let most: i64 = ebb.db.scalar("SELECT max(bytes)::int8 FROM (SELECT sum(length(sealed)) AS bytes FROM ebb.snapshot_part GROUP BY xmin::text) t").await;
    assert!(most < 50_000_000, "{most} bytes in one transaction");
}

#[tokio::test]
async fn subjects_with_large_rows_go_together_as_far_as_their_copies_are_bounded() {
    let ebb = Ebb::with(LIBRARY).await;
    ebb.apply(&format!("{PERIODIC}{SEALED}")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(2, 11) n").await;
    ebb.gone(12).await;
    ebb.once("users:erase").await;
    assert_eq!((ebb.ids().await.as_str(), ebb.erased().await), ("1", (11, 11)));
    let sums = "SELECT string_agg(subjects::text, ',') FROM (SELECT count(DISTINCT deletion) AS subjects FROM ebb.snapshot_part GROUP BY xmin::text ORDER BY 1) t";
    let together: String = ebb.db.scalar(sums).await;
    assert!(together.split(',').all(|subjects| subjects.parse::<u32>().unwrap() <= 5), "{together}");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.audit WHERE action = 'claim'").await, 0);
}
