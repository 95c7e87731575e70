//! A service in a folder of its own, and workers that are tasks: a test says what each of them does.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lastword::delegation::{
    Assignment, Config, Handle, Launch, LeadId, Life, Limits, OpenError, Seat, Seen, Service, Work, WorkerId,
};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

/// The lead of most tests, and another one.
pub(crate) const LEAD: LeadId = LeadId(1);
pub(crate) const OTHER_LEAD: LeadId = LeadId(2);

/// Far longer than anything takes: a call that waits so long waits for an event.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// As good as at once.
pub(crate) const SHORT: Duration = Duration::from_millis(20);

/// A folder with a journal, which outlives the services that open it.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.0.path().join("fleet.journal")
    }

    pub(crate) fn open(&self) -> (Service, Handle, Stage) {
        self.try_open(Limits::default()).expect("the journal opens")
    }

    pub(crate) fn try_open(&self, limits: Limits) -> Result<(Service, Handle, Stage), OpenError> {
        let (launch, stage) = puppets();
        let mut config = Config::new(launch);
        config.limits = limits;
        let service = Service::open(&self.journal(), config)?;
        let handle = service.handle();
        Ok((service, handle, stage))
    }
}

/// Workers that do what a test says.
struct Puppets {
    entered: mpsc::UnboundedSender<Puppet>,
}

/// Where the test meets its workers, in the order in which they are launched.
pub(crate) struct Stage {
    entered: Mutex<mpsc::UnboundedReceiver<Puppet>>,
}

/// A worker that is launched, in the hands of the test.
pub(crate) struct Puppet {
    pub(crate) seat: Seat,
    die: oneshot::Sender<String>,
}

fn puppets() -> (Arc<dyn Launch>, Stage) {
    let (entered, received) = mpsc::unbounded_channel();
    (Arc::new(Puppets { entered }), Stage { entered: Mutex::new(received) })
}

impl Launch for Puppets {
    fn kinds(&self) -> Vec<String> {
        vec!["puppet".to_owned()]
    }

    fn launch(&self, seat: Seat) -> Life {
        let (die, death) = oneshot::channel();
        let stop = seat.stop().clone();
        let _ = self.entered.send(Puppet { seat, die });
        Box::pin(async move {
            tokio::select! {
                how = death => how.unwrap_or_else(|_| "the test let it go".to_owned()),
                () = stop.cancelled() => "it was stopped".to_owned(),
            }
        })
    }
}

impl Stage {
    pub(crate) async fn enters(&self) -> Puppet {
        let next = std::future::poll_fn(|context| {
            self.entered.lock().unwrap_or_else(PoisonError::into_inner).poll_recv(context)
        });
        tokio::time::timeout(LONG, next).await.expect("in time").expect("the service lives")
    }
}

impl Puppet {
    pub(crate) fn id(&self) -> WorkerId {
        self.seat.worker()
    }

    pub(crate) async fn next(&mut self) -> Assignment {
        tokio::time::timeout(LONG, self.seat.next()).await.expect("in time").expect("a prompt")
    }

    pub(crate) fn dies(self, how: &str) {
        let _ = self.die.send(how.to_owned());
    }
}

/// A lead's worker, launched.
pub(crate) async fn worker(fleet: &Handle, stage: &Stage) -> Puppet {
    let worker = fleet.spawn(LEAD, "puppet", "Ada").await.expect("a worker");
    let puppet = stage.enters().await;
    assert_eq!(puppet.id(), worker);
    puppet
}

pub(crate) async fn send(fleet: &Handle, worker: WorkerId, text: &str) -> Seen {
    fleet.send(LEAD, Work::new(worker, text)).await.expect("a ticket")
}
