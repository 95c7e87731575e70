//! The requests of the peer that are in flight: taken in and not yet answered.

use alloc::collections::{BTreeMap, btree_map::Entry};

use crate::{
    id::{Arrival, IdValue, RequestId, SessionId},
    rising::Rising,
    step::Cause,
};

/// How far the handler of a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// It waits: for notifications that arrived earlier, or for the older turn of its session.
    Held,
    /// Its task was asked for and has not run yet.
    Starting,
    /// Its handler runs.
    Running,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    /// The session, where the request is a prompt.
    pub(crate) prompt: Option<SessionId>,
    pub(crate) stage: Stage,
    /// What ended it. Its handler may still run.
    pub(crate) ended: Option<Cause>,
}

/// Two ways to find a request, always with the same content.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Requests {
    by_arrival: Rising<Arrival, Request>,
    by_id: BTreeMap<IdValue, Arrival>,
}

impl Requests {
    /// Takes a request in, or gives it back where one with its id is in flight.
    pub(crate) fn insert(&mut self, arrival: Arrival, request: Request) -> Result<(), Request> {
        match self.by_id.entry(request.id.value().clone()) {
            Entry::Occupied(_) => Err(request),
            Entry::Vacant(entry) => {
                entry.insert(arrival);
                self.by_arrival.insert(arrival, request);
                Ok(())
            }
        }
    }

    pub(crate) fn remove(&mut self, arrival: Arrival) -> Option<Request> {
        let request = self.by_arrival.remove(&arrival)?;
        self.by_id.remove(request.id.value());
        Some(request)
    }

    pub(crate) fn get(&self, arrival: Arrival) -> Option<&Request> {
        self.by_arrival.get(&arrival)
    }

    pub(crate) fn get_mut(&mut self, arrival: Arrival) -> Option<&mut Request> {
        self.by_arrival.get_mut(&arrival)
    }

    pub(crate) fn find(&self, id: &RequestId) -> Option<Arrival> {
        self.by_id.get(id.value()).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_arrival.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Arrival, &Request)> {
        self.by_arrival.iter().map(|(arrival, request)| (*arrival, request))
    }
}
