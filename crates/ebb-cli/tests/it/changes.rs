//! Changes of policies at runtime: who may make them, and what is said before anything else changes with them.

use ebb_testkit::{database, empty_database_on, own_server};

use crate::shell::Shell;

const TABLES: &str = "
    CREATE TABLE users (id int PRIMARY KEY, tenant_id text, deleted_at timestamptz);
    CREATE TABLE sessions (id int PRIMARY KEY, tenant_id text, user_id int REFERENCES users ON DELETE CASCADE, created_at timestamptz);
    CREATE INDEX ON sessions (user_id); CREATE INDEX ON sessions (created_at);
    INSERT INTO users VALUES (1, 'acme', now() - interval '100 days'), (2, 'acme', NULL);
    INSERT INTO sessions VALUES (1, 'acme', 1, now() - interval '10 days'), (2, 'acme', 2, now())";
const POLICIES: &str = "[audit]\nsubject_key = \"file:subject.key\"\n
    [[retain]]\nname = \"users\"\ntable = \"public.users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\nbrake = { share = \"off\" }\n
    [[retain]]\nname = \"sessions\"\ntable = \"public.sessions\"\ncolumn = \"created_at\"\nolder_than = \"365d\"\n
    tenant = \"tenant_id\"\ntenant_override = true\nbrake = { share = \"off\" }\n";
/// What is said of the rows that stay no longer when their user goes.
const GOES: &str =
    "what goes with the subjects of policy users changes: new: public.sessions (user_id) -> public.users (id): delete";

#[tokio::test]
async fn a_term_that_decides_about_rows_of_others_is_told_of_before_and_approved_with_the_change() {
    let db = database().await;
    db.execute(TABLES).await;
    let shell = Shell::new(&db, POLICIES);
    shell.ok(&["apply", "--yes"]);
    let stopped = "SELECT EXISTS (SELECT FROM ebb.policy WHERE stopped IS NOT NULL)";
    let shorter = ["policy", "set", "sessions", "older_than=30d"];
    let told = shell.ok(&[&shorter[..], &["--dry-run"]].concat());
    assert!(
        told.contains(GOES) && told.contains("--yes approves that") && told.contains("nothing was changed"),
        "{told}"
    );
    let refused = shell.fails(1, &shorter);
    assert!(refused.contains(GOES) && refused.contains("say --yes to approve that"), "{refused}");
    let version = "SELECT version FROM ebb.policy WHERE name = 'sessions'";
    assert_eq!(db.scalar::<i64>(version).await, 1, "nothing was changed");
    let told = shell.ok(&[&shorter[..], &["--yes", "--by", "ann"]].concat());
    assert!(told.contains(GOES) && told.contains("approved with this change"), "{told}");
    assert_eq!(db.scalar::<String>("SELECT approved_by FROM ebb.retain WHERE policy = 'users'").await, "ann");
    shell.ok(&["run", "--once"]);
    assert!(!db.scalar::<bool>(stopped).await);
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM sessions").await, 1, "its session went with user 1");
    // That rows stay for longer needs nobody's consent, and one tenant is enough for it; that they do not any more does.
    shell.ok(&["policy", "override", "sessions", "acme", "--retention", "365d"]);
    shell.ok(&["apply", "--force", "--yes"]);
    shell.ok(&["policy", "set", "sessions", "older_than=30d", "--yes"]);
    let unset = ["policy", "override", "sessions", "acme", "--unset"];
    let rehearsed = shell.json(&[&unset[..], &["--dry-run", "--json"]].concat());
    let tree = &rehearsed["trees"][0];
    assert_eq!((&tree["policy"], &tree["approved"]), (&"users".into(), &true.into()), "{rehearsed}");
    assert!(shell.fails(1, &unset).contains(GOES));
    assert!(shell.ok(&[&unset[..], &["--yes"]].concat()).contains("approved with this change"));
    shell.ok(&["run", "--once"]);
    assert!(!db.scalar::<bool>(stopped).await);
}

#[tokio::test]
async fn a_rehearsal_tells_of_columns_that_others_took_the_names_of() {
    let db = database().await;
    db.execute("CREATE TABLE t (at timestamptz, born timestamptz)").await;
    let shell = Shell::new(&db, "[[expire]]\nname = \"t\"\ntable = \"public.t\"\ncolumn = \"at\"\n");
    shell.ok(&["apply", "--yes"]);
    db.execute("ALTER TABLE t RENAME at TO x; ALTER TABLE t RENAME born TO at").await;
    let says =
        "policy t: column at of public.t is another one than when the policy was applied: that one is called x now";
    let set = ["policy", "set", "t", "every=2h"];
    assert!(shell.fails(1, &set).contains(says));
    let told = shell.ok(&[&set[..], &["--dry-run"]].concat());
    assert!(
        told.contains(&format!("! {says}; --yes agrees to that")) && told.contains("nothing was changed"),
        "{told}"
    );
    for told in [shell.ok(&["apply", "--dry-run"]), shell.fails(1, &["apply"])] {
        assert!(told.contains(says) && !told.contains("the database has what the file says"), "{told}");
    }
    shell.ok(&["apply", "--yes"]);
    assert!(shell.ok(&["apply"]).contains("the database has what the file says"));
}

#[tokio::test]
async fn a_tree_that_grew_meanwhile_is_not_approved_with_a_term() {
    let db = database().await;
    db.execute(TABLES).await;
    let shell = Shell::new(&db, POLICIES);
    shell.ok(&["apply", "--yes"]);
    db.execute("CREATE TABLE notes (id int PRIMARY KEY, user_id int REFERENCES users ON DELETE CASCADE); CREATE INDEX ON notes (user_id)")
        .await;
    shell.ok(&["policy", "set", "sessions", "older_than=30d", "--yes"]);
    let told = shell.fails(1, &["run", "--once"]);
    assert!(told.contains("stopped") && told.contains("public.notes"), "{told}");
}

#[tokio::test]
async fn a_trigger_that_went_or_came_is_named_by_what_stops_its_policy() {
    let db = database().await;
    db.execute(TABLES).await;
    db.execute(
        "CREATE FUNCTION passes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;
         CREATE TRIGGER counts BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION passes()",
    )
    .await;
    let shell = Shell::new(&db, POLICIES);
    shell.ok(&["apply", "--yes"]);
    db.execute(
        "DROP TRIGGER counts ON sessions; CREATE TRIGGER tells BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION passes()",
    )
    .await;
    let told = shell.fails(1, &["run", "--once", "--only", "users"]);
    assert!(told.contains("table public.sessions: trigger tells is new; trigger counts is gone"), "{told}");
}

#[tokio::test]
async fn only_an_administrator_changes_policies() {
    let server = own_server();
    let database = empty_database_on(&server).await;
    let name = database.name();
    database
        .execute(&format!(
            "CREATE ROLE ebb_owner LOGIN; CREATE ROLE ebb_node LOGIN; GRANT CREATE ON DATABASE {name} TO ebb_owner;
        GRANT CREATE ON SCHEMA public TO ebb_owner"
        ))
        .await;
    database.execute(TABLES).await;
    database.execute("ALTER TABLE users OWNER TO ebb_owner; ALTER TABLE sessions OWNER TO ebb_owner; GRANT SELECT, UPDATE, DELETE ON users, sessions TO ebb_node").await;
    let owner = Shell::at(&database.url().replace("postgres@", "ebb_owner@"), POLICIES);
    owner.ok(&["apply", "--yes"]);
    let node = Shell::at(&database.url().replace("postgres@", "ebb_node@"), POLICIES);
    let changes = [
        vec!["policy", "set", "sessions", "every=2h"],
        vec!["policy", "set", "sessions", "every=2h", "--dry-run"],
        vec!["policy", "override", "sessions", "acme", "--retention", "400d"],
    ];
    for change in &changes {
        let told = node.fails(1, change);
        assert!(told.contains("only an administrator changes policies") && told.contains("EBB_TOKEN"), "{told}");
    }
    // Looking is free.
    node.ok(&["policy", "override", "sessions"]);
    node.ok(&["policy", "show", "sessions"]);
    let token = |role: &str| {
        let told = owner.ok(&["token", "create", "--role", role]);
        told.split_whitespace().last().unwrap().to_owned()
    };
    let with = |token: &str, change: &[&str]| node.command(change).env("EBB_TOKEN", token).output().unwrap();
    let refused = with(&token("operate"), &changes[0]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && told.contains("has role operate, not admin"), "{told}");
    let refused = with("ebb_nonsense", &changes[0]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("unknown, expired or revoked"), "{refused:?}");
    let admin = token("admin");
    for change in [&changes[0], &changes[2]] {
        let done = with(&admin, change);
        assert!(done.status.success(), "{done:?}");
    }
}

#[tokio::test]
async fn what_holds_and_why_is_told_of_terms() {
    let db = database().await;
    db.execute(TABLES).await;
    let shell = Shell::new(&db, &POLICIES.replace("older_than = \"365d\"", "older_than = \"365d\"\nfloor = \"300d\""));
    shell.ok(&["apply", "--yes"]);
    // Below the floor: the same answer however it is asked.
    shell.fails(2, &["policy", "set", "sessions", "older_than=200d"]);
    let told = shell.fails(2, &["policy", "override", "sessions", "acme", "--retention", "200d"]);
    assert!(told.contains("200d is below the floor 300d"), "{told}");
    shell.ok(&["policy", "override", "sessions", "acme", "--retention", "400d"]);
    shell.ok(&["policy", "set", "sessions", "floor=100d", "--reason", "the law changed", "--by", "ann"]);
    let history = shell.ok(&["policy", "history", "sessions"]);
    assert!(history.contains("a floor went down: the law changed"), "{history}");
    let told = shell.json(&["policy", "history", "sessions", "--json"]);
    assert_eq!((&told[0]["reason"], &told[1]["reason"]), (&"the law changed".into(), &().into()), "{told}");
    // Terms that do not hold are not listed as if they did.
    assert!(!shell.ok(&["policy", "override", "sessions"]).contains("none of this holds"));
    shell.ok(&["policy", "set", "sessions", "tenant_override=false", "--yes"]);
    let told = shell.ok(&["policy", "override", "sessions"]);
    assert!(told.contains("none of this holds: sessions has tenant_override = false"), "{told}");
    // Lists and tables as the file, and hints, have them.
    shell.ok(&["policy", "set", "sessions", "brake={ rows = 500 }"]);
    let shown = shell.ok(&["policy", "show", "sessions"]);
    assert!(shown.contains("brake = { rows = 500, share = \"off\" }"), "{shown}");
    let wrong = shell.fails(2, &["policy", "set", "users", "warn_before=[\"14d\", \"2d\"]"]);
    assert!(wrong.contains("`warn_before` needs `"), "it was read: {wrong}");
}
