//! Every page and every action in a real browser: at a desk and on a phone, light and dark. No page is wider than its
//! window, says anything to the console, or fetches from elsewhere; every action asks first and is audited with who did it.

use std::time::Duration;

use ebb::token::Role;
use ebb_testkit::eventually;

use super::site::Site;
use crate::browser::{Browser, Window};
use crate::shell::Shell;

const TABLES: &str = "
    CREATE SCHEMA scratch;
    CREATE TABLE k (at timestamptz); INSERT INTO k SELECT now() - interval '1 h' FROM generate_series(1, 10);
    CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
    CREATE TABLE orders (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
    CREATE TABLE invoices (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE SET NULL);
    CREATE INDEX ON orders (user_id); CREATE INDEX ON invoices (user_id);
    INSERT INTO users SELECT n FROM generate_series(1, 9) n;
    INSERT INTO orders SELECT n, 1 + n % 9 FROM generate_series(1, 27) n;
    INSERT INTO invoices SELECT n, 1 + n % 9 FROM generate_series(1, 9) n;
    CREATE TABLE m (at timestamptz NOT NULL) PARTITION BY RANGE (at)";
const POLICIES: &str = "
    [[expire]]\nname = \"keys\"\ntable = \"public.k\"\ncolumn = \"at\"\n
    [[retain]]\nname = \"users\"\ntable = \"public.users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n
    [[partition]]\nname = \"m\"\ntable = \"public.m\"\ncolumn = \"at\"\nby = \"month\"\nahead = 3\n
    [[resources]]\nname = \"s\"\ndriver = \"postgres\"\nschema = \"scratch\"\npattern = \"t{snowflake}\"\ngrace = \"1h\"\n
    [sinks.hook]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:9/\"\nallow_private = true\nretry = { base = \"1ms\", max = \"1ms\", attempts = 1 }\n";

/// A node with something of everything, and the id of an event that died.
async fn site() -> (Site, String) {
    let site = Site::new().await;
    site.database.execute(TABLES).await;
    Shell::new(&site.database, POLICIES).ok(&["apply", "--yes"]);
    let event: String = site.database.scalar("SELECT ebb.schedule('hook', now(), '{\"type\": \"t\"}')::text").await;
    site.database.execute("SELECT ebb.delete_subject('users', '2')").await;
    site.database
        .execute("INSERT INTO ebb.resource (policy, name, state) VALUES ('s', 't' || (extract(epoch FROM now()) * 1000)::bigint * 4194304, 'live')")
        .await;
    let dead = || async {
        site.database.scalar::<i64>("SELECT count(*) FROM ebb.event_history WHERE state = 'dead'").await == 1
    };
    eventually(Duration::from_secs(60), dead).await;
    (site, event)
}

pub(super) async fn log_in(site: &Site, window: Window, role: Role) -> Browser {
    let browser = Browser::open(window).await;
    let token = site.token(role).await;
    browser.go(&format!("http://{}/login", site.address)).await;
    browser.fill("#token", &token).await;
    browser.click("button.main").await;
    browser.text(".side nav").await;
    browser
}

/// What a page fetched from anywhere but the node, what it said to the console, and whether its contrast is enough.
const INSPECT: &str = r"
    const foreign = performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith(location.origin));
    const parse = c => c.match(/[\d.]+/g).map(Number);
    const lum = ([r, g, b]) => { const f = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
    const back = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0.99) return c; } return [255, 255, 255]; };
    const low = [...document.querySelectorAll('main *, .side *')].filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && e.checkVisibility() && !e.closest('svg') && !(e instanceof HTMLOptionElement))
      .map(e => { const [a, b] = [lum(parse(getComputedStyle(e).color)), lum(back(e))].sort((x, y) => y - x); return [(a + 0.05) / (b + 0.05), e.className || e.tagName, e.textContent.slice(0, 30)]; })
      .filter(([ratio]) => ratio < 4.5);
    const unnamed = [...document.querySelectorAll('input:not([type=hidden]):not([hidden]), select, textarea')].filter(e => !e.labels || !e.labels.length).map(e => e.name);
    return JSON.stringify({ foreign, low: low.slice(0, 5), unnamed });";

pub(super) async fn look(browser: &Browser, site: &Site, path: &str, name: &str) {
    browser.go(&format!("http://{}{path}", site.address)).await;
    let title = browser.text("h1").await;
    assert!(!title.is_empty(), "{path}");
    assert!(browser.fits().await, "{name} {path} is wider than its window");
    let found = browser.run(INSPECT).await;
    assert_eq!(found, r#"{"foreign":[],"low":[],"unnamed":[]}"#, "{name} {path}");
}

async fn every_page(window: Window, name: &str) {
    let (site, event) = site().await;
    let browser = log_in(&site, window, Role::Admin).await;
    for path in [
        "/",
        "/policies",
        "/policies/keys",
        "/policies/keys/run",
        "/policies/keys/edit",
        "/subjects",
        "/subjects/users/2",
        "/subjects/users/2/erase",
        "/subjects/users/2/hold",
        "/events",
        &format!("/events/{event}"),
        &format!("/events/{event}/retry"),
        "/events/retry",
        "/partitions",
        "/resources",
        "/resources/s/sweep",
        "/audit",
        "/audit?verify=1",
        "/audit/report",
        "/docs",
    ] {
        look(&browser, &site, path, name).await;
    }
    assert_eq!(browser.console().await, Vec::<String>::new(), "{name}");
}

#[tokio::test]
async fn every_page_is_fine_at_a_desk() {
    every_page(Window::DESK, "desk").await;
}

#[tokio::test]
async fn every_page_is_fine_on_a_phone_in_the_dark() {
    every_page(Window::PHONE.dark(), "phone").await;
}

#[tokio::test]
async fn every_page_is_fine_at_a_desk_in_the_dark() {
    every_page(Window::DESK.dark(), "dark desk").await;
}

#[tokio::test]
async fn every_page_is_fine_on_a_phone() {
    every_page(Window::PHONE, "light phone").await;
}

/// What an administrator does: a change after its preview, an erasure after its dry run, all dead letters again, the sweeper let
/// loose; then out.
#[tokio::test]
async fn an_administrator_changes_erases_retries_and_leaves() {
    let (site, event) = site().await;
    let browser = log_in(&site, Window::DESK, Role::Admin).await;
    let at = |path: &str| format!("http://{}{path}", site.address);

    // A policy: what is no JSON is told, a preview changes nothing, saving makes a version.
    let version = || site.database.scalar::<i64>("SELECT version FROM ebb.policy WHERE name = 'keys'");
    let first = version().await;
    browser.go(&at("/policies/keys/edit")).await;
    browser.run("document.querySelector('#spec').value = '{'").await;
    browser.click("button[value=preview]").await;
    browser.says("[role=alert]", "This is not JSON").await;
    let spec = r#"{"table": "public.k", "column": "at", "every": "2h"}"#;
    browser.run(&format!("document.querySelector('#spec').value = '{spec}'")).await;
    browser.click("button[value=preview]").await;
    let shown = browser.text("button[value=save]").await;
    assert!(shown.contains("Save"), "{shown}");
    let preview = browser.text("main").await;
    assert!(preview.contains("What would change") && preview.contains("every"), "{preview}");
    assert_eq!(version().await, first, "a preview changes nothing");
    browser.click("button[value=save]").await;
    browser.text("form[action$='/pause']").await;
    assert_eq!(version().await, first + 1);
    let by: String = site.database.scalar("SELECT changed_by FROM ebb.policy WHERE name = 'keys'").await;
    assert_eq!(by, "admin");

    // An erasure: the dry run says what goes, then it goes without the grace.
    browser.go(&at("/subjects/users/2/erase")).await;
    browser.says("main", "It would be erased").await;
    let expedited = || site.database.scalar::<bool>("SELECT bool_or(expedited) FROM ebb.deletion");
    assert!(!expedited().await, "asking changes nothing");
    browser.click("main form button.danger").await;
    browser.text(".timeline").await;
    assert!(expedited().await);

    // Every dead letter: how many of which sink, then all of them; the event shows each attempt with its error.
    browser.go(&at("/events")).await;
    browser.click("a[href='/events/retry']").await;
    browser.says("main table", "hook").await;
    browser.click("main form button.main").await;
    browser.text(".tiles").await;
    let attempts = "SELECT count(*) FROM ebb.event_history WHERE state = 'dead' AND response -> 'earlier' IS NOT NULL";
    eventually(Duration::from_secs(60), || async { site.database.scalar::<i64>(attempts).await == 1 }).await;
    browser.go(&at(&format!("/events/{event}"))).await;
    let tried = browser.run("return document.querySelectorAll('.timeline li.bad').length").await;
    assert_eq!(tried, 2, "the attempt before it was retried, and the one after");

    // The sweeper: what it saw, then it may drop.
    browser.go(&at("/resources")).await;
    browser.click("a[href$='/resources/s/sweep']").await;
    browser.click("main form button.danger").await;
    browser.text(".tiles").await;
    let confirmed: i64 =
        site.database.scalar("SELECT count(*) FROM ebb.audit WHERE action = 'confirm' AND by_name = 'admin'").await;
    assert_eq!(confirmed, 1);

    // Out: the session is gone, not only its cookie.
    let session = "SELECT count(*) FROM ebb.session";
    assert_eq!(site.database.scalar::<i64>(session).await, 1);
    browser.click("form[action='/logout'] button").await;
    browser.text("#token").await;
    assert_eq!(site.database.scalar::<i64>(session).await, 0);
    browser.go(&at("/policies")).await;
    assert_eq!(browser.text("h1").await, "Log in");
    assert_eq!(browser.console().await, Vec::<String>::new());
}

#[tokio::test]
async fn every_action_asks_first_and_is_audited_with_who_did_it() {
    let (site, event) = site().await;
    let browser = log_in(&site, Window::DESK, Role::Operate).await;
    let at = |path: &str| format!("http://{}{path}", site.address);
    let state = || site.database.scalar::<String>("SELECT state FROM ebb.deletion WHERE subject_id = '2'");

    // A subject: found by its id, held, released, restored; erased only after a look at the tree.
    browser.go(&at("/subjects")).await;
    browser.fill("#id", "2").await;
    browser.click("main button.main").await;
    browser.says("svg.tree", "3 rows go").await;
    browser.click("a[href$='/hold']").await;
    browser.fill("#reason", "a court asked").await;
    browser.click("main form button.main").await;
    browser.says(".banner.warn", "a court asked").await;
    browser.click("a[href$='/release']").await;
    browser.click("main form button.danger").await;
    browser.click("a[href$='/erase']").await;
    browser.says("main", "It would be erased").await;
    assert_eq!(state().await, "pending", "asking changes nothing");
    browser.click("a.button[href='/subjects/users/2']").await;
    browser.click("a[href$='/restore']").await;
    browser.click("main form button.main").await;
    browser.says(".timeline", "Restored").await;
    assert_eq!(state().await, "restored");
    browser.click("a[href$='/delete']").await;
    browser.says("main", "It would be erased").await;
    browser.click("main form button.danger").await;
    browser.text("a[href$='/restore']").await;

    // A dead letter is delivered again, one that waits is cancelled.
    browser.go(&at("/events?state=dead")).await;
    browser.go(&at(&format!("/events/{event}/retry"))).await;
    browser.click("main form button.main").await;
    browser.says("h1", "Event").await;
    browser.says("main", &event).await;
    let later: String = site.database.scalar("SELECT ebb.schedule('hook', now() + interval '1 day', '{}')::text").await;
    browser.go(&at(&format!("/events/{later}/cancel"))).await;
    browser.click("main form button.danger").await;
    browser.says("main .badge", "cancelled").await;

    // A resource that nobody refers to goes at once.
    browser.go(&at("/resources")).await;
    browser.click("main a[href$='/drop']").await;
    browser.click("main form button.danger").await;
    browser.text("main table").await;

    // A policy is paused and resumed.
    browser.go(&at("/policies/keys")).await;
    browser.click("form[action$='/pause'] button").await;
    browser.click("form[action$='/resume'] button").await;
    browser.text("form[action$='/pause']").await;
    browser.click("a[href$='/run']").await;
    browser.click("main form button").await;
    browser.text("form[action$='/pause']").await;

    assert_eq!(browser.console().await, Vec::<String>::new());
    let done: String = site
        .database
        .scalar("SELECT string_agg(DISTINCT action, ' ' ORDER BY action) FROM ebb.audit WHERE by_name = 'operate'")
        .await;
    assert_eq!(done, "cancel delete hold hurry pause release restore resume retry trigger");
}

#[tokio::test]
async fn pages_follow_what_happens_without_a_reload() {
    let (site, _) = site().await;
    let browser = log_in(&site, Window::DESK, Role::Read).await;
    browser.go(&format!("http://{}/policies/keys", site.address)).await;
    browser.run("window.same = true").await;
    assert!(!browser.has("main form").await, "who only reads is offered nothing to do");
    Shell::new(&site.database, "").ok(&["pause", "keys", "--reason", "from elsewhere"]);
    let seen = || async { browser.text("main").await.contains("paused") };
    eventually(Duration::from_secs(60), seen).await;
    assert_eq!(browser.run("return window.same === true").await, true, "the page was not loaded again");
    let shown = browser.run("const t = document.querySelector('main time'); return t.title").await;
    assert!(shown.as_str().unwrap().ends_with("UTC"), "UTC on hover: {shown}");
}

#[tokio::test]
async fn a_subject_that_could_not_be_warned_says_so_and_can_be_tried_again() {
    let (site, _) = site().await;
    site.database
        .execute(
            "INSERT INTO ebb.warning (deletion, step, policy, event, before, send_at, failed_at, error)
             SELECT id, 0, policy, gen_random_uuid(), '30 days', now(), now(), 'no such mailbox' FROM ebb.deletion",
        )
        .await;
    let browser = log_in(&site, Window::DESK, Role::Operate).await;
    browser.go(&format!("http://{}/subjects/users/2", site.address)).await;
    let page = browser.text("main").await;
    assert!(page.contains("Its warning could not be delivered") && page.contains("no such mailbox"), "{page}");
    assert!(page.contains("Could not be warned"), "{page}");
    browser.click("a.button[href='/subjects/users/2/retry']").await;
    browser.says("main", "Try again what failed?").await;
}
