//! The ticket service, held at every step: a real journal, real calls of leads and workers, and a daemon that can die.
//!
//! All tasks run on one thread, so that whatever one of them did in a step, it has done when the rig goes on. The clock is
//! the real one, since the journal's thread knows no other: no wait here is over but by what it waits for.

use std::{collections::BTreeMap, future::poll_fn, io, path::Path, pin::pin, sync::Arc, task::Poll, time::Duration};

use lastword::delegation::{
    Assignment, Conductor, Config, Error, Handle, Launch, LeadId, Life, Limits, OpenError, QuestionId, Seat, Service,
    Taken, TicketId, Work, WorkerId, WorkerLife,
};
use lastword_core::delegation::{
    Call as AskCall, Delegation, Effect, Effects, Prompt, Receipt, Refused, Step, WatchId,
};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

/// How long a step may take to come. Far longer than any does, on a slow disk too: only what never comes takes as long.
const COMING_MAX: Duration = Duration::from_secs(30);

/// How long a call waits for what it watches: as good as for ever.
const WINDOW: Duration = Duration::from_secs(3600);

/// Where a journal is written quickly, where there is such a place. That it outlives the power is not what is checked here.
const MEMORY: &str = "/dev/shm";

/// What workers say.
const REPLY: &str = "reply";
const ANSWER: &str = "answer";

/// A runtime for a rig.
///
/// # Errors
///
/// Where the system has no room for one.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The service did not do what was asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RigError {
    /// There is no place for a journal, or no runtime.
    #[error("the service has no place to run: {0}")]
    Place(#[from] io::Error),
    /// The journal does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Nobody came with the step.
    #[error("nobody came to the service's machine with the step {0:?} within {COMING_MAX:?}")]
    NobodyCame(Step),
    /// Somebody came with another one.
    #[error("the step {came:?} came to the service's machine, and not {wanted:?}")]
    OtherStep {
        /// The step that was to come.
        wanted: Step,
        /// The one that came.
        came: Step,
    },
    /// The machine of the service refused the step.
    #[error("the service's own machine refused a step that was brought to it: {0}")]
    Refused(#[from] Refused),
    /// A caller or a worker was told something else than the machine wanted.
    #[error("{0}")]
    Told(String),
    /// The path has a step that the rig cannot bring about.
    #[error("the rig has nobody who could take the step {0:?}")]
    NoSuchCaller(Step),
}

/// Workers that do nothing of themselves, not even end when they are told to.
struct Puppets(mpsc::UnboundedSender<Puppet>);

struct Puppet {
    seat: Seat,
    die: oneshot::Sender<String>,
}

impl Launch for Puppets {
    fn kinds(&self) -> Vec<String> {
        vec!["puppet".to_owned()]
    }

    fn launch(&self, seat: Seat) -> Life {
        let (die, death) = oneshot::channel();
        // Where the rig is gone, so is the worker.
        let _ = self.0.send(Puppet { seat, die });
        Box::pin(async move { death.await.unwrap_or_default() })
    }
}

/// A call of a lead or of a worker that has not come back.
struct Call {
    /// None where the caller has left: who that was is still told.
    task: Option<JoinHandle<Result<Back, Error>>>,
    receipt: Option<Receipt>,
    /// It was told that what it did is stored, or had not to be.
    is_told: bool,
    watch: Option<WatchId>,
    question: Option<QuestionId>,
    /// Lets a call that asks go on once it has asked: else it would take its answer by itself.
    go_on: Option<oneshot::Sender<()>>,
    /// It took the answer to its question.
    is_answered: bool,
}

/// What a call comes back with.
#[derive(Debug)]
enum Back {
    /// Whatever it was for is done.
    Done,
    /// A worker's question, with the answer to it, if there was one.
    Heard(QuestionId, Option<String>),
}

/// The service of one life of the daemon.
struct Daemon {
    service: Service,
    fleet: Handle,
    conductor: Conductor,
    entering: mpsc::UnboundedReceiver<Puppet>,
    puppets: BTreeMap<WorkerId, Puppet>,
    calls: Vec<Call>,
    /// What each worker is to be given, by turn.
    prompts: BTreeMap<TicketId, Prompt>,
}

/// A ticket service, and whatever was begun with it.
pub struct Rig {
    folder: TempDir,
    limits: Limits,
    daemon: Option<Daemon>,
    /// What workers heard to their questions, each with how often.
    heard: BTreeMap<QuestionId, usize>,
}

impl Rig {
    /// Opens a service on an empty journal, in which so many workers live.
    ///
    /// # Errors
    ///
    /// [`RigError`] where the service does not come that far.
    pub async fn new(workers: usize, limits: Limits) -> Result<Self, RigError> {
        let memory = Path::new(MEMORY);
        let folder = TempDir::new_in(memory).or_else(|_| TempDir::new())?;
        let mut rig = Self { folder, limits, daemon: None, heard: BTreeMap::new() };
        rig.begin().await?;
        for _ in 0..workers {
            rig.take(&Step::Spawned { lead: LeadId(1) }).await?;
            rig.take(&Step::Persisted { entries: 1 }).await?;
        }
        Ok(rig)
    }

    /// What leads and workers call.
    ///
    /// # Panics
    ///
    /// Where the daemon did not begin again after its death, which was an error.
    #[must_use]
    pub fn fleet(&self) -> &Handle {
        &self.daemon.as_ref().expect("a daemon lives but in a crash").fleet
    }

    /// How often a worker heard the answer to a question, as the result of its call or as its next prompt.
    #[must_use]
    pub fn heard(&self, question: QuestionId) -> usize {
        self.heard.get(&question).copied().unwrap_or(0)
    }

    /// How many calls have not come back.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.daemon.as_ref().map_or(0, |daemon| daemon.tasks().filter(|task| !task.is_finished()).count())
    }

    /// Whether the service comes to a step that is owed. A worker that is to stop takes no more prompts: it dies first.
    #[must_use]
    pub fn comes_to(&self, step: &Step) -> bool {
        let Step::Delivered { ticket } = step else { return true };
        let machine = self.fleet().machine();
        let row = machine.decided().tickets.get(ticket);
        row.and_then(|row| machine.decided().workers.get(&row.worker)).is_some_and(|row| row.life == WorkerLife::Alive)
    }

    /// Lets the service take one step.
    ///
    /// # Errors
    ///
    /// [`RigError`] where nobody comes with it, or a worker is given something else than the machine wants.
    pub async fn take(&mut self, step: &Step) -> Result<(Effects, Delegation), RigError> {
        if *step == Step::Restarted {
            return self.crash().await;
        }
        let Some(daemon) = &mut self.daemon else { return Err(RigError::NoSuchCaller(step.clone())) };
        let calls = daemon.calls.len();
        let given = daemon.bring_about(step).await?;
        let brought_by = daemon.calls.get_mut(calls).and_then(|call| call.task.as_mut());
        let (effects, after) = taken(&mut daemon.conductor, step, brought_by).await?;
        daemon.note(&effects);
        if let (Some(given), Step::Delivered { ticket }) = (given, step)
            && let Some(question) = daemon.check_prompt(*ticket, &given)?
        {
            *self.heard.entry(question).or_default() += 1;
        }
        Ok((effects, after))
    }

    /// Waits until every caller has come back that the machine wants told, and makes sure that no other one has.
    ///
    /// # Errors
    ///
    /// [`RigError::Told`] where a caller is told something else than the machine wants.
    pub async fn callers(&mut self) -> Result<(), RigError> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        for question in daemon.back().await? {
            *self.heard.entry(question).or_default() += 1;
        }
        Ok(())
    }

    /// Everything but the file is gone, and a new daemon begins.
    async fn crash(&mut self) -> Result<(Effects, Delegation), RigError> {
        if let Some(daemon) = self.daemon.take() {
            daemon.end().await?;
        }
        self.begin().await
    }

    async fn begin(&mut self) -> Result<(Effects, Delegation), RigError> {
        let (enter, entering) = mpsc::unbounded_channel();
        let mut config = Config::new(Arc::new(Puppets(enter)));
        config.limits = self.limits;
        let conductor = config.gated();
        let service = Service::open(&self.folder.path().join("journal"), config)?;
        let fleet = service.handle();
        let (puppets, calls, prompts) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let daemon = self.daemon.insert(Daemon { service, fleet, conductor, entering, puppets, calls, prompts });
        taken(&mut daemon.conductor, &Step::Restarted, None).await
    }
}

impl Daemon {
    /// Does whatever makes the service take the step. Gives the prompt that a worker was given.
    async fn bring_about(&mut self, step: &Step) -> Result<Option<Assignment>, RigError> {
        let fleet = self.fleet.clone();
        match step.clone() {
            Step::Spawned { lead } => self.call(async move { fleet.spawn(lead, "puppet", "Ada").await.map(done) }),
            Step::Sent { lead, worker, key, replace, watch } => {
                let mut work = Work::new(worker, "task");
                (work.key, work.replace, work.wait) = (key, replace, window(watch));
                self.call(async move { fleet.send(lead, work).await.map(done) });
            }
            Step::Delivered { ticket } => {
                let worker = self.worker_of(ticket).ok_or_else(|| RigError::NoSuchCaller(step.clone()))?;
                let puppet = self.puppet(worker, step).await?;
                let given = timeout(COMING_MAX, puppet.seat.next()).await;
                return given.ok().flatten().map(Some).ok_or_else(|| RigError::NobodyCame(step.clone()));
            }
            Step::Asked { worker, ticket } => {
                let (go_on, goes_on) = oneshot::channel();
                self.call(async move {
                    let mut asking = pin!(fleet.ask(worker, ticket, "question", Vec::new(), WINDOW));
                    let asked = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await;
                    let heard = match asked {
                        Poll::Ready(heard) => heard,
                        // The rig keeps the other end for as long as it keeps the call.
                        Poll::Pending => {
                            let _ = goes_on.await;
                            asking.await
                        }
                    }?;
                    Ok(Back::Heard(heard.question, heard.answer))
                });
                if let Some(call) = self.calls.last_mut() {
                    call.go_on = Some(go_on);
                }
            }
            Step::Seen { lead, ticket } => {
                let seen = fleet.poll(lead, ticket, Duration::ZERO).await;
                fleet.saw(lead, &seen.map_err(|error| RigError::Told(error.to_string()))?);
            }
            Step::AnswerTaken { question } => {
                let call = self.calls.iter_mut().find(|call| call.question == Some(question) && call.task.is_some());
                let call = call.ok_or_else(|| RigError::NoSuchCaller(step.clone()))?;
                call.is_answered = true;
                if let Some(go_on) = call.go_on.take() {
                    // It has only to go on; what comes of it is seen.
                    let _ = go_on.send(());
                }
            }
            Step::AskWindowClosed { question } => self.leave(step, |call| call.question == Some(question))?,
            Step::Answered { lead, question, watch } => {
                self.call(async move { fleet.answer(lead, question, ANSWER, window(watch)).await.map(done) });
            }
            Step::Replied { worker, ticket } => {
                self.call(async move { fleet.reply(worker, ticket, REPLY).await.map(done) });
            }
            Step::TurnEnded { ticket, end } => {
                let worker = self.worker_of(ticket).ok_or_else(|| RigError::NoSuchCaller(step.clone()))?;
                self.puppet(worker, step).await?.seat.ended(ticket, end, "last message".to_owned());
            }
            Step::Polled { lead, ticket } => {
                self.call(async move { fleet.poll(lead, ticket, WINDOW).await.map(done) });
            }
            Step::WindowClosed { watch } => self.leave(step, |call| call.watch == Some(watch))?,
            Step::Cancelled { lead, ticket } => self.call(async move { fleet.cancel(lead, ticket).await.map(done) }),
            Step::Stopped { lead, worker } => self.call(async move { fleet.stop(lead, worker).await.map(done) }),
            Step::WorkerDied { worker } => {
                self.puppet(worker, step).await?;
                if let Some(puppet) = self.puppets.remove(&worker) {
                    // It lives for as long as this is there.
                    let _ = puppet.die.send("it died".to_owned());
                }
            }
            Step::InboxRead { lead, through } => {
                self.call(async move { fleet.inbox(lead, Some(through)).await.map(done) });
            }
            Step::Persisted { entries } => {
                if self.fleet.machine().unstored().count() < entries {
                    return Err(RigError::Refused(Refused::NotWritten));
                }
                self.conductor.commit(entries);
            }
            // The words of the machine may grow; the rig grows with them.
            other => return Err(RigError::NoSuchCaller(other)),
        }
        Ok(None)
    }

    fn call(&mut self, call: impl Future<Output = Result<Back, Error>> + Send + 'static) {
        let task = tokio::spawn(call);
        self.calls.push(Call {
            task: Some(task),
            receipt: None,
            is_told: false,
            watch: None,
            question: None,
            go_on: None,
            is_answered: false,
        });
    }

    /// The caller leaves: its window is over.
    fn leave(&mut self, step: &Step, is_it: impl Fn(&Call) -> bool) -> Result<(), RigError> {
        let call = self.calls.iter_mut().find(|call| is_it(call)).and_then(|call| call.task.take());
        call.ok_or_else(|| RigError::NoSuchCaller(step.clone()))?.abort();
        Ok(())
    }

    fn worker_of(&self, ticket: TicketId) -> Option<WorkerId> {
        self.fleet.machine().decided().tickets.get(&ticket).map(|row| row.worker)
    }

    async fn puppet(&mut self, worker: WorkerId, step: &Step) -> Result<&mut Puppet, RigError> {
        while !self.puppets.contains_key(&worker) {
            let entered = timeout(COMING_MAX, self.entering.recv()).await;
            let puppet = entered.ok().flatten().ok_or_else(|| RigError::NoSuchCaller(step.clone()))?;
            self.puppets.insert(puppet.seat.worker(), puppet);
        }
        self.puppets.get_mut(&worker).ok_or_else(|| RigError::NoSuchCaller(step.clone()))
    }

    /// What the effects of a step have to do with calls. A step is brought by the last of them, if by any.
    fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Accept(receipt) => {
                    let Some(call) = self.calls.last_mut() else { continue };
                    call.receipt = Some(*receipt);
                    if let Receipt::Question(question) = receipt {
                        call.question = Some(*question);
                    }
                }
                Effect::Watch(watch) => {
                    let Some(call) = self.calls.last_mut() else { continue };
                    call.watch = Some(*watch);
                    // A poll stores nothing.
                    call.is_told |= call.receipt.is_none();
                }
                Effect::Acknowledge(receipt) => {
                    let is_its = |call: &&mut Call| call.receipt == Some(*receipt) && !call.is_told;
                    if let Some(call) = self.calls.iter_mut().find(is_its) {
                        call.is_told = true;
                    }
                }
                Effect::Deliver { ticket, prompt } => drop(self.prompts.insert(*ticket, *prompt)),
                _ => {}
            }
        }
    }

    /// What a worker was given must be what the machine wanted given. Says which question it answers.
    fn check_prompt(&self, ticket: TicketId, given: &Assignment) -> Result<Option<QuestionId>, RigError> {
        let question = given.question.as_ref().map(|asked| asked.id);
        let wanted = self.prompts.get(&ticket).map(|prompt| match prompt {
            Prompt::Task => (None, "task"),
            Prompt::Answer(question) => (Some(*question), ANSWER),
        });
        if given.ticket == ticket && wanted == Some((question, given.text.as_str())) {
            return Ok(question);
        }
        Err(RigError::Told(format!("the worker was given {given:?}, and by the machine {wanted:?} of {ticket:?}")))
    }

    /// Waits for the calls that must come back in this state, and gives the questions of those that heard an answer. No
    /// other one may be back.
    async fn back(&mut self) -> Result<Vec<QuestionId>, RigError> {
        let machine = self.fleet.machine();
        let is_over = |call: &Call| {
            let watches = call.watch.is_some_and(|watch| machine.watches().any(|(known, _)| known == watch));
            let asks = call.question.and_then(|question| machine.call(question));
            let asks = matches!(asks, Some(AskCall::Waiting | AskCall::Handed));
            // An answer is given to whoever takes it, although another time would be one too often.
            call.is_told && !watches && (!asks || call.is_answered)
        };
        let (over, waiting) = self.calls.drain(..).partition(is_over);
        self.calls = waiting;
        let mut heard = Vec::new();
        for call in over {
            let Some(task) = call.task else { continue };
            // One that has asked in vain learns that, also where it was handed the answer and is too late to take it.
            drop(call.go_on);
            let back = timeout(COMING_MAX, task).await;
            let told = |what: String| RigError::Told(format!("a call {what}, and by the machine it was to come back"));
            match back {
                Ok(Ok(Ok(Back::Done))) => {}
                Ok(Ok(Ok(Back::Heard(question, answer)))) => {
                    let wanted = call.is_answered.then_some(ANSWER);
                    if answer.as_deref() != wanted {
                        let problem = format!("{question:?} heard {answer:?}, and by the machine {wanted:?}");
                        return Err(RigError::Told(problem));
                    }
                    heard.extend(answer.is_some().then_some(question));
                }
                Ok(Ok(Err(error))) => return Err(told(format!("was told: {error}"))),
                Ok(Err(error)) => return Err(told(format!("failed: {error}"))),
                Err(_) => return Err(told("waits on".to_owned())),
            }
        }
        if self.tasks().any(JoinHandle::is_finished) {
            return Err(RigError::Told("a call came back before the machine wanted it told".to_owned()));
        }
        Ok(heard)
    }

    fn tasks(&self) -> impl Iterator<Item = &JoinHandle<Result<Back, Error>>> {
        self.calls.iter().filter_map(|call| call.task.as_ref())
    }

    /// The daemon dies. Nothing more comes to the machine or to the file once it is told to close, so that waiting for the
    /// end of its thread only makes sure that the file is free.
    async fn end(self) -> Result<(), RigError> {
        let Self { service, puppets, entering, calls, conductor, .. } = self;
        // The journal's thread commits nothing more, and ends.
        drop(conductor);
        let end = async {
            // In this order: what is dropped after the service is told to close comes to no machine any more.
            tokio::join!(biased; service.close(), async {
                calls.iter().filter_map(|call| call.task.as_ref()).for_each(JoinHandle::abort);
                drop((puppets, entering));
            })
        };
        timeout(COMING_MAX, end).await.map(drop).map_err(|_| RigError::NobodyCame(Step::Restarted))
    }
}

/// Waits for a step to come to the machine. A call that brings it comes back no sooner.
async fn taken(
    conductor: &mut Conductor,
    step: &Step,
    brought_by: Option<&mut JoinHandle<Result<Back, Error>>>,
) -> Result<(Effects, Delegation), RigError> {
    let back = async {
        match brought_by {
            Some(call) => call.await,
            None => std::future::pending().await,
        }
    };
    let next = async {
        loop {
            match conductor.next().await {
                Some(came) if is_too_late(&came) => {}
                came => return came,
            }
        }
    };
    let came = tokio::select! {
        biased;
        came = timeout(COMING_MAX, next) => came.ok().flatten(),
        back = back => {
            let problem = format!("the call of {step:?} came back before its step came to the machine: {back:?}");
            return Err(RigError::Told(problem));
        }
    };
    let Some(Taken { step: came, effects, after, .. }) = came else {
        return Err(RigError::NobodyCame(step.clone()));
    };
    if came != *step {
        return Err(RigError::OtherStep { wanted: step.clone(), came });
    }
    Ok((effects?, after))
}

/// A call that asked was handed its answer and is too late to take it, which it learns from the machine. No path has that.
fn is_too_late(came: &Taken) -> bool {
    matches!(
        (&came.step, &came.effects),
        (Step::AnswerTaken { .. }, Err(Refused::NotHanded)) | (Step::AskWindowClosed { .. }, Err(Refused::NotWaiting))
    )
}

fn done<T>(_: T) -> Back {
    Back::Done
}

/// How long a call waits.
fn window(watches: bool) -> Duration {
    if watches { WINDOW } else { Duration::ZERO }
}
