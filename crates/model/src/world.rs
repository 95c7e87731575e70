//! A state of the model: the real machine, and what each message has met.

use std::collections::BTreeMap;

use lastword_core::{Answer, Arrival, CallId, Connection, Effect, NotOwed, Outcome, Overlap, Stage, Step};

use crate::message::{Kind, Message};

/// One move: a step of the machine, and the message that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Move<S = Step> {
    /// The step.
    pub step: S,
    /// The message, from 0.
    pub message: usize,
}

/// What a response said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Said {
    /// The handler's result.
    Result,
    /// The handler's error.
    Error,
    /// `stopReason: cancelled`.
    Cancelled,
    /// The error -32800.
    RequestCancelled,
    /// An error that says why the request was not taken in.
    Refused,
}

/// What a message has met so far. It remembers no more than the promises need, so that two histories that no promise tells
/// apart are one state.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fate {
    /// Its place in the order of arrival, from 1; 0 where it has not arrived.
    pub at: u32,
    /// The number under which the machine took it in, if it did.
    pub arrival: Option<Arrival>,
    /// The message that ended it, from 1; 0 where none did.
    pub ended_by: u32,
    /// While its handler runs: the token has fired.
    pub fired: bool,
    /// A message, from 1, that should have kept its handler from starting: it had arrived before. 0 where there is none.
    pub late: u32,
    /// The first response to it.
    pub said: Option<Said>,
    /// How many responses it got.
    pub responses: u8,
    /// A response to it did not carry the id exactly as it came.
    pub misaddressed: bool,
    /// How far its call to the peer has come, the last one where there are several.
    pub call: Call,
    /// Where it is a notification: its handler ran.
    pub ran: bool,
}

/// How far a call to the peer has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// There is none.
    #[default]
    None,
    /// The peer has not answered.
    Waiting,
    /// It has, and the response waits for its place.
    Kept,
    /// The response was given, and the caller has not resumed.
    Given,
    /// The caller has resumed, has learned that the peer is gone, or is not waited for any more.
    Over,
    /// The caller has given up.
    Dropped,
}

impl Call {
    /// Nobody waits for it any more.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Over | Self::Dropped)
    }
}

/// A call that is not over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenCall {
    /// The message whose handler made it, or which is the call.
    pub message: usize,
    /// The place of the last message that had arrived before the response, once that is there.
    pub after: Option<u32>,
}

/// What has happened that no state shows any more, and that a promise forbids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Breaches {
    /// A response was given before a notification that had arrived before it was handled.
    pub response_early: bool,
    /// A request started before a notification that had arrived before it was handled.
    pub request_early: bool,
    /// A notification's handler started before a caller whose response had arrived before it resumed.
    pub caller_overtaken: bool,
    /// The connection was closed although the reader could have waited.
    pub closed_early: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    /// The machine itself.
    pub core: Connection,
    /// What each message has met, by message.
    pub fates: Vec<Fate>,
    /// The machine of the agent's side, where the first one is the client's side of a guard: the calls are its.
    pub back: Option<Connection>,
    /// The calls that are not over.
    pub calls: BTreeMap<CallId, OpenCall>,
    /// What should not have happened.
    pub breaches: Breaches,
}

impl World {
    /// A world in which nothing has happened.
    #[must_use]
    pub fn new(core: Connection, messages: usize) -> Self {
        let fates = vec![Fate::default(); messages];
        Self { core, fates, back: None, calls: BTreeMap::new(), breaches: Breaches::default() }
    }

    /// The same in front of an agent, as a guard stands.
    #[must_use]
    pub fn guarding(self, back: Connection) -> Self {
        Self { back: Some(back), ..self }
    }

    /// The machine that calls the peer that these worlds have calls to.
    #[must_use]
    pub fn caller_core(&self) -> &Connection {
        self.back.as_ref().unwrap_or(&self.core)
    }

    /// Whether a step is one of the machine on the agent's side.
    #[must_use]
    pub fn is_of_back(&self, step: &Step) -> bool {
        self.back.is_some()
            && matches!(
                step,
                Step::Called { .. }
                    | Step::ResponseArrived { .. }
                    | Step::CallDropped { .. }
                    | Step::Resumed { .. }
                    | Step::ResumeOver { .. }
            )
    }

    /// Lets the machine take the step, and remembers what that means for each message.
    ///
    /// # Errors
    ///
    /// [`NotOwed`] where the machine refuses the step; nothing has changed then.
    pub fn take(&mut self, messages: &[Message], action: &Move) -> Result<Vec<Effect>, NotOwed> {
        let of_back = self.is_of_back(&action.step);
        let machine = self.back.as_mut().filter(|_| of_back).unwrap_or(&mut self.core);
        let effects = machine.apply(action.step.clone())?.into_vec();
        self.observe(messages, action, &effects);
        Ok(effects)
    }

    /// Remembers what a step that the machine in `core` has just taken means for each message.
    pub fn observe(&mut self, messages: &[Message], action: &Move, effects: &[Effect]) {
        if action.step.is_arrival() && !matches!(action.step, Step::ResponseArrived { .. }) {
            self.fates[action.message].at = self.last_place() + 1;
        }
        if let Some(fate) = self.fates.get_mut(action.message) {
            match action.step {
                Step::Called { .. } => fate.call = Call::Over,
                Step::CallDropped { .. } => fate.call = Call::Dropped,
                _ => {}
            }
        }
        if let Step::ResponseArrived { call } = &action.step {
            let last = self.last_place();
            if let Some(open) = self.calls.get_mut(call) {
                open.after = Some(last);
            }
        }
        let number = u32::try_from(action.message.wrapping_add(1)).expect("messages are few");
        // Of the calls first: what starts after them in the same step is to find the callers as they are now.
        for effect in effects {
            match effect {
                Effect::Call(call) => {
                    self.calls.insert(*call, OpenCall { message: action.message, after: None });
                }
                Effect::Resume(call) => self.given(*call),
                _ => {}
            }
        }
        self.forget_calls();
        for effect in effects {
            match effect {
                Effect::Accept(arrival) => self.fates[action.message].arrival = Some(*arrival),
                Effect::Start(arrival) => self.starting(messages, *arrival),
                Effect::Close(_) => self.breaches.closed_early |= !self.core.waits_for_peer(),
                Effect::Run(arrival) => {
                    if let Some(message) = self.message_of(*arrival) {
                        self.fates[message].ran = messages[message].is_queued();
                        self.fates[message].late = self.ender_of(messages, message).map_or(0, |ender| ender + 1);
                    }
                }
                Effect::Fire(arrival, _) => {
                    if let Some(message) = self.message_of(*arrival) {
                        self.fates[message].fired = true;
                    }
                }
                Effect::Respond { id, arrival, answer } => {
                    let message = arrival.map_or(Some(action.message), |arrival| self.message_of(arrival));
                    let Some(message) = message else { continue };
                    let fate = &mut self.fates[message];
                    fate.responses = fate.responses.saturating_add(1);
                    fate.misaddressed |= messages[message].id.as_ref().is_none_or(|sent| sent.raw() != id.raw());
                    let said = match answer {
                        Answer::Returned(Outcome::Succeeded) => Said::Result,
                        Answer::Returned(Outcome::Failed) => Said::Error,
                        Answer::Cancelled => Said::Cancelled,
                        Answer::RequestCancelled => Said::RequestCancelled,
                        _ => Said::Refused,
                    };
                    if fate.ended_by == 0 && matches!(said, Said::Cancelled | Said::RequestCancelled) {
                        fate.ended_by = number;
                    }
                    fate.said.get_or_insert(said);
                }
                _ => {}
            }
        }
        for fate in &mut self.fates {
            let Some(arrival) = fate.arrival else { continue };
            if fate.ended_by == 0 && self.core.ended(arrival).is_some() {
                fate.ended_by = number;
            }
            // A token matters only while the handler runs.
            fate.fired &= self.core.is_running(arrival);
        }
    }

    /// The place of the last message that arrived, as far as anything here tells it.
    fn last_place(&self) -> u32 {
        let places = self.fates.iter().map(|fate| fate.at);
        places.chain(self.calls.values().filter_map(|call| call.after)).max().unwrap_or(0)
    }

    /// A caller gets its response. Whoever runs first in the queue may have its own at once.
    fn given(&mut self, call: CallId) {
        let Some(OpenCall { message, after: Some(after) }) = self.calls.get(&call).cloned() else { return };
        let is_own = |earlier: Arrival| self.fates.get(message).is_some_and(|fate| fate.arrival == Some(earlier));
        let behind = self.first_unhandled().is_some_and(|(first, place)| place <= after && !is_own(first));
        self.breaches.response_early |= behind && !self.core.waits_for_peer();
    }

    /// The task of a message starts.
    fn starting(&mut self, messages: &[Message], arrival: Arrival) {
        let Some(message) = self.message_of(arrival) else { return };
        let place = self.fates[message].at;
        if messages[message].is_queued() {
            self.breaches.caller_overtaken |=
                self.calls.values().any(|call| call.after.is_some_and(|after| after < place));
        } else {
            let behind = self.first_unhandled().is_some_and(|(_, first)| first < place);
            self.breaches.request_early |= behind && !self.core.waits_for_peer();
        }
    }

    /// The first notification whose handler has not returned, and its place.
    fn first_unhandled(&self) -> Option<(Arrival, u32)> {
        let first = self.core.first_notification()?;
        Some((first, self.fates[self.message_of(first)?].at))
    }

    /// Keeps what the machine keeps of the calls.
    fn forget_calls(&mut self) {
        let core = self.back.as_ref().unwrap_or(&self.core);
        self.calls.retain(|call, open| {
            let now = if core.awaits_response(*call) {
                Call::Waiting
            } else if core.is_given(*call) {
                Call::Given
            } else if core.is_open(*call) {
                Call::Kept
            } else {
                Call::Over
            };
            if let Some(fate) = self.fates.get_mut(open.message).filter(|fate| fate.call != Call::Dropped) {
                fate.call = now;
            }
            now != Call::Over
        });
    }

    /// How far the handler of a message has come, in the words of the specification.
    #[must_use]
    pub fn task(&self, message: usize) -> &'static str {
        let fate = &self.fates[message];
        if fate.at == 0 {
            return "absent";
        }
        match fate.arrival.and_then(|arrival| self.core.stage(arrival)) {
            None => "done",
            Some(Stage::Held) => "held",
            Some(Stage::Starting) => "starting",
            Some(Stage::Running) if self.calls(message) => "calling",
            Some(Stage::Running) => "running",
        }
    }

    /// Whether the handler of a message waits for a call of its own.
    #[must_use]
    pub fn calls(&self, message: usize) -> bool {
        let arrival = self.fates[message].arrival;
        arrival.is_some() && self.core.calls().any(|(_, by)| by == arrival)
    }

    /// Whether a message has arrived and nothing of it is left in the machine.
    #[must_use]
    pub fn is_done(&self, message: usize) -> bool {
        self.task(message) == "done"
    }

    /// Whether a message was not taken in.
    #[must_use]
    pub fn is_refused(&self, message: usize) -> bool {
        self.fates[message].said == Some(Said::Refused)
    }

    /// Whether both have arrived, the first one earlier.
    #[must_use]
    pub fn is_before(&self, earlier: usize, later: usize) -> bool {
        let earlier = self.fates[earlier].at;
        earlier > 0 && earlier < self.fates[later].at
    }

    /// The message that the machine took in under this number.
    #[must_use]
    pub fn message_of(&self, arrival: Arrival) -> Option<usize> {
        self.fates.iter().position(|fate| fate.arrival == Some(arrival))
    }

    /// Whether nothing of a message is left: its handler and its response, or its call, are over.
    #[must_use]
    pub fn is_past(&self, message: usize) -> bool {
        self.is_done(message) || (self.fates[message].at == 0 && self.fates[message].call.is_over())
    }

    /// Whether a message was read and is gone, without a handler that ran, an answer, or a closed connection that says why.
    #[must_use]
    pub fn is_dropped(&self, messages: &[Message], message: usize) -> bool {
        let fate = &self.fates[message];
        let is_accounted_for = if messages[message].is_queued() {
            fate.ran || (fate.arrival.is_none() && self.core.is_closed())
        } else {
            !messages[message].is_request() || fate.said.is_some()
        };
        self.is_done(message) && !is_accounted_for
    }

    /// The message that a call belongs to.
    #[must_use]
    pub fn caller(&self, call: CallId) -> Option<usize> {
        self.calls.get(&call).map(|open| open.message)
    }

    /// The first message that arrived after this one and ends it, by what the protocol says.
    fn ender_of(&self, messages: &[Message], ended: usize) -> Option<u32> {
        let target = &messages[ended];
        (0..messages.len())
            .filter(|ender| self.is_before(ended, *ender) && must_end(target, &messages[*ender]))
            .filter(|ender| !messages[*ender].is_prompt() || self.core.limits().overlap == Overlap::Replace)
            .filter(|ender| !(messages[*ender].is_prompt() && self.is_refused(*ender)))
            .min_by_key(|ender| self.fates[*ender].at)
            .and_then(|ender| u32::try_from(ender).ok())
    }
}

/// Whether a message ends a request that arrived before it.
fn must_end(earlier: &Message, later: &Message) -> bool {
    match later.kind {
        Kind::Prompt | Kind::CancelNotification | Kind::CancelRequest => {
            earlier.is_prompt() && earlier.session == later.session
        }
        Kind::RequestCancel => later.target.is_some() && earlier.id == later.target,
        Kind::InputEnd => earlier.is_prompt(),
        Kind::Request | Kind::Notification | Kind::Call => false,
    }
}
