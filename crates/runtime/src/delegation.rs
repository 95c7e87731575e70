//! The ticket service: a lead delegates to workers, and no reply is lost.
//!
//! [`Service::open`] opens a journal and goes on where it ended. Leads and workers call a [`Handle`]; whatever it acknowledges is in
//! the journal, on the disk, before the call returns. A call that waits only watches: its time runs out, or its caller
//! drops it, and the ticket stays as it is.
//!
//! The decisions are those of [`lastword_core::delegation`], a pure machine that is checked state by state; this module is
//! the shell around it. Workers are played by what [`Launch`] starts: [`AcpWorkers`] starts agents that speak ACP.
//!
//! ```no_run
//! use lastword::delegation::{AcpWorkers, Config, LeadId, Service, Work, WorkerKind};
//! use std::{path::Path, sync::Arc, time::Duration};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let workers = AcpWorkers::new([("coder".to_owned(), WorkerKind::new("my-agent", "/src/project"))]);
//! let service = Service::open(Path::new("fleet.journal"), Config::new(Arc::new(workers)))?;
//! let fleet = service.handle();
//!
//! let lead = LeadId(1);
//! let worker = fleet.spawn(lead, "coder", "Ada").await?;
//! let ticket = fleet.send(lead, Work::new(worker, "Run the tests, and say what fails.")).await?.ticket;
//! let seen = fleet.poll(lead, ticket, Duration::from_secs(25)).await?;
//! println!("{}: {:?}", seen.state.as_str(), seen.reply);
//! service.close().await;
//! # Ok(())
//! # }
//! ```

use std::{path::Path, sync::Arc, time::Duration};

pub use lastword_core::delegation::{
    LeadId, Life as WorkerLife, Limits, QuestionId, Refused, ReplyId, RequestKey, State, TicketId, TurnEnd, WorkerId,
};
use lastword_core::delegation::{Receipt, Step, WatchId};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

mod acp;
mod error;
#[cfg(feature = "check")]
mod gate;
mod journal;
mod shell;
pub mod trace;
mod view;
mod worker;

pub use acp::{AcpWorkers, Permissions, Tools, WorkerKind};
pub use error::{Error, JournalError, OpenError};
#[cfg(feature = "check")]
pub use gate::{Conductor, Taken};
pub use journal::Holder;
pub use view::{Heard, Letter, Placed, Profile, Question, Seen, SeenAll, SeenQuestion, SeenWorker, Times};
pub use worker::{Asked, Assignment, Launch, Life, Seat};

use self::{
    journal::{Journal, Of},
    shell::{Done, Shell, With},
    view::{Glance, QuestionText},
};

/// The longest that any call waits, whatever it was asked for: a day, which no caller is still there after.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What a service is made of. Take [`Config::new`] and change what you need.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// What starts workers.
    pub launch: Arc<dyn Launch>,
    /// The bounds of the machine.
    pub limits: Limits,
    /// How long a task, a question, an answer or a reply may be: 1 MiB, far more than a model reads at once.
    pub text_bytes_max: usize,
    /// How many tickets or workers one call shows: 100, which a model can still make sense of.
    pub shown_max: usize,
    #[cfg(feature = "check")]
    baton: gate::Baton,
}

impl Config {
    /// The defaults.
    #[must_use]
    pub fn new(launch: Arc<dyn Launch>) -> Self {
        Self {
            launch,
            limits: Limits::default(),
            text_bytes_max: 1 << 20,
            shown_max: 100,
            #[cfg(feature = "check")]
            baton: gate::Baton::default(),
        }
    }
}

/// An open service. Dropping it ends every worker at once, without a word; what was acknowledged is in the journal, and
/// the next one that opens it goes on from there.
pub struct Service {
    shell: Arc<Shell>,
}

impl Service {
    /// Opens the journal, or makes one where there is no file, and goes on where it ended: queued tickets keep their places,
    /// a ticket that a worker was at has failed, and each worker that lives is started again.
    ///
    /// Must be called within a tokio runtime with IO and time enabled. It reads the whole journal before it returns.
    ///
    /// # Errors
    ///
    /// [`OpenError`] where the journal is in use, damaged, or something else. It is as it was then.
    pub fn open(journal: &Path, config: Config) -> Result<Self, OpenError> {
        let shell = Shell::open(Journal::open(journal)?, config)?;
        Ok(Self { shell })
    }

    /// What leads and workers call.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { shell: Arc::clone(&self.shell) }
    }

    /// Waits until the journal fails. Nothing can be acknowledged from then on: close the service, and say so.
    pub async fn failed(&self) -> JournalError {
        self.shell.over.cancelled().await;
        match self.shell.gone() {
            Error::Journal(error) => error,
            // It is being closed, which takes it by value, so that nobody waits here.
            _ => std::future::pending().await,
        }
    }

    /// Closes the service: calls that wait end with [`Error::Closed`], workers are asked to exit and then made to, and what was
    /// taken in is stored. Workers that live are started again by the next one who opens the journal.
    pub async fn close(self) {
        let (mut tasks, thread) = self.shell.end();
        while tasks.join_next().await.is_some() {}
        if let Some(thread) = thread {
            // It has only to store what it was given. It must not be waited for on this thread, which may be the only one.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Out of the lock: what a task drops may take it.
        drop(self.shell.end());
    }
}

/// Work for a worker. Take [`Work::new`] and change what you need.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Work {
    /// Whom it is for.
    pub worker: WorkerId,
    /// The task.
    pub text: String,
    /// How long the call waits for the end of the ticket or for a question: not at all.
    pub wait: Duration,
    /// Marks the send, so that one that is repeated gives the same ticket: none.
    pub key: Option<RequestKey>,
    /// Cancels the open tickets of the worker: false, so that it is queued behind them.
    pub replace: bool,
}

impl Work {
    /// Work that is sent without waiting for it.
    #[must_use]
    pub fn new(worker: WorkerId, text: impl Into<String>) -> Self {
        Self { worker, text: text.into(), wait: Duration::ZERO, key: None, replace: false }
    }
}

/// Where leads and workers call. Clones are cheap.
///
/// Each call returns once what it did is stored. One that is dropped before may or may not have been done: what it did is
/// never undone.
#[derive(Clone)]
pub struct Handle {
    shell: Arc<Shell>,
}

/// What leads do.
impl Handle {
    /// Spawns a worker. It is started as soon as it is stored.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchKind`], or as every call: [`Error::Refused`], [`Error::Journal`], [`Error::Closed`].
    pub async fn spawn(&self, lead: LeadId, kind: &str, name: &str) -> Result<WorkerId, Error> {
        let known = self.shell.config.launch.kinds();
        if !known.iter().any(|known| known == kind) {
            return Err(Error::NoSuchKind { kind: kind.to_owned(), known });
        }
        let profile = Profile { kind: kind.to_owned(), name: self.text(name.to_owned())? };
        let done = self.step(Step::Spawned { lead }, json(&profile))?;
        match self.stored(done).await? {
            (Receipt::Worker(worker), _) => Ok(worker),
            (other, _) => unreachable!("a spawn takes in a worker, not {other:?}"),
        }
    }

    /// The workers of a lead: those that live, oldest first, then the last that are gone, newest first.
    ///
    /// # Errors
    ///
    /// [`Error::Journal`], [`Error::Closed`].
    #[expect(clippy::unused_async, reason = "a call as every other, whatever it waits for")]
    pub async fn list(&self, lead: LeadId) -> Result<Vec<SeenWorker>, Error> {
        let (mut alive, mut gone) = (Vec::new(), Vec::new());
        {
            let state = self.shell.lock();
            let of_lead = state.core.stored().workers.iter().filter(|(_, row)| row.lead == lead);
            for (worker, row) in of_lead {
                let at = state.core.turn(*worker).filter(|_| row.life == WorkerLife::Alive);
                let glance = (*worker, row.life, at, state.core.queue(*worker).count());
                if row.life == WorkerLife::Gone { gone.push(glance) } else { alive.push(glance) }
            }
        }
        let shown = alive.into_iter().chain(gone.into_iter().rev()).take(self.shell.config.shown_max);
        let reader = &self.shell.reader;
        shown
            .map(|(worker, life, at, queued)| {
                let profile = view::profile(reader, worker)?;
                let death = reader.text(Of::Death(worker))?;
                Ok(SeenWorker { worker, profile, life, at, queued, death })
            })
            .collect()
    }

    /// Sends work. The ticket stands when this returns, whatever the call waited for.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyText`], [`Error::TextTooLong`], or as every call.
    pub async fn send(&self, lead: LeadId, work: Work) -> Result<Seen, Error> {
        let deadline = deadline(work.wait);
        let Work { worker, text, wait, key, replace } = work;
        let text = self.text(text)?;
        let done = self.step(Step::Sent { lead, worker, key, replace, watch: !wait.is_zero() }, text)?;
        match self.stored(done).await? {
            (Receipt::Ticket(ticket), watch) => self.seen(lead, ticket, watch, deadline).await,
            (other, _) => unreachable!("a send takes in a ticket, not {other:?}"),
        }
    }

    /// Answers a question, and waits for what comes of it: the end of the ticket, or the next question.
    ///
    /// # Errors
    ///
    /// [`Error::NotAnOption`], [`Error::EmptyText`], [`Error::TextTooLong`], or as every call.
    pub async fn answer(
        &self,
        lead: LeadId,
        question: QuestionId,
        text: impl Into<String>,
        wait: Duration,
    ) -> Result<Seen, Error> {
        let deadline = deadline(wait);
        let mut text = self.text(text.into())?;
        let ticket = self.ticket_of(lead, question)?;
        let asked = view::question(&self.shell.reader, question)?;
        if asked.only_options {
            let said = text.trim();
            let option = asked.options.iter().find(|option| option.eq_ignore_ascii_case(said));
            text = option.ok_or_else(|| Error::NotAnOption { options: asked.options.clone() })?.clone();
        }
        let done = self.step(Step::Answered { lead, question, watch: !wait.is_zero() }, text)?;
        let (_, watch) = self.stored(done).await?;
        self.seen(lead, ticket, watch, deadline).await
    }

    /// Where a question was asked, and the answer that it has, whatever became of its ticket.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::Journal`].
    #[expect(clippy::unused_async, reason = "a call as every other, whatever it waits for")]
    pub async fn question(&self, lead: LeadId, question: QuestionId) -> Result<SeenQuestion, Error> {
        let ticket = self.ticket_of(lead, question)?;
        Ok(SeenQuestion { ticket, answer: self.shell.reader.text(Of::Answer(question))? })
    }

    /// When a ticket was stored, and when it last changed.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::Journal`].
    #[expect(clippy::unused_async, reason = "a call as every other, whatever it waits for")]
    pub async fn times(&self, lead: LeadId, ticket: TicketId) -> Result<Times, Error> {
        Glance::at(&self.shell.lock(), lead, ticket)?;
        Ok(self.shell.reader.times(ticket)?.ok_or(Refused::NoSuchTicket)?)
    }

    /// Shows a ticket, and waits until it has ended or a question waits.
    ///
    /// # Errors
    ///
    /// As every call.
    pub async fn poll(&self, lead: LeadId, ticket: TicketId, wait: Duration) -> Result<Seen, Error> {
        let deadline = deadline(wait);
        let watch = if wait.is_zero() { None } else { self.watch(lead, ticket)? };
        self.seen(lead, ticket, watch, deadline).await
    }

    /// Shows every ticket of the lead, and waits until an open one has ended or a question waits.
    ///
    /// # Errors
    ///
    /// As every call.
    pub async fn poll_all(&self, lead: LeadId, wait: Duration) -> Result<SeenAll, Error> {
        let deadline = deadline(wait);
        let mut timed_out = false;
        if !wait.is_zero() {
            let open = |state: &shell::State| -> Vec<TicketId> {
                let open = state.core.tickets(lead).filter(|(_, view)| !view.state.is_terminal());
                open.map(|(ticket, _)| ticket).collect()
            };
            let open = open(&self.shell.lock());
            let mut watches = open.into_iter().map(|ticket| self.watch(lead, ticket)).collect::<Result<Vec<_>, _>>()?;
            let mut shown: Vec<_> = watches.iter_mut().flatten().map(|watch| Box::pin(watch.shown(deadline))).collect();
            if !shown.is_empty() {
                timed_out = !first(&mut shown).await?;
            }
        }
        let glances: Vec<Glance>;
        let left_out;
        {
            let state = self.shell.lock();
            let (open, ended): (Vec<_>, Vec<_>) = state
                .core
                .tickets(lead)
                .map(|(ticket, view)| (ticket, view.state))
                .partition(|(_, state)| !state.is_terminal());
            let count = open.len() + ended.len();
            let in_order = open.into_iter().chain(ended.into_iter().rev()).take(self.shell.config.shown_max);
            glances = in_order.map(|(ticket, _)| Glance::at(&state, lead, ticket)).collect::<Result<_, _>>()?;
            left_out = count - glances.len();
        }
        let reader = &self.shell.reader;
        let tickets = glances.into_iter().map(|glance| glance.read(reader, timed_out)).collect::<Result<_, _>>()?;
        Ok(SeenAll { tickets, left_out, timed_out })
    }

    /// The replies that belong to no ticket and that the lead has not read, oldest first. They are shown until the lead says
    /// as far as which it has read them, so that none is lost with the answer to a call.
    ///
    /// # Errors
    ///
    /// As every call.
    pub async fn inbox(&self, lead: LeadId, read_through: Option<ReplyId>) -> Result<Vec<Letter>, Error> {
        if let Some(through) = read_through {
            match self.step(Step::InboxRead { lead, through }, String::new()) {
                Ok(done) => drop(self.stored(done).await?),
                // It says so again.
                Err(Error::Refused(Refused::NothingToRead)) => {}
                Err(error) => return Err(error),
            }
        }
        let unread: Vec<(ReplyId, WorkerId)> = {
            let state = self.shell.lock();
            let unread = state.core.inbox(lead).into_iter().flat_map(|inbox| {
                inbox.replies.iter().filter(|(reply, _)| inbox.read.is_none_or(|read| **reply > read))
            });
            unread.map(|(reply, worker)| (*reply, *worker)).collect()
        };
        let reader = &self.shell.reader;
        unread
            .into_iter()
            .map(|(id, from)| Ok(Letter { id, from, text: reader.text(Of::Reply(id))?.unwrap_or_default() }))
            .collect()
    }

    /// Says that the lead has what a call showed it. Once there are as many tickets as may be kept, those that have ended and
    /// that their leads have seen make room for newer ones, the oldest first; what nobody says this of is kept for ever.
    ///
    /// It changes nothing where the ticket is open, or where more has come to it than was shown.
    pub fn saw(&self, lead: LeadId, seen: &Seen) {
        let ticket = seen.ticket;
        let mut state = self.shell.lock();
        let stored = state.core.stored();
        let is_all = stored.tickets.get(&ticket).is_some_and(|row| row.late_replies.len() == seen.late_replies.len());
        if seen.state.is_terminal() && is_all && !stored.seen.contains(&ticket) {
            // Nobody waits for it: what is not stored is only kept for longer. Refused where more is on its way.
            let _ = self.shell.apply(&mut state, Step::Seen { lead, ticket }, With::default());
        }
    }

    /// Cancels a ticket. Its worker lives on.
    ///
    /// # Errors
    ///
    /// As every call.
    pub async fn cancel(&self, lead: LeadId, ticket: TicketId) -> Result<Seen, Error> {
        let done = self.step(Step::Cancelled { lead, ticket }, String::new())?;
        self.stored(done).await?;
        self.seen(lead, ticket, None, Instant::now()).await
    }

    /// Stops a worker: its open tickets are cancelled, and its process and all that it started end.
    ///
    /// # Errors
    ///
    /// As every call.
    pub async fn stop(&self, lead: LeadId, worker: WorkerId) -> Result<(), Error> {
        let done = self.step(Step::Stopped { lead, worker }, String::new())?;
        self.stored(done).await.map(drop)
    }
}

/// What workers do.
impl Handle {
    /// Asks the lead, in the turn of a ticket, and waits for the answer.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyText`], [`Error::TextTooLong`], or as every call.
    pub async fn ask(
        &self,
        worker: WorkerId,
        ticket: TicketId,
        text: impl Into<String>,
        options: Vec<String>,
        wait: Duration,
    ) -> Result<Heard, Error> {
        let question = QuestionText { text: text.into(), options, only_options: false };
        self.ask_for(worker, ticket, question, wait).await
    }

    async fn ask_for(
        &self,
        worker: WorkerId,
        ticket: TicketId,
        question: QuestionText,
        wait: Duration,
    ) -> Result<Heard, Error> {
        let deadline = deadline(wait);
        if question.text.trim().is_empty() {
            return Err(Error::EmptyText);
        }
        let text = self.text(json(&question))?;
        let (done, mut asking) = {
            let mut state = self.shell.lock();
            let with = With { accepted: Some(text), text: None };
            let done = self.shell.apply(&mut state, Step::Asked { worker, ticket }, with)?;
            let Some((Receipt::Question(question), _)) = &done.receipt else { unreachable!("a question was asked") };
            let question = *question;
            let answered = if wait.is_zero() {
                // It never waits, so that an answer that is quick does not find it by chance.
                self.shell.apply(&mut state, Step::AskWindowClosed { question }, With::default())?;
                None
            } else {
                Some(Shell::await_answer(&mut state, question))
            };
            (done, Asking { shell: &self.shell, question, answered })
        };
        self.stored(done).await?;
        let question = asking.question;
        let answer =
            if asking.answer_comes(deadline).await { self.shell.reader.text(Of::Answer(question))? } else { None };
        Ok(Heard { question, answer })
    }

    /// Replies: to the ticket, or to nobody's question, which goes to the inbox of the lead.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyText`], [`Error::TextTooLong`], or as every call.
    pub async fn reply(
        &self,
        worker: WorkerId,
        ticket: Option<TicketId>,
        text: impl Into<String>,
    ) -> Result<Placed, Error> {
        let text = self.text(text.into())?;
        let done = self.step(Step::Replied { worker, ticket }, text)?;
        let (Receipt::Reply(reply), _) = self.stored(done).await? else { unreachable!("a reply was taken in") };
        let Some(ticket) = ticket else { return Ok(Placed::Inbox) };
        let completed = self.shell.lock().core.ticket(ticket).and_then(|view| view.ticket.reply()) == Some(reply);
        Ok(if completed { Placed::Completed } else { Placed::Late })
    }
}

impl Handle {
    /// The ticket of a question, so that nobody learns what the question of another lead says.
    fn ticket_of(&self, lead: LeadId, question: QuestionId) -> Result<TicketId, Error> {
        let state = self.shell.lock();
        let ticket = state.core.ticket_of(question).ok_or(Refused::NoSuchQuestion)?;
        Glance::at(&state, lead, ticket)?;
        Ok(ticket)
    }

    fn text(&self, text: String) -> Result<String, Error> {
        let bytes_max = self.shell.config.text_bytes_max;
        if text.trim().is_empty() {
            return Err(Error::EmptyText);
        }
        if text.len() > bytes_max {
            return Err(Error::TextTooLong { bytes: text.len(), bytes_max });
        }
        Ok(text)
    }

    fn step(&self, step: Step, accepted: String) -> Result<Done, Error> {
        self.shell.apply(&mut self.shell.lock(), step, With { accepted: Some(accepted), text: None })
    }

    /// Waits until what was taken in is stored. The watch leaves with the future.
    async fn stored(&self, done: Done) -> Result<(Receipt, Option<Watching<'_>>), Error> {
        let Done { receipt, watch } = done;
        let watch = watch.map(|watch| self.watching(watch));
        let Some((receipt, told)) = receipt else { unreachable!("whatever is taken in has a receipt") };
        told.await.map_err(|_| self.shell.gone())?;
        Ok((receipt, watch))
    }

    fn watch(&self, lead: LeadId, ticket: TicketId) -> Result<Option<Watching<'_>>, Error> {
        let done = self.shell.apply(&mut self.shell.lock(), Step::Polled { lead, ticket }, With::default())?;
        Ok(done.watch.map(|watch| self.watching(watch)))
    }

    fn watching(&self, (watch, shown): (WatchId, oneshot::Receiver<()>)) -> Watching<'_> {
        Watching { shell: &self.shell, watch, shown: Some(shown) }
    }

    async fn seen(
        &self,
        lead: LeadId,
        ticket: TicketId,
        watch: Option<Watching<'_>>,
        deadline: Instant,
    ) -> Result<Seen, Error> {
        let timed_out = match watch {
            Some(mut watch) => !watch.shown(deadline).await?,
            None => false,
        };
        let glance = Glance::at(&self.shell.lock(), lead, ticket)?;
        glance.read(&self.shell.reader, timed_out)
    }
}

/// A call of a lead that watches. It leaves when it is dropped.
struct Watching<'a> {
    shell: &'a Arc<Shell>,
    watch: WatchId,
    /// There until it has left.
    shown: Option<oneshot::Receiver<()>>,
}

impl Watching<'_> {
    /// Waits until there is something to see; false where the time is over before.
    async fn shown(&mut self, deadline: Instant) -> Result<bool, Error> {
        let Some(shown) = &mut self.shown else { return Ok(true) };
        match timeout_at(deadline, shown).await {
            Ok(Ok(())) => {
                self.shown = None;
                Ok(true)
            }
            Ok(Err(_)) => {
                self.shown = None;
                Err(self.shell.gone())
            }
            // It may have been shown just now.
            Err(_) => Ok(!self.leave()),
        }
    }

    /// Whether it still watched.
    fn leave(&mut self) -> bool {
        self.shown = None;
        let step = Step::WindowClosed { watch: self.watch };
        self.shell.apply(&mut self.shell.lock(), step, With::default()).is_ok()
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        if self.shown.is_some() {
            self.leave();
        }
    }
}

/// A call of a worker that waits for an answer. When it is dropped, it no longer waits, and an answer that it was handed and has
/// not taken comes again.
struct Asking<'a> {
    shell: &'a Arc<Shell>,
    question: QuestionId,
    /// There until it no longer waits.
    answered: Option<oneshot::Receiver<()>>,
}

impl Asking<'_> {
    /// Whether the answer is this call's to give. Whether it was handed is asked of the machine, also where the time is over.
    async fn answer_comes(&mut self, deadline: Instant) -> bool {
        let Some(answered) = &mut self.answered else { return false };
        if let Ok(Err(_)) = timeout_at(deadline, answered).await {
            // No answer comes any more.
            self.answered = None;
            return false;
        }
        let takes = self.step(Step::AnswerTaken { question: self.question });
        if takes {
            self.answered = None;
        }
        takes
    }

    fn step(&self, step: Step) -> bool {
        self.shell.apply(&mut self.shell.lock(), step, With::default()).is_ok()
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.answered.is_some() {
            self.step(Step::AskWindowClosed { question: self.question });
        }
    }
}

fn deadline(wait: Duration) -> Instant {
    Instant::now() + wait.min(WAIT_MAX)
}

/// What the first of some futures gives. There must be one.
async fn first<F: Future + Unpin>(futures: &mut [F]) -> F::Output {
    std::future::poll_fn(|context| {
        let ready =
            futures.iter_mut().map(|future| std::pin::Pin::new(future).poll(context)).find(std::task::Poll::is_ready);
        ready.unwrap_or(std::task::Poll::Pending)
    })
    .await
}

/// What we store ourselves are strings and flags, which always have a form in JSON.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
