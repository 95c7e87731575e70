//! What a checker holds the real service by, so that it takes one exact order of steps. Only in the check build.
//!
//! Leads and workers are the checker's own calls, so that their steps come when it makes them; a window ends when it drops a
//! call. All that happens by itself is the store, and that waits for [`Commits`].

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use lastword_core::delegation::Delegation;

use super::{Config, Handle};

/// Lets the journal commit. Dropped, it commits nothing more: with the service, that is a crash.
#[derive(Debug)]
pub struct Commits(mpsc::Sender<usize>);

impl Commits {
    /// Lets it commit so many entries as one transaction, as soon as it was asked for as many.
    pub fn commit(&self, entries: usize) {
        // A journal that has failed says so itself.
        let _ = self.0.send(entries);
    }
}

/// The other end, for the service that is opened first.
pub(super) type Permits = Arc<Mutex<Option<mpsc::Receiver<usize>>>>;

impl Config {
    /// Holds every commit of the service that is opened with this until it is let pass.
    pub fn gated(&mut self) -> Commits {
        let (commits, permits) = mpsc::channel();
        self.permits = Arc::new(Mutex::new(Some(permits)));
        Commits(commits)
    }

    pub(super) fn take_permits(&self) -> Option<mpsc::Receiver<usize>> {
        self.permits.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Handle {
    /// The machine as it is now.
    #[must_use]
    pub fn machine(&self) -> Delegation {
        self.shell.lock().core.clone()
    }

    /// Waits until the machine is in such a state.
    pub async fn until(&self, mut is_so: impl FnMut(&Delegation) -> bool) {
        loop {
            let stepped = self.shell.stepped.notified();
            if is_so(&self.shell.lock().core) {
                return;
            }
            stepped.await;
        }
    }
}
