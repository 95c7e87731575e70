//! The ticket service, held at every step: a real journal, real calls of leads and workers, and a daemon that can die.
//!
//! A call of a lead or of a worker goes on only when the rig lets it, which then knows whether it came back. The clock is the
//! real one, since the journal's thread knows no other: no wait here is over but by what it waits for.

use std::{collections::BTreeMap, future::poll_fn, io, path::Path, pin::Pin, sync::Arc, task::Poll, time::Duration};

use lastword::delegation::{
    Assignment, Conductor, Config, Error, Handle, Launch, LeadId, Life, Limits, OpenError, QuestionId, Seat, Service,
    Taken, TicketId, Work, WorkerId, WorkerLife,
};
use lastword_core::delegation::{Call as Asking, Delegation, Effect, Effects, Prompt, Receipt, Refused, Step, WatchId};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, oneshot},
    task::unconstrained,
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

type Going = Pin<Box<dyn Future<Output = Result<Back, Error>>>>;

/// A call of a lead or of a worker.
struct Call {
    /// None once it is back, or the caller has left.
    going: Option<Going>,
    back: Option<Result<Back, Error>>,
    receipt: Option<Receipt>,
    /// It was told that what it did is stored, or there was nothing to store.
    is_told: bool,
    watch: Option<WatchId>,
    question: Option<QuestionId>,
}

impl Call {
    /// Lets it go on as far as it comes.
    async fn goes_on(&mut self) {
        let Some(going) = &mut self.going else { return };
        let now = poll_fn(|context| match going.as_mut().poll(context) {
            Poll::Ready(back) => Poll::Ready(Some(back)),
            Poll::Pending => Poll::Ready(None),
        });
        self.back = unconstrained(now).await;
        if self.back.is_some() {
            self.going = None;
        }
    }
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
        rig.callers().await?;
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
        let heard = daemon.bring_about(step).await?;
        let (effects, after) = daemon.taken(step).await?;
        daemon.note(&effects);
        if let Some(question) = heard {
            *self.heard.entry(question).or_default() += 1;
        }
        Ok((effects, after))
    }

    /// Lets every call come back that the machine wants told, and makes sure that no other one does.
    ///
    /// # Errors
    ///
    /// [`RigError::Told`] where a caller is told something else than the machine wants.
    pub async fn callers(&mut self) -> Result<(), RigError> {
        match &mut self.daemon {
            Some(daemon) => daemon.callers().await,
            None => Ok(()),
        }
    }

    /// How many calls have not come back, as far as they were let go.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.daemon.iter().flat_map(|daemon| &daemon.calls).filter(|call| call.going.is_some()).count()
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
        daemon.taken(&Step::Restarted).await
    }
}

impl Daemon {
    /// Does whatever makes the service take the step. Gives the question whose answer a worker heard by that.
    async fn bring_about(&mut self, step: &Step) -> Result<Option<QuestionId>, RigError> {
        let fleet = self.fleet.clone();
        match step.clone() {
            Step::Spawned { lead } => {
                self.call(async move { fleet.spawn(lead, "puppet", "Ada").await.map(done) }).await;
            }
            Step::Sent { lead, worker, key, replace, watch } => {
                let mut work = Work::new(worker, "task");
                (work.key, work.replace, work.wait) = (key, replace, window(watch));
                self.call(async move { fleet.send(lead, work).await.map(done) }).await;
            }
            Step::Delivered { ticket } => {
                let worker = self.worker_of(ticket).ok_or_else(|| RigError::NoSuchCaller(step.clone()))?;
                let puppet = self.puppet(worker, step).await?;
                let given = timeout(COMING_MAX, puppet.seat.next()).await.ok().flatten();
                return self.check_prompt(ticket, &given.ok_or_else(|| RigError::NobodyCame(step.clone()))?);
            }
            Step::Asked { worker, ticket } => {
                let ask = async move {
                    let heard = fleet.ask(worker, ticket, "question", Vec::new(), WINDOW).await?;
                    Ok(Back::Heard(heard.question, heard.answer))
                };
                self.call(ask).await;
            }
            Step::AnswerTaken { question } => {
                let call = self.calls.iter_mut().find(|call| call.question == Some(question));
                let call = call.ok_or_else(|| RigError::NoSuchCaller(step.clone()))?;
                call.goes_on().await;
                return match call.back.take() {
                    Some(Ok(Back::Heard(of, Some(answer)))) if of == question && answer == ANSWER => Ok(Some(question)),
                    back => Err(RigError::Told(format!("the call that is to take an answer came to {back:?}"))),
                };
            }
            Step::AskWindowClosed { question } => self.leave(step, |call| call.question == Some(question))?,
            Step::Answered { lead, question, watch } => {
                self.call(async move { fleet.answer(lead, question, ANSWER, window(watch)).await.map(done) }).await;
            }
            Step::Replied { worker, ticket } => {
                self.call(async move { fleet.reply(worker, ticket, REPLY).await.map(done) }).await;
            }
            Step::TurnEnded { ticket, end } => {
                let worker = self.worker_of(ticket).ok_or_else(|| RigError::NoSuchCaller(step.clone()))?;
                self.puppet(worker, step).await?.seat.ended(ticket, end, "last message".to_owned());
            }
            Step::Polled { lead, ticket } => {
                self.call(async move { fleet.poll(lead, ticket, WINDOW).await.map(done) }).await;
            }
            Step::Seen { lead, ticket } => {
                let seen = fleet.poll(lead, ticket, Duration::ZERO).await;
                fleet.saw(lead, &seen.map_err(|error| RigError::Told(format!("a poll was told: {error}")))?);
            }
            Step::WindowClosed { watch } => self.leave(step, |call| call.watch == Some(watch))?,
            Step::Cancelled { lead, ticket } => {
                self.call(async move { fleet.cancel(lead, ticket).await.map(done) }).await;
            }
            Step::Stopped { lead, worker } => {
                self.call(async move { fleet.stop(lead, worker).await.map(done) }).await;
            }
            Step::WorkerDied { worker } => {
                self.puppet(worker, step).await?;
                if let Some(puppet) = self.puppets.remove(&worker) {
                    // It lives for as long as this is there.
                    let _ = puppet.die.send("it died".to_owned());
                }
            }
            Step::InboxRead { lead, through } => {
                self.call(async move { fleet.inbox(lead, Some(through)).await.map(done) }).await;
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

    /// Makes a call, which comes to the machine at once.
    async fn call(&mut self, call: impl Future<Output = Result<Back, Error>> + 'static) {
        let going: Going = Box::pin(call);
        let mut call =
            Call { going: Some(going), back: None, receipt: None, is_told: false, watch: None, question: None };
        call.goes_on().await;
        self.calls.push(call);
    }

    /// The caller leaves: its window is over.
    fn leave(&mut self, step: &Step, is_it: impl Fn(&Call) -> bool) -> Result<(), RigError> {
        let call = self.calls.iter_mut().find(|call| is_it(call)).and_then(|call| call.going.take());
        call.map(drop).ok_or_else(|| RigError::NoSuchCaller(step.clone()))
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

    /// Waits for a step to come to the machine. What comes with another one and is refused changes nothing: a caller that was
    /// let go asks for what is not there any more.
    async fn taken(&mut self, step: &Step) -> Result<(Effects, Delegation), RigError> {
        loop {
            // A call that has failed brings nothing any more.
            let failure = self.calls.last().and_then(|call| call.back.as_ref()?.as_ref().err());
            let wait = if failure.is_some() { Duration::ZERO } else { COMING_MAX };
            let came = timeout(wait, self.conductor.next()).await;
            let Ok(Some(Taken { step: came, effects, after, .. })) = came else {
                return Err(match failure {
                    Some(error) => RigError::Told(format!("the call of {step:?} was told: {error}")),
                    None => RigError::NobodyCame(step.clone()),
                });
            };
            match effects {
                Err(_) if came != *step => {}
                _ if came != *step => return Err(RigError::OtherStep { wanted: step.clone(), came }),
                effects => return Ok((effects?, after)),
            }
        }
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

    /// See [`Rig::callers`]. A call that was handed an answer goes on with a step of its own.
    async fn callers(&mut self) -> Result<(), RigError> {
        let machine = self.fleet.machine();
        for mut call in std::mem::take(&mut self.calls) {
            let asks = call.question.and_then(|question| machine.call(question));
            if asks != Some(Asking::Handed) {
                call.goes_on().await;
            }
            let watches = call.watch.is_some_and(|watch| machine.watches().any(|(known, _)| known == watch));
            let is_over = call.is_told && !watches && !matches!(asks, Some(Asking::Waiting | Asking::Handed));
            let problem = match (&call.back, is_over) {
                (None, true) if call.going.is_some() => "waits on, and by the machine it was to come back".to_owned(),
                (Some(back), false) => format!("came back with {back:?} before the machine wanted it told"),
                (Some(Ok(Back::Heard(_, Some(_))) | Err(_)), true) => format!("came back with {:?}", call.back),
                (None, false) => {
                    self.calls.push(call);
                    continue;
                }
                (Some(Ok(_)) | None, true) => continue,
            };
            return Err(RigError::Told(format!("a call {problem}")));
        }
        Ok(())
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
                drop((calls, puppets, entering));
            })
        };
        timeout(COMING_MAX, end).await.map(drop).map_err(|_| RigError::NobodyCame(Step::Restarted))
    }
}

fn done<T>(_: T) -> Back {
    Back::Done
}

/// How long a call waits.
fn window(watches: bool) -> Duration {
    if watches { WINDOW } else { Duration::ZERO }
}
