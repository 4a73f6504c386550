//! Consent: whichever way a policy changes, by name, table, filter or switch, nobody is due sooner and no floor goes down
//! without somebody having said so.

use ebb::policy::Spec;
use ebb::retain::{Consent, OverrideChange, TenantTerms, set_override};

use super::users;
use crate::harness::{Ebb, wanted};

fn sure() -> Consent {
    Consent { confirmed: true, reason: None }
}

/// The same file with another name of the policy.
fn renamed(config: &str) -> String {
    config.replace("name = \"users\"", "name = \"people\"")
}

impl Ebb {
    /// Refused although everything that becomes due was agreed to, until there is a reason, which is put on record.
    async fn needs_a_reason(&self, config: &str) {
        let all = wanted(config).unwrap();
        let refused = self.engine.apply_with(&all, false, "test", &sure()).await.unwrap_err();
        assert!(refused.is_refused() && refused.hint().unwrap().contains("--reason"), "{config}: {refused:?}");
        let on_record = "SELECT count(*) FROM ebb.audit WHERE action = 'floor'";
        let before: i64 = self.db.scalar(on_record).await;
        let why = Consent { reason: Some("the law changed".into()), ..sure() };
        self.engine.apply_with(&all, false, "lawyer", &why).await.unwrap();
        assert!(self.db.scalar::<i64>(on_record).await > before, "{config}");
        // What was agreed to is not asked again.
        self.apply(config).await;
    }
}

#[tokio::test]
async fn a_floor_does_not_leave_with_its_policy_to_another_table() {
    let config = users("floor = \"40d\"\n");
    let moved = config.replace("public.users", "public.others");
    let unfloored = renamed(&users(""));
    let others = "CREATE TABLE others (id bigint PRIMARY KEY, deleted_at timestamptz)";
    for then in [moved.clone(), format!("{moved}{unfloored}")] {
        let ebb = Ebb::shop("floor = \"40d\"").await;
        ebb.db.execute(others).await;
        ebb.needs_a_reason(&then).await;
    }
    // Nor where one of the same rows waited beside it, switched off.
    let ebb = Ebb::shop("floor = \"40d\"").await;
    ebb.apply(&format!("{config}{unfloored}enabled = false\n")).await;
    let on = Spec::from_iter([("enabled".to_owned(), true.into())]);
    ebb.apply(&format!("{unfloored}enabled = false\n")).await;
    let refused = ebb.engine.set_policy_with("people", &on, "test", &sure()).await.unwrap_err();
    assert!(refused.to_string().contains("its floor 40d would not hold"), "{refused}");
    ebb.needs_a_reason(&unfloored).await;
}

#[tokio::test]
async fn a_floor_does_not_leave_rows_that_a_filter_lets_go() {
    let by_age = |filter: &str, more: &str| {
        format!(
            "[[retain]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"at\"\nolder_than = \"10y\"\nfloor = \"10y\"\nwhere = \"{filter}\"\n{more}"
        )
    };
    let sweep = "[[expire]]\nname = \"x\"\ntable = \"public.pay\"\ncolumn = \"at\"\nolder_than = \"30d\"\nwhere = \"kind = 'invoice'\"\n";
    for then in [by_age("kind = 'draft'", ""), by_age("kind = 'draft'", sweep)] {
        let ebb = Ebb::with("CREATE TABLE pay (at timestamptz, kind text)").await;
        ebb.apply(&by_age("kind = 'invoice'", "")).await;
        // More rows than before, and the same ones, are no matter.
        ebb.apply(&by_age("kind in ('invoice', 'draft')", "")).await;
        ebb.needs_a_reason(&by_age("kind = 'invoice'", "")).await;
        ebb.needs_a_reason(&then).await;
    }
    // Seconds are no milliseconds.
    let ebb = Ebb::with("CREATE TABLE pay (at bigint)").await;
    let seconds = "[[retain]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"at\"\nunit = \"s\"\nolder_than = \"10y\"\nfloor = \"10y\"\n";
    ebb.apply(seconds).await;
    let sweep =
        "[[expire]]\nname = \"x\"\ntable = \"public.pay\"\ncolumn = \"at\"\nunit = \"s\"\nolder_than = \"10y\"\n";
    ebb.apply(&format!("{seconds}{sweep}")).await;
    ebb.apply(seconds).await;
    ebb.needs_a_reason(&format!("{seconds}{}", sweep.replace("\"s\"", "\"ms\""))).await;
}

#[tokio::test]
async fn a_floor_holds_for_rows_that_become_its_own_later() {
    let ebb = Ebb::with(
        "CREATE TABLE pay (id int, at timestamptz, kind text, status text);
         INSERT INTO pay VALUES (1, now() - interval '1 year', 'invoice', 'open'), (2, now() - interval '1 year', 'draft', 'done')",
    )
    .await;
    let keep = "[[retain]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"at\"\nolder_than = \"10y\"\nfloor = \"10y\"\nwhere = \"kind = 'invoice'\"\n";
    let sweep = |filter: &str| {
        let filter = filter.replace('"', "\\\"");
        format!(
            "{keep}[[expire]]\nname = \"x\"\ntable = \"public.pay\"\ncolumn = \"at\"\nolder_than = \"30d\"\nbrake = {{ share = \"off\" }}\nwhere = \"{filter}\"\n"
        )
    };
    let refused = ebb.try_apply(&sweep("status = 'done'")).await.unwrap_err();
    assert!(refused.is_refused() && refused.to_string().contains("its floor 10y would not hold"), "{refused}");
    let hint = refused.hint().unwrap();
    let apart = "(status = 'done') AND (kind = 'invoice') IS NOT TRUE";
    assert!(hint.contains(&format!("where = \"{apart}\"; or say why: --reason")), "{hint}");
    // As the hint says: nobody is asked, and what becomes an invoice that is done stays.
    ebb.apply(&sweep(apart)).await;
    ebb.db.execute("UPDATE pay SET status = 'done'").await;
    ebb.once("x").await;
    assert_eq!(ebb.list("id", "pay").await, "1");
    let ebb = Ebb::with("CREATE TABLE pay (at timestamptz, kind text, status text)").await;
    ebb.apply(keep).await;
    ebb.needs_a_reason(&sweep("status = 'done'")).await;
}

#[tokio::test]
async fn another_name_makes_nobody_due_unseen() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 5) n").await;
    ebb.db.advance("80 days").await;
    let shorter = renamed(&users("")).replace("\"90d\"", "\"70d\"");
    let refused = ebb.try_apply(&shorter).await.unwrap_err();
    assert_eq!(refused.to_string(), "policy people: 5 more subjects would be due at once");
    let plan = ebb.engine.plan(&wanted(&shorter).unwrap()).await.unwrap();
    assert_eq!((plan.made_due[0].before, plan.made_due[0].after), (0, 5));
    // As long as before, and nobody is asked.
    ebb.apply(&renamed(&users(""))).await;
    ebb.once("people").await;
    assert_eq!(ebb.rows().await.0, 12);
    // One that left before, and comes back for a shorter time.
    ebb.apply("").await;
    let refused = ebb.try_apply(&users("").replace("\"90d\"", "\"70d\"")).await.unwrap_err();
    assert!(refused.to_string().contains("5 more subjects would be due at once"), "{refused}");
}

#[tokio::test]
async fn another_name_forgets_no_tenants_terms_unseen() {
    let keys = "tenant = \"tenant_id\"\ntenant_override = true\n";
    let ebb = Ebb::shop(keys).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let off = OverrideChange::Set(TenantTerms { enabled: false, ..Default::default() });
    set_override(&mut tx, "users", "t1", &off, false, "test").await.unwrap();
    tx.commit().await.unwrap();
    let other = renamed(&users(keys));
    let refused = ebb.try_apply(&other).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "policy people: terms of 1 tenant by the policy that it replaces would hold no longer"
    );
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 3) n").await;
    ebb.db.advance("91 days").await;
    let refused = ebb.try_apply(&other).await.unwrap_err().to_string();
    assert!(refused.contains("1 more subject would be due at once; terms of 1 tenant"), "{refused}");
    ebb.engine.apply_with(&wanted(&other).unwrap(), false, "test", &sure()).await.unwrap();
    ebb.once("people").await;
    assert_eq!(ebb.rows().await.0, 9);
}

#[tokio::test]
async fn a_change_switches_a_policy_on_only_where_it_says_so() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 5) n").await;
    ebb.db.advance("91 days").await;
    ebb.apply("").await;
    let set = |key: &str, value: serde_json::Value| Spec::from_iter([(key.to_owned(), value)]);
    ebb.engine.set_policy("users", &set("description", "kept".into()), "test").await.unwrap();
    let (spec, version): (serde_json::Value, i64) =
        sqlx::query_as("SELECT spec - 'enabled', version FROM ebb.policy WHERE name = 'users'")
            .fetch_one(ebb.db.pool())
            .await
            .unwrap();
    let spec: Spec = serde_json::from_value(spec).unwrap();
    ebb.engine.put_policy("users", &spec, version, "test", &Consent::default()).await.unwrap();
    assert!(!ebb.db.scalar::<bool>("SELECT enabled FROM ebb.policy WHERE name = 'users'").await);
    let refused = ebb.engine.set_policy("users", &set("enabled", true.into()), "test").await.unwrap_err();
    assert!(refused.to_string().contains("5 more subjects would be due at once"), "{refused}");
    ebb.engine.set_policy_with("users", &set("enabled", true.into()), "test", &sure()).await.unwrap();
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 7);
}

/// One key of a policy at runtime.
fn key(key: &str, value: serde_json::Value) -> Spec {
    Spec::from_iter([(key.to_owned(), value)])
}

impl Ebb {
    /// Refused with this number until somebody agrees.
    async fn asks(&self, change: &Spec, says: &str) {
        let refused = self.engine.set_policy("users", change, "test").await.unwrap_err();
        assert!(refused.is_refused() && refused.to_string().contains(says), "{change:?}: {refused:?}");
    }

    async fn terms(&self, tenant: &str, retention: &str) {
        let terms = TenantTerms { retention: Some(retention.parse().unwrap()), ..Default::default() };
        let mut tx = self.engine.database().read().await.unwrap();
        set_override(&mut tx, "users", tenant, &OverrideChange::Set(terms), true, "test").await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn who_becomes_due_is_not_made_up_for_by_who_no_longer_is() {
    for marked in [true, false] {
        let ebb = Ebb::with(super::SHOP).await;
        ebb.apply(&users("tenant = \"tenant_id\"\ntenant_override = true").replace("\"90d\"", "\"40d\"")).await;
        ebb.terms("t0", "400d").await;
        ebb.terms("t1", "10d").await;
        // Four of each: t0 would be due without its own terms, t1 is due with them.
        ebb.db
            .execute(
                "UPDATE users SET deleted_at = now() - interval '50 days' WHERE tenant_id = 't0';
                 UPDATE users SET deleted_at = now() - interval '20 days' WHERE tenant_id = 't1'",
            )
            .await;
        if marked {
            ebb.once("users:mark").await;
        }
        let none = key("tenant_override", false.into());
        ebb.asks(&none, "4 more subjects would be due at once").await;
        let config = users("tenant = \"tenant_id\"").replace("\"90d\"", "\"40d\"");
        let refused = ebb.try_apply(&config).await.unwrap_err();
        assert!(refused.to_string().contains("4 more subjects would be due at once"), "{refused}");
        let due = &ebb.engine.plan(&wanted(&config).unwrap()).await.unwrap().made_due[0];
        assert_eq!((due.before, due.after, due.more()), (4, 4, 4), "{due:?}");
        // Another name is no other way, nor is one while more are due by the old one.
        let refused = ebb.try_apply(&renamed(&config)).await.unwrap_err();
        assert!(refused.to_string().contains("4 more subjects would be due at once"), "{refused}");
        // What is as it was asks nobody.
        ebb.engine.set_policy("users", &key("description", "people".into()), "test").await.unwrap();
        assert_eq!(ebb.rows().await.0, 12);
        ebb.engine.set_policy_with("users", &none, "test", &sure()).await.unwrap();
        ebb.once("users:mark").await;
        ebb.once("users:erase").await;
        assert_eq!(ebb.list("tenant_id", "users").await, "t1,t1,t1,t1,t2,t2,t2,t2");
    }
}

#[tokio::test]
async fn who_was_kept_back_by_unless_is_let_go_only_once_that_was_seen() {
    for marked in [true, false] {
        let ebb = Ebb::shop("unless = \"id > 3\"").await;
        ebb.db.execute("UPDATE users SET deleted_at = now() - interval '91 days' WHERE id < 7").await;
        if marked {
            ebb.once("users:mark").await;
        }
        for (then, more) in [
            (serde_json::Value::Null, "3 more subjects would be due at once"),
            ("id > 5".into(), "2 more subjects would be due at once"),
            // It raises an error over rows, so nobody can say.
            ("(name || id)::int > 5".into(), "more subjects than can be counted now may be due at once"),
        ] {
            ebb.asks(&key("unless", then), more).await;
        }
        let refused = ebb.try_apply(&users("")).await.unwrap_err();
        assert!(refused.to_string().contains("3 more subjects would be due at once"), "{refused}");
        let refused = ebb.try_apply(&renamed(&users(""))).await.unwrap_err();
        assert!(refused.to_string().contains("3 more subjects would be due at once"), "{refused}");
        let due = &ebb.engine.plan(&wanted(&users("")).unwrap()).await.unwrap().made_due[0];
        assert_eq!((due.before, due.after, due.more()), (3, 6, 3), "{due:?}");
        // One that keeps as many back or more, or whoever is not due any more, is nobody's question.
        for then in ["id > 3 AND true", "id > 3", "id > 2"] {
            ebb.engine.set_policy("users", &key("unless", then.into()), "test").await.unwrap();
        }
        let mut longer = key("unless", serde_json::Value::Null);
        longer.insert("grace".into(), "200d".into());
        ebb.engine.set_policy("users", &longer, "test").await.unwrap();
        assert_eq!(ebb.rows().await.0, 12);
    }
}

#[tokio::test]
async fn a_policy_that_observed_lets_nobody_go_unseen() {
    let ebb = Ebb::shop("mode = \"observe\"").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 3) n").await;
    ebb.db.advance("91 days").await;
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() - interval '91 days' WHERE id IN (4, 5)").await;
    // While it observes nothing goes, whatever its terms.
    ebb.engine.set_policy("users", &key("grace", "80d".into()), "test").await.unwrap();
    for enforces in ["enforce".into(), serde_json::Value::Null] {
        ebb.asks(&key("mode", enforces), "5 more subjects would be due at once").await;
    }
    let refused = ebb.try_apply(&renamed(&users(""))).await.unwrap_err();
    assert!(refused.to_string().contains("5 more subjects would be due at once"), "{refused}");
    ebb.engine.set_policy_with("users", &key("mode", "enforce".into()), "test", &sure()).await.unwrap();
    ebb.once("users:mark").await;
    ebb.once("users:erase").await;
    assert_eq!(ebb.rows().await.0, 7);
    // Rows by their age are no different.
    let ebb = Ebb::with("CREATE TABLE pay (at timestamptz); INSERT INTO pay SELECT now() - interval '50 days'").await;
    let by_age = "[[retain]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"at\"\nolder_than = \"40d\"\n";
    ebb.apply(&format!("{by_age}mode = \"observe\"\n")).await;
    let refused = ebb.try_apply(by_age).await.unwrap_err();
    assert!(refused.to_string().contains("1 more row would be due at once"), "{refused}");
}

#[tokio::test]
async fn a_floor_is_asked_about_when_its_table_comes_to_share_rows_with_a_swept_one() {
    let ebb = Ebb::with(
        "CREATE TABLE pay (id bigint, paid timestamptz NOT NULL) PARTITION BY RANGE (paid);
         CREATE TABLE pay_old (id bigint, paid timestamptz NOT NULL)",
    )
    .await;
    let keeps = "[[retain]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"paid\"\nolder_than = \"10y\"\nfloor = \"10y\"\n";
    let both = format!(
        "{keeps}\n[[expire]]\nname = \"stage\"\ntable = \"public.pay_old\"\ncolumn = \"paid\"\nolder_than = \"1y\"\n"
    );
    ebb.apply(&both).await;
    ebb.apply(&both).await;
    ebb.db.execute("ALTER TABLE pay ATTACH PARTITION pay_old FOR VALUES FROM ('2000-01-01Z') TO ('2020-01-01Z')").await;
    let refused = ebb.try_apply(&both).await.unwrap_err();
    let says = "policy stage takes rows of public.pay_old that policy pay keeps: its floor 10y would not hold";
    assert!(refused.to_string().contains(says), "{refused}");
    let because = Consent { confirmed: true, reason: Some("the archive has them".into()) };
    ebb.engine.apply_with(&wanted(&both).unwrap(), false, "test", &because).await.unwrap();
    // That reason is on record.
    ebb.apply(&both).await;
}
