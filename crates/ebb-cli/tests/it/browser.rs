//! A real browser: Chromium without a window, driven through chromedriver's WebDriver protocol. Both come with
//! `scripts/install-test-tools`. A page is looked at as a person does: opened, read, filled in, clicked, photographed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ebb_testkit::{TempDir, eventually};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::http::site::client;

/// What a window is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) dark: bool,
    pub(crate) javascript: bool,
}

impl Window {
    pub(crate) const DESK: Self = Self { width: 1280, height: 900, dark: false, javascript: true };
    pub(crate) const PHONE: Self = Self { width: 390, height: 844, dark: false, javascript: true };

    pub(crate) fn dark(self) -> Self {
        Self { dark: true, ..self }
    }

    pub(crate) fn without_javascript(self) -> Self {
        Self { javascript: false, ..self }
    }
}

/// A window of its own; ends with its value.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    client: Client,
    _profile: TempDir,
}

/// Where WebDriver keeps an element's name.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// A busy machine takes its time to open a window.
const WITHIN: Duration = Duration::from_secs(60);

impl Browser {
    pub(crate) async fn open(window: Window) -> Self {
        let missing = "there is no chromedriver; has scripts/install-test-tools run?";
        let mut driver = Command::new(program("chromedriver"))
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .stdin(Stdio::null())
            .spawn()
            .expect(missing);
        let port = port(&mut driver);
        let profile = TempDir::new();
        let mut arguments = vec![
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--hide-scrollbars".to_owned(),
            "--no-first-run".to_owned(),
            format!("--user-data-dir={}", profile.path().display()),
            format!("--window-size={},{}", window.width.max(500), window.height),
        ];
        if window.dark {
            arguments.push("--blink-settings=preferredColorScheme=0".into());
        }
        let mut options = json!({ "args": arguments, "binary": program("chromium") });
        if !window.javascript {
            options["prefs"] = json!({ "profile.managed_default_content_settings.javascript": 2 });
        }
        if window.width < 500 {
            // A window has a least width, a phone's screen does not.
            let metrics = json!({ "width": window.width, "height": window.height, "pixelRatio": 2.0, "mobile": true });
            options["mobileEmulation"] = json!({ "deviceMetrics": metrics });
        }
        let mut browser = Self { driver, port, session: String::new(), client: client(), _profile: profile };
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } } } });
        let opened = browser.ask(Method::POST, "/session", Some(wanted)).await;
        browser.session = opened["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned();
        browser
    }

    /// Opens an address and waits until it is loaded.
    pub(crate) async fn go(&self, url: &str) {
        self.command(Method::POST, "/url", Some(json!({ "url": url }))).await;
    }

    pub(crate) async fn url(&self) -> String {
        self.command(Method::GET, "/url", None).await.as_str().unwrap().to_owned()
    }

    /// What a person reads in the first element that a selector names; waits for it.
    pub(crate) async fn text(&self, css: &str) -> String {
        let until = Instant::now() + WITHIN;
        loop {
            let element = self.find(css).await;
            let text = self.command(Method::GET, &format!("/element/{element}/text"), None).await;
            match text.as_str() {
                Some(text) => return text.to_owned(),
                // The page that had it was just left.
                None => assert!(Instant::now() < until, "{css}: {text}"),
            }
        }
    }

    /// Waits until an element has some words, on the page that a click leads to: the one before may still be there.
    pub(crate) async fn says(&self, css: &str, words: &str) {
        eventually(WITHIN, || async { self.text(css).await.contains(words) }).await;
    }

    pub(crate) async fn has(&self, css: &str) -> bool {
        let found = self.command(Method::POST, "/elements", Some(by(css))).await;
        found.as_array().is_some_and(|found| !found.is_empty())
    }

    pub(crate) async fn click(&self, css: &str) {
        self.act(css, "click", json!({})).await;
    }

    /// Types into a field.
    pub(crate) async fn fill(&self, css: &str, text: &str) {
        self.act(css, "value", json!({ "text": text })).await;
    }

    /// Does something to an element; once more where the page that had it was just left.
    async fn act(&self, css: &str, what: &str, how: Value) {
        let until = Instant::now() + WITHIN;
        loop {
            let element = self.find(css).await;
            let done = self.command(Method::POST, &format!("/element/{element}/{what}"), Some(how.clone())).await;
            match done.get("error").and_then(Value::as_str) {
                None => return,
                Some("stale element reference") => assert!(Instant::now() < until, "{css}: {done}"),
                Some(_) => panic!("{css}: {done}"),
            }
        }
    }

    /// What a function body returns that runs in the page.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.command(Method::POST, "/execute/sync", Some(json!({ "script": script, "args": [] }))).await
    }

    /// A picture of what is seen, below target/tmp, for whoever wants to look: its path.
    pub(crate) async fn photograph(&self, name: &str) -> PathBuf {
        let taken = self.command(Method::GET, "/screenshot", None).await;
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png"));
        std::fs::write(&path, BASE64_STANDARD.decode(taken.as_str().unwrap()).unwrap()).unwrap();
        path
    }

    /// What pages have said to the console, and what the browser has complained about.
    pub(crate) async fn console(&self) -> Vec<String> {
        let said = self.command(Method::POST, "/se/log", Some(json!({ "type": "browser" }))).await;
        said.as_array().into_iter().flatten().filter_map(|line| line["message"].as_str().map(str::to_owned)).collect()
    }

    /// Nothing is wider than the window: nobody has to scroll sideways.
    pub(crate) async fn fits(&self) -> bool {
        self.run("return document.documentElement.scrollWidth <= window.innerWidth").await == true
    }

    async fn find(&self, css: &str) -> String {
        let until = Instant::now() + WITHIN;
        loop {
            let found = self.command(Method::POST, "/element", Some(by(css))).await;
            match found[ELEMENT].as_str() {
                Some(element) => return element.to_owned(),
                None => assert!(Instant::now() < until, "{css}: {found}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn command(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        self.ask(method, &format!("/session/{}{path}", self.session), body).await
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let mut request = self.client.request(method, url).timeout(WITHIN);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        let value = answer["value"].clone();
        // What a page does not have yet, or does not have any more, is the caller's to wait for.
        let passing = |error: &Value| error == "no such element" || error == "stale element reference";
        assert!(value.get("error").is_none_or(passing), "{path}: {value}");
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver closes its browser when the session ends; killed, it would leave it behind.
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let (session, port) = (&self.session, self.port);
            let _ = write!(
                stream,
                "DELETE /session/{session} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn by(css: &str) -> Value {
    json!({ "using": "css selector", "value": css })
}

/// The driver says which port it found.
fn port(driver: &mut Child) -> u16 {
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let said = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let port = line.split("on port ").nth(1)?.trim_end_matches('.').parse().ok();
        port.filter(|_| line.contains("started successfully"))
    });
    // What else it says is read, or it would wait for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    said.expect("chromedriver says on which port it is")
}

/// Debian calls them so; other systems have the names of the vendor.
fn program(name: &str) -> String {
    let others: &[&str] = match name {
        "chromium" => &["chromium", "chromium-browser", "google-chrome"],
        _ => &["chromedriver"],
    };
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs: Vec<&Path> = path.split(':').map(Path::new).collect();
    let found = others.iter().find_map(|other| dirs.iter().map(|dir| dir.join(other)).find(|path| path.exists()));
    found.map_or_else(|| name.to_owned(), |path| path.to_string_lossy().into_owned())
}

#[tokio::test]
async fn a_browser_shows_a_page_of_the_node() {
    let site = crate::http::site::Site::new().await;
    let browser = Browser::open(Window::PHONE.dark()).await;
    browser.go(&format!("http://{}/login", site.address)).await;
    assert_eq!(browser.text("h1").await, "Log in");
    assert!(browser.fits().await);
    assert_eq!(browser.run("return matchMedia('(prefers-color-scheme: dark)').matches").await, true);
    browser.fill("#token", "ebb_wrong").await;
    browser.click("button.main").await;
    assert!(browser.text("[role=alert]").await.contains("unknown, expired or revoked"));
    assert!(browser.url().await.ends_with("/login"));
    browser.photograph("login").await;
    let plain = Browser::open(Window::DESK.without_javascript()).await;
    plain.go("data:text/html,<p>no</p><script>document.querySelector('p').textContent='yes'</script>").await;
    assert_eq!(plain.text("p").await, "no");
}
