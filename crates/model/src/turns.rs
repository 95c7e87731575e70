//! The model of the domain turns: the client of a configuration, and the machine itself.

use std::fmt::Write as _;

use lastword_core::{Connection, Limits, Outcome, RequestId, SessionId, Step};

use crate::{
    configuration::{Configuration, ConfigurationError},
    message::{Kind, Message},
    promises,
    world::{Move, Said, World},
};

/// The model of one configuration of the domain turns.
///
/// Left out, as in specs/turns/Turns.tla: what handlers do besides running, waiting for the peer and returning; a call
/// that its caller drops; a request id that is used twice at once.
#[derive(Debug, Clone)]
pub struct Turns {
    /// What the client sends.
    pub messages: Vec<Message>,
    one_at_a_time: bool,
    limits: Limits,
}

impl Turns {
    /// Reads the messages of a configuration. `limits` is where a mutant forces a guard; its bound on requests in flight
    /// is replaced by that of the configuration.
    ///
    /// # Errors
    ///
    /// [`ConfigurationError::Constant`] where a constant is missing or of the wrong kind.
    pub fn new(configuration: &Configuration, mut limits: Limits) -> Result<Self, ConfigurationError> {
        let kinds = [
            ("Prompts", Kind::Prompt),
            ("CancelNotifications", Kind::CancelNotification),
            ("CancelRequests", Kind::CancelRequest),
            ("Requests", Kind::Request),
            ("Notifications", Kind::Notification),
            ("InputEnds", Kind::InputEnd),
        ];
        let mut kind_of = std::collections::BTreeMap::new();
        for (name, kind) in kinds {
            for number in configuration.set(name)? {
                kind_of.insert(number, (kind, None));
            }
        }
        for pair in configuration.sets("RequestCancels")? {
            if let (Some(target), Some(number), 2) = (pair.first(), pair.last(), pair.len()) {
                kind_of.insert(*number, (Kind::RequestCancel, Some(RequestId::from(*target as u64))));
            }
        }
        let [session_b, deaf, fails] =
            [configuration.set("SessionB")?, configuration.set("Deaf")?, configuration.set("Fails")?];
        let waits = configuration.sets("Waits")?;
        let messages: Vec<Message> = kind_of
            .iter()
            .map(|(number, (kind, target))| {
                let is_request = matches!(kind, Kind::Prompt | Kind::CancelRequest | Kind::Request);
                let has_session = matches!(kind, Kind::Prompt | Kind::CancelNotification | Kind::CancelRequest);
                let queued = matches!(kind, Kind::Notification | Kind::CancelNotification);
                Message {
                    kind: *kind,
                    id: is_request.then(|| RequestId::from(*number as u64)),
                    session: has_session.then(|| SessionId::from(if session_b.contains(number) { "B" } else { "A" })),
                    target: target.clone(),
                    deaf: deaf.contains(number),
                    fails: fails.contains(number),
                    waits: waits
                        .iter()
                        .find(|wait| queued && wait.contains(number))
                        .map(|wait| wait.iter().filter(|other| *other != number).map(|other| other - 1).collect()),
                }
            })
            .collect();
        if !kind_of.keys().copied().eq(1..=messages.len()) {
            return Err(ConfigurationError::Constant {
                configuration: configuration.id(),
                name: "Prompts and the other sets of messages".to_owned(),
                expected: "such that the messages are numbered from 1 without a gap",
            });
        }
        limits.requests_in_flight_max = configuration.number("InFlightMax")?;
        Ok(Self { messages, one_at_a_time: configuration.flag("OneAtATime")?, limits })
    }

    /// The state in which nothing has happened.
    #[must_use]
    pub fn initial(&self) -> World {
        World::new(Connection::new(self.limits), self.messages.len())
    }

    /// The same client in front of a machine with other limits, for example with a guard forced.
    #[must_use]
    pub fn with_limits(&self, mut limits: Limits) -> Self {
        limits.requests_in_flight_max = self.limits.requests_in_flight_max;
        Self { limits, ..self.clone() }
    }

    /// The limits of the machine.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Everything that may happen next: the client sends a message, the peer answers, a task moves.
    #[must_use]
    pub fn moves(&self, world: &World) -> Vec<Move> {
        let mut moves: Vec<Move> = (0..self.messages.len())
            .filter(|message| self.may_arrive(world, *message))
            .map(|message| Move { step: self.messages[message].arrival(), message })
            .collect();
        if !world.core.has_input_ended() {
            for (call, by) in world.core.calls() {
                if let Some(message) = by.and_then(|by| world.message_of(by))
                    && world.core.awaits_response(call)
                    && self.peer_answers(world, message)
                {
                    moves.push(Move { step: Step::ResponseArrived { call }, message });
                }
            }
        }
        for step in world.core.may_come() {
            let arrival = match &step {
                Step::Started(arrival) | Step::Returned(arrival, _) | Step::GraceOver(arrival) => *arrival,
                Step::Called { by: Some(by) } => *by,
                // A caller that gives up is left out here.
                _ => continue,
            };
            let Some(message) = world.message_of(arrival) else { continue };
            if self.handler_does(world, message, &step) {
                moves.push(Move { step, message });
            }
        }
        moves
    }

    /// The client sends messages that differ in nothing in the order of their numbers, and nothing after its end.
    fn may_arrive(&self, world: &World, message: usize) -> bool {
        let waits_for_answer = self.one_at_a_time && self.messages[message].is_prompt();
        world.fates[message].at == 0
            && !world.core.has_input_ended()
            && (0..message).all(|other| world.fates[other].at > 0 || !self.same(other, message))
            && !(waits_for_answer
                && (0..self.messages.len()).any(|other| {
                    self.messages[other].is_prompt() && world.fates[other].at > 0 && world.fates[other].said.is_none()
                }))
    }

    /// Whether two messages differ in nothing but their numbers.
    fn same(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.messages[one], &self.messages[other]);
        let named = |message: &Message| {
            self.messages.iter().any(|other| {
                (message.id.is_some() && other.target == message.id)
                    || other
                        .waits
                        .iter()
                        .flatten()
                        .any(|number| self.messages[*number].id == message.id && message.id.is_some())
            }) || message.target.is_some()
                || message.waits.is_some()
        };
        one.kind == other.kind
            && one.session == other.session
            && one.deaf == other.deaf
            && one.fails == other.fails
            && !named(one)
            && !named(other)
    }

    fn peer_answers(&self, world: &World, message: usize) -> bool {
        self.messages[message].waits.iter().flatten().all(|request| world.fates[*request].said.is_some())
    }

    /// What the handler of a message does of what the machine lets it do.
    fn handler_does(&self, world: &World, message: usize, step: &Step) -> bool {
        let handler = &self.messages[message];
        match step {
            Step::Returned(_, outcome) => (*outcome == Outcome::Failed) == handler.fails && !world.calls(message),
            Step::Called { .. } => handler.waits.is_some() && !world.fates[message].called,
            _ => true,
        }
    }

    /// Whether a move must come in the end if it stays possible: the fairness of the specification.
    #[must_use]
    pub fn is_fair(&self, step: &Step, message: usize) -> bool {
        match step {
            Step::Called { .. } => false,
            Step::Returned(..) => !self.messages[message].deaf,
            _ => true,
        }
    }

    /// The state in the variables of the specification, as TLC prints it, without white space and with the variables in
    /// the order of their names.
    #[must_use]
    pub fn project(&self, world: &World) -> String {
        let each = |text: &dyn Fn(usize) -> String| {
            let values: Vec<String> = (0..self.messages.len()).map(text).collect();
            format!("<<{}>>", values.join(","))
        };
        let answer = each(&|message| {
            let said = match world.fates[message].said {
                None => "none",
                Some(Said::Result) => "result",
                Some(Said::Error) => "error",
                Some(Said::Cancelled) => "cancelled",
                Some(Said::RequestCancelled) => "request-cancelled",
                Some(Said::Refused) => "refused",
            };
            format!("\"{said}\"")
        });
        let called: Vec<String> = (0..self.messages.len())
            .filter(|message| world.fates[*message].called)
            .map(|message| (message + 1).to_string())
            .collect();
        let mut text = String::new();
        // The machine decides at the door, so that it has no registry: those variables keep their first values.
        let _ = write!(
            text,
            "/\\answer={answer}/\\at={}/\\called={{{}}}/\\endedBy={}/\\marker=<<0,0>>/\\newest=<<0,0>>/\\registered=<<0,0>>/\\task={}",
            each(&|message| world.fates[message].at.to_string()),
            called.join(","),
            each(&|message| world.fates[message].ended_by.to_string()),
            each(&|message| format!("\"{}\"", world.task(message))),
        );
        text
    }
}

/// The second, independent explorer. One property a run, since a later discovery of stateright 0.31 overwrites the first.
impl stateright::Model for Turns {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        vec![self.initial()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Move>) {
        actions.extend(self.moves(world));
    }

    fn next_state(&self, world: &World, action: Move) -> Option<World> {
        let mut next = world.clone();
        next.take(&self.messages, &action).ok()?;
        Some(next)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        vec![stateright::Property::always("every promise", |model: &Self, world| {
            promises::TURNS.iter().all(|promise| promise.holds(&model.messages, world))
        })]
    }
}
