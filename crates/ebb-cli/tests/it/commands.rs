//! Every command as a person types it, wrong ones too. Exit: 0 done, 1 failed, 2 usage or configuration, 3 problems.

use std::path::Path;
use std::time::Duration;

use ebb_testkit::{Node, TestDatabase, database, empty_database};

use crate::shell::Shell;

const CONFIG: &str = r#"
[http]
listen = "127.0.0.1:0"

[audit]
signing_key = "file:ebb-audit.key"

[[expire]]
name = "old-keys"
description = "keys"
table = "public.k"
column = "expires_at"
every = "1h"
batch = { rows = 10, pause = "1ms" }
brake = { share = 1.0 }

[once.orders]
ttl = "1h"
"#;

async fn applied() -> (TestDatabase, Shell) {
    let database = database().await;
    database
        .execute(
            "CREATE TABLE public.k (id int, expires_at timestamptz); CREATE INDEX ON public.k (expires_at);
             INSERT INTO public.k SELECT n, now() - interval '1 hour' FROM generate_series(1, 40) n;
             INSERT INTO public.k SELECT n, now() + interval '1 day' FROM generate_series(1, 60) n",
        )
        .await;
    let shell = Shell::new(&database, CONFIG);
    shell.ok(&["apply", "--yes", "--by", "alice"]);
    (database, shell)
}

#[tokio::test]
async fn a_policy_is_listed_shown_changed_and_its_history_told() {
    let (_database, shell) = applied().await;
    let listed = shell.ok(&["policy", "list"]);
    assert!(listed.contains("old-keys") && listed.contains("active") && listed.contains("public.k"), "{listed}");
    let names: Vec<_> = shell.json(&["policy", "list", "--json"]).as_array().unwrap().clone();
    assert!(names.iter().any(|policy| policy["name"] == "old-keys" && policy["state"] == "active"));

    let set = shell.ok(&["policy", "set", "old-keys", "every=30m", "batch.rows=", "mode=observe", "--by", "bob"]);
    assert!(set.contains("version 2") && set.contains(r#"every: "1h" -> "30m""#), "{set}");
    assert!(shell.ok(&["policy", "set", "old-keys", "every=30m"]).contains("already"));
    let shown = shell.ok(&["policy", "show", "old-keys"]);
    assert!(shown.contains("# version 2") && shown.contains("by bob") && shown.contains("# state: observe"), "{shown}");

    // What is shown can be pasted into a file, and the file then differs in nothing.
    let pasted = CONFIG.split("[[expire]]").next().unwrap().to_owned() + &shown + "\n[once.orders]\nttl = \"1h\"\n";
    shell.write("pasted.toml", &pasted);
    let same = shell.ok(&["--config", "pasted.toml", "apply", "--dry-run"]);
    assert!(same.contains("has what the file says"), "{same}");

    for refused in [shell.fails(1, &["apply", "--yes"]), shell.fails(1, &["apply", "--dry-run"])] {
        assert!(refused.contains("changed at runtime by bob") && refused.contains("--force"), "{refused}");
        assert!(refused.contains("every: \"30m\" -> \"1h\""), "{refused}");
    }
    assert!(shell.ok(&["apply", "--dry-run", "--force"]).contains("overwritten, as --force says"));
    shell.ok(&["policy", "set", "old-keys", "--unset", "mode", "--by", "carol"]);
    let history = shell.ok(&["policy", "history", "old-keys"]);
    let order: Vec<_> = ["carol", "bob", "alice"].iter().map(|who| history.find(who).unwrap()).collect();
    assert!(order.is_sorted() && history.contains(r#"mode: "observe" -> (default)"#), "{history}");
    let json = shell.json(&["policy", "history", "old-keys", "--json"]);
    assert_eq!(json[0]["changes"][0]["key"], "mode");

    // Settings that no file has can be set as well.
    assert!(shell.ok(&["policy", "set", "pacing", "rows_per_second=1000"]).contains("rows_per_second: 1000"));
}

#[tokio::test]
async fn wrong_names_keys_and_values_are_told_with_what_would_be_right() {
    let (_database, shell) = applied().await;
    assert!(shell.fails(2, &["policy", "show", "old-key"]).contains("did you mean `old-keys`?"));
    assert!(shell.fails(2, &["policy", "history", "nothing-like-it"]).contains("ebb policy list"));
    assert!(shell.fails(2, &["policy", "set", "old-keys", "evry=1h"]).contains("did you mean `every`?"));
    assert!(shell.fails(2, &["policy", "set", "old-keys", "every=30"]).contains("30d"));
    assert!(shell.fails(2, &["policy", "set", "old-keys", "every"]).contains("KEY=VALUE"));
    assert!(shell.fails(2, &["policy", "set", "old-keys", "table=public.kk"]).contains("did you mean public.k?"));
    assert!(shell.fails(2, &["pause", "old-kes"]).contains("did you mean"));
    assert!(shell.fails(2, &["pause", "orders"]).contains("namespace"));
    assert!(shell.fails(2, &["trigger", "old-keys:mow"]).contains("chores are"));
    assert!(shell.fails(2, &["trigger", "nope"]).contains("there is no policy nope"));
    assert!(shell.fails(2, &["resume", "old-keys", "--allow", "10"]).contains("has not stopped anything"));
    assert!(shell.fails(2, &["resume", "old-keys", "--allow", "0"]).contains("--allow"));
    assert!(shell.fails(2, &["audit", "list", "--since", "yesterday"]).contains("neither a time nor a duration"));
    assert!(shell.fails(2, &["no-such-command"]).contains("unrecognized"));
    assert_eq!(shell.json(&["policy", "list", "--json"])[0]["version"], 1, "nothing of this changed anything");
}

#[tokio::test]
async fn apply_says_what_is_wrong_at_its_line_and_nothing_else() {
    let (_database, shell) = applied().await;
    let wrong = CONFIG.replace("public.k\"", "public.nope\"").replace("every = \"1h\"", "every = \"2h\"");
    shell.write("ebb.toml", &wrong);
    for args in [&["apply", "--yes"][..], &["apply", "--dry-run"]] {
        let told = shell.ebb(args);
        assert_eq!(told.code, 2, "{told:?}");
        assert!(
            told.err.contains("there is no table public.nope") && told.err.contains("--> ebb.toml:11"),
            "{}",
            told.err
        );
        assert_eq!(told.out, "");
    }
}

#[tokio::test]
async fn what_the_catalog_says_is_told_at_its_key() {
    let (_database, shell) = applied().await;
    for (from, to, line) in [
        ("column = \"expires_at\"", "column = \"expire\"", 12),
        ("column = \"expires_at\"", "column = \"id\"", 12),
        ("every = \"1h\"", "where = \"id = count(*)\"", 13),
        ("every = \"1h\"", "role = \"no-such-role\"", 13),
        ("every = \"1h\"", "action = { set = { nothing = \"1\" } }", 13),
    ] {
        shell.write("ebb.toml", &CONFIG.replace(from, to));
        let told = shell.fails(2, &["apply", "--yes"]);
        assert!(told.contains(&format!("--> ebb.toml:{line}")), "{to}: {told}");
    }
}

#[tokio::test]
async fn apply_overwrites_a_runtime_change_only_when_told_to() {
    let (_database, shell) = applied().await;
    shell.ok(&["policy", "set", "old-keys", "every=30m", "--by", "bob"]);
    shell.write("ebb.toml", &CONFIG.replace("every = \"1h\"", "every = \"2h\""));
    let told = shell.fails(1, &["apply", "--yes"]);
    assert!(told.contains("changed at runtime by bob; overwritten only with --force"), "{told}");
    let told = shell.ok(&["apply", "--yes", "--force"]);
    assert!(told.contains("changed at runtime by bob; overwritten, as --force says"), "{told}");
    assert!(shell.ok(&["policy", "show", "old-keys"]).contains("every = \"2h\""));
}

#[tokio::test]
async fn apply_prints_the_index_that_is_missing_and_makes_it_when_told_to() {
    let database = database().await;
    database
        .execute(
            "CREATE TABLE public.k (id int, expires_at timestamptz, filler text);
             INSERT INTO public.k SELECT n, now() + interval '1 day', repeat('x', 1000) FROM generate_series(1, 2000) n",
        )
        .await;
    let shell = Shell::new(&database, CONFIG);
    let told = shell.ok(&["apply", "--yes"]);
    let statement = "CREATE INDEX CONCURRENTLY ON \"public\".\"k\" (\"expires_at\");";
    assert!(told.contains(statement) && told.contains("--create-indexes"), "{told}");
    let indexed = "SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = 'public.k'::regclass AND indisvalid)";
    assert!(!database.scalar::<bool>(indexed).await);
    assert!(shell.ok(&["apply", "--dry-run", "--create-indexes"]).contains(statement));
    assert!(!database.scalar::<bool>(indexed).await);
    let told = shell.ok(&["apply", "--yes", "--create-indexes"]);
    assert!(told.contains("created an index on public.k"), "{told}");
    assert!(database.scalar::<bool>(indexed).await);
    assert!(!shell.ok(&["apply", "--yes"]).contains("CREATE INDEX"));
}

#[tokio::test]
async fn apply_makes_the_owners_sandbox_or_prints_it() {
    let server = ebb_testkit::own_server();
    let database = ebb_testkit::empty_database_on(&server).await;
    database
        .execute(&format!(
            "CREATE ROLE ebb_owner LOGIN; CREATE ROLE ebb_node LOGIN; CREATE ROLE app; GRANT CREATE ON DATABASE {} TO ebb_owner;
             CREATE TABLE public.k (id int, expires_at timestamptz); CREATE INDEX ON public.k (expires_at);
             INSERT INTO public.k SELECT n, now() - interval '1 hour' FROM generate_series(1, 40) n;
             ALTER TABLE public.k OWNER TO app; GRANT SELECT ON public.k TO ebb_owner, ebb_node",
            database.name()
        ))
        .await;
    let owner = Shell::at(&database.url().replace("postgres@", "ebb_owner@"), CONFIG);
    let told = owner.ok(&["apply", "--yes"]);
    assert!(told.contains("! old-keys has no sandbox") && told.contains("SECURITY DEFINER"), "{told}");
    let script: String =
        told.lines().filter_map(|line| line.strip_prefix("    ")).fold(String::new(), |all, line| all + line + "\n");
    let script = &script[script.find("CREATE SCHEMA").unwrap()..];
    let node = Shell::at(&database.url().replace("postgres@", "ebb_node@"), CONFIG);
    let told = node.fails(1, &["run", "--once", "--only", "old-keys"]);
    assert!(told.contains("permission denied") && told.contains("ebb doctor"), "{told}");
    let doctor = owner.fails(3, &["doctor", "--role", "ebb_node"]);
    assert!(doctor.contains("GRANT DELETE"), "{doctor}");
    database.execute(script).await;
    node.ok(&["run", "--once", "--only", "old-keys"]);
    assert_eq!(database.scalar::<i64>("SELECT count(*) FROM public.k").await, 0);
    assert!(!owner.ok(&["apply", "--yes"]).contains("sandbox"));
    let doctor = owner.ebb(&["doctor", "--role", "ebb_node"]).out;
    assert!(!doctor.contains("GRANT DELETE"), "{doctor}");
    // Whoever may becomes the owner and makes it without a word from anybody else.
    let superuser = Shell::new(&database, &CONFIG.replace("every = \"1h\"", "where = \"id > 0\""));
    let told = superuser.ok(&["apply", "--yes"]);
    assert!(told.contains("+ sandbox of old-keys: rows of public.k go with the rights of its owner, app"), "{told}");
    superuser.ok(&["uninstall", "--yes", "--force"]);
    assert!(database.scalar::<bool>("SELECT to_regnamespace('ebb_sandbox') IS NULL").await);
}

#[tokio::test]
async fn a_pass_that_leaves_a_policy_out_because_it_was_stopped_fails_each_time() {
    let (database, shell) = applied().await;
    shell.ok(&["run", "--once"]);
    database.execute("DROP TABLE public.k").await;
    for args in [&["run", "--once"][..], &["run", "--once"], &["run", "--once", "--only", "old-keys"]] {
        let answer = shell.ebb(args);
        assert_eq!(answer.code, 1, "{args:?}: {answer:?}");
        let told = answer.out.lines().any(|line| line.starts_with(" old-keys") && line.contains("stopped"));
        assert!(told && answer.out.contains("public.k"), "{args:?}: {answer:?}");
    }
    let answer = shell.ebb(&["run", "--once", "--json"]);
    let finished: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((answer.code, &finished["stopped"][0][0]), (1, &"old-keys".into()), "{finished}");
    // What nobody wants to run any more is no failure.
    shell.ok(&["policy", "set", "old-keys", "enabled=false"]);
    shell.ok(&["run", "--once"]);
}

#[tokio::test]
async fn a_variable_that_is_empty_names_no_configuration() {
    let (_database, shell) = applied().await;
    let listed = shell.command(&["policy", "list"]).env("EBB_CONFIG", "").output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
}

#[tokio::test]
async fn a_database_without_ebb_says_so() {
    let database = empty_database().await;
    let shell = Shell::new(&database, CONFIG);
    for args in [&["policy", "list"][..], &["once", "a", "b"], &["audit", "list"], &["pause"], &["trigger", "keep"]] {
        let told = shell.fails(1, args);
        assert!(told.contains("Ebb is not in this database yet") && told.contains("ebb apply"), "{told}");
    }
    assert!(shell.ok(&["uninstall", "--yes"]).contains("nothing to do"));
    database.execute("CREATE TABLE public.k (id int, expires_at timestamptz)").await;
    assert!(shell.ok(&["apply", "--dry-run"]).contains("+ expire old-keys"));
    // What `ebb plan` refuses is refused, and nothing is made.
    database.execute("CREATE TABLE public.people (id int PRIMARY KEY, gone boolean)").await;
    let policy = "[[retain]]\nname = \"people\"\ntable = \"public.people\"\ndeleted_at = \"gone\"\ngrace = \"90d\"\n";
    let shell = Shell::new(&database, &format!("{CONFIG}\n{policy}"));
    assert!(shell.fails(3, &["plan"]).contains("gone"));
    let told = shell.fails(2, &["apply", "--dry-run"]);
    assert!(told.contains("policy people: ") && told.contains("gone") && told.contains("ebb.toml:"), "{told}");
    assert!(database.scalar::<bool>("SELECT to_regnamespace('ebb') IS NULL").await);
}

#[tokio::test]
async fn pause_and_resume_hold_and_release_a_run() {
    let (database, shell) = applied().await;
    assert!(shell.ok(&["pause", "old-keys", "--reason", "migration", "--by", "alice"]).contains("paused old-keys"));
    assert!(shell.ok(&["policy", "list"]).contains("paused"));
    assert!(shell.ok(&["run", "--once", "--only", "old-keys"]).contains("paused"));
    assert_eq!(database.scalar::<i64>("SELECT count(*) FROM public.k").await, 100);
    shell.ok(&["pause"]);
    assert!(shell.ok(&["resume", "old-keys"]).contains("everything is still paused"));
    assert!(shell.ok(&["resume"]).contains("resumed everything"));
    assert!(shell.ok(&["resume"]).contains("was not paused"));
    shell.ok(&["run", "--once", "--only", "old-keys"]);
    assert_eq!(database.scalar::<i64>("SELECT count(*) FROM public.k").await, 60);
    let actions = shell.json(&["audit", "list", "--json", "--policy", "old-keys"]);
    assert!(actions.as_array().unwrap().iter().any(|record| record["action"] == "pause"));
}

#[tokio::test]
async fn a_trigger_says_who_hears_it() {
    let (database, shell) = applied().await;
    let told = shell.fails(1, &["trigger", "old-keys"]);
    assert!(told.contains("no node has taken up old-keys yet") && told.contains("ebb run --once"), "{told}");
    let bin = Path::new(env!("CARGO_BIN_EXE_ebb"));
    let config = CONFIG.replace("[http]", "[node]\nname = \"worker-7\"\n[http]");
    let mut node = Node::spawn(bin, database.url(), &config, &["run"]);
    node.wait_for_line("Cleaned up expired rows", Duration::from_secs(60)).await;
    assert!(shell.fails(1, &["uninstall", "--yes"]).contains("worker-7 was alive a moment ago"));
    database.execute("INSERT INTO public.k SELECT n, now() - interval '1 minute' FROM generate_series(1, 10) n").await;
    let told = shell.ok(&["trigger", "old-keys:expire"]);
    assert!(told.contains("1 unit") && told.contains("worker-7"), "{told}");
    ebb_testkit::eventually(Duration::from_secs(60), || async {
        database.scalar::<i64>("SELECT count(*) FROM public.k").await == 60
    })
    .await;
    shell.ok(&["trigger", "keep"]);
    node.term();
    node.wait_within(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn once_answers_in_one_word() {
    let (_database, shell) = applied().await;
    assert_eq!(shell.ok(&["once", "orders", "42"]), "first\n");
    assert_eq!(shell.ok(&["once", "orders", "42"]), "duplicate\n");
    assert_eq!(shell.ok(&["once", "unconfigured", "42", "--ttl", "5m"]), "first\n");
    assert_eq!(shell.ok(&["once", "orders", "43", "--fingerprint", "a"]), "first\n");
    assert_eq!(shell.fails(3, &["once", "orders", "43", "--fingerprint", "b"]), "mismatch\n");
    assert_eq!(shell.json(&["once", "orders", "42", "--json"])["outcome"], "duplicate");
    assert!(shell.fails(2, &["once", "orders", ""]).contains("1 to 1024 bytes"));
    assert!(shell.fails(2, &["once", "no good", "k"]).contains("not a namespace"));
    assert!(shell.fails(2, &["once", "orders", "k", "--ttl", "0s"]).contains("above zero"));
    assert!(shell.fails(2, &["once", "orders", "k", "--ttl", "1mo"]).contains("no fixed length"));
    assert!(shell.fails(2, &["once", "orders", "k", "--ttl", "10"]).contains("no unit"));
}

#[tokio::test]
async fn the_audit_lists_and_verifies_and_finds_a_changed_byte() {
    let (database, shell) = applied().await;
    shell.ok(&["run", "--once"]);
    // Sealing may have come before the last record of that pass, and waits for every transaction on the server, also of other tests.
    ebb_testkit::eventually(Duration::from_secs(120), || async {
        shell.ok(&["run", "--once", "--only", "audit"]);
        let verified = shell.ok(&["audit", "verify"]);
        verified.starts_with("verified: ") && !verified.contains("wait for a seal")
    })
    .await;
    let verified = shell.ok(&["audit", "verify"]);
    assert!(verified.starts_with("verified: ") && verified.contains("published"), "{verified}");
    let report = shell.json(&["audit", "verify", "--json"]);
    assert_eq!((&report["ok"], &report["problems"]), (&true.into(), &serde_json::json!([])));
    assert!(shell.ok(&["audit", "verify", "--key", "ebb-audit.key.pub"]).starts_with("verified"));

    let listed = shell.json(&["audit", "list", "--json", "--action", "expire", "--since", "1h"]);
    let rows: i64 = listed.as_array().unwrap().iter().map(|record| record["rows"].as_i64().unwrap()).sum();
    assert_eq!(rows, 40);
    let page = shell.ok(&["audit", "list", "--limit", "1"]);
    assert!(page.contains("--after "), "{page}");
    assert!(shell.ok(&["audit", "list", "--policy", "nobody"]).contains("no record fits"));
    assert_eq!(shell.piped_into_head(&["audit", "list"]).code, 0);

    database.execute("UPDATE ebb.audit SET rows = rows + 1 WHERE action = 'expire'").await;
    let told = shell.fails(3, &["audit", "verify"]);
    assert!(told.contains("was changed after it was sealed") && told.contains("NOT verified"), "{told}");
    let answer = shell.ebb(&["audit", "verify", "--json"]);
    assert_eq!(answer.code, 3);
    assert!(answer.out.contains("record_changed") && answer.out.contains("\"ok\": false"), "{}", answer.out);

    shell.write("ebb.toml", "");
    let told = shell.fails(2, &["audit", "verify"]);
    assert!(told.contains("no key to verify") && told.contains("--key"), "{told}");
}

#[tokio::test]
async fn uninstall_shows_asks_and_takes_only_what_is_its_own() {
    let (database, shell) = applied().await;
    let shown = shell.ok(&["uninstall", "--dry-run"]);
    assert!(shown.contains("ebb.policy") && shown.contains("pg_dump"), "{shown}");
    let told = shell.fails(2, &["uninstall"]);
    assert!(told.contains("--yes"), "{told}");
    database.execute("CREATE VIEW public.v AS SELECT name FROM ebb.policy").await;
    let told = shell.fails(1, &["uninstall", "--yes"]);
    assert!(told.contains("view public.v") && told.contains("--force"), "{told}");
    assert_eq!(database.scalar::<i64>("SELECT count(*) FROM public.v").await, 2);
    database.execute("DROP VIEW public.v").await;
    assert!(shell.ok(&["uninstall", "--yes"]).contains("dropped the ebb schema"));
    let left: bool = database.scalar("SELECT to_regnamespace('ebb') IS NULL").await;
    assert!(left);
    assert_eq!(database.scalar::<i64>("SELECT count(*) FROM public.k").await, 100);
    shell.ok(&["apply", "--yes"]);
}

#[tokio::test]
async fn init_proposes_what_it_found_and_overwrites_nothing() {
    let (database, shell) = applied().await;
    database
        .execute(
            "CREATE TABLE public.\"Odd Name\" (valid_until timestamp, expires_at text);
             CREATE TABLE public.plain (id int, created_at timestamptz);
             CREATE TABLE public.p (expired_at timestamptz) PARTITION BY RANGE (expired_at);
             CREATE TABLE public.p1 PARTITION OF public.p DEFAULT",
        )
        .await;
    let told = shell.fails(1, &["init"]);
    assert!(told.contains("ebb.toml exists") && told.contains("--force"), "{told}");
    assert!(shell.ok(&["init", "--force"]).contains("kept the old file as ebb.toml.old"));
    assert_eq!(shell.read("ebb.toml.old"), CONFIG);
    let text = shell.read("ebb.toml");
    for part in [
        "public.k: about 100 rows, 40 of them past expires_at",
        "An index starts with expires_at",
        r#"# table = "public.\"Odd Name\"""#,
        r#"CREATE INDEX CONCURRENTLY ON "public"."Odd Name" ("valid_until");"#,
        "valid_until is a timestamp",
        "# table = \"public.p\"",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("public.plain") && !text.contains("public.p1"), "{text}");
    shell.ok(&["apply", "--dry-run"]);

    let bare = Shell::bare();
    bare.ok(&["init", "--example", "idempotency"]);
    assert!(bare.read("ebb.toml").contains("lineage_event_idempotency"));
    bare.ok(&["init", "--force", "--example", "uu-pdp"]);
    assert!(bare.read("ebb.toml").contains("User account data after account deletion"));
    assert!(bare.ok(&["init", "--force"]).contains("no database is configured"));
    assert!(!bare.dir.path().join(".ebb").exists());
}

#[test]
fn completions_and_manual_need_neither_configuration_nor_database() {
    let shell = Shell::bare();
    shell.write("ebb.toml", "this is not [ toml");
    assert!(shell.ok(&["completions", "bash"]).contains("policy"));
    assert!(shell.ok(&["man"]).contains(".TH ebb"));
    shell.ok(&["man", "--dir", "pages"]);
    assert!(shell.read("pages/ebb-policy-set.1").contains("KEY=VALUE"));
    assert_eq!(shell.piped_into_head(&["completions", "zsh"]).code, 0);
    assert!(!shell.dir.path().join(".ebb").exists());
    assert!(shell.fails(2, &["completions", "tcsh"]).contains("possible values"));
}
