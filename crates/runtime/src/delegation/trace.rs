//! Traces of the ticket service: as those of a connection, one event a step, under the lock.
//!
//! The target is [`TARGET`], and [`crate::trace::layer`] writes these events too. The first line of a service says its limits
//! and the rows that were stored when it began; each further line is a step with its effects and the digest of the state
//! after it:
//!
//! ```json
//! {"service":1,"limits":{"workers_max":256,...},"stored":[{"Worker":[1,{"lead":1,"life":"Alive"}]}]}
//! {"service":1,"step":"Restarted","effects":[{"Launch":1}],"digest":"77b3..."}
//! ```

use lastword_core::delegation::{Delegation, Effects, Limits, Step, Tables};
use tracing::Level;

use crate::trace::json;

/// The target of the events.
pub const TARGET: &str = "lastword::delegation";

pub(super) fn opened(service: u64, limits: &Limits, stored: &Tables) {
    if tracing::enabled!(target: TARGET, Level::TRACE) {
        let (limits, stored) = (json(limits), json(&stored.records().collect::<Vec<_>>()));
        tracing::trace!(target: TARGET, service, limits, stored);
    }
}

/// A step that is about to be applied while somebody listens.
pub(super) struct Record {
    step: String,
}

impl Record {
    pub(super) fn of(step: &Step) -> Option<Self> {
        tracing::enabled!(target: TARGET, Level::TRACE).then(|| Self { step: json(step) })
    }

    pub(super) fn emit(self, service: u64, effects: &Effects, core: &Delegation) {
        tracing::trace!(target: TARGET, service, step = self.step, effects = json(effects), digest = core.digest());
    }
}
