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
