//! What a plan says is what a run does, and what it proposes can be pasted and works.

use ebb::policy::Wanted;
use ebb::retain::TreePlan;

use super::users;
use crate::harness::{Ebb, wanted};

/// The plan of the only policy over subjects.
async fn planned(ebb: &Ebb, wanted: &[Wanted]) -> TreePlan {
    ebb.engine.plan(wanted).await.unwrap().trees.remove(0)
}

/// What it finds, each with what mends it.
async fn told(ebb: &Ebb, config: &str) -> String {
    let tree = planned(ebb, &wanted(config).unwrap()).await;
    let fix = |fix: &Option<String>| fix.as_ref().map_or(String::new(), |fix| format!("\n    {fix}"));
    tree.findings.iter().map(|found| format!("{}: {}{}\n", found.table, found.message, fix(&found.fix))).collect()
}

#[tokio::test]
async fn who_shares_a_row_with_somebody_on_hold_is_planned_to_wait() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE threads (id bigint PRIMARY KEY, owner bigint REFERENCES users ON DELETE CASCADE, guest bigint REFERENCES users ON DELETE CASCADE);
         CREATE TABLE messages (sender bigint REFERENCES users ON DELETE CASCADE, recipient bigint REFERENCES users ON DELETE CASCADE,
             thread bigint REFERENCES threads ON DELETE CASCADE);
         INSERT INTO users SELECT generate_series(1, 30);
         INSERT INTO messages SELECT 1, n FROM generate_series(11, 20) n;
         INSERT INTO threads SELECT 100 + n, n, n + 1 FROM generate_series(21, 23) n;
         INSERT INTO messages VALUES (1, NULL, 122)",
    )
    .await;
    ebb.apply(&users("")).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court'), ebb.delete_subject('users', id::text) FROM users WHERE id > 10").await;
    ebb.db.advance("91 days").await;
    let tree = planned(&ebb, &[]).await;
    // 11 to 20 received a message, and 22 and 23 have a thread with one in it; 21 shares another thread with 22.
    assert_eq!((tree.due, tree.blocked), (8, 12), "{tree:?}");
    let why = |tree: &TreePlan| tree.blocked_by.clone();
    assert_eq!(
        why(&tree),
        [("rows of a subject on hold would go with it (public.messages, policy users)".to_owned(), 12)]
    );
    let went = tree.erases.iter().find(|(table, _)| table == "public.users").unwrap().1;
    let before: i64 = ebb.db.scalar("SELECT count(*) FROM users").await;
    ebb.once("users").await;
    let after: i64 = ebb.db.scalar("SELECT count(*) FROM users").await;
    assert_eq!((before - after, went), (8, 8), "the run does what the plan says");
    assert_eq!(ebb.list("id", "users WHERE id > 10").await, "11,12,13,14,15,16,17,18,19,20,22,23");
    ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    let tree = planned(&ebb, &[]).await;
    assert_eq!((tree.due, tree.blocked, why(&tree)), (12, 0, Vec::new()), "{tree:?}");
}

#[tokio::test]
async fn columns_that_hold_an_id_are_known_by_the_foreign_keys_of_others() {
    for (table, column) in [
        ("app_users", "user_id"),
        ("auth_user", "user_id"),
        ("user_entity", "user_id"),
        ("\"AppUsers\"", "userId"),
        ("crm_people", "person"),
    ] {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE {table} (id serial PRIMARY KEY, deleted_at timestamptz);
             CREATE TABLE profiles (id serial PRIMARY KEY, \"{column}\" int REFERENCES {table} ON DELETE CASCADE);
             CREATE TABLE app_orders (id serial PRIMARY KEY, \"{column}\" int);"
        ))
        .await;
        let config = users("").replace("\"public.users\"", &format!("{:?}", format!("public.{table}")));
        let said = told(&ebb, &config).await;
        let label = format!("public.{table}");
        assert!(
            said.starts_with(&format!("public.app_orders: its column {column} looks like an id of {label}, ")),
            "{said}"
        );
        let entry = format!(
            "children = [{{ table = \"public.app_orders\", column = \"{column}\", references = \"id\", action = \"delete\" }}]"
        );
        assert!(said.contains(&entry.replace("delete", "delete | nullify | anonymize | keep")), "{said}");
        let config = config.replace("brake", &format!("{entry}\nbrake"));
        ebb.apply(&config).await;
        assert_eq!(told(&ebb, &config).await, "", "what is pasted is enough");
    }
}

#[tokio::test]
async fn columns_that_cannot_be_an_id_of_the_subject_are_not_named() {
    let ebb = Ebb::with(
        "CREATE TABLE teams (id serial PRIMARY KEY);
         CREATE TABLE app_users (id bigserial PRIMARY KEY, parent_id bigint, deleted_at timestamptz);
         ALTER TABLE app_users ADD FOREIGN KEY (parent_id) REFERENCES app_users ON DELETE SET NULL;
         CREATE TABLE app_user_addresses (id serial PRIMARY KEY, app_user_id bigint REFERENCES app_users ON DELETE CASCADE);
         CREATE TABLE app_user_roles (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text);
         CREATE TABLE app_user_tokens (id uuid PRIMARY KEY DEFAULT gen_random_uuid());
         CREATE TABLE badges (user_id int REFERENCES teams, other_user_id boolean, third_user_id timestamptz, fourth_user_id varchar(1), parent_id bigint);
         CREATE TABLE app_user_profiles (id bigint PRIMARY KEY, bio text)",
    )
    .await;
    let config = users("").replace("public.users", "app_users");
    let said = told(&ebb, &config).await;
    assert!(
        said.starts_with("public.app_user_profiles: its column id looks like an id of public.app_users, "),
        "{said}"
    );
    assert_eq!(said.matches("looks like").count(), 1, "{said}");
    // A table that is called so itself is meant, not one that only ends like it.
    ebb.db
        .execute("CREATE TABLE users (id bigint PRIMARY KEY); CREATE TABLE visits (user_id bigint, app_user_id text)")
        .await;
    let said = told(&ebb, &config).await;
    assert!(said.contains("public.visits: its column app_user_id looks like"), "{said}");
    assert!(said.contains("it is text and id of public.app_users is bigint"), "{said}");
    assert!(!said.contains("its column user_id"), "{said}");
}

const BLOG: &str = "CREATE TABLE users (id bigint PRIMARY KEY, name text, deleted_at timestamptz);
    CREATE TABLE posts (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE);
    CREATE TABLE messages (sender bigint REFERENCES users ON DELETE CASCADE, recipient bigint REFERENCES users ON DELETE CASCADE);
    INSERT INTO users SELECT n, 'u' || n FROM generate_series(1, 4) n;
    INSERT INTO posts SELECT n, n FROM generate_series(1, 4) n; INSERT INTO messages SELECT 1, n FROM generate_series(2, 4) n";
const GIVEN: &str =
    "children = [{ table = \"posts\", column = \"user_id\", action = \"anonymize\", set = { user_id = \"1\" } }]\n";

#[tokio::test]
async fn the_account_that_rows_are_given_to_is_protected_without_binding_anybody() {
    for (unless, proposed) in
        [("", "users.id = 1"), ("name = 'the \"boss\"'", "(name = 'the \"boss\"') or users.id = 1")]
    {
        let ebb = Ebb::with(BLOG).await;
        let written = if unless.is_empty() { String::new() } else { format!("unless = {unless:?}\n") };
        let config = users(&format!("{GIVEN}{written}"));
        let said = told(&ebb, &config).await;
        let fix = format!("unless = {proposed:?}");
        assert!(said.contains(&fix) && !said.contains("ebb hold"), "{said}");
        let config = users(&format!("{GIVEN}{fix}\n"));
        ebb.apply(&config).await;
        assert_eq!(told(&ebb, &config).await, "", "it is protected now");
        ebb.db.execute("SELECT ebb.delete_subject('users', id::text) FROM users WHERE id < 4").await;
        ebb.db.advance("91 days").await;
        let tree = planned(&ebb, &[]).await;
        assert_eq!((tree.due, tree.blocked_by), (2, vec![("`unless` holds".to_owned(), 1)]));
        ebb.once("users").await;
        assert_eq!(
            (ebb.list("id", "users").await, ebb.list("user_id", "posts").await),
            ("1,4".into(), "1,1,1,4".into())
        );
    }
}

/// A proposal as somebody pastes it who takes the first action everywhere.
fn chosen(proposal: &str) -> String {
    let lines = proposal.lines().map(|line| match line.split_once(" | ") {
        Some((before, rest)) => format!("{before}\"{}\n", rest.split_once('"').unwrap().1),
        None => format!("{line}\n"),
    });
    lines.collect()
}

#[tokio::test]
async fn all_that_nobody_has_decided_is_asked_at_once_also_below_each_other() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE customers (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users);
         CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint NOT NULL REFERENCES customers, seller bigint REFERENCES users);
         CREATE TABLE lines (order_id bigint REFERENCES orders, line int, PRIMARY KEY (order_id, line));
         CREATE TABLE carts (customer_id bigint REFERENCES customers ON DELETE CASCADE);
         CREATE TABLE notes (id bigint, line int, order_id bigint, UNIQUE (id), FOREIGN KEY (order_id, line) REFERENCES lines ON DELETE CASCADE);
         CREATE TABLE marks (note_id bigint REFERENCES notes (id) ON DELETE CASCADE)",
    )
    .await;
    let tree = planned(&ebb, &wanted(&users("")).unwrap()).await;
    let edges: Vec<String> = tree
        .edges
        .iter()
        .map(|edge| format!("{} {} {}", edge.table, edge.undecided, edge.given.as_deref().unwrap_or("-")))
        .collect();
    assert_eq!(
        edges,
        [
            "public.carts false public.customers",
            "public.customers true -",
            "public.lines true public.orders",
            "public.marks false public.lines",
            "public.notes false public.lines",
            "public.orders true public.customers",
            "public.orders true -",
        ]
    );
    assert!(tree.edges.iter().filter(|edge| edge.undecided).all(|edge| edge.action == "keep"), "as programs know it");
    let proposal = tree.proposal.unwrap();
    assert_eq!(
        proposal,
        "children = [\n  \
           { table = \"public.customers\", column = \"user_id\", action = \"delete | anonymize\" },\n  \
           { table = \"public.orders\", column = \"seller\", action = \"delete | nullify | anonymize\" },\n  \
           { table = \"public.orders\", column = \"customer_id\", action = \"delete | anonymize\" },   # if rows of public.customers go\n  \
           { table = \"public.lines\", column = \"order_id\", action = \"delete\" },   # if rows of public.orders go\n]"
    );
    assert!(tree.not_counted.is_some());
    let keyless = "if rows of public.lines go: it has no primary key, and rows of other tables refer to it";
    assert!(tree.findings.iter().any(|found| found.refuses && found.message == keyless), "{:?}", tree.findings);
    // Applying says the same, each by itself.
    let error = ebb.try_apply(&users("")).await.unwrap_err();
    assert_eq!(error.parts().len(), 5, "{error}");
    assert!(
        error.parts()[0].starts_with("policy users: public.customers: foreign key customers_user_id_fkey"),
        "{error}"
    );
    assert!(error.hint().unwrap().ends_with(&proposal), "{error:?}");
    // Unchosen it is refused, and chosen it is all that was missing.
    ebb.db.execute("ALTER TABLE notes ADD PRIMARY KEY (id)").await;
    assert!(wanted(&users(&proposal)).unwrap_err().to_string().contains("`action` cannot be \"delete | anonymize\""));
    ebb.apply(&users(&chosen(&proposal))).await;
    // What is there already is added to.
    ebb.db.execute("CREATE TABLE late (user_id bigint REFERENCES users)").await;
    let tree = planned(&ebb, &wanted(&users(&chosen(&proposal))).unwrap()).await;
    let more = "add to children:\n  { table = \"public.late\", column = \"user_id\", action = \"delete | nullify | anonymize\" },";
    assert_eq!(tree.proposal.as_deref(), Some(more));
}

#[tokio::test]
async fn what_mends_a_refusal_can_be_pasted() {
    let table = "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz)";
    for (sql, says, fix) in [
        (
            "CREATE TABLE p (user_id bigint, at int) PARTITION BY LIST (at); CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
             CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2); CREATE TABLE p3 PARTITION OF p FOR VALUES IN (3);
             ALTER TABLE p1 ADD CONSTRAINT of_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE",
            "lacks the foreign key",
            "ALTER TABLE \"public\".\"p2\" ADD CONSTRAINT \"of_user\" FOREIGN KEY (\"user_id\") REFERENCES \"public\".\"users\" (\"id\") ON DELETE CASCADE;\n\
             ALTER TABLE \"public\".\"p3\" ADD CONSTRAINT \"of_user\" FOREIGN KEY (\"user_id\") REFERENCES \"public\".\"users\" (\"id\") ON DELETE CASCADE",
        ),
        (
            "CREATE TABLE a (b_id int NOT NULL, id int PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
             CREATE TABLE b (a_id int NOT NULL REFERENCES a ON DELETE CASCADE, id int PRIMARY KEY);
             ALTER TABLE a ADD FOREIGN KEY (b_id) REFERENCES b ON DELETE CASCADE",
            "in a circle without a nullable or deferrable edge",
            "ALTER TABLE \"public\".\"b\" ALTER CONSTRAINT \"b_a_id_fkey\" DEFERRABLE",
        ),
        (
            "ALTER TABLE users ADD status text",
            "it has no column due_at, which policy users names",
            "ALTER TABLE \"public\".\"users\" ADD COLUMN \"due_at\" timestamptz",
        ),
    ] {
        let ebb = Ebb::with(&format!("{table}; {sql}")).await;
        let config = users(if sql.contains("status") { "mirror = { due = \"due_at\" }" } else { "" });
        let tree = planned(&ebb, &wanted(&config).unwrap()).await;
        let found = tree.findings.iter().find(|found| found.refuses && found.message.contains(says)).expect(says);
        assert_eq!(found.fix.as_deref(), Some(fix));
        ebb.db.execute(fix).await;
        ebb.apply(&config).await;
    }
}

#[tokio::test]
async fn what_cannot_be_pasted_says_what_to_do() {
    let cases = [
        (
            "CREATE TABLE a (user_id bigint PRIMARY KEY REFERENCES users ON DELETE SET NULL)",
            "user_id is part of the primary key of public.a: delete the rows",
        ),
        ("CREATE TABLE c () INHERITS (users)", "ALTER TABLE ONE_THAT_INHERITS NO INHERIT \"public\".\"users\""),
    ];
    for (sql, fix) in cases {
        let ebb =
            Ebb::with(&format!("CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz); {sql}")).await;
        let error = ebb.try_apply(&users("")).await.unwrap_err();
        assert!(error.hint().unwrap().starts_with(fix), "{error:?}");
    }
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE profiles (user_id bigint PRIMARY KEY REFERENCES users ON DELETE CASCADE, deleted_at timestamptz)",
    )
    .await;
    // One to one, and both with a policy: either may say that the other goes along.
    let profiles = users("").replace("users", "profiles");
    let error = ebb.try_apply(&format!("{profiles}{}", users(""))).await.unwrap_err();
    let fix = "children = [{ table = \"public.profiles\", column = \"user_id\", action = \"delete\" }] (delete takes them along, each with a record: erase_along)";
    assert_eq!(error.hint(), Some(fix));
    ebb.apply(&format!("{profiles}{}", users(fix.split(" (").next().unwrap()))).await;
}

#[tokio::test]
async fn a_link_that_is_called_after_another_table_is_named() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE orders (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
         CREATE TABLE line_items (order_id bigint, n int); CREATE TABLE visits (user_id bigint, who bigint)",
    )
    .await;
    let link = |table: &str, column: &str, references: &str| {
        format!("{{ table = \"{table}\", column = \"{column}\", references = \"{references}\", action = \"delete\" }}")
    };
    let children = [link("line_items", "order_id", "id"), link("visits", "user_id", "id"), link("visits", "who", "id")];
    let said = told(&ebb, &users(&format!("children = [{}]", children.join(", ")))).await;
    assert!(said.starts_with("public.line_items: children takes its column order_id for id of public.users; by its name it refers to public.orders\n"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    let fix = "ALTER TABLE \"public\".\"line_items\" ADD FOREIGN KEY (\"order_id\") REFERENCES public.orders (\"id\") NOT VALID";
    assert!(said.contains(fix), "{said}");
    // With that it is a link below the first level.
    ebb.db.execute(&format!("INSERT INTO users VALUES (1), (2); INSERT INTO orders VALUES (2, 1); INSERT INTO line_items VALUES (2, 1); {fix}")).await;
    let config = users("children = [{ table = \"line_items\", column = \"order_id\", action = \"delete\" }]");
    ebb.apply(&config).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '2')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("n", "line_items").await, "1", "it is of the order, and that is of somebody else");
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("n", "line_items").await, "");
    // A column that the root does not have is told of together with what `references` means.
    let error = ebb.try_apply(&users(&format!("children = [{}]", link("visits", "who", "code")))).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("public.users: it has no column code, and children says that who of public.visits refers to it"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("`references` names a column of public.users"), "{error:?}");
}
