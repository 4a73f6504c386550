//! Terms: what a change makes due is agreed to first, a floor stays where it is, and what is planned is what goes.

use ebb::doctor::Questions;
use ebb::policy::{Spec, Term};
use ebb::retain::{Consent, OverrideChange, TenantTerms};
use ebb::{Error, Result};

use super::{found_in_ebb, users};
use crate::harness::{Ebb, execute, wanted};

const VISITS: &str = "
    CREATE TABLE visits (id int PRIMARY KEY, tenant text, at timestamptz, local timestamp);
    CREATE INDEX ON visits (at);
    INSERT INTO visits SELECT n, 't' || n % 2, now() - n * interval '1 day' - interval '1 hour', now() FROM generate_series(1, 110) n;";
const BY_AGE: &str = "[[retain]]\nname = \"visits\"\ntable = \"public.visits\"\nolder_than = \"90d\"\nfloor = \"30d\"
    tenant = \"tenant\"\ntenant_override = true\nbrake = { share = \"off\" }\n";

fn by_age(column: &str) -> String {
    format!("{BY_AGE}column = \"{column}\"\n")
}

fn older_than(term: &str) -> Spec {
    Spec::from_iter([("older_than".to_owned(), term.into())])
}

async fn own_term(ebb: &Ebb, tenant: &str, days: u16, confirmed: bool) -> Result<(i64, u64, u64)> {
    let change = OverrideChange::Set(TenantTerms { retention: Some(Term::days(days)), ..Default::default() });
    change_override(ebb, tenant, &change, confirmed).await
}

async fn change_override(ebb: &Ebb, tenant: &str, change: &OverrideChange, confirmed: bool) -> Result<(i64, u64, u64)> {
    let mut tx = ebb.engine.database().read().await.unwrap();
    let set = ebb::retain::set_override(&mut tx, "visits", tenant, change, confirmed, "test").await;
    match set {
        Ok(_) => tx.commit().await.unwrap(),
        Err(_) => tx.rollback().await.unwrap(),
    }
    set.map(|changed| (changed.version, changed.before, changed.after))
}

fn refused<T: std::fmt::Debug>(result: Result<T>, says: &str) {
    let error: Error = result.unwrap_err();
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test]
async fn a_shorter_age_takes_effect_once_its_rows_were_agreed_to() {
    let ebb = Ebb::with(VISITS).await;
    ebb.apply(&by_age("at")).await;
    let plan = ebb.engine.plan(&wanted(&by_age("at")).unwrap()).await.unwrap();
    assert_eq!((plan.policies[0].policy.as_str(), plan.policies[0].due_rows), ("visits", Some(21)));
    assert!(plan.made_due.is_empty(), "{:?}", plan.made_due);

    let shorter = by_age("at").replace("90d", "70d");
    let plan = ebb.engine.plan(&wanted(&shorter).unwrap()).await.unwrap();
    assert_eq!(plan.made_due[0].to_string(), "policy visits: 20 more rows would be due at once");
    refused(ebb.try_apply(&shorter).await, "20 more rows would be due at once");
    refused(ebb.engine.set_policy("visits", &older_than("70d"), "test").await, "20 more rows");
    refused(own_term(&ebb, "t1", 60, false).await, "15 more rows");
    assert_eq!(ebb.db.scalar::<i64>("SELECT version FROM ebb.policy WHERE name = 'visits'").await, 1);

    // Whoever has seen it may; what keeps more is nobody's concern.
    assert_eq!(own_term(&ebb, "t1", 60, true).await.unwrap(), (2, 21, 36));
    ebb.engine.set_policy("visits", &older_than("100d"), "test").await.unwrap();
    let agreed = Consent { confirmed: true, reason: None };
    ebb.engine.set_policy_with("visits", &older_than("80d"), "test", &agreed).await.unwrap();
    let ahead = ebb.engine.forecast(&[], jiff::Timestamp::now(), 4).await.unwrap();
    let ahead = ahead.iter().find(|ahead| ahead.policy == "visits").unwrap();
    let days: Vec<u64> = ahead.days.iter().map(|day| day.rows).collect();
    assert_eq!((ahead.due_rows, days.iter().sum::<u64>()), (Some(41), 4), "each tenant by its own term: {days:?}");
    ebb.once("visits").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM visits").await, 69);
    let left: i32 = ebb.db.scalar("SELECT max(id) FROM visits WHERE tenant = 't1'").await;
    assert_eq!(left, 59);
}

#[tokio::test]
async fn rows_by_age_stay_until_the_floor_is_over_whatever_month_it_is() {
    // A day of February and a month are 28 days.
    let rows =
        "SELECT 1 AS id, 't0' AS tenant, timestamptz '2031-02-01 11:00Z' AS at, timestamp '2031-02-01 11:00' AS local
        UNION ALL SELECT 2, 't0', '2031-01-20 11:00Z', '2031-01-20 11:00'";
    for column in ["at", "local"] {
        let ebb = Ebb::with(&format!("CREATE TABLE visits AS {rows}; ALTER TABLE visits ADD PRIMARY KEY (id)")).await;
        ebb.set_clock("2031-03-01 12:00Z").await;
        ebb.apply(&by_age(column).replace("90d", "1mo")).await;
        let plan = ebb.engine.plan(&[]).await.unwrap();
        assert_eq!(plan.policies[0].due_rows, Some(1), "{column}");
        ebb.once("visits").await;
        assert_eq!(ebb.list("id", "visits").await, "1", "{column}");
        ebb.set_clock("2031-03-03 10:59Z").await;
        ebb.once("visits").await;
        assert_eq!(ebb.list("id", "visits").await, "1", "{column}");
        ebb.set_clock("2031-03-03 11:01Z").await;
        ebb.once("visits").await;
        assert_eq!(ebb.list("id", "visits").await, "", "{column}");
        let due: bool =
            ebb.db.scalar("SELECT max(due_to) = '2031-03-03 11:00Z' FROM ebb.audit WHERE action = 'expire'").await;
        assert!(due, "the record says when the floor was over");
    }
}

#[tokio::test]
async fn a_floor_that_is_raised_holds_for_terms_that_tenants_had_before() {
    let ebb = Ebb::with(VISITS).await;
    ebb.apply(&by_age("at").replace("floor = \"30d\"", "floor = \"7d\"")).await;
    own_term(&ebb, "t1", 30, true).await.unwrap();
    ebb.apply(&by_age("at").replace("floor = \"30d\"", "floor = \"60d\"")).await;
    ebb.once("visits").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM visits WHERE tenant = 't1'").await, 30);
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM visits WHERE tenant = 't0'").await, 44);
    // And whoever lowers it again is told what that makes due.
    let floor = Spec::from_iter([("floor".to_owned(), "7d".into())]);
    let consent = Consent { confirmed: false, reason: Some("law".into()) };
    refused(ebb.engine.set_policy_with("visits", &floor, "test", &consent).await, "15 more rows would be due at once");
}

#[tokio::test]
async fn a_term_in_months_asks_where_it_may_be_shorter_than_one_in_days() {
    let ebb = Ebb::with("CREATE TABLE visits AS SELECT 1 AS id, 't' AS tenant, timestamptz '2031-02-01 11:00Z' AS at; ALTER TABLE visits ADD PRIMARY KEY (id)").await;
    ebb.set_clock("2031-03-01 12:00Z").await;
    ebb.apply(&by_age("at").replace("90d", "30d").replace("floor = \"30d\"", "")).await;
    refused(ebb.engine.set_policy("visits", &older_than("1mo"), "test").await, "1 more row would be due at once");
    ebb.engine.set_policy("visits", &older_than("31d"), "test").await.unwrap();
}

#[tokio::test]
async fn terms_that_a_column_cannot_have_are_refused_when_they_are_set() {
    let ebb = Ebb::with(VISITS).await;
    ebb.apply(&by_age("local")).await;
    refused(
        own_term(&ebb, "t1", 150, true).await,
        "need a timestamptz column, and local is timestamp without time zone",
    );
    // One that is there already can be taken back.
    ebb.db.execute("INSERT INTO ebb.tenant_override (policy, tenant, retention, spec, changed_by) VALUES ('visits', 't1', '150 days', '{\"retention\": \"150d\"}', 'x')").await;
    change_override(&ebb, "t1", &OverrideChange::Unset, false).await.unwrap();
    ebb.once("visits").await;
}

#[tokio::test]
async fn what_a_floor_is_counted_from_changes_with_a_reason_only() {
    let ebb = Ebb::with(
        "CREATE TABLE pay (id int PRIMARY KEY, at timestamptz NOT NULL, born timestamptz NOT NULL);
         CREATE INDEX ON pay (at); CREATE INDEX ON pay (born);
         CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz, made_at timestamptz)",
    )
    .await;
    let pay = |column: &str| {
        format!(
            "[[retain]]\nname = \"pay\"\ntable = \"pay\"\ncolumn = \"{column}\"\nolder_than = \"2y\"\nfloor = \"1y\"\n"
        )
    };
    let all = |column: &str, deleted_at: &str| {
        let users =
            users("floor = \"40d\"").replace("deleted_at = \"deleted_at\"", &format!("deleted_at = \"{deleted_at}\""));
        format!("{}{users}", pay(column))
    };
    ebb.apply(&all("at", "deleted_at")).await;
    for (column, deleted_at) in [("born", "deleted_at"), ("at", "made_at")] {
        let changed = wanted(&all(column, deleted_at)).unwrap();
        let sure = Consent { confirmed: true, reason: None };
        let refused = ebb.engine.apply_with(&changed, false, "test", &sure).await.unwrap_err();
        assert!(refused.is_refused() && refused.to_string().contains("floor"), "{refused}");
        let why = Consent { confirmed: true, reason: Some("the law changed".into()) };
        ebb.engine.apply_with(&changed, false, "lawyer", &why).await.unwrap();
        ebb.engine.apply_with(&wanted(&all("at", "deleted_at")).unwrap(), false, "lawyer", &why).await.unwrap();
    }
    let reasons = "SELECT count(*) FROM ebb.audit WHERE action = 'floor' AND details ->> 'reason' = 'the law changed'";
    assert_eq!(ebb.db.scalar::<i64>(reasons).await, 4);
}

#[tokio::test]
async fn another_zone_needs_a_reason_where_a_floor_is_over_at_another_moment_by_it() {
    let ebb = Ebb::with(VISITS).await;
    let zone = Spec::from_iter([("zone".to_owned(), "Asia/Jakarta".into())]);
    let why = |reason: Option<&str>| Consent { confirmed: true, reason: reason.map(str::to_owned) };
    for (column, floor, needs) in [("at", "30d", false), ("at", "1mo", true), ("local", "30d", true)] {
        let config = by_age(column).replace("floor = \"30d\"", &format!("floor = \"{floor}\""));
        ebb.engine.apply_with(&wanted(&config).unwrap(), true, "test", &why(Some("as it was"))).await.unwrap();
        let unsaid = ebb.engine.set_policy_with("visits", &zone, "test", &why(None)).await;
        assert_eq!(unsaid.is_err(), needs, "{column} {floor}: {unsaid:?}");
        if needs {
            refused(unsaid, "would count from another time");
            ebb.engine.set_policy_with("visits", &zone, "test", &why(Some("we moved"))).await.unwrap();
        }
    }
    let zones = "SELECT count(*) FROM ebb.audit WHERE action = 'floor' AND details ->> 'reason' = 'we moved' AND details ->> 'zone' = 'Asia/Jakarta'";
    assert_eq!(ebb.db.scalar::<i64>(zones).await, 2);
}

#[tokio::test]
async fn a_policy_keeps_its_table_and_a_table_its_floor() {
    let ebb = Ebb::shop("floor = \"40d\"").await;
    ebb.db.execute("CREATE TABLE customers (id bigint PRIMARY KEY, deleted_at timestamptz)").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    let moved = users("floor = \"40d\"").replace("public.users", "public.customers");
    refused(
        ebb.try_apply(&moved).await,
        "the floor 40d of policy users would not hold any more for rows that it keeps",
    );
    let why = Consent { confirmed: false, reason: Some("the law changed".into()) };
    refused(
        ebb.engine.apply_with(&wanted(&moved).unwrap(), false, "lawyer", &why).await,
        "open deletions or holds of subjects of public.users",
    );
    // A new name is the same table.
    ebb.db.execute("ALTER TABLE users RENAME TO people").await;
    ebb.apply(&users("floor = \"40d\"").replace("public.users", "public.people")).await;
    ebb.db.execute("ALTER TABLE people RENAME TO users").await;
    ebb.apply(&users("floor = \"40d\"")).await;
    ebb.db.execute("SELECT ebb.restore_subject('users', '1')").await;

    // The same table under another name of its policy.
    let renamed = users("").replace("name = \"users\"", "name = \"people\"");
    refused(ebb.try_apply(&renamed).await, "the floor 40d of policy users would go down");
    refused(
        ebb.try_apply(&format!("{}\n{renamed}floor = \"40d\"\n", users("floor = \"40d\""))).await,
        "have two policies, people and users",
    );
    ebb.engine.apply_with(&wanted(&renamed).unwrap(), false, "lawyer", &why).await.unwrap();
    let record = "SELECT by_name || ': ' || (details ->> 'reason') FROM ebb.audit WHERE action = 'floor'";
    assert_eq!(ebb.db.scalar::<String>(record).await, "lawyer: the law changed");
}

#[tokio::test]
async fn a_plan_counts_those_who_would_go() {
    let ebb = Ebb::with(super::SHOP).await;
    ebb.db.execute("CREATE TABLE profiles (email text); INSERT INTO profiles SELECT email FROM users").await;
    let link = "{ table = \"profiles\", column = \"email\", references = \"email\", action = \"delete\" }";
    ebb.apply(&users(&format!("unless = \"users.name = 'blocked'\"\nchildren = [{link}]"))).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 5) n").await;
    ebb.db.advance("91 days").await;
    ebb.db
        .execute(
            "SELECT ebb.place_hold('users', '1', 'court'); UPDATE users SET name = 'blocked' WHERE id = 2;
        UPDATE users SET email = (SELECT email FROM users WHERE id = 3) WHERE id = 12",
        )
        .await;
    // Ids without a foreign key, of another type and name.
    ebb.db.execute("CREATE TABLE visits (\"userId\" text, author_user_id int, name text)").await;
    let plan = ebb.engine.plan(&[]).await.unwrap();
    let tree = &plan.trees[0];
    let suspects = tree.findings.iter().filter(|found| found.table == "public.visits").count();
    assert_eq!(suspects, 2, "{:?}", tree.findings);
    assert_eq!((tree.due, tree.held, tree.blocked, tree.counted), (2, 1, 2, 2), "{tree:?}");
    ebb.once("users").await;
    let (subjects, rows) = ebb.erased().await;
    assert_eq!((subjects as u64, rows as u64), (tree.due, tree.erases.iter().map(|(_, rows)| rows).sum()));
}

#[tokio::test]
async fn soft_deletes_that_nobody_has_marked_are_in_the_plan_and_observed() {
    let ebb = Ebb::shop("mode = \"observe\"").await;
    ebb.db
        .execute(
            "UPDATE users SET deleted_at = now() - interval '91 days' WHERE id < 4;
             UPDATE users SET deleted_at = now() - interval '89 days' WHERE id = 4; SELECT ebb.delete_subject('users', '5')",
        )
        .await;
    let plan = ebb.engine.plan(&[]).await.unwrap();
    let tree = &plan.trees[0];
    assert_eq!((tree.due, tree.unmarked, tree.counted), (3, 3, 3), "{tree:?}");
    assert!(tree.erases.contains(&("public.orders".to_owned(), 9)), "{tree:?}");
    let observed = ebb.once("users:erase").await;
    assert!(observed.runs[0].note.as_ref().unwrap().contains("3 subjects are due"), "{observed:?}");
    assert_eq!(ebb.rows().await.0, 12);
}

#[tokio::test]
async fn nothing_is_left_of_somebody_who_asks_for_herself() {
    let ebb = Ebb::with(
        "CREATE TABLE users (email text PRIMARY KEY, deleted_at timestamptz);
         INSERT INTO users SELECT 'pii' || n || '@x.test' FROM generate_series(1, 3) n;
         CREATE TABLE seats (hall text, seat int, email text, deleted_at timestamptz, PRIMARY KEY (hall, seat));
         INSERT INTO seats VALUES ('north', 7, 'pii4@x.test')",
    )
    .await;
    let seats = users(
        "contact = { email = \"email\" }\nwarn_before = [\"1d\"]\nnotify = \"mail\"\n\
        restore_url = \"https://app.example.test/restore?token={token}\"\n",
    )
    .replace("users", "seats");
    let mail = "[sinks.mail]\ntype = \"smtp\"\nhost = \"127.0.0.1\"\nfrom = \"no-reply@example.test\"\n";
    ebb.apply(&format!("{}{seats}{mail}", users(""))).await;
    ebb.db
        .execute(
            "SELECT ebb.delete_subject('users', 'pii1@x.test', by => 'PII1@x.test ');
        SELECT ebb.place_hold('users', 'pii1@x.test', 'letter of pii1@x.test', by => 'pii1@x.test');
        SELECT ebb.lift_hold('users', 'pii1@x.test', by => 'pii1@x.test');
        SELECT ebb.erase_subject('users', 'pii1@x.test', by => 'user:Pii1@x.test (app)');
        SELECT ebb.delete_subject('users', 'pii2@x.test', by => 'support')",
        )
        .await;
    let by: String = ebb.db.scalar("SELECT string_agg(DISTINCT by_name, ',' ORDER BY by_name) FROM ebb.audit WHERE policy = 'users' AND action <> 'policy'").await;
    assert_eq!(by, "support,the subject");
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!(found_in_ebb(&ebb, "pii1@x.test").await, [""; 0]);
    // By what its policy contacts it by, whatever its key; a key of several columns has as many parts.
    ebb.db.execute(r#"SELECT ebb.delete_subject('seats', '["north", "7"]', by => 'pii4@x.test')"#).await;
    let by: String = ebb.db.scalar("SELECT by_name FROM ebb.audit WHERE policy = 'seats' AND action = 'delete'").await;
    assert_eq!(by, "the subject");
    let more =
        sqlx::query(r#"SELECT ebb.delete_subject('seats', '["north", "7", "junk"]')"#).execute(ebb.db.pool()).await;
    assert!(more.unwrap_err().to_string().contains("knows no subject"));
}

#[tokio::test]
async fn doctor_prints_the_grants_with_which_a_role_can_erase() {
    let ebb = Ebb::shop("mirror = { due = \"scheduled_deletion_at\", attempted = \"cleanup_attempted_at\" }").await;
    let worker = format!("worker_{}", ebb.db.name());
    ebb.db.execute(&format!("CREATE ROLE {worker}")).await;
    let ask = || async {
        let questions = Questions {
            wanted: Vec::new(),
            host_time: jiff::Timestamp::now(),
            role: Some(worker.clone()),
            embedded: true,
        };
        let report = ebb.engine.doctor(&questions).await.unwrap();
        report.findings.into_iter().find(|found| found.check == "privileges" && found.about.as_deref() == Some("users"))
    };
    let found = ask().await.expect("it may nothing yet");
    let grants = found.fix.unwrap().text;
    assert!(grants.contains("assigned_to"), "{grants}");
    ebb.db.execute(&grants).await;
    assert!(ask().await.is_none(), "{grants}");
    ebb.apply(&users(&format!(
        "role = \"{worker}\"\nmirror = {{ due = \"scheduled_deletion_at\", attempted = \"cleanup_attempted_at\" }}"
    )))
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    let finished = ebb.once("users").await;
    assert!(finished.runs.iter().all(|run| run.note.is_none()), "{finished:?}");
    assert_eq!(ebb.state("1").await, "none");
    assert_eq!(ebb.rows().await.0, 11);
}

#[tokio::test]
async fn row_security_is_named_for_what_it_is() {
    let ebb = Ebb::with(super::SHOP).await;
    let worker = format!("hidden_{}", ebb.db.name());
    ebb.db
        .execute(&format!(
            "CREATE ROLE {worker}; GRANT ALL ON users TO {worker}; ALTER TABLE users ENABLE ROW LEVEL SECURITY"
        ))
        .await;
    let mut client = ebb.client().await;
    execute(&mut client, &format!("SET ROLE {worker}; SET row_security = off")).await;
    let error = Error::from(sqlx::query("SELECT FROM users").execute(&mut client).await.unwrap_err());
    assert!(error.hint().unwrap().contains("BYPASSRLS"), "{error}: {:?}", error.hint());
}

#[tokio::test]
async fn an_erasure_before_a_tenants_own_term_is_found() {
    let ebb = Ebb::shop("tenant = \"tenant_id\"\ntenant_override = true\nfloor = \"30d\"").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let longer = OverrideChange::Set(TenantTerms { retention: Some(Term::days(60)), ..Default::default() });
    ebb::retain::set_override(&mut tx, "users", "t1", &longer, false, "test").await.unwrap();
    tx.commit().await.unwrap();
    for (tenant, days) in [("t1", 59), ("t1", 61), ("t0", 61), ("t0", 91)] {
        ebb.db
            .execute(&format!(
                "INSERT INTO ebb.audit (action, policy, policy_version, rows, by_name, details)
                 SELECT 'erase', 'users', version, 1, '{tenant} {days}', jsonb_build_object('deletion', gen_random_uuid(), 'tenant', '{tenant}',
                     'soft_deleted_at', ebb.now() - interval '{days} days', 'erased_at', ebb.now(), 'expedited', false)
                 FROM ebb.policy WHERE name = 'users'"
            ))
            .await;
    }
    let mut tx = ebb.engine.database().read().await.unwrap();
    let report = ebb::retain::report(&mut tx, None, None, None).await.unwrap();
    let mut early = Vec::new();
    for found in &report.premature {
        early
            .push(ebb.db.scalar::<String>(&format!("SELECT by_name FROM ebb.audit WHERE id = {}", found.record)).await);
    }
    assert_eq!(early, ["t1 59", "t0 61"]);
    assert!(report.csv().contains("premature,users,"), "{}", report.csv());
}
