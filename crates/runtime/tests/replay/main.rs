//! Each recorded path of delegation on the real service: a real journal, real calls, and after each step the recorded state.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use lastword::delegation::{Commits, Config, Handle, Launch, LeadId, Life, Seat, Service, TicketId, Work, WorkerId};
use lastword_core::delegation::{Delegation, Limits, Step};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

/// Far longer than a step takes.
const LONG: Duration = Duration::from_secs(60);

/// No configuration has more.
const WORKERS_MAX: usize = 4;

/// Workers that do nothing of themselves, not even end when they are told to.
struct Actors(mpsc::UnboundedSender<(Seat, oneshot::Sender<String>)>);

impl Launch for Actors {
    fn kinds(&self) -> Vec<String> {
        vec!["actor".to_owned()]
    }

    fn launch(&self, seat: Seat) -> Life {
        let (die, death) = oneshot::channel();
        let _ = self.0.send((seat, die));
        Box::pin(async move { death.await.unwrap_or_default() })
    }
}

/// A service, and whatever a path has begun with it.
struct Stage {
    folder: TempDir,
    service: Service,
    fleet: Handle,
    commits: Commits,
    entering: mpsc::UnboundedReceiver<(Seat, oneshot::Sender<String>)>,
    seats: BTreeMap<WorkerId, (Seat, oneshot::Sender<String>)>,
    /// The calls, which watch and wait until the path says otherwise.
    calls: Vec<JoinHandle<()>>,
}

impl Stage {
    fn open(folder: TempDir) -> Self {
        let (enter, entering) = mpsc::unbounded_channel();
        let mut config = Config::new(Arc::new(Actors(enter)));
        let commits = config.gated();
        let service = Service::open(&folder.path().join("journal"), config).expect("it opens");
        let fleet = service.handle();
        Self { folder, service, fleet, commits, entering, seats: BTreeMap::new(), calls: Vec::new() }
    }

    /// Makes a call, and waits until it has come to the machine.
    async fn call(&mut self, call: impl Future<Output = ()> + Send + 'static) {
        let before = self.fleet.machine().digest();
        self.calls.push(tokio::spawn(call));
        self.until(|machine| machine.digest() != before).await;
    }

    async fn until(&self, is_so: impl FnMut(&Delegation) -> bool) {
        timeout(LONG, self.fleet.until(is_so)).await.expect("the step comes");
    }

    async fn spawn(&mut self) {
        let fleet = self.fleet.clone();
        self.call(async move { drop(fleet.spawn(LeadId(1), "actor", "Ada").await) }).await;
        self.take(&Step::Persisted { entries: 1 }).await;
    }

    async fn seat(&mut self, worker: WorkerId) -> &mut (Seat, oneshot::Sender<String>) {
        while !self.seats.contains_key(&worker) {
            let (seat, die) = timeout(LONG, self.entering.recv()).await.expect("in time").expect("a seat");
            self.seats.insert(seat.worker(), (seat, die));
        }
        self.seats.get_mut(&worker).expect("it was found")
    }

    fn worker_of(&self, ticket: TicketId) -> WorkerId {
        self.fleet.machine().decided().tickets[&ticket].worker
    }

    /// Brings it about that the service takes this step.
    async fn take(&mut self, step: &Step) {
        let fleet = self.fleet.clone();
        match step.clone() {
            Step::Persisted { entries } => {
                let before = self.fleet.machine().unstored().count();
                assert!(before >= entries, "the store was asked for {before} entries");
                let before = self.fleet.machine().digest();
                self.commits.commit(entries);
                self.until(|machine| machine.digest() != before).await;
            }
            Step::Sent { lead, worker, key, replace, watch } => {
                let mut work = Work::new(worker, "task");
                (work.key, work.replace) = (key, replace);
                if watch {
                    work.wait = LONG;
                }
                self.call(async move { drop(fleet.send(lead, work).await) }).await;
            }
            Step::Delivered { ticket } => {
                let worker = self.worker_of(ticket);
                let (seat, _) = self.seat(worker).await;
                let given = timeout(LONG, seat.next()).await.expect("in time").expect("a prompt");
                assert_eq!(given.ticket, ticket);
            }
            Step::Asked { worker, ticket } => {
                self.call(async move { drop(fleet.ask(worker, ticket, "question", Vec::new(), LONG).await) }).await;
            }
            Step::Answered { lead, question, watch } => {
                let wait = if watch { LONG } else { Duration::ZERO };
                self.call(async move { drop(fleet.answer(lead, question, "answer", wait).await) }).await;
            }
            Step::Replied { worker, ticket } => {
                self.call(async move { drop(fleet.reply(worker, ticket, "reply").await) }).await;
            }
            Step::TurnEnded { ticket, end } => {
                let worker = self.worker_of(ticket);
                self.seat(worker).await.0.ended(ticket, end, "last message".to_owned());
            }
            Step::Cancelled { lead, ticket } => {
                self.call(async move { drop(fleet.cancel(lead, ticket).await) }).await;
            }
            Step::Stopped { lead, worker } => self.call(async move { drop(fleet.stop(lead, worker).await) }).await,
            Step::WorkerDied { worker } => {
                let before = self.fleet.machine().digest();
                self.seat(worker).await;
                let (_, die) = self.seats.remove(&worker).expect("it was found");
                die.send("it died".to_owned()).expect("it lives");
                self.until(|machine| machine.digest() != before).await;
            }
            other => panic!("no recorded path has the step {other:?}: teach the stage how it comes about"),
        }
    }

    /// Everything but the file is gone, and a new daemon begins.
    fn crash(self) -> Self {
        let Self { folder, service, commits, calls, .. } = self;
        calls.iter().for_each(JoinHandle::abort);
        drop((service, commits));
        // The journal's thread lets go of the file.
        loop {
            let lock = fs::File::open(folder.path().join("journal.lock")).expect("a lock");
            if lock.try_lock().is_ok() {
                break;
            }
            std::thread::yield_now();
        }
        Self::open(folder)
    }
}

fn recorded() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/counterexamples");
    let files = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = files
        .filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("delegation-")))
        .collect();
    files.sort();
    files
}

/// The step, and the state after it; none where the real code refuses it.
fn steps(file: &Path) -> Vec<(Step, Option<String>)> {
    let path: Value = serde_json::from_slice(&fs::read(file).expect("a file")).expect("JSON");
    let steps = path["steps"].as_array().expect("steps").iter();
    steps
        .map(|line| {
            let step = serde_json::from_value(line["step"].clone()).expect("a step of the ticket service");
            (step, line["digest"].as_str().map(str::to_owned))
        })
        .collect()
}

/// How many workers live at the beginning of a path: as many as make its first state what it is.
fn workers(steps: &[(Step, Option<String>)]) -> usize {
    let (first, digest) = &steps[0];
    let found = (1..=WORKERS_MAX).find(|workers| {
        let mut machine = Delegation::new(Limits::default());
        for _ in 0..*workers {
            machine.apply(Step::Spawned { lead: LeadId(1) }).expect("a worker");
            machine.apply(Step::Persisted { entries: 1 }).expect("it is stored");
        }
        machine.apply(first.clone()).is_ok() && Some(machine.digest()) == *digest
    });
    found.expect("some number of workers gives the first state")
}

#[tokio::test]
async fn the_service_takes_every_recorded_path_through_the_recorded_states() {
    let files = recorded();
    assert!(!files.is_empty(), "nothing is recorded");
    for file in &files {
        let steps = steps(file);
        let mut stage = Stage::open(tempfile::tempdir().expect("a folder"));
        for _ in 0..workers(&steps) {
            stage.spawn().await;
        }
        for (number, (step, digest)) in steps.iter().enumerate() {
            let Some(digest) = digest else {
                let refused = stage.fleet.machine().apply(step.clone());
                assert!(refused.is_err(), "{}: the machine takes {step:?}", file.display());
                continue;
            };
            if *step == Step::Restarted {
                stage = stage.crash();
            } else {
                stage.take(step).await;
            }
            let now = stage.fleet.machine().digest();
            assert_eq!(now, *digest, "{}, step {}: {step:?}", file.display(), number + 1);
        }
    }
}
