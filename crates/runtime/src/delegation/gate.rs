//! What a checker holds the real service by, so that it takes one exact order of steps. Only in the check build.
//!
//! Leads and workers are the checker's own calls, so that their steps come when it makes them; a window ends when it drops a
//! call. All that happens by itself is the store, and that waits for [`Conductor::commit`].

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use lastword_core::delegation::{Delegation, Effects, Refused, Step};
use tokio::sync::mpsc as channel;

use super::{Config, Handle};

/// Lets the journal commit, and sees each step that the service takes. Dropped, it lets nothing more be committed: with the
/// service, that is a crash.
#[derive(Debug)]
pub struct Conductor {
    commits: mpsc::Sender<usize>,
    taken: channel::UnboundedReceiver<Taken>,
}

/// A step that came to the machine of the service.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Taken {
    /// The step.
    pub step: Step,
    /// What the machine said; by now the effects have been carried out.
    pub effects: Result<Effects, Refused>,
    /// The machine after it.
    pub after: Delegation,
}

impl Conductor {
    /// Lets the journal commit so many entries as one transaction, as soon as it was asked for as many.
    pub fn commit(&self, entries: usize) {
        // A journal that has failed says so itself.
        let _ = self.commits.send(entries);
    }

    /// The next step that came to the machine; none once the service is gone.
    pub async fn next(&mut self) -> Option<Taken> {
        self.taken.recv().await
    }
}

/// What tells a conductor, where there is one.
#[derive(Default)]
pub(super) struct Conducted(Option<channel::UnboundedSender<Taken>>);

impl Conducted {
    /// What is told of a step that is about to be taken.
    pub(super) fn of(&self, step: &Step) -> Option<Step> {
        self.0.is_some().then(|| step.clone())
    }

    pub(super) fn tell(&self, step: Option<Step>, effects: Result<Effects, Refused>, core: &Delegation) {
        if let (Some(step), Some(tell)) = (step, &self.0) {
            // A checker that is gone has no use for it.
            let _ = tell.send(Taken { step, effects, after: core.clone() });
        }
    }
}

/// The other end of a conductor, for the service that is opened first.
pub(super) type Baton = Arc<Mutex<(Option<mpsc::Receiver<usize>>, Conducted)>>;

impl Config {
    /// Holds every commit of the service that is opened with this until it is let pass.
    pub fn gated(&mut self) -> Conductor {
        let (commits, permits) = mpsc::channel();
        let (tell, taken) = channel::unbounded_channel();
        self.baton = Arc::new(Mutex::new((Some(permits), Conducted(Some(tell)))));
        Conductor { commits, taken }
    }

    pub(super) fn take_baton(&self) -> (Option<mpsc::Receiver<usize>>, Conducted) {
        std::mem::take(&mut self.baton.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Handle {
    /// The machine as it is now.
    #[must_use]
    pub fn machine(&self) -> Delegation {
        self.shell.lock().core.clone()
    }
}
