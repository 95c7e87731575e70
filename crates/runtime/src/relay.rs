//! Passing messages on from one connection to another.
//!
//! A message that is passed on needs no handler: what a handler would do is done at once, on the stack of whoever applied the
//! step that lets it start. The steps are those of any other message, on both connections, and what the core has to say about
//! them is heard: a message may be held, a request may be ended, its answer may have to wait.

use std::{borrow::Cow, pin::Pin, sync::Arc};

use lastword_core::{Arrival, CallId, Effect, Effects, NotOwed, Step};
use smol_str::SmolStr;
use tokio::time::Instant;

use crate::{
    handler::{Answer, outcome},
    shell::{Caller, Locked, Shell, With},
};

/// One direction: what arrives on one connection is said on the other.
pub(crate) struct Relay {
    from: Arc<Shell>,
    pub(crate) to: Arc<Shell>,
    /// What a request is answered with while nobody is at the other end.
    gone: Box<dyn Fn() -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync>,
}

/// A message as it came.
pub(crate) struct Message<'a> {
    pub(crate) is_request: bool,
    pub(crate) method: Cow<'a, str>,
    pub(crate) params: Option<&'a str>,
}

/// A message that does not start when it arrives.
pub(crate) struct HeldMessage {
    is_request: bool,
    method: SmolStr,
    params: Option<Box<str>>,
}

/// A request that was passed on and not answered.
pub(crate) struct Passed {
    pub(crate) relay: Arc<Relay>,
    pub(crate) arrival: Arrival,
    pub(crate) method: SmolStr,
    /// From when on the time counts that it may take.
    pub(crate) since: Instant,
}

/// What is left to be done once the lock of the connection is released.
pub(crate) enum FollowUp {
    /// A message that was held starts.
    Start(Arc<Relay>, Arrival, HeldMessage),
    /// A request is answered.
    Answered(Passed, CallId, Result<Box<str>, Box<str>>),
    /// Nobody is there to answer a request.
    Gone(Passed),
    /// A request was ended that has been passed on as this call.
    Ended(Arc<Relay>, Arrival, CallId),
}

impl FollowUp {
    pub(crate) fn run(self) {
        match self {
            Self::Start(relay, arrival, HeldMessage { is_request, method, params }) => {
                let message = Message { is_request, method: Cow::Borrowed(&method), params: params.as_deref() };
                relay.start(relay.from.lock(), arrival, &message);
            }
            Self::Answered(passed, call, answer) => passed.answer(call, answer.as_deref().map_err(|error| &**error)),
            Self::Gone(passed) => passed.relay.gone(passed.arrival),
            Self::Ended(relay, arrival, call) => relay.give_up(arrival, call, Ok(NOTHING)),
        }
    }
}

impl Passed {
    /// Answers the request with the response to the call as which it was passed on.
    pub(crate) fn answer(self, call: CallId, response: Result<&str, &str>) {
        let Self { relay, arrival, .. } = self;
        relay.returned(arrival, bytes(response));
        // The response has been passed on, or nobody wanted it any more.
        let _ = relay.to.apply(&mut relay.to.lock(), Step::Resumed { call }, With::Nothing);
    }
}

/// What a handler returns that has nothing to say.
pub(crate) const NOTHING: &[u8] = b"null";

impl Relay {
    pub(crate) fn new<G>(from: Arc<Shell>, to: Arc<Shell>, gone: impl Fn() -> G + Send + Sync + 'static) -> Arc<Self>
    where
        G: Future<Output = Answer> + Send + 'static,
    {
        Arc::new(Self { from, to, gone: Box::new(move || Box::pin(gone())) })
    }

    /// A message arrives. It is passed on now, or when it may start.
    pub(crate) fn arrive(self: &Arc<Self>, step: Step, message: &Message<'_>) -> Result<Effects, NotOwed> {
        let mut state = self.from.lock();
        let effects = self.from.apply(&mut state, step, With::Nothing)?;
        if let Some(Effect::Accept(arrival)) = effects.first() {
            if effects.contains(&Effect::Start(*arrival)) {
                self.start(state, *arrival, message);
            } else {
                state.hold(*arrival, self, message.held());
            }
        }
        Ok(effects)
    }

    /// Whether there is room for one more message.
    pub(crate) fn has_room(&self) -> bool {
        self.to.may_write(&self.to.lock())
    }

    /// Waits until there is.
    pub(crate) async fn room(&self) {
        self.to.until(|state| self.to.may_write(state)).await;
    }

    fn start(self: &Arc<Self>, mut state: Locked<'_>, arrival: Arrival, message: &Message<'_>) {
        let runs = match self.from.apply(&mut state, Step::Started(arrival), With::Nothing) {
            Ok(effects) => effects.contains(&Effect::Run(arrival)),
            // Whoever starts it was told to.
            Err(_) => false,
        };
        drop(state);
        if !runs {
            return;
        }
        if message.is_request {
            self.ask(arrival, message);
        } else {
            // One who is gone needs no telling.
            let _ = self.to.tell(&message.method, message.params);
            self.returned(arrival, Ok(NOTHING));
        }
    }

    fn ask(self: &Arc<Self>, arrival: Arrival, message: &Message<'_>) {
        let method = SmolStr::new(&message.method);
        let passed = Passed { relay: Arc::clone(self), arrival, method, since: Instant::now() };
        let caller = Caller::Relay(passed);
        let params = message.params.map(str::as_bytes);
        let mut state = self.to.lock();
        if state.is_closed() {
            drop(state);
            return self.gone(arrival);
        }
        let with = With::Call { method: &message.method, params, caller };
        // A call by nobody is always owed.
        let effects = self.to.apply(&mut state, Step::Called { by: None }, with).unwrap_or_default();
        drop(state);
        if let Some(Effect::Call(call)) = effects.first() {
            self.from.lock().passed(arrival, self, *call);
        }
    }

    /// Answers a request where nobody is at the other end.
    fn gone(self: &Arc<Self>, arrival: Arrival) {
        // Without a runtime nobody is left to be answered.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let relay = Arc::clone(self);
            runtime.spawn(async move {
                let answer = (relay.gone)().await;
                relay.returned(arrival, answer.as_deref().map_err(Vec::as_slice));
            });
        }
    }

    /// Gives up a request that was passed on, and answers it.
    pub(crate) fn give_up(&self, arrival: Arrival, call: CallId, answer: Result<&[u8], &[u8]>) {
        self.to.give_up(call);
        self.returned(arrival, answer);
    }

    /// The message is done, and answered where it was a request. Nothing happens where it was done before.
    fn returned(&self, arrival: Arrival, answer: Result<&[u8], &[u8]>) {
        let step = Step::Returned(arrival, outcome(&answer));
        let _ = self.from.apply(&mut self.from.lock(), step, With::Answer(answer));
    }
}

impl Message<'_> {
    fn held(&self) -> HeldMessage {
        HeldMessage {
            is_request: self.is_request,
            method: SmolStr::new(&self.method),
            params: self.params.map(Box::from),
        }
    }
}

fn bytes<'a>(answer: Result<&'a str, &'a str>) -> Result<&'a [u8], &'a [u8]> {
    answer.map(str::as_bytes).map_err(str::as_bytes)
}
