//! Checks what a running program recorded: every step must be allowed, every effect equal, every promise kept.
//!
//! A trace is NDJSON. Each connection opens with a line of its limits; then follows a line a step, in the exact order in
//! which the machine took them:
//!
//! ```json
//! {"connection":1,"limits":{"requests_in_flight_max":65536,"notifications_queued_max":1024}}
//! {"connection":1,"step":{"Started":1},"effects":[{"Run":1}],"digest":"0123456789abcdef"}
//! ```

use std::{collections::BTreeMap, io::BufRead};

use lastword_core::{Connection, Effect, Limits, Step};
use serde::Deserialize;

use crate::{
    message::Message,
    promises::{self, Promise},
    world::{Move, World},
};

/// What a trace holds, once it is known to be right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many connections.
    pub connections: usize,
    /// How many steps.
    pub steps: usize,
}

/// The first line of a trace that is not right.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It could not be read.
    #[error("it could not be read: {0}")]
    Read(#[from] std::io::Error),
    /// It is no line of a trace.
    #[error("it is no line of a trace: {0}")]
    Parse(#[from] serde_json::Error),
    /// Its connection has no line of limits before it.
    #[error("connection {0} has no line of limits before it")]
    UnknownConnection(u64),
    /// Nothing owes the step.
    #[error("{0}")]
    NotAllowed(#[from] lastword_core::NotOwed),
    /// The machine wants something else done.
    #[error("after {step:?} the machine wants {computed:?}, and the trace says {recorded:?}")]
    OtherEffects {
        /// The step.
        step: Box<Step>,
        /// What the machine wants.
        computed: Vec<Effect>,
        /// What the trace says.
        recorded: Vec<Effect>,
    },
    /// The machine's state is another one.
    #[error("after this step the state has the digest {computed}, and the trace says {recorded}")]
    OtherState {
        /// The digest of the machine.
        computed: String,
        /// What the trace says.
        recorded: String,
    },
    /// A promise is broken.
    #[error("after this step the promise {0} is broken")]
    Broken(&'static str),
    /// The trace is empty: nothing was checked.
    #[error("the trace ends before its first step: nothing was checked")]
    Empty,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    connection: u64,
    limits: Option<RecordedLimits>,
    step: Option<Step>,
    #[serde(default)]
    effects: Vec<Effect>,
    digest: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedLimits {
    requests_in_flight_max: usize,
    notifications_queued_max: usize,
}

/// Reads a trace to its end.
///
/// # Errors
///
/// [`TraceError`] with the first line that is not right.
pub fn check(trace: impl BufRead) -> Result<Summary, TraceError> {
    let mut connections = BTreeMap::new();
    let mut summary = Summary::default();
    let mut last = 0;
    for (number, line) in (1..).zip(trace.lines()) {
        last = number;
        let at = |problem: Problem| TraceError { line: number, problem };
        let line = line.map_err(|problem| at(problem.into()))?;
        let line: Line = serde_json::from_str(&line).map_err(|problem| at(problem.into()))?;
        if let Some(recorded) = line.limits {
            let mut limits = Limits::default();
            limits.requests_in_flight_max = recorded.requests_in_flight_max;
            limits.notifications_queued_max = recorded.notifications_queued_max;
            connections.insert(line.connection, Witness::new(limits));
            summary.connections += 1;
        }
        if let Some(step) = line.step {
            let witness =
                connections.get_mut(&line.connection).ok_or_else(|| at(Problem::UnknownConnection(line.connection)))?;
            witness.take(step, &line.effects, line.digest.as_deref()).map_err(at)?;
            summary.steps += 1;
        }
    }
    if summary.steps == 0 {
        return Err(TraceError { line: last, problem: Problem::Empty });
    }
    Ok(summary)
}

/// One connection of a trace: a machine of our own beside the recorded one, and what its messages have met.
#[derive(Debug)]
pub struct Witness {
    messages: Vec<Message>,
    world: World,
    promises: &'static [Promise],
}

impl Witness {
    /// A connection on which nothing has happened.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { messages: Vec::new(), world: World::new(Connection::new(limits), 0), promises: promises::TURNS }
    }

    /// Takes a recorded step.
    ///
    /// # Errors
    ///
    /// [`Problem`] where the step is not allowed, has other effects or another state than recorded, or breaks a promise.
    pub fn take(&mut self, step: Step, recorded: &[Effect], digest: Option<&str>) -> Result<(), Problem> {
        let message = match Message::of(&step) {
            Some(message) => {
                self.messages.push(message);
                self.world.fates.push(crate::Fate::default());
                self.messages.len() - 1
            }
            None => self.message_of(&step),
        };
        let action = Move { step, message };
        let computed = self.world.take(&self.messages, &action)?;
        if computed != recorded {
            return Err(Problem::OtherEffects { step: Box::new(action.step), computed, recorded: recorded.to_vec() });
        }
        if let Some(recorded) = digest {
            let computed = self.world.core.digest();
            if computed != recorded {
                return Err(Problem::OtherState { computed, recorded: recorded.to_owned() });
            }
        }
        if let Some(broken) = self.promises.iter().find(|promise| !promise.holds(&self.messages, &self.world)) {
            return Err(Problem::Broken(broken.name));
        }
        self.forget();
        Ok(())
    }

    /// The message that a step of a task is about. A call from outside of any handler is about none: it changes nothing
    /// that a promise looks at, so that any message may stand for it.
    fn message_of(&self, step: &Step) -> usize {
        let arrival = match step {
            Step::Started(arrival) | Step::Returned(arrival, _) | Step::GraceOver(arrival) => Some(*arrival),
            Step::Called { by } => *by,
            Step::ResponseArrived { call } | Step::CallDropped { call } => {
                self.world.core.calls().find(|(open, _)| open == call).and_then(|(_, by)| by)
            }
            _ => None,
        };
        arrival.and_then(|arrival| self.world.message_of(arrival)).unwrap_or(usize::MAX)
    }

    /// Forgets what no promise can look at any more: messages that are done, unless an older one is still in flight, which
    /// they may have ended.
    fn forget(&mut self) {
        let oldest =
            (0..self.messages.len()).find(|message| !self.world.is_done(*message)).unwrap_or(self.messages.len());
        if oldest == 0 {
            return;
        }
        self.messages.drain(..oldest);
        self.world.fates.drain(..oldest);
        let oldest = u32::try_from(oldest).unwrap_or(u32::MAX);
        for fate in &mut self.world.fates {
            // Whatever ended a message had arrived after it, so that it is still there.
            fate.ended_by = fate.ended_by.saturating_sub(oldest);
            fate.late = fate.late.saturating_sub(oldest);
        }
    }
}
