//! Everything that one Agent Client Protocol connection must remember, and the one way in.
//!
//! The parts are modules with one concern each: the requests in flight, the turns of each session, the barrier of the
//! notifications, our calls to the peer. They stand under one lock, so that an arrival is decided by all of them at once.

use alloc::vec::Vec;
use core::fmt;

use crate::{
    barrier::Barrier,
    calls::Calls,
    digest,
    guard::guard,
    id::{Arrival, CallId, RequestId, SessionId},
    requests::{Request, Requests, Stage},
    step::{Answer, Cause, Effect, Effects, NotOwed, Outcome, Reason, Refusal, Step},
    turns::{Overlap, Turns},
};

/// The bounds of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Limits {
    /// How many requests of the peer may be in flight. At the bound a further one is refused with an error that says so;
    /// responses, cancels and notifications still get through.
    pub requests_in_flight_max: usize,
    /// How many notifications may wait for their handlers before the reader waits, see [`Connection::has_room`]. So the
    /// peer is held up, and nothing is lost.
    pub notifications_queued_max: usize,
    /// How many may wait while the handler that runs waits for the peer: then the reader must read on, since only that can
    /// bring the response. A further one closes the connection with [`Reason::NotificationsStuck`].
    pub notifications_stuck_max: usize,
    /// What becomes of a prompt that arrives while an older one of its session is in flight.
    pub overlap: Overlap,
    /// The guard that a checker forces, if any.
    #[cfg(feature = "check")]
    pub forced: Option<crate::guard::Forced>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Far above what an editor sends; some 16 MiB if every request is held with a small payload.
            requests_in_flight_max: 65_536,
            // As in the SDK whose queue is bounded; there a full queue closes the connection, here the reader waits.
            notifications_queued_max: 1024,
            // A long burst fits while a handler asks back, in some tens of megabytes.
            notifications_stuck_max: 65_536,
            overlap: Overlap::default(),
            #[cfg(feature = "check")]
            forced: None,
        }
    }
}

/// The state of one connection. See the crate's documentation for the law of whoever drives it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connection {
    limits: Limits,
    /// The number of the last message that was taken in.
    last: u64,
    requests: Requests,
    turns: Turns,
    barrier: Barrier,
    calls: Calls,
    /// Nothing more is taken in, since a message could not be.
    closed: bool,
    input_ended: bool,
}

impl Connection {
    /// A connection on which nothing has happened.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            last: 0,
            requests: Requests::default(),
            turns: Turns::default(),
            barrier: Barrier::default(),
            calls: Calls::default(),
            closed: false,
            input_ended: false,
        }
    }

    // Inputs.

    /// Takes one step and says what is to be done, in that order.
    ///
    /// # Errors
    ///
    /// [`NotOwed`] where nothing owes this step in this state; the state is then bit-identical to what it was.
    pub fn apply(&mut self, step: Step) -> Result<Effects, NotOwed> {
        let mut effects = Effects::new();
        if step.is_arrival() && (self.input_ended || (self.closed && step != Step::InputEnded)) {
            return Err(NotOwed(step));
        }
        if matches!(step, Step::NotificationArrived | Step::CancelArrived { id: None, .. }) && !self.has_room() {
            return Err(NotOwed(step));
        }
        match step {
            Step::PromptArrived { id, session } => self.prompt_arrived(id, &session, &mut effects),
            Step::CancelArrived { id, session } => self.cancel_arrived(id, &session, &mut effects),
            Step::RequestArrived { id } => {
                let _ = self.accept(id, None, &mut effects);
            }
            Step::NotificationArrived => self.notification_arrived(&mut effects),
            Step::RequestCancelArrived { id } => self.request_cancel_arrived(&id, &mut effects),
            Step::ResponseArrived { call } => {
                let Some(by) = self.calls.answer(call) else { return Err(NotOwed(step)) };
                self.response_arrived(call, by, &mut effects);
            }
            Step::InputEnded => self.input_ended(&mut effects),
            Step::Started(arrival) => {
                if self.stage(arrival) != Some(Stage::Starting) {
                    return Err(NotOwed(step));
                }
                self.started(arrival, &mut effects);
            }
            Step::Returned(arrival, outcome) => {
                if self.stage(arrival) != Some(Stage::Running) {
                    return Err(NotOwed(step));
                }
                self.returned(arrival, outcome, &mut effects);
            }
            Step::GraceOver(arrival) => {
                if !self.grace_may_end(arrival) {
                    return Err(NotOwed(step));
                }
                self.returned(arrival, Outcome::Failed, &mut effects);
            }
            Step::Called { by } => {
                if by.is_some_and(|by| self.stage(by) != Some(Stage::Running)) {
                    return Err(NotOwed(step));
                }
                self.called(by, &mut effects);
            }
            Step::CallDropped { call } => {
                let Some((by, answered)) = self.calls.close(call) else { return Err(NotOwed(step)) };
                if answered {
                    self.barrier.discard(call);
                } else {
                    self.wait_over(by);
                    effects.push(Effect::CancelCall(call));
                }
            }
            Step::Resumed { call } => {
                if !self.barrier.is_given(call) {
                    return Err(NotOwed(step));
                }
                self.forget_call(call);
            }
            Step::ResumeOver { call } => {
                if !self.resume_may_end(call) {
                    return Err(NotOwed(step));
                }
                self.forget_call(call);
            }
        }
        self.settle(&mut effects);
        Ok(effects)
    }

    // Getters.

    /// The steps of tasks that may come now: what is owed, and what running handlers may do. Arrivals may always come, but
    /// for notifications while [`Connection::has_room`] says no.
    ///
    /// This is the rule "this effect allows that step next", and it stands only here and in [`Connection::apply`]: the
    /// model enumerates it, and the shell's tasks can do nothing else.
    #[must_use]
    pub fn may_come(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let head = self.barrier.head();
        for (arrival, stage) in
            head.into_iter().chain(self.requests.iter().map(|(arrival, request)| (arrival, request.stage)))
        {
            match stage {
                Stage::Held => {}
                Stage::Starting => steps.push(Step::Started(arrival)),
                Stage::Running => {
                    steps.push(Step::Returned(arrival, Outcome::Succeeded));
                    steps.push(Step::Returned(arrival, Outcome::Failed));
                    steps.push(Step::Called { by: Some(arrival) });
                    if self.grace_may_end(arrival) {
                        steps.push(Step::GraceOver(arrival));
                    }
                }
            }
        }
        for (call, _) in self.calls.iter() {
            steps.push(Step::CallDropped { call });
            if self.barrier.is_given(call) {
                steps.push(Step::Resumed { call });
            }
            if self.resume_may_end(call) {
                steps.push(Step::ResumeOver { call });
            }
        }
        steps
    }

    /// How far the handler of a message has come; none where it is done or never was.
    #[must_use]
    pub fn stage(&self, arrival: Arrival) -> Option<Stage> {
        match self.barrier.head() {
            Some((head, stage)) if head == arrival => Some(stage),
            _ if self.barrier.is_queued(arrival) => Some(Stage::Held),
            _ => self.requests.get(arrival).map(|request| request.stage),
        }
    }

    /// Whether the handler of a message runs. A turn may speak only while this holds: no update after its response.
    #[must_use]
    pub fn is_running(&self, arrival: Arrival) -> bool {
        self.stage(arrival) == Some(Stage::Running)
    }

    /// What ended a request that is in flight, if something did.
    #[must_use]
    pub fn ended(&self, arrival: Arrival) -> Option<Cause> {
        self.requests.get(arrival)?.ended
    }

    /// The prompt of a session whose handler runs.
    #[must_use]
    pub fn turn(&self, session: &SessionId) -> Option<Arrival> {
        self.turns.running(session)
    }

    /// The calls whose callers have not resumed, each with the message whose handler made it.
    pub fn calls(&self) -> impl Iterator<Item = (CallId, Option<Arrival>)> {
        self.calls.iter()
    }

    /// Whether the caller of this call has its response and owes [`Step::Resumed`].
    #[must_use]
    pub fn is_given(&self, call: CallId) -> bool {
        self.barrier.is_given(call)
    }

    /// Whether the caller of this call has neither resumed nor been told that the peer is gone.
    #[must_use]
    pub fn is_open(&self, call: CallId) -> bool {
        self.calls.is_open(call)
    }

    /// Whether the caller of this call has its response, and the next notification waits for it to resume.
    #[must_use]
    pub fn is_awaited(&self, call: CallId) -> bool {
        self.barrier.is_awaited(call)
    }

    /// Whether the peer has not responded to an open call.
    #[must_use]
    pub fn awaits_response(&self, call: CallId) -> bool {
        self.calls.is_unanswered(call)
    }

    /// The first notification whose handler has not returned.
    #[must_use]
    pub fn first_notification(&self) -> Option<Arrival> {
        self.barrier.head().map(|(first, _)| first)
    }

    /// Whether the handler of the notification whose turn it is waits for the peer.
    #[must_use]
    pub fn waits_for_peer(&self) -> bool {
        self.barrier.waits_for_peer()
    }

    /// Whether one more notification is to be taken in now. Where not, the reader waits until a step has changed that:
    /// the handler that runs returns, or it calls the peer, whose response is behind the notification that has no room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !guard!(
            self.limits,
            "full-queue-holds-the-reader",
            self.barrier.len() >= self.limits.notifications_queued_max && !self.barrier.waits_for_peer()
        )
    }

    /// Whether it closed the connection, since a message could not be taken in.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the peer said that it will send nothing more.
    #[must_use]
    pub fn has_input_ended(&self) -> bool {
        self.input_ended
    }

    /// Whether nothing can come any more that anybody waits for: the input has ended, and every message is done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.input_ended && self.requests.len() + self.barrier.len() == 0
    }

    /// Whether nothing is in flight and so nothing is remembered. Serves NothingLingers.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.size() == 0
    }

    /// How many requests are in flight.
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.requests.len()
    }

    /// How many notifications are not handled yet.
    #[must_use]
    pub fn notifications_queued(&self) -> usize {
        self.barrier.len()
    }

    /// How many entries all tables have together. At most three for each request in flight, two for each open
    /// call, and one for each queued notification. Serves NothingLingers.
    #[must_use]
    pub fn size(&self) -> usize {
        self.requests.len() + self.turns.len() + self.barrier.len() + self.barrier.held() + self.calls.len()
    }

    /// The bounds that it was made with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A fingerprint of the whole state in 16 hexadecimal digits, the same on every machine. It tells states apart in
    /// traces and replays; the exact search compares whole states.
    #[must_use]
    pub fn digest(&self) -> alloc::string::String {
        digest::of(self)
    }

    // What arrives.

    fn prompt_arrived(&mut self, id: RequestId, session: &SessionId, effects: &mut Effects) {
        let overlap = self.limits.overlap;
        if overlap == Overlap::Refuse && guard!(self.limits, "busy-session-refuses", self.turns.live(session).is_some())
        {
            let refusal = if self.requests.find(&id).is_some() { Refusal::IdInUse } else { Refusal::SessionBusy };
            refuse(id, refusal, effects);
            return;
        }
        let Ok(prompt) = self.accept(id, Some(session.clone()), effects) else { return };
        if overlap == Overlap::Queue && guard!(self.limits, "newer-prompt-waits", self.turns.live(session).is_some()) {
            self.turns.wait(session, prompt);
            return;
        }
        if let Some(older) = self.turns.replace_live(session, prompt)
            && guard!(self.limits, "older-prompt-ends", overlap == Overlap::Replace && older < prompt)
        {
            self.end(older, Cause::NewerPrompt, effects);
        }
        self.admit(prompt, effects);
    }

    fn cancel_arrived(&mut self, id: Option<RequestId>, session: &SessionId, effects: &mut Effects) {
        let cancel = Arrival(self.last + 1);
        match id {
            // A cancel gets through at the bound on requests in flight as well; only one whose id is taken does nothing.
            Some(id) => {
                if self.accept(id, None, effects) == Err(Refusal::IdInUse) {
                    return;
                }
            }
            None => self.notification_arrived(effects),
        }
        for prompt in self.turns.unended(session) {
            if guard!(self.limits, "cancel-ends-earlier-prompts", prompt < cancel) {
                self.end(prompt, Cause::Cancel, effects);
            }
        }
    }

    fn notification_arrived(&mut self, effects: &mut Effects) {
        if guard!(self.limits, "stuck-queue-closes", self.barrier.len() >= self.limits.notifications_stuck_max) {
            self.closed = true;
            effects.push(Effect::Close(Reason::NotificationsStuck));
            return;
        }
        let notification = self.next_arrival();
        effects.push(Effect::Accept(notification));
        self.barrier.push(notification);
    }

    fn request_cancel_arrived(&mut self, id: &RequestId, effects: &mut Effects) {
        if let Some(request) = self.requests.find(id)
            && guard!(self.limits, "request-cancel-finds-its-request", self.requests.get(request).is_some())
        {
            let session = self.requests.get(request).and_then(|request| request.prompt.clone());
            self.end(request, Cause::RequestCancel, effects);
            // It may have been held, and a later one of its session may wait for it.
            if let Some(session) = session
                && self.limits.overlap == Overlap::Queue
            {
                self.next_turn(&session, effects);
            }
        }
    }

    /// The handler of a notification gets the response to its own call at once: what arrived before it is behind that
    /// very handler. Everybody else gets it in its place among the notifications.
    fn response_arrived(&mut self, call: CallId, by: Option<Arrival>, effects: &mut Effects) {
        if by.is_some_and(|by| self.barrier.is_run_by(by)) {
            self.wait_over(by);
            self.calls.close(call);
            effects.push(Effect::Resume(call));
        } else {
            self.barrier.keep(Arrival(self.last), call);
        }
    }

    fn input_ended(&mut self, effects: &mut Effects) {
        self.input_ended = true;
        let prompts: Vec<Arrival> =
            self.requests.iter().filter(|(_, request)| request.prompt.is_some()).map(|(arrival, _)| arrival).collect();
        for prompt in prompts {
            self.end(prompt, Cause::InputEnded, effects);
        }
        while let Some(call) = self.calls.first_unanswered()
            && guard!(self.limits, "callers-learn-of-close", self.calls.is_open(call))
        {
            if let Some((by, _)) = self.calls.close(call) {
                self.wait_over(by);
            }
            effects.push(Effect::Disconnect(call));
        }
    }

    /// Takes a request in, or refuses it and keeps nothing of it. A request that is no prompt goes on to the barrier at once.
    fn accept(&mut self, id: RequestId, prompt: Option<SessionId>, effects: &mut Effects) -> Result<Arrival, Refusal> {
        if guard!(self.limits, "in-flight-bound", self.requests.len() >= self.limits.requests_in_flight_max) {
            let refusal = if self.requests.find(&id).is_some() { Refusal::IdInUse } else { Refusal::TooManyInFlight };
            return Err(refuse(id, refusal, effects));
        }
        let arrival = Arrival(self.last + 1);
        let request = Request { id, prompt, stage: Stage::Held, ended: None };
        let is_prompt = request.prompt.is_some();
        if let Err(request) = self.requests.insert(arrival, request) {
            return Err(refuse(request.id, Refusal::IdInUse, effects));
        }
        self.last = arrival.0;
        effects.push(Effect::Accept(arrival));
        if !is_prompt {
            self.admit(arrival, effects);
        }
        Ok(arrival)
    }

    fn next_arrival(&mut self) -> Arrival {
        self.last += 1;
        Arrival(self.last)
    }

    // What starts and ends.

    /// Lets a request start. A prompt waits for the handler of its session that runs, if one does; then each request waits
    /// for the notifications that arrived before it.
    fn admit(&mut self, arrival: Arrival, effects: &mut Effects) {
        let Some(request) = self.requests.get(arrival) else { return };
        if let Some(session) = &request.prompt
            && !guard!(self.limits, "one-turn-at-a-time", self.turns.is_free(session))
        {
            return;
        }
        if self.barrier.lets_start(arrival, &self.limits) {
            self.start(arrival, effects);
        } else {
            self.barrier.hold(arrival);
        }
    }

    fn start(&mut self, arrival: Arrival, effects: &mut Effects) {
        if let Some(request) = self.requests.get_mut(arrival) {
            request.stage = Stage::Starting;
            effects.push(Effect::Start(arrival));
        }
    }

    fn started(&mut self, arrival: Arrival, effects: &mut Effects) {
        if let Some(request) = self.requests.get_mut(arrival) {
            if guard!(self.limits, "ended-request-never-runs", request.ended.is_some()) {
                if let Some(request) = self.requests.remove(arrival) {
                    let answer = self.says_ended(&request);
                    self.leave(arrival, request, answer, effects);
                }
                return;
            }
            request.stage = Stage::Running;
            if let Some(session) = &request.prompt {
                self.turns.run(session, arrival);
            }
        } else {
            self.barrier.set_running();
        }
        effects.push(Effect::Run(arrival));
    }

    fn returned(&mut self, arrival: Arrival, outcome: Outcome, effects: &mut Effects) {
        let Some(request) = self.requests.remove(arrival) else {
            self.barrier.pop();
            return;
        };
        let answer = if guard!(self.limits, "ended-whatever-it-returned", request.ended.is_some()) {
            self.says_ended(&request)
        } else {
            Answer::Returned(outcome)
        };
        self.leave(arrival, request, answer, effects);
    }

    fn grace_may_end(&self, arrival: Arrival) -> bool {
        self.requests.get(arrival).is_some_and(|request| {
            request.stage == Stage::Running
                && guard!(self.limits, "ended-handler-is-dropped-in-the-end", request.ended.is_some())
        })
    }

    fn resume_may_end(&self, call: CallId) -> bool {
        self.barrier.is_given(call) && guard!(self.limits, "late-caller-releases", self.barrier.is_awaited(call))
    }

    /// Ends a request, once: a held one is answered now, a starting one when its task runs, a running one's token fires.
    fn end(&mut self, arrival: Arrival, cause: Cause, effects: &mut Effects) {
        let Some(request) = self.requests.get_mut(arrival).filter(|request| request.ended.is_none()) else { return };
        request.ended = Some(cause);
        let stage = request.stage;
        if let Some(session) = &request.prompt {
            self.turns.end(session, arrival, &self.limits);
        }
        if stage == Stage::Running {
            effects.push(Effect::Fire(arrival, cause));
        }
        if guard!(self.limits, "answered-at-once-only-while-held", stage == Stage::Held)
            && let Some(request) = self.requests.get(arrival)
        {
            let (id, answer) = (request.id.clone(), self.says_ended(request));
            effects.push(Effect::Respond { id, arrival: Some(arrival), answer });
        }
        if stage == Stage::Held {
            self.barrier.forget(arrival);
            self.requests.remove(arrival);
        }
    }

    /// What an ended request is answered with.
    fn says_ended(&self, request: &Request) -> Answer {
        if guard!(self.limits, "ended-prompt-says-cancelled", request.prompt.is_some()) {
            Answer::Cancelled
        } else {
            Answer::RequestCancelled
        }
    }

    /// Answers a request that has been forgotten; where it was a turn, the next one of its session may start.
    fn leave(&mut self, arrival: Arrival, request: Request, answer: Answer, effects: &mut Effects) {
        effects.push(Effect::Respond { id: request.id, arrival: Some(arrival), answer });
        let Some(session) = request.prompt else { return };
        self.turns.leave(&session, arrival, &self.limits);
        self.next_turn(&session, effects);
    }

    /// Admits the prompt whose turn it is in a session, where it is held.
    fn next_turn(&mut self, session: &SessionId, effects: &mut Effects) {
        if let Some(next) = self.turns.live(session)
            && guard!(self.limits, "next-turn-starts", self.stage(next) == Some(Stage::Held))
        {
            self.admit(next, effects);
        }
    }

    fn called(&mut self, by: Option<Arrival>, effects: &mut Effects) {
        if self.input_ended {
            effects.push(Effect::Disconnect(self.calls.number()));
            return;
        }
        let call = self.calls.open(by);
        if let Some(by) = by {
            self.barrier.wait(by);
        }
        effects.push(Effect::Call(call));
    }

    fn wait_over(&mut self, by: Option<Arrival>) {
        if let Some(by) = by {
            self.barrier.wait_over(by);
        }
    }

    /// The caller has its response and has resumed, or nothing waits for it any more.
    fn forget_call(&mut self, call: CallId) {
        self.calls.close(call);
        self.barrier.discard(call);
    }

    /// Lets go on what the step made possible. Responses come first: those that arrived before the next notification are to
    /// reach their callers before its handler starts. So do the requests that arrived before it: what handlers that forward
    /// their messages say is in the order of the messages.
    fn settle(&mut self, effects: &mut Effects) {
        while let Some(call) = self.barrier.give(&self.limits) {
            effects.push(Effect::Resume(call));
        }
        while let Some(request) = self.barrier.release(&self.limits) {
            self.start(request, effects);
        }
        if let Some(next) = self.barrier.start(&self.limits) {
            effects.push(Effect::Start(next));
        }
        while let Some(call) = self.barrier.await_caller() {
            effects.push(Effect::AwaitCaller(call));
        }
    }
}

/// Answers a request that is not taken in.
fn refuse(id: RequestId, refusal: Refusal, effects: &mut Effects) -> Refusal {
    effects.push(Effect::Respond { id, arrival: None, answer: Answer::Refused(refusal) });
    refusal
}

impl fmt::Debug for Connection {
    /// The state without the limits, which never change.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("last", &self.last)
            .field("requests", &self.requests)
            .field("turns", &self.turns)
            .field("barrier", &self.barrier)
            .field("calls", &self.calls)
            .field("closed", &self.closed)
            .field("input_ended", &self.input_ended)
            .finish()
    }
}
