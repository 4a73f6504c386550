//! Tables and columns that get other names: what somebody promised about them holds under whatever name they go.

use ebb::retain::{Consent, OverrideChange, TenantTerms, set_override};
use ebb::spine::Status;

use super::{SHOP, users};
use crate::harness::{Ebb, execute, run_once, wanted};

const RENAMES: [(&str, &str); 2] = [
    ("ALTER TABLE users RENAME TO members", "public.members"),
    ("CREATE SCHEMA club; ALTER TABLE users SET SCHEMA club", "club.users"),
];

/// The same policy under another name, over the table that was renamed.
fn members(more: &str, table: &str) -> String {
    users(more)
        .replace("name = \"users\"", "name = \"members\"")
        .replace("public.users", table)
        .replace("\"90d\"", "\"1d\"")
}

fn consent(reason: Option<&str>) -> Consent {
    Consent { confirmed: true, reason: reason.map(str::to_owned) }
}

impl Ebb {
    pub(super) async fn agreed(&self, config: &str, reason: Option<&str>) -> ebb::Result<()> {
        self.engine.apply_with(&wanted(config).unwrap(), false, "test", &consent(reason)).await.map(|_| ())
    }

    async fn refusal(&self, config: &str, reason: Option<&str>) -> (String, String) {
        let refused = self.agreed(config, reason).await.unwrap_err();
        (refused.to_string(), refused.hint().unwrap_or_default().to_owned())
    }

    pub(super) async fn why_stopped(&self, policy: &str) -> String {
        self.db.scalar(&format!("SELECT COALESCE(stopped, '') FROM ebb.policy WHERE name = '{policy}'")).await
    }

    /// Changes a table while a run's batch has its fence behind it and has not locked the table yet; the run has ended by then.
    pub(super) async fn change_inside_a_batch(&self, (policy, chore): (&str, &str), change: &str) {
        let runs = format!("FROM ebb.run WHERE policy = '{policy}' AND chore = '{chore}'");
        let before: i64 = self.db.scalar(&format!("SELECT count(*) {runs}")).await;
        let mut other = self.client().await;
        execute(&mut other, &format!("BEGIN; SELECT FROM ebb.gate WHERE policy = '{policy}' FOR UPDATE")).await;
        let node = self.start(&[policy]);
        self.until("EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%ebb.gate%' AND pid <> pg_backend_pid())").await;
        self.db.execute(change).await;
        execute(&mut other, "COMMIT").await;
        self.until(&format!("SELECT count(*) > {before} AND bool_and(finished_at IS NOT NULL) {runs}")).await;
        node.stop().await;
    }
}

/// Two columns of a table take each other's names.
pub(super) fn swap(table: &str, one: &str, other: &str) -> String {
    format!(
        "BEGIN; ALTER TABLE {table} RENAME {one} TO x; ALTER TABLE {table} RENAME {other} TO {one};
         ALTER TABLE {table} RENAME x TO {other}; COMMIT"
    )
}

#[tokio::test]
async fn a_floor_and_tenants_terms_do_not_go_with_the_name_of_their_table() {
    for (rename, table) in RENAMES {
        let keys = "tenant = \"tenant_id\"\ntenant_override = true\n";
        let ebb = Ebb::shop(&format!("{keys}floor = \"40d\"")).await;
        let mut tx = ebb.engine.database().read().await.unwrap();
        let off = OverrideChange::Set(TenantTerms { enabled: false, ..Default::default() });
        set_override(&mut tx, "users", "t1", &off, false, "test").await.unwrap();
        tx.commit().await.unwrap();
        ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 5) n").await;
        ebb.db.advance("50 days").await;
        ebb.db.execute(rename).await;
        let (said, hint) = ebb.refusal(&members(keys, table), None).await;
        assert!(said.contains("the floor 40d of policy users would go down") && hint.contains("--reason"), "{said}");
        let kept = members(&format!("{keys}floor = \"40d\""), table).replace("\"1d\"", "\"45d\"");
        let asked = ebb.try_apply(&kept).await.unwrap_err().to_string();
        assert_eq!(
            asked,
            "policy members: 5 more subjects would be due at once; terms of 1 tenant by the policy that it replaces would hold no longer"
        );
        // Nor is it swept past that floor, by any other policy, after its own has left.
        ebb.agreed("", None).await.unwrap();
        let sweep =
            format!("[[expire]]\nname = \"old\"\ntable = \"{table}\"\ncolumn = \"updated_at\"\nolder_than = \"1d\"\n");
        let (said, _) = ebb.refusal(&sweep, None).await;
        assert!(said.contains("that policy users keeps: its floor 40d would not hold"), "{said}");
    }
}

#[tokio::test]
async fn a_hold_binds_under_whatever_name_its_table_goes() {
    for (rename, table) in RENAMES {
        let ebb = Ebb::shop("").await;
        ebb.db.execute("SELECT ebb.place_hold('users', '3', 'court')").await;
        ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(3, 4) n").await;
        ebb.db.execute(rename).await;
        let (said, hint) = ebb.refusal(&members("", table), None).await;
        assert_eq!(said, format!("policy users has 1 hold, and its table public.users is {table} now"));
        assert_eq!(hint, format!("first apply it with table = \"{table}\", under its own name"));
        // Followed under its own name first, it binds the one that comes after it.
        ebb.agreed(&users("").replace("public.users", table), None).await.unwrap();
        ebb.agreed(&members("", table), None).await.unwrap();
        ebb.db.advance("91 days").await;
        ebb.once("members").await;
        let left: String = ebb.list("id", &format!("{table} WHERE id IN (3, 4)")).await;
        assert_eq!(left, "3");
    }
}

#[tokio::test]
async fn so_it_does_where_a_table_below_is_called_otherwise() {
    let ebb = Ebb::with(SHOP).await;
    ebb.db.execute("ALTER TABLE sessions ADD at timestamptz NOT NULL DEFAULT now() - interval '1 day'").await;
    ebb.apply(&users("")).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '3', 'court')").await;
    ebb.apply("").await;
    ebb.db.execute("ALTER TABLE sessions RENAME TO visits").await;
    let sweep =
        "[[expire]]\nname = \"visits\"\ntable = \"public.visits\"\ncolumn = \"at\"\nbrake = { share = \"off\" }\n";
    let (said, hint) = ebb.refusal(sweep, None).await;
    assert_eq!(
        said,
        "policy users has 1 hold, and public.sessions, which has rows of its subjects, is public.visits now"
    );
    assert_eq!(hint, "first apply it as well, in a file that has it");
    let both = users("") + "\n" + sweep;
    ebb.agreed(&both, None).await.unwrap();
    ebb.agreed(sweep, None).await.unwrap();
    ebb.once("visits").await;
    assert_eq!(ebb.list("user_id", "(SELECT DISTINCT user_id FROM visits) v").await, "3");
}

#[tokio::test]
async fn a_cascade_into_a_table_that_is_called_otherwise_by_now_takes_nobody_along() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE threads (id bigint PRIMARY KEY, at timestamptz DEFAULT now() - interval '1 day');
         CREATE TABLE posts (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, thread_id bigint);
         CREATE INDEX ON posts (user_id); CREATE INDEX ON posts (thread_id);
         INSERT INTO users VALUES (1); INSERT INTO threads VALUES (10); INSERT INTO posts VALUES (100, 1, 10)",
    )
    .await;
    let sweep =
        "[[expire]]\nname = \"threads\"\ntable = \"public.threads\"\ncolumn = \"at\"\nbrake = { share = \"off\" }\n";
    ebb.apply(&(users("") + "\n" + sweep)).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
    ebb.db.execute("ALTER TABLE posts RENAME TO entries; ALTER TABLE entries ADD FOREIGN KEY (thread_id) REFERENCES threads ON DELETE CASCADE").await;
    ebb.once("threads").await;
    assert_eq!(ebb.list("id", "entries").await, "100");
    let why = ebb.why_stopped("threads").await;
    assert!(why.contains("takes rows of public.entries along by ON DELETE CASCADE"), "{why}");
}

#[tokio::test]
async fn a_policy_with_open_requests_follows_its_table_beside_another_that_took_its_name() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '3')").await;
    ebb.db
        .execute(
            "ALTER TABLE users RENAME TO members; CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz)",
        )
        .await;
    ebb.agreed(&users("").replace("public.users", "public.members"), None).await.unwrap();
    let (said, _) = ebb.refusal(&users(""), None).await;
    assert!(
        said.contains("open deletions or holds of subjects of public.members, and cannot be about public.users"),
        "{said}"
    );
}

#[tokio::test]
async fn a_column_that_took_anothers_name_stops_its_policy_until_somebody_agrees() {
    let swap = |one: &str, other: &str| {
        format!("BEGIN; ALTER TABLE t RENAME {one} TO x; ALTER TABLE t RENAME {other} TO {one}; COMMIT")
    };
    let subjects = users("").replace("public.users", "public.t").replace("name = \"users\"", "name = \"t\"");
    let direct = "[[retain]]\nname = \"t\"\ntable = \"public.t\"\ncolumn = \"deleted_at\"\nolder_than = \"1d\"\nbrake = { share = \"off\" }\n";
    let expire =
        "[[expire]]\nname = \"t\"\ntable = \"public.t\"\ncolumn = \"deleted_at\"\nbrake = { share = \"off\" }\n";
    let tenant = subjects.clone() + "tenant = \"tenant\"\ntenant_override = true\n";
    for (config, one, other) in [
        (subjects.as_str(), "deleted_at", "created_at"),
        (direct, "deleted_at", "created_at"),
        (expire, "deleted_at", "created_at"),
        (tenant.as_str(), "tenant", "owner"),
    ] {
        let ebb = Ebb::with(
            "CREATE TABLE t (id bigint PRIMARY KEY, deleted_at timestamptz, created_at timestamptz DEFAULT now() - interval '1 year',
                 tenant text, owner text); INSERT INTO t SELECT n FROM generate_series(1, 3) n",
        )
        .await;
        ebb.apply(config).await;
        ebb.db.execute(&swap(one, other)).await;
        let ran = run_once(&ebb.engine, &["t"]).await;
        let says = format!(
            "column {one} of public.t is another one than when the policy was applied: that one is called x now"
        );
        let why = ebb.why_stopped("t").await;
        assert!(why.contains(&says), "{config}: {why} {ran:?}");
        assert_eq!(ebb.list("id", "t").await, "1,2,3", "{config}");
        let refused = ebb.try_apply(config).await.unwrap_err();
        assert!(refused.is_refused() && refused.to_string().contains(&says), "{refused}");
        assert!(refused.hint().unwrap().contains("say --yes"), "{refused:?}");
        let plan = ebb.engine.plan(&wanted(config).unwrap()).await.unwrap();
        let problems = plan.policies.iter().flat_map(|plan| &plan.problems).map(|problem| &problem.message);
        let findings = plan.trees.iter().flat_map(|tree| &tree.findings).map(|found| &found.message);
        assert!(plan.has_problems() && problems.chain(findings).any(|message| message.contains(&says)), "{plan:?}");
        let doctor = ebb.engine.doctor(&super::told::questions(config)).await.unwrap();
        assert!(doctor.findings.iter().any(|found| found.evidence.contains(&says)), "{:?}", doctor.findings);
        ebb.agreed(config, None).await.unwrap();
        ebb.once("t").await;
        assert_eq!(ebb.why_stopped("t").await, "");
        ebb.apply(config).await;
    }
}

#[tokio::test]
async fn a_floor_counts_from_the_column_and_not_from_its_name() {
    let ebb = Ebb::with("CREATE TABLE pay (paid timestamptz, made timestamptz)").await;
    let config = "[[retain]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"paid\"\nolder_than = \"10y\"\nfloor = \"10y\"\n";
    ebb.apply(config).await;
    ebb.db.execute("ALTER TABLE pay RENAME paid TO x; ALTER TABLE pay RENAME made TO paid").await;
    let (said, hint) = ebb.refusal(config, None).await;
    assert!(
        said.contains("the floor 10y of policy pay would count from another time") && hint.contains("--reason"),
        "{said}"
    );
    ebb.agreed(config, Some("the column was a mistake")).await.unwrap();
    ebb.apply(config).await;
}

#[tokio::test]
async fn a_policy_that_is_switched_on_again_is_asked_about_columns_that_moved_meanwhile() {
    let off = |config: &str| config.to_owned() + "enabled = false\n";
    let keys = |keys: &str| serde_json::from_str(keys).unwrap();
    let expire = "[[expire]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"paid\"\nolder_than = \"10y\"\n";
    let retain = expire.replace("expire", "retain") + "floor = \"10y\"\n";
    for (config, has_floor) in [(expire, false), (&retain, true)] {
        let ebb = Ebb::with("CREATE TABLE pay (paid timestamptz, made timestamptz)").await;
        ebb.apply(config).await;
        ebb.apply(&off(config)).await;
        ebb.db.execute(&swap("pay", "paid", "made")).await;
        // Whatever changes meanwhile, of the policy itself too.
        ebb.apply(&off(config)).await;
        ebb.apply(&off(&(config.to_owned() + "every = \"2h\"\n"))).await;
        ebb.engine.set_policy("pay", &keys("{\"every\": \"3h\"}"), "test").await.unwrap();
        let (on, yes) = (keys("{\"enabled\": true}"), consent(None));
        let by_file = ebb.try_apply(config).await.map(drop);
        for asked in [by_file, ebb.engine.set_policy("pay", &on, "test").await.map(drop)] {
            let said = asked.unwrap_err().to_string();
            assert!(said.contains("column paid of public.pay is another one than when"), "{said}");
        }
        if has_floor {
            let refused = ebb.engine.set_policy_with("pay", &on, "test", &yes).await.unwrap_err().to_string();
            assert!(refused.contains("the floor 10y of policy pay would count from another time"), "{refused}");
            assert_eq!(ebb.refusal(config, None).await.0, refused);
        }
        let reason = consent(Some("the column was a mistake"));
        ebb.engine.set_policy_with("pay", &on, "test", &reason).await.unwrap();
        // From then on it is about that one.
        ebb.engine.set_policy("pay", &keys("{\"enabled\": false}"), "test").await.unwrap();
        ebb.engine.set_policy("pay", &on, "test").await.unwrap();
    }
}

#[tokio::test]
async fn whatever_became_of_its_table_a_policy_can_be_switched_off() {
    let off = serde_json::from_str("{\"enabled\": false}").unwrap();
    let subjects = users("mark_at_once = true\nfloor = \"40d\"");
    let direct = "[[retain]]\nname = \"users\"\ntable = \"public.users\"\ncolumn = \"deleted_at\"\nolder_than = \"90d\"\nfloor = \"40d\"\n";
    for config in [&subjects, direct] {
        for change in [
            "DROP TABLE users CASCADE",
            "ALTER TABLE users DROP deleted_at CASCADE",
            "ALTER TABLE users RENAME deleted_at TO removed_at",
            "ALTER TABLE users RENAME TO members",
            &swap("users", "deleted_at", "updated_at"),
        ] {
            let ebb = Ebb::with(SHOP).await;
            ebb.apply(config).await;
            if config == subjects {
                ebb.db.execute("SELECT ebb.delete_subject('users', '3')").await;
            }
            ebb.db.execute(change).await;
            ebb.engine.set_policy("users", &off, "test").await.unwrap();
            let left = "SELECT enabled OR EXISTS (SELECT FROM pg_trigger WHERE tgname LIKE 'mark%') FROM ebb.policy WHERE name = 'users'";
            assert!(!ebb.db.scalar::<bool>(left).await, "{change}");
        }
    }
}

#[tokio::test]
async fn a_column_that_a_policy_named_while_it_was_off_is_the_one_that_was_there() {
    let ebb = Ebb::with("CREATE TABLE pay (paid timestamptz, made timestamptz, due timestamptz)").await;
    let config = "[[expire]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"paid\"\n";
    ebb.apply(&(config.to_owned() + "enabled = false\n")).await;
    let other = config.replace("paid", "due");
    ebb.apply(&(other.clone() + "enabled = false\n")).await;
    ebb.db.execute(&swap("pay", "due", "made")).await;
    let said = ebb.try_apply(&other).await.unwrap_err().to_string();
    assert!(said.contains("column due of public.pay is another one"), "{said}");
    // The one that it named before is where it was.
    ebb.apply(config).await;
}

#[tokio::test]
async fn so_does_a_run_that_is_under_way() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz, born timestamptz DEFAULT now() - interval '1 year');
         INSERT INTO t SELECT n, CASE WHEN n <= 20 THEN now() - interval '1 day' END FROM generate_series(1, 40) n",
    )
    .await;
    ebb.policy("batch = { rows = 1, pause = \"100ms\" }").await;
    let node = ebb.start(&["t"]);
    ebb.until("SELECT count(*) < 40 FROM t").await;
    ebb.db.execute("BEGIN; ALTER TABLE t RENAME at TO x; ALTER TABLE t RENAME born TO at; COMMIT").await;
    ebb.until("SELECT stopped LIKE '%column at of public.t is another one%' FROM ebb.policy WHERE name = 't'").await;
    node.stop().await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM t WHERE id > 20").await, 20);
    assert!(ebb.db.scalar::<i64>("SELECT count(*) FROM t").await > 20, "the run ended by it");
}

#[tokio::test]
async fn and_a_batch_that_had_not_locked_the_table_yet() {
    for more in ["", "batch = { rows = 5, pause = \"1ms\" }"] {
        let ebb = Ebb::with(
            "CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz, born timestamptz DEFAULT now() - interval '1 year');
             INSERT INTO t SELECT n, CASE WHEN n <= 20 THEN now() - interval '1 day' END FROM generate_series(1, 40) n",
        )
        .await;
        ebb.policy(more).await;
        ebb.change_inside_a_batch(("t", "expire"), &swap("t", "at", "born")).await;
        assert_eq!((ebb.db.scalar::<i64>("SELECT count(*) FROM t").await, ebb.audited().await), (40, 0), "{more}");
        run_once(&ebb.engine, &["t"]).await.unwrap();
        let why = ebb.why_stopped("t").await;
        assert!(why.contains("column at of public.t is another one"), "{why}");
    }
}

#[tokio::test]
async fn no_subject_goes_while_a_floor_below_it_counts_from_another_column() {
    let orders = "[[retain]]\nname = \"orders\"\ntable = \"orders\"\ncolumn = \"closed_at\"\nolder_than = \"10y\"\nfloor = \"10y\"\nbrake = { share = \"off\" }\n";
    let config = users("") + "\n" + orders;
    for inside_a_batch in [false, true] {
        let ebb = Ebb::with(
            "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
             CREATE TABLE orders (id int PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE,
                 closed_at timestamptz DEFAULT now(), made_at timestamptz DEFAULT now() - interval '20 years');
             CREATE INDEX ON orders (user_id); INSERT INTO users VALUES (1); INSERT INTO orders VALUES (1, 1)",
        )
        .await;
        ebb.apply(&config).await;
        ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
        ebb.db.advance("91 days").await;
        let swap = swap("orders", "closed_at", "made_at");
        match inside_a_batch {
            true => ebb.change_inside_a_batch(("users", "erase"), &swap).await,
            false => ebb.db.execute(&swap).await,
        }
        run_once(&ebb.engine, &["users"]).await.unwrap();
        assert_eq!((ebb.list("id", "users").await, ebb.list("id", "orders").await), ("1".into(), "1".into()));
        let says = "policy orders keeps rows of its subjects: column closed_at of public.orders is another one";
        let why = ebb.why_stopped("users").await;
        assert!(why.contains(says), "{why}");
        let doctor = ebb.engine.doctor(&super::told::questions(&config)).await.unwrap();
        assert!(doctor.findings.iter().any(|found| found.evidence.contains(says)), "{:?}", doctor.findings);
        // With the columns back in place it goes, and the order stays.
        ebb.db.execute(&swap).await;
        ebb.apply(&config).await;
        ebb.once("users").await;
        assert_eq!((ebb.list("id", "users").await, ebb.list("id", "orders").await), ("".into(), "1".into()));
    }
}

#[tokio::test]
async fn a_column_is_followed_to_its_other_name_with_its_floor_and_open_deletions() {
    let ebb = Ebb::shop("floor = \"40d\"").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '3')").await;
    ebb.db.execute("ALTER TABLE users RENAME deleted_at TO removed_at").await;
    let followed = users("floor = \"40d\"").replace("\"deleted_at\"", "\"removed_at\"");
    ebb.apply(&followed).await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.state("3").await.as_str(), ebb.erased().await.0), ("none", 1));
}

/// A table that gets another name, and a new one of the same columns that takes its name.
fn rotate(table: &str, aside: &str) -> String {
    format!("BEGIN; ALTER TABLE {table} RENAME TO {aside}; CREATE TABLE {table} (LIKE {aside} INCLUDING ALL); COMMIT")
}

#[tokio::test]
async fn a_policy_does_not_move_to_a_table_that_took_the_name_of_its_own() {
    let ebb = Ebb::with("CREATE TABLE pay (id bigint PRIMARY KEY, paid timestamptz)").await;
    let keys = "name = \"pay\"\ntable = \"public.pay\"\ncolumn = \"paid\"\nolder_than = \"10y\"\n";
    let (floor, sweep) = (format!("[[retain]]\n{keys}floor = \"10y\"\n"), format!("[[expire]]\n{keys}"));
    let says = "public.pay is another table than when the policy was applied: that one is called public.pay_hist now, and its rows would be left behind";
    for config in [&floor, &sweep] {
        let ebb = Ebb::with("CREATE TABLE pay (id bigint PRIMARY KEY, paid timestamptz)").await;
        ebb.apply(config).await;
        ebb.db.execute(&rotate("pay", "pay_hist")).await;
        let plan = ebb.engine.plan(&wanted(config).unwrap()).await.unwrap();
        let problems = plan.policies.iter().flat_map(|plan| &plan.problems);
        assert!(problems.into_iter().any(|problem| problem.refused && problem.message == says), "{plan:?}");
        let refused = ebb.try_apply(config).await.unwrap_err();
        assert_eq!(refused.to_string(), format!("policy pay: {says}"));
        assert!(refused.hint().unwrap().contains("table = \"public.pay_hist\""), "{refused:?}");
    }
    // Where there is a floor, its rows are left behind only for a reason.
    ebb.apply(&floor).await;
    ebb.db.execute(&rotate("pay", "pay_hist")).await;
    let (said, _) = ebb.refusal(&floor, None).await;
    assert!(said.contains("the floor 10y of policy pay would not hold any more for rows that it keeps"), "{said}");
    let hist = "[[expire]]\nname = \"hist\"\ntable = \"public.pay_hist\"\ncolumn = \"paid\"\nolder_than = \"1y\"\n";
    let (said, _) = ebb.refusal(&format!("{floor}\n{hist}"), None).await;
    assert!(said.contains("its floor 10y would not hold") || said.contains("for rows that it keeps"), "{said}");
    ebb.agreed(&floor, Some("the old ones are in the archive")).await.unwrap();
    ebb.apply(&floor).await;
}

#[tokio::test]
async fn nor_does_it_say_a_word_where_the_table_went_below_the_new_one() {
    let ebb = Ebb::with("CREATE TABLE pay (id bigint, paid timestamptz)").await;
    let config = "[[retain]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"paid\"\nolder_than = \"10y\"\nfloor = \"10y\"\n";
    ebb.apply(config).await;
    ebb.db
        .execute(
            "BEGIN; ALTER TABLE pay RENAME TO pay_first; CREATE TABLE pay (LIKE pay_first) PARTITION BY RANGE (paid);
             ALTER TABLE pay ATTACH PARTITION pay_first FOR VALUES FROM ('2000-01-01Z') TO ('2100-01-01Z'); COMMIT",
        )
        .await;
    ebb.apply(config).await;
}

#[tokio::test]
async fn a_hold_stays_with_the_subjects_of_a_table_whose_name_another_one_took() {
    let ebb =
        Ebb::with("CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz); INSERT INTO users VALUES (1)")
            .await;
    ebb.apply(&users("")).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
    ebb.db.execute(&rotate("users", "users_old")).await;
    let (said, hint) = ebb.refusal(&users(""), Some("rotated")).await;
    assert_eq!(
        said,
        "policy users has open deletions or holds of subjects of public.users_old, and cannot be about public.users from now on"
    );
    assert!(hint.contains("table = \"public.users_old\"") && hint.contains("--yes"), "{hint}");
    ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    ebb.agreed(&users(""), None).await.unwrap();
}

#[tokio::test]
async fn a_floor_that_left_its_file_or_gets_another_name_counts_from_the_column_too() {
    let config = "[[retain]]\nname = \"pay\"\ntable = \"public.pay\"\ncolumn = \"paid\"\nolder_than = \"10y\"\nfloor = \"10y\"\n";
    let swapped = async || {
        let ebb = Ebb::with("CREATE TABLE pay (paid timestamptz, made timestamptz)").await;
        ebb.apply(config).await;
        let swap = "BEGIN; ALTER TABLE pay RENAME paid TO x; ALTER TABLE pay RENAME made TO paid; ALTER TABLE pay RENAME x TO made; COMMIT";
        ebb.db.execute(swap).await;
        ebb
    };
    let sweep = |column: &str| {
        format!("[[expire]]\nname = \"old\"\ntable = \"public.pay\"\ncolumn = \"{column}\"\nolder_than = \"10y\"\n")
    };
    let ebb = swapped().await;
    ebb.agreed("", None).await.unwrap();
    let (said, hint) = ebb.refusal(&sweep("paid"), None).await;
    assert!(said.contains("its floor 10y would not hold") && hint.contains("--reason"), "{said}");
    ebb.agreed(&sweep("made"), None).await.unwrap();

    let ebb = swapped().await;
    let renamed = config.replace("name = \"pay\"", "name = \"wages\"");
    let (said, hint) = ebb.refusal(&renamed, None).await;
    assert!(said.contains("the floor 10y of policy pay would count from another time"), "{said}");
    assert!(hint.contains("--reason"), "{hint}");
    ebb.agreed(&renamed.replace("\"paid\"", "\"made\""), None).await.unwrap();
}

#[tokio::test]
async fn a_hold_is_told_of_where_two_tables_swapped_names_and_can_be_lifted() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz); CREATE TABLE users_new (LIKE users INCLUDING ALL);
         CREATE TABLE logs (at timestamptz); INSERT INTO users VALUES (1); INSERT INTO users_new VALUES (1)",
    )
    .await;
    let sweep =
        "\n[[expire]]\nname = \"logs\"\ntable = \"public.logs\"\ncolumn = \"at\"\nbrake = { share = \"off\" }\n";
    ebb.apply(&(users("") + sweep)).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
    ebb.db.execute("ALTER TABLE users RENAME TO users_old; ALTER TABLE users_new RENAME TO users").await;
    let (said, hint) = ebb.refusal(sweep, None).await;
    assert_eq!(said, "policy users has 1 hold, and its table public.users is public.users_old now");
    assert!(
        hint.contains("table = \"public.users_old\"") && hint.contains("lift its holds, apply it as it is"),
        "{hint}"
    );
    ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    ebb.agreed(&(users("") + sweep), None).await.unwrap();
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
    ebb.agreed(sweep, None).await.unwrap();
}

#[tokio::test]
async fn a_hold_is_lifted_where_its_policy_left_and_its_table_is_called_otherwise() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.place_hold('users', n::text, 'court') FROM generate_series(3, 4) n").await;
    ebb.apply("").await;
    ebb.db.execute("ALTER TABLE users RENAME TO members").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let hold = ebb::retain::held(&mut tx, "users", "3").await.unwrap();
    assert_eq!(hold.map(|hold| hold.reason).as_deref(), Some("court"));
    ebb::retain::release(&mut tx, "users", "3", "test").await.unwrap();
    ebb::retain::commit(tx).await.unwrap();
    assert_eq!(ebb.list("subject_id", "ebb.hold WHERE lifted_at IS NULL").await, "4");
    // Who is not on hold by this id cannot be told to be somebody else.
    let mut tx = ebb.engine.database().read().await.unwrap();
    let unknown = ebb::retain::release(&mut tx, "users", "04", "test").await.unwrap_err();
    assert!(unknown.to_string().contains("the table is not what policy users says"), "{unknown}");
}

/// Users 1 and 2 have a post each; user 1 is on hold. A sweep takes posts of a partition.
async fn posts() -> (Ebb, String) {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE posts (user_id bigint, at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE posts_first PARTITION OF posts FOR VALUES FROM ('2000-01-01Z') TO ('2100-01-01Z');
         CREATE INDEX ON posts (user_id); INSERT INTO users VALUES (1), (2); INSERT INTO posts SELECT id, '2020-01-01Z' FROM users",
    )
    .await;
    let sweep =
        "[[expire]]\nname = \"t\"\ntable = \"public.posts_first\"\ncolumn = \"at\"\nbrake = { share = \"off\" }\n";
    let posts =
        "children = [{ table = \"public.posts\", column = \"user_id\", references = \"id\", action = \"delete\" }]";
    let config = format!("{sweep}{}", users(posts));
    ebb.apply(&config).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
    (ebb, config)
}

#[tokio::test]
async fn a_sweep_stops_while_what_it_is_a_part_of_has_another_name_than_holds_know() {
    let (ebb, _) = posts().await;
    ebb.db.execute("ALTER TABLE posts RENAME TO entries").await;
    let run = ebb.again().await;
    assert_eq!((run.status, ebb.list("user_id", "entries").await.as_str()), (Status::Failed, "1,2"), "{run:?}");
    let says = "policy users has 1 hold, and public.posts, which has rows of its subjects, is public.entries now";
    assert!(run.note.as_deref().is_some_and(|note| note.contains(says)), "{run:?}");
    ebb.db.execute("ALTER TABLE entries RENAME TO posts").await;
    ebb.db.advance("1 day").await;
    assert_eq!((ebb.again().await.rows, ebb.list("user_id", "posts").await.as_str()), (1, "1"));
}

#[tokio::test]
async fn a_hold_does_not_move_to_a_table_that_took_the_name_of_one_below() {
    let (ebb, config) = posts().await;
    ebb.db
        .execute("ALTER TABLE posts RENAME TO posts_old; CREATE TABLE posts (user_id bigint, at timestamptz); CREATE INDEX ON posts (user_id)")
        .await;
    let (said, hint) = ebb.refusal(&config, Some("rotated")).await;
    let says = "policy users has 1 hold, and public.posts, which has rows of its subjects, is public.posts_old now";
    assert_eq!(said, says);
    assert!(hint.contains("give public.posts_old its name back"), "{hint}");
    assert_eq!(ebb.again().await.status, Status::Failed);
    assert_eq!(ebb.list("user_id", "posts_old").await, "1,2");
}
