//! What is on hold, waits or failed, as people see it: everybody is listed, with the reason of now and what comes next.

use ebb_testkit::{TestDatabase, database};

use crate::shell::Shell;

const TABLES: &str = "
    CREATE TABLE people (id int PRIMARY KEY, deleted_at timestamptz);
    CREATE TABLE letters (id int PRIMARY KEY, sender int REFERENCES people ON DELETE CASCADE, receiver int REFERENCES people ON DELETE CASCADE);
    CREATE INDEX ON letters (sender); CREATE INDEX ON letters (receiver);
    INSERT INTO people SELECT n FROM generate_series(1, 9) n";
const PEOPLE: &str = "[audit]\nsubject_key = \"file:subject.key\"\n
    [[retain]]\nname = \"people\"\ntable = \"public.people\"\ndeleted_at = \"deleted_at\"\ngrace = \"30d\"\nbrake = { share = \"off\" }\n";

async fn people() -> (TestDatabase, Shell) {
    let db = database().await;
    db.execute(TABLES).await;
    let shell = Shell::new(&db, PEOPLE);
    shell.ok(&["apply", "--yes"]);
    (db, shell)
}

#[tokio::test]
async fn every_hold_in_force_is_listed_also_of_whoever_lives_or_is_not_marked() {
    let (db, shell) = people().await;
    shell.ok(&["hold", "people", "1", "--reason", "a court asked", "--by", "legal"]);
    shell.ok(&["hold", "people", "2", "--reason", "a claim", "--until", "2199-01-01"]);
    db.execute("UPDATE people SET deleted_at = now() - interval '90 days' WHERE id = 2").await;
    shell.ok(&["hold", "people", "3", "--reason", "an audit"]);
    shell.ok(&["delete", "people", "3", "--yes"]);
    let shown = shell.ok(&["show", "people"]);
    for told in
        ["a court asked (since 20", "on hold until 2199-01-01 00:00:00Z: a claim (since 20", "an audit (since 20"]
    {
        assert!(shown.contains(told), "{told}: {shown}");
    }
    let listed = shell.json(&["show", "people", "--json"]);
    let held = |id: &str| listed.as_array().unwrap().iter().find(|one| one["subject_id"] == id).cloned().unwrap();
    assert_eq!((&held("1")["hold_reason"], &held("1")["deletion"]), (&"a court asked".into(), &().into()), "{listed}");
    assert_eq!(held("2")["hold_until"], "2199-01-01T00:00:00Z", "{listed}");
    assert!(held("3")["deletion"].is_string() && held("3")["hold_since"].is_string(), "{listed}");
    let status = shell.ok(&["status"]);
    assert!(status.contains("1 open deletion, 3 subjects on hold: ebb show people"), "{status}");
    let status = shell.json(&["status", "--json"]);
    let policy = &status["policies"][0];
    assert_eq!((&policy["open_deletions"], &policy["on_hold"]), (&1.into(), &3.into()), "{policy}");
    let view =
        "SELECT string_agg(concat_ws(' ', subject_id, reason, state), ', ' ORDER BY subject_id) FROM ebb.v_holds";
    assert_eq!(db.scalar::<String>(view).await, "1 a court asked, 2 a claim, 3 an audit pending");
    for id in ["1", "2", "3"] {
        shell.ok(&["release", "people", id]);
    }
    assert!(shell.ok(&["show", "people"]).contains("no subject waits for anything"));
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM ebb.v_holds").await, 0);
}

#[tokio::test]
async fn status_names_the_chore_of_each_line() {
    let (_db, shell) = people().await;
    shell.ok(&["run", "--once"]);
    let status = shell.ok(&["status"]);
    let table: Vec<&str> = status.lines().take_while(|line| !line.is_empty()).collect();
    for chore in ["mark", "erase"] {
        let of_chore =
            |line: &&&str| line.split_whitespace().any(|word| word == chore) && line.contains("public.people");
        assert_eq!(table.iter().filter(of_chore).count(), 1, "{chore}: {status}");
    }
}

#[tokio::test]
async fn a_failed_attempt_says_why_and_when_it_is_tried_again() {
    let (db, shell) = people().await;
    db.execute(
        "CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
         CREATE TRIGGER refuses BEFORE DELETE ON people FOR EACH ROW EXECUTE FUNCTION refuses()",
    )
    .await;
    shell.ok(&["apply", "--yes"]);
    shell.ok(&["erase", "people", "4", "--yes", "--by", "ann"]);
    let shown = shell.ok(&["show", "people", "4"]);
    assert!(shown.contains("would erase") && shown.contains("erasure requested by ann"), "{shown}");
    shell.ebb(&["run", "--once", "--only", "people"]);
    let waits = shell.ok(&["show", "people"]);
    assert!(waits.contains("another try from 20") && waits.contains("after one that failed: "), "{waits}");
    let shown = shell.ok(&["show", "people", "4"]);
    assert!(shown.contains("(1 attempt)") && shown.contains("by the first run from 20"), "{shown}");
    db.execute("UPDATE ebb.deletion SET state = 'failed' WHERE subject_id = '4'").await;
    assert!(shell.ok(&["show", "people", "4"]).contains("once somebody asks for it: ebb retry people 4"));
    assert!(shell.ok(&["show", "people"]).contains("somebody to try it again: "));
}

#[tokio::test]
async fn what_a_run_noted_about_holds_is_over_with_them() {
    let (db, shell) = people().await;
    db.execute("INSERT INTO letters VALUES (1, 5, 6)").await;
    shell.ok(&["hold", "people", "5", "--reason", "a court asked"]);
    shell.ok(&["erase", "people", "6", "--yes"]);
    shell.ok(&["run", "--once", "--only", "people"]);
    let waits = shell.ok(&["show", "people"]);
    assert!(waits.contains("rows of a subject on hold"), "{waits}");
    assert_eq!(shell.json(&["status", "--json"])["policies"][0]["blocked"], 1);
    shell.ok(&["release", "people", "5"]);
    assert!(shell.ok(&["show", "people"]).contains("no subject waits for anything"));
    assert!(!shell.ok(&["show", "people", "6"]).contains("on hold would go"));
    let status = shell.json(&["status", "--json"]);
    assert_eq!(status["policies"][0]["blocked"], 0, "{status}");
    shell.ok(&["run", "--once", "--only", "people"]);
    assert!(!db.scalar::<bool>("SELECT EXISTS (SELECT FROM people WHERE id = 6)").await);
}

#[tokio::test]
async fn whoever_waits_for_a_policy_that_stands_still_hears_of_it() {
    let (_db, shell) = people().await;
    shell.ok(&["erase", "people", "7", "--yes"]);
    shell.ok(&["pause", "people", "--by", "ann"]);
    let shown = shell.ok(&["show", "people"]);
    assert!(shown.contains("nothing is erased while policy people is paused by ann: ebb resume people"), "{shown}");
}

#[tokio::test]
async fn a_soft_delete_at_the_end_of_time_is_told_of_in_words() {
    let (db, shell) = people().await;
    db.execute("UPDATE people SET deleted_at = '294276-12-31' WHERE id = 8").await;
    for command in ["erase", "delete"] {
        let told = shell.fails(1, &[command, "people", "8", "--yes"]);
        assert!(told.contains("no term can be counted from the time of its soft delete"), "{command}: {told}");
    }
}
