//! The demo ends by itself, adds up, and does so again.

use std::path::Path;
use std::time::Duration;

use ebb_testkit::Node;

use crate::shell::Shell;

#[tokio::test]
async fn the_demo_adds_up_twice_in_a_row_and_its_clock_moves() {
    let bin = Path::new(env!("CARGO_BIN_EXE_ebb"));
    let nowhere = "postgres://nobody@127.0.0.1:1/nothing";
    // Wherever the environment points: the demo has a server of its own.
    let env = [("EBB_DATABASE_URL", nowhere), ("EBB_HTTP_LISTEN", "127.0.0.1:0")];
    let mut first = Node::spawn_with(bin, nowhere, "", &["demo", "--once"], &env);
    assert!(first.wait_within(Duration::from_secs(180)).await.success(), "{}", first.output());
    assert!(first.output().contains("every due row is gone"), "{}", first.output());
    assert!(first.output().contains("a worker was killed with 20 of them; 15 went"), "{}", first.output());

    let mut second = first.beside(bin, "", &["demo"], &env);
    second.wait_for_line("everything that was due is gone", Duration::from_secs(180)).await;
    let mut again = first.beside(bin, "", &["demo", "--once"], &env);
    assert!(!again.wait_within(Duration::from_secs(60)).await.success());
    assert!(again.output().contains("already running"), "{}", again.output());
    let mut advance = first.beside(bin, "", &["demo", "advance", "40d"], &[]);
    assert!(advance.wait_within(Duration::from_secs(60)).await.success(), "{}", advance.output());
    second.wait_for_line("the clock moved", Duration::from_secs(60)).await;
    second.wait_for_line("the brake stopped lineage-keys: ", Duration::from_secs(60)).await;
    let list = ["--config", ".ebb/demo/ebb.toml", "policy", "list"];
    let mut list = first.beside(bin, "", &list, &[]);
    assert!(list.wait_within(Duration::from_secs(60)).await.success(), "{}", list.output());
    second.term();
    assert!(second.wait_within(Duration::from_secs(60)).await.success(), "{}", second.output());
    assert!(second.output().contains("verified: "), "{}", second.output());
    // Its server ends with it.
    let mut late = first.beside(bin, "", &["demo", "advance", "1d"], &[]);
    assert_eq!(late.wait_within(Duration::from_secs(60)).await.code(), Some(1));
    assert!(late.output().contains("no demo is running"), "{}", late.output());
}

#[test]
fn the_clock_of_no_demo_cannot_be_moved() {
    let shell = Shell::bare();
    assert!(shell.fails(1, &["demo", "advance", "1d"]).contains("no demo is running"));
    assert!(shell.fails(2, &["demo", "advance", "1 day"]).contains("not a duration"));
    assert!(!shell.dir.path().join(".ebb").exists());
}
