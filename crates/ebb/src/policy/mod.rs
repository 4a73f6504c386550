//! Typed policies. A policy's spec is a JSON map with exactly the keys of `ebb.toml`; the file, `ebb policy set` and
//! the database all go through [`Policy::parse`]. Invariant: inside the engine an invalid policy has no type.

pub(crate) mod anchor;
pub mod apply;
mod cadence;
mod cron;
mod driver;
mod expire;
mod field;
mod name;
mod once;
mod partition;
mod pattern;
mod reader;
mod resources;
mod retain;
mod retry;
mod schedule;
mod settings;
mod sink;
mod size;
pub mod store;
mod term;
mod warning;

use std::fmt;

use serde_json::{Map, Value};

pub use apply::{Change, ChangeAction, Wanted, difference, overwrites_nothing};
pub use cadence::{At, Cadence, Window, Zone};
pub use cron::Cron;
pub use driver::{Driver, Kafka, Nats, Smtp, SmtpTls, Webhook};
pub use expire::{Action, AuditDetail, BatchSize, Brake, EpochUnit, Expire, Mode};
pub use field::{FieldError, FieldErrors, Invalid, Spot};
pub(crate) use field::{did_you_mean, nearest};
pub use name::Name;
pub use once::OnceNamespace;
pub use partition::{Expired, Partition, Period};
pub use pattern::{Id, Pattern};
pub(crate) use reader::Reader;
pub use resources::{Place, Resources};
pub use retain::{Child, ChildAction, Direct, Mirror, Retain, RetainForm, StatusColumn, Subjects, Unnamed};
pub use retry::Retry;
pub use schedule::{Missed, Schedule};
pub use settings::{Events, Keep, Pacing};
pub use sink::{Breaker, Rate, Sink};
pub use size::Size;
pub use store::Stored;
pub use term::{Term, human};
pub(crate) use warning::longer as warning_longer;
pub use warning::{Contact, TEXTS, Undeliverable, Warning, terms as warning_terms, texts as warning_texts};

/// A policy's keys as they are stored: those of `ebb.toml`, without its name.
pub type Spec = Map<String, Value>;

/// What sort of policy it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `[[expire]]`: rows that are past their time go.
    Expire,
    /// `[[retain]]`: subjects and what belongs to them.
    Retain,
    /// `[[partition]]`: tables split by time.
    Partition,
    /// `[[resources]]`: short-lived things outside.
    Resources,
    /// `[[schedule]]`: recurring events.
    Schedule,
    /// `[once.NAME]`: a namespace of keys that count once.
    Once,
    /// `[sinks.NAME]`: where events go.
    Sink,
    /// `[pacing]`, `[keep]` and the like.
    Settings,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] = [
        Kind::Expire,
        Kind::Retain,
        Kind::Partition,
        Kind::Resources,
        Kind::Schedule,
        Kind::Once,
        Kind::Sink,
        Kind::Settings,
    ];

    /// The word for it in the database and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expire => "expire",
            Self::Retain => "retain",
            Self::Partition => "partition",
            Self::Resources => "resources",
            Self::Schedule => "schedule",
            Self::Once => "once",
            Self::Sink => "sink",
            Self::Settings => "settings",
        }
    }

    /// How its entries stand in `ebb.toml`.
    pub fn form(self) -> Form {
        match self {
            Self::Expire | Self::Retain | Self::Partition | Self::Resources | Self::Schedule => {
                Form::List(self.as_str())
            }
            Self::Once => Form::Named("once"),
            Self::Sink => Form::Named("sinks"),
            Self::Settings => Form::Sections(&["pacing", "keep", "events"]),
        }
    }

    /// Whether it is work that a node does: those have names that are unique among each other.
    pub fn is_work(self) -> bool {
        matches!(self.form(), Form::List(_))
    }

    /// How an entry is written at the top of its block, and called in messages: `[[expire]]`, `[once.orders]`.
    pub fn heading(self, name: &str) -> String {
        match self.form() {
            Form::List(section) => format!("[[{section}]]"),
            Form::Named(section) => format!("[{section}.{name}]"),
            Form::Sections(_) => format!("[{name}]"),
        }
    }

    /// The kind a word stands for.
    pub fn parse(word: &str) -> Result<Self, Invalid> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str);
            let hint = nearest(word, words).map_or_else(|| format!("it is one of {}", words.join(", ")), did_you_mean);
            Invalid::new(format!("{word:?} is no kind of policy")).hint(hint)
        })
    }

    /// The keys of an entry that hold a single value: what an environment variable or `key=value` can set.
    pub(crate) fn scalars(self, name: &str) -> &'static [Scalar] {
        match (self, name) {
            (Self::Expire, _) => expire::SCALARS,
            (Self::Retain, _) => retain::SCALARS,
            (Self::Partition, _) => partition::SCALARS,
            (Self::Resources, _) => resources::SCALARS,
            (Self::Once, _) => once::SCALARS,
            (Self::Schedule, _) => schedule::SCALARS,
            (Self::Sink, _) => sink::SCALARS,
            (Self::Settings, "pacing") => settings::PACING,
            (Self::Settings, "keep") => settings::KEEP,
            (Self::Settings, "events") => settings::EVENTS,
            _ => &[],
        }
    }

    /// What a text means for a key (`batch.rows`, `enabled`), as JSON: numbers and flags where the key has them, lists and tables
    /// where they are written as in the file, text otherwise. The entry decides afterwards whether it is right.
    pub fn value(self, name: &str, key: &str, text: &str) -> Value {
        if let Some(value) = as_in_file(text) {
            return value;
        }
        let scalar = self.scalars(name).iter().find(|scalar| scalar.path() == key);
        scalar.map_or_else(|| Value::from(text), |scalar| scalar.value(text))
    }
}

/// A list or a table as the file has it: `["14d", "2d"]`, `{ rows = 100 }`.
fn as_in_file(text: &str) -> Option<Value> {
    if !text.starts_with(['[', '{']) {
        return None;
    }
    let read: toml::Table =
        toml::from_str(&format!("value = {text}")).ok().filter(|read: &toml::Table| read.len() == 1)?;
    serde_json::to_value(read.get("value")?).ok()
}

/// How the entries of a kind stand in `ebb.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A list of policies with names: `[[expire]]`.
    List(&'static str),
    /// A section for each name: `[once.orders]`.
    Named(&'static str),
    /// One section each: `[pacing]`.
    Sections(&'static [&'static str]),
}

impl Form {
    /// What stands at the top level of the file for it.
    pub(crate) fn sections(self) -> Vec<&'static str> {
        match self {
            Self::List(section) | Self::Named(section) => vec![section],
            Self::Sections(sections) => sections.to_vec(),
        }
    }
}

impl TryFrom<String> for Kind {
    type Error = Invalid;

    fn try_from(word: String) -> Result<Self, Invalid> {
        Self::parse(&word)
    }
}

impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A key with a single value, by its dotted path.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scalar {
    /// Always text.
    Text(&'static str),
    /// A number or a flag; what is neither stays text (`"off"`).
    Plain(&'static str),
}

impl Scalar {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Text(path) | Self::Plain(path) => path,
        }
    }

    pub(crate) fn value(self, text: &str) -> Value {
        let plain = match self {
            Self::Text(_) => None,
            Self::Plain(_) => serde_json::from_str::<Value>(text).ok().filter(|v| v.is_number() || v.is_boolean()),
        };
        plain.unwrap_or_else(|| Value::from(text))
    }
}

/// A policy that makes sense.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "a handful of them exist at a time, and nearly all are the large one")]
pub enum Policy {
    /// `[[expire]]`.
    Expire(Expire),
    /// `[[retain]]`.
    Retain(Retain),
    /// `[[partition]]`.
    Partition(Partition),
    /// `[[resources]]`.
    Resources(Resources),
    /// `[once.NAME]`.
    Once(OnceNamespace),
    /// `[[schedule]]`.
    Schedule(Schedule),
    /// `[sinks.NAME]`.
    Sink(Sink),
    /// `[pacing]`.
    Pacing(Pacing),
    /// `[keep]`.
    Keep(Keep),
    /// `[events]`.
    Events(Events),
}

impl Policy {
    /// Reads a spec. Every key that is wrong is in the error.
    pub fn parse(kind: Kind, name: &str, spec: &Spec) -> Result<Self, FieldErrors> {
        match (kind, name) {
            (Kind::Expire, _) => Expire::parse(name, spec).map(Self::Expire),
            (Kind::Retain, _) => Retain::parse(name, spec).map(Self::Retain),
            (Kind::Partition, _) => Partition::parse(name, spec).map(Self::Partition),
            (Kind::Resources, _) => Resources::parse(name, spec).map(Self::Resources),
            (Kind::Once, _) => OnceNamespace::parse(name, spec).map(Self::Once),
            (Kind::Schedule, _) => Schedule::parse(name, spec).map(Self::Schedule),
            (Kind::Sink, _) => Sink::parse(name, spec).map(Self::Sink),
            (Kind::Settings, "pacing") => Pacing::parse(spec).map(Self::Pacing),
            (Kind::Settings, "keep") => Keep::parse(spec).map(Self::Keep),
            (Kind::Settings, "events") => Events::parse(spec).map(Self::Events),
            (Kind::Settings, _) => Err(whole(format!("there are no settings called {name:?}"))),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Self::Expire(expire) => expire.name.as_str(),
            Self::Retain(retain) => retain.name.as_str(),
            Self::Partition(partition) => partition.name.as_str(),
            Self::Resources(resources) => resources.name.as_str(),
            Self::Once(once) => once.name.as_str(),
            Self::Schedule(schedule) => schedule.name.as_str(),
            Self::Sink(sink) => sink.name.as_str(),
            Self::Pacing(_) => "pacing",
            Self::Keep(_) => "keep",
            Self::Events(_) => "events",
        }
    }

    /// What sort it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Expire(_) => Kind::Expire,
            Self::Retain(_) => Kind::Retain,
            Self::Partition(_) => Kind::Partition,
            Self::Resources(_) => Kind::Resources,
            Self::Once(_) => Kind::Once,
            Self::Schedule(_) => Kind::Schedule,
            Self::Sink(_) => Kind::Sink,
            Self::Pacing(_) | Self::Keep(_) | Self::Events(_) => Kind::Settings,
        }
    }

    /// Whether it is switched on.
    pub fn enabled(&self) -> bool {
        match self {
            Self::Expire(expire) => expire.enabled,
            Self::Retain(retain) => retain.enabled,
            Self::Partition(partition) => partition.enabled,
            Self::Resources(resources) => resources.enabled,
            Self::Once(once) => once.enabled,
            Self::Schedule(schedule) => schedule.enabled,
            Self::Sink(sink) => sink.enabled,
            Self::Pacing(_) | Self::Keep(_) | Self::Events(_) => true,
        }
    }
}

fn whole(message: String) -> FieldErrors {
    FieldErrors(vec![FieldError { path: Vec::new(), spot: Spot::Value, message, hint: None }])
}

/// Reads the entry's name, which its spec may repeat.
fn read_name(reader: &mut Reader<'_>, name: &str) -> Option<Name> {
    if let Some(repeated) = reader.take("name")
        && repeated.as_str() != Some(name)
    {
        reader.refuse("name", Invalid::new(format!("`name` is {repeated}, but the policy is called {name:?}")));
    }
    name.parse().map_err(|invalid| reader.refuse("name", invalid)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The list that serves environment variables and the reader that serves everything must not drift apart.
    #[test]
    fn every_listed_scalar_is_a_key_and_every_key_is_listed() {
        let of = [
            (Kind::Expire, "k"),
            (Kind::Retain, "k"),
            (Kind::Partition, "k"),
            (Kind::Once, "k"),
            (Kind::Schedule, "k"),
            (Kind::Sink, "k"),
            (Kind::Settings, "events"),
            (Kind::Resources, "k"),
            (Kind::Settings, "pacing"),
            (Kind::Settings, "keep"),
        ];
        for (kind, name) in of {
            let mut spec = Spec::new();
            spec.insert("zzzzzzzz".into(), Value::Bool(true));
            let known = Policy::parse(kind, name, &spec).unwrap_err().0;
            let known = known.iter().find(|error| error.message.contains("zzzzzzzz")).unwrap().hint.clone().unwrap();
            let known: Vec<&str> = known.strip_prefix("known here: ").unwrap().split(", ").collect();
            let first = |path: &'static str| path.split('.').next().unwrap();
            let listed: Vec<&str> = kind.scalars(name).iter().map(|scalar| first(scalar.path())).collect();
            for key in &known {
                assert!(*key == "name" || listed.contains(key), "{kind}: {key} is not listed");
            }
            for key in &listed {
                assert!(known.contains(key), "{kind}: {key} is listed and unknown");
            }
        }
    }

    #[test]
    fn a_kind_is_known_by_its_word() {
        assert_eq!(Kind::parse("expire").unwrap(), Kind::Expire);
        assert_eq!(Kind::parse("expires").unwrap_err().hint.unwrap(), "did you mean `expire`?");
    }

    #[test]
    fn a_text_becomes_what_its_key_holds() {
        assert_eq!(Kind::Expire.value("k", "batch.rows", "100"), Value::from(100));
        assert_eq!(Kind::Expire.value("k", "enabled", "false"), Value::from(false));
        assert_eq!(Kind::Expire.value("k", "description", "100"), Value::from("100"));
        assert_eq!(Kind::Settings.value("pacing", "max_lock_waiters", "off"), Value::from("off"));
    }

    proptest! {
        #[test]
        fn no_value_makes_it_panic(text in "\\PC{0,20}", number in any::<i64>(), share in any::<f64>(), which in 0_usize..4) {
            for (kind, name) in [(Kind::Expire, "k"), (Kind::Retain, "k"), (Kind::Partition, "k"), (Kind::Once, "k"), (Kind::Sink, "k"), (Kind::Resources, "k"), (Kind::Settings, "pacing"), (Kind::Settings, "keep")] {
                for scalar in kind.scalars(name) {
                    let values: [Value; 4] = [text.as_str().into(), number.into(), share.into(), vec![number].into()];
                    let value = values[which].clone();
                    let mut keys: Vec<&str> = scalar.path().split('.').collect();
                    let last = keys.pop().unwrap();
                    let entry = Spec::from_iter([(last.to_owned(), value)]);
                    let spec = keys.pop().map_or(entry.clone(), |outer| Spec::from_iter([(outer.to_owned(), entry.into())]));
                    let _ = Policy::parse(kind, name, &spec).map_err(|errors| errors.to_string());
                }
            }
        }
    }
}
