//! A state of the model: the real machine, and what each message has met.

use lastword_core::{Answer, Arrival, Connection, Effect, NotOwed, Outcome, Stage, Step};

use crate::message::{Kind, Message};

/// One move: a step of the machine, and the message that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Move {
    /// The step.
    pub step: Step,
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
    /// Its handler has called the peer.
    pub called: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    /// The machine itself.
    pub core: Connection,
    /// What each message has met, by message.
    pub fates: Vec<Fate>,
}

impl World {
    /// A world in which nothing has happened.
    #[must_use]
    pub fn new(core: Connection, messages: usize) -> Self {
        Self { core, fates: vec![Fate::default(); messages] }
    }

    /// Lets the machine take the step, and remembers what that means for each message.
    ///
    /// # Errors
    ///
    /// [`NotOwed`] where the machine refuses the step; nothing has changed then.
    pub fn take(&mut self, messages: &[Message], action: &Move) -> Result<Vec<Effect>, NotOwed> {
        let effects = self.core.apply(action.step.clone())?.into_vec();
        self.observe(messages, action, &effects);
        Ok(effects)
    }

    /// Remembers what a step that the machine in `core` has just taken means for each message.
    pub fn observe(&mut self, messages: &[Message], action: &Move, effects: &[Effect]) {
        if action.step.is_arrival() && !matches!(action.step, Step::ResponseArrived { .. }) {
            let place = self.fates.iter().map(|fate| fate.at).max().unwrap_or(0) + 1;
            self.fates[action.message].at = place;
        }
        if let (Step::Called { .. }, Some(fate)) = (&action.step, self.fates.get_mut(action.message)) {
            fate.called = true;
        }
        let number = u32::try_from(action.message.wrapping_add(1)).expect("messages are few");
        for effect in effects {
            match effect {
                Effect::Accept(arrival) => self.fates[action.message].arrival = Some(*arrival),
                Effect::Run(arrival) => {
                    if let Some(message) = self.message_of(*arrival) {
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

    /// Whether the handler of a message waits for the peer.
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

    /// The first message that arrived after this one and ends it, by what the protocol says.
    fn ender_of(&self, messages: &[Message], ended: usize) -> Option<u32> {
        let target = &messages[ended];
        (0..messages.len())
            .filter(|ender| self.is_before(ended, *ender) && must_end(target, &messages[*ender]))
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
        Kind::Request | Kind::Notification => false,
    }
}
