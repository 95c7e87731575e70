//! Checks what a running program recorded: every step must be allowed, every effect equal, every promise kept.
//!
//! A trace is NDJSON. Each connection opens with a line of its limits; then follows a line a step, in the exact order in
//! which the machine took them:
//!
//! ```json
//! {"connection":1,"limits":{"requests_in_flight_max":65536,"notifications_queued_max":1024,"notifications_stuck_max":65536,"overlap":"replace"}}
//! {"connection":1,"step":{"Started":1},"effects":[{"Run":1}],"digest":"0123456789abcdef"}
//! ```
//!
//! A ticket service has lines of its own, which begin with `{"service":1`: its limits and the rows that were stored when it
//! began, then its steps. What leads and workers say may always come, every other step must be owed.
//!
//! What cannot be told from a trace: that the run went on after its last line; that a line was taken out whose step had
//! changed nothing (a `$/cancel_request` that found no request, say); and which one it was of several steps that have the
//! same effects and lead to the same state. Every other change makes a line wrong, since a digest is that of the whole state.

use std::{collections::BTreeMap, io::BufRead};

use lastword_core::{Answer, Connection, Effect, Limits, Overlap, Refusal, Step};
use serde::Deserialize;

use crate::{
    message::{Kind, Message},
    promises::{self, Promise},
    world::{Fate, Move, Said, World},
};

/// What a trace holds, once it is known to be right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many connections.
    pub connections: usize,
    /// How many ticket services.
    pub services: usize,
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
    /// It says something else than the two lines that there are.
    #[error("a line says either the limits of a connection, or a step with its effects and its digest")]
    Mixed,
    /// Its connection has no line of limits before it.
    #[error("connection or service {0} has no line of limits before it")]
    UnknownConnection(u64),
    /// Its connection has been opened before.
    #[error("connection or service {0} was opened before: two runs do not share a trace")]
    OpenedTwice(u64),
    /// Nothing owes the step.
    #[error("{0}")]
    NotAllowed(#[from] lastword_core::NotOwed),
    /// Nothing owes the step of the ticket service.
    #[error("nothing owes the step {0:?} of the ticket service in this state")]
    NotOwed(Box<lastword_core::delegation::Step>),
    /// The ticket service refuses the step.
    #[error("the ticket service refuses {0:?}: {1}")]
    Refused(Box<lastword_core::delegation::Step>, String),
    /// The machine wants something else done.
    #[error("after {step} the machine wants {computed}, and the trace says {recorded}")]
    OtherEffects {
        /// The step.
        step: String,
        /// What the machine wants.
        computed: String,
        /// What the trace says.
        recorded: String,
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
    #[error("after this line the promise {0} is broken")]
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
    effects: Option<Vec<Effect>>,
    digest: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedLimits {
    requests_in_flight_max: usize,
    notifications_queued_max: usize,
    notifications_stuck_max: usize,
    /// Without it, as in traces of the time before there was a choice, a newer prompt replaces the older one.
    #[serde(default)]
    overlap: Overlap,
}

/// Reads a trace to its end.
///
/// # Errors
///
/// [`TraceError`] with the first line that is not right.
pub fn check(trace: impl BufRead) -> Result<Summary, TraceError> {
    let mut checked = Checked::default();
    let mut last = 0;
    for (number, line) in (1..).zip(trace.split(b'\n')) {
        last = number;
        line.map_err(Problem::from)
            .and_then(|line| checked.take(&line))
            .map_err(|problem| TraceError { line: number, problem })?;
    }
    if checked.summary.steps == 0 {
        return Err(TraceError { line: last, problem: Problem::Empty });
    }
    Ok(checked.summary)
}

/// The lines so far, all of them right.
#[derive(Default)]
struct Checked {
    connections: BTreeMap<u64, Witness>,
    services: BTreeMap<u64, service::Witness>,
    summary: Summary,
}

impl Checked {
    fn take(&mut self, line: &[u8]) -> Result<(), Problem> {
        if line.starts_with(SERVICE) {
            return self.take_of_service(serde_json::from_slice(line)?);
        }
        let Line { connection, limits, step, effects, digest } = serde_json::from_slice(line)?;
        match (limits, step, effects, digest) {
            (Some(recorded), None, None, None) => {
                let mut limits = Limits::default();
                limits.requests_in_flight_max = recorded.requests_in_flight_max;
                limits.notifications_queued_max = recorded.notifications_queued_max;
                limits.notifications_stuck_max = recorded.notifications_stuck_max;
                limits.overlap = recorded.overlap;
                if self.connections.insert(connection, Witness::new(limits)).is_some() {
                    return Err(Problem::OpenedTwice(connection));
                }
                self.summary.connections += 1;
            }
            (None, Some(step), Some(effects), Some(digest)) => {
                let witness = self.connections.get_mut(&connection).ok_or(Problem::UnknownConnection(connection))?;
                witness.take(step, &effects, &digest)?;
                self.summary.steps += 1;
            }
            _ => return Err(Problem::Mixed),
        }
        Ok(())
    }

    fn take_of_service(&mut self, line: service::Line) -> Result<(), Problem> {
        let number = line.service;
        match line.said()? {
            service::Said::Opened(limits, stored) => {
                if self.services.contains_key(&number) {
                    return Err(Problem::OpenedTwice(number));
                }
                self.services.insert(number, service::Witness::new(limits, stored)?);
                self.summary.services += 1;
            }
            service::Said::Step(step, effects, digest) => {
                let witness = self.services.get_mut(&number).ok_or(Problem::UnknownConnection(number))?;
                witness.take(step, &effects, &digest)?;
                self.summary.steps += 1;
            }
        }
        Ok(())
    }
}

/// How a line of a ticket service begins; all others are of connections.
const SERVICE: &[u8] = b"{\"service\":";

/// One connection of a trace: a machine of our own beside the recorded one, and what its messages have met.
#[derive(Debug)]
pub struct Witness {
    messages: Vec<Message>,
    world: World,
    promises: Vec<&'static Promise>,
}

impl Witness {
    /// A connection on which nothing has happened.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            messages: Vec::new(),
            world: World::new(Connection::new(limits), 0),
            promises: promises::all().collect(),
        }
    }

    /// Takes a recorded step.
    ///
    /// # Errors
    ///
    /// [`Problem`] where the step is not allowed, has other effects or another state than recorded, or breaks a promise.
    pub fn take(&mut self, step: Step, recorded: &[Effect], digest: &str) -> Result<(), Problem> {
        let message = match Message::of(&step) {
            Some(message) => {
                self.messages.push(message);
                self.world.fates.push(Fate::default());
                self.messages.len() - 1
            }
            None => self.message_of(&step),
        };
        let action = Move { step, message };
        let computed = self.world.take(&self.messages, &action)?;
        if !are_same(&computed, recorded) {
            return Err(Problem::OtherEffects {
                step: format!("{:?}", action.step),
                computed: format!("{computed:?}"),
                recorded: format!("{recorded:?}"),
            });
        }
        let state = self.world.core.digest();
        if state != digest {
            return Err(Problem::OtherState { computed: state, recorded: digest.to_owned() });
        }
        if let [Effect::Respond { answer: Answer::Refused(Refusal::IdInUse), .. }] = computed[..] {
            // Whatever else it was to do, a request whose id is taken only gets its error.
            self.messages[message].kind = Kind::Request;
        }
        self.judge(&computed)?;
        self.forget();
        Ok(())
    }

    fn judge(&self, effects: &[Effect]) -> Result<(), Problem> {
        // Only what is done has been forgotten, and what is done has had its response.
        if effects.iter().any(|effect| match effect {
            Effect::Respond { arrival: Some(arrival), .. } => self.world.message_of(*arrival).is_none(),
            _ => false,
        }) {
            return Err(Problem::Broken("AnsweredOnce"));
        }
        match self.promises.iter().find(|promise| !promise.holds(&self.messages, &self.world)) {
            Some(broken) => Err(Problem::Broken(broken.name)),
            None => Ok(()),
        }
    }

    /// The message that a step of a task is about; of a call that outlived its handler, none.
    fn message_of(&self, step: &Step) -> usize {
        let arrival = match step {
            Step::Started(arrival) | Step::Returned(arrival, _) | Step::GraceOver(arrival) => Some(*arrival),
            Step::Called { by } => *by,
            Step::ResponseArrived { call }
            | Step::CallDropped { call }
            | Step::Resumed { call }
            | Step::ResumeOver { call } => return self.world.caller(*call).unwrap_or(usize::MAX),
            _ => None,
        };
        arrival.and_then(|arrival| self.world.message_of(arrival)).unwrap_or(usize::MAX)
    }

    /// Forgets what no promise can look at any more, so that a witness is as small as its machine: it keeps the messages
    /// that are in flight, and of those that are done the ones that ended a kept one.
    ///
    /// A promise was judged for a message when it was done, and nothing of that can change later but that it is answered
    /// again, which [`Witness::judge`] sees. And whoever else should have ended a message that is in flight arrived when it
    /// had been ended, or the promise was broken then.
    fn forget(&mut self) {
        let in_flight: Vec<usize> = (0..self.messages.len()).filter(|message| !self.world.is_past(*message)).collect();
        let ended_by = |message: &usize| (self.world.fates[*message].ended_by as usize).checked_sub(1);
        let mut kept: Vec<usize> = in_flight.iter().copied().chain(in_flight.iter().filter_map(ended_by)).collect();
        kept.sort_unstable();
        kept.dedup();
        if kept.len() == self.messages.len() {
            return;
        }
        let fates = kept.iter().map(|message| {
            let ender = ended_by(message).and_then(|ender| kept.binary_search(&ender).ok());
            let mut fate = self.world.fates[*message].clone();
            fate.late = 0;
            fate.ended_by = ender.map_or(0, |ender| u32::try_from(ender + 1).expect("messages are few"));
            if in_flight.binary_search(message).is_err() {
                // What is done is kept for what it ended; its own end was judged.
                fate.ended_by = 0;
                fate.said = fate.said.map(|said| if said == Said::Refused { said } else { Said::Result });
            }
            fate
        });
        self.world.fates = fates.collect();
        for call in self.world.calls.values_mut() {
            // A call may outlive the handler that made it.
            call.message = kept.binary_search(&call.message).unwrap_or(usize::MAX);
        }
        self.messages = kept.iter().map(|message| self.messages[*message].clone()).collect();
    }
}

/// Whether effects are the same to the byte; ids that are equal may still be written in different ways.
fn are_same(computed: &[Effect], recorded: &[Effect]) -> bool {
    let raw = |effect: &Effect| match effect {
        Effect::Respond { id, .. } => Some(id.raw().to_owned()),
        _ => None,
    };
    computed == recorded && computed.iter().map(raw).eq(recorded.iter().map(raw))
}

mod service;
#[cfg(test)]
mod tests;
