//! `[[resources]]`: short-lived things outside, in one place, by one pattern of names. Invariants: a secret is stored as
//! the name of where it is, never as itself; every term and limit that keeps a sweep from taking what is in use has a
//! value here.

use std::path::Path;
use std::time::Duration;

use super::expire::{BatchSize, Brake, Mode, read_batch, read_brake};
use super::field::{Invalid, Spot};
use super::pattern::{Id, Pattern};
use super::{FieldErrors, Name, Reader, Scalar, Spec, Window, Zone, read_name};
use crate::config::Secret;

/// What is looked after, and how patiently.
#[derive(Debug, Clone, PartialEq)]
pub struct Resources {
    /// Its name.
    pub name: Name,
    /// What it is for, in words.
    pub description: Option<String>,
    /// Where the resources are.
    pub place: Place,
    /// How they are named.
    pub pattern: Pattern,
    /// How often what nobody refers to is looked for.
    pub drop_every: Duration,
    /// How often the store is compared with the registry.
    pub sweep_every: Duration,
    /// What nobody knows goes when it is this old, by its id and by the store's own time.
    pub orphan_age: Duration,
    /// Between the last reference and the drop; between two sightings of an orphan.
    pub grace: Duration,
    /// More orphans than this at once stop the sweep.
    pub max_orphans: u64,
    /// Whether it acts or only counts.
    pub mode: Mode,
    /// When a pass of the dropper is too large to be meant.
    pub brake: Brake,
    /// How many at once.
    pub batch: BatchSize,
    /// No statement on the registry takes longer.
    pub batch_timeout: Duration,
    /// When drops may start.
    pub window: Option<Window>,
    /// Where the window is at home.
    pub zone: Zone,
    /// Whether it runs.
    pub enabled: bool,
}

/// A store, by its driver.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// Tables of one database of a ClickHouse server.
    ClickHouse {
        /// `http://host:8123/?database=…`.
        url: String,
        /// Who connects.
        user: Option<String>,
        /// With what.
        password: Option<Secret>,
        /// DDL goes to all of this cluster.
        cluster: Option<String>,
    },
    /// Tables of one schema of a PostgreSQL database.
    Postgres {
        /// Where; Ebb's own database when absent.
        url: Option<String>,
        /// Who connects, where the URL does not say.
        user: Option<String>,
        /// With what.
        password: Option<Secret>,
        /// In which schema.
        schema: String,
        /// The role for statements on the schema.
        role: Option<String>,
    },
    /// Objects under a prefix.
    Objects {
        /// `s3://bucket/prefix`, `gs://…`, `az://…`, `file:///directory`.
        url: String,
        /// Where an S3-compatible server is.
        endpoint: Option<String>,
        /// Its region.
        region: Option<String>,
        /// The access key's id; the environment's when absent.
        user: Option<String>,
        /// The secret access key.
        password: Option<Secret>,
    },
}

impl Place {
    /// The word for it in `driver`.
    pub fn driver(&self) -> &'static str {
        match self {
            Self::ClickHouse { .. } => "clickhouse",
            Self::Postgres { .. } => "postgres",
            Self::Objects { .. } => "objects",
        }
    }
}

pub(super) const SCALARS: &[Scalar] = &[
    Scalar::Text("description"),
    Scalar::Text("driver"),
    Scalar::Text("url"),
    Scalar::Text("user"),
    Scalar::Text("password"),
    Scalar::Text("cluster"),
    Scalar::Text("schema"),
    Scalar::Text("endpoint"),
    Scalar::Text("region"),
    Scalar::Text("pattern"),
    Scalar::Plain("snowflake.epoch_ms"),
    Scalar::Plain("snowflake.shift"),
    Scalar::Text("drop_every"),
    Scalar::Text("sweep_every"),
    Scalar::Text("orphan_age"),
    Scalar::Text("grace"),
    Scalar::Plain("max_orphans"),
    Scalar::Text("mode"),
    Scalar::Text("window"),
    Scalar::Text("zone"),
    Scalar::Plain("enabled"),
    Scalar::Plain("brake.rows"),
    Scalar::Plain("brake.share"),
    Scalar::Plain("batch.rows"),
    Scalar::Text("batch.pause"),
    Scalar::Text("batch.timeout"),
    Scalar::Text("role"),
];

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

impl Resources {
    pub(super) fn parse(name: &str, spec: &Spec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(spec);
        let r = &mut reader;
        let name = read_name(r, name);
        let description = r.text("description", "\"scratch tables of the workers\"");
        let place = read_place(r, spec);
        let pattern = read_pattern(r, spec);
        let drop_every = r.duration("drop_every", "\"10s\"", SECOND..=DAY).unwrap_or(10 * SECOND);
        let sweep_every = r.duration("sweep_every", "\"5m\"", SECOND..=30 * DAY).unwrap_or(300 * SECOND);
        let orphan_age = r.duration("orphan_age", "\"1h\"", SECOND..=3_650 * DAY).unwrap_or(3_600 * SECOND);
        let grace = r.duration("grace", "\"5m\"", Duration::ZERO..=30 * DAY).unwrap_or(300 * SECOND);
        let max_orphans = r.number("max_orphans", 1..=10_000_000).unwrap_or(1_000);
        let mode = r.choice("mode", &[("enforce", Mode::Enforce), ("observe", Mode::Observe)]);
        let window = r.parse("window", "\"22:00-05:00\"");
        let zone = r.parse("zone", "\"Asia/Jakarta\"").unwrap_or_else(Zone::utc);
        let enabled = r.flag("enabled", true);
        let brake = read_brake(r);
        let (batch, batch_timeout) = read_batch(r);
        reader.finish()?;
        let (Some(name), Some(place), Some(pattern)) = (name, place, pattern) else {
            return Err(super::whole("`driver`, `url` and `pattern` are needed".into()));
        };
        Ok(Self {
            name,
            description,
            place,
            pattern,
            drop_every,
            sweep_every,
            orphan_age,
            grace,
            max_orphans,
            mode: mode.unwrap_or(Mode::Enforce),
            brake,
            batch,
            batch_timeout,
            window,
            zone,
            enabled,
        })
    }
}

/// Keys of one driver that another one has no use for are refused: they would have no effect.
const OF: [(&str, &[&str]); 3] = [
    ("clickhouse", &["url", "user", "password", "cluster"]),
    ("postgres", &["url", "user", "password", "schema", "role"]),
    ("objects", &["url", "user", "password", "endpoint", "region"]),
];

fn read_place(r: &mut Reader<'_>, spec: &Spec) -> Option<Place> {
    let drivers = OF.map(|(driver, _)| (driver, driver));
    let driver = r.choice("driver", &drivers);
    if !spec.contains_key("driver") {
        r.refuse_all(
            Invalid::new("`driver` is missing").hint("add driver = \"clickhouse\", \"postgres\" or \"objects\""),
        );
    }
    let url = read_url(r, driver);
    let user = r.text("user", "\"ebb\"");
    let password = read_password(r);
    let cluster = r.text("cluster", "\"main\"");
    let schema = r.text("schema", "\"scratch\"");
    let endpoint = r.text("endpoint", "\"http://127.0.0.1:9000\"");
    let region = r.text("region", "\"eu-central-1\"");
    let role = r.text("role", "\"ebb_worker\"");
    let driver = driver?;
    let (_, keys) = OF.iter().find(|(known, _)| *known == driver)?;
    for key in ["cluster", "schema", "endpoint", "region", "role"] {
        if spec.get(key).is_some_and(|value| !value.is_null()) && !keys.contains(&key) {
            r.error(key, Spot::Key, Invalid::new(format!("driver = \"{driver}\" has no `{key}`")).hint("take it out"));
        }
    }
    let missing = |r: &mut Reader<'_>, key: &str, example: &str| {
        r.refuse_all(Invalid::new(format!("`{key}` is missing")).hint(format!("add {key} = {example}")));
    };
    match driver {
        "clickhouse" => {
            if !spec.contains_key("url") {
                missing(r, "url", "\"http://127.0.0.1:8123/?database=default\"");
            }
            Some(Place::ClickHouse { url: url?, user, password, cluster })
        }
        "postgres" => {
            if !spec.contains_key("schema") {
                missing(r, "schema", "\"scratch\"");
            }
            let given = spec.get("url").is_some_and(|value| !value.is_null());
            if given && url.is_none() {
                return None;
            }
            if !given && (user.is_some() || password.is_some()) {
                missing(r, "url", "\"postgres://host/database\" (without it, Ebb's own connection is used)");
            }
            Some(Place::Postgres { url, user, password, schema: schema?, role })
        }
        _ => {
            if !spec.contains_key("url") {
                missing(r, "url", "\"s3://bucket/prefix\"");
            }
            Some(Place::Objects { url: url?, endpoint, region, user, password })
        }
    }
}

fn read_url(r: &mut Reader<'_>, driver: Option<&str>) -> Option<String> {
    r.take("url");
    let (schemes, example): (&[&str], _) = match driver? {
        "clickhouse" => (&["http", "https"], "\"http://127.0.0.1:8123/?database=default\""),
        "postgres" => (&["postgres", "postgresql"], "\"postgres://host:5432/database\""),
        _ => (&["s3", "gs", "az", "file"], "\"s3://bucket/prefix\""),
    };
    let url = r.text("url", example)?;
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| schemes.contains(scheme)) else {
        let hint = format!(
            "it begins with {}, for example {example}",
            schemes.iter().map(|scheme| format!("{scheme}://")).collect::<Vec<_>>().join(" or ")
        );
        r.error("url", Spot::Secret, Invalid::new("`url` is none that this driver can use").hint(hint));
        return None;
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let secret = authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
        || (scheme.starts_with("http") && rest.to_ascii_lowercase().contains("password="));
    if secret {
        // It would stand in the policy's history and in the audit, which keep it for ever.
        let hint = "take it out, and add user = \"…\" and password = \"env:NAME\" or \"file:PATH\"";
        r.error("url", Spot::Secret, Invalid::new("a password must not stand in the `url` of a policy").hint(hint));
        return None;
    }
    Some(url)
}

fn read_password(r: &mut Reader<'_>) -> Option<Secret> {
    let text = r.text("password", "\"env:CLICKHOUSE_PASSWORD\"")?;
    match Secret::parse(&text, Path::new("")) {
        Ok(secret) => Some(secret),
        Err(invalid) => {
            r.error("password", Spot::Secret, invalid);
            None
        }
    }
}

fn read_pattern(r: &mut Reader<'_>, spec: &Spec) -> Option<Pattern> {
    let layout = r.table("snowflake", "{ epoch_ms = 0, shift = 22 }", |inner| {
        let epoch_ms = inner.number("epoch_ms", 0..=4_102_444_800_000).unwrap_or(0);
        let shift = inner.number("shift", 0..=40).unwrap_or(22);
        Id::Snowflake { epoch_ms, shift: u32::try_from(shift).unwrap_or(22) }
    });
    let text = r.required("pattern", "\"t{snowflake}\"")?;
    if layout.is_some() && !text.contains("{snowflake}") && spec.contains_key("snowflake") {
        let invalid = Invalid::new(format!("`snowflake` has no meaning for the pattern {text:?}")).hint("take it out");
        r.error("snowflake", Spot::Key, invalid);
    }
    Pattern::parse(&text, layout.unwrap_or(Id::SNOWFLAKE)).map_err(|invalid| r.refuse("pattern", invalid)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(spec: Value) -> Result<Resources, FieldErrors> {
        Resources::parse("scratch", spec.as_object().unwrap())
    }

    #[test]
    fn defaults_are_those_of_the_contract() {
        let policy =
            parse(json!({ "driver": "clickhouse", "url": "http://h:8123/?database=d", "pattern": "t{snowflake}" }));
        let policy = policy.unwrap();
        let seconds = [policy.drop_every, policy.sweep_every, policy.orphan_age, policy.grace].map(|d| d.as_secs());
        assert_eq!((seconds, policy.max_orphans), ([10, 300, 3_600, 300], 1_000));
        assert_eq!(policy.pattern.to_string(), "t{snowflake}");
        assert_eq!(policy.brake, Brake { rows: None, share: Some(0.5), explicit: false });
        assert_eq!((policy.batch, policy.batch_timeout.as_secs()), (BatchSize::Adaptive, 30));
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_no_secret_is_shown() {
        let base = json!({ "driver": "clickhouse", "url": "http://h:8123/", "pattern": "t{snowflake}" });
        for (changed, expected) in [
            (json!({ "driver": "mysql" }), "`driver` cannot be"),
            (json!({ "driver": null }), "`driver` is missing"),
            (json!({ "url": "s3://b" }), "none that this driver can use"),
            (json!({ "url": "http://u:hunter2@h:8123/" }), "a password must not stand"),
            (json!({ "url": "http://h:8123/?user=u&password=hunter2" }), "a password must not stand"),
            (json!({ "password": "hunter2" }), "never written here itself"),
            (json!({ "pattern": "t" }), "has no id"),
            (json!({ "schema": "s" }), "has no `schema`"),
            (json!({ "driver": "postgres", "url": null }), "`schema` is missing"),
            (json!({ "driver": "postgres", "url": null, "schema": "s", "user": "u" }), "`url` is missing"),
            (json!({ "pattern": "t{ulid}", "snowflake": { "shift": 22 } }), "has no meaning"),
            (json!({ "snowflake": { "shift": 64 } }), "from 0 to 40"),
            (json!({ "orphan_age": "0s" }), "at least 1s"),
            (json!({ "max_orphans": 0 }), "from 1"),
            (json!({ "brake": { "rows": 0 } }), "from 1"),
            (json!({ "batch": { "rows": 0 } }), "from 1"),
            (json!({ "role": "r" }), "has no `role`"),
        ] {
            let mut spec = base.as_object().unwrap().clone();
            for (key, value) in changed.as_object().unwrap() {
                if value.is_null() {
                    spec.remove(key)
                } else {
                    spec.insert(key.clone(), value.clone())
                };
            }
            let error = parse(Value::Object(spec)).unwrap_err().to_string();
            assert!(error.contains(expected), "{changed}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(parse(json!({ "driver": "postgres", "schema": "s", "pattern": "x_{uuid7}" })).is_ok());
        assert!(parse(json!({ "driver": "objects", "url": "file:///tmp/x", "pattern": "{ulid}" })).is_ok());
    }
}
