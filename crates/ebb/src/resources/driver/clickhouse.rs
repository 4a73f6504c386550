//! Tables of one database of a ClickHouse server, over plain HTTP: from 18.16 on, whatever client libraries think of it.
//! Identity is the table's UUID where the server has them, its modification time that of its definition or its newest
//! part, whichever is later. A plain DROP: where the database is Atomic, UNDROP stays possible for the server's term.
//! Invariants: a listing arrives after the server has made all of it, so that an error in the middle is an error; names
//! reach SQL only quoted.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::OnceCell;

use super::{CALL_WITHIN, Driver, Dropped, Found, Owner, away, tls};
use crate::config::{Env, Secret};
use crate::{Error, Result};

/// The table that says whose the database is: its id stands in the definition, which every replica has.
const MARKER: &str = "ebb_owner";
/// A listing of many tables may take longer than other calls.
const LIST_WITHIN: Duration = Duration::from_secs(300);
/// Answers other than listings are short; whatever is longer is cut.
const SHORT: usize = 1 << 20;

/// What the server's error codes mean to us.
const UNKNOWN_TABLE: u32 = 60;
const UNKNOWN_DATABASE: u32 = 81;
const TOO_LARGE_TO_DROP: u32 = 359;
const ACCESS_DENIED: [u32; 2] = [497, 291];
const NO_LOGIN: [u32; 4] = [192, 193, 194, 516];

/// Tables of a ClickHouse database.
pub struct ClickHouseDriver {
    client: Client,
    url: Url,
    database: String,
    user: Option<String>,
    password: Option<String>,
    cluster: Option<String>,
    location: String,
    /// Whether the server knows UUIDs of tables.
    has_uuids: OnceCell<bool>,
}

/// A quoted name.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0.replace('\\', "\\\\").replace('`', "\\`"))
    }
}

/// A quoted text.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.replace('\\', "\\\\").replace('\'', "\\'"))
    }
}

/// What the server says no with.
#[derive(Debug)]
struct Refusal {
    code: u32,
    message: String,
}

/// A line of a listing; numbers as text, because versions differ in how they write large ones.
#[derive(Deserialize)]
struct Line {
    name: String,
    uuid: String,
    modified: String,
    size: String,
    now: String,
}

impl ClickHouseDriver {
    pub(crate) fn open(
        url: &str,
        user: Option<&str>,
        password: Option<&Secret>,
        cluster: Option<&str>,
    ) -> Result<Self> {
        let mut url = Url::parse(url).map_err(|error| Error::config(format!("the `url` cannot be read: {error}")))?;
        let mut database = "default".to_owned();
        let mut kept = Vec::new();
        for (key, value) in url.query_pairs() {
            if key == "database" {
                database = value.into_owned();
            } else {
                kept.push((key.into_owned(), value.into_owned()));
            }
        }
        url.set_query(None);
        if !kept.is_empty() {
            url.query_pairs_mut().extend_pairs(kept);
        }
        let client = Client::builder()
            .tls_backend_preconfigured(tls()?)
            .user_agent(concat!("ebb/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .build()
            .map_err(|error| Error::failed(format!("no HTTP client: {error}")))?;
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        Ok(Self {
            location: format!("clickhouse {host}:{port}/{database}"),
            client,
            url,
            database,
            user: user.map(str::to_owned),
            password: password.map(|password| password.resolve(&Env::process())).transpose()?,
            cluster: cluster.map(str::to_owned),
            has_uuids: OnceCell::new(),
        })
    }

    async fn send(&self, sql: &str, within: Duration) -> Result<std::result::Result<reqwest::Response, Refusal>> {
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("wait_end_of_query", "1");
        let mut request = self.client.post(url).timeout(within).body(sql.to_owned());
        if let Some(user) = &self.user {
            request = request.basic_auth(user, self.password.as_deref());
        }
        let answer = request.send().await.map_err(|error| away(&self.location, told(&error)))?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(Ok(answer));
        }
        let body = short(answer).await.map_err(|error| away(&self.location, error))?;
        let message = body.lines().next().unwrap_or_default().chars().take(500).collect::<String>();
        let code = code_of(&body).unwrap_or_default();
        if NO_LOGIN.contains(&code) || matches!(status, StatusCode::UNAUTHORIZED) {
            return Err(Error::refused(format!("{} does not let this user in", self.location))
                .with_hint("set user and password = \"env:NAME\" or \"file:PATH\" of the policy"));
        }
        if code == 0 {
            return Err(away(&self.location, format!("{status} {message}")));
        }
        Ok(Err(Refusal { code, message }))
    }

    async fn ask(&self, sql: &str) -> Result<std::result::Result<String, Refusal>> {
        match self.send(sql, CALL_WITHIN).await? {
            Ok(answer) => Ok(Ok(short(answer).await.map_err(|error| away(&self.location, error))?)),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// An answer, where a refusal is an error.
    async fn must(&self, sql: &str) -> Result<String> {
        self.ask(sql).await?.map_err(|refusal| self.refused(&refusal))
    }

    fn refused(&self, refusal: &Refusal) -> Error {
        let error = Error::refused(format!("{}: {}", self.location, refusal.message));
        match refusal.code {
            UNKNOWN_DATABASE => error.with_hint(format!("CREATE DATABASE {}", Name(&self.database))),
            code if ACCESS_DENIED.contains(&code) => error
                .with_hint("the user needs SELECT on system tables, and SELECT, INSERT, CREATE, DROP on the database"),
            _ => error,
        }
    }

    fn table(&self, name: &str) -> String {
        format!("{}.{}", Name(&self.database), Name(name))
    }

    fn on_cluster(&self) -> String {
        self.cluster.as_deref().map_or_else(String::new, |cluster| format!(" ON CLUSTER {}", Name(cluster)))
    }

    async fn require_database(&self) -> Result<()> {
        let sql = format!("SELECT count() FROM system.databases WHERE name = {}", Text(&self.database));
        if self.must(&sql).await?.trim() == "1" {
            return Ok(());
        }
        Err(Error::refused(format!("there is no database {} at {}", self.database, self.location))
            .with_hint(format!("CREATE DATABASE {}", Name(&self.database))))
    }

    /// Asks for the tables for whose name a condition holds, a line of JSON each.
    async fn lines(&self, condition: impl Fn(&str) -> String) -> Result<String> {
        let has_uuids = self
            .has_uuids
            .get_or_try_init(|| async {
                let sql = "SELECT count() FROM system.columns WHERE database = 'system' AND table = 'tables' AND name = 'uuid'";
                Ok::<_, Error>(self.must(sql).await?.trim() == "1")
            })
            .await?;
        let uuid = if *has_uuids { "toString(uuid)" } else { "''" };
        let database = Text(&self.database);
        let (of_tables, of_parts) = (condition("name"), condition("table"));
        // A union and not a join, whose rules differ between versions.
        Ok(format!(
            "SELECT name, max(uuid) AS uuid, toString(max(changed)) AS modified, toString(sum(bytes)) AS size,
                 toString(toUnixTimestamp(now())) AS now
             FROM (SELECT name, {uuid} AS uuid, toUnixTimestamp(metadata_modification_time) AS changed, toUInt64(0) AS bytes, 1 AS tables
                   FROM system.tables WHERE database = {database} AND NOT is_temporary
                   AND engine NOT IN ('View', 'MaterializedView', 'LiveView', 'Dictionary') AND {of_tables}
                   UNION ALL
                   SELECT table AS name, '' AS uuid, toUnixTimestamp(max(modification_time)) AS changed,
                       toUInt64(sum(bytes_on_disk)) AS bytes, 0 AS tables
                   FROM system.parts WHERE database = {database} AND active AND {of_parts} GROUP BY table)
             GROUP BY name HAVING sum(tables) > 0 ORDER BY name FORMAT JSONEachRow"
        ))
    }

    /// Reads lines as they come, so that a listing of any length takes little memory.
    async fn read(&self, sql: &str, each: &mut (dyn FnMut(Found) + Send)) -> Result<Option<Timestamp>> {
        let mut answer = self.send(sql, LIST_WITHIN).await?.map_err(|refusal| self.refused(&refusal))?;
        let (mut left, mut now) = (Vec::new(), None);
        while let Some(chunk) = answer.chunk().await.map_err(|error| away(&self.location, told(&error)))? {
            left.extend_from_slice(&chunk);
            while let Some(end) = left.iter().position(|byte| *byte == b'\n') {
                let line: Line = self.parse(&left[..end])?;
                left.drain(..=end);
                now = seconds(&line.now).or(now);
                each(found(line));
            }
        }
        match left.is_empty() {
            true => Ok(now),
            false => Err(away(&self.location, "its listing ends in the middle of a line")),
        }
    }

    fn parse(&self, line: &[u8]) -> Result<Line> {
        serde_json::from_slice(line).map_err(|_| {
            let shown: String = String::from_utf8_lossy(line).chars().take(200).collect();
            away(&self.location, format!("its listing has a line that is none: {shown}"))
        })
    }

    async fn look(&self, names: &[String]) -> Result<(Vec<Found>, Option<Timestamp>)> {
        let (mut all, mut now) = (Vec::new(), None);
        for part in names.chunks(1000) {
            let quoted = part.iter().map(|name| Text(name).to_string()).collect::<Vec<_>>().join(", ");
            let sql = self.lines(|column| format!("{column} IN ({quoted})")).await?;
            now = self.read(&sql, &mut |found| all.push(found)).await?.or(now);
        }
        Ok((all, now))
    }

    async fn drop_table(&self, found: &Found) -> Result<Dropped> {
        let sql = format!("DROP TABLE IF EXISTS {}{}", self.table(&found.name), self.on_cluster());
        Ok(match self.ask(&sql).await? {
            Ok(_) => Dropped::Accepted,
            Err(refusal) if refusal.code == UNKNOWN_TABLE => Dropped::Accepted,
            Err(refusal) if refusal.code == TOO_LARGE_TO_DROP => Dropped::Blocked(format!(
                "larger than the server lets anybody drop (max_table_size_to_drop): {}",
                refusal.message
            )),
            Err(refusal) if ACCESS_DENIED.contains(&refusal.code) => Dropped::Blocked(refusal.message),
            Err(refusal) => Dropped::Later(refusal.message),
        })
    }

    async fn read_marker(&self, policy: &str) -> Result<Option<Owner>> {
        self.require_database().await?;
        let sql = format!(
            "SELECT default_expression FROM system.columns WHERE database = {} AND table = {} AND name = 'installation'",
            Text(&self.database),
            Text(MARKER)
        );
        let written = self.must(&sql).await?;
        let id: String = written.chars().filter(|c| c.is_ascii_hexdigit() || *c == '-').collect();
        let Ok(installation) = id.parse() else {
            return match written.trim() {
                "" => Ok(None),
                _ => Err(Error::refused(format!("{}: {MARKER} is no marker of Ebb's", self.location))),
            };
        };
        let marker = self.table(MARKER);
        let latest = format!("SELECT toString(max(generation)) FROM {marker} WHERE policy = {}", Text(policy));
        let generation = self.must(&latest).await?.trim().parse().unwrap_or(0);
        Ok(Some(Owner { installation, generation }))
    }

    async fn write_marker(&self, policy: &str, owner: &Owner) -> Result<()> {
        let marker = self.table(MARKER);
        let create = format!(
            "CREATE TABLE IF NOT EXISTS {marker}{} (installation String DEFAULT {}, policy String, generation UInt64,
                 at DateTime DEFAULT now()) ENGINE = Log",
            self.on_cluster(),
            Text(&owner.installation.to_string())
        );
        self.must(&create).await?;
        let generation = owner.generation.max(0);
        self.must(&format!("INSERT INTO {marker} (policy, generation) VALUES ({}, {generation})", Text(policy)))
            .await?;
        Ok(())
    }
}

fn found(line: Line) -> Found {
    const NONE: &str = "00000000-0000-0000-0000-000000000000";
    Found {
        name: line.name,
        id: Some(line.uuid).filter(|uuid| !uuid.is_empty() && uuid != NONE),
        modified_at: seconds(&line.modified),
        size: line.size.parse().ok(),
    }
}

fn seconds(text: &str) -> Option<Timestamp> {
    Timestamp::from_second(text.parse().ok()?).ok()
}

/// `Code: 60. DB::Exception: …` or `Code: 60, e.displayText() = …`.
fn code_of(body: &str) -> Option<u32> {
    let after = &body[body.find("Code: ")? + 6..];
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

async fn short(mut answer: reqwest::Response) -> std::result::Result<String, String> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| told(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > SHORT {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// The whole chain of reasons; without the URL, which may have more in it than people should see.
fn told(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        // The outermost one repeats the URL.
        if error.source().is_none() || !text.is_empty() {
            text = if text.is_empty() { error.to_string() } else { format!("{text}: {error}") };
        }
        next = error.source();
    }
    text
}

impl Driver for ClickHouseDriver {
    fn location(&self) -> String {
        self.location.clone()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        each: &'a mut (dyn FnMut(Found) + Send),
    ) -> BoxFuture<'a, Result<Option<Timestamp>>> {
        async move {
            self.require_database().await?;
            let sql = self.lines(|column| format!("startsWith({column}, {})", Text(prefix))).await?;
            self.read(&sql, each).await
        }
        .boxed()
    }

    fn find<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, Result<(Vec<Found>, Option<Timestamp>)>> {
        async move {
            self.require_database().await?;
            self.look(names).await
        }
        .boxed()
    }

    fn remove<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<Dropped>> {
        self.drop_table(found).boxed()
    }

    fn owner<'a>(&'a self, policy: &'a str) -> BoxFuture<'a, Result<Option<Owner>>> {
        self.read_marker(policy).boxed()
    }

    fn mark<'a>(&'a self, policy: &'a str, owner: &'a Owner) -> BoxFuture<'a, Result<()>> {
        self.write_marker(policy, owner).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_stay_inside_their_quotes() {
        assert_eq!(Name("a`b\\").to_string(), "`a\\`b\\\\`");
        assert_eq!(Text("it's \\ x").to_string(), "'it\\'s \\\\ x'");
    }

    #[test]
    fn codes_are_read_from_old_and_new_servers() {
        assert_eq!(code_of("Code: 60, e.displayText() = DB::Exception: Table x doesn't exist."), Some(60));
        assert_eq!(code_of("Code: 359. DB::Exception: Table or Partition in x was not dropped."), Some(359));
        assert_eq!(code_of("<html>"), None);
    }

    #[test]
    fn the_database_comes_from_the_url_and_other_parameters_stay() {
        let driver = ClickHouseDriver::open("http://h:8123/?database=d&max_threads=1", None, None, None).unwrap();
        assert_eq!((driver.database.as_str(), driver.url.as_str()), ("d", "http://h:8123/?max_threads=1"));
        assert_eq!(driver.location(), "clickhouse h:8123/d");
    }
}
