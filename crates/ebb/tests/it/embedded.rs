//! The embedded server: one per directory, kept data, any end survived.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ebb::pg::Target;
use ebb::pg::embedded::Embedded;
use ebb_testkit::{TempDir, client_program, eventually};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

async fn run(target: &Target, sql: &str) -> Option<String> {
    let mut connection = PgConnection::connect_with(target.options()).await.unwrap();
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
    rows.last().map(|row| row.get(0))
}

fn server_pid(server: &Embedded) -> rustix::process::Pid {
    let text = std::fs::read_to_string(server.data_dir().join("postmaster.pid")).unwrap();
    rustix::process::Pid::from_raw(text.lines().next().unwrap().parse().unwrap()).unwrap()
}

#[tokio::test]
async fn data_is_kept_between_runs_and_nobody_else_can_come_in() {
    let dir = TempDir::new();
    let ebb = dir.path().join(".ebb");
    let first = Embedded::start(&ebb).unwrap();
    assert!(!first.joined());
    run(&first.target(), "CREATE TABLE kept (v text); INSERT INTO kept VALUES ('still here')").await;
    let ask = "SELECT concat_ws(' ', current_database(), current_user, current_setting('fsync'), \
               current_setting('synchronous_commit'), current_setting('full_page_writes'), \
               '[' || current_setting('listen_addresses') || ']')";
    assert_eq!(run(&first.target(), ask).await.unwrap(), "ebb ebb on on on []");
    let password = std::fs::metadata(ebb.join("password")).unwrap();
    assert_eq!(password.mode() & 0o777, 0o600);
    let wrong = first.target().options().clone().password("guess");
    assert!(PgConnection::connect_with(&wrong).await.unwrap_err().to_string().contains("password"));
    first.stop().unwrap();
    assert!(!ebb.join("data/postmaster.pid").exists());

    let second = Embedded::start(&ebb).unwrap();
    assert_eq!(run(&second.target(), "SELECT v FROM kept").await.unwrap(), "still here");
    let psql = Command::new(client_program(second.bin(), "psql").unwrap())
        .args([&second.url(), "-AtXc", "SELECT v FROM kept"])
        .output();
    assert_eq!(String::from_utf8_lossy(&psql.unwrap().stdout), "still here\n");
    let secret = std::fs::read_to_string(ebb.join("password")).unwrap();
    let secret = secret.trim().rsplit(':').next().unwrap();
    assert!(secret.len() >= 32 && !second.url().contains(secret));
}

#[tokio::test]
async fn a_second_use_joins_and_the_last_one_stops_the_server() {
    let dir = TempDir::new();
    let starts: Vec<_> = (0..4)
        .map(|_| {
            let path = dir.path().to_owned();
            std::thread::spawn(move || Embedded::start(&path).unwrap())
        })
        .collect();
    let mut servers: Vec<Embedded> = starts.into_iter().map(|start| start.join().unwrap()).collect();
    assert_eq!(servers.iter().filter(|server| !server.joined()).count(), 1, "one of them started it");
    let pid = server_pid(&servers[0]);
    let group = rustix::process::getpgid(Some(pid)).unwrap();
    assert_ne!(group, rustix::process::getpgrp(), "Ctrl-C at the terminal does not reach it");
    while let Some(server) = servers.pop() {
        assert_eq!(run(&server.target(), "SELECT 'up'").await.unwrap(), "up");
        assert_eq!(server_pid(&server), pid);
        server.stop().unwrap();
    }
    assert!(!dir.path().join("data/postmaster.pid").exists());
}

#[tokio::test]
async fn a_killed_process_leaves_a_server_that_the_next_one_joins_and_stops() {
    let dir = TempDir::new();
    let mut child = spawn_holder(dir.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let next = Embedded::start(dir.path()).unwrap();
    assert!(next.joined());
    assert_eq!(run(&next.target(), "SELECT v FROM written").await.unwrap(), "by the child");
    next.stop().unwrap();
    assert!(!dir.path().join("data/postmaster.pid").exists());
}

#[tokio::test]
async fn killing_both_loses_nothing_that_was_committed() {
    let dir = TempDir::new();
    let mut child = spawn_holder(dir.path());
    let text = std::fs::read_to_string(dir.path().join("data/postmaster.pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(text.lines().next().unwrap().parse().unwrap()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert!(dir.path().join("data/postmaster.pid").exists(), "an unclean stop leaves it");
    let next = Embedded::start(dir.path()).unwrap();
    assert!(!next.joined());
    assert_eq!(run(&next.target(), "SELECT v FROM written").await.unwrap(), "by the child");
}

#[tokio::test]
async fn a_stale_pid_file_whose_number_went_to_somebody_else_is_no_obstacle() {
    let dir = TempDir::new();
    Embedded::start(dir.path()).unwrap().stop().unwrap();
    // The number of a living process, this one, as after a restart of a container.
    let stale = format!("{}\n/x\n1\n5432\n/nowhere\n\n1 2\nready\n", std::process::id());
    let file = dir.path().join("data/postmaster.pid");
    std::fs::write(&file, stale).unwrap();
    let server = Embedded::start(dir.path()).unwrap();
    assert_eq!(run(&server.target(), "SELECT 'up'").await.unwrap(), "up");
}

#[tokio::test]
async fn a_half_made_data_directory_is_made_again() {
    let dir = TempDir::new();
    let half = dir.path().join("data.new-0123");
    std::fs::create_dir_all(half.join("base")).unwrap();
    std::fs::write(half.join("PG_VERSION"), "15\n").unwrap();
    let server = Embedded::start(dir.path()).unwrap();
    assert_eq!(run(&server.target(), "SELECT 'up'").await.unwrap(), "up");
    assert!(!half.exists());
}

#[tokio::test]
async fn an_initdb_that_was_killed_half_way_is_no_obstacle() {
    let dir = TempDir::new();
    let mut child = spawn_child(dir.path());
    let begun = || std::fs::read_dir(dir.path()).unwrap().flatten().any(|entry| entry.path().join("base").exists());
    eventually(Duration::from_secs(30), || async { begun() }).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!dir.path().join("data").exists());
    // Its initdb may still be running, as an orphan.
    let server = Embedded::start(dir.path()).unwrap();
    assert!(!server.joined());
    assert_eq!(run(&server.target(), "SELECT 'up'").await.unwrap(), "up");
}

#[test]
fn data_of_another_major_version_is_refused_with_the_way_out() {
    let dir = TempDir::new();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    std::fs::write(dir.path().join("data/PG_VERSION"), "9999\n").unwrap();
    let error = Embedded::start(dir.path()).unwrap_err();
    assert!(error.is_refused());
    let ours = ebb::pg::binaries::find_all().unwrap()[0].major;
    assert!(error.to_string().contains("PostgreSQL 9999"), "{error}");
    assert!(error.to_string().contains(&format!("PostgreSQL {ours}")), "{error}");
    assert!(error.hint().unwrap().contains("EBB_PG_BIN"));
    assert!(error.hint().unwrap().contains("pg_dump"));
}

#[tokio::test]
async fn a_long_or_odd_path_gets_a_short_socket() {
    let dir = TempDir::new();
    let deep = dir.path().join("it's, a \"path\" $HOME").join("x".repeat(120)).join(".ebb");
    let server = Embedded::start(&deep).unwrap();
    assert_eq!(run(&server.target(), "SELECT 'up'").await.unwrap(), "up");
    let psql = Command::new(client_program(server.bin(), "psql").unwrap())
        .args([&server.url(), "-AtXc", "SELECT 'psql too'"])
        .output();
    assert_eq!(String::from_utf8_lossy(&psql.unwrap().stdout), "psql too\n");
    let socket_dir = server.target().options().get_socket().unwrap().clone();
    assert!(socket_dir.starts_with("/tmp") && socket_dir.exists());
    server.stop().unwrap();
    assert!(!socket_dir.exists());
}

#[tokio::test]
async fn where_the_servers_user_cannot_go_the_data_lies_in_the_state_directory() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root gives the server to another user");
        return;
    }
    let dir = TempDir::new();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let ebb = dir.path().join(".ebb");
    let server = Embedded::start(&ebb).unwrap();
    let base = server.data_dir().parent().unwrap().to_owned();
    assert!(base.starts_with("/var/lib/ebb"), "{}", base.display());
    assert_eq!(std::fs::read_to_string(ebb.join("location")).unwrap().trim(), base.to_str().unwrap());
    run(&server.target(), "CREATE TABLE kept (v text); INSERT INTO kept VALUES ('there')").await;
    let joined = Embedded::start(&ebb).unwrap();
    assert!(joined.joined());
    joined.stop().unwrap();
    server.stop().unwrap();
    let again = Embedded::start(&ebb).unwrap();
    assert_eq!(run(&again.target(), "SELECT v FROM kept").await.unwrap(), "there");
    again.stop().unwrap();
    std::fs::remove_dir_all(base).unwrap();
}

/// Starts this test binary again as a process that holds the server of `dir`, and waits until it does.
fn spawn_holder(dir: &Path) -> Child {
    let mut child = spawn_child(dir);
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("holding")), "the child starts the server");
    child
}

fn spawn_child(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "embedded::holder", "--ignored", "--nocapture"])
        .env("EBB_TEST_HOLD", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test]
#[ignore = "run by other tests, in a process of its own"]
async fn holder() {
    let Some(dir) = std::env::var_os("EBB_TEST_HOLD") else { return };
    let server = Embedded::start(Path::new(&dir)).unwrap();
    run(&server.target(), "CREATE TABLE written (v text); INSERT INTO written VALUES ('by the child')").await;
    println!("holding");
    let _ = std::io::stdin().read_line(&mut String::new());
}
