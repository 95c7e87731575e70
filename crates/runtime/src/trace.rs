//! Traces: the steps of a running connection, in the exact order in which they happened.
//!
//! Each step is an event of `tracing` with the target [`TARGET`], emitted under the connection's lock. [`layer`] writes
//! those events as lines of JSON. The first line of a connection says its limits, so that a checker can build the same
//! machine; each further line is a step:
//!
//! ```json
//! {"connection":1,"limits":{"requests_in_flight_max":65536,"notifications_queued_max":1024,"notifications_stuck_max":65536,"overlap":"replace"}}
//! {"connection":1,"step":{"RequestArrived":{"id":"1"}},"effects":[{"Accept":1},{"Start":1}],"digest":"77b3..."}
//! ```
//!
//! `step` and `effects` are the core's own words in serde's form, `digest` is the core's state after the step. Ids
//! are the JSON text of the id, in a string. Where nobody listens at the level TRACE, nothing is computed.

use std::{
    fmt,
    io::Write,
    sync::{Mutex, PoisonError},
};

use lastword_core::{Connection, Effects, Limits, Step};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, filter, layer::Context, registry::LookupSpan};

/// The target of the events.
pub const TARGET: &str = "lastword::step";

/// A connection begins.
pub(crate) fn opened(connection: u64, limits: &Limits) {
    if tracing::enabled!(target: TARGET, Level::TRACE) {
        let limits = format!(
            "{{\"requests_in_flight_max\":{},\"notifications_queued_max\":{},\"notifications_stuck_max\":{},\"overlap\":{}}}",
            limits.requests_in_flight_max,
            limits.notifications_queued_max,
            limits.notifications_stuck_max,
            json(&limits.overlap)
        );
        tracing::trace!(target: TARGET, connection, limits);
    }
}

/// A step that is about to be applied while somebody listens.
pub(crate) struct Record {
    step: String,
}

impl Record {
    pub(crate) fn of(step: &Step) -> Option<Self> {
        tracing::enabled!(target: TARGET, Level::TRACE).then(|| Self { step: json(step) })
    }

    pub(crate) fn emit(self, connection: u64, effects: &Effects, core: &Connection) {
        tracing::trace!(target: TARGET, connection, step = self.step, effects = json(effects), digest = core.digest());
    }
}

/// Steps and effects hold strings and numbers only, which always have a form in JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A layer that writes each step as one line of JSON, in order, and flushes it.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt as _;
/// let file = std::io::sink();
/// let subscriber = tracing_subscriber::registry().with(lastword::trace::layer(file));
/// # drop(subscriber);
/// ```
pub fn layer<S>(writer: impl Write + Send + 'static) -> impl Layer<S>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    Lines { writer: Mutex::new(writer) }.with_filter(filter::filter_fn(|event| is_step(event.target())))
}

/// Whether the events are steps, of a connection or of the ticket service.
fn is_step(target: &str) -> bool {
    #[cfg(all(unix, feature = "delegation"))]
    if target == crate::delegation::trace::TARGET {
        return true;
    }
    target == TARGET
}

struct Lines<W> {
    /// Shared by all connections of the process; a line is written in one piece.
    writer: Mutex<W>,
}

impl<S: Subscriber, W: Write + Send + 'static> Layer<S> for Lines<W> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line(String::from("{"));
        event.record(&mut line);
        line.0.push_str("}\n");
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = writer.write_all(line.0.as_bytes()).and_then(|()| writer.flush()) {
            tracing::error!(%error, "a line of the trace could not be written; the trace has a gap");
        }
    }
}

/// The fields of an event in their order: numbers and JSON as they are, only the digest in quotes.
struct Line(String);

impl Line {
    fn push(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        use fmt::Write as _;
        let comma = if self.0.len() > 1 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{comma}\"{}\":{value}", field.name());
    }
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, format_args!("{value}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "digest" {
            self.push(field, format_args!("\"{value}\""));
        } else {
            self.push(field, format_args!("{value}"));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, format_args!("{value:?}"));
    }
}
