//! `ebb event …` and what other commands say about events.

use ebb_testkit::database;
use serde_json::Value;

use crate::shell::Shell;

const CONFIG: &str = "[sinks.out]\ntype = \"log\"\n\n[[schedule]]\nname = \"weekly\"\ncron = \"0 3 * * SUN\"\nzone = \"Asia/Jakarta\"\nsink = \"out\"\n";

async fn shell() -> Shell {
    let db = database().await;
    let shell = Shell::new(&db, CONFIG);
    shell.ok(&["apply", "--yes"]);
    shell
}

#[tokio::test]
async fn an_event_goes_from_add_to_done() {
    let shell = shell().await;
    let id = shell.ok(&["event", "add", "out", "--payload", "{\"type\": \"hello\"}"]).trim().to_owned();
    assert!(shell.ok(&["event", "list"]).contains("pending"), "{id}");
    let later = shell.json(&["event", "add", "out", "--in", "2h", "--key", "k", "--json"])["event"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        shell.json(&["event", "add", "out", "--due", "2030-01-01T00:00:00Z", "--key", "k", "--json"])["event"],
        later.as_str()
    );
    let ran = shell.ok(&["run", "--once", "--only", "events"]);
    assert!(ran.contains("events") && ran.contains("success"), "{ran}");
    let shown = shell.json(&["event", "show", &id, "--json"]);
    assert_eq!((&shown["occurrences"][0]["state"], &shown["recurring"]), (&Value::from("done"), &Value::Null));
    assert!(shell.ok(&["event", "show", &id]).contains("body: {\"id\""));
    let done = shell.json(&["event", "list", "--state", "done", "--json"]);
    assert_eq!((done.as_array().unwrap().len(), &done[0]["event"]), (1, &Value::from(id.as_str())));
    assert!(shell.ok(&["event", "cancel", &later]).contains("cancelled"));
    assert!(shell.ok(&["event", "retry", &later]).contains("1 event ready again"));
    assert!(shell.fails(1, &["event", "cancel", &id]).contains("is done"));
    assert!(shell.fails(1, &["event", "retry", &id]).contains("nothing to try again"));
    assert!(shell.ok(&["event", "retry", "--all", "--yes"]).contains("0 events"));
    let status = shell.ok(&["status"]);
    assert!(status.contains("SINK") && status.contains("weekly"), "{status}");
    assert_eq!(shell.json(&["status", "--json"])["events"]["sinks"][0]["done_last_hour"], 1);
}

#[tokio::test]
async fn a_birthday_is_added_moved_and_shown() {
    let shell = shell().await;
    let add = |zone: &str| {
        let args = ["event", "add", "out", "--yearly", "02-29", "--at", "09:00", "--zone", zone, "--key", "user-1"];
        shell.ok(&args).trim().to_owned()
    };
    let id = add("Asia/Jakarta");
    assert_eq!(add("Europe/Berlin"), id);
    let shown = shell.ok(&["event", "show", &id]);
    assert!(shown.contains("every 02-29 at 09:00:00 in Europe/Berlin"), "{shown}");
    assert!(shell.ok(&["event", "cancel", &id]).contains("cancelled"));
    assert!(shell.ok(&["event", "show", &id]).contains("does not come again"));
}

#[tokio::test]
async fn what_makes_no_sense_is_told() {
    let shell = shell().await;
    let unknown = "00000000-0000-0000-0000-000000000001";
    for (code, args, says) in [
        (2, vec!["event", "add", "ot"], "there is no sink \"ot\""),
        (2, vec!["event", "add", "out", "--payload", "{"], "is no JSON"),
        (2, vec!["event", "add", "out", "--payload", "@nowhere.json"], "cannot read nowhere.json"),
        (2, vec!["event", "add", "out", "--due", "tomorrow"], "tomorrow"),
        (2, vec!["event", "add", "out", "--due", "1960-01-01T00:00:00Z"], "before 1970"),
        (2, vec!["event", "add", "out", "--in", "1 hour"], "not a duration"),
        (2, vec!["event", "add", "out", "--subject", "users"], "names no subject"),
        (2, vec!["event", "add", "out", "--yearly", "02-30", "--at", "09:00", "--zone", "UTC"], "no day 30 of month 2"),
        (2, vec!["event", "add", "out", "--yearly", "02-28"], "--at"),
        (2, vec!["event", "list", "--state", "finished"], "no state of an event"),
        (2, vec!["event", "show", unknown], "nobody knows an event"),
        (2, vec!["event", "cancel", unknown], "nobody knows an event"),
        (2, vec!["event", "retry"], "<ID>"),
    ] {
        let said = shell.fails(code, &args);
        assert!(said.contains(says), "{args:?}: {said}");
    }
}
