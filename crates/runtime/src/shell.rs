//! The shell around the core: one lock, one call site of `apply`, and what the effects of a step do to the world.
//!
//! Everything that happens to a connection goes through [`Shell::apply`], under the lock of [`State`]. The effects are
//! carried out before the lock is released, so their order is the order of the steps; nothing in there waits. What they ask of
//! another connection follows as soon as the lock is released, see [`Locked`]: nobody holds two of these locks.

use std::{
    collections::VecDeque,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use agent_client_protocol_schema::v1::Error;
use lastword_core::{
    Answer, Arrival, CallId, Connection, Effect, Effects, NotOwed, Outcome, Refusal, RequestId, Rising, Step,
};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use crate::{
    error::CallError,
    options::{Options, SESSION_BUSY, TOO_MANY_IN_FLIGHT},
    relay::{FollowUp, HeldMessage, Passed, Relay},
    trace,
    turn::Context,
    wire,
};

/// How many tasks may have been started and not begun before the reader waits for them: some times as many lines as one
/// read brings. A reader that outran its handlers would only fill the memory.
const STARTING_MAX: usize = 256;

/// How many bad lines of a connection are logged. A peer that takes each answer for a reason to write another one would fill the
/// disk; what it is can be seen from these.
const BAD_LINES_LOGGED_MAX: u32 = 20;

/// Spawns the task of a message. It is what is kept of a message between its arrival and its start.
pub(crate) type Start = Box<dyn FnOnce(Context) -> JoinHandle<()> + Send>;

/// What comes with a step and is no business of the core.
pub(crate) enum With<'a> {
    Nothing,
    /// What to start when the message may start.
    Message(Start),
    /// What the handler returned.
    Answer(Result<&'a [u8], &'a [u8]>),
    /// The call to write, and who waits for its response.
    Call {
        method: &'a str,
        params: Option<&'a [u8]>,
        caller: Caller,
    },
}

/// Who waits for a response.
pub(crate) enum Caller {
    Task(oneshot::Sender<Response>),
    /// A request of another connection, which is answered with it.
    Relay(Passed),
}

/// Who waits for a response, and the response once it has arrived: the core says when the caller may have it.
struct Open {
    caller: Caller,
    response: Option<Result<Box<str>, Box<str>>>,
}

/// What a caller gets.
pub(crate) enum Response {
    Answered(Result<Box<str>, Box<str>>),
    Disconnected,
}

/// One connection. Held by its serve future, by the task of each message, and by each handle for calls to the peer.
pub(crate) struct Shell {
    /// Tells the connections of one process apart in logs and traces.
    pub(crate) number: u64,
    pub(crate) options: Options,
    /// A lock of std: it is held for the length of a step and never across an await.
    state: Mutex<State>,
    /// A step was applied. The reader waits for it while it may take nothing in, the serve future while it finishes.
    stepped: Notify,
    /// Fewer tasks than [`STARTING_MAX`] have not begun. Only the reader waits for it.
    begun: Notify,
    /// There is something to write. Only the writer waits for it.
    unwritten: Notify,
    /// Something was written. Whoever has something to say waits for it while the output is over its bound.
    written: Notify,
    /// A task was started or woken since the reader has let tasks run.
    woken: AtomicBool,
    /// How many bad lines were logged. Only the reader counts.
    bad_lines_logged: AtomicU32,
}

pub(crate) struct State {
    pub(crate) core: Connection,
    /// Each message that was taken in and is not done.
    messages: Rising<Arrival, Entry>,
    /// Each open call, with who waits for its response.
    calls: Rising<CallId, Open>,
    /// What the steps have left to be done once the lock is released.
    follow_ups: VecDeque<FollowUp>,
    /// Somebody does what follows. Whoever else adds to it leaves it to them, so that it is done in order.
    is_following: bool,
    /// How many tasks were started and have not begun.
    starting: usize,
    /// What is to be written next.
    out: Vec<u8>,
    /// How much the writer has taken out and is writing.
    writing: usize,
    /// Nothing can be written any more.
    closed: bool,
    /// Somebody waits for a step. Nobody is told of what nobody waits for.
    step_awaited: bool,
    /// The reader waits for tasks that begin.
    begin_awaited: bool,
}

enum Entry {
    /// It has a task of its own.
    Task {
        /// There until the message starts.
        start: Option<Start>,
        context: Context,
        /// There from then on, so that whatever ends the connection ends the task.
        task: Option<JoinHandle<()>>,
    },
    /// It is to be passed on when it starts.
    Held(Arc<Relay>, HeldMessage),
    /// It has been passed on: as this call.
    Passed(Arc<Relay>, CallId),
}

/// The state under its lock. What follows from the steps that were applied is done when this is dropped.
pub(crate) struct Locked<'a> {
    shell: &'a Shell,
    /// There until this is dropped.
    state: Option<MutexGuard<'a, State>>,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state.as_ref().expect("only the drop takes it out")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_mut().expect("only the drop takes it out")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        if state.follow_ups.is_empty() || state.is_following {
            return;
        }
        state.is_following = true;
        while let Some(follow_up) = state.follow_ups.pop_front() {
            drop(state);
            follow_up.run();
            state = self.shell.lock_bare();
        }
        state.is_following = false;
    }
}

impl Shell {
    pub(crate) fn new(options: Options) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let limits = options.limits();
        trace::opened(number, &limits);
        let state = State {
            core: Connection::new(limits),
            messages: Rising::default(),
            calls: Rising::default(),
            follow_ups: VecDeque::new(),
            is_following: false,
            starting: 0,
            out: Vec::new(),
            writing: 0,
            closed: false,
            step_awaited: false,
            begin_awaited: false,
        };
        Self {
            number,
            options,
            state: Mutex::new(state),
            stepped: Notify::new(),
            begun: Notify::new(),
            unwritten: Notify::new(),
            written: Notify::new(),
            woken: AtomicBool::new(false),
            bad_lines_logged: AtomicU32::new(0),
        }
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked { shell: self, state: Some(self.lock_bare()) }
    }

    /// Nothing panics while it holds the lock, and if something did, the core would still be whole.
    fn lock_bare(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a step once a checker, if there is one, lets it pass.
    pub(crate) async fn step(self: &Arc<Self>, step: Step, with: With<'_>) -> Result<Effects, NotOwed> {
        self.hold(&step).await;
        self.apply(&mut self.lock(), step, with)
    }

    /// Waits until a checker lets the step pass. Nothing in a normal build.
    #[cfg_attr(not(feature = "check"), allow(clippy::unused_async, reason = "the check build waits here"))]
    pub(crate) async fn hold(&self, step: &Step) {
        #[cfg(feature = "check")]
        if let Some(gate) = &self.options.gate {
            gate.pass(step).await;
        }
        #[cfg(not(feature = "check"))]
        let _ = step;
    }

    /// Whether a checker decides when time runs out.
    pub(crate) fn is_gated(&self) -> bool {
        #[cfg(feature = "check")]
        return self.options.gate.is_some();
        #[cfg(not(feature = "check"))]
        return false;
    }

    /// The one place where anything happens to the connection.
    pub(crate) fn apply(
        self: &Arc<Self>,
        state: &mut State,
        step: Step,
        mut with: With<'_>,
    ) -> Result<Effects, NotOwed> {
        // A request is forgotten when it is answered; a notification, which has no answer, when its handler is done.
        let over = match step {
            Step::Returned(arrival, _) => Some(arrival),
            _ => None,
        };
        let began = matches!(step, Step::Started(_));
        let record = trace::Record::of(&step);
        #[cfg(feature = "check")]
        let passed = step.clone();
        let result = state.core.apply(step);
        if let Ok(effects) = &result {
            if let Some(record) = record {
                record.emit(self.number, effects, &state.core);
            }
            for effect in effects {
                self.carry_out(state, effect, &mut with);
            }
            if began {
                state.starting -= 1;
                if state.starting < STARTING_MAX && std::mem::take(&mut state.begin_awaited) {
                    self.begun.notify_waiters();
                }
            }
            if let Some(arrival) = over {
                state.messages.remove(&arrival);
            }
        }
        #[cfg(feature = "check")]
        if let Some(gate) = &self.options.gate {
            gate.report(&passed, &result, &state.core);
        }
        if std::mem::take(&mut state.step_awaited) {
            self.stepped.notify_waiters();
        }
        result
    }

    fn carry_out(self: &Arc<Self>, state: &mut State, effect: &Effect, with: &mut With<'_>) {
        match effect {
            Effect::Accept(arrival) => {
                if let With::Message(start) = std::mem::replace(with, With::Nothing) {
                    let context = Context::new(Arc::clone(self), *arrival);
                    let entry = Entry::Task { start: Some(start), context, task: None };
                    state.messages.insert(*arrival, entry);
                }
            }
            Effect::Start(arrival) => {
                state.starting += 1;
                match state.messages.get_mut(arrival) {
                    Some(Entry::Task { start, context, task }) => {
                        if let Some(start) = start.take() {
                            *task = Some(start(context.clone()));
                            self.woken.store(true, Ordering::Relaxed);
                        }
                    }
                    Some(Entry::Held(..)) => {
                        if let Some(Entry::Held(relay, message)) = state.messages.remove(arrival) {
                            state.follow_ups.push_back(FollowUp::Start(relay, *arrival, message));
                        }
                    }
                    // Whoever applied the step passes it on.
                    Some(Entry::Passed(..)) | None => {}
                }
            }
            // The task itself sees the first one, and calls the handler; the reader sees the other, and closes the connection.
            Effect::Run(_) | Effect::Close(_) => {}
            Effect::Fire(arrival, _) => match state.messages.get(arrival) {
                Some(Entry::Task { context, .. }) => {
                    context.cancellation().cancel();
                    self.woken.store(true, Ordering::Relaxed);
                }
                Some(Entry::Passed(relay, call)) => {
                    state.follow_ups.push_back(FollowUp::Ended(Arc::clone(relay), *arrival, *call));
                }
                Some(Entry::Held(..)) | None => {}
            },
            Effect::Respond { id, arrival, answer } => {
                self.respond(state, id, *answer, with);
                if let Some(arrival) = arrival {
                    state.messages.remove(arrival);
                }
            }
            Effect::Call(call) => {
                if let With::Call { method, params, caller } = std::mem::replace(with, With::Nothing) {
                    state.calls.insert(*call, Open { caller, response: None });
                    self.write(state, |out| wire::write_call(out, Some(*call), method, params));
                }
            }
            // One that arrived with this step is given by whoever applied it.
            Effect::Resume(call) => {
                if state.calls.get(call).is_some_and(|open| open.response.is_some())
                    && let Some(Open { caller, response: Some(response) }) = state.calls.remove(call)
                {
                    match caller {
                        Caller::Task(caller) => self.give(caller, response),
                        Caller::Relay(passed) => {
                            state.follow_ups.push_back(FollowUp::Answered(passed, *call, response));
                        }
                    }
                }
            }
            Effect::AwaitCaller(call) => {
                tokio::spawn(await_caller(Arc::clone(self), *call));
            }
            Effect::Disconnect(call) => {
                let caller = match std::mem::replace(with, With::Nothing) {
                    With::Call { caller, .. } => Some(caller),
                    _ => state.calls.remove(call).map(|open| open.caller),
                };
                match caller {
                    Some(Caller::Task(caller)) => {
                        let _ = caller.send(Response::Disconnected);
                        self.woken.store(true, Ordering::Relaxed);
                    }
                    Some(Caller::Relay(passed)) => state.follow_ups.push_back(FollowUp::Gone(passed)),
                    None => {}
                }
            }
            Effect::CancelCall(call) => {
                state.calls.remove(call);
                let params = format!("{{\"requestId\":{}}}", call.0);
                self.write(state, |out| wire::write_call(out, None, wire::CANCEL_REQUEST, Some(params.as_bytes())));
            }
            // The core's words may grow; this crate grows with them.
            other => unreachable!("the core of this version knows no effect {other:?}"),
        }
    }

    /// The response to a call arrives: it is given to whoever waits for it, now or once the core says so.
    pub(crate) fn response_arrived(
        self: &Arc<Self>,
        call: CallId,
        response: Result<&str, &str>,
    ) -> Result<(), NotOwed> {
        let owned = || response.map(Box::from).map_err(Box::from);
        let mut state = self.lock();
        let effects = self.apply(&mut state, Step::ResponseArrived { call }, With::Nothing)?;
        if !effects.contains(&Effect::Resume(call)) {
            if let Some(open) = state.calls.get_mut(&call) {
                open.response = Some(owned());
            }
            return Ok(());
        }
        match state.calls.remove(&call).map(|open| open.caller) {
            Some(Caller::Task(caller)) => self.give(caller, owned()),
            Some(Caller::Relay(passed)) => {
                drop(state);
                passed.answer(call, response);
            }
            None => {}
        }
        Ok(())
    }

    fn give(&self, caller: oneshot::Sender<Response>, response: Result<Box<str>, Box<str>>) {
        // A caller that left meanwhile has no use for it.
        let _ = caller.send(Response::Answered(response));
        self.woken.store(true, Ordering::Relaxed);
    }

    fn respond(&self, state: &mut State, id: &RequestId, answer: Answer, with: &With<'_>) {
        let refused;
        let answer = match answer {
            Answer::Returned(outcome) => match (with, outcome) {
                (With::Answer(Ok(result)), Outcome::Succeeded) => Ok(*result),
                (With::Answer(Err(error)), _) => Err(*error),
                _ => {
                    refused = wire::encode_error(&Error::internal_error());
                    Err(refused.as_slice())
                }
            },
            Answer::Cancelled => match with {
                // It says so itself, and perhaps more: what the turn has used, say.
                With::Answer(Ok(result)) if wire::is_cancelled(result) => Ok(*result),
                _ => Ok(&b"{\"stopReason\":\"cancelled\"}"[..]),
            },
            Answer::RequestCancelled => {
                refused = wire::encode_error(&Error::new(-32800, "Request cancelled"));
                Err(refused.as_slice())
            }
            Answer::Refused(refusal) => {
                refused = wire::encode_error(&self.refusal(id, refusal));
                Err(refused.as_slice())
            }
            other => unreachable!("the core of this version knows no answer {other:?}"),
        };
        self.write(state, |out| wire::write_response(out, id.raw(), answer));
    }

    fn refusal(&self, id: &RequestId, refusal: Refusal) -> Error {
        match refusal {
            Refusal::TooManyInFlight => Error::new(
                TOO_MANY_IN_FLIGHT,
                format!(
                    "{} requests are in flight, which is the bound: wait for a response before the next request",
                    self.options.requests_in_flight_max
                ),
            ),
            Refusal::SessionBusy => Error::new(
                SESSION_BUSY,
                "a prompt of this session is in flight: wait for its response or cancel it before the next prompt",
            ),
            Refusal::IdInUse => {
                tracing::warn!(connection = self.number, id = id.raw(), "a request has the id of one in flight");
                Error::new(-32600, "Invalid request: a request with this `id` is in flight")
            }
            other => Error::new(-32600, format!("Invalid request: {other:?}")),
        }
    }

    // The output.

    /// Appends to the output, whatever its bound: only what is owed goes this way.
    fn write(&self, state: &mut State, append: impl FnOnce(&mut Vec<u8>)) {
        if state.closed {
            return;
        }
        if state.out.is_empty() {
            self.unwritten.notify_one();
        }
        append(&mut state.out);
    }

    /// Logs a line that is no message, unless many were.
    pub(crate) fn log_bad(&self, line: &[u8], error: &Error) {
        let logged = self.bad_lines_logged.load(Ordering::Relaxed);
        if logged >= BAD_LINES_LOGGED_MAX {
            return;
        }
        self.bad_lines_logged.store(logged + 1, Ordering::Relaxed);
        tracing::warn!(connection = self.number, line = %wire::excerpt(line), "a bad line: {error}");
        if logged + 1 == BAD_LINES_LOGGED_MAX {
            tracing::warn!(connection = self.number, "no more bad lines of this connection are logged");
        }
    }

    /// Answers a line that has no id to answer to.
    pub(crate) fn answer_nobody(&self, error: &Error) {
        self.write(&mut self.lock(), |out| wire::write_response(out, "null", Err(&wire::encode_error(error))));
    }

    /// Says something now, whatever the bound of the output: for one who has asked for room before.
    pub(crate) fn tell(&self, method: &str, params: Option<&str>) -> Result<(), CallError> {
        let mut state = self.lock();
        if state.closed {
            return Err(CallError::Disconnected);
        }
        self.write(&mut state, |out| wire::write_call(out, None, method, params.map(str::as_bytes)));
        Ok(())
    }

    /// Says something once the output is below its bound. A turn's words are refused once it is over; that is decided
    /// under the lock that orders the output, so nothing of a turn stands after its response.
    pub(crate) async fn say(&self, turn: Option<Arrival>, line: &[u8]) -> Result<(), CallError> {
        loop {
            let written = self.written.notified();
            {
                let mut state = self.lock();
                if state.closed {
                    return Err(CallError::Disconnected);
                }
                if turn.is_some_and(|turn| !state.core.is_running(turn)) {
                    return Err(CallError::TurnOver);
                }
                if self.may_write(&state) {
                    self.write(&mut state, |out| out.extend_from_slice(line));
                    return Ok(());
                }
            }
            written.await;
        }
    }

    pub(crate) fn may_write(&self, state: &State) -> bool {
        state.unwritten() < self.options.out_bytes_max
    }

    /// Takes everything that is to be written, in exchange for an empty buffer. Waits until there is something.
    pub(crate) async fn take_output(&self, batch: &mut Vec<u8>) {
        batch.clear();
        loop {
            let unwritten = self.unwritten.notified();
            {
                let mut state = self.lock();
                if !state.out.is_empty() {
                    std::mem::swap(&mut state.out, batch);
                    state.writing = batch.len();
                    return;
                }
            }
            unwritten.await;
        }
    }

    /// What was taken has been written. True if there is nothing more to write just now.
    pub(crate) fn is_drained(&self) -> bool {
        self.lock().out.is_empty()
    }

    /// What was taken has been written and, if there was nothing more, flushed.
    pub(crate) fn output_written(&self) {
        self.lock().writing = 0;
        self.written.notify_waiters();
        self.stepped.notify_waiters();
    }

    // Calls.

    /// Makes a call for the handler of a message, or for nobody where that one does not run any more.
    pub(crate) async fn call(
        self: &Arc<Self>,
        by: Option<Arrival>,
        method: &str,
        params: Vec<u8>,
    ) -> Result<Box<str>, CallError> {
        let (caller, response) = oneshot::channel();
        let mut caller = Some(caller);
        let effects = loop {
            let written = self.written.notified();
            let by = by.filter(|by| self.lock().core.is_running(*by));
            let step = Step::Called { by };
            self.hold(&step).await;
            {
                let mut state = self.lock();
                if state.closed {
                    return Err(CallError::Disconnected);
                }
                // Its handler may have returned meanwhile, and the output may be over its bound.
                let still = by.is_none_or(|by| state.core.is_running(by));
                if still
                    && self.may_write(&state)
                    && let Some(caller) = caller.take()
                {
                    let with = With::Call { method, params: Some(&params), caller: Caller::Task(caller) };
                    // A call by nobody or by a running handler is always owed.
                    break self.apply(&mut state, step, with).unwrap_or_default();
                }
                if !still {
                    continue;
                }
            }
            written.await;
        };
        self.asked(&effects, response)
            .answer()
            .await?
            .map_err(|error| CallError::Refused { method: method.into(), error: wire::peer_error(&error) })
    }

    /// Makes a call for nobody now, whatever the bound of the output: for one who has asked for room before.
    pub(crate) fn ask(self: &Arc<Self>, method: &str, params: Option<&str>) -> Result<Asked, CallError> {
        let (caller, response) = oneshot::channel();
        let params = params.map(str::as_bytes);
        let with = With::Call { method, params, caller: Caller::Task(caller) };
        let mut state = self.lock();
        if state.closed {
            return Err(CallError::Disconnected);
        }
        // A call by nobody is always owed.
        let effects = self.apply(&mut state, Step::Called { by: None }, with).unwrap_or_default();
        drop(state);
        Ok(self.asked(&effects, response))
    }

    fn asked(self: &Arc<Self>, effects: &Effects, response: oneshot::Receiver<Response>) -> Asked {
        let open = effects.iter().find_map(|effect| match effect {
            Effect::Call(call) => Some(OpenCall { shell: Arc::clone(self), call: *call, seen: false }),
            _ => None,
        });
        Asked { open, response }
    }

    // Waiting, and the end.

    /// Waits until the state is as asked.
    pub(crate) async fn until(&self, mut is_so: impl FnMut(&State) -> bool) {
        loop {
            let stepped = self.stepped.notified();
            {
                let mut state = self.lock();
                if is_so(&state) {
                    return;
                }
                state.step_awaited = true;
            }
            stepped.await;
        }
    }

    /// Nothing can be said any more: whoever waits to do so learns of it. Gives what was said and not taken to be written.
    pub(crate) fn close(&self) -> Vec<u8> {
        let mut state = self.lock();
        state.closed = true;
        state.writing = 0;
        let rest = std::mem::take(&mut state.out);
        drop(state);
        self.written.notify_waiters();
        self.stepped.notify_waiters();
        rest
    }

    /// Waits until not too many tasks have not begun.
    pub(crate) async fn until_begun(&self) {
        loop {
            let begun = self.begun.notified();
            {
                let mut state = self.lock();
                if state.starting < STARTING_MAX {
                    return;
                }
                state.begin_awaited = true;
            }
            begun.await;
        }
    }

    /// Ends every task and forgets everything.
    pub(crate) fn end(&self) {
        self.close();
        let (messages, calls) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.messages), std::mem::take(&mut state.calls))
        };
        for (_, entry) in messages {
            match entry {
                Entry::Task { task: Some(task), .. } => task.abort(),
                Entry::Passed(relay, call) => relay.to.give_up(call),
                Entry::Task { .. } | Entry::Held(..) => {}
            }
        }
        // Without a sender each caller learns that the peer is gone.
        for (_, open) in calls {
            if let Caller::Relay(passed) = open.caller {
                FollowUp::Gone(passed).run();
            }
        }
    }

    /// Gives up a call, where it is open still.
    pub(crate) fn give_up(self: &Arc<Self>, call: CallId) {
        let mut state = self.lock();
        if state.core.is_open(call) {
            // An open call can always be dropped.
            let _ = self.apply(&mut state, Step::CallDropped { call }, With::Nothing);
            state.calls.remove(&call);
        }
    }

    /// Whether a task was started or woken since this was asked last.
    pub(crate) fn has_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::Relaxed)
    }
}

impl State {
    /// A message that was taken in waits to be passed on.
    pub(crate) fn hold(&mut self, arrival: Arrival, relay: &Arc<Relay>, message: HeldMessage) {
        self.messages.insert(arrival, Entry::Held(Arc::clone(relay), message));
    }

    /// A message has been passed on.
    pub(crate) fn passed(&mut self, arrival: Arrival, relay: &Arc<Relay>, call: CallId) {
        self.messages.insert(arrival, Entry::Passed(Arc::clone(relay), call));
    }

    /// The requests of another connection that were passed on here and are not answered.
    pub(crate) fn relayed(&mut self) -> impl Iterator<Item = (CallId, &mut Passed)> {
        self.calls.iter_mut().filter_map(|(call, open)| match &mut open.caller {
            Caller::Relay(passed) => Some((*call, passed)),
            Caller::Task(_) => None,
        })
    }

    /// Whether nothing can be written any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// How much the peer has not read yet.
    pub(crate) fn unwritten(&self) -> usize {
        self.out.len() + self.writing
    }
}

/// A call that was made. Dropped before its answer is there, it is given up.
pub(crate) struct Asked {
    /// None where the peer was gone already.
    open: Option<OpenCall>,
    response: oneshot::Receiver<Response>,
}

impl Asked {
    /// Waits for the answer, as it stands on the wire: the result, or what the peer refused with. It comes once; the future
    /// may be dropped and another one made before.
    pub(crate) async fn answer(&mut self) -> Result<Result<Box<str>, Box<str>>, CallError> {
        let response = (&mut self.response).await;
        if let Some(open) = self.open.take() {
            open.resumed();
        }
        match response {
            Ok(Response::Answered(answer)) => Ok(answer),
            Ok(Response::Disconnected) | Err(_) => Err(CallError::Disconnected),
        }
    }
}

/// A call whose caller waits. Dropped before the response was seen, it tells the peer that nobody waits any more.
struct OpenCall {
    shell: Arc<Shell>,
    call: CallId,
    /// The caller has its response.
    seen: bool,
}

impl OpenCall {
    /// The caller has its response. Notifications that came after it may go on once the caller's task has done what follows,
    /// up to its next wait: a task that is spawned here runs after that, since it stands in the spawning thread's own slot.
    fn resumed(mut self) {
        if !self.shell.lock().core.is_given(self.call) {
            return;
        }
        let (shell, call) = (Arc::clone(&self.shell), self.call);
        let resumed = async move {
            let step = Step::Resumed { call };
            shell.hold(&step).await;
            let mut state = shell.lock();
            // Meanwhile its time may have been over.
            if state.core.is_given(call) {
                let _ = shell.apply(&mut state, step, With::Nothing);
            }
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.seen = true;
            runtime.spawn(resumed);
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if self.seen {
            return;
        }
        #[cfg(feature = "check")]
        if self.shell.is_gated()
            && self.shell.lock().core.is_open(self.call)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (shell, call) = (Arc::clone(&self.shell), self.call);
            runtime.spawn(async move {
                shell.hold(&Step::CallDropped { call }).await;
                shell.give_up(call);
            });
            return;
        }
        self.shell.give_up(self.call);
    }
}

/// A notification waits for the caller of this call to resume. It does not wait for ever.
async fn await_caller(shell: Arc<Shell>, call: CallId) {
    let is_awaited = |state: &State| !state.closed && state.core.is_awaited(call);
    let step = Step::ResumeOver { call };
    let over = async {
        if shell.is_gated() {
            // The checker decides when time is over.
            shell.hold(&step).await;
        } else {
            tokio::time::sleep(shell.options.resume_max).await;
        }
    };
    tokio::select! {
        biased;
        // It resumed, gave up, or is gone with the connection.
        () = shell.until(|state| !is_awaited(state)) => return,
        // It does not come to it.
        () = over => {}
    }
    let mut state = shell.lock();
    if is_awaited(&state) {
        tracing::warn!(
            connection = shell.number,
            call = call.0,
            "a caller has not looked at its response for {:?}; the notifications after it go on",
            shell.options.resume_max
        );
        let _ = shell.apply(&mut state, step, With::Nothing);
    }
}
