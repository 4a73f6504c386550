//! How subjects stand, as people ask: counted now, those in the way of something named, each with its history.

use crate::harness::Ebb;

/// (due, whether it was counted, blocked) of the policy `users`.
async fn counted(ebb: &Ebb) -> (Option<u64>, Option<&'static str>, u64) {
    let status = ebb.engine.status().await.unwrap();
    let users = status.policies.iter().find(|policy| policy.policy == "users").unwrap();
    let unit = users.units.iter().find(|unit| unit.chore == "erase").unwrap();
    (unit.pending, unit.pending_is, users.blocked)
}

async fn waiting(ebb: &Ebb) -> Vec<(String, Option<String>)> {
    let mut tx = ebb.engine.database().read().await.unwrap();
    let found = ebb::retain::list_waiting(&mut tx, Some("users"), 10).await.unwrap();
    let of = |open: ebb::retain::OpenDeletion| (open.deletion.subject_id.unwrap_or_default(), open.deletion.blocked);
    let mut waiting: Vec<_> = found.into_iter().map(of).collect();
    waiting.sort();
    waiting
}

#[tokio::test]
async fn subjects_are_counted_as_they_stand_and_whoever_waits_is_named() {
    let ebb = Ebb::shop("unless = \"name = 'owes'\"").await;
    ebb.db.execute("UPDATE users SET name = 'owes' WHERE id = 2").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', id::text) FROM users WHERE id <= 4").await;
    assert_eq!(counted(&ebb).await, (Some(0), Some("counted"), 0), "also before any node was there");
    ebb.db.advance("91 days").await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court', by => 'legal')").await;
    assert_eq!(counted(&ebb).await, (Some(3), Some("counted"), 1), "whoever is on hold is not due");
    ebb.once("users").await;
    assert_eq!(counted(&ebb).await, (Some(0), Some("counted"), 2));
    let named = [("1", "on hold: court"), ("2", "`unless` holds")];
    assert_eq!(waiting(&ebb).await, named.map(|(id, why)| (id.to_owned(), Some(why.to_owned()))));
    ebb.db
        .execute("SELECT ebb.lift_hold('users', '1', 'legal'); SELECT ebb.restore_subject('users', '1', 'ann')")
        .await;
    assert_eq!(counted(&ebb).await, (Some(0), Some("counted"), 1));
    let mut tx = ebb.engine.database().read().await.unwrap();
    let shown = ebb::retain::show(&mut tx, "users", "1").await.unwrap();
    let mut history: Vec<(&str, Option<&str>)> =
        shown.history.iter().map(|happened| (happened.what.as_str(), happened.by.as_deref())).collect();
    history.retain(|(what, _)| *what != "deleted");
    history.sort_unstable();
    assert_eq!(history, [("hold", Some("legal")), ("release", Some("legal")), ("restored", Some("ann"))]);
    assert!(shown.history.iter().any(|happened| happened.note.as_deref() == Some("court")));
}

#[tokio::test]
async fn rows_that_go_by_their_age_are_counted_too() {
    let ebb = Ebb::with(
        "CREATE TABLE visits (id int PRIMARY KEY, at timestamptz); CREATE INDEX ON visits (at);
         INSERT INTO visits SELECT n, now() - n * interval '1 day' FROM generate_series(1, 100) n; ANALYZE visits",
    )
    .await;
    ebb.apply("[[retain]]\nname = \"visits\"\ntable = \"public.visits\"\ncolumn = \"at\"\nolder_than = \"90d\"").await;
    let status = ebb.engine.status().await.unwrap();
    let unit = &status.policies[0].units[0];
    assert_eq!((unit.pending, unit.pending_is, unit.total_rows), (Some(11), Some("counted"), Some(100)));
}

#[tokio::test]
async fn a_run_that_a_dead_node_left_behind_ends_with_the_next_pass_also_with_one_that_has_nothing_to_do() {
    let ebb = Ebb::shop("mode = \"observe\"").await;
    ebb.once("users:mark").await;
    let cut_off = "INSERT INTO ebb.run (unit, chore, policy, policy_version, leaf, node, generation)
        SELECT unit, chore, policy, 1, leaf, 'dead', 0 FROM ebb.unit WHERE policy = 'users' AND chore = 'mark'";
    ebb.db.execute(cut_off).await;
    ebb.once("users:mark").await;
    let status: String = ebb.db.scalar("SELECT string_agg(status, ',') FROM ebb.run WHERE policy = 'users'").await;
    assert_eq!(status, "abandoned");
}
