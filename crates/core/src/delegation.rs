//! Everything that the ticket service must remember, and the one way in.
//!
//! A lead sends work to a worker and gets a ticket; the worker asks, and replies. Every delivery has a ticket, and a call
//! that blocks only watches it: what removes the watcher, a window that runs out or a caller that leaves, never touches
//! the ticket. So no reply can miss its ticket for want of somebody who waits.
//!
//! **What is not stored yet, nobody sees.** A step changes the machine at once, and [`Effect::Persist`] says what the store
//! is to write. Only [`Step::Persisted`] lets out what rests on it: a caller is told that it is done, a watcher is shown the
//! ticket, a prompt is given to the worker, an answer as well. [`Delegation::ticket`] shows the stored row. So a crash at any
//! point takes back nothing that anybody knows of.
//!
//! **After a crash**, [`Delegation::restore`] and [`Step::Restarted`] begin with what was stored. The workers' processes are
//! gone. A ticket whose task was given to one fails: the worker may have done a part of it, and to run it again might do that
//! twice. A queued ticket keeps its place, and its worker is launched again.
//!
//! **What its lead was not shown is not forgotten.** Where as many tickets are kept as may, a new one takes the place of the
//! oldest that has ended and was shown to its lead as it ended ([`Step::Seen`]).
//!
//! Tasks, questions, answers and replies are names here. What they say stays with whoever drives the machine.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    string::String,
    vec::Vec,
};
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{digest, guard::guard};

mod record;
mod step;

pub use record::{
    Asked, Ending, Inbox, LeadId, Life, Marks, Progress, QuestionId, Record, ReplyId, RequestKey, State, Tables,
    Ticket, TicketId, WatchId, Worker, WorkerId,
};
pub use step::{Effect, Effects, Prompt, Receipt, Refused, Step, TurnEnd};

/// The bounds of the service. At each of them a step is refused, and nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Limits {
    /// How many workers may live.
    pub workers_max: usize,
    /// How many workers are kept, those that are gone included. One more takes the place of one that is gone and has no ticket.
    pub workers_kept_max: usize,
    /// How many tickets may wait for one worker.
    pub tickets_queued_max: usize,
    /// How many tickets are kept, ended ones included. One more takes the place of one that its lead has seen the end of.
    pub tickets_max: usize,
    /// How many questions of one ticket may be open.
    pub questions_open_max: usize,
    /// How many calls may watch.
    pub watches_max: usize,
    /// How many replies are kept beside one ended ticket, and how many unread ones in one inbox.
    pub replies_kept_max: usize,
    /// The guard that a checker forces, if any. No trace has it.
    #[cfg(feature = "check")]
    #[serde(skip)]
    pub forced: Option<crate::guard::Forced>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Each is a process; more than that no machine of a developer bears.
            workers_max: 256,
            // Their rows are small, and nobody lists more.
            workers_kept_max: 10_000,
            // A lead that is that far ahead of its worker has lost its way.
            tickets_queued_max: 1024,
            // A row takes some 200 bytes twice, so that all of them take some tens of megabytes.
            tickets_max: 100_000,
            // Calls of one model in parallel: ten would be many.
            questions_open_max: 64,
            // A call each, with a connection of its own.
            watches_max: 4096,
            // A worker that replies again and again is at fault.
            replies_kept_max: 1024,
            #[cfg(feature = "check")]
            forced: None,
        }
    }
}

/// The state of the service. See the module's documentation for its laws.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delegation {
    limits: Limits,
    /// What was decided.
    now: Tables,
    /// What of it is stored: all that anybody is shown, and what a restart begins with.
    stored: Tables,
    /// The difference, oldest first: what the store was asked for, and has not said that it has.
    journal: VecDeque<Entry>,
    /// The workers that live.
    seats: BTreeMap<WorkerId, Seat>,
    /// The questions of open tickets that the worker has no answer to, each with what became of the call that asked it.
    asks: BTreeMap<QuestionId, Ask>,
    /// The calls that watch.
    watches: BTreeMap<WatchId, TicketId>,
    /// The ticket of each question and of each key: where to look in the tables.
    questions: BTreeMap<QuestionId, TicketId>,
    keys: BTreeMap<(LeadId, RequestKey), TicketId>,
    last_question: u64,
    last_reply: u64,
    last_watch: u64,
    /// It was restored, and has not restarted.
    restored: bool,
}

/// What one step wants stored, and who is told then.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Entry {
    records: Vec<Record>,
    receipts: Vec<Receipt>,
}

/// Where a worker stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Seat {
    launched: bool,
    /// The ticket whose turn it is, and how far its prompt has come. The ticket may have ended already.
    turn: Option<(TicketId, Stage)>,
    /// The tickets that wait for their turn, in the order in which they were sent.
    queue: VecDeque<TicketId>,
}

/// How far the prompt of a turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    /// It is to be stored that the turn begins.
    Beginning,
    /// The prompt is being given.
    Delivering,
    /// The worker is at it.
    Running,
    /// The worker has answered it; the turn waits for an answer, which is its next prompt.
    Paused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Ask {
    ticket: TicketId,
    call: Call,
}

/// What became of the call by which a worker asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// It waits for the answer.
    Waiting,
    /// It was handed the answer, and has not said that it took it.
    Handed,
    /// It left without an answer, which will be a prompt.
    Left,
}

/// What one step does.
#[derive(Default)]
struct Change {
    effects: Effects,
    receipts: Vec<Receipt>,
    /// The rows that it writes.
    workers: BTreeSet<WorkerId>,
    tickets: BTreeSet<TicketId>,
    others: Vec<Record>,
    /// Where something may go on.
    settle_workers: BTreeSet<WorkerId>,
    settle_tickets: BTreeSet<TicketId>,
}

/// A ticket as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View<'a> {
    /// Its row, as it is stored.
    pub ticket: &'a Ticket,
    /// Its state.
    pub state: State,
    /// The questions that wait for an answer, oldest first.
    pub questions: Vec<QuestionId>,
    /// How many tickets its worker comes to before it, where it is queued.
    pub position: Option<usize>,
}

impl Delegation {
    /// A service in which nothing has happened.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { restored: false, ..Self::restore(limits, Tables::default()) }
    }

    /// A service with what was stored. Its first step must be [`Step::Restarted`].
    #[must_use]
    pub fn restore(limits: Limits, stored: Tables) -> Self {
        let of_ticket = |(id, ticket): (&TicketId, &Ticket)| {
            let id = *id;
            ticket.questions.keys().map(move |question| (*question, id)).collect::<Vec<_>>()
        };
        let key = |(id, ticket): (&TicketId, &Ticket)| Some(((ticket.lead, ticket.key.clone()?), *id));
        Self {
            limits,
            questions: stored.tickets.iter().flat_map(of_ticket).collect(),
            keys: stored.tickets.iter().filter_map(key).collect(),
            last_question: stored.last_question(),
            last_reply: stored.last_reply(),
            now: stored.clone(),
            stored,
            journal: VecDeque::new(),
            seats: BTreeMap::new(),
            asks: BTreeMap::new(),
            watches: BTreeMap::new(),
            last_watch: 0,
            restored: true,
        }
    }

    // Inputs.

    /// Takes one step and says what is to be done, in that order.
    ///
    /// # Errors
    ///
    /// [`Refused`] with the reason, for whoever brought the step; the state is then bit-identical to what it was.
    pub fn apply(&mut self, step: Step) -> Result<Effects, Refused> {
        match (self.restored, step == Step::Restarted) {
            (true, false) => return Err(Refused::RestartFirst),
            (false, true) => return Err(Refused::NotRestored),
            _ => {}
        }
        let mut change = Change::default();
        match step {
            Step::Spawned { lead } => self.spawned(lead, &mut change)?,
            Step::Sent { lead, worker, key, replace, watch } => {
                self.sent(lead, worker, key, replace, watch, &mut change)?;
            }
            Step::Delivered { ticket } => self.delivered(ticket, &mut change)?,
            Step::Asked { worker, ticket } => self.asked(worker, ticket, &mut change)?,
            Step::AnswerTaken { question } => {
                let is_handed = self.asks.get(&question).is_some_and(|ask| ask.call == Call::Handed);
                if !is_handed {
                    return Err(Refused::NotHanded);
                }
                self.asks.remove(&question);
            }
            Step::AskWindowClosed { question } => {
                let ask = self.asks.get_mut(&question).filter(|ask| ask.call != Call::Left);
                ask.ok_or(Refused::NotWaiting)?.call = Call::Left;
            }
            Step::Answered { lead, question, watch } => self.answered(lead, question, watch, &mut change)?,
            Step::Replied { worker, ticket } => self.replied(worker, ticket, &mut change)?,
            Step::TurnEnded { ticket, end } => self.turn_ended(ticket, end, &mut change)?,
            Step::Polled { lead, ticket } => {
                let row = self.now.tickets.get(&ticket).ok_or(Refused::NoSuchTicket)?;
                is_yours(row.lead == lead)?;
                self.has_room_to_watch()?;
                self.watch(ticket, &mut change);
            }
            Step::WindowClosed { watch } => {
                self.watches.remove(&watch).ok_or(Refused::NoSuchWatch)?;
            }
            Step::Seen { lead, ticket } => self.seen(lead, ticket, &mut change)?,
            Step::Cancelled { lead, ticket } => self.cancelled(lead, ticket, &mut change)?,
            Step::Stopped { lead, worker } => self.stopped(lead, worker, &mut change)?,
            Step::WorkerDied { worker } => self.worker_died(worker, &mut change)?,
            Step::InboxRead { lead, through } => self.inbox_read(lead, through, &mut change)?,
            Step::Persisted { entries } => self.persisted(entries, &mut change)?,
            Step::Restarted => self.restarted(&mut change),
        }
        self.settle(&mut change);
        self.write(&mut change);
        Ok(change.effects)
    }

    // Getters.

    /// The steps that are owed now, and those that may come from a worker's process or a clock. What leads and workers say
    /// may always come.
    #[must_use]
    pub fn may_come(&self) -> Vec<Step> {
        if self.restored {
            return Vec::from([Step::Restarted]);
        }
        let mut steps: Vec<Step> = (1..=self.journal.len()).map(|entries| Step::Persisted { entries }).collect();
        for (worker, seat) in &self.seats {
            match seat.turn {
                Some((ticket, Stage::Delivering)) => steps.push(Step::Delivered { ticket }),
                Some((ticket, Stage::Running)) => {
                    steps.push(Step::TurnEnded { ticket, end: TurnEnd::Ended });
                    steps.push(Step::TurnEnded { ticket, end: TurnEnd::Failed });
                }
                _ => {}
            }
            let is_stopping = self.now.workers.get(worker).is_some_and(|row| row.life == Life::Stopping);
            if seat.launched || is_stopping {
                steps.push(Step::WorkerDied { worker: *worker });
            }
        }
        for (question, ask) in &self.asks {
            let question = *question;
            if ask.call == Call::Handed {
                steps.push(Step::AnswerTaken { question });
            }
            if ask.call != Call::Left {
                steps.push(Step::AskWindowClosed { question });
            }
        }
        steps.extend(self.watches.keys().map(|watch| Step::WindowClosed { watch: *watch }));
        steps
    }

    /// A ticket as it is stored; none where it is not.
    #[must_use]
    pub fn ticket(&self, ticket: TicketId) -> Option<View<'_>> {
        let row = self.stored.tickets.get(&ticket)?;
        let queue = self.seats.get(&row.worker).map(|seat| &seat.queue);
        let position = queue.and_then(|queue| queue.iter().position(|queued| *queued == ticket));
        let position = position.filter(|_| row.progress == Progress::Queued);
        Some(View { ticket: row, state: row.state(), questions: row.open_questions().collect(), position })
    }

    /// The tickets of a lead, oldest first, as they are stored.
    pub fn tickets(&self, lead: LeadId) -> impl Iterator<Item = (TicketId, View<'_>)> {
        let of_lead = self.stored.tickets.iter().filter(move |(_, ticket)| ticket.lead == lead);
        of_lead.filter_map(|(id, _)| Some((*id, self.ticket(*id)?)))
    }

    /// The inbox of a lead, as it is stored; none where nothing ever came.
    #[must_use]
    pub fn inbox(&self, lead: LeadId) -> Option<&Inbox> {
        self.stored.inboxes.get(&lead)
    }

    /// A worker, as it is stored.
    #[must_use]
    pub fn worker(&self, worker: WorkerId) -> Option<&Worker> {
        self.stored.workers.get(&worker)
    }

    /// All that is stored: what a restart would begin with.
    #[must_use]
    pub fn stored(&self) -> &Tables {
        &self.stored
    }

    /// All that was decided, stored or not. For checks: nobody is to be shown what is not stored.
    #[must_use]
    pub fn decided(&self) -> &Tables {
        &self.now
    }

    /// The ticket whose turn it is at a worker. It may have ended, while the worker has not come to the end of its turn.
    #[must_use]
    pub fn turn(&self, worker: WorkerId) -> Option<TicketId> {
        self.seats.get(&worker)?.turn.map(|(ticket, _)| ticket)
    }

    /// The ticket of whose turn a worker is at a prompt.
    #[must_use]
    pub fn running(&self, worker: WorkerId) -> Option<TicketId> {
        match self.seats.get(&worker)?.turn {
            Some((ticket, Stage::Running)) => Some(ticket),
            _ => None,
        }
    }

    /// How far the prompt of the turn at a worker has come, in the words of the specification.
    #[must_use]
    pub fn stage(&self, worker: WorkerId) -> Option<&'static str> {
        Some(match self.seats.get(&worker)?.turn?.1 {
            Stage::Beginning => "beginning",
            Stage::Delivering => "delivering",
            Stage::Running => "running",
            Stage::Paused => "paused",
        })
    }

    /// The tickets that wait for a worker, in their order.
    pub fn queue(&self, worker: WorkerId) -> impl Iterator<Item = TicketId> {
        self.seats.get(&worker).into_iter().flat_map(|seat| seat.queue.iter().copied())
    }

    /// What became of the call that asked this question; none where the worker has the answer, or will never have it.
    #[must_use]
    pub fn call(&self, question: QuestionId) -> Option<Call> {
        self.asks.get(&question).map(|ask| ask.call)
    }

    /// Whether the end of a worker's process is not the end of the worker, because it was at a ticket that has ended: it is
    /// started again then, for the tickets that wait.
    #[must_use]
    pub fn outlives_its_process(&self, worker: WorkerId) -> bool {
        let is_alive = self.now.workers.get(&worker).is_some_and(|row| row.life == Life::Alive);
        let turn = self.turn(worker).and_then(|ticket| self.now.tickets.get(&ticket));
        is_alive && turn.is_some_and(|row| !row.is_open())
    }

    /// The ticket of a question.
    #[must_use]
    pub fn ticket_of(&self, question: QuestionId) -> Option<TicketId> {
        self.questions.get(&question).copied()
    }

    /// The calls that watch, each with its ticket.
    pub fn watches(&self) -> impl Iterator<Item = (WatchId, TicketId)> {
        self.watches.iter().map(|(watch, ticket)| (*watch, *ticket))
    }

    /// What the store was asked for and does not have, one entry a step, oldest first.
    pub fn unstored(&self) -> impl Iterator<Item = &[Record]> {
        self.journal.iter().map(|entry| &entry.records[..])
    }

    /// The bounds that it was made with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A fingerprint of the whole state in 16 hexadecimal digits, the same on every machine.
    #[must_use]
    pub fn digest(&self) -> String {
        digest::of(self)
    }

    // What leads do.

    fn spawned(&mut self, lead: LeadId, change: &mut Change) -> Result<(), Refused> {
        if self.seats.len() >= self.limits.workers_max {
            return Err(Refused::TooManyWorkers);
        }
        let worker = WorkerId(self.now.workers.last_key_value().map_or(0, |(last, _)| last.0) + 1);
        if self.now.workers.len() >= self.limits.workers_kept_max {
            let with_tickets: BTreeSet<WorkerId> = self.now.tickets.values().map(|row| row.worker).collect();
            let is_over = |(id, row): &(&WorkerId, &Worker)| row.life == Life::Gone && !with_tickets.contains(id);
            let (old, _) = self.now.workers.iter().find(is_over).ok_or(Refused::TooManyWorkers)?;
            let record = Record::WorkerForgotten(*old);
            self.now.put(record.clone());
            change.others.push(record);
        }
        self.now.workers.insert(worker, Worker { lead, life: Life::Alive });
        self.seats.insert(worker, Seat::default());
        change.take_in(Receipt::Worker(worker));
        change.workers.insert(worker);
        Ok(())
    }

    fn sent(
        &mut self,
        lead: LeadId,
        worker: WorkerId,
        key: Option<RequestKey>,
        replace: bool,
        watch: bool,
        change: &mut Change,
    ) -> Result<(), Refused> {
        if watch {
            self.has_room_to_watch()?;
        }
        let known = key.as_ref().and_then(|key| self.keys.get(&(lead, key.clone())).copied());
        if let Some(ticket) = known
            && guard!(self.limits, "same-key-same-ticket", true)
        {
            change.take_in(Receipt::Ticket(ticket));
            if watch {
                self.watch(ticket, change);
            }
            return Ok(());
        }
        let row = self.now.workers.get(&worker).ok_or(Refused::NoSuchWorker)?;
        is_yours(row.lead == lead)?;
        let queued = match self.seats.get(&worker) {
            Some(seat) if row.life == Life::Alive => seat.queue.len(),
            _ => return Err(Refused::WorkerGone),
        };
        let is_full = self.now.tickets.len() >= self.limits.tickets_max;
        let forgettable = if is_full { self.forgettable() } else { None };
        if is_full && forgettable.is_none() {
            return Err(Refused::TooManyTickets);
        }
        if queued >= self.limits.tickets_queued_max && !replace {
            return Err(Refused::QueueFull);
        }
        let ticket = TicketId(self.now.tickets.last_key_value().map_or(0, |(last, _)| last.0) + 1);
        if let Some(old) = forgettable {
            self.forget(old, change);
        }
        if replace {
            self.end_all(worker, Ending::Replaced, change);
        }
        if let Some(key) = &key {
            self.keys.insert((lead, key.clone()), ticket);
        }
        let (questions, late_replies) = (BTreeMap::new(), Vec::new());
        let row = Ticket { lead, worker, key, progress: Progress::Queued, questions, late_replies };
        self.now.tickets.insert(ticket, row);
        if let Some(seat) = self.seats.get_mut(&worker) {
            seat.queue.push_back(ticket);
        }
        change.take_in(Receipt::Ticket(ticket));
        change.write(ticket);
        if watch {
            self.watch(ticket, change);
        }
        Ok(())
    }

    fn answered(
        &mut self,
        lead: LeadId,
        question: QuestionId,
        watch: bool,
        change: &mut Change,
    ) -> Result<(), Refused> {
        let ticket = self.ticket_of(question).ok_or(Refused::NoSuchQuestion)?;
        if watch {
            self.has_room_to_watch()?;
        }
        let row = self.now.tickets.get_mut(&ticket).ok_or(Refused::NoSuchTicket)?;
        is_yours(row.lead == lead)?;
        if row.questions.get(&question) == Some(&Asked::Answered) {
            return Err(Refused::AlreadyAnswered);
        }
        if !row.is_open() {
            return Err(Refused::TicketEnded);
        }
        row.questions.insert(question, Asked::Answered);
        change.take_in(Receipt::Answer(question));
        change.write(ticket);
        if watch {
            self.watch(ticket, change);
        }
        Ok(())
    }

    /// The oldest ticket that may be forgotten: its lead was shown how it ended, and no turn of it goes on.
    fn forgettable(&self) -> Option<TicketId> {
        let turns: BTreeSet<TicketId> =
            self.seats.values().filter_map(|seat| seat.turn).map(|(ticket, _)| ticket).collect();
        self.now.seen.difference(&turns).next().copied()
    }

    fn forget(&mut self, ticket: TicketId, change: &mut Change) {
        let Some(row) = self.now.tickets.get(&ticket).cloned() else { return };
        for question in row.questions.keys() {
            self.questions.remove(question);
        }
        if let Some(key) = &row.key {
            self.keys.remove(&(row.lead, key.clone()));
        }
        let Marks { question, reply } = self.now.marks;
        let marks = Marks { question: question.max(row.last_question()), reply: reply.max(row.last_reply()) };
        for record in [Record::Forgotten(ticket, row), Record::Marks(marks)] {
            self.now.put(record.clone());
            change.others.push(record);
        }
    }

    /// What its lead was shown is what is stored, and nothing may have come to it since.
    fn seen(&mut self, lead: LeadId, ticket: TicketId, change: &mut Change) -> Result<(), Refused> {
        let row = self.stored.tickets.get(&ticket).ok_or(Refused::NoSuchTicket)?;
        is_yours(row.lead == lead)?;
        if row.is_open() || !self.is_stored(ticket) || self.now.seen.contains(&ticket) {
            return Err(Refused::NothingToSee);
        }
        self.now.seen.insert(ticket);
        change.others.push(Record::Seen(ticket));
        Ok(())
    }

    fn cancelled(&mut self, lead: LeadId, ticket: TicketId, change: &mut Change) -> Result<(), Refused> {
        let row = self.now.tickets.get(&ticket).ok_or(Refused::NoSuchTicket)?;
        is_yours(row.lead == lead)?;
        if !row.is_open() {
            return Err(Refused::TicketEnded);
        }
        change.take_in(Receipt::Cancel(ticket));
        self.end(ticket, Ending::Cancelled, change);
        Ok(())
    }

    fn stopped(&mut self, lead: LeadId, worker: WorkerId, change: &mut Change) -> Result<(), Refused> {
        let row = self.now.workers.get_mut(&worker).ok_or(Refused::NoSuchWorker)?;
        is_yours(row.lead == lead)?;
        if row.life != Life::Alive {
            return Err(Refused::WorkerGone);
        }
        row.life = Life::Stopping;
        change.workers.insert(worker);
        change.take_in(Receipt::Stop(worker));
        self.end_all(worker, Ending::Stopped, change);
        change.effects.push(Effect::Kill(worker));
        Ok(())
    }

    fn inbox_read(&mut self, lead: LeadId, through: ReplyId, change: &mut Change) -> Result<(), Refused> {
        let inbox = self.now.inboxes.get(&lead).ok_or(Refused::NothingToRead)?;
        if !inbox.replies.contains_key(&through) {
            return Err(Refused::NothingToRead);
        }
        let record = Record::InboxRead(lead, through);
        self.now.put(record.clone());
        change.others.push(record);
        change.take_in(Receipt::InboxRead(lead));
        Ok(())
    }

    fn has_room_to_watch(&self) -> Result<(), Refused> {
        if self.watches.len() >= self.limits.watches_max { Err(Refused::TooManyWatches) } else { Ok(()) }
    }

    fn watch(&mut self, ticket: TicketId, change: &mut Change) {
        self.last_watch += 1;
        let watch = WatchId(self.last_watch);
        self.watches.insert(watch, ticket);
        change.effects.push(Effect::Watch(watch));
        change.settle_tickets.insert(ticket);
    }

    // What workers do.

    fn delivered(&mut self, ticket: TicketId, change: &mut Change) -> Result<(), Refused> {
        let (row, stage) = self.turn_of(ticket)?;
        if *stage != Stage::Delivering {
            return Err(Refused::NotDelivering);
        }
        *stage = Stage::Running;
        // It was cancelled while its prompt was being given: there was nothing to cancel then.
        if row.state() == State::Cancelled {
            change.effects.push(Effect::CancelTurn(ticket));
        }
        Ok(())
    }

    fn asked(&mut self, worker: WorkerId, ticket: TicketId, change: &mut Change) -> Result<(), Refused> {
        let row = self.now.tickets.get(&ticket).ok_or(Refused::NoSuchTicket)?;
        is_yours(row.worker == worker)?;
        if !row.is_open() {
            return Err(Refused::TicketEnded);
        }
        if self.running(worker) != Some(ticket) {
            return Err(Refused::NotRunning);
        }
        if row.open_questions().count() >= self.limits.questions_open_max {
            return Err(Refused::TooManyQuestions);
        }
        self.last_question += 1;
        let question = QuestionId(self.last_question);
        if let Some(row) = self.now.tickets.get_mut(&ticket) {
            row.questions.insert(question, Asked::Open);
        }
        self.questions.insert(question, ticket);
        self.asks.insert(question, Ask { ticket, call: Call::Waiting });
        change.take_in(Receipt::Question(question));
        change.write(ticket);
        Ok(())
    }

    /// A reply to an open ticket completes it. One to a ticket that has ended is kept beside it. One that names no ticket is
    /// for the inbox, unless the worker is at a ticket: then it might mean that one or an older one, and must say which.
    fn replied(&mut self, worker: WorkerId, ticket: Option<TicketId>, change: &mut Change) -> Result<(), Refused> {
        let lead = self.now.workers.get(&worker).ok_or(Refused::NoSuchWorker)?.lead;
        let reply = ReplyId(self.last_reply + 1);
        let Some(ticket) = ticket else {
            let turn = self.turn(worker).and_then(|ticket| self.now.tickets.get(&ticket));
            if guard!(self.limits, "reply-says-which-turn", turn.is_some_and(Ticket::is_open)) {
                return Err(Refused::WhichTicket);
            }
            let inbox = self.now.inboxes.entry(lead).or_default();
            if inbox.replies.len() >= self.limits.replies_kept_max {
                return Err(Refused::TooManyReplies);
            }
            inbox.replies.insert(reply, worker);
            change.others.push(Record::Inbox(lead, reply, worker));
            self.last_reply = reply.0;
            change.take_in(Receipt::Reply(reply));
            return Ok(());
        };
        let row = self.now.tickets.get_mut(&ticket).ok_or(Refused::NoSuchTicket)?;
        is_yours(guard!(self.limits, "reply-comes-from-its-worker", row.worker == worker))?;
        let is_beginning =
            self.seats.get(&row.worker).is_some_and(|seat| seat.turn == Some((ticket, Stage::Beginning)));
        if row.progress == Progress::Queued || is_beginning {
            return Err(Refused::NotStarted);
        }
        if !row.is_open() && row.late_replies.len() >= self.limits.replies_kept_max {
            return Err(Refused::TooManyReplies);
        }
        self.last_reply = reply.0;
        change.take_in(Receipt::Reply(reply));
        if guard!(self.limits, "reply-completes-its-ticket", row.is_open()) {
            self.end(ticket, Ending::Replied(reply), change);
        } else {
            if guard!(self.limits, "late-reply-is-kept", true) {
                row.late_replies.push(reply);
            }
            if guard!(self.limits, "late-reply-is-to-be-seen", true) {
                self.now.seen.remove(&ticket);
            }
            change.write(ticket);
        }
        Ok(())
    }

    fn turn_ended(&mut self, ticket: TicketId, end: TurnEnd, change: &mut Change) -> Result<(), Refused> {
        let (row, stage) = self.turn_of(ticket)?;
        if *stage != Stage::Running {
            return Err(Refused::NotRunning);
        }
        let is_open = row.is_open();
        *stage = Stage::Paused;
        // Whatever of the worker waited ended with its prompt. An answer that was handed to a call and not taken comes again.
        for ask in self.asks.values_mut().filter(|ask| ask.ticket == ticket) {
            ask.call = Call::Left;
        }
        let waits_for_answer = self.asks.values().any(|ask| ask.ticket == ticket);
        if !is_open {
            self.leave(ticket, change);
        } else if end == TurnEnd::Failed {
            self.end(ticket, Ending::TurnFailed, change);
        } else if guard!(self.limits, "unanswered-turn-pauses", waits_for_answer) {
            change.settle_tickets.insert(ticket);
        } else {
            self.end(ticket, Ending::LastMessage, change);
        }
        Ok(())
    }

    fn worker_died(&mut self, worker: WorkerId, change: &mut Change) -> Result<(), Refused> {
        let outlives = guard!(self.limits, "queue-outlives-a-turn-that-is-over", self.outlives_its_process(worker));
        let row = self.now.workers.get_mut(&worker).ok_or(Refused::NoSuchWorker)?;
        if row.life == Life::Gone {
            return Err(Refused::WorkerGone);
        }
        if outlives && let Some(seat) = self.seats.get_mut(&worker) {
            (seat.launched, seat.turn) = (false, None);
            change.settle_workers.insert(worker);
            return Ok(());
        }
        row.life = Life::Gone;
        change.workers.insert(worker);
        if guard!(self.limits, "tickets-end-with-their-worker", true) {
            self.end_all(worker, Ending::WorkerDied, change);
        }
        self.seats.remove(&worker);
        Ok(())
    }

    // What the store does.

    fn persisted(&mut self, entries: usize, change: &mut Change) -> Result<(), Refused> {
        if entries == 0 || entries > self.journal.len() {
            return Err(Refused::NotWritten);
        }
        for entry in self.journal.drain(..entries) {
            for record in entry.records {
                match &record {
                    Record::Worker(worker, _) => drop(change.settle_workers.insert(*worker)),
                    Record::Ticket(ticket, _) => drop(change.settle_tickets.insert(*ticket)),
                    Record::WorkerForgotten(_)
                    | Record::Seen(_)
                    | Record::Forgotten(..)
                    | Record::Marks(_)
                    | Record::Inbox(..)
                    | Record::InboxRead(..) => {}
                }
                self.stored.put(record);
            }
            change.effects.extend(entry.receipts.into_iter().map(Effect::Acknowledge));
        }
        Ok(())
    }

    fn restarted(&mut self, change: &mut Change) {
        self.restored = false;
        for (worker, row) in &mut self.now.workers {
            match row.life {
                Life::Alive => {
                    self.seats.insert(*worker, Seat::default());
                    change.settle_workers.insert(*worker);
                }
                Life::Stopping => {
                    row.life = Life::Gone;
                    change.workers.insert(*worker);
                }
                Life::Gone => {}
            }
        }
        for (ticket, row) in &mut self.now.tickets {
            match (row.progress, self.seats.get_mut(&row.worker)) {
                (Progress::Queued, Some(seat)) => seat.queue.push_back(*ticket),
                (Progress::Queued | Progress::Working, _)
                    if guard!(self.limits, "working-ticket-ends-at-restart", true) =>
                {
                    row.progress = Progress::Ended(Ending::Restarted);
                    change.write(*ticket);
                }
                _ => {}
            }
        }
    }

    // How things go on.

    /// The row and the stage of a ticket whose turn it is.
    fn turn_of(&mut self, ticket: TicketId) -> Result<(&Ticket, &mut Stage), Refused> {
        let row = self.now.tickets.get(&ticket).ok_or(Refused::NoSuchTicket)?;
        match self.seats.get_mut(&row.worker).and_then(|seat| seat.turn.as_mut()) {
            Some((turn, stage)) if *turn == ticket => Ok((row, stage)),
            _ => Err(Refused::NotRunning),
        }
    }

    /// Ends every ticket of a worker that is open.
    fn end_all(&mut self, worker: WorkerId, ending: Ending, change: &mut Change) {
        let Some(seat) = self.seats.get(&worker) else { return };
        let turn = seat.turn.map(|(ticket, _)| ticket);
        let open: Vec<TicketId> = turn.into_iter().chain(seat.queue.iter().copied()).collect();
        for ticket in open {
            self.end(ticket, ending, change);
        }
    }

    /// Ends a ticket; one that has ended stays as it is.
    fn end(&mut self, ticket: TicketId, ending: Ending, change: &mut Change) {
        let Some(row) = self.now.tickets.get_mut(&ticket) else { return };
        if !guard!(self.limits, "ended-stays-ended", row.is_open()) {
            return;
        }
        row.progress = Progress::Ended(ending);
        if !guard!(self.limits, "ended-is-to-be-seen", true) {
            self.now.seen.insert(ticket);
        }
        let is_cancelled = row.state() == State::Cancelled;
        let worker = row.worker;
        change.write(ticket);
        self.asks.retain(|_, ask| ask.ticket != ticket);
        let Some(seat) = self.seats.get_mut(&worker) else { return };
        seat.queue.retain(|queued| *queued != ticket);
        match seat.turn {
            Some((turn, Stage::Running)) if turn == ticket && is_cancelled => {
                change.effects.push(Effect::CancelTurn(ticket));
            }
            // Nothing of it runs, so that nothing owes the end of its turn.
            Some((turn, Stage::Beginning | Stage::Paused)) if turn == ticket => self.leave(ticket, change),
            _ => {}
        }
    }

    /// The turn of a ticket is over; the next one of its worker may begin.
    fn leave(&mut self, ticket: TicketId, change: &mut Change) {
        let Some(row) = self.now.tickets.get(&ticket) else { return };
        if let Some(seat) = self.seats.get_mut(&row.worker) {
            seat.turn = None;
        }
        change.settle_workers.insert(row.worker);
    }

    /// Whether the store has a ticket as it is now.
    fn is_stored(&self, ticket: TicketId) -> bool {
        self.now.tickets.get(&ticket) == self.stored.tickets.get(&ticket)
    }

    /// Lets out what the step made possible, but nothing of a ticket that is not stored as it is.
    fn settle(&mut self, change: &mut Change) {
        for ticket in core::mem::take(&mut change.settle_tickets) {
            if self.is_stored(ticket) {
                self.settle_ticket(ticket, change);
            }
        }
        for worker in core::mem::take(&mut change.settle_workers) {
            self.settle_worker(worker, change);
        }
    }

    fn settle_ticket(&mut self, ticket: TicketId, change: &mut Change) {
        let Some(row) = self.now.tickets.get(&ticket) else { return };
        change.settle_workers.insert(row.worker);
        let turn = self.seats.get_mut(&row.worker).and_then(|seat| seat.turn.as_mut());
        let mut stage = turn.filter(|(turn, _)| *turn == ticket).map(|(_, stage)| stage);
        if let Some(stage) = &mut stage
            && **stage == Stage::Beginning
        {
            **stage = Stage::Delivering;
            change.effects.push(Effect::Deliver { ticket, prompt: Prompt::Task });
        }
        for question in
            row.questions.iter().filter(|(_, asked)| **asked == Asked::Answered).map(|(question, _)| *question)
        {
            match (self.asks.get_mut(&question), &mut stage) {
                (Some(ask), _) if ask.call == Call::Waiting => {
                    change.effects.push(Effect::Answer(question));
                    if guard!(self.limits, "handed-is-not-taken", true) {
                        ask.call = Call::Handed;
                        continue;
                    }
                }
                (Some(ask), Some(stage))
                    if ask.call == Call::Left
                        && **stage == Stage::Paused
                        && guard!(self.limits, "late-answer-is-a-prompt", true) =>
                {
                    **stage = Stage::Delivering;
                    change.effects.push(Effect::Deliver { ticket, prompt: Prompt::Answer(question) });
                }
                _ => continue,
            }
            if guard!(self.limits, "given-answer-is-given-once", true) {
                self.asks.remove(&question);
            }
        }
        if guard!(self.limits, "question-is-shown", row.state() == State::InputRequired) || !row.is_open() {
            self.watches.retain(|watch, watched| {
                let is_shown = *watched == ticket;
                if is_shown {
                    change.effects.push(Effect::Show { watch: *watch, ticket });
                }
                !is_shown
            });
        }
    }

    fn settle_worker(&mut self, worker: WorkerId, change: &mut Change) {
        let row = self.now.workers.get(&worker);
        let Some(seat) = self.seats.get_mut(&worker) else { return };
        if row.is_none_or(|row| row.life != Life::Alive) || row != self.stored.workers.get(&worker) {
            return;
        }
        if !seat.launched {
            seat.launched = true;
            change.effects.push(Effect::Launch(worker));
        }
        let Some(next) = seat.queue.front().copied() else { return };
        let is_free = guard!(self.limits, "one-turn-of-a-worker", seat.turn.is_none());
        if is_free
            && guard!(self.limits, "next-ticket-begins", self.now.tickets.get(&next) == self.stored.tickets.get(&next))
        {
            seat.queue.pop_front();
            seat.turn = Some((next, Stage::Beginning));
            if let Some(row) = self.now.tickets.get_mut(&next) {
                row.progress = Progress::Working;
            }
            change.tickets.insert(next);
        }
    }

    /// Asks the store for what the step changed. Whoever is to be told waits for it; where the step changed nothing, for
    /// what is still on its way, since it may be just that which the caller repeats.
    fn write(&mut self, change: &mut Change) {
        let workers =
            change.workers.iter().filter_map(|id| Some(Record::Worker(*id, self.now.workers.get(id)?.clone())));
        let tickets =
            change.tickets.iter().filter_map(|id| Some(Record::Ticket(*id, self.now.tickets.get(id)?.clone())));
        let records: Vec<Record> = workers.chain(tickets).chain(core::mem::take(&mut change.others)).collect();
        let mut receipts = core::mem::take(&mut change.receipts);
        if !records.is_empty() {
            change.effects.push(Effect::Persist(records.clone()));
            self.journal.push_back(Entry { records, receipts: Vec::new() });
        }
        match self.journal.back_mut() {
            Some(entry) if guard!(self.limits, "acknowledged-once-stored", true) => {
                entry.receipts.append(&mut receipts);
            }
            _ => change.effects.extend(receipts.into_iter().map(Effect::Acknowledge)),
        }
    }
}

impl Change {
    /// Names what came with the step, and who is told once it is stored.
    fn take_in(&mut self, receipt: Receipt) {
        self.effects.push(Effect::Accept(receipt));
        self.receipts.push(receipt);
    }

    fn write(&mut self, ticket: TicketId) {
        self.tickets.insert(ticket);
    }
}

fn is_yours(is: bool) -> Result<(), Refused> {
    if is { Ok(()) } else { Err(Refused::NotYours) }
}

impl fmt::Debug for Delegation {
    /// The state without the limits, which never change.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation")
            .field("now", &self.now)
            .field("stored", &self.stored)
            .field("journal", &self.journal)
            .field("seats", &self.seats)
            .field("asks", &self.asks)
            .field("watches", &self.watches)
            .field("last_question", &self.last_question)
            .field("last_reply", &self.last_reply)
            .field("last_watch", &self.last_watch)
            .field("restored", &self.restored)
            .finish()
    }
}
