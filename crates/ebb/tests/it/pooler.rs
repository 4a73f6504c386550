//! Through PgBouncer in transaction mode, where no session is anybody's: everything works, with a way past it and without.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use ebb::audit::{SigningKey, unsealed};
use ebb::control;
use ebb::once::Claim;
use ebb::pg::{Database, Target, binaries};
use ebb::spine::Status;
use ebb::{Engine, Keys};
use ebb_testkit::{TempDir, empty_database, eventually, server};

use crate::harness::{Ebb, Running, SOON, fetch, policy, run_once, wanted};

/// A PgBouncer in front of the shared server; ends with the test, however that ends.
struct Pooler {
    port: u16,
    child: Child,
    _dir: TempDir,
}

impl Pooler {
    /// `None`, and a word why, where it is not installed.
    async fn start() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
        places.extend(["/usr/sbin".into(), "/usr/local/sbin".into()]);
        let Some(place) = places.into_iter().find(|place| place.join("pgbouncer").exists()) else {
            println!("skipped: pgbouncer is not installed; scripts/install-test-tools installs it");
            return None;
        };
        let (dir, port) = (TempDir::new(), free_port());
        let config = dir.path().join("pgbouncer.ini");
        // Few connections for everybody, so that every transaction may find the traces of another client.
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = 8\nunix_socket_dir =\n",
            server().address().port()
        );
        std::fs::write(&config, text).unwrap();
        const SCRIPT: &str = r#"trap '' HUP INT TERM
            "$1" -q "$2" &
            cat >/dev/null
            kill $!"#;
        let child = binaries::command(std::path::Path::new("/bin"), "sh", binaries::server_user().unwrap().as_ref())
            .args(["-c", SCRIPT, "ebb-test-pooler"])
            .arg(place.join("pgbouncer"))
            .arg(&config)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pooler = Self { port, child, _dir: dir };
        eventually(SOON, || async { tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() }).await;
        Some(pooler)
    }

    fn url(&self, url: &str) -> String {
        url.replace(&format!(":{}/", server().address().port()), &format!(":{}/", self.port))
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Everything a node and its callers do, through the pooler.
async fn everything_works(direct: bool) {
    let Some(pooler) = Pooler::start().await else { return };
    let db = empty_database().await;
    let (url, direct_url) = (pooler.url(db.url()), direct.then(|| db.url().to_owned()));
    let target = Target::parse(&url, direct_url.as_deref()).unwrap();
    let keys = TempDir::new();
    let signing = keys.path().join("audit.key");
    SigningKey::create_if_missing(&signing).unwrap();
    let engine =
        Engine::new(Database::open(target, 10, "ebb/test"), Keys { signing: Some(signing), ..Keys::default() });
    let ebb = Ebb::on(db).await;

    engine.migrate().await.unwrap();
    ebb.db
        .execute(
            "CREATE TABLE t (id int, at timestamptz, status text); CREATE INDEX ON t (at);
             INSERT INTO t SELECT n, now() - n * interval '1 minute', 'sent' FROM generate_series(1, 3000) n;
             INSERT INTO t SELECT 10000 + n, now() + n * interval '1 minute', 'sent' FROM generate_series(1, 10) n",
        )
        .await;
    let config = policy("every = \"1h\"\nwhere = \"status in ('sent')\"\nbatch = { rows = 500, pause = \"1ms\" }");
    engine.apply(&wanted(&config).unwrap(), false, "me").await.unwrap();
    let finished = run_once(&engine, &[]).await.unwrap();
    assert!(finished.runs.iter().all(|run| run.status == Status::Success), "{finished:?}");
    let left: i64 = ebb.db.scalar("SELECT count(*) FROM t").await;
    assert_eq!((left, ebb.audited().await), (10, 3000));
    // VACUUM found a session, or a transaction's worth of one.
    let vacuum: Option<String> = ebb.db.scalar("SELECT vacuum FROM ebb.unit WHERE policy = 't'").await;
    assert_eq!(vacuum.as_deref(), Some("done"));

    let claims = futures_util::future::join_all((0..20).map(|_| {
        let once = engine.once("orders");
        async move { once.claim("k").await.unwrap() }
    }))
    .await;
    assert_eq!(claims.iter().filter(|claim| **claim == Claim::First).count(), 1);

    // A running node seals, hears or looks, and does what it is told.
    let node = Running::new(&engine, &[]);
    eventually(SOON, || async {
        let mut tx = engine.database().read().await.unwrap();
        unsealed(&mut tx, 1000).await.unwrap() == 0
    })
    .await;
    if direct {
        ebb.until("SELECT bool_or(listens) FROM ebb.node").await;
    }
    ebb.db.execute("INSERT INTO t VALUES (1, now() - interval '1 hour', 'sent')").await;
    let mut tx = engine.database().read().await.unwrap();
    assert_eq!(control::trigger(&mut tx, "t", None, "me").await.unwrap(), 1);
    tx.commit().await.unwrap();
    ebb.until("SELECT count(*) = 10 FROM t").await;
    let listens: bool = ebb.db.scalar("SELECT bool_or(listens) FROM ebb.node").await;
    assert_eq!(listens, direct, "LISTEN does not work through a pooler, and the node knows");
    // Nothing of it stays with the processes that other clients share: one of theirs that listens gets what it never asked for.
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = engine.database().read().await.unwrap();
        let channels: i64 = fetch(&mut client, "SELECT count(*) FROM pg_listening_channels()").await;
        assert_eq!(channels, 0);
        clients.push(client);
    }
    drop(clients);
    node.stop().await;
    let held: i64 = ebb.db.scalar("SELECT count(*) FROM ebb.lease WHERE holder IS NOT NULL").await;
    assert_eq!(held, 0);
}

#[tokio::test]
async fn everything_works_through_a_pooler() {
    everything_works(false).await;
}

#[tokio::test]
async fn everything_works_through_a_pooler_with_a_way_past_it() {
    everything_works(true).await;
}
