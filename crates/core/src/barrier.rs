//! The notification barrier: notification handlers run one at a time, in arrival order; a request starts, and a caller
//! gets its response, only after the notifications that arrived before were handled.
//!
//! One exception keeps both sides from waiting for each other: while the handler that runs waits for the peer, requests
//! start and responses are given out, since the peer may need what they lead to before it can give its own.
//!
//! And a notification's handler starts only after the callers resumed whose responses arrived before it. A caller may not
//! come to it, for example because its task does something else first, perhaps waiting for just that notification; so
//! this holds a notification back for a bounded time only: then [`crate::Step::ResumeOver`] lets it go on.

use alloc::collections::{BTreeSet, VecDeque};

use crate::{
    connection::Limits,
    guard::guard,
    id::{Arrival, CallId},
    requests::Stage,
};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Barrier {
    /// The notifications that are not handled yet, in arrival order. Only the first one's handler may run.
    queue: VecDeque<Arrival>,
    /// How far the handler of the first one has come.
    stage: Stage,
    /// How many responses of the peer the handler of the first one waits for.
    waits: usize,
    /// The requests that wait for notifications.
    held: BTreeSet<Arrival>,
    /// The responses that do, in the order in which they came, each with the last message that arrived before it.
    responses: VecDeque<(Arrival, CallId)>,
    /// The responses that were given and whose callers have not resumed, in the order in which they came.
    given: VecDeque<Given>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Given {
    /// The last message that arrived before the response.
    after: Arrival,
    call: CallId,
    /// A notification waits for the caller to resume, and its time runs.
    awaited: bool,
}

impl Default for Barrier {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            stage: Stage::Held,
            waits: 0,
            held: BTreeSet::new(),
            responses: VecDeque::new(),
            given: VecDeque::new(),
        }
    }
}

impl Barrier {
    pub(crate) fn push(&mut self, notification: Arrival) {
        self.queue.push_back(notification);
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn held(&self) -> usize {
        self.held.len() + self.responses.len() + self.given.len()
    }

    pub(crate) fn is_queued(&self, notification: Arrival) -> bool {
        self.queue.binary_search(&notification).is_ok()
    }

    /// The notification whose turn it is, and how far its handler has come.
    pub(crate) fn head(&self) -> Option<(Arrival, Stage)> {
        Some((*self.queue.front()?, self.stage))
    }

    pub(crate) fn set_running(&mut self) {
        self.stage = Stage::Running;
    }

    /// Gives the first notification, if its handler may start now.
    pub(crate) fn start(&mut self, limits: &Limits) -> Option<Arrival> {
        let first = *self.queue.front()?;
        let is_overtaking = self.given.front().is_some_and(|given| given.after < first);
        if self.stage != Stage::Held || guard!(limits, "later-notification-waits-for-caller", is_overtaking) {
            return None;
        }
        self.stage = Stage::Starting;
        Some(first)
    }

    /// The next call whose caller the first notification waits for from now on.
    pub(crate) fn await_caller(&mut self) -> Option<CallId> {
        let (first, Stage::Held) = self.head()? else { return None };
        let late = self.given.iter_mut().find(|given| given.after < first && !given.awaited)?;
        late.awaited = true;
        Some(late.call)
    }

    /// Whether a notification waits for this call's caller to resume.
    pub(crate) fn is_awaited(&self, call: CallId) -> bool {
        self.given.iter().any(|given| given.call == call && given.awaited)
    }

    /// Whether this call's caller has its response and has not resumed.
    pub(crate) fn is_given(&self, call: CallId) -> bool {
        self.given.iter().any(|given| given.call == call)
    }

    /// The first notification is handled.
    pub(crate) fn pop(&mut self) {
        self.queue.pop_front();
        self.stage = Stage::Held;
        self.waits = 0;
    }

    /// The handler of this message waits for one more response of the peer; only the notification's counts here.
    pub(crate) fn wait(&mut self, by: Arrival) {
        if self.is_run_by(by) {
            self.waits += 1;
        }
    }

    /// One response that the handler of this message waited for is there.
    pub(crate) fn wait_over(&mut self, by: Arrival) {
        if self.is_run_by(by) {
            self.waits -= 1;
        }
    }

    pub(crate) fn is_run_by(&self, by: Arrival) -> bool {
        self.head() == Some((by, Stage::Running))
    }

    /// Whether the handler that runs waits for the peer.
    pub(crate) fn waits_for_peer(&self) -> bool {
        self.waits > 0
    }

    /// Whether what came with or after this arrival, and before the next one, may go on.
    fn is_open(&self, arrival: Arrival, limits: &Limits) -> bool {
        self.queue.front().is_none_or(|first| arrival < *first)
            || guard!(limits, "peer-wait-releases", self.waits_for_peer())
    }

    /// Whether a request may start.
    pub(crate) fn lets_start(&self, request: Arrival, limits: &Limits) -> bool {
        !guard!(limits, "request-waits-for-earlier-notifications", !self.is_open(request, limits))
    }

    /// Keeps a request until [`Barrier::release`] takes it out.
    pub(crate) fn hold(&mut self, request: Arrival) {
        self.held.insert(request);
    }

    pub(crate) fn forget(&mut self, request: Arrival) {
        self.held.remove(&request);
    }

    /// Takes out the first held request, if it may start.
    pub(crate) fn release(&mut self, limits: &Limits) -> Option<Arrival> {
        let first = *self.held.first()?;
        self.lets_start(first, limits).then(|| self.held.pop_first()).flatten()
    }

    /// Keeps a response that came after this arrival until [`Barrier::give`] takes it out.
    pub(crate) fn keep(&mut self, after: Arrival, call: CallId) {
        self.responses.push_back((after, call));
    }

    /// Nobody waits for the response any more, or its caller has resumed.
    pub(crate) fn discard(&mut self, call: CallId) {
        // Callers mostly resume in the order of their responses, so that the first one is the one.
        if let Some(at) = self.given.iter().position(|given| given.call == call) {
            self.given.remove(at);
        } else if let Some(at) = self.responses.iter().position(|(_, kept)| *kept == call) {
            self.responses.remove(at);
        }
    }

    /// Gives out the first response, if its caller may have it.
    pub(crate) fn give(&mut self, limits: &Limits) -> Option<CallId> {
        let (after, call) = *self.responses.front()?;
        if guard!(limits, "response-waits-for-earlier-notifications", !self.is_open(after, limits)) {
            return None;
        }
        self.responses.pop_front();
        self.given.push_back(Given { after, call, awaited: false });
        Some(call)
    }
}
