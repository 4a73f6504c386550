//! The dashboard as a browser meets it: getting in, looking, acting, and what it refuses.

use std::time::Duration;

use ebb::token::Role;
use ebb_testkit::eventually;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::json;

use super::site::{Answer, Site};
use crate::shell::Shell;

const KEYS: &str = "[[expire]]\nname = \"keys\"\ntable = \"public.k\"\ncolumn = \"at\"\nevery = \"1h\"\n";

/// A browser that holds a session.
struct Browser<'a> {
    site: &'a Site,
    client: Client,
    cookie: String,
}

impl<'a> Browser<'a> {
    async fn log_in(site: &'a Site, role: Role) -> Self {
        let client = Client::builder().redirect(Policy::none()).build().unwrap();
        let mut browser = Self { site, client, cookie: String::new() };
        let token = site.token(role).await;
        let answer = browser.post("/login", &format!("token={token}&next=%2Fpolicies")).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/policies"), "{answer:?}");
        let cookie = answer.header("set-cookie");
        assert!(
            cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(&token),
            "{cookie}"
        );
        browser.cookie = cookie.split(';').next().unwrap().to_owned();
        browser
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.site.address)).header("cookie", &self.cookie)
    }

    async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path).send().await.unwrap()).await
    }

    async fn post(&self, path: &str, form: &str) -> Answer {
        let request = self.request(Method::POST, path).header("content-type", "application/x-www-form-urlencoded");
        Answer::of(request.body(form.to_owned()).send().await.unwrap()).await
    }

    /// What a page of ours proves itself with.
    async fn csrf(&self) -> String {
        let page = self.get("/").await.body;
        let (_, rest) = page.split_once("name=\"_csrf\" value=\"").expect("a page has a form");
        rest.split('"').next().unwrap().to_owned()
    }
}

async fn site() -> Site {
    let site = Site::new().await;
    site.database
        .execute("CREATE TABLE public.k (at timestamptz); INSERT INTO public.k SELECT now() - interval '1 h' FROM generate_series(1, 10)")
        .await;
    Shell::new(&site.database, KEYS).ok(&["apply", "--yes"]);
    site
}

#[tokio::test]
async fn every_page_is_shown_to_those_who_are_in_and_fetches_nothing_from_elsewhere() {
    let site = site().await;
    let browser = Browser::log_in(&site, Role::Admin).await;
    let done = || async { browser.get("/policies/keys").await.body.contains("success") };
    eventually(Duration::from_secs(60), done).await;
    for path in [
        "/",
        "/policies",
        "/policies/keys",
        "/policies/keys/run",
        "/policies/keys/edit",
        "/audit",
        "/audit?verify=1",
        "/docs",
        "/login",
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status, 200, "{path}: {page:?}");
        assert!(page.header("content-security-policy").contains("script-src 'self'"), "{path}");
        for foreign in ["http://", "https://", "style=\"", "onclick", "<script>"] {
            let body = page
                .body
                .replace("http://www.w3.org", "")
                .replace("https://openlineage.io", "")
                .replace("https://example.test", "")
                .replace("https://spec.openapis.org", "");
            assert!(!body.contains(foreign), "{path} has {foreign}");
        }
        let nobody = site.client.get(format!("http://{}{path}", site.address)).send().await.unwrap();
        let text = nobody.text().await.unwrap();
        assert!(path == "/docs" || text.contains("Log in") && !text.contains("public.k"), "{path}");
    }
    for asset in ["/assets/style.css", "/assets/app.js", "/assets/icon.svg"] {
        assert_eq!(browser.get(asset).await.status, 200);
    }
    let missing = browser.get("/policies/nobody").await;
    assert!(missing.status == 404 && missing.header("content-type").starts_with("text/html"), "{missing:?}");
}

#[tokio::test]
async fn an_action_needs_the_proof_of_our_own_page_and_the_role() {
    let site = site().await;
    let operator = Browser::log_in(&site, Role::Operate).await;
    let paused =
        || site.database.scalar::<i64>("SELECT count(*) FROM ebb.pause WHERE name = 'keys' AND paused_by = 'operate'");
    for form in ["", "_csrf=", "_csrf=0000"] {
        assert_eq!(operator.post("/policies/keys/pause", form).await.status, 403, "{form}");
    }
    let cookie_alone = operator.request(Method::POST, "/v1/pause").json(&json!({})).send().await.unwrap();
    assert_eq!(cookie_alone.status(), 403, "the API asks for it too");
    assert_eq!(paused().await, 0);
    let csrf = operator.csrf().await;
    assert_eq!(operator.post("/policies/keys/pause", &format!("_csrf={csrf}")).await.status, 303);
    assert_eq!(paused().await, 1);
    let resumed = operator.post("/policies/keys/resume", &format!("_csrf={csrf}")).await;
    assert_eq!((resumed.status, paused().await), (303, 0));
    let reader = Browser::log_in(&site, Role::Read).await;
    let csrf = reader.csrf().await;
    assert_eq!(reader.post("/policies/keys/pause", &format!("_csrf={csrf}")).await.status, 403);
    assert_eq!(reader.get("/policies/keys/edit").await.status, 403);
    let logout = reader.post("/logout", &format!("_csrf={csrf}")).await;
    assert_eq!(logout.status, 303);
    assert_eq!(
        reader.get("/").await.header("location"),
        "/login?next=/",
        "the session is over, wherever its cookie went"
    );
}

#[tokio::test]
async fn a_change_is_shown_before_it_is_made_and_a_lost_update_is_refused() {
    let site = site().await;
    let admin = Browser::log_in(&site, Role::Admin).await;
    let csrf = admin.csrf().await;
    let spec = "%7B%22table%22%3A%22public.k%22%2C%22column%22%3A%22at%22%2C%22every%22%3A%222h%22%7D";
    let form = |act: &str, version: i64| format!("_csrf={csrf}&act={act}&version={version}&spec={spec}");
    let preview = admin.post("/policies/keys/edit", &form("preview", 1)).await;
    assert!(
        preview.status == 200
            && preview.body.contains("What would change")
            && preview.body.contains("Save this change"),
        "{preview:?}"
    );
    let version = || site.database.scalar::<i64>("SELECT version FROM ebb.policy WHERE name = 'keys'");
    assert_eq!(version().await, 1);
    assert_eq!(admin.post("/policies/keys/edit", &form("save", 1)).await.status, 303);
    assert_eq!(version().await, 2);
    let late = admin.post("/policies/keys/edit", &form("save", 1).replace("2h", "3h")).await;
    assert!(late.body.contains("version 2, not 1"), "{late:?}");
    let wrong =
        admin.post("/policies/keys/edit", &format!("_csrf={csrf}&act=save&version=2&spec=%7B%22evry%22%3A1%7D")).await;
    assert!(wrong.body.contains("evry") && version().await == 2, "{wrong:?}");
}

#[tokio::test]
async fn a_session_ends_with_its_token_and_only_leads_to_our_pages() {
    let site = Site::new().await;
    let browser = Browser::log_in(&site, Role::Read).await;
    assert_eq!(browser.get("/").await.status, 200);
    site.database.execute("UPDATE ebb.token SET revoked_at = clock_timestamp()").await;
    assert_eq!(browser.get("/").await.status, 303);
    let token = site.token(Role::Read).await;
    for next in ["https:%2F%2Fevil.test", "%2F%2Fevil.test", "%2F%5Cevil.test"] {
        let answer = browser.post("/login", &format!("token={token}&next={next}")).await;
        assert_eq!(answer.header("location"), "/", "{next}");
    }
    let wrong = browser.post("/login", "token=ebb_nonsense").await;
    assert!(wrong.status == 401 && wrong.body.contains("unknown, expired or revoked"), "{wrong:?}");
    let app = site.token(Role::App).await;
    let answer = browser.post("/login", &format!("token={app}")).await;
    let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
    let page = browser.client.get(format!("http://{}/", site.address)).header("cookie", cookie).send().await.unwrap();
    assert_eq!(page.status(), 403, "an application has nothing to see here");
}

/// Every address of the dashboard, and the role that it needs; none where it is for everybody.
const ADDRESSES: [(&str, &str, Option<Role>); 35] = [
    ("GET", "/", Some(Role::Read)),
    ("GET", "/policies", Some(Role::Read)),
    ("GET", "/policies/{name}", Some(Role::Read)),
    ("GET", "/policies/{name}/run", Some(Role::Operate)),
    ("POST", "/policies/{name}/run", Some(Role::Operate)),
    ("POST", "/policies/{name}/pause", Some(Role::Operate)),
    ("POST", "/policies/{name}/resume", Some(Role::Operate)),
    ("GET", "/policies/{name}/edit", Some(Role::Admin)),
    ("POST", "/policies/{name}/edit", Some(Role::Admin)),
    ("GET", "/events", Some(Role::Read)),
    ("GET", "/events/retry", Some(Role::Operate)),
    ("POST", "/events/retry", Some(Role::Operate)),
    ("GET", "/events/{id}", Some(Role::Read)),
    ("GET", "/events/{id}/retry", Some(Role::Operate)),
    ("POST", "/events/{id}/retry", Some(Role::Operate)),
    ("GET", "/events/{id}/cancel", Some(Role::Operate)),
    ("POST", "/events/{id}/cancel", Some(Role::Operate)),
    ("GET", "/subjects", Some(Role::Read)),
    ("GET", "/subjects/{policy}/{id}", Some(Role::Read)),
    ("GET", "/subjects/{policy}/{id}/{act}", Some(Role::Operate)),
    ("POST", "/subjects/{policy}/{id}/{act}", Some(Role::Operate)),
    ("GET", "/partitions", Some(Role::Read)),
    ("GET", "/resources", Some(Role::Read)),
    ("GET", "/resources/{policy}/sweep", Some(Role::Operate)),
    ("POST", "/resources/{policy}/sweep", Some(Role::Operate)),
    ("GET", "/resources/{policy}/{name}/drop", Some(Role::Operate)),
    ("POST", "/resources/{policy}/{name}/drop", Some(Role::Operate)),
    ("GET", "/audit", Some(Role::Read)),
    ("GET", "/audit/report", Some(Role::Read)),
    ("GET", "/login", None),
    ("POST", "/login", None),
    ("POST", "/logout", None),
    ("GET", "/assets/style.css", None),
    ("GET", "/assets/app.js", None),
    ("GET", "/assets/icon.svg", None),
];

/// What the router serves, read from its own text: an address that is added there and not above is found.
fn served() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for text in [include_str!("../../../src/dashboard/mod.rs"), include_str!("../../../src/dashboard/assets.rs")] {
        for line in text.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")) {
            let (path, handlers) = line.split_once('"').unwrap();
            for (method, word) in [("GET", "get("), ("GET", "file("), ("POST", "post(")] {
                if handlers.contains(word) {
                    found.push((method.to_owned(), path.to_owned()));
                }
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn every_page_and_action_keeps_to_its_role() {
    let mut listed: Vec<_> =
        ADDRESSES.iter().map(|(method, path, _)| (String::from(*method), String::from(*path))).collect();
    listed.sort();
    assert_eq!(served(), listed, "say which role the new address needs");

    let site = site().await;
    let mut browsers = Vec::new();
    for role in [Role::Read, Role::Operate, Role::Admin] {
        let browser = Browser::log_in(&site, role).await;
        let csrf = browser.csrf().await;
        browsers.push((role, browser, csrf));
    }
    for (method, path, needed) in ADDRESSES {
        let Some(needed) = needed else { continue };
        let path = path.replace("{name}", "keys").replace("{policy}", "keys").replace("{act}", "hold");
        let path = path.replace("{id}", "00000000-0000-7000-8000-000000000000");
        let nobody = Client::builder().redirect(Policy::none()).build().unwrap();
        let nobody = nobody.request(method.parse().unwrap(), format!("http://{}{path}", site.address));
        let answer = nobody.send().await.unwrap();
        assert_eq!(answer.status(), 303, "{method} {path} leads whoever is not in to the way in");
        for (role, browser, csrf) in &browsers {
            let form = format!("_csrf={csrf}&act=preview&version=1&spec=%7B%7D&reason=tried&sink=&confirm=keys");
            let answer = match method {
                "GET" => browser.get(&path).await,
                _ => browser.post(&path, &form).await,
            };
            assert_eq!(answer.status != 403, role.covers(needed), "{role}: {method} {path} answered {}", answer.status);
            assert!(answer.status < 500, "{role}: {method} {path} answered {}", answer.status);
        }
    }
    // What applications have opens no page.
    let token = site.token(Role::App).await;
    let client = Client::builder().redirect(Policy::none()).build().unwrap();
    let mut application = Browser { site: &site, client, cookie: String::new() };
    let session = application.post("/login", &format!("token={token}")).await;
    application.cookie = session.header("set-cookie").split(';').next().unwrap().to_owned();
    assert!([303, 403].contains(&application.get("/").await.status));
}
