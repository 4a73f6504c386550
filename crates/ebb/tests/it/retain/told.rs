//! What people are told before anything is deleted: the tree, what hangs on it, and what falls due when.

use ebb::audit::SubjectKey;
use ebb::doctor::{Questions, Severity};
use ebb::retain::{Link, past_erasures, replay};
use ebb::spine::Status;
use ebb_testkit::{TempDir, empty_database};

use super::{SHOP, users};
use crate::harness::{Ebb, engine, run_once, wanted};

fn questions(config: &str) -> Questions {
    Questions { wanted: wanted(config).unwrap(), host_time: jiff::Timestamp::now(), role: None, embedded: false }
}

#[tokio::test]
async fn the_first_look_shows_the_tree_before_there_is_a_schema_and_makes_none() {
    let ebb = Ebb::on(empty_database().await).await;
    ebb.db.execute(SHOP).await;
    ebb.db
        .execute(
            "CREATE TABLE consents (id int PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, revoked_at timestamptz);
             INSERT INTO consents VALUES (1, 1, now() - interval '400 days'), (2, 1, now() - interval '100 days'), (3, 2, NULL);
             CREATE TABLE visits (id int PRIMARY KEY, user_id bigint);
             UPDATE users SET deleted_at = now() - interval '91 days' WHERE id < 4;
             UPDATE users SET deleted_at = now() - interval '88 days 12 hours' WHERE id = 4",
        )
        .await;
    let consents = "[[retain]]\nname = \"consents\"\ntable = \"public.consents\"\ncolumn = \"revoked_at\"\nolder_than = \"365d\"\n";
    let config = format!("{}{consents}", users(""));
    let plan = ebb.engine.plan(&wanted(&config).unwrap()).await.unwrap();
    let tree = &plan.trees[0];
    assert_eq!((plan.schema_version, tree.due, tree.unmarked, tree.counted), (None, 3, 3, 3), "{tree:?}");
    let (erases, unlinks) = (&tree.erases, &tree.unlinks);
    assert!(erases.contains(&("public.orders".to_owned(), 9)), "{tree:?}");
    assert!(erases.contains(&("public.consents".to_owned(), 1)), "{tree:?}");
    assert!(unlinks.contains(&("public.consents".to_owned(), 2)), "a policy of the file keeps them: {tree:?}");
    assert!(tree.findings.iter().any(|found| found.table == "public.visits"), "{tree:?}");
    let forecast = ebb.engine.forecast(&wanted(&config).unwrap(), plan.at.timestamp().unwrap(), 3).await.unwrap();
    let forecast = forecast.iter().find(|forecast| forecast.policy == "users").unwrap();
    let days: Vec<u64> = forecast.days.iter().map(|day| day.rows).collect();
    assert_eq!((forecast.due_rows, days), (Some(3), vec![0, 1, 0]), "{forecast:?}");

    ebb.db
        .execute(
            "ALTER TABLE sessions DROP CONSTRAINT sessions_user_id_fkey, ADD FOREIGN KEY (user_id) REFERENCES users",
        )
        .await;
    let plan = ebb.engine.plan(&wanted(&config).unwrap()).await.unwrap();
    assert!(plan.has_problems(), "{:?}", plan.trees);
    let report = ebb.engine.doctor(&questions(&config)).await.unwrap();
    let says = |severity, what: &str| {
        let found = report.findings.iter().filter(|found| found.severity == severity && found.check == "subjects");
        assert!(found.into_iter().any(|found| found.evidence.contains(what)), "{what}: {:?}", report.findings);
    };
    says(Severity::Fail, "public.sessions");
    says(Severity::Warn, "public.visits");
    let schemas: i64 = ebb.db.scalar("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'ebb%'").await;
    assert_eq!(schemas, 0, "looking makes nothing");
    // A table that is not there hides no other policy.
    let gone = users("").replace("\"users\"", "\"gone\"").replace("public.users", "public.gone");
    let plan = ebb.engine.plan(&wanted(&format!("{gone}{config}")).unwrap()).await.unwrap();
    assert!(plan.trees.len() == 2 && plan.trees[0].findings[0].refuses, "{:?}", plan.trees);
}

#[tokio::test]
async fn the_forecast_counts_soft_deletes_that_nobody_has_marked() {
    let ebb = Ebb::shop("tenant = \"tenant_id\"\ntenant_override = true").await;
    ebb.db
        .execute(
            "UPDATE users SET deleted_at = now() - interval '90 days' + id * interval '12 hours' WHERE id < 10;
             UPDATE users SET deleted_at = now() - interval '95 days' WHERE id = 10;
             SELECT ebb.place_hold('users', '1', 'court');
             INSERT INTO ebb.tenant_override (policy, tenant, retention, spec, changed_by)
                 VALUES ('users', 't2', '91 days', '{}', 'test')",
        )
        .await;
    let from = jiff::Timestamp::now();
    let days = async |wanted: &[ebb::policy::Wanted]| {
        let forecast = ebb.engine.forecast(wanted, from, 4).await.unwrap().remove(0);
        assert!(forecast.days.iter().all(|day| day.exact), "{forecast:?}");
        let days: Vec<u64> = forecast.days.iter().map(|day| day.rows).collect();
        (forecast.due_rows, days)
    };
    // 1 is on hold; 2, 5 and 8 (t2) have a day more; 8 and 9 are due after the fourth.
    let expected = (Some(1), vec![0, 3, 1, 2]);
    assert_eq!(days(&[]).await, expected);
    // The same once they are marked.
    ebb.once("users:mark").await;
    assert_eq!(days(&[]).await, expected);
    assert_eq!(days(&wanted(&users("")).unwrap()).await, expected);
}

#[tokio::test]
async fn a_node_with_another_subject_key_does_nothing_with_it() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', id::text) FROM users WHERE id < 4").await;
    ebb.db.advance("91 days").await;
    let other_keys = TempDir::new();
    let other = engine(ebb.db.open(), other_keys.path());
    // The first to use one makes it the database's.
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 9);
    ebb.db.execute("SELECT ebb.delete_subject('users', '5')").await;
    ebb.db.advance("91 days").await;
    let refused = run_once(&other, &["users:erase"]).await.unwrap();
    let run = &refused.runs[0];
    assert!(run.status == Status::Failed && run.note.as_ref().unwrap().contains("is not the one"), "{refused:?}");
    assert_eq!(ebb.rows().await.0, 9, "nobody is erased under a pseudonym that no replay matches");
    let key = SubjectKey::load(&other_keys.path().join("subject.key")).unwrap();
    let mut tx = ebb.engine.database().read().await.unwrap();
    let erasures = past_erasures(&mut tx).await.unwrap();
    let replayed = replay(&mut tx, &key, &erasures, true, "test").await.unwrap_err();
    assert!(replayed.is_refused() && replayed.hint().unwrap().contains("--new-subject-key"), "{replayed}");
    let look = other.look_at_link("AAAA").await.unwrap_err();
    assert!(look.is_refused(), "what another key made is not unknown: {look}");
    assert!(matches!(ebb.engine.look_at_link("AAAA").await.unwrap(), Link::Unknown));
    let report = other.doctor(&questions("")).await.unwrap();
    let told = report
        .findings
        .iter()
        .any(|found| found.severity == Severity::Fail && found.evidence.contains("is not the one"));
    assert!(told, "{:?}", report.findings);
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 8);
}
