//! Traces in memory.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::{Arc, Mutex, Once},
};

use lastword_model::trace::{Summary, check};
use serde_json::Value;
use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::client::Said;

tokio::task_local! {
    /// Where the connection that this task serves is recorded.
    static OWN: Trace;
}

/// Where each connection of this process is recorded.
static TRACES: Mutex<BTreeMap<u64, Trace>> = Mutex::new(BTreeMap::new());

/// The record of some connections.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Vec<u8>>>);

impl Trace {
    /// Records the connection that this future serves.
    pub(crate) async fn record<F: Future>(self, serve: F) -> F::Output {
        static ONCE: Once = Once::new();
        // One subscriber for the whole process, as in a program.
        ONCE.call_once(|| tracing_subscriber::registry().with(lastword::trace::layer(Recorder)).init());
        OWN.scope(self, serve).await
    }

    /// What was recorded must be right.
    pub(crate) fn checked(&self) -> Summary {
        let trace = self.0.lock().unwrap();
        check(&trace[..]).unwrap_or_else(|error| panic!("{error}\n{}", String::from_utf8_lossy(&trace)))
    }

    /// The responses that were to be written, in their order: the id as it came, and what is said.
    pub(crate) fn responses(&self) -> Vec<(String, Said)> {
        let effects = self.lines().into_iter().flat_map(|line| line["effects"].as_array().cloned().unwrap_or_default());
        let responses = effects.filter_map(|effect| {
            let respond = effect.get("Respond")?;
            Some((respond["id"].as_str().unwrap().to_owned(), Said::in_trace(&respond["answer"])))
        });
        responses.collect()
    }

    /// The names of the steps that were taken.
    pub(crate) fn step_names(&self) -> Vec<String> {
        let name = |line: Value| match &line["step"] {
            Value::Object(step) => step.keys().next().cloned(),
            step => step.as_str().map(str::to_owned),
        };
        self.lines().into_iter().filter_map(name).collect()
    }

    fn lines(&self) -> Vec<Value> {
        let trace = self.0.lock().unwrap();
        serde_json::Deserializer::from_slice(&trace).into_iter().map(Result::unwrap).collect()
    }
}

/// Gives each line to the trace of its connection.
struct Recorder;

impl Write for Recorder {
    /// The layer writes each line in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let connection = connection(line);
        let trace = match TRACES.lock().unwrap().entry(connection) {
            std::collections::btree_map::Entry::Occupied(known) => known.get().clone(),
            // Its first line is written by whoever begins to serve it.
            std::collections::btree_map::Entry::Vacant(new) => new.insert(OWN.with(Trace::clone)).clone(),
        };
        trace.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn connection(line: &[u8]) -> u64 {
    let digits = line.strip_prefix(b"{\"connection\":").unwrap();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap();
    std::str::from_utf8(&digits[..end]).unwrap().parse().unwrap()
}
