//! Log lines: JSON with the keys `time`, `level`, `msg` and then fields, or a line for people on a terminal.

use std::fmt;
use std::io::IsTerminal;

use ebb::config::{LogFormat, LogSettings};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, fmt as layer};

/// Installs the subscriber; logs go to standard error, so that standard output stays the command's own.
pub(crate) fn init(settings: &LogSettings) {
    // The server's own notices come through sqlx, and those of triggers may quote a row: its log has them, this one never.
    // Spans are for traces, and would stand before every line that is written inside of one.
    let quiet =
        |level: &str| EnvFilter::try_new(format!("sqlx=warn,{level},sqlx::postgres::notice=off,ebb::trace=off"));
    let filter = quiet(&settings.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let pretty = match settings.format {
        Some(LogFormat::Pretty) => true,
        Some(LogFormat::Json) => false,
        None => std::io::stderr().is_terminal(),
    };
    let lines = layer::layer().with_writer(std::io::stderr);
    let lines = if pretty { lines.with_target(false).compact().boxed() } else { lines.event_format(Json).boxed() };
    // A second call (in a test) keeps the first subscriber.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).with(crate::trace::layer()).try_init();
}

struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut line = serde_json::Map::new();
        line.insert("time".into(), jiff::Timestamp::now().to_string().into());
        line.insert("level".into(), event.metadata().level().as_str().into());
        line.insert("msg".into(), fields.message.into());
        line.extend(fields.rest);
        writeln!(writer, "{}", serde_json::Value::Object(line))
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: serde_json::Map<String, serde_json::Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: serde_json::Value) {
        match (field.name(), value) {
            ("message", serde_json::Value::String(message)) => self.message = message,
            (name, value) => {
                self.rest.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}
