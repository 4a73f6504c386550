//! What people are told before anything is deleted: the tree, what hangs on it, and what falls due when.

use std::collections::BTreeMap;

use ebb::audit::SubjectKey;
use ebb::doctor::{Questions, Severity};
use ebb::retain::{Consent, Link, OverrideChange, Replay, TenantTerms, past_erasures, replay, set_override};
use ebb::spine::Status;
use ebb_testkit::{TempDir, empty_database};

use super::{SHOP, users};
use crate::harness::{Ebb, engine, execute, run_once, wanted};

pub(super) fn questions(config: &str) -> Questions {
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
    let replayed =
        replay(&mut tx, &key, &erasures, Replay { only_look: true, live: false, by: "test" }).await.unwrap_err();
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

#[tokio::test]
async fn ids_that_are_shared_and_triggers_that_destroy_through_others_are_named() {
    let ebb = Ebb::with(
        "CREATE TABLE members (tenant text, id int, name text, deleted_at timestamptz, PRIMARY KEY (tenant, id));
         CREATE TABLE visits (tenant text, member_id int);
         CREATE TABLE member_profiles (tenant text, id int, bio text, PRIMARY KEY (tenant, id));
         CREATE TABLE prices (tenant text, id int, PRIMARY KEY (tenant, id));
         CREATE TABLE drafts (id int);
         CREATE FUNCTION clear_drafts() RETURNS void LANGUAGE sql BEGIN ATOMIC DELETE FROM drafts; END;
         CREATE FUNCTION \"Tidy up\"() RETURNS void LANGUAGE plpgsql AS 'BEGIN TRUNCATE drafts; END';
         CREATE FUNCTION tidy() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM public.\"Tidy up\"(); RETURN NEW; END';
         CREATE FUNCTION clear() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM clear_drafts(); RETURN NEW; END';
         CREATE FUNCTION harmless() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TRIGGER tidies AFTER UPDATE ON members FOR EACH ROW EXECUTE FUNCTION tidy();
         CREATE TRIGGER clears AFTER UPDATE ON members FOR EACH ROW EXECUTE FUNCTION clear();
         CREATE TRIGGER waits AFTER UPDATE ON members FOR EACH ROW EXECUTE FUNCTION harmless()",
    )
    .await;
    let config = users("").replace("users", "members");
    let plan = ebb.engine.plan(&wanted(&config).unwrap()).await.unwrap();
    let found: Vec<String> =
        plan.trees[0].findings.iter().map(|found| format!("{}: {}", found.table, found.message)).collect();
    let named = |what: &str| found.iter().any(|found| found.contains(what));
    assert!(
        named("public.visits: its column member_id") && named("public.member_profiles: its column id"),
        "{found:#?}"
    );
    assert!(!named("public.prices") && !named("public.drafts"), "{found:#?}");
    assert!(named("trigger clears, tidies deletes rows when a row is updated"), "{found:#?}");
}

#[tokio::test]
async fn whoever_is_on_hold_is_not_marked_and_not_forgotten() {
    let ebb = Ebb::shop("").await;
    ebb.db
        .execute(
            "SELECT ebb.place_hold('users', '1', 'court', by => NULL); SELECT ebb.place_hold('users', '2', 'ticket', ebb.now() + interval '1 day');
             UPDATE users SET deleted_at = now() - interval '91 days' WHERE id < 4",
        )
        .await;
    ebb.once("users").await;
    assert_eq!((ebb.state("1").await, ebb.state("2").await), ("none".to_owned(), "none".to_owned()));
    assert_eq!(ebb.rows().await.0, 11, "only 3 went");
    ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 10);
    ebb.db.advance("2 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 9, "a hold that is over by itself lets marking go on");
    // The records of a hold lead to the pseudonym, also where no deletion was open when it was placed.
    let whose = "SELECT count(*) FROM ebb.audit r JOIN ebb.hold h ON h.id = (r.details ->> 'hold')::bigint
        JOIN ebb.audit e ON e.action = 'erase' AND e.details ->> 'deletion' = h.deletion::text AND e.subject IS NOT NULL
        WHERE r.action = 'hold'";
    assert_eq!(ebb.db.scalar::<i64>(whose).await, 2);
}

#[tokio::test]
async fn a_hold_follows_the_key_or_is_named() {
    let sink = "[sinks.h]\ntype = \"log\"\n";
    let ebb = Ebb::with(SHOP).await;
    ebb.apply(&format!("{}{sink}", users("mark_at_once = true\n"))).await;
    ebb.db
        .execute(
            "DELETE FROM items; DELETE FROM orders; DELETE FROM sessions;
             SELECT ebb.place_hold('users', '1', 'court'); UPDATE users SET deleted_at = now() WHERE id = 2;
             SELECT ebb.schedule('h', now() + interval '1 year', '{}', NULL, NULL, 'users', '2');
             UPDATE users SET id = id + 40 WHERE id < 3",
        )
        .await;
    assert_eq!(ebb.list("subject_id", "ebb.hold").await, "41");
    assert_eq!(ebb.list("subject_id", "ebb.deletion").await, "42");
    assert_eq!(ebb.list("subject_id", "ebb.event").await, "42");
    // Without the trigger nothing follows, and doctor says who was left behind.
    ebb.apply(&format!("{}{sink}", users(""))).await;
    ebb.db.execute("UPDATE users SET id = id + 10 WHERE id > 40").await;
    let report = ebb.engine.doctor(&questions("")).await.unwrap();
    let named = |severity, what: &str| {
        report.findings.iter().any(|found| found.severity == severity && found.evidence.contains(what))
    };
    assert!(named(Severity::Fail, "on hold whose row is not there (41)"), "{:?}", report.findings);
    assert!(named(Severity::Warn, "with an open deletion whose row is not there (42)"), "{:?}", report.findings);
    ebb.db.execute("SELECT ebb.place_hold('users', '51', 'court'); SELECT ebb.lift_hold('users', '41')").await;
    let report = ebb.engine.doctor(&questions("")).await.unwrap();
    assert!(!report.findings.iter().any(|found| found.evidence.contains("on hold whose row")), "{:?}", report.findings);
}

#[tokio::test]
async fn a_floor_is_not_gone_round_by_another_policy_over_the_table() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("CREATE TABLE pay (id int PRIMARY KEY, at timestamptz, gone timestamptz); INSERT INTO pay SELECT n, now() - n * interval '20 days' FROM generate_series(1, 20) n").await;
    let floors = users("floor = \"60d\"\n")
        + "[[retain]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"at\"\nolder_than = \"2y\"\nfloor = \"1y\"\n";
    ebb.apply(&floors).await;
    let sweep = |kind: &str, table: &str, column: &str, term: &str| {
        format!(
            "{floors}[[{kind}]]\nname = \"sweep\"\ntable = \"{table}\"\ncolumn = \"{column}\"\nolder_than = \"{term}\"\n"
        )
    };
    for short in [
        sweep("retain", "public.pay", "at", "1d"),
        sweep("expire", "pay", "at", "1d"),
        sweep("expire", "public.users", "deleted_at", "1d"),
        sweep("expire", "public.users", "updated_at", "10y"),
    ] {
        let refused = ebb.try_apply(&short).await.unwrap_err();
        assert!(refused.is_refused() && refused.to_string().contains("would not hold"), "{short}: {refused}");
        assert!(refused.hint().unwrap().contains("--reason"), "{refused:?}");
    }
    // Nor where its own policy goes in the same breath, or went before.
    let instead = |keys: &str| format!("{}{keys}", users("floor = \"60d\"\n"));
    let expire = "[[expire]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"at\"\nolder_than = \"1d\"\n";
    let subjects = "[[retain]]\nname = \"paid\"\ntable = \"public.pay\"\ndeleted_at = \"gone\"\ngrace = \"1d\"\n";
    let says = async |config: &str, what: &str| {
        let refused = ebb.try_apply(config).await.unwrap_err();
        assert!(refused.is_refused() && refused.to_string().contains(what), "{config}: {refused}");
    };
    says(&instead(expire), "its floor 1y would not hold").await;
    says(&instead(subjects), "the floor 1y of policy pay would go down").await;
    ebb.apply(&instead("")).await;
    says(&instead(expire), "its floor 1y would not hold").await;
    // As long as the floor, but not as long as the grace.
    let early = ebb.try_apply(&sweep("expire", "public.users", "deleted_at", "60d")).await.unwrap_err();
    assert!(early.to_string().contains("before their grace ends"), "{early}");
    ebb.apply(&sweep("expire", "public.pay", "at", "13mo")).await;
    let short = wanted(&sweep("expire", "public.pay", "at", "300d")).unwrap();
    let because = Consent { confirmed: true, reason: Some("the law changed".into()) };
    ebb.engine.apply_with(&short, false, "legal", &because).await.unwrap();
    let agreed: String = ebb.db.scalar("SELECT by_name || details::text FROM ebb.audit WHERE action = 'floor'").await;
    assert!(
        agreed.starts_with("legal") && agreed.contains("the law changed") && agreed.contains("\"pay\""),
        "{agreed}"
    );
    // What was agreed to is not asked again; who looks is told.
    ebb.engine.apply(&short, false, "test").await.unwrap();
    let below = sweep("expire", "public.pay", "at", "300d");
    ebb.apply(&below.replace("\"2y\"", "\"3y\"").replace("\"300d\"", "\"310d\"\ndescription = \"x\"")).await;
    ebb.apply(&below.replace("\"1y\"", "\"1y\"\nbasis = \"law\"").replace("\"300d\"", "\"310d\"")).await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.audit WHERE action = 'floor'").await, 1);
    says(&below, "would not hold").await;
    says(&below.replace("\"1y\"", "\"13mo\"").replace("\"300d\"", "\"310d\""), "would not hold").await;
    let plan = ebb.engine.plan(&short).await.unwrap();
    let sweep = plan.policies.iter().find(|policy| policy.policy == "sweep").unwrap();
    assert!(sweep.problems.iter().any(|problem| problem.message.contains("would not hold")), "{sweep:?}");
    let report = ebb.engine.doctor(&questions("")).await.unwrap();
    assert!(report.findings.iter().any(|found| found.evidence.contains("would not hold")), "{:?}", report.findings);
}

#[tokio::test]
async fn a_floor_is_not_gone_round_by_way_of_its_partitions() {
    let ebb = Ebb::with(
        "CREATE TABLE pay (id int, at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE pay_1 PARTITION OF pay FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
         CREATE TABLE pay_2 PARTITION OF pay FOR VALUES FROM ('2020-02-01Z') TO ('2020-03-01Z')",
    )
    .await;
    let by_age = |table: &str, floor: &str| {
        format!(
            "[[retain]]\nname = \"{table}\"\ntable = \"public.{table}\"\ncolumn = \"at\"\nolder_than = \"2y\"\n{floor}"
        )
    };
    let floor = by_age("pay", "floor = \"1y\"\n");
    ebb.apply(&floor).await;
    let sweep = "[[expire]]\nname = \"sweep\"\ntable = \"public.pay_1\"\ncolumn = \"at\"\nolder_than = \"1d\"\n";
    let parts = |keep: &str| {
        format!(
            "[[partition]]\nname = \"parts\"\ntable = \"pay\"\ncolumn = \"at\"\nby = \"month\"\nahead = 1\nkeep = \"{keep}\"\n"
        )
    };
    for short in [sweep.to_owned(), parts("2mo")] {
        let short = format!("{floor}{short}");
        let refused = ebb.try_apply(&short).await.unwrap_err();
        assert!(refused.is_refused() && refused.to_string().contains("its floor 1y would not hold"), "{refused}");
        let plan = ebb.engine.plan(&wanted(&short).unwrap()).await.unwrap();
        let told = plan.policies.iter().flat_map(|policy| &policy.problems);
        assert!(told.into_iter().any(|problem| problem.message.contains("would not hold")), "{plan:?}");
        let report = ebb.engine.doctor(&questions(&short)).await.unwrap();
        assert!(report.findings.iter().any(|found| found.evidence.contains("would not hold")), "{:?}", report.findings);
    }
    ebb.apply(&format!("{floor}{}", parts("1y"))).await;
    // A partition's own floor is nothing to another partition.
    let ebb = Ebb::with(
        "CREATE TABLE pay (at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE pay_1 PARTITION OF pay FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
         CREATE TABLE pay_2 PARTITION OF pay FOR VALUES FROM ('2020-02-01Z') TO ('2020-03-01Z')",
    )
    .await;
    ebb.apply(&format!("{}{sweep}", by_age("pay_2", "floor = \"1y\"\n"))).await;
}

#[tokio::test]
async fn policies_over_other_rows_of_a_table_are_nothing_to_a_floor() {
    let ebb = Ebb::shop("floor = \"60d\"").await;
    ebb.db.execute("CREATE TABLE pay (at timestamptz, kind varchar(20), sum int); CREATE TABLE later (at timestamptz, kind text, sum int); INSERT INTO pay VALUES (now(), 'done', 1), (now(), 'cancelled', 2)").await;
    let by_age = |name: &str, table: &str, keys: &str, filter: &str| {
        format!(
            "[[retain]]\nname = \"{name}\"\ntable = \"public.{table}\"\ncolumn = \"at\"\n{keys}\nwhere = \"{filter}\"\n"
        )
    };
    let both = |table: &str, done: &str, cancelled: &str| {
        users("floor = \"60d\"\n")
            + &by_age("done", table, "older_than = \"100d\"\nfloor = \"90d\"", done)
            + &by_age("cancelled", table, "older_than = \"30d\"", cancelled)
    };
    let refuses = async |config: &str| {
        let refused = ebb.try_apply(config).await.unwrap_err();
        assert!(refused.is_refused() && refused.to_string().contains("would not hold"), "{config}: {refused}");
    };
    // What the conditions say counts, whatever rows and constraints there are today.
    ebb.db.execute("ALTER TABLE later ADD CHECK (kind <> 'done' OR sum = 1)").await;
    refuses(&both("pay", "kind = 'done'", "kind <> 'new'")).await;
    refuses(&both("pay", "kind = 'done'", "sum % 2 = 0")).await;
    refuses(&both("later", "kind = 'done'", "sum = 2")).await;
    for (done, cancelled) in [
        ("kind = 'done'", "kind = 'cancelled'"),
        ("kind in ('done', 'paid')", "kind in ('cancelled', 'void') and sum > 3"),
        ("kind = 'done'", "kind <> 'done'"),
        ("kind = 'done'", "kind is null"),
        ("sum > 10", "sum between 1 and 9"),
        ("kind = 'done' or sum = 7", "sum = 3 and (kind = 'done' or sum = 7) is not true"),
    ] {
        let ebb = Ebb::shop("floor = \"60d\"").await;
        ebb.db.execute("CREATE TABLE pay (at timestamptz, kind varchar(20), sum int)").await;
        ebb.apply(&both("pay", done, cancelled)).await;
    }
    ebb.apply(&both("pay", "kind = 'done'", "kind = 'cancelled'")).await;
    let never =
        "[[expire]]\nname = \"sweep\"\ntable = \"public.users\"\ncolumn = \"updated_at\"\nolder_than = \"10d\"\n";
    refuses(&format!("{}{never}", users("floor = \"60d\"\n"))).await;
    let never = format!("{}{never}where = \"deleted_at is null and name like 'x%'\"\n", users("floor = \"60d\"\n"));
    ebb.apply(&never).await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.audit WHERE action = 'floor'").await, 0);
    let report = ebb.engine.doctor(&questions("")).await.unwrap();
    assert!(!report.findings.iter().any(|found| found.evidence.contains("would not hold")), "{:?}", report.findings);
}

#[tokio::test]
async fn a_tenant_without_rows_is_more_likely_a_typing_error() {
    let ebb = Ebb::shop("tenant = \"tenant_id\"\ntenant_override = true").await;
    let set = OverrideChange::Set(TenantTerms { retention: Some("120d".parse().unwrap()), ..Default::default() });
    let mut tx = ebb.engine.database().read().await.unwrap();
    let refused = set_override(&mut tx, "users", "t7", &set, false, "test").await.unwrap_err();
    assert!(
        refused.is_refused() && refused.to_string().contains("no row of public.users has the tenant_id t7"),
        "{refused}"
    );
    assert!(set_override(&mut tx, "users", " ", &set, true, "test").await.unwrap_err().is_usage());
    set_override(&mut tx, "users", "t1", &set, false, "test").await.unwrap();
    set_override(&mut tx, "users", "t7", &set, true, "test").await.unwrap();
}

#[tokio::test]
async fn an_application_deletes_and_restores_and_lifts_no_hold() {
    let ebb = Ebb::shop("").await;
    let role = "DO $$ BEGIN CREATE ROLE ebb_app; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$";
    ebb.db.execute(role).await;
    ebb::pg::migrate(ebb.engine.database()).await.unwrap();
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
    let mut app = ebb.client().await;
    execute(
        &mut app,
        "SET ROLE ebb_app; SELECT ebb.delete_subject('users', '2'); SELECT ebb.restore_subject('users', '2')",
    )
    .await;
    for denied in ["SELECT ebb.place_hold('users', '2', 'x')", "SELECT ebb.lift_hold('users', '1')"] {
        let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(denied)).execute(&mut app).await.unwrap_err();
        assert!(refused.to_string().contains("permission denied"), "{denied}: {refused}");
    }
}

#[tokio::test]
async fn what_a_change_makes_due_counts_whom_nobody_has_marked() {
    let ebb = Ebb::shop("tenant = \"tenant_id\"\ntenant_override = true").await;
    ebb.db.execute("UPDATE users SET deleted_at = now() - interval '50 days', updated_at = now() - interval '400 days' WHERE id < 7").await;
    let set = async |key: &str, value: serde_json::Value| {
        let change = [(key.to_owned(), value)].into_iter().collect();
        ebb.engine.set_policy("users", &change, "test").await
    };
    let says = |refused: ebb::Result<i64>, what: &str| {
        let refused = refused.unwrap_err();
        assert!(refused.is_refused() && refused.to_string().contains(what), "{refused}");
    };
    says(set("grace", "40d".into()).await, "6 more subjects would be due at once");
    let shorter = OverrideChange::Set(TenantTerms { retention: Some("40d".parse().unwrap()), ..Default::default() });
    let mut tx = ebb.engine.database().read().await.unwrap();
    let refused = set_override(&mut tx, "users", "t1", &shorter, false, "test").await.unwrap_err();
    assert!(refused.to_string().contains("2 more subjects would be due at once"), "{refused}");
    tx.rollback().await.unwrap();
    says(set("deleted_at", "updated_at".into()).await, "6 more subjects would be due at once");

    // The same for tenants whose own terms count no more, marked or not.
    let longer = OverrideChange::Set(TenantTerms { retention: Some("200d".parse().unwrap()), ..Default::default() });
    let mut tx = ebb.engine.database().read().await.unwrap();
    for tenant in ["t0", "t1", "t2"] {
        set_override(&mut tx, "users", tenant, &longer, false, "test").await.unwrap();
    }
    tx.commit().await.unwrap();
    set("grace", "49d".into()).await.unwrap();
    says(set("tenant_override", false.into()).await, "6 more subjects would be due at once");
    says(set("tenant", "name".into()).await, "6 more subjects would be due at once");
    ebb.once("users:mark").await;
    says(set("tenant_override", false.into()).await, "6 more subjects would be due at once");
    says(set("deleted_at", "updated_at".into()).await, "open deletions or holds");
}

#[tokio::test]
async fn a_change_asks_where_more_are_unmarked_than_can_be_counted() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         INSERT INTO users SELECT n, now() - interval '100 days' FROM generate_series(1, 12000) n;
         INSERT INTO users SELECT n, now() - interval '50 days' FROM generate_series(12001, 13000) n;
         CREATE INDEX ON users (deleted_at) WHERE deleted_at IS NOT NULL; ANALYZE users",
    )
    .await;
    ebb.apply(&users("")).await;
    let shorter = serde_json::from_value(serde_json::json!({ "grace": "40d" })).unwrap();
    let error = ebb.engine.set_policy("users", &shorter, "test").await.unwrap_err();
    assert!(error.to_string().contains("more subjects than can be counted now may be due at once"), "{error}");
    let described = serde_json::from_value(serde_json::json!({ "description": "people" })).unwrap();
    ebb.engine.set_policy("users", &described, "test").await.unwrap();
    // Longer terms make nobody due, however many are; shorter ones say how many they make so, as far as was counted.
    for longer in ["95d", "200d"] {
        let longer = serde_json::from_value(serde_json::json!({ "grace": longer })).unwrap();
        ebb.engine.set_policy("users", &longer, "test").await.unwrap();
    }
    let error = ebb.engine.set_policy("users", &shorter, "test").await.unwrap_err();
    assert!(error.to_string().contains("10000 more subjects, if not more, would be due at once"), "{error}");
    let consent = Consent { confirmed: true, reason: None };
    ebb.engine.set_policy_with("users", &shorter, "test", &consent).await.unwrap();
}

#[tokio::test]
async fn a_partition_has_no_subjects_of_its_own() {
    let ebb = Ebb::with(
        "CREATE TABLE people (id int, region text, deleted_at timestamptz, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
         CREATE TABLE people_eu PARTITION OF people FOR VALUES IN ('eu');
         CREATE TABLE o (id int PRIMARY KEY, person int, region text, FOREIGN KEY (person, region) REFERENCES people ON DELETE CASCADE)",
    )
    .await;
    let refused = ebb.try_apply(&users("").replace("public.users", "public.people_eu")).await.unwrap_err();
    assert!(refused.is_config() && refused.to_string().contains("is a partition of public.people"), "{refused}");
}

#[tokio::test]
async fn another_zone_asks_where_it_makes_somebody_due() {
    let ebb = Ebb::with(SHOP).await;
    ebb.apply(&users("zone = \"UTC\"").replace("90d", "1mo")).await;
    // The last but one day of January there, the last in Jakarta: a month later is a day earlier.
    let ahead: i64 =
        ebb.db.scalar("SELECT extract(epoch FROM timestamptz '2031-02-28 08:00Z' - ebb.now())::int8").await;
    ebb.db.advance(&format!("{ahead} seconds")).await;
    let delete = |id| format!("UPDATE users SET deleted_at = '2031-01-30 20:00Z' WHERE id = {id}");
    ebb.db.execute(&delete(1)).await;
    ebb.once("users:mark").await;
    ebb.db.execute(&delete(2)).await;
    let zone = [("zone".to_owned(), "Asia/Jakarta".into())].into_iter().collect();
    let refused = ebb.engine.set_policy("users", &zone, "test").await.unwrap_err();
    assert!(refused.to_string().contains("2 more subjects would be due at once"), "{refused}");
    assert_eq!(ebb.rows().await.0, 12);
}

#[tokio::test]
async fn counts_of_what_is_unlinked_are_those_of_the_plan_however_large_a_subject_is() {
    // Staff of user 2, who goes with it, look after orders too; so does it itself, and others after its own.
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE agents (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
         CREATE TABLE orders (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE,
             assigned_to bigint REFERENCES users ON DELETE SET NULL, agent bigint REFERENCES agents ON DELETE SET NULL, changed int);
         CREATE INDEX ON agents (user_id); CREATE INDEX ON orders (user_id); CREATE INDEX ON orders (assigned_to);
         CREATE INDEX ON orders (agent);
         CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.changed := 1; RETURN NEW; END $$;
         CREATE TRIGGER changed BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION changed();
         INSERT INTO users SELECT generate_series(1, 3); INSERT INTO agents VALUES (1, 2), (2, 3);
         INSERT INTO orders SELECT n, 1 + n % 3, CASE WHEN n % 2 = 0 THEN 2 END, CASE WHEN n % 5 = 0 THEN 1 WHEN n % 7 = 0 THEN 2 END
             FROM generate_series(1, 36000) n",
    )
    .await;
    ebb.apply(&users("")).await;
    let unlinked = async |id: &str| {
        ebb.db.execute(&format!("SELECT ebb.delete_subject('users', '{id}')")).await;
        ebb.db.advance("91 days").await;
        let planned: BTreeMap<String, u64> =
            ebb.engine.plan(&[]).await.unwrap().trees[0].unlinks.iter().cloned().collect();
        ebb.once("users").await;
        let last = "SELECT COALESCE(details -> 'unlinked', '{}') FROM ebb.audit WHERE action = 'erase' ORDER BY id DESC LIMIT 1";
        let told: BTreeMap<String, u64> = serde_json::from_value(ebb.db.scalar(last).await).unwrap();
        (planned, told)
    };
    let (planned, told) = unlinked("2").await;
    assert_eq!(planned["public.orders"], 12_000 + 4_800);
    assert_eq!(told, planned);
    // 3 goes as a whole.
    let (planned, told) = unlinked("3").await;
    assert_eq!(planned["public.orders"], 1_372);
    assert_eq!(told, planned);
}
