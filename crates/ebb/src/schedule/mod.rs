//! schedule: what is due gets delivered, in order, also after a day of downtime. The functions of the `ebb` schema take
//! events in; on every node a desk claims what is due, hands it to sinks and writes down what came of it.

mod body;
mod desk;
mod event;
mod fire;
mod keep;
mod lane;
mod look;
mod page;
mod recorder;
mod rest;
mod service;
pub mod sink;
mod store;
mod tally;

use std::collections::HashMap;
use std::sync::Arc;

pub use event::{Event, Events, Yearly};
pub use look::{EventRow, Filter, Occurrence, RecurringRow, Shown, State};
pub use page::{Cursor, Lateness};

pub(crate) use fire::follow;
pub use look::{EventsStatus, SinkStatus};
pub(crate) use look::{dead, observe, waiting};
pub(crate) use service::{Dispatch, Setup};

/// What the duty is called where a policy's name could stand: `--only events`, `ebb pause events`.
pub(crate) const POLICY: &str = "events";

/// Functions of the embedding program, by the sink they stand for.
pub(crate) type Handlers = HashMap<String, Arc<dyn sink::Sink>>;
