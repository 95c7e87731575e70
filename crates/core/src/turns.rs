//! The turns of each session: which prompt is live, and which one's handler runs.
//!
//! A newer prompt ends the older one when it arrives, so at most one prompt of a session is live. That is all there is
//! to remember, and nothing needs to be compared later.

use alloc::collections::BTreeMap;

use crate::{
    connection::Limits,
    guard::guard,
    id::{Arrival, SessionId},
};

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Session {
    /// The one prompt that nothing has ended: the newest.
    pub(crate) live: Option<Arrival>,
    /// The prompt whose handler runs; it may have been ended.
    pub(crate) running: Option<Arrival>,
}

/// The sessions with a prompt that is live or runs. A session without one is not remembered: NothingLingers.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Turns {
    sessions: BTreeMap<SessionId, Session>,
}

impl Turns {
    /// Makes the prompt the live one of its session and says which one was.
    pub(crate) fn replace_live(&mut self, session: &SessionId, prompt: Arrival) -> Option<Arrival> {
        match self.sessions.get_mut(session) {
            Some(entry) => entry.live.replace(prompt),
            None => {
                self.sessions.insert(session.clone(), Session { live: Some(prompt), running: None });
                None
            }
        }
    }

    /// The live prompt of the session.
    pub(crate) fn live(&self, session: &SessionId) -> Option<Arrival> {
        self.sessions.get(session)?.live
    }

    /// Whether no handler of the session runs.
    pub(crate) fn is_free(&self, session: &SessionId) -> bool {
        self.sessions.get(session).is_none_or(|entry| entry.running.is_none())
    }

    /// The prompt's handler runs from now on.
    pub(crate) fn run(&mut self, session: &SessionId, prompt: Arrival) {
        self.sessions.entry(session.clone()).or_default().running = Some(prompt);
    }

    /// The prompt has been ended: it is not live any more.
    pub(crate) fn end(&mut self, session: &SessionId, prompt: Arrival, limits: &Limits) {
        self.clean_up(session, prompt, false, limits);
    }

    /// The prompt is answered: its session forgets it.
    pub(crate) fn leave(&mut self, session: &SessionId, prompt: Arrival, limits: &Limits) {
        self.clean_up(session, prompt, true, limits);
    }

    /// Removes the entries of the prompt that are its own, and the session once it has none.
    fn clean_up(&mut self, session: &SessionId, prompt: Arrival, leaves: bool, limits: &Limits) {
        let Some(entry) = self.sessions.get_mut(session) else { return };
        if leaves && entry.running == Some(prompt) {
            entry.running = None;
        }
        if guard!(limits, "clean-up-own-entry-only", entry.live == Some(prompt)) {
            entry.live = None;
        }
        if guard!(limits, "idle-session-is-forgotten", *entry == Session::default()) {
            self.sessions.remove(session);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }
}
