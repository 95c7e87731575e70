//! The turns of each session: which prompt is live, and which one's handler runs.
//!
//! What becomes of prompts that overlap is decided when they arrive, see [`Overlap`]: the newer one ends the older one, or it
//! waits, or it is refused. So of the prompts of a session that nothing has ended at most one is not waiting. That is all
//! there is to remember, and nothing needs to be compared later.

use alloc::collections::{BTreeMap, BTreeSet};
use core::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{
    connection::Limits,
    guard::guard,
    id::{Arrival, SessionId},
};

/// What becomes of a prompt that arrives while an older one of its session is in flight that nothing has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It ends the older one.
    #[default]
    Replace,
    /// It waits: the prompts of a session start in the order of their arrival, each after the one before.
    Queue,
    /// It is refused, and nothing changes.
    Refuse,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Session {
    /// The prompt that nothing has ended and that waits for no live one.
    pub(crate) live: Option<Arrival>,
    /// The prompt whose handler runs; it may have been ended.
    pub(crate) running: Option<Arrival>,
}

/// The sessions with a prompt that is live or runs. A session without one is not remembered: NothingLingers.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Turns {
    sessions: BTreeMap<SessionId, Session>,
    /// The prompts that nothing has ended and that wait for the live one of their session, in the order of their arrival.
    waiting: BTreeSet<(SessionId, Arrival)>,
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

    /// The prompt waits until those of its session that arrived before it are over.
    pub(crate) fn wait(&mut self, session: &SessionId, prompt: Arrival) {
        self.waiting.insert((session.clone(), prompt));
    }

    /// The prompts of the session that nothing has ended, in the order of their arrival.
    pub(crate) fn unended(&self, session: &SessionId) -> SmallVec<[Arrival; 2]> {
        self.live(session).into_iter().chain(self.waiting(session)).collect()
    }

    fn waiting<'a>(&'a self, session: &'a SessionId) -> impl Iterator<Item = Arrival> + 'a {
        // Mostly nothing waits at all, and then the name of the session need not be copied to look.
        let from = (!self.waiting.is_empty()).then(|| (session.clone(), Arrival(0)));
        let after = from.map(|from| self.waiting.range(from..)).into_iter().flatten();
        after.take_while(move |(of, _)| of == session).map(|(_, prompt)| *prompt)
    }

    /// The live prompt of the session.
    pub(crate) fn live(&self, session: &SessionId) -> Option<Arrival> {
        self.sessions.get(session)?.live
    }

    /// The prompt of the session whose handler runs.
    pub(crate) fn running(&self, session: &SessionId) -> Option<Arrival> {
        self.sessions.get(session)?.running
    }

    /// Whether no handler of the session runs.
    pub(crate) fn is_free(&self, session: &SessionId) -> bool {
        self.running(session).is_none()
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

    /// Removes the entries of the prompt that are its own, and the session once it has none. What waited for it moves up.
    fn clean_up(&mut self, session: &SessionId, prompt: Arrival, leaves: bool, limits: &Limits) {
        let next = self.waiting(session).next();
        let Some(entry) = self.sessions.get_mut(session) else { return };
        if leaves && entry.running == Some(prompt) {
            entry.running = None;
        }
        if guard!(limits, "clean-up-own-entry-only", entry.live == Some(prompt)) {
            entry.live = next;
            if let Some(next) = next {
                self.waiting.remove(&(session.clone(), next));
            }
        } else if next.is_some() {
            self.waiting.remove(&(session.clone(), prompt));
        }
        if guard!(limits, "idle-session-is-forgotten", *entry == Session::default()) {
            self.sessions.remove(session);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len() + self.waiting.len()
    }
}

impl fmt::Debug for Turns {
    /// Where prompts never wait, the text of a state, and so its digest, has nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut turns = f.debug_struct("Turns");
        turns.field("sessions", &self.sessions);
        if !self.waiting.is_empty() {
            turns.field("waiting", &self.waiting);
        }
        turns.finish()
    }
}
