//! The model of a configuration: the peer that it describes, and the machine itself.
//!
//! The domains turns and barrier look at one machine; they differ in what the peer sends, in the promises, and in the
//! variables of their specifications. The domain guard has two: that of turns, whose handlers put their prompts to an agent,
//! and one on the side of that agent, which makes the calls.

use std::collections::BTreeSet;

use lastword_core::{Connection, Limits, Outcome, RequestId, SessionId, Step};

use crate::{
    configuration::{Configuration, ConfigurationError},
    message::{Kind, Message},
    model::Model,
    promises::{self, Promise, View},
    world::{Call, Fate, Move, Said, World},
};

/// The model of one configuration of the domains turns, barrier and guard.
///
/// Left out, as in the specifications: what handlers do besides running, calling the peer once and returning; a request id
/// that is used twice at once.
#[derive(Debug, Clone)]
pub struct ConnectionModel {
    /// What the peer sends, and who calls it from outside of any handler.
    pub messages: Vec<Message>,
    one_at_a_time: bool,
    limits: Limits,
    domain: Domain,
}

/// Whose variables a state is shown in, and whose promises are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Domain {
    Turns,
    Barrier,
    Guard,
}

impl ConnectionModel {
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
            ("Calls", Kind::Call),
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
        let [session_b, deaf, fails, drops, silent] = [
            configuration.set("SessionB")?,
            configuration.set("Deaf")?,
            configuration.set("Fails")?,
            configuration.set("Drops")?,
            configuration.set("Silent")?,
        ];
        let waits = configuration.sets("Waits")?;
        let is_queued =
            |number: &usize| matches!(kind_of.get(number), Some((Kind::Notification | Kind::CancelNotification, _)));
        // Who waits: the notification of the set, or else its first message.
        let waiter = |wait: &BTreeSet<usize>| wait.iter().copied().find(is_queued).or(wait.first().copied());
        let messages: Vec<Message> = kind_of
            .iter()
            .map(|(number, (kind, target))| {
                let is_request = matches!(kind, Kind::Prompt | Kind::CancelRequest | Kind::Request);
                let has_session = matches!(kind, Kind::Prompt | Kind::CancelNotification | Kind::CancelRequest);
                Message {
                    kind: *kind,
                    id: is_request.then(|| RequestId::from(*number as u64)),
                    session: has_session.then(|| SessionId::from(if session_b.contains(number) { "B" } else { "A" })),
                    target: target.clone(),
                    deaf: deaf.contains(number),
                    fails: fails.contains(number),
                    waits: waits
                        .iter()
                        .find(|wait| waiter(wait) == Some(*number))
                        .map(|wait| wait.iter().filter(|other| *other != number).map(|other| other - 1).collect()),
                    drops: drops.contains(number),
                    silent: silent.contains(number),
                }
            })
            .collect();
        if !kind_of.keys().copied().eq(1..=messages.len()) {
            return Err(ConfigurationError::Constant {
                configuration: configuration.id(),
                name: "Notifications and the other sets of messages".to_owned(),
                expected: "such that the messages are numbered from 1 without a gap",
            });
        }
        let domain = match configuration.domain.as_str() {
            "barrier" => Domain::Barrier,
            "guard" => Domain::Guard,
            _ => Domain::Turns,
        };
        match domain {
            Domain::Turns | Domain::Guard => {
                limits.requests_in_flight_max = configuration.number("InFlightMax")?;
                limits.overlap = configuration.overlap("Overlap")?;
            }
            Domain::Barrier => {
                limits.notifications_queued_max = configuration.number("QueueMax")?;
                limits.notifications_stuck_max = configuration.number("StuckMax")?;
            }
        }
        let one_at_a_time = domain != Domain::Barrier && configuration.flag("OneAtATime")?;
        Ok(Self { messages, one_at_a_time, limits, domain })
    }

    /// An agent, and what its client sends in this order, all in one session.
    #[must_use]
    pub fn of_agent(kinds: &[Kind], limits: Limits) -> Self {
        Self { messages: messages(kinds), one_at_a_time: false, limits, domain: Domain::Turns }
    }

    /// A client, what its agent sends in this order, and who calls the agent.
    #[must_use]
    pub fn of_client(kinds: &[Kind], limits: Limits) -> Self {
        Self { messages: messages(kinds), one_at_a_time: false, limits, domain: Domain::Barrier }
    }

    /// The state in which nothing has happened.
    #[must_use]
    pub fn initial(&self) -> World {
        let world = World::new(Connection::new(self.limits), self.messages.len());
        match self.domain {
            Domain::Guard => world.guarding(Connection::new(Limits::default())),
            Domain::Turns | Domain::Barrier => world,
        }
    }

    /// The same client in front of a machine with other limits, for example with a guard forced.
    #[must_use]
    pub fn with_limits(&self, mut limits: Limits) -> Self {
        limits.requests_in_flight_max = self.limits.requests_in_flight_max;
        limits.notifications_queued_max = self.limits.notifications_queued_max;
        limits.notifications_stuck_max = self.limits.notifications_stuck_max;
        limits.overlap = self.limits.overlap;
        Self { limits, ..self.clone() }
    }

    /// The limits of the machine.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Everything that may happen next: the peer sends a message or answers a call, a task moves, somebody calls the peer.
    #[must_use]
    pub fn moves(&self, world: &World) -> Vec<Move> {
        let mut moves: Vec<Move> = (0..self.messages.len())
            .filter(|message| self.may_begin(world, *message))
            .map(|message| Move { step: self.messages[message].beginning(), message })
            .collect();
        let caller = world.caller_core();
        if !caller.has_input_ended() && !caller.is_closed() {
            for (call, _) in caller.calls() {
                if let Some(message) = world.caller(call)
                    && caller.awaits_response(call)
                    && self.peer_answers(world, message)
                {
                    moves.push(Move { step: Step::ResponseArrived { call }, message });
                }
            }
        }
        let of_back = world.back.iter().flat_map(Connection::may_come).filter(|step| world.is_of_back(step));
        let of_front = world.core.may_come().into_iter().filter(|step| !world.is_of_back(step));
        for step in of_front.chain(of_back) {
            let message = match &step {
                Step::Started(arrival) | Step::Returned(arrival, _) | Step::GraceOver(arrival) => {
                    world.message_of(*arrival)
                }
                Step::Called { by: Some(by) } => world.message_of(*by),
                Step::CallDropped { call } | Step::Resumed { call } | Step::ResumeOver { call } => world.caller(*call),
                _ => None,
            };
            if let Some(message) = message
                && self.does(world, message, &step)
            {
                moves.push(Move { step, message });
            }
        }
        if self.domain == Domain::Guard {
            // The handler of a prompt puts it to the agent.
            let asks = |message: &usize| self.does(world, *message, &Step::Called { by: None });
            moves.extend(
                (0..self.messages.len()).filter(asks).map(|message| Move { step: Step::Called { by: None }, message }),
            );
        }
        moves
    }

    /// Whether a step may be taken: the machine owes it or, where it is one of the machine behind a guard, which always lets
    /// somebody call, the handlers of the guard come to it.
    #[must_use]
    pub fn owes(&self, world: &World, action: &Move) -> bool {
        if world.is_of_back(&action.step) {
            self.moves(world).contains(action)
        } else {
            world.core.clone().apply(action.step.clone()).is_ok()
        }
    }

    /// The peer sends messages that differ in nothing in the order of their numbers, and nothing after its end. The reader
    /// takes in no notification for which there is no room.
    fn may_begin(&self, world: &World, message: usize) -> bool {
        let (kind, fate) = (self.messages[message].kind, &world.fates[message]);
        let begun = |fate: &Fate| fate.at > 0 || fate.call != Call::None;
        if begun(fate) || (0..message).any(|other| !begun(&world.fates[other]) && self.same(other, message)) {
            return false;
        }
        let waits_for_answer = self.one_at_a_time && kind == Kind::Prompt;
        match kind {
            Kind::Call => return true,
            _ if world.core.has_input_ended() => return false,
            Kind::InputEnd => {}
            _ if world.core.is_closed() => return false,
            _ if self.messages[message].is_queued() && !world.core.has_room() => return false,
            _ => {}
        }
        !(waits_for_answer
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
            && one.drops == other.drops
            && !named(one)
            && !named(other)
    }

    fn peer_answers(&self, world: &World, message: usize) -> bool {
        if self.messages[message].silent {
            return false;
        }
        self.messages[message].waits.iter().flatten().all(|request| world.fates[*request].said.is_some())
    }

    /// What a handler or a caller does of what the machine lets it do.
    fn does(&self, world: &World, message: usize, step: &Step) -> bool {
        let handler = &self.messages[message];
        if self.domain == Domain::Guard && handler.is_prompt() {
            let call = world.fates[message].call;
            let Some(arrival) = world.fates[message].arrival else { return false };
            return match step {
                Step::Called { .. } => call == Call::None && world.core.is_running(arrival),
                // It answers what the agent did; or its time is over, and with its future the call is dropped first.
                Step::Returned(_, outcome) => call == Call::Over && (*outcome == Outcome::Failed) == handler.fails,
                Step::CallDropped { .. } => world.core.may_come().contains(&Step::GraceOver(arrival)),
                Step::GraceOver(_) => call == Call::Dropped,
                _ => true,
            };
        }
        match step {
            Step::Returned(_, outcome) => (*outcome == Outcome::Failed) == handler.fails && !world.calls(message),
            Step::Called { .. } => handler.waits.is_some() && world.fates[message].call == Call::None,
            Step::CallDropped { .. } => handler.drops,
            _ => true,
        }
    }

    /// Whether a move must come in the end if it stays possible: the fairness of the specification.
    #[must_use]
    pub fn is_fair(&self, step: &Step, message: usize) -> bool {
        match step {
            Step::Called { .. } | Step::CallDropped { .. } => self.domain == Domain::Guard,
            // A handler waits for nothing but its call; somebody else may never look at the response.
            Step::Resumed { .. } => self.messages[message].kind != Kind::Call,
            Step::Returned(..) => !self.messages[message].deaf,
            _ => true,
        }
    }

    /// Whether the machine is told from the client's side of the protocol, where nothing is a prompt and somebody outside of
    /// handlers calls.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.domain == Domain::Barrier
    }

    /// The promises of its domain.
    #[must_use]
    pub fn promises(&self) -> &'static [Promise] {
        match self.domain {
            Domain::Turns => promises::TURNS,
            Domain::Barrier => promises::BARRIER,
            Domain::Guard => promises::GUARD,
        }
    }

    /// The state in the variables of the specification, as TLC prints it, without white space and with the variables in
    /// the order of their names.
    #[must_use]
    pub fn project(&self, world: &World) -> String {
        match self.domain {
            Domain::Turns => self.project_turns(world),
            Domain::Barrier => self.project_barrier(world),
            Domain::Guard => {
                format!("/\\agent={}{}", self.each(|message| call(world, message)), self.project_turns(world))
            }
        }
    }

    fn each(&self, text: impl Fn(usize) -> String) -> String {
        let values: Vec<String> = (0..self.messages.len()).map(text).collect();
        format!("<<{}>>", values.join(","))
    }

    fn project_barrier(&self, world: &World) -> String {
        let is_kept = |message: usize| matches!(world.fates[message].call, Call::Kept | Call::Given);
        let after = |message: usize| {
            let open = world.calls.values().find(|open| open.message == message && is_kept(message));
            open.and_then(|open| open.after).unwrap_or(0).to_string()
        };
        let task = |message: usize| {
            let task = match world.task(message) {
                "calling" => "running",
                _ if world.is_dropped(&self.messages, message) => "dropped",
                "done" if self.messages[message].is_queued() && world.fates[message].arrival.is_none() => "refused",
                task => task,
            };
            format!("\"{task}\"")
        };
        let breaches = &world.breaches;
        let breach: Vec<&str> = [
            (breaches.caller_overtaken, "\"caller\""),
            (breaches.closed_early, "\"closed\""),
            (breaches.request_early, "\"request\""),
            (breaches.response_early, "\"response\""),
        ]
        .into_iter()
        .filter_map(|(happened, name)| happened.then_some(name))
        .collect();
        format!(
            "/\\after={}/\\at={}/\\breach={{{}}}/\\call={}/\\closed={}/\\task={}",
            self.each(after),
            self.each(|message| world.fates[message].at.to_string()),
            breach.join(","),
            self.each(|message| call(world, message).replace("dropped", "over")),
            if world.core.is_closed() { "TRUE" } else { "FALSE" },
            self.each(task),
        )
    }

    fn project_turns(&self, world: &World) -> String {
        let answer = self.each(|message| {
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
            .filter(|message| self.domain == Domain::Turns && world.fates[*message].call != Call::None)
            .map(|message| (message + 1).to_string())
            .collect();
        // The machine decides at the door, so that it has no registry: those variables keep their first values.
        format!(
            "/\\answer={answer}/\\at={}/\\called={{{}}}/\\endedBy={}/\\marker=<<0,0>>/\\newest=<<0,0>>/\\registered=<<0,0>>/\\task={}",
            self.each(|message| world.fates[message].at.to_string()),
            called.join(","),
            self.each(|message| world.fates[message].ended_by.to_string()),
            self.each(|message| format!("\"{}\"", world.task(message))),
        )
    }
}

/// How far the call of a message has come, in the words of the specifications.
fn call(world: &World, message: usize) -> String {
    let call = match world.fates[message].call {
        Call::None => "none",
        Call::Waiting => "waiting",
        Call::Kept => "kept",
        Call::Given => "given",
        Call::Over => "over",
        Call::Dropped => "dropped",
    };
    format!("\"{call}\"")
}

/// Messages that differ in nothing but their kinds and ids.
fn messages(kinds: &[Kind]) -> Vec<Message> {
    let message = |(number, kind): (u64, &Kind)| {
        let has_session = matches!(kind, Kind::Prompt | Kind::CancelNotification | Kind::CancelRequest);
        let is_request = matches!(kind, Kind::Prompt | Kind::CancelRequest | Kind::Request);
        Message {
            kind: *kind,
            id: is_request.then(|| RequestId::from(number)),
            session: has_session.then(|| SessionId::from("A")),
            target: None,
            deaf: false,
            fails: false,
            waits: None,
            drops: false,
            silent: false,
        }
    };
    (1..).zip(kinds).map(message).collect()
}

impl Model for ConnectionModel {
    type Step = Step;
    type World = World;
    type Always = fn(View<'_>) -> bool;
    type Eventually = fn(View<'_>, usize) -> bool;

    fn first(&self) -> World {
        self.initial()
    }

    fn moves(&self, world: &World) -> Vec<Move> {
        self.moves(world)
    }

    fn owes(&self, world: &World, action: &Move) -> bool {
        self.owes(world, action)
    }

    fn take(&self, world: &mut World, action: &Move) -> Result<String, String> {
        let effects = world.take(&self.messages, action).map_err(|refused| refused.to_string())?;
        Ok(format!("{effects:?}"))
    }

    fn name(step: &Step) -> &'static str {
        step.name()
    }

    fn is_fair(&self, step: &Step, message: usize) -> bool {
        self.is_fair(step, message)
    }

    fn count(&self) -> usize {
        self.messages.len()
    }

    fn holds(&self, always: Self::Always, world: &World) -> bool {
        always(View { messages: &self.messages, world })
    }

    fn holds_for(&self, eventually: Self::Eventually, world: &World, message: usize) -> bool {
        eventually(View { messages: &self.messages, world }, message)
    }

    fn promises(&self) -> &'static [Promise] {
        self.promises()
    }

    fn project(&self, world: &World) -> String {
        self.project(world)
    }

    fn digest(world: &World) -> String {
        world.core.digest()
    }
}

/// The second, independent explorer. One property a run, since a later discovery of stateright 0.31 overwrites the first.
impl stateright::Model for ConnectionModel {
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
            model.promises().iter().all(|promise| promise.holds(&model.messages, world))
        })]
    }
}
