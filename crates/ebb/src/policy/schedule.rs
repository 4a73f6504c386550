//! `[[schedule]]`: an event that comes again by the calendar. Invariants: its pattern has a time to come; what it sends is
//! JSON of at most 1 MB.

use serde_json::Value;

use super::cron::Cron;
use super::field::Invalid;
use super::{FieldErrors, Name, Reader, Scalar, Spec, Term, Zone, read_name};

/// A recurring event.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Its name.
    pub name: Name,
    /// What it is for, in words.
    pub description: Option<String>,
    /// When it fires …
    pub cron: Cron,
    /// … by the clocks of this zone.
    pub zone: Zone,
    /// What becomes of times at which no node was there.
    pub missed: Missed,
    /// An occurrence that is later than this is skipped.
    pub max_late: Option<Term>,
    /// Where it goes.
    pub sink: String,
    /// What it says.
    pub payload: Value,
    /// Whether it fires.
    pub enabled: bool,
}

/// What becomes of missed occurrences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// Each is made up for.
    All,
    /// Only the latest is.
    Latest,
    /// None is.
    Skip,
}

impl Missed {
    const WORDS: [(&str, Missed); 3] = [("all", Missed::All), ("latest", Missed::Latest), ("skip", Missed::Skip)];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Latest => "latest",
            Self::Skip => "skip",
        }
    }

    /// What a word of the database means.
    pub(crate) fn parse(word: &str) -> Self {
        Self::WORDS.into_iter().find(|(name, _)| *name == word).map_or(Self::All, |(_, missed)| missed)
    }
}

pub(super) const SCALARS: &[Scalar] = &[
    Scalar::Text("description"),
    Scalar::Text("cron"),
    Scalar::Text("zone"),
    Scalar::Text("missed"),
    Scalar::Text("max_late"),
    Scalar::Text("sink"),
    Scalar::Text("payload"),
    Scalar::Plain("enabled"),
];

const LARGEST_PAYLOAD: usize = 1 << 20;

impl Schedule {
    pub(super) fn parse(name: &str, spec: &Spec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(spec);
        let r = &mut reader;
        let name = read_name(r, name);
        let description = r.text("description", "\"the weekly report\"");
        let cron = r
            .required("cron", "\"0 3 * * SUN\"")
            .and_then(|text| text.parse::<Cron>().map_err(|invalid| r.refuse("cron", invalid)).ok());
        let zone = r.parse("zone", "\"Asia/Jakarta\"").unwrap_or_else(Zone::utc);
        let missed = r.choice("missed", &Missed::WORDS).unwrap_or(Missed::All);
        let max_late = r.term("max_late", "\"24h\"");
        let sink = r.required("sink", "\"ops\"");
        let payload = r.take("payload").cloned().unwrap_or_else(|| Value::Object(Spec::new()));
        if payload.to_string().len() > LARGEST_PAYLOAD {
            r.refuse("payload", Invalid::new("`payload` has more than 1 MB").hint("say where the data is instead"));
        }
        let enabled = r.flag("enabled", true);
        reader.finish()?;
        match (name, cron, sink) {
            (Some(name), Some(cron), Some(sink)) => {
                Ok(Self { name, description, cron, zone, missed, max_late, sink, payload, enabled })
            }
            _ => Err(super::whole("a name, a cron pattern and a sink are needed".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(spec: Value) -> Result<Schedule, FieldErrors> {
        Schedule::parse("weekly", spec.as_object().unwrap())
    }

    #[test]
    fn a_schedule_has_defaults() {
        let schedule = parse(json!({ "cron": "0 3 * * SUN", "sink": "ops" })).unwrap();
        assert_eq!((schedule.zone.name(), schedule.missed, schedule.max_late), ("UTC", Missed::All, None));
        assert_eq!(schedule.payload, json!({}));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (bad, says) in [
            (json!({ "sink": "ops" }), "`cron` is missing"),
            (json!({ "cron": "0 3 * * *" }), "`sink` is missing"),
            (json!({ "cron": "0 0 31 2 *", "sink": "ops" }), "never fires"),
            (json!({ "cron": "daily", "sink": "ops" }), "no cron pattern"),
            (json!({ "cron": "@daily", "sink": "ops", "zone": "Mars/Olympus" }), "no time zone"),
            (json!({ "cron": "@daily", "sink": "ops", "missed": "some" }), "`missed` cannot be"),
            (json!({ "cron": "@daily", "sink": "ops", "max_late": "0s" }), "more than nothing"),
            (json!({ "cron": "@daily", "sink": "ops", "payload": "x".repeat(LARGEST_PAYLOAD) }), "more than 1 MB"),
        ] {
            let error = parse(bad.clone()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
