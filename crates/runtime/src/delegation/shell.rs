//! The shell around the machine of delegation: one lock, one call site of `apply`, and what the effects of a step do.
//!
//! Everything that happens goes through [`Shell::apply`], under the lock of [`State`]. The effects are carried out before the
//! lock is released, so their order is the order of the steps; nothing in there waits. The journal's thread applies
//! `Persisted`, so that whatever is let out is in the file.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use lastword_core::delegation::{
    Call, Delegation, Effect, Prompt, QuestionId, Receipt, Step, TicketId, WatchId, WorkerId,
};
use tokio::{
    sync::{mpsc as channel, oneshot},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    Config,
    error::{Error, JournalError, OpenError},
    journal::{Entry, Journal, Of, Reader},
    trace,
    worker::{self, Seat},
};

/// What comes with a step and is no business of the machine.
#[derive(Default)]
pub(super) struct With {
    /// The text of what is taken in.
    pub(super) accepted: Option<String>,
    /// A text that belongs to something else, stored with the rows of the step.
    pub(super) text: Option<(Of, String)>,
}

/// What is to be told to whoever brought a step.
#[derive(Default)]
pub(super) struct Done {
    /// What was taken in, and what says that it is stored.
    pub(super) receipt: Option<(Receipt, oneshot::Receiver<()>)>,
    /// The call watches.
    pub(super) watch: Option<(WatchId, oneshot::Receiver<()>)>,
}

/// One service. Held by its handles and by the task of each worker; the journal's thread looks whether it is still there.
pub(super) struct Shell {
    /// Tells the services of one process apart in logs and traces.
    number: u64,
    pub(super) config: Config,
    runtime: tokio::runtime::Handle,
    pub(super) reader: Reader,
    /// A lock of std: it is held for the length of a step and never across an await.
    state: Mutex<State>,
    /// Fires when the service closes or its journal fails.
    pub(super) over: CancellationToken,
    /// Told of each step, where a checker conducts.
    #[cfg(feature = "check")]
    conducted: super::gate::Conducted,
}

pub(super) struct State {
    pub(super) core: Delegation,
    /// Who waits to be told that something is stored, oldest first.
    told: BTreeMap<Receipt, VecDeque<oneshot::Sender<()>>>,
    /// The calls of leads that watch.
    watching: BTreeMap<WatchId, oneshot::Sender<()>>,
    /// The calls of workers that wait for an answer.
    asking: BTreeMap<QuestionId, oneshot::Sender<()>>,
    workers: BTreeMap<WorkerId, Reins>,
    /// The task of each worker.
    tasks: JoinSet<()>,
    /// To the journal's thread; none once the service is over.
    journal: Option<mpsc::Sender<Entry>>,
    /// The journal's thread, for whoever closes.
    thread: Option<thread::JoinHandle<()>>,
    failed: Option<JournalError>,
}

/// What the service holds of a worker whose task runs.
struct Reins {
    prompts: channel::UnboundedSender<Given>,
    stop: CancellationToken,
    /// The prompt that it was given last, and what cancels it.
    turn: Option<(TicketId, CancellationToken)>,
}

/// A prompt for a worker.
pub(super) struct Given {
    pub(super) ticket: TicketId,
    pub(super) prompt: Prompt,
    pub(super) cancelled: CancellationToken,
}

impl Shell {
    /// Opens the journal, and goes on where it ends.
    pub(super) fn open(journal: Journal, config: Config) -> Result<Arc<Self>, OpenError> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let Journal { tables, reader, writer } = journal;
        trace::opened(number, &config.limits, &tables);
        let state = State {
            core: Delegation::restore(config.limits, tables),
            told: BTreeMap::new(),
            watching: BTreeMap::new(),
            asking: BTreeMap::new(),
            workers: BTreeMap::new(),
            tasks: JoinSet::new(),
            journal: None,
            thread: None,
            failed: None,
        };
        let runtime = tokio::runtime::Handle::current();
        #[cfg(feature = "check")]
        let (permits, conducted) = config.take_baton();
        let shell = Arc::new(Self {
            number,
            config,
            runtime,
            reader,
            state: Mutex::new(state),
            over: CancellationToken::new(),
            #[cfg(feature = "check")]
            conducted,
        });
        let weak = Arc::downgrade(&shell);
        let file = writer.file().to_owned();
        let (sender, thread) = writer
            .start(
                move |committed| stored(&weak, committed),
                #[cfg(feature = "check")]
                permits,
            )
            .map_err(|source: io::Error| OpenError::Io { file, source })?;
        let mut state = shell.lock();
        (state.journal, state.thread) = (Some(sender), Some(thread));
        if let Err(error) = shell.apply(&mut state, Step::Restarted, With::default()) {
            unreachable!("a machine that was just restored restarts: {error}");
        }
        drop(state);
        Ok(shell)
    }

    /// Nothing panics while it holds the lock, and if something did, the machine would still be whole.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one place where anything happens.
    pub(super) fn apply(self: &Arc<Self>, state: &mut State, step: Step, with: With) -> Result<Done, Error> {
        if state.journal.is_none() {
            return Err(state.failed.clone().map_or(Error::Closed, Error::Journal));
        }
        let record = trace::Record::of(&step);
        #[cfg(feature = "check")]
        let told = self.conducted.of(&step);
        let effects = match state.core.apply(step) {
            Ok(effects) => effects,
            Err(refused) => {
                #[cfg(feature = "check")]
                self.conducted.tell(told, Err(refused), &state.core);
                return Err(refused.into());
            }
        };
        #[cfg(feature = "check")]
        let taken = effects.clone();
        if let Some(record) = record {
            record.emit(self.number, &effects, &state.core);
        }
        let With { mut accepted, text } = with;
        let mut texts = Vec::from_iter(text);
        let mut done = Done::default();
        for effect in effects {
            match effect {
                Effect::Accept(receipt) => {
                    texts.extend(of(receipt).zip(accepted.take()));
                    let (tell, told) = oneshot::channel();
                    state.told.entry(receipt).or_default().push_back(tell);
                    done.receipt = Some((receipt, told));
                }
                Effect::Persist(records) => {
                    let entry = Entry { records, texts: std::mem::take(&mut texts) };
                    if let Some(journal) = &state.journal {
                        // The thread ends early only where it fails, which it says itself.
                        let _ = journal.send(entry);
                    }
                }
                Effect::Watch(watch) => {
                    let (show, shown) = oneshot::channel();
                    state.watching.insert(watch, show);
                    done.watch = Some((watch, shown));
                }
                other => self.carry_out(state, other),
            }
        }
        // A call whose ticket has ended, or whose worker has left the turn, waits in vain.
        let State { core, asking, .. } = state;
        asking.retain(|question, _| core.call(*question) == Some(Call::Waiting));
        #[cfg(feature = "check")]
        self.conducted.tell(told, Ok(taken), &state.core);
        Ok(done)
    }

    fn carry_out(self: &Arc<Self>, state: &mut State, effect: Effect) {
        match effect {
            Effect::Acknowledge(receipt) => {
                let Some(waiting) = state.told.get_mut(&receipt) else { return };
                if let Some(tell) = waiting.pop_front() {
                    // A caller that left meanwhile has no use for it.
                    let _ = tell.send(());
                }
                if waiting.is_empty() {
                    state.told.remove(&receipt);
                }
            }
            Effect::Show { watch, .. } => {
                if let Some(show) = state.watching.remove(&watch) {
                    let _ = show.send(());
                }
            }
            Effect::Answer(question) => {
                if let Some(answered) = state.asking.remove(&question) {
                    let _ = answered.send(());
                }
            }
            Effect::Launch(worker) => {
                let (prompts, given) = channel::unbounded_channel();
                let stop = CancellationToken::new();
                let seat = Seat::new(Arc::clone(self), worker, given, stop.clone());
                state.workers.insert(worker, Reins { prompts, stop, turn: None });
                state.tasks.spawn_on(worker::live(seat), &self.runtime);
                // Those that are over leave their place.
                while state.tasks.try_join_next().is_some() {}
            }
            Effect::Deliver { ticket, prompt } => {
                if let Some(reins) = state.reins_of(ticket) {
                    let cancelled = CancellationToken::new();
                    reins.turn = Some((ticket, cancelled.clone()));
                    // Where its task is over, so is the worker, which ends the ticket.
                    let _ = reins.prompts.send(Given { ticket, prompt, cancelled });
                }
            }
            Effect::CancelTurn(ticket) => {
                if let Some((turn, cancelled)) = state.reins_of(ticket).and_then(|reins| reins.turn.as_ref())
                    && *turn == ticket
                {
                    cancelled.cancel();
                }
            }
            Effect::Kill(worker) => match state.workers.get(&worker) {
                Some(reins) => reins.stop.cancel(),
                // It was never started; somebody must say that it is gone.
                None => {
                    let shell = Arc::clone(self);
                    let died = async move { shell.died(worker, "it was stopped before it was started".to_owned()) };
                    state.tasks.spawn_on(died, &self.runtime);
                }
            },
            // The words of the machine may grow; this crate grows with them.
            other => unreachable!("the machine of this version knows no effect {other:?}"),
        }
    }

    /// The worker's process has ended, and says how. When the service closes, its end is ours and no news: the worker lives on,
    /// and is started again with the service.
    pub(super) fn died(self: &Arc<Self>, worker: WorkerId, how: String) {
        let mut state = self.lock();
        // Whoever stopped it knows.
        let was_stopped = state.workers.remove(&worker).is_some_and(|reins| reins.stop.is_cancelled());
        let text = if state.core.outlives_its_process(worker) {
            tracing::warn!(worker = worker.0, "the process of a worker is gone, and another takes its place: {how}");
            None
        } else {
            match was_stopped {
                true => tracing::info!(worker = worker.0, "a worker is gone: {how}"),
                false => tracing::warn!(worker = worker.0, "a worker is gone: {how}"),
            }
            Some((Of::Death(worker), how))
        };
        let with = With { text, ..With::default() };
        match self.apply(&mut state, Step::WorkerDied { worker }, with) {
            Ok(_) | Err(Error::Closed | Error::Journal(_)) => {}
            Err(error) => tracing::error!(worker = worker.0, "the end of a worker was refused: {error}"),
        }
    }

    /// A call that asks waits for its answer from here on.
    pub(super) fn await_answer(state: &mut State, question: QuestionId) -> oneshot::Receiver<()> {
        let (tell, answered) = oneshot::channel();
        state.asking.insert(question, tell);
        answered
    }

    /// Why nothing can be done any more.
    pub(super) fn gone(&self) -> Error {
        self.lock().failed.clone().map_or(Error::Closed, Error::Journal)
    }

    /// Ends everything but the tasks of the workers, which are told to end, and the journal's thread, which stores what it
    /// was given: both are handed out.
    pub(super) fn end(&self) -> (JoinSet<()>, Option<thread::JoinHandle<()>>) {
        let mut state = self.lock();
        state.let_go();
        let handed = (std::mem::take(&mut state.tasks), state.thread.take());
        drop(state);
        self.over.cancel();
        handed
    }
}

impl State {
    fn reins_of(&mut self, ticket: TicketId) -> Option<&mut Reins> {
        let worker = self.core.decided().tickets.get(&ticket)?.worker;
        self.workers.get_mut(&worker)
    }

    /// Whoever waits learns that nothing more comes.
    fn let_go(&mut self) {
        self.journal = None;
        self.told.clear();
        self.watching.clear();
        self.asking.clear();
        self.workers.values().for_each(|reins| reins.stop.cancel());
    }
}

/// The journal's thread has stored some entries, or will store no more.
fn stored(shell: &Weak<Shell>, committed: Result<usize, JournalError>) {
    let Some(shell) = shell.upgrade() else { return };
    let mut state = shell.lock();
    let failed = match committed {
        Ok(entries) => match shell.apply(&mut state, Step::Persisted { entries }, With::default()) {
            // What is stored after the end is found at the next start.
            Ok(_) | Err(Error::Closed | Error::Journal(_)) => return,
            Err(error) => unreachable!("the store was asked for these entries: {error}"),
        },
        Err(failed) => failed,
    };
    tracing::error!("{failed}");
    state.failed = Some(failed);
    state.let_go();
    drop(state);
    shell.over.cancel();
}

/// What the text of a receipt belongs to.
fn of(receipt: Receipt) -> Option<Of> {
    match receipt {
        Receipt::Worker(worker) => Some(Of::Worker(worker)),
        Receipt::Ticket(ticket) => Some(Of::Task(ticket)),
        Receipt::Question(question) => Some(Of::Question(question)),
        Receipt::Answer(question) => Some(Of::Answer(question)),
        Receipt::Reply(reply) => Some(Of::Reply(reply)),
        _ => None,
    }
}
