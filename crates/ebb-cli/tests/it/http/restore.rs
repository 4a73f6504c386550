//! The page behind the link in a warning: through the real binary, by a client that looks at every header, and by a
//! person with a browser.

use std::path::Path;
use std::time::Duration;

use ebb::audit::SubjectKey;
use ebb::config::{Config, Env};
use ebb::policy::Wanted;
use ebb::spine::{NodeOptions, Shutdown};
use ebb::token::Role;
use ebb::{Engine, Keys};
use ebb_testkit::{TempDir, TestDatabase};
use reqwest::Method;

use super::site::{Answer, Site};
use crate::browser::{Browser, Window};

const TABLES: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, email text, name text, deleted_at timestamptz);
    INSERT INTO users SELECT n, 'ayu-' || n || '@example.test', 'Ayu' FROM generate_series(1, 9) n";

const POLICY: &str = "
    [sinks.out]
    type = \"log\"
    [[retain]]
    name = \"users\"
    table = \"public.users\"
    deleted_at = \"deleted_at\"
    grace = \"90d\"
    zone = \"Asia/Jakarta\"
    brake = { share = \"off\" }
    warn_before = [\"30d\"]
    contact = { email = \"email\", name = \"name\" }
    notify = \"out\"
    texts = { service = \"Warung Kopi\", support = \"help@example.test\" }";

/// A node whose links lead to itself, and users who were warned.
struct Warned {
    site: Site,
    engine: Engine,
    _keys: TempDir,
}

impl Warned {
    async fn new() -> Self {
        let keys = TempDir::new();
        let path = keys.path().join("subject.key");
        SubjectKey::create_if_missing(&path).unwrap();
        let site =
            Site::with(&format!("[log]\nlevel = \"debug\"\n[audit]\nsubject_key = \"file:{}\"", path.display())).await;
        site.database.execute(TABLES).await;
        let engine = Engine::new(site.database.open(), Keys { subject: Some(path), ..Keys::default() });
        let engine = engine.reached_at(Some(&format!("http://{}", site.address)));
        let config = Config::from_str(POLICY, "ebb.toml", &Env::default()).unwrap();
        let wanted = config.policies.into_iter();
        let wanted: Vec<Wanted> =
            wanted.map(|p| Wanted { kind: p.kind, name: p.name, spec: p.spec, policy: p.policy }).collect();
        engine.apply(&wanted, false, "test").await.unwrap();
        Self { site, engine, _keys: keys }
    }

    fn db(&self) -> &TestDatabase {
        &self.site.database
    }

    /// Deletes a user, lets sixty days pass, warns; the link in the warning.
    async fn link(&self, user: u32) -> String {
        self.db().execute(&format!("SELECT ebb.delete_subject('users', '{user}')")).await;
        self.db().advance("60 days").await;
        self.run().await;
        let body: String = self.db().scalar(&format!("SELECT body FROM ebb.event WHERE subject_id = '{user}'")).await;
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        body["data"]["data"]["restore_url"].as_str().unwrap().to_owned()
    }

    async fn run(&self) {
        let only = vec!["users".parse().unwrap()];
        let options = NodeOptions { name: "t".into(), only, ..NodeOptions::default() };
        self.engine.node(options, Shutdown::new()).run_once(Duration::from_secs(60)).await.unwrap();
    }

    async fn state(&self, user: u32) -> String {
        let sql = format!("SELECT state FROM ebb.deletion WHERE subject_id = '{user}' ORDER BY opened_at DESC LIMIT 1");
        self.db().scalar(&sql).await
    }

    async fn ask(&self, method: Method, url: &str) -> Answer {
        Answer::of(self.site.client.request(method, url).send().await.unwrap()).await
    }
}

/// A whole page, with everything that keeps a browser from doing what it should not.
#[track_caller]
fn is_page(answer: &Answer, status: u16, title: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert!(answer.body.contains(&format!("<title>{title}</title>")), "{answer:?}");
    assert!(answer.header("content-type").starts_with("text/html"), "{answer:?}");
    let policy = answer.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && policy.contains("frame-ancestors 'none'"));
    assert_eq!((answer.header("cache-control"), answer.header("referrer-policy")), ("no-store", "no-referrer"));
    assert!(!answer.body.contains("<script") && !answer.body.contains("ayu-") && !answer.body.contains("Ayu"));
}

#[tokio::test]
async fn looking_changes_nothing_and_asking_restores_once() {
    let warned = Warned::new().await;
    let link = warned.link(1).await;
    // Whoever may look at events does not get it.
    let event: String = warned.db().scalar("SELECT id::text FROM ebb.event WHERE subject_id = '1'").await;
    let reader = warned.site.token(Role::Read).await;
    let shown = warned.site.get(&format!("/v1/events/{event}"), &reader).await;
    assert!(shown.status == 200 && shown.body.contains("(hidden)") && !shown.body.contains(&link), "{shown:?}");
    for method in [Method::GET, Method::HEAD, Method::GET] {
        let answer = warned.ask(method.clone(), &link).await;
        if method == Method::GET {
            is_page(&answer, 200, "Restore your account");
            assert!(answer.body.contains("Warung Kopi") && answer.body.contains("mailto:help@example.test"));
        }
    }
    assert_eq!(warned.state(1).await, "warned");
    for method in [Method::PUT, Method::DELETE] {
        assert_eq!(warned.ask(method, &link).await.status, 405);
    }
    is_page(&warned.ask(Method::POST, &link).await, 200, "Your account is back");
    assert_eq!(warned.state(1).await, "restored");
    assert!(warned.db().scalar::<bool>("SELECT deleted_at IS NULL FROM users WHERE id = 1").await);
    for method in [Method::GET, Method::POST] {
        is_page(&warned.ask(method, &link).await, 410, "This link was used before");
    }
    // Deleted again: the old link has nothing to do with it.
    warned.db().execute("SELECT ebb.delete_subject('users', '1')").await;
    is_page(&warned.ask(Method::POST, &link).await, 410, "This link was used before");
    assert_eq!(warned.state(1).await, "pending");
}

#[tokio::test]
async fn every_wrong_link_gets_a_page_that_tells_nothing() {
    let warned = Warned::new().await;
    let link = warned.link(2).await;
    let (before, token) = link.rsplit_once('/').unwrap();
    let flipped: String =
        token.chars().enumerate().map(|(at, c)| if at == 30 { if c == 'A' { 'B' } else { 'A' } } else { c }).collect();
    let long = "A".repeat(4_000);
    for wrong in [&*flipped, "x", &token[..63], &long, "%00", "%ff%fe", "..%2f..%2fetc", "'%20or%201=1", "%F0%9F%98%80"]
    {
        for method in [Method::GET, Method::POST] {
            is_page(&warned.ask(method, &format!("{before}/{wrong}")).await, 404, "This link does not work");
        }
    }
    assert_eq!(warned.state(2).await, "warned");
    // A deletion that this database does not know, vouched for by the right key.
    warned.db().execute("UPDATE ebb.deletion SET id = gen_random_uuid()").await;
    is_page(&warned.ask(Method::GET, &link).await, 404, "This link does not work");
    is_page(&warned.ask(Method::POST, &link).await, 404, "This link does not work");
}

#[tokio::test]
async fn when_the_time_is_over_so_is_the_link() {
    let warned = Warned::new().await;
    let link = warned.link(3).await;
    warned.db().execute("UPDATE ebb.deletion SET state = 'erasing'").await;
    is_page(&warned.ask(Method::POST, &link).await, 410, "It is too late");
    warned.db().execute("UPDATE ebb.deletion SET state = 'warned', expedited = true, due_at = '-infinity'").await;
    warned.run().await;
    assert_eq!(warned.db().scalar::<i64>("SELECT count(*) FROM users WHERE id = 3").await, 0);
    for method in [Method::GET, Method::POST] {
        is_page(&warned.ask(method, &link).await, 410, "It is too late");
    }
}

#[tokio::test]
async fn an_account_that_its_table_does_not_take_back_is_not_promised_for_later() {
    let mut warned = Warned::new().await;
    let link = warned.link(6).await;
    warned.db().execute("CREATE UNIQUE INDEX ON users (email) WHERE deleted_at IS NULL").await;
    warned.db().execute("INSERT INTO users VALUES (60, 'ayu-6@example.test', 'Ayu')").await;
    let answer = warned.ask(Method::POST, &link).await;
    is_page(&answer, 409, "It cannot be restored here");
    assert!(answer.body.contains("mailto:help@example.test") && answer.header("retry-after").is_empty(), "{answer:?}");
    assert!(!answer.body.contains("duplicate key") && !answer.body.contains("_idx"), "{answer:?}");
    assert_eq!(warned.state(6).await, "warned");
    // What a trigger says is not for the visitor either.
    warned
        .db()
        .execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'Ayu owes us'; END $$;
             CREATE TRIGGER refuse BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await;
    is_page(&warned.ask(Method::POST, &link).await, 409, "It cannot be restored here");
    // Nor for the log, which outlives everybody: it has the code, and the deletion to look it up by.
    let deletion: String = warned.db().scalar("SELECT id::text FROM ebb.deletion WHERE subject_id = '6'").await;
    for code in ["23505", "P0001"] {
        let told = warned.site.node.wait_for_line(code, Duration::from_secs(60)).await;
        assert!(told.contains("A restore link was refused") && told.contains(&deletion), "{told}");
    }
    // Also where a trigger takes one of the server's own codes.
    let denied = "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE WARNING 'Ayu owes us'; RAISE insufficient_privilege USING MESSAGE = 'Ayu owes us'; END $$";
    warned.db().execute(denied).await;
    is_page(&warned.ask(Method::POST, &link).await, 503, "Not at the moment");
    let admin = warned.site.token(Role::Admin).await;
    let restore = format!("http://{}/v1/subjects/users/6/restore", warned.site.address);
    let answer = warned.site.client.post(restore).bearer_auth(admin).send().await.unwrap();
    assert_eq!(answer.status(), 500);
    warned.site.node.wait_for_line("A request failed", Duration::from_secs(60)).await;
    let log = warned.site.node.output();
    assert!(log.contains("42501") && !log.contains("owes us") && !log.contains("ayu-6@"), "{log}");
    let token = link.rsplit('/').next().unwrap();
    assert!(log.contains("/restore/{token}") && !log.contains(token), "{log}");
    warned.db().execute("DROP TRIGGER refuse ON users; DELETE FROM users WHERE id = 60").await;
    is_page(&warned.ask(Method::POST, &link).await, 200, "Your account is back");
}

#[tokio::test]
async fn a_person_restores_an_account_without_javascript() {
    let warned = Warned::new().await;
    let link = warned.link(4).await;
    let phone = Browser::open(Window::PHONE.dark()).await;
    phone.go(&link).await;
    let dates = phone.text("dl").await;
    assert!(dates.contains("Requested") && dates.contains("in 30 days"), "{dates}");
    assert!(phone.fits().await);
    phone.photograph("restore-phone-dark").await;
    drop(phone);
    let plain = Browser::open(Window::DESK.dark().without_javascript()).await;
    plain.go(&link).await;
    assert_eq!(plain.text("h1").await, "Keep your account?");
    assert_eq!(warned.state(4).await, "warned");
    plain.click("button").await;
    plain.says("h1", "Your account is back").await;
    plain.photograph("restored-dark").await;
    assert_eq!(warned.state(4).await, "restored");
    drop(plain);
    // On a desk, in the light, and with scripts to measure by.
    let desk = Browser::open(Window::DESK).await;
    desk.go(&link).await;
    assert_eq!(desk.text("h1").await, "This link was used before");
    desk.photograph("restore-used-desk").await;
    let other = warned.link(5).await;
    desk.go(&other).await;
    assert!(desk.fits().await);
    desk.photograph("restore-desk").await;
    let painted = "return getComputedStyle(document.querySelector('button')).backgroundColor";
    assert_eq!(desk.run(painted).await, "rgb(11, 114, 133)", "the policy lets the page's own style through");
    let narrow = Browser::open(Window { width: 320, ..Window::PHONE }).await;
    narrow.go(&other).await;
    assert!(narrow.fits().await);
    // The mail itself, where its test has left it.
    let mail = Path::new(env!("CARGO_TARGET_TMPDIR")).join("warning.html");
    if mail.exists() {
        narrow.go(&format!("file://{}", mail.display())).await;
        assert!(narrow.fits().await);
        narrow.photograph("mail-phone").await;
        desk.go(&format!("file://{}", mail.display())).await;
        desk.photograph("mail-desk").await;
    }
}
