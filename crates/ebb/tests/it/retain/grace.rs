//! Who is soft-deleted goes by the policy that promises a grace, and by no other: not by a sweep, not by age, not with a partition.

use ebb::spine::Status;

use super::renamed::swap;
use super::{SHOP, users};
use crate::harness::{Ebb, run_once, wanted};

/// A sweep over users by the time of their last change, long ago.
fn sweep(more: &str) -> String {
    format!(
        "\n[[expire]]\nname = \"idle\"\ntable = \"public.users\"\ncolumn = \"updated_at\"\nolder_than = \"30d\"\nbrake = {{ share = \"off\" }}\n{more}\n"
    )
}

async fn shop() -> Ebb {
    let ebb = Ebb::with(SHOP).await;
    ebb.db.execute("UPDATE users SET updated_at = now() - interval '1 year'").await;
    ebb
}

const SAYS: &str = "rows of public.users may be soft-deleted subjects of policy users, and would go unwarned and before their grace ends";

#[tokio::test]
async fn a_sweep_over_subjects_is_refused_unless_it_provably_leaves_the_soft_deleted_alone() {
    let ebb = shop().await;
    let by_age = sweep("").replace("expire", "retain");
    for (config, fix) in [
        (sweep(""), "where = \"\\\"deleted_at\\\" IS NULL\""),
        (by_age, "where = \"\\\"deleted_at\\\" IS NULL\""),
        (sweep("where = \"status = 'active'\""), "where = \"(status = 'active') AND \\\"deleted_at\\\" IS NULL\""),
        (sweep("where = \"deleted_at is null or id > 3\""), "AND \\\"deleted_at\\\" IS NULL"),
        (sweep("where = \"deleted_at < now()\""), "AND \\\"deleted_at\\\" IS NULL"),
    ] {
        let config = users("") + &config;
        let refused = ebb.try_apply(&config).await.unwrap_err();
        assert!(refused.to_string().contains(SAYS), "{config}: {refused}");
        assert!(refused.hint().unwrap_or_default().contains(fix), "{config}: {refused:?}");
        let plan = ebb.engine.plan(&wanted(&config).unwrap()).await.unwrap();
        let idle = plan.policies.iter().find(|plan| plan.policy == "idle").unwrap();
        assert!(idle.problems.iter().any(|found| found.refused && found.message.contains(SAYS)), "{:?}", idle.problems);
    }
    // What changes rows, or only looks, takes nobody.
    for harmless in ["mode = \"observe\"", "action = { set = { name = \"'x'\" } }\nwhere = \"name <> 'x'\""] {
        ebb.apply(&(users("") + &sweep(harmless))).await;
    }
    // As the hint says; whoever is soft-deleted keeps the grace, the others go.
    ebb.apply(&(users("") + &sweep("where = \"(id <> 9) AND \\\"deleted_at\\\" IS NULL\""))).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '3')").await;
    ebb.once("idle").await;
    assert_eq!(ebb.list("id", "users").await, "3,9");
    // The filter cannot be taken away later.
    let none = serde_json::from_str("{\"where\": null}").unwrap();
    let refused = ebb.engine.set_policy("idle", &none, "test").await.unwrap_err();
    assert!(refused.to_string().contains(SAYS), "{refused}");
}

#[tokio::test]
async fn a_sweep_of_before_stops_and_says_what_helps() {
    let ebb = shop().await;
    ebb.apply(&(users("") + &sweep("where = \"deleted_at is null\""))).await;
    // As an earlier version let it be.
    ebb.db.execute("UPDATE ebb.policy SET spec = spec - 'where' WHERE name = 'idle'").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '3')").await;
    ebb.once("idle").await;
    assert_eq!(ebb.rows().await.0, 12);
    let stopped: String = ebb.db.scalar("SELECT stopped FROM ebb.policy WHERE name = 'idle'").await;
    assert!(stopped.contains(SAYS), "{stopped}");
    let doctor = ebb.engine.doctor(&super::told::questions("")).await.unwrap();
    let found = doctor.findings.iter().find(|found| found.about.as_deref() == Some("idle")).unwrap();
    assert!(found.evidence.contains(SAYS), "{:?}", doctor.findings);
}

#[tokio::test]
async fn nor_does_it_go_on_where_another_column_says_by_now_who_is_soft_deleted() {
    let sweep = sweep("where = \"deleted_at IS NULL\"\nbatch = { rows = 3, pause = \"1ms\" }");
    for sweep in [sweep.clone(), sweep.replace("[[expire", "[[retain")] {
        for inside_a_batch in [false, true] {
            let ebb = shop().await;
            ebb.db.execute("ALTER TABLE users ADD banned_at timestamptz").await;
            let config = users("") + &sweep;
            ebb.apply(&config).await;
            ebb.db.execute("SELECT ebb.delete_subject('users', '3')").await;
            let swap = swap("users", "deleted_at", "banned_at");
            match inside_a_batch {
                true => ebb.change_inside_a_batch(("idle", "expire"), &swap).await,
                false => ebb.db.execute(&swap).await,
            }
            run_once(&ebb.engine, &["idle"]).await.unwrap();
            assert_eq!(ebb.rows().await.0, 12, "{sweep}");
            let says = "rows of public.users may be soft-deleted subjects of policy users: column deleted_at of public.users is another one";
            let why = ebb.why_stopped("idle").await;
            assert!(why.contains(says), "{why}");
            let plan = ebb.engine.plan(&wanted(&config).unwrap()).await.unwrap();
            let idle = plan.policies.iter().find(|plan| plan.policy == "idle").unwrap();
            assert!(idle.problems.iter().any(|found| found.message.contains(says)), "{:?}", idle.problems);
            // With the columns back in place it goes on, and leaves alone whom it has to.
            ebb.db.execute(&swap).await;
            ebb.apply(&config).await;
            ebb.once("idle").await;
            assert_eq!(ebb.list("id", "users").await, "3");
        }
    }
}

#[tokio::test]
async fn whoever_agrees_to_the_other_column_agrees_for_the_sweep_as_well() {
    let ebb = shop().await;
    ebb.db.execute("ALTER TABLE users ADD banned_at timestamptz").await;
    let config = users("") + &sweep("where = \"deleted_at IS NULL\"");
    ebb.apply(&config).await;
    ebb.db.execute(&swap("users", "deleted_at", "banned_at")).await;
    ebb.db.execute("UPDATE users SET deleted_at = now() WHERE id = 4").await;
    let every = serde_json::from_str("{\"every\": \"2h\"}").unwrap();
    let refused = ebb.engine.set_policy("idle", &every, "test").await.unwrap_err();
    assert!(refused.to_string().contains("column deleted_at of public.users is another one"), "{refused}");
    assert!(refused.hint().unwrap_or_default().contains("in policy users, name the one that was meant"), "{refused:?}");
    ebb.agreed(&config, None).await.unwrap();
    ebb.once("idle").await;
    assert_eq!(ebb.list("id", "users").await, "4");
}

#[tokio::test]
async fn a_partition_of_subjects_is_not_dropped_but_the_next_one_is_made() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint, at timestamptz, deleted_at timestamptz, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE TABLE users_2001 PARTITION OF users FOR VALUES FROM ('2001-01-01') TO ('2001-02-01');
         INSERT INTO users VALUES (1, '2001-01-02', NULL)",
    )
    .await;
    let months = "\n[[partition]]\nname = \"months\"\ntable = \"users\"\ncolumn = \"at\"\nby = \"month\"\nahead = 1\nbrake = { share = \"off\" }\n";
    let keep = format!("{months}keep = \"2mo\"\n");
    let refused = ebb.try_apply(&(users("") + &keep)).await.unwrap_err();
    assert!(refused.to_string().contains(SAYS), "{refused}");
    assert!(refused.hint().unwrap_or_default().contains("take `keep` out"), "{refused:?}");
    ebb.apply(&(users("") + months)).await;
    ebb.db.execute("UPDATE ebb.policy SET spec = spec || '{\"keep\": \"2mo\"}' WHERE name = 'months'").await;
    let finished = ebb.once("months").await;
    let note = finished.runs[0].note.clone().unwrap_or_default();
    assert!(finished.runs[0].status == Status::Failed && note.contains(SAYS), "{finished:?}");
    assert_eq!(ebb.list("id", "users").await, "1");
    let ahead = "SELECT count(*) > 1 FROM pg_inherits WHERE inhparent = 'users'::regclass";
    assert!(ebb.db.scalar::<bool>(ahead).await, "what rows will need is there");
}

#[tokio::test]
async fn so_is_a_sweep_over_what_the_table_of_subjects_inherits_from() {
    for (columns, of_users, hint) in [
        ("id bigint, at timestamptz", ", deleted_at timestamptz", "ALTER TABLE … NO INHERIT"),
        ("id bigint, at timestamptz, deleted_at timestamptz", "", "where = \"\\\"deleted_at\\\" IS NULL\""),
    ] {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE base ({columns});
             CREATE TABLE users (user_id bigint PRIMARY KEY{of_users}) INHERITS (base);
             INSERT INTO users (id, at, user_id, deleted_at)
             SELECT n, now() - interval '1 day', n, CASE n WHEN 1 THEN now() END FROM generate_series(1, 2) n",
        ))
        .await;
        let over_base =
            "\n[[expire]]\nname = \"base\"\ntable = \"public.base\"\ncolumn = \"at\"\nbrake = { share = \"off\" }\n";
        let both = users("") + over_base;
        let refused = ebb.try_apply(&both).await.unwrap_err();
        assert!(refused.to_string().contains(SAYS), "{refused}");
        let fix = refused.hint().unwrap_or_default().to_owned();
        assert!(fix.contains(hint), "{fix}");
        if of_users.is_empty() {
            ebb.apply(&(both + "where = \"deleted_at IS NULL\"\n")).await;
            ebb.once("base").await;
            assert_eq!(ebb.list("id", "base").await, "1");
        }
    }
    // A run asks again: the table may have come below since.
    let ebb = Ebb::with(
        "CREATE TABLE base (id bigint, at timestamptz);
         CREATE TABLE users (id bigint, at timestamptz, user_id bigint PRIMARY KEY, deleted_at timestamptz);
         INSERT INTO users VALUES (1, now() - interval '1 day', 1, now())",
    )
    .await;
    let over_base =
        "\n[[expire]]\nname = \"base\"\ntable = \"public.base\"\ncolumn = \"at\"\nbrake = { share = \"off\" }\n";
    ebb.apply(&(users("") + over_base)).await;
    ebb.db.execute("ALTER TABLE users INHERIT base").await;
    ebb.once("base").await;
    let stopped: String = ebb.db.scalar("SELECT stopped FROM ebb.policy WHERE name = 'base'").await;
    assert!(stopped.contains(SAYS), "{stopped}");
    assert_eq!(ebb.list("id", "users").await, "1");
}
