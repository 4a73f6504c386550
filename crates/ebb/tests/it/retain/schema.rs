//! Schemas as they are: what can be erased is, and what stands in the way is named before anything goes.

use ebb::policy::Spec;

use super::users;
use crate::harness::{Ebb, wanted};

/// A user table with more, and the refusal that the policy meets.
async fn refusal(sql: &str, more: &str) -> (String, String) {
    let ebb =
        Ebb::with(&format!("CREATE TABLE users (id bigint PRIMARY KEY, email text, deleted_at timestamptz); {sql}"))
            .await;
    let error = ebb.try_apply(&users(more)).await.unwrap_err();
    (error.to_string(), error.hint().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_foreign_key_is_not_consent() {
    let (said, hint) = refusal("CREATE TABLE orders (id int PRIMARY KEY, staff bigint REFERENCES users)", "").await;
    assert!(
        said.contains("public.orders: foreign key orders_staff_fkey (staff) says ON DELETE NO ACTION: nobody has said"),
        "{said}"
    );
    assert!(hint.contains("children = [{ table = \"public.orders\", column = \"staff\""), "{hint}");
}

#[tokio::test]
async fn a_large_table_without_an_index_is_refused_with_the_statement_that_mends_it() {
    let big = "CREATE TABLE logs (user_id bigint REFERENCES users ON DELETE CASCADE, note text);
        INSERT INTO logs SELECT NULL, repeat('x', 100) FROM generate_series(1, 20000)";
    let (said, hint) = refusal(big, "").await;
    assert!(said.contains("public.logs has no index on \"user_id\""), "{said}");
    assert_eq!(hint, "CREATE INDEX CONCURRENTLY ON \"public\".\"logs\" (\"user_id\")");
    let (said, _) = refusal(&format!("{big}; CREATE INDEX ON logs (user_id) WHERE note <> ''"), "").await;
    assert!(said.contains("only part of public.logs is in an index"), "{said}");
    let fine = Ebb::with(&format!(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz); {big}; \
        CREATE INDEX ON logs (user_id) WHERE user_id IS NOT NULL"
    ))
    .await;
    fine.apply(&users("")).await;
}

#[tokio::test]
async fn an_index_of_another_collation_is_none() {
    let big = "CREATE TABLE guests (email text, note text);
        INSERT INTO guests SELECT n || '@x', repeat('x', 100) FROM generate_series(1, 20000) n";
    let link = "children = [{ table = \"guests\", column = \"email\", references = \"email\", action = \"delete\" }]";
    let (said, hint) = refusal(&format!("{big}; CREATE INDEX ON guests (email COLLATE \"C\")"), link).await;
    assert!(said.contains("the index of public.guests on \"email\" has another collation"), "{said}");
    assert_eq!(hint, "CREATE INDEX CONCURRENTLY ON \"public\".\"guests\" (\"email\")");
    // Where the column has it, the index that was no other than the column serves, and that of the database's collation does not.
    let own = big.replace("email text", "email text COLLATE \"C\"");
    for (collation, fine) in [("\"C\"", true), ("\"default\"", false)] {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE users (id bigint PRIMARY KEY, email text, deleted_at timestamptz); {own};
             CREATE INDEX ON guests (email COLLATE {collation})"
        ))
        .await;
        assert_eq!(ebb.try_apply(&users(link)).await.is_ok(), fine, "{collation}");
    }
}

#[tokio::test]
async fn links_that_cannot_be_compared_are_named() {
    let link = |table: &str, column: &str| {
        format!(
            "children = [{{ table = \"{table}\", column = \"{column}\", references = \"id\", action = \"delete\" }}]"
        )
    };
    let (said, hint) = refusal("CREATE TABLE log (user_ref text)", &link("log", "user_ref")).await;
    assert!(
        said.contains("public.log: user_ref is text and id of public.users is bigint: there is no operator"),
        "{said}"
    );
    assert!(hint.contains("GENERATED ALWAYS AS"), "{hint}");
    let (said, _) = refusal("CREATE TABLE log (users bigint[])", &link("log", "users")).await;
    assert!(said.contains("public.log: users is an array, and links are followed by plain values only"), "{said}");
    let arrays = "CREATE TABLE tags (id int[] PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
        CREATE TABLE uses (tag int[] REFERENCES tags ON DELETE CASCADE)";
    let (said, _) = refusal(arrays, "").await;
    assert!(said.contains("public.uses: tag is an array"), "{said}");
    // What has an operator is fine, of whatever types.
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz); CREATE TABLE log (user_ref int);
         INSERT INTO users VALUES (1), (2); INSERT INTO log VALUES (1), (2)",
    )
    .await;
    ebb.apply(&users(&link("log", "user_ref"))).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await, ebb.list("user_ref", "log").await), ("2".into(), "2".into()));
}

#[tokio::test]
async fn a_table_without_an_index_is_named_before_it_has_grown() {
    let named = async |rows: u32| {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
             CREATE TABLE logs (user_id bigint REFERENCES users ON DELETE CASCADE, note text);
             INSERT INTO logs SELECT NULL, repeat('x', 100) FROM generate_series(1, {rows})"
        ))
        .await;
        ebb.apply(&users("")).await;
        let said = |message: &str| message.contains("public.logs has no index on \"user_id\"; when it has grown");
        let plan = ebb.engine.plan(&[]).await.unwrap();
        let planned = plan.trees[0].findings.iter().any(|found| !found.refuses && said(&found.message));
        let report = ebb.engine.doctor(&super::told::questions("")).await.unwrap();
        (planned, report.findings.iter().any(|found| said(&found.evidence)))
    };
    assert_eq!((named(500).await, named(1500).await), ((false, false), (true, true)));
}

#[tokio::test]
async fn what_cannot_be_done_is_named() {
    let cases = [
        ("CREATE TABLE a (user_id bigint NOT NULL REFERENCES users ON DELETE SET NULL)", "", "ON DELETE SET NULL would set user_id to null"),
        ("ALTER TABLE users ADD r int DEFAULT 1 NOT NULL, ADD UNIQUE (r, id);
          CREATE TABLE a (r int NOT NULL, user_id bigint, FOREIGN KEY (r, user_id) REFERENCES users (r, id) MATCH FULL ON DELETE SET NULL)", "",
          "ON DELETE SET NULL would set r to null, and the column does not allow it (MATCH FULL: all columns, or none)"),
        ("CREATE TABLE a (user_id bigint REFERENCES users)", "children = [{ table = \"a\", column = \"user_id\", action = \"keep\" }]", "cannot be kept as they are: foreign key a_user_id_fkey forbids it"),
        ("CREATE TABLE a (user_id bigint REFERENCES users, x text)", "children = [{ table = \"a\", column = \"user_id\", action = \"anonymize\", set = { x = \"null\" } }]", "anonymizing leaves user_id as it is"),
        ("CREATE TABLE a (user_id bigint)", "children = [{ table = \"a\", column = \"user_id\", action = \"delete\" }]", "no foreign key of public.a has column user_id"),
        ("CREATE TABLE a (other bigint)", "children = [{ table = \"a\", column = \"user_id\", references = \"id\", action = \"delete\" }]", "public.a: it has no column user_id"),
        ("CREATE TABLE a (b_id int NOT NULL, id int PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
          CREATE TABLE b (a_id int NOT NULL REFERENCES a ON DELETE CASCADE, id int PRIMARY KEY);
          ALTER TABLE a ADD FOREIGN KEY (b_id) REFERENCES b ON DELETE CASCADE", "", "refer to each other in a circle without a nullable or deferrable edge"),
        ("CREATE TABLE a (id int, user_id bigint REFERENCES users ON DELETE CASCADE, UNIQUE (id)); CREATE TABLE b (a_id int REFERENCES a (id) ON DELETE CASCADE)", "", "public.a: it has no primary key, and rows of other tables refer to it"),
        ("CREATE TABLE p (user_id bigint, at int) PARTITION BY LIST (at); CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
          CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2); ALTER TABLE p1 ADD FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE", "", "public.p2 lacks the foreign key"),
        ("CREATE TABLE c () INHERITS (users)", "", "other tables inherit from it"),
    ];
    for (sql, more, says) in cases {
        let (said, _) = refusal(sql, more).await;
        assert!(said.contains(says), "{sql}\n{said}");
    }
    let ebb = Ebb::with("CREATE TABLE users (id bigint, deleted_at timestamptz)").await;
    let said = ebb.try_apply(&users("")).await.unwrap_err().to_string();
    assert!(said.contains("it has no primary key: a subject could not be named"), "{said}");
    for (column, says) in
        [("deleted_at text", "which is no time"), ("deleted_at timestamptz NOT NULL", "cannot be null")]
    {
        let ebb = Ebb::with(&format!("CREATE TABLE users (id bigint PRIMARY KEY, {column})")).await;
        let said = ebb.try_apply(&users("")).await.unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
    }
}

#[tokio::test]
async fn an_edge_that_appears_later_stops_the_policy_until_it_is_approved() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db
        .execute(
            "CREATE TABLE reviews (id int PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
        INSERT INTO reviews VALUES (1, 1)",
        )
        .await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 12);
    let stopped: String = ebb.db.scalar("SELECT stopped FROM ebb.policy WHERE name = 'users'").await;
    assert!(stopped.contains("new: public.reviews (user_id) -> public.users (id): delete"), "{stopped}");
    ebb.apply(&users("")).await;
    ebb.once("users").await;
    assert_eq!((ebb.rows().await.0, ebb.list("id", "reviews").await), (11, String::new()));
}

#[tokio::test]
async fn a_change_at_runtime_approves_no_tree_that_has_grown() {
    let ebb = Ebb::shop("").await;
    let spec = |json: serde_json::Value| serde_json::from_value::<Spec>(json).unwrap();
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db
        .execute(
            "CREATE TABLE reviews (id int PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
        INSERT INTO reviews VALUES (1, 1)",
        )
        .await;
    ebb.db.advance("91 days").await;
    let described = spec(serde_json::json!({ "description": "people" }));
    let error = ebb.engine.set_policy("users", &described, "test").await.unwrap_err();
    assert!(error.to_string().contains("new: public.reviews (user_id)"), "{error}");
    assert!(error.hint().unwrap_or_default().contains("ebb apply"), "{error:?}");
    ebb.once("users").await;
    let stopped = "SELECT stopped IS NOT NULL FROM ebb.policy WHERE name = 'users'";
    assert!(ebb.db.scalar::<bool>(stopped).await);
    ebb.engine.set_policy("users", &described, "test").await.unwrap_err();
    assert!(ebb.db.scalar::<bool>(stopped).await, "it does not start again by a change of something else");

    // Switching it off is always possible, and approves nothing either.
    ebb.engine.set_policy("users", &spec(serde_json::json!({ "enabled": false })), "test").await.unwrap();
    ebb.engine.set_policy("users", &spec(serde_json::json!({ "enabled": true })), "test").await.unwrap_err();
    assert_eq!((ebb.rows().await.0, ebb.list("id", "reviews").await), (12, "1".into()));

    let sure = ebb::retain::Consent { confirmed: true, reason: None };
    ebb.engine.apply_with(&wanted(&users("")).unwrap(), true, "test", &sure).await.unwrap();
    ebb.engine.set_policy("users", &described, "test").await.unwrap();
    ebb.once("users").await;
    assert_eq!((ebb.rows().await.0, ebb.list("id", "reviews").await), (11, String::new()));
}

#[tokio::test]
async fn links_without_a_foreign_key_are_followed_unless_somebody_alive_shares_the_value() {
    let ebb = Ebb::with("CREATE TABLE users (id bigint PRIMARY KEY, email text, deleted_at timestamptz);
        CREATE TABLE guests (id int PRIMARY KEY, email text);
        INSERT INTO users VALUES (1, 'a@x'), (2, 'b@x'), (3, 'b@x'); INSERT INTO guests VALUES (1, 'a@x'), (2, 'b@x'), (3, NULL)").await;
    ebb.apply(&users(
        "children = [{ table = \"guests\", column = \"email\", references = \"email\", action = \"delete\" }]",
    ))
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.delete_subject('users', '2')").await;
    ebb.db.advance("90 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await, ebb.list("id", "guests").await), ("2,3".into(), "2,3".into()));
    let blocked: String = ebb.db.scalar("SELECT blocked FROM ebb.v_deletions WHERE subject_id = '2'").await;
    assert_eq!(blocked, "a subject that may not go yet has the same email");
    ebb.db.execute("UPDATE users SET email = 'c@x' WHERE id = 3").await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await, ebb.list("id", "guests").await), ("3".into(), "3".into()));
}

#[tokio::test]
async fn actions_leave_rows_without_their_link() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, email text, deleted_at timestamptz);
        CREATE TABLE orders (id int PRIMARY KEY, user_id bigint REFERENCES users, email text, note text);
        CREATE TABLE logs (id int PRIMARY KEY, user_id bigint);
        INSERT INTO users VALUES (1, 'a@x'), (2, 'b@x');
        INSERT INTO orders VALUES (1, 1, 'a@x', 'n'), (2, 2, 'b@x', 'm'); INSERT INTO logs VALUES (1, 1), (2, 2)",
    )
    .await;
    ebb.apply(&users("children = [{ table = \"orders\", column = \"user_id\", action = \"anonymize\", set = { user_id = \"null\", email = \"case when id > 1 then email else 'gone' end\", note = \"upper(note)\" } },
        { table = \"logs\", column = \"user_id\", references = \"id\", action = \"keep\" }]")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("90 days").await;
    ebb.once("users").await;
    let rows: String = ebb.db.scalar("SELECT string_agg(o::text, ' ' ORDER BY id) FROM orders o").await;
    assert_eq!(rows, "(1,,gone,N) (2,2,b@x,m)");
    assert_eq!((ebb.list("id", "users").await, ebb.list("id", "logs").await), ("2".into(), "1,2".into()));
}

#[tokio::test]
async fn a_plan_names_an_expression_that_cannot_be_applied() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE orders (id int PRIMARY KEY, user_id bigint REFERENCES users, note text)",
    )
    .await;
    let policy = |note: &str| {
        let set = format!("set = {{ user_id = \"null\", note = \"{note}\" }}");
        users(&format!("children = [{{ table = \"orders\", column = \"user_id\", action = \"anonymize\", {set} }}]"))
    };
    let refused = async |note: &str| {
        let plan = ebb.engine.plan(&wanted(&policy(note)).unwrap()).await.unwrap();
        let found = plan.trees[0].findings.iter().filter(|found| found.refuses);
        found.map(|found| found.message.clone()).collect::<Vec<_>>().join("; ")
    };
    let said = refused("case when id > 1 then nonsense else 'x' end").await;
    assert!(said.contains("`set` of note in public.orders: column \"nonsense\" does not exist"), "{said}");
    assert_eq!(refused("case when id > 1 then note else 'x' end").await, "");
}

#[tokio::test]
async fn rows_that_another_policy_keeps_longer_stay() {
    let ebb = Ebb::with("CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
        CREATE TABLE orders (id int PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, created_at timestamptz);
        INSERT INTO users VALUES (1); INSERT INTO orders VALUES (1, 1, now())").await;
    let tax = "[[retain]]\nname = \"tax\"\ntable = \"orders\"\ncolumn = \"created_at\"\nolder_than = \"10y\"\nfloor = \"10y\"\n";
    ebb.apply(tax).await;
    ebb.apply(&format!("{tax}\n{}", users(""))).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.db.scalar::<String>("SELECT (o.id, o.user_id)::text FROM orders o").await, "(1,)");
    assert_eq!(ebb.list("id", "users").await, "");
}

#[tokio::test]
async fn keys_of_every_kind_name_subjects() {
    let cases = [
        (
            "id uuid PRIMARY KEY",
            "'7d444840-9dc0-11d1-b245-5ffdce74fad2'",
            "7D444840-9DC0-11D1-B245-5FFDCE74FAD2",
            "abc",
        ),
        ("id text PRIMARY KEY", "'it''s \"quoted\" \\ and ,odd'", "it's \"quoted\" \\ and ,odd", ""),
        ("id int PRIMARY KEY", "7", "007", "99999999999999"),
        ("a text, b int, PRIMARY KEY (a, b)", "'e,u', 17", "[\"e,u\", \"17\"]", "[1"),
    ];
    for (key, value, id, wrong) in cases {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE users ({key}, deleted_at timestamptz); INSERT INTO users VALUES ({value})"
        ))
        .await;
        ebb.apply(&users("")).await;
        let delete =
            |id: &'static str| sqlx::query("SELECT ebb.delete_subject('users', $1)").bind(id).execute(ebb.db.pool());
        if !wrong.is_empty() {
            let said = delete(wrong).await.unwrap_err().to_string();
            assert!(said.contains("no subject of users can have the id"), "{said}");
        }
        delete(id).await.unwrap();
        ebb.db.advance("91 days").await;
        ebb.once("users").await;
        assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM users").await, 0, "{key}");
    }
}

#[tokio::test]
async fn columns_that_compare_texts_in_different_ways_are_followed_as_the_server_does() {
    let ebb = Ebb::with(
        "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE posts (slug text COLLATE \"C\" PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
         CREATE TABLE comments (id text COLLATE any_case PRIMARY KEY, post text COLLATE \"POSIX\" REFERENCES posts ON DELETE CASCADE);
         CREATE TABLE likes (comment text REFERENCES comments ON DELETE CASCADE);
         INSERT INTO users VALUES (1), (2); INSERT INTO posts VALUES ('a', 1), ('A', 2);
         INSERT INTO comments VALUES ('x', 'a'), ('y', 'A'); INSERT INTO likes VALUES ('x'), ('X'), ('Y')",
    )
    .await;
    ebb.apply(&users("")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.place_hold('users', '2', 'court')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await.as_str(), ebb.list("slug", "posts").await.as_str()), ("2", "A"));
    assert_eq!((ebb.list("id", "comments").await.as_str(), ebb.list("comment", "likes").await.as_str()), ("y", "Y"));
    assert_eq!(ebb.erased().await, (1, 5));
}

/// What `character` and `text` have in common is up to the foreign key, not to whoever compares them: with blanks or without.
#[tokio::test]
async fn references_between_types_are_compared_as_the_server_does() {
    let ebb = Ebb::with(
        "CREATE DOMAIN code AS character(10);
         CREATE TABLE users (id code PRIMARY KEY, deleted_at timestamptz); INSERT INTO users VALUES ('A1'), ('A2'), ('A3');
         CREATE TABLE invoices (id int PRIMARY KEY, owner text REFERENCES users ON DELETE CASCADE, at timestamptz DEFAULT now());
         CREATE TABLE lines (invoice int REFERENCES invoices ON DELETE CASCADE);
         CREATE TABLE visits (id int PRIMARY KEY, owner varchar REFERENCES users ON DELETE CASCADE);
         INSERT INTO invoices SELECT n, rpad('A' || 1 + n % 3, n) FROM generate_series(2, 10) n; INSERT INTO lines SELECT id FROM invoices;
         INSERT INTO visits SELECT n, rpad('A' || 1 + n % 3, n) FROM generate_series(2, 10) n;
         CREATE TABLE shops (id varchar(10) PRIMARY KEY, deleted_at timestamptz); INSERT INTO shops VALUES ('ab'), ('ab  ');
         CREATE TABLE goods (id int PRIMARY KEY, shop character(10) REFERENCES shops ON DELETE CASCADE); INSERT INTO goods VALUES (1, 'ab')",
    )
    .await;
    let kept = "[[retain]]\nname = \"invoices\"\ntable = \"invoices\"\ncolumn = \"at\"\nolder_than = \"10y\"\nfloor = \"10y\"\nbasis = \"law\"\n";
    let shops = users("").replace("users", "shops");
    ebb.apply(&format!("{}\n{shops}\n{kept}", users(""))).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', 'A1'), ebb.delete_subject('shops', 'ab  ')").await;
    ebb.db.advance("91 days").await;
    for policy in ["users", "shops"] {
        ebb.once(policy).await;
    }
    assert_eq!(
        (ebb.list("id", "users").await.as_str(), ebb.list("id", "visits").await.as_str()),
        ("A2,A3", "2,4,5,7,8,10")
    );
    let nobody = "invoices WHERE owner IS NULL";
    assert_eq!((ebb.list("id", nobody).await.as_str(), ebb.list("invoice", "lines").await.len()), ("3,6,9", 18));
    assert_eq!((ebb.list("id", "shops").await.as_str(), ebb.list("id", "goods").await.as_str()), ("ab", "1"));
    let tables = "SELECT details ->> 'tables' FROM ebb.audit WHERE action = 'erase' ORDER BY id";
    assert_eq!(ebb.db.scalar::<String>(tables).await, r#"{"public.users": 1, "public.visits": 3}"#);
}

#[tokio::test]
async fn a_large_table_whose_reference_has_another_type_is_refused_by_name() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id numeric PRIMARY KEY, deleted_at timestamptz); INSERT INTO users VALUES (1);
         CREATE TABLE posts (id int PRIMARY KEY, owner int REFERENCES users ON DELETE CASCADE, body text); CREATE INDEX ON posts (owner);
         INSERT INTO posts SELECT n, 1, repeat('x', 100) FROM generate_series(1, 10000) n",
    )
    .await;
    let refused = ebb.try_apply(&users("")).await.unwrap_err();
    assert!(refused.to_string().contains("owner is of another type than what it refers to"), "{refused}");
}

#[tokio::test]
async fn a_column_that_can_never_be_null_is_named_before_it_is_to_be() {
    for column in [
        "bigint GENERATED ALWAYS AS (id / 10) STORED",
        "owner",
        "wanted",
        "bigint CONSTRAINT there CHECK (user_id IS NOT NULL)",
    ] {
        let ebb = Ebb::with(&format!(
            "CREATE DOMAIN owner AS bigint NOT NULL; CREATE DOMAIN wanted AS bigint CHECK (VALUE IS NOT NULL); CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
             CREATE TABLE posts (id bigint PRIMARY KEY, user_id {column} REFERENCES users)"
        ))
        .await;
        let children = "children = [{ table = \"posts\", column = \"user_id\", action = \"nullify\" }]";
        let plan = ebb.engine.plan(&wanted(&users(children)).unwrap()).await.unwrap();
        let refused: Vec<&str> =
            plan.trees[0].findings.iter().filter(|found| found.refuses).map(|found| found.message.as_str()).collect();
        assert_eq!(refused, ["its action would set user_id to null, and the column does not allow it"], "{column}");
    }
}

#[tokio::test]
async fn what_may_stand_in_the_way_of_every_row_is_named_before() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE links (user_id bigint REFERENCES users ON DELETE SET NULL, shop int, CHECK (num_nonnulls(user_id, shop) = 1));
         CREATE TABLE logs (user_id bigint REFERENCES users ON DELETE CASCADE) PARTITION BY LIST (user_id);
         CREATE TABLE logs_1 PARTITION OF logs DEFAULT; CREATE PUBLICATION changes FOR TABLE logs;
         CREATE TABLE late (id bigint PRIMARY KEY DEFERRABLE, deleted_at timestamptz);
         CREATE TABLE people (id bigint PRIMARY KEY, gone text, deleted_at timestamptz GENERATED ALWAYS AS (NULL::timestamptz) STORED)",
    )
    .await;
    let found = async || ebb.engine.plan(&wanted(&users("")).unwrap()).await.unwrap().trees[0].findings.clone();
    let says = |found: &[ebb::retain::Finding], refuses: bool, text: &str| {
        assert!(
            found.iter().any(|found| found.refuses == refuses && found.message.contains(text)),
            "{text}: {found:?}"
        );
    };
    let before = found().await;
    says(&before, false, "user_id becomes null, and a CHECK asks which columns are");
    says(&before, true, "changes of public.logs_1 are published, and it has no replica identity");
    ebb.db.execute("ALTER TABLE logs_1 REPLICA IDENTITY FULL").await;
    assert!(found().await.iter().all(|found| !found.refuses));
    let refused = ebb.try_apply(&users("").replace("users", "people")).await.unwrap_err().to_string();
    assert!(
        refused.contains("column deleted_at is generated: nobody can delete or restore a subject by it"),
        "{refused}"
    );
    let refused = ebb.try_apply(&users("").replace("users", "late")).await.unwrap_err().to_string();
    assert!(refused.contains("its primary key is DEFERRABLE: a subject could not be named"), "{refused}");
}

#[tokio::test]
async fn functions_that_an_expression_calls_find_what_they_name() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE FUNCTION salt() RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT 'salt' $$;
         CREATE FUNCTION anonymous(text) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT salt() || length($1) $$;
         CREATE TABLE posts (user_id bigint REFERENCES users, name text);
         INSERT INTO users VALUES (1); INSERT INTO posts VALUES (1, 'pii')",
    )
    .await;
    let set = "set = { user_id = \"null\", name = \"anonymous(name)\" }";
    ebb.apply(&users(&format!(
        "children = [{{ table = \"posts\", column = \"user_id\", action = \"anonymize\", {set} }}]"
    )))
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await.as_str(), ebb.list("name", "posts").await.as_str()), ("", "salt3"));
}

#[tokio::test]
async fn subjects_that_are_known_by_another_key_stop_the_policy() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, ref bigint UNIQUE NOT NULL, deleted_at timestamptz);
         INSERT INTO users VALUES (1, 11), (2, 12)",
    )
    .await;
    ebb.apply(&users("")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    // Nobody has the number 1 by this key: its deletion would end as that of somebody who is gone.
    ebb.db.execute("ALTER TABLE users DROP CONSTRAINT users_pkey").await;
    let run = ebb.once("users").await.runs.remove(0);
    let note = run.note.unwrap_or_default();
    assert!(note.contains("subjects are known by ref; open deletions and holds name them by id"), "{note}");
    assert_eq!((ebb.state("1").await.as_str(), ebb.list("id", "users").await.as_str()), ("pending", "1,2"));
    ebb.db.execute("ALTER TABLE users ADD PRIMARY KEY (id)").await;
    ebb.apply(&users("")).await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "2");
}

#[tokio::test]
async fn keys_over_periods_are_refused_and_keys_that_are_not_enforced_are_named() {
    let ebb = Ebb::with("CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz)").await;
    if ebb.db.scalar::<i32>("SELECT current_setting('server_version_num')::int").await < 180_000 {
        return;
    }
    let sql = "CREATE TABLE stays (id int4range PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, during daterange,
                   UNIQUE (id, during WITHOUT OVERLAPS));
               CREATE TABLE nights (stay int4range, during daterange, FOREIGN KEY (stay, PERIOD during) REFERENCES stays (id, PERIOD during));
               CREATE TABLE posts (user_id bigint REFERENCES users ON DELETE CASCADE NOT ENFORCED)";
    ebb.db.execute(sql).await;
    let children = "children = [{ table = \"nights\", column = [\"stay\", \"during\"], action = \"delete\" }]";
    let plan = ebb.engine.plan(&wanted(&users(children)).unwrap()).await.unwrap();
    let said = |begins: &str| plan.trees[0].findings.iter().find(|found| found.message.starts_with(begins));
    assert!(said("foreign key nights_stay_during_fkey is over periods").is_some_and(|found| found.refuses));
    assert!(said("foreign key posts_user_id_fkey is not enforced").is_some_and(|found| !found.refuses));
}
