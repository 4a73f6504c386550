//! What the server would take along with swept rows: nothing of it goes that a hold, a floor or a longer term keeps.

use super::users;
use crate::harness::Ebb;

/// Threads of users, with replies of others.
const FORUM: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
    CREATE TABLE threads (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, created_at timestamptz);
    CREATE TABLE replies (id bigint PRIMARY KEY, thread_id bigint REFERENCES threads ON DELETE CASCADE,
        user_id bigint REFERENCES users ON DELETE CASCADE);
    CREATE INDEX ON threads (user_id); CREATE INDEX ON replies (thread_id); CREATE INDEX ON replies (user_id);
    INSERT INTO users VALUES (1), (2); INSERT INTO threads VALUES (10, 1, now() - interval '120 days');
    INSERT INTO replies VALUES (100, 10, 2)";

/// Orders of no subject, with items, both of four months ago.
const ORDERS: &str = "
    CREATE TABLE orders (id bigint PRIMARY KEY, created_at timestamptz NOT NULL);
    CREATE TABLE items (id bigint PRIMARY KEY, order_id bigint REFERENCES orders ON DELETE CASCADE, created_at timestamptz NOT NULL);
    CREATE INDEX ON items (order_id);
    INSERT INTO orders SELECT n, now() - interval '120 days' FROM generate_series(1, 3) n;
    INSERT INTO items SELECT n * 10, n, now() - interval '120 days' FROM generate_series(1, 3) n";

fn by_age(table: &str, older_than: &str, more: &str) -> String {
    format!(
        "[[retain]]\nname = \"{table}\"\ntable = \"{table}\"\ncolumn = \"created_at\"\nolder_than = \"{older_than}\"\nbrake = {{ share = \"off\" }}\n{more}\n"
    )
}

impl Ebb {
    async fn stopped(&self, policy: &str) -> String {
        self.db.scalar(&format!("SELECT COALESCE(stopped, '') FROM ebb.policy WHERE name = '{policy}'")).await
    }

    /// What plan and doctor say of a policy.
    async fn said_of(&self, config: &str, policy: &str) -> (String, String) {
        let plan = self.engine.plan(&crate::harness::wanted(config).unwrap()).await.unwrap();
        let planned = plan.policies.iter().filter(|plan| plan.policy == policy).flat_map(|plan| &plan.problems);
        let planned: Vec<&str> = planned.filter(|found| found.refused).map(|found| found.message.as_str()).collect();
        let doctor = self.engine.doctor(&super::told::questions(config)).await.unwrap();
        let of_policy = doctor.findings.iter().filter(|found| found.about.as_deref() == Some(policy));
        let found: Vec<&str> = of_policy.map(|found| found.evidence.as_str()).collect();
        (planned.join("; "), found.join("; "))
    }
}

#[tokio::test]
async fn a_sweep_takes_no_row_of_another_subject_along() {
    let ebb = Ebb::with(FORUM).await;
    let both = users("") + "\n" + &by_age("threads", "90d", "");
    let refused = ebb.try_apply(&both).await.unwrap_err();
    let says = "deleting rows of public.threads takes rows of public.replies along by ON DELETE CASCADE: those belong to subjects of policy users";
    assert!(refused.to_string().contains(says), "{refused}");
    assert!(refused.hint().unwrap_or_default().contains("restrict"), "{refused:?}");

    // It comes later: the next run looks as well, and the reply of somebody on hold stays.
    ebb.db.execute("ALTER TABLE replies DROP CONSTRAINT replies_thread_id_fkey").await;
    ebb.apply(&both).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '2', 'court')").await;
    ebb.db.execute("ALTER TABLE replies ADD FOREIGN KEY (thread_id) REFERENCES threads ON DELETE CASCADE").await;
    let (planned, found) = ebb.said_of(&both, "threads").await;
    assert!(planned.contains(says) && found.contains(says), "{planned} / {found}");
    ebb.once("threads").await;
    assert_eq!((ebb.list("id", "threads").await.as_str(), ebb.list("id", "replies").await.as_str()), ("10", "100"));
    assert!(ebb.stopped("threads").await.contains(says));

    // As the hint says: rows that somebody refers to stay, the others go.
    ebb.db
        .execute(
            "ALTER TABLE replies DROP CONSTRAINT replies_thread_id_fkey, ADD FOREIGN KEY (thread_id) REFERENCES threads;
             INSERT INTO threads VALUES (11, 1, now() - interval '120 days')",
        )
        .await;
    ebb.apply(
        &(users("children = [{ table = \"replies\", column = \"thread_id\", action = \"delete\" }]")
            + "\n"
            + &by_age("threads", "90d", "")),
    )
    .await;
    ebb.once("threads").await;
    assert_eq!((ebb.list("id", "threads").await.as_str(), ebb.list("id", "replies").await.as_str()), ("10", "100"));
}

#[tokio::test]
async fn nor_other_rows_of_its_own_table() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE posts (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE,
             answers bigint REFERENCES posts ON DELETE CASCADE, created_at timestamptz)",
    )
    .await;
    let refused = ebb.try_apply(&(users("") + "\n" + &by_age("posts", "90d", ""))).await.unwrap_err().to_string();
    assert!(refused.contains("deleting rows of public.posts takes other rows of it along"), "{refused}");
    let refused = ebb.try_apply(&by_age("posts", "90d", "floor = \"90d\"\nbasis = \"law\"")).await.unwrap_err();
    assert!(refused.to_string().contains("policy posts keeps those, and its floor 90d would not hold"), "{refused}");
    let refused = ebb.try_apply(&by_age("posts", "90d", "")).await.unwrap_err().to_string();
    assert!(refused.contains("policy posts keeps those for 90d by a time of their own"), "{refused}");
}

#[tokio::test]
async fn rows_that_hang_on_one_swept_row_alone_go_with_it_and_are_kept_with_it() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE threads (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, created_at timestamptz);
         CREATE TABLE parts (id bigint PRIMARY KEY, thread_id bigint REFERENCES threads ON DELETE CASCADE);
         CREATE TABLE words (id bigint PRIMARY KEY, part_id bigint REFERENCES parts ON DELETE CASCADE);
         INSERT INTO users VALUES (1), (2); INSERT INTO threads SELECT n, n, now() - interval '120 days' FROM generate_series(1, 2) n;
         INSERT INTO parts SELECT n * 10, n FROM generate_series(1, 2) n; INSERT INTO words SELECT n * 100, n * 10 FROM generate_series(1, 2) n",
    )
    .await;
    ebb.apply(&(users("") + "\n" + &by_age("threads", "90d", ""))).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '2', 'court')").await;
    ebb.once("threads").await;
    let left = (ebb.list("id", "threads").await, ebb.list("id", "parts").await, ebb.list("id", "words").await);
    assert_eq!(left, ("2".into(), "20".into(), "200".into()));
}

#[tokio::test]
async fn a_sweep_takes_nothing_along_that_a_floor_or_a_longer_term_keeps() {
    let kept = [
        (
            by_age("items", "10y", "floor = \"10y\"\nbasis = \"tax law\""),
            "policy items keeps those, and its floor 10y would not hold",
        ),
        (by_age("items", "10y", ""), "policy items keeps those for 10y by a time of their own"),
    ];
    let expire = "[[expire]]\nname = \"orders\"\ntable = \"orders\"\ncolumn = \"created_at\"\nolder_than = \"30d\"\nbrake = { share = \"off\" }\n";
    for orders in [by_age("orders", "30d", ""), expire.to_owned()] {
        for (items, says) in &kept {
            let (both, ebb) = (format!("{orders}{items}"), Ebb::with(ORDERS).await);
            let (planned, found) = ebb.said_of(&both, "orders").await;
            assert!(planned.contains(says) && found.contains(says), "{planned} / {found}");
            let refused = ebb.try_apply(&both).await.unwrap_err();
            let along = "deleting rows of public.orders takes rows of public.items along by ON DELETE CASCADE";
            assert!(refused.to_string().contains(along) && refused.to_string().contains(says), "{refused}");
            assert!(refused.hint().unwrap_or_default().contains("restrict"), "{refused:?}");

            // The key comes later.
            ebb.db.execute("ALTER TABLE items DROP CONSTRAINT items_order_id_fkey").await;
            ebb.apply(&both).await;
            ebb.db.execute("ALTER TABLE items ADD FOREIGN KEY (order_id) REFERENCES orders ON DELETE CASCADE").await;
            ebb.once("orders").await;
            assert_eq!(
                (ebb.list("id", "orders").await, ebb.list("id", "items").await),
                ("1,2,3".into(), "10,20,30".into())
            );
            assert!(ebb.stopped("orders").await.contains(says), "{}", ebb.stopped("orders").await);

            // As the hint says.
            ebb.db
                .execute(
                    "ALTER TABLE items DROP CONSTRAINT items_order_id_fkey, ADD FOREIGN KEY (order_id) REFERENCES orders;
                     DELETE FROM items WHERE id = 10",
                )
                .await;
            ebb.apply(&both).await;
            ebb.once("orders").await;
            assert_eq!((ebb.list("id", "orders").await, ebb.list("id", "items").await), ("2,3".into(), "20,30".into()));
        }
    }
}

/// A row below may be younger than the one above it, so no two terms make it safe.
#[tokio::test]
async fn nor_a_younger_row_whose_term_is_as_long_or_shorter() {
    for items in ["90d", "30d"] {
        let ebb = Ebb::with(ORDERS).await;
        let both = by_age("orders", "90d", "") + &by_age("items", items, "");
        let refused = ebb.try_apply(&both).await.unwrap_err();
        assert!(
            refused.to_string().contains("policy orders: deleting rows of public.orders takes rows of public.items"),
            "{refused}"
        );
        assert!(!refused.hint().unwrap_or_default().contains("as well"), "{refused:?}");
        ebb.db
            .execute(
                "ALTER TABLE items DROP CONSTRAINT items_order_id_fkey, ADD FOREIGN KEY (order_id) REFERENCES orders;
                 UPDATE items SET created_at = now() WHERE id = 20",
            )
            .await;
        ebb.apply(&both).await;
        for policy in ["items", "orders"] {
            ebb.once(policy).await;
        }
        assert_eq!((ebb.list("id", "orders").await, ebb.list("id", "items").await), ("2".into(), "20".into()));
    }
}

#[tokio::test]
async fn what_one_policy_takes_along_keeps_no_other_from_being_changed_and_observing_takes_nothing() {
    let ebb =
        Ebb::with(&format!("{ORDERS}; CREATE TABLE logs (id bigint PRIMARY KEY, created_at timestamptz NOT NULL)"))
            .await;
    ebb.db.execute("ALTER TABLE items DROP CONSTRAINT items_order_id_fkey").await;
    ebb.apply(&(by_age("orders", "90d", "") + &by_age("items", "10y", "") + &by_age("logs", "90d", ""))).await;
    ebb.db.execute("ALTER TABLE items ADD FOREIGN KEY (order_id) REFERENCES orders ON DELETE CASCADE").await;
    let set = async |policy: &str, key: &str, value: serde_json::Value| {
        let spec = ebb::policy::Spec::from_iter([(key.to_owned(), value)]);
        ebb.engine.set_policy(policy, &spec, "test").await
    };
    set("logs", "older_than", "120d".into()).await.unwrap();
    for (policy, key, value) in [("orders", "older_than", "120d"), ("items", "older_than", "11y")] {
        let refused = set(policy, key, value.into()).await.unwrap_err().to_string();
        assert!(refused.contains("policy orders: deleting rows of public.orders takes"), "{refused}");
    }
    // What only looks, or does nothing, may stay as it is.
    set("orders", "mode", "observe".into()).await.unwrap();
    set("items", "older_than", "11y".into()).await.unwrap();
    let finished = ebb.once("orders").await;
    assert!(!finished.has_failed(), "{finished:?}");
    assert_eq!((ebb.stopped("orders").await.as_str(), ebb.list("id", "items").await.as_str()), ("", "10,20,30"));
    assert!(set("orders", "mode", "enforce".into()).await.is_err());
    set("orders", "enabled", false.into()).await.unwrap();
}

#[tokio::test]
async fn a_sweep_over_the_subjects_themselves_is_told_what_helps() {
    let ebb = Ebb::with(FORUM).await;
    let unconfirmed =
        "[[expire]]\nname = \"unconfirmed\"\ntable = \"users\"\ncolumn = \"deleted_at\"\nolder_than = \"1d\"\n";
    let refused = ebb.try_apply(&(users("") + "\n" + unconfirmed)).await.unwrap_err();
    assert!(refused.to_string().contains("policy unconfirmed: deleting rows of public.users takes"), "{refused}");
    let hint = refused.hint().unwrap_or_default();
    assert!(
        hint.contains("soft-delete such rows, so that policy users erases") && !hint.contains("make public.users"),
        "{hint}"
    );
}

#[tokio::test]
async fn a_policy_over_one_partition_takes_nothing_along_either() {
    let ebb = Ebb::with(
        "CREATE TABLE orders (id bigint, region int, created_at timestamptz NOT NULL, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
         CREATE TABLE orders_1 PARTITION OF orders FOR VALUES IN (1);
         CREATE TABLE items (id bigint PRIMARY KEY, order_id bigint, region int, created_at timestamptz NOT NULL,
             FOREIGN KEY (order_id, region) REFERENCES orders ON DELETE CASCADE)",
    )
    .await;
    let items = by_age("items", "10y", "floor = \"10y\"\nbasis = \"tax law\"");
    let refused = ebb.try_apply(&(by_age("orders_1", "30d", "") + &items)).await.unwrap_err().to_string();
    assert!(refused.contains("takes rows of public.items along by ON DELETE CASCADE"), "{refused}");
}

#[tokio::test]
async fn a_partition_that_is_referred_to_takes_nothing_along() {
    let ebb = Ebb::with(
        "CREATE TABLE orders (id bigint, created_at timestamptz NOT NULL, PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at);
         CREATE TABLE orders_old PARTITION OF orders FOR VALUES FROM ('2001-01-01') TO ('2001-01-02');
         CREATE TABLE items (id bigint PRIMARY KEY, order_id bigint, of timestamptz, created_at timestamptz NOT NULL,
             FOREIGN KEY (order_id, of) REFERENCES orders ON DELETE CASCADE);
         INSERT INTO orders VALUES (1, '2001-01-01'); INSERT INTO items VALUES (10, 1, '2001-01-01', '2001-01-01')",
    )
    .await;
    let orders =
        "[[partition]]\nname = \"orders\"\ntable = \"orders\"\ncolumn = \"created_at\"\nby = \"day\"\nkeep = \"30d\"\n";
    ebb.apply(&(orders.to_owned() + &by_age("items", "90y", "floor = \"90y\"\nbasis = \"tax law\""))).await;
    ebb.once("orders").await;
    assert_eq!((ebb.list("id", "orders").await.as_str(), ebb.list("id", "items").await.as_str()), ("1", "10"));
}
