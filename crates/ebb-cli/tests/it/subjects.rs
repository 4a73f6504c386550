//! One subject through the command line, from soft delete to nothing, and the example of the seven policies.

use ebb_testkit::{TestDatabase, database};

use crate::shell::Shell;

const TABLES: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, tenant_id text, email text, name text, status text, deleted_at timestamptz,
        scheduled_deletion_at timestamptz, deletion_notified_at timestamptz, cleanup_attempted_at timestamptz, updated_at timestamptz);
    CREATE TABLE guest_orders (id bigint PRIMARY KEY, status text, closed_at timestamptz);
    CREATE TABLE sessions (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, created_at timestamptz);
    CREATE TABLE notifications (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, status text, created_at timestamptz);
    CREATE TABLE consent_records (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, revoked_at timestamptz);
    CREATE TABLE password_reset_tokens (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, expires_at timestamptz);
    CREATE TABLE invitations (id bigint PRIMARY KEY, status text, closed_at timestamptz);
    CREATE TABLE user_profiles (id bigint PRIMARY KEY, bio text);
    INSERT INTO users (id, tenant_id, email, status) SELECT n, 'acme', n || '@example.test', 'active' FROM generate_series(1, 5) n;
    INSERT INTO sessions SELECT n, 1 + n % 5, now() FROM generate_series(1, 20) n;
    INSERT INTO notifications SELECT n, 1, 'sent', now() - n * interval '10 days' FROM generate_series(1, 20) n";

#[tokio::test]
async fn a_change_of_terms_is_rehearsed_and_the_same_again_is_none() {
    let db = database().await;
    db.execute("CREATE TABLE people (id int PRIMARY KEY, tenant_id text, deleted_at timestamptz); INSERT INTO people VALUES (1, 'acme', NULL), (2, 'acme', NULL)")
        .await;
    let policy = "[[retain]]\nname = \"people\"\ntable = \"public.people\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n\
                  tenant = \"tenant_id\"\ntenant_override = true\n";
    let shell = Shell::new(&db, policy);
    shell.ok(&["apply", "--yes"]);
    let versions = "SELECT count(*) FROM ebb.policy_history WHERE name = 'people'";
    let own = |more: &[&'static str]| [&["policy", "override", "people", "acme", "--retention", "120d"], more].concat();
    let before = db.scalar::<i64>(versions).await;
    let rehearsed = shell.json(&own(&["--dry-run", "--json"]));
    assert_eq!(
        (&rehearsed["dry_run"], &rehearsed["terms"]["retention"]),
        (&true.into(), &"120d".into()),
        "{rehearsed}"
    );
    assert!(shell.ok(&own(&["--dry-run"])).contains("nothing was changed"));
    assert_eq!(db.scalar::<i64>(versions).await, before);
    let set = shell.json(&own(&["--json"]));
    assert_eq!((set["changed"].as_bool(), set["tenant"].as_str()), (Some(true), Some("acme")), "{set}");
    let again = shell.ok(&own(&[]));
    assert!(again.contains(&format!("is like that already (version {})", set["version"])), "{again}");
    assert_eq!(shell.json(&own(&["--json"]))["changed"], false);
    assert_eq!(db.scalar::<i64>(versions).await, before + 1);
    let listed = shell.json(&["policy", "override", "people", "--json"]);
    assert_eq!(listed[0]["spec"]["retention"], "120d", "{listed}");
    shell.ok(&["policy", "override", "people", "acme", "--unset"]);
    db.execute("SELECT ebb.delete_subject('people', '2')").await;
    db.advance("50 days").await;
    let rehearsed = shell.ok(&["policy", "set", "people", "grace=40d", "--dry-run"]);
    let told = ["grace: \"90d\" -> \"40d\"", "1 more subject would be due at once", "nothing was changed"];
    assert!(told.iter().all(|text| rehearsed.contains(text)), "{rehearsed}");
    let rehearsed = shell.ok(&["policy", "override", "people", "acme", "--retention", "40d", "--dry-run"]);
    assert!(rehearsed.contains("1 more subject would be due at once"), "{rehearsed}");
    let rehearsed = shell.json(&["policy", "override", "people", "acme", "--retention", "60d", "--dry-run", "--json"]);
    assert_eq!((&rehearsed["due_more"], &rehearsed["due_sooner"]), (&0.into(), &1.into()), "{rehearsed}");
    let rehearsed = shell.ok(&["policy", "set", "people", "grace=60d", "--dry-run"]);
    assert!(rehearsed.contains("1 deletion would be due sooner by it"), "{rehearsed}");
    let sooner = shell.ok(&["policy", "set", "people", "grace=60d"]);
    assert!(sooner.contains("1 deletion is due sooner by it"), "{sooner}");
    assert!(!shell.ok(&["policy", "set", "people", "grace=90d"]).contains("sooner"));
}

#[tokio::test]
async fn history_says_what_an_override_changed_and_show_who_waits() {
    let db = database().await;
    db.execute("CREATE TABLE people (id int PRIMARY KEY, tenant_id text, deleted_at timestamptz); INSERT INTO people VALUES (1, 'acme', NULL), (2, 'acme', NULL)")
        .await;
    let policy = "[[retain]]\nname = \"people\"\ntable = \"public.people\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n\
                  tenant = \"tenant_id\"\ntenant_override = true\n";
    let shell = Shell::new(&db, policy);
    shell.ok(&["apply", "--yes"]);
    shell.ok(&["policy", "override", "people", "acme", "--retention", "120d", "--by", "ann"]);
    shell.ok(&["policy", "override", "people", "acme", "--unset", "--by", "bob"]);
    // What a call does not speak of stays.
    for (given, says) in [
        (vec!["--retention", "120d"], "acme: retained 120d"),
        (vec!["--disable"], "acme: retained 120d; nothing of it is erased"),
        (vec!["--retention", "150d"], "acme: retained 150d; nothing of it is erased"),
        (vec!["--enable"], "acme: retained 150d\n"),
        (vec!["--retention="], "acme: retained as the policy says\n"),
        (vec!["--unset"], "acme: as the policy says\n"),
    ] {
        let told = shell.ok(&[&["policy", "override", "people", "acme"], &given[..]].concat());
        assert!(told.contains(says), "{given:?}: {told}");
    }
    assert!(shell.fails(2, &["policy", "override", "people", "acme"]).contains("say what the tenant's terms are"));
    let history = shell.ok(&["policy", "history", "people"]);
    let told = |by: &str, what: &str| history.contains(by) && history.contains(what);
    assert!(told("ann  (runtime)", "tenant acme: enabled = true, retention = \"120d\""), "{history}");
    assert!(told("bob  (runtime)", "tenant acme: the policy's again"), "{history}");
    assert!(shell.ok(&["show", "people"]).contains("no subject waits for anything"));
    shell.ok(&["hold", "people", "1", "--reason", "court", "--by", "legal"]);
    assert!(shell.ok(&["delete", "people", "1", "--by", "ann"]).contains("it will not be erased as things stand"));
    let waits = shell.ok(&["show", "people"]);
    assert!(waits.contains("on hold: court"), "{waits}");
    let shown = shell.ok(&["show", "people", "1"]);
    assert!(shown.contains("deleted by ann") && shown.contains("hold by legal: court"), "{shown}");
    let wrong = shell.fails(2, &["show", "peple"]);
    assert!(wrong.contains("there is no policy peple") && wrong.contains("did you mean `people`?"), "{wrong}");
    db.execute("UPDATE people SET deleted_at = now() - interval '50 days' WHERE id = 2").await;
    shell.write("ebb.toml", &shell.read("ebb.toml").replace("90d", "40d"));
    let told = shell.json(&["apply", "--dry-run", "--json"]);
    assert_eq!(told[0]["made_due"]["after"], 1, "{told}");
    shell.write("ebb.toml", &shell.read("ebb.toml").replace("40d", "90d"));
    db.execute("UPDATE people SET deleted_at = NULL WHERE id = 2").await;
    // What will not happen is not promised.
    assert!(
        shell.fails(1, &["policy", "override", "people", "acne", "--disable"]).contains("no row of public.people has")
    );
    shell.ok(&["policy", "override", "people", "acme", "--disable"]);
    assert!(shell.ok(&["erase", "people", "2", "--yes"]).contains("it will not be erased as things stand"));
    shell.ok(&["policy", "override", "people", "acme", "--unset", "--yes"]);
    shell.ok(&["policy", "set", "people", "mode=observe"]);
    assert!(shell.ok(&["erase", "people", "2", "--yes"]).contains("nothing is erased while people only observes"));
    let held = shell.ok(&["hold", "people", "2", "--reason", "court", "--until", "2099-01-01"]);
    assert!(held.contains("on hold until 2099-01-01"), "{held}");
    let wrong = shell.fails(2, &["hold", "people", "2", "--reason", "x", "--until", "soon"]);
    assert!(wrong.contains("--until \"soon\" is neither a time nor a duration"), "{wrong}");
    shell.ok(&["release", "people", "2"]);
    shell.ok(&["hold", "people", "2", "--reason", "court", "--until", "90d"]);
    let for_90_days = "SELECT until BETWEEN now() + interval '89 days' AND now() + interval '91 days' FROM ebb.hold WHERE lifted_at IS NULL AND subject_id = '2'";
    assert!(db.scalar::<bool>(for_90_days).await);
    assert!(shell.ok(&["release", "people", "2"]).contains("it was on hold for court"));
    db.execute("DELETE FROM people WHERE id = 2").await;
    assert!(shell.ok(&["show", "people", "2"]).contains("not there: the application deleted it"));
}

#[tokio::test]
async fn an_erasure_that_something_keeps_back_is_promised_for_no_date_and_a_change_has_its_author() {
    let db = database().await;
    db.execute(
        "CREATE TABLE people (id int PRIMARY KEY, owes int NOT NULL DEFAULT 0, deleted_at timestamptz);
         INSERT INTO people VALUES (1, 0), (2, 5), (3, 0), (4, 0)",
    )
    .await;
    let policy = "[[retain]]\nname = \"people\"\ntable = \"public.people\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n\
                  unless = \"owes > 0\"\n";
    let shell = Shell::new(&db, policy);
    shell.ok(&["apply", "--yes"]);
    let said = shell.ok(&["erase", "people", "1", "--yes"]);
    assert!(said.starts_with("it will be erased by the next run"), "{said}");
    let said = shell.ok(&["erase", "people", "2", "--dry-run"]);
    assert!(said.contains("it would be erased once nothing keeps it back (`unless` holds)"), "{said}");
    let said = shell.ok(&["erase", "people", "2", "--yes"]);
    assert!(said.starts_with("it will be erased once nothing keeps it back (`unless` holds)"), "{said}");
    // What stands still erases nobody.
    shell.ok(&["delete", "people", "4", "--yes"]);
    for (stop, why, resume) in [
        (
            vec!["policy", "set", "people", "enabled=false"],
            "nothing is erased while policy people is disabled: ebb policy set people enabled=true",
            vec!["policy", "set", "people", "enabled=true", "--yes"],
        ),
        (
            vec!["pause", "people", "--by", "ann"],
            "nothing is erased while policy people is paused by ann: ebb resume people",
            vec!["resume", "people"],
        ),
        (
            vec!["pause", "--by", "ann"],
            "nothing is erased while everything is paused by ann: ebb resume\n",
            vec!["resume"],
        ),
    ] {
        shell.ok(&stop);
        for (asked, begins) in [
            (vec!["delete", "people", "4", "--yes"], "soft-deleted; "),
            (vec!["delete", "people", "4", "--dry-run"], ""),
            (vec!["erase", "people", "4", "--dry-run"], ""),
            (vec!["erase", "people", "1", "--yes"], "noted; "),
        ] {
            let said = shell.ok(&asked);
            assert!(said.starts_with(begins) && said.contains(why) && !said.contains("next run"), "{asked:?}: {said}");
        }
        shell.ok(&resume);
    }
    // Claimed, and then put on hold.
    shell.ok(&["erase", "people", "3", "--yes"]);
    db.execute("UPDATE ebb.deletion SET state = 'erasing' WHERE subject_id = '3'").await;
    shell.ok(&["hold", "people", "3", "--reason", "court"]);
    let said = shell.ok(&["erase", "people", "3", "--yes"]);
    assert!(said.starts_with("it will be erased once its hold is lifted"), "{said}");

    // A node stops what ann had changed: it is still ann's change.
    shell.ok(&["policy", "set", "people", "grace=100d", "--by", "ann"]);
    db.execute("ALTER TABLE people RENAME COLUMN owes TO debts").await;
    shell.ebb(&["run", "--once"]);
    db.execute("ALTER TABLE people RENAME COLUMN debts TO owes").await;
    let stopped = "SELECT stopped IS NOT NULL AND changed_by <> 'ann' FROM ebb.policy WHERE name = 'people'";
    assert!(db.scalar::<bool>(stopped).await);
    let refused = shell.fails(1, &["apply", "--yes"]);
    assert!(refused.contains("was changed at runtime by ann"), "{refused}");
}

#[tokio::test]
async fn what_is_printed_to_be_pasted_can_be_and_what_is_refused_says_what_helps() {
    let db = database().await;
    db.execute(
        "CREATE TABLE people (region text, id text, deleted_at timestamptz, PRIMARY KEY (region, id));
         INSERT INTO people VALUES ('eu', '1'), ('eu', 'o''neill');
         DO $$ BEGIN CREATE ROLE creator; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
         GRANT CREATE ON SCHEMA public TO creator;
         CREATE TABLE people_log (id text);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO people_log VALUES (NEW.id); RETURN NEW; END $$;
         CREATE TRIGGER note AFTER UPDATE ON people FOR EACH ROW EXECUTE FUNCTION note()",
    )
    .await;
    let policy =
        "[[retain]]\nname = \"people\"\ntable = \"public.people\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n";
    let shell = Shell::new(&db, policy);
    let told = |said: &str| {
        said.contains("trigger note names people_log")
            && said.contains("REVOKE CREATE ON SCHEMA \"public\" FROM creator")
    };
    for command in [&["plan"][..], &["apply", "--dry-run"], &["apply", "--yes"], &["apply", "--yes"]] {
        let said = shell.ok(command);
        assert!(told(&said), "{command:?}: {said}");
    }
    let doctor = shell.ebb(&["doctor"]);
    assert!(told(&doctor.out), "{}", doctor.out);
    let id = "[\"eu\", \"1\"]";
    let refused = shell.fails(1, &["delete", "people", id, "--yes"]);
    assert!(
        refused.contains("\"people_log\" does not exist") && refused.contains("search_path = pg_catalog, pg_temp"),
        "{refused}"
    );
    db.execute("REVOKE CREATE ON SCHEMA public FROM creator").await;
    assert!(!told(&shell.ok(&["apply", "--yes"])));

    let said = shell.ok(&["delete", "people", id, "--yes"]);
    assert!(said.contains("ebb restore people '[\"eu\", \"1\"]'"), "{said}");
    let said = shell.ok(&["hold", "people", "[\"eu\", \"o'neill\"]", "--reason", "court"]);
    assert!(said.contains("ebb release people '[\"eu\", \"o'\\''neill\"]'"), "{said}");
    // One that nobody knows is told apart from one that is fine.
    for command in ["restore", "retry"] {
        let unknown = shell.fails(2, &[command, "people", "[\"eu\", \"9\"]"]);
        assert!(unknown.contains("knows no subject"), "{command}: {unknown}");
    }
    db.execute("UPDATE people SET deleted_at = now() WHERE id = 'o''neill'").await;
    let shown = shell.ok(&["show", "people", "[\"eu\", \"o'neill\"]"]);
    assert!(shown.contains("soft-deleted by the application, marked once its hold has ended"), "{shown}");
    shell.ok(&["release", "people", "[\"eu\", \"o'neill\"]"]);

    for (until, days) in [("3mo", "88 days"), ("1y", "364 days")] {
        shell.ok(&["hold", "people", id, "--reason", "court", "--until", until]);
        let later = format!("SELECT until > now() + interval '{days}' FROM ebb.hold WHERE lifted_at IS NULL");
        assert!(db.scalar::<bool>(&later).await, "{until}");
    }
    let long = shell.fails(2, &["hold", "people", id, "--reason", "x", "--until", "99999999d"]);
    assert!(long.contains("longer than 1000 years"), "{long}");
    shell.ok(&["policy", "set", "people", "enabled=false"]);
    let refused = shell.fails(1, &["delete", "people", "[\"eu\", \"o'neill\"]", "--yes"]);
    assert!(
        refused.contains("policy people is disabled") && refused.contains("ebb policy set people enabled=true"),
        "{refused}"
    );
}

#[tokio::test]
async fn apply_adds_no_column_for_a_policy_that_it_refuses_and_uninstall_takes_its_own_trigger() {
    let db = database().await;
    db.execute(
        "CREATE TABLE users (id bigint PRIMARY KEY, email text); CREATE TABLE orders (user_id bigint REFERENCES users)",
    )
    .await;
    let policy = "[[retain]]\nname = \"users\"\ntable = \"users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\nmark_at_once = true\n";
    let shell = Shell::new(&db, policy);
    assert!(shell.fails(2, &["apply", "--yes", "--create-columns"]).contains("public.orders"));
    let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'users'::regclass AND attnum > 0";
    assert_eq!(db.scalar::<i64>(columns).await, 2, "nothing was added");
    db.execute("DROP TABLE orders").await;
    shell.ok(&["apply", "--yes", "--create-columns"]);
    assert_eq!(db.scalar::<i64>(columns).await, 3);
    shell.ok(&["uninstall", "--yes"]);
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'users'::regclass").await, 0);
}

#[tokio::test]
async fn the_seven_policies_and_one_subject() {
    let db = database().await;
    db.execute(TABLES).await;
    let shell = Shell::new(&db, "");
    shell.ok(&["init", "--force", "--example", "uu-pdp"]);
    shell.ok(&["apply", "--yes"]);
    let plan = shell.ok(&["plan"]);
    assert!(plan.contains("public.sessions (user_id) -> public.users (id): delete (ON DELETE CASCADE)"), "{plan}");
    assert!(plan.contains("public.user_profiles: its column id looks like an id of public.users"), "{plan}");
    assert!(
        plan.contains("public.consent_records (user_id) -> public.users (id): anonymize (ON DELETE CASCADE)"),
        "{plan}"
    );

    let said = shell.ok(&["delete", "user_accounts", "1", "--dry-run"]);
    assert!(said.contains("public.sessions: 4 rows") && said.contains("would be soft-deleted"), "{said}");
    assert!(shell.ok(&["show", "user_accounts", "1"]).contains("not deleted"));
    assert!(shell.ok(&["delete", "user_accounts", "1", "--by", "support"]).contains("it will be erased at"));
    assert!(
        shell.ok(&["hold", "user_accounts", "1", "--reason", "court", "--until", "2099-01-01"]).contains("on hold")
    );
    let shown = shell.ok(&["show", "user_accounts", "1"]);
    assert!(shown.contains("pending") && shown.contains("court, until 2099-01-01"), "{shown}");
    shell.ok(&["release", "user_accounts", "1"]);
    assert!(shell.ok(&["restore", "user_accounts", "1"]).contains("restored"));
    assert!(shell.fails(1, &["restore", "user_accounts", "1"]).contains("nothing to restore"));

    for (args, says) in [
        (vec!["delete", "user_accounts", "99"], "knows no subject '99'"),
        (vec!["delete", "user_accounts", "x"], "can have the id 'x'"),
        (vec!["delete", "user_account", "1"], "did you mean `user_accounts`?"),
        (vec!["delete", "sessions", "1"], "is not about subjects"),
        (vec!["hold", "user_accounts", "1", "--reason", " "], "a hold has a reason"),
        (vec!["hold", "user_accounts", "1", "--reason", "x", "--until", "2001-01-01"], "would be over already"),
        (vec!["release", "user_accounts", "1"], "is not on hold"),
        (vec!["retry", "user_accounts", "1"], "has not failed"),
        (vec!["policy", "override", "user_accounts", "acme", "--retention", "10d"], "does not let tenants"),
    ] {
        let mut args = args;
        if args[0] == "delete" {
            args.push("--yes");
        }
        let code = if says.contains("does not let") { 1 } else { 2 };
        let said = shell.fails(code, &args);
        assert!(said.contains(says), "{args:?}: {said}");
    }
    assert!(shell.fails(1, &["policy", "set", "user_accounts", "floor=10d"]).contains("say why"));
    shell.ok(&["policy", "set", "user_accounts", "floor=10d", "--reason", "the law changed"]);

    shell.ok(&["erase", "user_accounts", "1", "--yes"]);
    db.advance("11 days").await;
    shell.ok(&["run", "--once", "--only", "user_accounts"]);
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM users").await, 4);
    assert!(shell.fails(2, &["show", "user_accounts", "1"]).contains("knows no subject"));
    assert_proven(&shell, &db).await;
    let doctor = shell.ebb(&["doctor"]).out;
    assert!(doctor.contains("public.user_profiles: its column id looks like"), "{doctor}");
}

/// Receipt, report and replay of the one subject that was erased.
async fn assert_proven(shell: &Shell, db: &TestDatabase) {
    shell.ok(&["run", "--once", "--only", "audit:seal"]);
    let receipt = shell.ok(&["audit", "receipt", "--policy", "user_accounts", "--subject", "1"]);
    assert_eq!(
        shell.ok(&["audit", "receipt", "--policy", "user_accounts", "--subject", " 01"]),
        receipt,
        "any spelling"
    );
    let verify = ["audit", "verify-receipt", "receipt.json", "--key", "ebb-audit.key.pub"];
    shell.write("receipt.json", &receipt);
    assert!(shell.ok(&verify).contains("verified: erase by policy user_accounts"), "{receipt}");
    // Offline: no database, no configuration.
    let offline = Shell::bare();
    offline.write("receipt.json", &receipt);
    offline.write("ebb-audit.key.pub", &shell.read("ebb-audit.key.pub"));
    offline.ok(&verify);
    // Any changed byte of what it says is found.
    let parsed: serde_json::Value = serde_json::from_str(&receipt).unwrap();
    for (pointer, value) in [
        ("/record/rows", serde_json::json!(1)),
        ("/record/details", serde_json::json!("{}")),
        ("/record/subject", serde_json::json!("00".repeat(32))),
        ("/record/at", serde_json::json!("2001-01-01T00:00:00Z")),
        ("/block/root", serde_json::json!("00".repeat(32))),
        ("/block/records", serde_json::json!(1)),
        ("/block/signature", serde_json::json!("00".repeat(64))),
        ("/block/seal", serde_json::json!("00".repeat(32))),
        ("/position", serde_json::json!(0)),
        ("/proof/0", serde_json::json!("00".repeat(32))),
    ] {
        let mut changed = parsed.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert_ne!(changed, parsed, "{pointer}");
        offline.write("receipt.json", &changed.to_string());
        assert!(offline.fails(3, &verify).contains("NOT verified"), "{pointer}");
    }
    // So is what no hash covers: a key that is added, left out or renamed, a digit that means the same.
    let hex = parsed["record"]["subject"].as_str().unwrap();
    for (from, to) in [
        ("\"cutoff\": null", "\"cutofg\": null".to_owned()),
        ("\"cutoff\": null,", String::new()),
        ("\"cutoff\": null", "\"cutoff\": null, \"note\": \"10,000 rows erased\"".to_owned()),
        ("\"version\": 1", "\"version\": 1, \"note\": 1".to_owned()),
        (hex, hex.to_uppercase()),
    ] {
        assert!(receipt.contains(from), "{from}: {receipt}");
        offline.write("receipt.json", &receipt.replacen(from, &to, 1));
        assert!(offline.fails(3, &verify).contains("NOT verified"), "{from}");
    }
    assert!(
        shell
            .fails(2, &["audit", "receipt", "--policy", "user_accounts", "--subject", "3"])
            .contains("nothing on record")
    );

    let report = shell.json(&["audit", "report"]);
    assert_eq!(report["premature"], serde_json::json!([]));
    assert_eq!(report["erased"][0]["subjects"], 1);
    assert_eq!(shell.ebb(&["audit", "report", "--tenant", "acme"]).err, "");
    let nobody = shell.ebb(&["audit", "report", "--tenant", "acne"]);
    assert!(nobody.code == 0 && nobody.err.contains("nothing on record is about a tenant \"acne\""), "{nobody:?}");
    for span in [&["--since", "2999-01-01"][..], &["--since", "2026-01-02", "--until", "2026-01-01"]] {
        let wrong = shell.fails(2, &[&["audit", "report"], span].concat());
        assert!(wrong.contains("--since is not before"), "{wrong}");
    }
    assert!(shell.ok(&["audit", "report", "--format", "csv"]).contains(",user_accounts,public.users,1"));
    assert!(shell.ok(&["audit", "report", "--format", "html"]).contains("<h2>Premature erasures</h2><p>none</p>"));
    // The query for premature ones can find some: a forged record of an erasure after a day.
    db.execute("INSERT INTO ebb.audit (action, policy, policy_version, by_name, details) SELECT 'erase', policy, policy_version, 'forged',
        details || jsonb_build_object('soft_deleted_at', ebb.now() - interval '1 day') FROM ebb.audit WHERE action = 'erase'").await;
    assert!(shell.fails(3, &["audit", "report"]).contains("\"premature\": ["));
    db.execute("DELETE FROM ebb.audit WHERE by_name = 'forged'; DELETE FROM ebb.audit_pending WHERE record NOT IN (SELECT id FROM ebb.audit)").await;

    // The table comes back from a backup, with the erased user in it.
    let kept = shell.ok(&["audit", "list", "--action", "erase,erase_along", "--json"]);
    // However many there are: none is left out, and nothing is where a part was asked for without saying so.
    db.execute("INSERT INTO ebb.audit (action, by_name) SELECT 'other', 'x' FROM generate_series(1, 6000)").await;
    let all = shell.json(&["audit", "list", "--action", "other", "--json"]);
    assert_eq!(all.as_array().unwrap().len(), 6000);
    let part = shell.ebb(&["audit", "list", "--action", "other", "--json", "--limit", "10"]);
    assert!(part.err.contains("there may be more: --after"), "{}", part.err);
    assert_eq!(shell.json(&["audit", "list", "--action", "nothing", "--json"]), serde_json::json!([]));
    shell.write("kept.json", &kept);
    shell.write("others.json", &kept.replace("\"user_accounts\"", "\"gone\""));
    shell.write("empty.json", "{}");
    assert!(shell.fails(2, &["audit", "replay", "--from", "empty.json"]).contains("no record of an erasure"));
    let said = shell.fails(3, &["audit", "replay", "--from", "others.json", "--yes"]);
    assert!(said.contains("1 erasure of policy gone cannot be looked for"), "{said}");
    db.execute("INSERT INTO users (id, email) VALUES (1, '1@example.test')").await;
    // This database remembers the erasure: whoever lives under that key may have registered again.
    let said = shell.fails(3, &["audit", "replay", "--from", "kept.json", "--yes"]);
    assert!(said.contains("0 subjects there again") && said.contains("take them too with --live"), "{said}");
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM users WHERE deleted_at IS NULL AND id = 1").await, 1);
    let dry = ["audit", "replay", "--from", "kept.json", "--live", "--dry-run"];
    assert!(shell.ok(&dry).contains("1 subject there again"));
    shell.ok(&["audit", "replay", "--from", "kept.json", "--live", "--yes"]);
    shell.ok(&["run", "--once", "--only", "user_accounts"]);
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM users").await, 4);

    // A place without the key can apply; a new one, which could match nothing that went, is made only when asked for.
    let elsewhere = Shell::new(db, &shell.read("ebb.toml"));
    let applied = elsewhere.ebb(&["apply", "--yes", "--force"]);
    assert!(
        applied.err.contains("is not here, and this database's pseudonyms and links are made with it"),
        "{}",
        applied.err
    );
    assert_eq!(applied.code, 0);
    let keys = |shell: &Shell| {
        std::fs::read_dir(shell.dir.path())
            .unwrap()
            .filter(|file| file.as_ref().is_ok_and(|file| file.file_name().to_string_lossy().contains("subject")))
            .count()
    };
    assert_eq!((keys(shell), keys(&elsewhere)), (1, 0));
    elsewhere.ok(&["apply", "--yes", "--force", "--new-subject-key"]);
    // From then on the former key is the wrong one.
    let receipt = ["audit", "receipt", "--policy", "user_accounts", "--subject", "1"];
    assert!(shell.fails(1, &receipt).contains("is not the one that this database's pseudonyms"));
    assert!(elsewhere.fails(2, &receipt).contains("nothing on record says"));
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM ebb.audit WHERE action = 'subject_key'").await, 1);
    assert!(shell.ok(&["trigger", "user_accounts:warn"]).contains("triggered"));
}

#[tokio::test]
async fn apply_adds_the_columns_that_a_policy_names_and_approves_what_has_grown() {
    let db = database().await;
    db.execute("CREATE TABLE users (id bigint PRIMARY KEY, email text); INSERT INTO users VALUES (1, 'a'), (2, 'b')")
        .await;
    let shell = Shell::new(
        &db,
        "[[retain]]\nname = \"users\"\ntable = \"users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n\
         mirror = { due = \"erased_on\" }\nstatus = { column = \"state\", deleted = \"gone\", active = \"here\" }\n",
    );
    let printed = shell.fails(2, &["apply", "--yes"]);
    assert!(printed.contains("ALTER TABLE \"public\".\"users\" ADD COLUMN \"erased_on\" timestamptz;"), "{printed}");
    assert!(
        db.scalar::<bool>("SELECT count(*) = 2 FROM pg_attribute WHERE attrelid = 'users'::regclass AND attnum > 0")
            .await
    );
    shell.ok(&["apply", "--yes", "--create-columns"]);
    assert_eq!(db.scalar::<String>("SELECT string_agg(DISTINCT state, ',') FROM users").await, "here");
    shell.ok(&["delete", "users", "1"]);
    assert!(
        db.scalar::<bool>("SELECT state = 'gone' AND erased_on > now() + interval '89 days' FROM users WHERE id = 1")
            .await
    );
    // What hangs on a subject by now is shown, and approved by the same command.
    db.execute("CREATE TABLE notes (user_id bigint REFERENCES users ON DELETE CASCADE)").await;
    let grown = shell.ok(&["apply", "--yes"]);
    assert!(grown.contains("new: public.notes (user_id) -> public.users (id): delete"), "{grown}");
    let again = shell.ok(&["apply", "--yes"]);
    assert!(again.contains("the database has what the file says") && !again.contains("new:"), "{again}");
}

#[tokio::test]
async fn a_sealed_copy_is_opened_on_the_command_line() {
    let db = database().await;
    db.execute(TABLES).await;
    let policy = "[audit]\nsubject_key = \"file:subject.key\"\nperiod_keys = \"periods\"\n
        [[retain]]\nname = \"users\"\ntable = \"users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"
        children = [{ table = \"consent_records\", column = \"user_id\", action = \"delete\" }]
        snapshot = \"sealed\"\nsnapshot_for = \"30d\"\nbrake = { share = \"off\" }";
    let shell = Shell::new(&db, policy);
    shell.ok(&["apply", "--yes"]);
    shell.ok(&["erase", "users", "1", "--yes"]);
    shell.ok(&["run", "--once", "--only", "users"]);
    let open = ["audit", "open", "--policy", "users", "--subject", "1", "--reason", "court order"];
    let lines = shell.ok(&open);
    let users = lines.lines().filter(|line| line.starts_with("{\"table\":\"public.users\",\"row\":{\"id\":1,")).count();
    assert_eq!((users, lines.lines().count()), (1, 1 + 4 + 20), "{lines}");
    assert!(shell.ok(&["audit", "list", "--action", "open_snapshot"]).contains("court order"));
    assert!(shell.fails(2, &open[..6]).contains("--reason"));
    assert!(shell.fails(2, &["audit", "open", "77777", "--reason", "x"]).contains("is not about a deletion"));
    db.advance("40 days").await;
    shell.ok(&["run", "--once", "--only", "users"]);
    assert!(shell.fails(1, &open).contains("nobody can open it any more"));
}

#[tokio::test]
async fn a_period_key_that_is_lost_is_overdue_until_somebody_says_so() {
    let db = database().await;
    db.execute(TABLES).await;
    let policy = "[audit]\nsubject_key = \"file:subject.key\"\nperiod_keys = \"periods\"\n
        [[retain]]\nname = \"users\"\ntable = \"users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"
        children = [{ table = \"consent_records\", column = \"user_id\", action = \"delete\" }]
        snapshot = \"sealed\"\nsnapshot_for = \"30d\"\nbrake = { share = \"off\" }";
    let shell = Shell::new(&db, policy);
    shell.ok(&["apply", "--yes"]);
    shell.ok(&["erase", "users", "1", "--yes"]);
    shell.ok(&["run", "--once", "--only", "users"]);
    let day: String = db.scalar("SELECT (until AT TIME ZONE 'UTC')::date::text FROM ebb.period_key").await;
    let lost = ["audit", "lost-key", &day, "--reason", "the volume is gone"];
    assert!(shell.fails(1, &lost).contains("is to be destroyed on that day"));
    db.advance("40 days").await;
    assert!(shell.fails(1, &lost).contains("ebb run --once destroys it"));
    std::fs::remove_file(shell.dir.path().join("periods").join(format!("{day}.key"))).unwrap();
    shell.ok(&["run", "--once", "--only", "users"]);
    assert!(shell.ok(&["status"]).contains("1 period key whose day has come and that no node has destroyed"));
    let doctor = shell.ebb(&["doctor"]).out;
    assert!(doctor.contains(&format!("ebb audit lost-key {day} --reason")), "{doctor}");
    shell.ok(&lost);
    let told = shell.json(&["audit", "list", "--action", "lost_key", "--json"]).to_string();
    assert!(told.contains("the volume is gone"), "{told}");
    assert!(!shell.ok(&["status"]).contains("period key"));
    assert!(shell.fails(2, &lost).contains("waits to be destroyed"));
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM ebb.audit WHERE action = 'destroy_key'").await, 0);
}
