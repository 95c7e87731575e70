//! Our requests to the peer whose callers have not resumed yet.

use crate::{
    id::{Arrival, CallId},
    rising::Rising,
};

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Calls {
    /// The number of the last call; each has one of its own, so that a late response finds nothing.
    last: u64,
    open: Rising<CallId, Call>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Call {
    /// The message whose handler made it.
    by: Option<Arrival>,
    /// The response has arrived.
    answered: bool,
}

impl Calls {
    pub(crate) fn open(&mut self, by: Option<Arrival>) -> CallId {
        let call = self.number();
        self.open.insert(call, Call { by, answered: false });
        call
    }

    /// A number for a call that is over before it began.
    pub(crate) fn number(&mut self) -> CallId {
        self.last += 1;
        CallId(self.last)
    }

    /// The response has arrived; says who made the call, or none where no such call waits for one.
    pub(crate) fn answer(&mut self, call: CallId) -> Option<Option<Arrival>> {
        let call = self.open.get_mut(&call).filter(|call| !call.answered)?;
        call.answered = true;
        Some(call.by)
    }

    /// The call is over; says who made it and whether its response has arrived, or none where no such call is open.
    pub(crate) fn close(&mut self, call: CallId) -> Option<(Option<Arrival>, bool)> {
        self.open.remove(&call).map(|call| (call.by, call.answered))
    }

    /// The first call without a response.
    pub(crate) fn first_unanswered(&self) -> Option<CallId> {
        self.open.iter().find_map(|(call, open)| (!open.answered).then_some(*call))
    }

    pub(crate) fn is_open(&self, call: CallId) -> bool {
        self.open.contains_key(&call)
    }

    /// Whether the peer has not responded to an open call.
    pub(crate) fn is_unanswered(&self, call: CallId) -> bool {
        self.open.get(&call).is_some_and(|call| !call.answered)
    }

    /// Each call whose caller waits, with the message whose handler made it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (CallId, Option<Arrival>)> {
        self.open.iter().map(|(call, open)| (*call, open.by))
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }
}
