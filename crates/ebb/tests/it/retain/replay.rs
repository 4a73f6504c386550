//! Erasures that are done again after a backup came back, and whoever only looks like one of them.

use ebb::audit::SubjectKey;
use ebb::retain::{PastErasure, Replay, past_erasures, replay};

use super::users;
use crate::harness::Ebb;

/// (there again, left alone) of what a replay finds; it takes them unless it only looks.
async fn replayed(ebb: &Ebb, erasures: &[PastErasure], live: bool) -> (u64, u64) {
    let key = SubjectKey::load(&ebb.keys().join("subject.key")).unwrap();
    let mut tx = ebb.engine.database().read().await.unwrap();
    let found = replay(&mut tx, &key, erasures, Replay { only_look: false, live, by: "test" }).await.unwrap();
    tx.commit().await.unwrap();
    assert!(found.refused.is_empty(), "{found:?}");
    (found.back[0].1, found.live[0].1)
}

async fn on_record(ebb: &Ebb) -> Vec<PastErasure> {
    past_erasures(&mut ebb.client().await).await.unwrap()
}

/// Subject 1, with the soft delete of a moment, is erased.
async fn erase(ebb: &Ebb) {
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users WHERE id = 1").await, "");
}

#[tokio::test]
async fn whoever_registers_again_under_the_same_key_is_not_taken_for_who_was_erased() {
    let ebb = Ebb::shop("").await;
    erase(&ebb).await;
    let first = on_record(&ebb).await;

    // The database remembers it: whoever lives under that key came later, or says so.
    ebb.db.execute("INSERT INTO users (id, email) VALUES (1, 'new@example.test')").await;
    assert_eq!(replayed(&ebb, &first, false).await, (0, 1));
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 1").await;
    assert_eq!(replayed(&ebb, &first, false).await, (0, 1), "deleted later than who was erased");
    assert!(!ebb.db.scalar::<bool>("SELECT EXISTS (SELECT FROM ebb.deletion WHERE subject_id = '1')").await);

    // A row as it was when it was erased is the one that was.
    let erased_at = "UPDATE users SET deleted_at = (SELECT (details ->> 'soft_deleted_at')::timestamptz FROM ebb.audit
        WHERE action = 'erase') WHERE id = 1";
    ebb.db.execute(erased_at).await;
    assert_eq!(replayed(&ebb, &first, false).await, (1, 0));
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users WHERE id = 1").await, "");

    // Somebody says that a backup of the table brought it back.
    ebb.db.execute("INSERT INTO users (id, email) VALUES (1, 'back@example.test')").await;
    assert_eq!(replayed(&ebb, &first, true).await, (1, 0));
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users WHERE id = 1").await, "");
}

#[tokio::test]
async fn whoever_went_along_with_another_is_found_too_whatever_times_other_rows_have() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz); INSERT INTO users VALUES (1), (2);
         CREATE TABLE members (org bigint NOT NULL REFERENCES users ON DELETE CASCADE, name text PRIMARY KEY, deleted_at timestamptz);
         INSERT INTO members VALUES (1, 'ayu'), (2, 'tari')",
    )
    .await;
    let own = "[[retain]]\nname = \"members\"\ntable = \"members\"\ndeleted_at = \"deleted_at\"\ngrace = \"365d\"\n";
    let children = "children = [{ table = \"members\", column = \"org\", action = \"delete\" }]";
    ebb.apply(&format!("{own}{}", users(children))).await;
    erase(&ebb).await;
    let erasures = on_record(&ebb).await;
    assert_eq!(erasures.len(), 2);
    // Tables came back from a backup in which she was a member elsewhere; nothing remembers the erasure.
    ebb.db.execute("DELETE FROM ebb.audit WHERE action = 'erase_along'; INSERT INTO members VALUES (2, 'ayu')").await;
    ebb.db.execute("INSERT INTO users VALUES (7, '294276-01-01'), (8, '4713-01-01 BC'); INSERT INTO members VALUES (2, 'x', '294276-01-01')").await;
    assert_eq!(replayed(&ebb, &erasures, false).await, (1, 0), "of the members");
    ebb.once("members").await;
    assert_eq!(ebb.list("name", "members").await, "tari,x");
}

#[tokio::test]
async fn a_database_from_a_backup_does_not_remember_and_loses_whoever_was_erased_since() {
    let ebb = Ebb::shop("").await;
    erase(&ebb).await;
    // Another person takes the key, and is erased after the backup was made.
    ebb.db.execute("INSERT INTO users (id, email) VALUES (1, 'second@example.test')").await;
    erase(&ebb).await;
    let kept = on_record(&ebb).await;
    assert_eq!(kept.len(), 2);
    ebb.db.execute("DELETE FROM ebb.audit WHERE action = 'erase' AND id = (SELECT max(id) FROM ebb.audit WHERE action = 'erase')").await;
    ebb.db.execute("INSERT INTO users (id, email) VALUES (1, 'second@example.test')").await;
    assert_eq!(replayed(&ebb, &kept[..1], false).await, (0, 1), "the first one's erasure was before the backup");
    assert_eq!(replayed(&ebb, &kept, false).await, (1, 0));
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users WHERE id = 1").await, "");
}

#[tokio::test]
async fn a_row_that_its_table_keeps_stops_no_replay() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 3) n").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    let erasures = on_record(&ebb).await;
    // All of them came back with a backup; one is kept by a trigger that looks at the end.
    ebb.db
        .execute(
            "DELETE FROM ebb.audit; INSERT INTO users (id, email) SELECT n, 'back' FROM generate_series(1, 3) n;
             CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 2 THEN RAISE 'kept'; END IF; RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER keep AFTER UPDATE ON users DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION keep()",
        )
        .await;
    let key = SubjectKey::load(&ebb.keys().join("subject.key")).unwrap();
    let mut tx = ebb.engine.database().read().await.unwrap();
    let found = replay(&mut tx, &key, &erasures, Replay { only_look: false, live: false, by: "test" }).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((found.back[0].1, found.refused), (3, vec![("users".to_owned(), "2".to_owned())]));
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users WHERE id < 4").await, "2");
}

#[tokio::test]
async fn a_file_that_was_replayed_once_is_remembered_as_a_whole() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    let soft_deleted: String = ebb.db.scalar("SELECT deleted_at::text FROM users WHERE id = 1").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    // She registers again and is erased again.
    ebb.db.execute("INSERT INTO users (id, email) VALUES (1, 'ayu')").await;
    erase(&ebb).await;
    let kept = on_record(&ebb).await;
    assert_eq!(kept.len(), 2);
    for back in ["NULL", &format!("'{soft_deleted}'")] {
        // A backup from before both comes back, with her alive or soft-deleted for the first time; all of it is replayed.
        ebb.db.execute("DELETE FROM ebb.audit").await;
        ebb.db.execute(&format!("INSERT INTO users (id, email, deleted_at) VALUES (1, 'ayu', {back})")).await;
        assert_eq!(replayed(&ebb, &kept, false).await, (1, 0));
        ebb.once("users").await;
        assert_eq!(ebb.list("id", "users WHERE id = 1").await, "");
        assert_eq!(on_record(&ebb).await.len(), 1);

        // Whoever registers afterwards is nobody of the file.
        ebb.db.execute("INSERT INTO users (id, email) VALUES (1, 'ayu')").await;
        assert_eq!(replayed(&ebb, &kept, false).await, (0, 1), "{back}");
        assert_eq!(replayed(&ebb, &kept[..1], false).await, (0, 1), "{back}");
        ebb.once("users").await;
        assert_eq!(ebb.list("id", "users WHERE id = 1 AND deleted_at IS NULL").await, "1");
        ebb.db.execute("DELETE FROM users WHERE id = 1").await;
    }
}

#[tokio::test]
async fn whoever_lives_where_nothing_is_remembered_is_taken_and_counted() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.delete_subject('users', '2')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    let erasures = on_record(&ebb).await;
    ebb.db.execute("DELETE FROM ebb.audit; INSERT INTO users (id, email, deleted_at) VALUES (1, 'a', NULL), (2, 'b', '2020-01-01Z')").await;
    let key = SubjectKey::load(&ebb.keys().join("subject.key")).unwrap();
    let mut tx = ebb.engine.database().read().await.unwrap();
    let found = replay(&mut tx, &key, &erasures, Replay { only_look: true, live: false, by: "test" }).await.unwrap();
    assert_eq!((found.back[0].1, found.alive[0].1, found.live[0].1), (2, 1, 0));
}

#[tokio::test]
async fn one_that_had_failed_in_the_backup_is_erased_by_a_replay() {
    let ebb = Ebb::shop("").await;
    erase(&ebb).await;
    let erasures = on_record(&ebb).await;
    ebb.db
        .execute(
            "DELETE FROM ebb.audit; INSERT INTO users (id, email, deleted_at) VALUES (1, 'back', '2020-01-01Z');
             INSERT INTO ebb.deletion (policy, subject_id, deleted_at, due_at, state, attempts, next_try_at, error, opened_by)
             VALUES ('users', '1', '2020-01-01Z', '2020-03-31Z', 'failed', 8, 'infinity', '23503', 'test')",
        )
        .await;
    ebb.once("users").await;
    assert_eq!(ebb.state("1").await, "failed", "nobody tries it by itself");
    assert_eq!(replayed(&ebb, &erasures, false).await, (1, 0));
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users WHERE id = 1").await, "");
}
