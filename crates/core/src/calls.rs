//! Our requests to the peer that have no response yet.

use alloc::collections::BTreeMap;

use crate::id::{Arrival, CallId};

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Calls {
    /// The number of the last call; each has one of its own, so that a late response finds nothing.
    last: u64,
    /// Each open call, with the message whose handler made it.
    open: BTreeMap<CallId, Option<Arrival>>,
}

impl Calls {
    pub(crate) fn open(&mut self, by: Option<Arrival>) -> CallId {
        let call = self.number();
        self.open.insert(call, by);
        call
    }

    /// A number for a call that is over before it began.
    pub(crate) fn number(&mut self) -> CallId {
        self.last += 1;
        CallId(self.last)
    }

    /// The call is over; says who made it, or none where no such call is open.
    pub(crate) fn close(&mut self, call: CallId) -> Option<Option<Arrival>> {
        self.open.remove(&call)
    }

    pub(crate) fn pop(&mut self) -> Option<(CallId, Option<Arrival>)> {
        self.open.pop_first()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (CallId, Option<Arrival>)> {
        self.open.iter().map(|(call, by)| (*call, *by))
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }
}
