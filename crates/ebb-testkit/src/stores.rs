//! Stores of other people, as real servers: ClickHouse of Debian, a current ClickHouse engine behind a few lines of
//! Python, an S3-compatible server. Invariant: none outlives the test process: each ends when its input does.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::free_port;
use crate::temp::fresh_path;

/// Runs a command until its own input ends, then removes what it left.
const GUARD: &str = r#"dir=$1; shift; "$@" </dev/null & pid=$!; cat >/dev/null; kill -9 $pid; { wait $pid; } 2>/dev/null; rm -rf "$dir""#;

/// A server that speaks HTTP.
#[derive(Debug)]
pub struct Store {
    guard: Child,
    dir: PathBuf,
    port: u16,
}

fn wait_for(port: u16, what: &str) {
    let start = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{what} does not answer; has scripts/install-test-tools run?"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Store {
    /// ClickHouse as Debian ships it (18.16), of this process; `EBB_CLICKHOUSE` names another program.
    pub fn clickhouse() -> &'static Store {
        static STORE: OnceLock<Store> = OnceLock::new();
        STORE.get_or_init(Store::own_clickhouse)
    }

    /// Another one, to stop.
    pub fn own_clickhouse() -> Store {
        Self::clickhouse_in(fresh_path(), free_port(), "")
    }

    /// One that also speaks HTTPS, as `localhost`; its port for that. The files must stay where they are.
    pub fn own_clickhouse_with_tls(certificate: &Path, key: &Path) -> (Store, u16) {
        let port = free_port();
        let tls = format!(
            "<https_port>{port}</https_port><openSSL><server><certificateFile>{}</certificateFile>
             <privateKeyFile>{}</privateKeyFile><verificationMode>none</verificationMode></server></openSSL>",
            certificate.display(),
            key.display()
        );
        let store = Self::clickhouse_in(fresh_path(), free_port(), &tls);
        wait_for(port, "clickhouse-server by HTTPS");
        (store, port)
    }

    fn clickhouse_in(dir: PathBuf, port: u16, more: &str) -> Store {
        std::fs::create_dir_all(&dir).expect("/tmp is writable");
        let at = dir.display();
        let config = format!(
            "<yandex><logger><level>warning</level><log>{at}/log</log><errorlog>{at}/err</errorlog></logger>
             <http_port>{port}</http_port><listen_host>127.0.0.1</listen_host><path>{at}/data/</path>
             <tmp_path>{at}/tmp/</tmp_path><users_config>{at}/users.xml</users_config><default_profile>default</default_profile>
             <default_database>default</default_database><mark_cache_size>5368709</mark_cache_size>
             <max_table_size_to_drop>100000</max_table_size_to_drop>{more}</yandex>"
        );
        let user = |name: &str, password: &str| {
            format!(
                "<{name}><password>{password}</password><networks><ip>::/0</ip></networks><profile>default</profile>
                 <quota>default</quota></{name}>"
            )
        };
        let users = format!(
            "<yandex><profiles><default></default></profiles><users>{}{}</users><quotas><default></default></quotas></yandex>",
            user("default", ""),
            user("worker", "it's a secret")
        );
        std::fs::write(dir.join("config.xml"), config).expect("a fresh directory is writable");
        std::fs::write(dir.join("users.xml"), users).expect("a fresh directory is writable");
        let program = std::env::var("EBB_CLICKHOUSE").unwrap_or_else(|_| "clickhouse-server".into());
        let mut command = guarded(&dir);
        command.arg(program).arg(format!("--config-file={at}/config.xml"));
        Self::launch(command, dir, port, "clickhouse-server")
    }

    /// A current ClickHouse engine.
    pub fn chdb() -> &'static Store {
        static STORE: OnceLock<Store> = OnceLock::new();
        STORE.get_or_init(|| {
            let dir = fresh_path();
            let mut command = guarded(&dir);
            command.arg("python3").arg(script("chdb_server.py")).arg(dir.join("data"));
            Self::launch_python(command, dir, "chdb")
        })
    }

    /// An S3-compatible server.
    pub fn s3() -> &'static Store {
        static STORE: OnceLock<Store> = OnceLock::new();
        STORE.get_or_init(|| {
            let dir = fresh_path();
            let mut command = guarded(&dir);
            command.arg("python3").arg(script("s3_server.py"));
            Self::launch_python(command, dir, "moto")
        })
    }

    fn launch(mut command: Command, dir: PathBuf, port: u16, what: &str) -> Store {
        let guard = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let guard = guard.unwrap_or_else(|error| panic!("{what} does not start: {error}"));
        wait_for(port, what);
        Store { guard, dir, port }
    }

    /// A script that prints its port when it is ready.
    fn launch_python(mut command: Command, dir: PathBuf, library: &str) -> Store {
        std::fs::create_dir_all(&dir).expect("/tmp is writable");
        let mut guard = command
            .env("PYTHONPATH", libraries(library))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tests need python3; scripts/install-test-tools installs it");
        let mut line = String::new();
        let _ = BufReader::new(guard.stdout.take().expect("stdout is piped")).read_line(&mut line);
        let port = line.trim().parse();
        let port = port.unwrap_or_else(|_| panic!("{library} did not start; has scripts/install-test-tools run?"));
        Store { guard, dir, port }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends the server and what it has; a later one may take its port.
    pub fn stop(mut self) -> u16 {
        self.end();
        self.port
    }

    /// A new, empty ClickHouse on a port where one was.
    pub fn clickhouse_at(port: u16) -> Store {
        Self::clickhouse_in(fresh_path(), port, "")
    }

    fn end(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }

    /// Sends a statement to a ClickHouse; panics with the statement when it is refused.
    pub async fn query(&self, sql: &str) -> String {
        let (status, body) = self.post("/", sql).await;
        assert_eq!(status, 200, "{body}\nin: {sql}");
        body.trim_end().to_owned()
    }

    /// One request, as plain as can be; the status and the body.
    pub async fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.request("POST", path, body).await
    }

    /// The same with another method.
    pub async fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        request(self.port, method, path, body).await
    }

    /// Where it listens on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// One request to a port of the loopback interface; the status and the body.
pub async fn request(port: u16, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the store is up");
    let request =
        format!("{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.expect("the store reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("the store answers");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, body.to_owned())
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end();
    }
}

fn guarded(dir: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", GUARD, "guard"]).arg(dir);
    command
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name)
}

/// Where `scripts/install-test-tools` put a library.
pub fn libraries(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    target.join("test-tools").join(name)
}
