//! The sinks of a desk: a lane for each, opened when it is new or changed, closed when it is gone.

use serde_json::Value;

use super::Desk;
use crate::Result;
use crate::policy;
use crate::schedule::lane::Lane;
use crate::schedule::sink::Outlet;
use crate::schedule::store::Ending;

impl Desk {
    /// Opens sinks that are new or changed, and closes those that are gone.
    pub(super) fn follow(&mut self) {
        if !self.setup.has_changed().unwrap_or(false) {
            return;
        }
        let Some(setup) = self.setup.borrow_and_update().clone() else { return };
        self.tally.late_after = setup.events.late_after;
        for (sink, stored) in &setup.sinks {
            let name = sink.name.to_string();
            let samples = setup.samples.get(&name).cloned().unwrap_or_default();
            if self.lanes.get(&name).is_some_and(|lane| {
                lane.sink == *sink && lane.stored.version == stored.version && lane.samples == samples
            }) {
                continue;
            }
            match self.open(sink, &samples) {
                Ok(outlet) => {
                    let mut lane = Lane::new(sink.clone(), stored.clone(), samples, outlet);
                    if let Some(before) = self.lanes.remove(&name) {
                        before.outlet.close();
                        (lane.queue, lane.sending, lane.recording) = (before.queue, before.sending, before.recording);
                    }
                    self.lanes.insert(name, lane);
                }
                Err(error) => {
                    // Another node may have what is missing here.
                    tracing::error!(sink = name, error = %error, hint = error.hint(), "This node cannot deliver to a sink");
                    self.close(&name);
                }
            }
        }
        let gone: Vec<String> = self
            .lanes
            .keys()
            .filter(|name| !setup.sinks.iter().any(|(sink, _)| sink.name.as_str() == *name))
            .cloned()
            .collect();
        gone.iter().for_each(|name| self.close(name));
    }

    fn open(&self, sink: &policy::Sink, samples: &[Value]) -> Result<Outlet> {
        let outlet = match self.handlers.get(sink.name.as_str()) {
            Some(handler) => Outlet::with_handler(sink, handler.clone()),
            None => Outlet::open(sink, &self.surroundings)?,
        };
        samples.iter().try_for_each(|sample| outlet.rehearse(sample))?;
        Ok(outlet)
    }

    pub(super) fn close(&mut self, name: &str) {
        let Some(lane) = self.lanes.remove(name) else { return };
        lane.outlet.close();
        for event in lane.queue {
            self.record(event.id, Ending::Released { counted: false });
        }
    }
}
