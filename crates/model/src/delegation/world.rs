//! A state of the model: the machine itself, the store behind it, and what has happened.

use std::collections::{BTreeMap, BTreeSet};

use lastword_core::delegation::{
    Asked, Delegation, Effect, Ending, LeadId, Life, Limits, Progress, Prompt, QuestionId, Receipt, Record, Refused,
    ReplyId, Step, Tables, Ticket, TicketId, WorkerId,
};

use crate::world::Move;

/// What a ticket has met so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fate {
    /// The id under which it was taken in first.
    pub id: Option<TicketId>,
    /// A repetition of its send gave another ticket.
    pub is_double: bool,
    /// The lead was told that it stands.
    pub acknowledged: bool,
    /// The answers of which it was told.
    pub answers_acknowledged: BTreeSet<QuestionId>,
    /// The replies of which the worker was told.
    pub replies_acknowledged: BTreeSet<ReplyId>,
    /// The reply that was accepted while it was open.
    pub reply: Option<ReplyId>,
    /// How it ended first.
    pub ended: Option<Progress>,
    /// It was sent again, with its key.
    pub again: bool,
    /// It was polled.
    pub polled: bool,
    /// It as its lead was shown it last, after it had ended.
    pub shown: Option<Ticket>,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// The machine itself.
    pub core: Delegation,
    /// What the store really has: the entries that the machine asked it for, as far as they are stored.
    pub store: Tables,
    /// The tickets that it has forgotten.
    pub forgotten: BTreeSet<TicketId>,
    /// What each ticket has met.
    pub fates: Vec<Fate>,
    /// How often the answer to a question was given to the worker, where it was.
    pub given: BTreeMap<QuestionId, u8>,
    /// The replies that were accepted and are not lost with a crash, each with who said it, and to which ticket.
    pub replies: BTreeMap<ReplyId, (WorkerId, Option<TicketId>)>,
    /// The workers of which their lead was told.
    pub workers_acknowledged: BTreeSet<WorkerId>,
    /// The replies to no ticket of which their workers were told.
    pub strays_acknowledged: BTreeSet<ReplyId>,
    /// What must never happen and that no later state would show.
    pub breaches: BTreeSet<&'static str>,
    /// How often the daemon has died.
    pub crashes: usize,
}

/// What must be known of the machine as it was before a step.
struct Before {
    /// What the store writes.
    written: Vec<Record>,
    /// A reply came while its ticket, or the one that its worker was at, was open.
    was_open: bool,
    /// The open tickets of a worker whose process ended in a turn whose ticket was over.
    waiting: Vec<TicketId>,
}

impl Before {
    fn of(core: &Delegation, step: &Step) -> Self {
        let tickets = &core.decided().tickets;
        let written = match step {
            Step::Persisted { entries } => core.unstored().take(*entries).flatten().cloned().collect(),
            _ => Vec::new(),
        };
        let replied_to = match step {
            Step::Replied { ticket: Some(ticket), .. } => Some(*ticket),
            Step::Replied { worker, ticket: None } => core.turn(*worker),
            _ => None,
        };
        let was_open = replied_to.and_then(|ticket| tickets.get(&ticket)).is_some_and(Ticket::is_open);
        let worker_at_nothing = match step {
            Step::WorkerDied { worker } => {
                let is_alive = core.decided().workers.get(worker).is_some_and(|row| row.life == Life::Alive);
                let turn = core.turn(*worker).and_then(|turn| tickets.get(&turn));
                (is_alive && turn.is_some_and(|row| !row.is_open())).then_some(*worker)
            }
            _ => None,
        };
        let open = tickets.iter().filter(|(_, row)| Some(row.worker) == worker_at_nothing && row.is_open());
        Self { written, was_open, waiting: open.map(|(ticket, _)| *ticket).collect() }
    }
}

impl World {
    /// A world in which the workers live and nothing else has happened.
    pub(super) fn new(limits: Limits, tickets: usize, workers: usize) -> Self {
        let mut world = Self {
            core: Delegation::new(limits),
            store: Tables::default(),
            forgotten: BTreeSet::new(),
            fates: vec![Fate::default(); tickets],
            given: BTreeMap::new(),
            replies: BTreeMap::new(),
            workers_acknowledged: BTreeSet::new(),
            strays_acknowledged: BTreeSet::new(),
            breaches: BTreeSet::new(),
            crashes: 0,
        };
        for _ in 0..workers {
            for step in [Step::Spawned { lead: LeadId(1) }, Step::Persisted { entries: 1 }] {
                world.take(&Move { step, message: 0 }).expect("a new machine takes workers");
            }
        }
        world
    }

    /// A world that begins with what is stored. Its first step must be [`Step::Restarted`]. Whatever is stored counts as
    /// acknowledged, and each answer as given: who was told of it nobody knows any more, and it must be there all the same.
    pub(crate) fn restored(limits: Limits, tables: Tables) -> Self {
        let mut world = Self::new(limits, 0, 0);
        world.workers_acknowledged = tables.workers.keys().copied().collect();
        for (id, row) in &tables.tickets {
            let replies: BTreeSet<ReplyId> = row.replies().collect();
            let answered = row.questions.iter().filter(|(_, asked)| **asked == Asked::Answered);
            let answers: BTreeSet<QuestionId> = answered.map(|(question, _)| *question).collect();
            world.replies.extend(replies.iter().map(|reply| (*reply, (row.worker, Some(*id)))));
            world.given.extend(answers.iter().map(|question| (*question, 1)));
            world.fates.push(Fate {
                id: Some(*id),
                acknowledged: true,
                answers_acknowledged: answers,
                replies_acknowledged: replies,
                reply: row.reply(),
                ended: (!row.is_open()).then_some(row.progress),
                shown: tables.seen.contains(id).then(|| row.clone()),
                ..Fate::default()
            });
        }
        let strays = tables.inboxes.values().flat_map(|inbox| &inbox.replies);
        for (reply, worker) in strays {
            world.replies.insert(*reply, (*worker, None));
            world.strays_acknowledged.insert(*reply);
        }
        world.core = Delegation::restore(limits, tables.clone());
        world.store = tables;
        world
    }

    /// Lets the machine take the step, and remembers what that means.
    ///
    /// # Errors
    ///
    /// [`Refused`] where the machine refuses the step; nothing has changed then.
    pub fn take(&mut self, action: &Move<Step>) -> Result<Vec<Effect>, Refused> {
        if action.step == Step::Restarted {
            let mut restored = Delegation::restore(*self.core.limits(), self.store.clone());
            let effects = restored.apply(Step::Restarted)?;
            self.crash(restored, &effects);
            return Ok(effects);
        }
        let before = Before::of(&self.core, &action.step);
        let effects = self.core.apply(action.step.clone())?;
        self.remember(action, &before, &effects);
        Ok(effects)
    }

    /// Remembers what a step means that another machine has taken, which `after` is now: that of a running service.
    pub fn follow(&mut self, action: &Move<Step>, effects: &[Effect], after: Delegation) {
        if action.step == Step::Restarted {
            return self.crash(after, effects);
        }
        let before = Before::of(&self.core, &action.step);
        self.core = after;
        self.remember(action, &before, effects);
    }

    fn remember(&mut self, action: &Move<Step>, before: &Before, effects: &[Effect]) {
        put(&mut self.store, &mut self.forgotten, &before.written);
        self.observe(action, effects, before.was_open);
        let tickets = &self.core.decided().tickets;
        if before.waiting.iter().any(|ticket| !tickets.get(ticket).is_some_and(Ticket::is_open)) {
            self.breaches.insert("waiting");
        }
    }

    fn observe(&mut self, action: &Move<Step>, effects: &[Effect], was_open: bool) {
        for effect in effects {
            match effect {
                Effect::Accept(receipt) => self.accepted(action, *receipt, was_open),
                Effect::Acknowledge(receipt) => self.acknowledged(*receipt),
                Effect::Deliver { prompt: Prompt::Answer(question), .. } => self.gives(*question),
                Effect::Persist(records) => {
                    for record in records {
                        match record {
                            Record::Forgotten(id, row) => {
                                let shown = self.number(*id).and_then(|ticket| self.fates[ticket].shown.as_ref());
                                if shown != Some(row) {
                                    self.breaches.insert("unseen");
                                }
                            }
                            Record::WorkerForgotten(worker) => drop(self.workers_acknowledged.remove(worker)),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        match (&action.step, self.fates.get_mut(action.message)) {
            (Step::Polled { .. }, Some(fate)) => fate.polled = true,
            (Step::Seen { ticket, .. }, Some(fate)) => fate.shown = self.core.stored().tickets.get(ticket).cloned(),
            (Step::AnswerTaken { question }, _) => self.gives(*question),
            _ => {}
        }
        for fate in &mut self.fates {
            let row = fate.id.and_then(|id| self.core.decided().tickets.get(&id));
            if let (None, Some(row)) = (fate.ended, row.filter(|row| !row.is_open())) {
                fate.ended = Some(row.progress);
            }
        }
    }

    fn gives(&mut self, question: QuestionId) {
        // More than once is more than once: a mutant must not make the graph grow without end.
        let times = self.given.entry(question).or_default();
        *times = (*times + 1).min(2);
    }

    fn accepted(&mut self, action: &Move<Step>, receipt: Receipt, was_open: bool) {
        match (&action.step, receipt) {
            (Step::Sent { .. }, Receipt::Ticket(id)) => {
                let fate = &mut self.fates[action.message];
                match fate.id {
                    None => fate.id = Some(id),
                    Some(first) => {
                        fate.again = true;
                        fate.is_double |= first != id;
                    }
                }
            }
            (Step::Replied { worker, ticket }, Receipt::Reply(reply)) => {
                self.replies.insert(reply, (*worker, *ticket));
                match ticket {
                    Some(_) if was_open => {
                        self.fates[action.message].reply.get_or_insert(reply);
                    }
                    None if was_open => {
                        self.breaches.insert("stray");
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn acknowledged(&mut self, receipt: Receipt) {
        match receipt {
            Receipt::Worker(worker) => drop(self.workers_acknowledged.insert(worker)),
            Receipt::Ticket(id) => {
                if let Some(ticket) = self.number(id) {
                    self.fates[ticket].acknowledged = true;
                }
            }
            Receipt::Answer(question) => {
                if let Some(ticket) = self.core.ticket_of(question).and_then(|id| self.number(id)) {
                    self.fates[ticket].answers_acknowledged.insert(question);
                }
            }
            Receipt::Reply(reply) => match self.replies.get(&reply) {
                Some((_, Some(id))) => {
                    if let Some(ticket) = self.number(*id) {
                        self.fates[ticket].replies_acknowledged.insert(reply);
                    }
                }
                Some((_, None)) => {
                    self.strays_acknowledged.insert(reply);
                }
                None => {}
            },
            _ => {}
        }
    }

    /// The daemon has died and begun again with what the store has: what a machine that has just restarted says is stored.
    /// Whatever nobody was told of is lost.
    fn crash(&mut self, restarted: Delegation, effects: &[Effect]) {
        self.crashes += 1;
        self.core = restarted;
        self.store.clone_from(self.core.stored());
        let store = &self.store;
        let places = Places::in_(store);
        let is_told = |reply: &ReplyId| self.fates.iter().any(|fate| fate.replies_acknowledged.contains(reply));
        self.replies
            .retain(|reply, _| places.of(*reply) > 0 || is_told(reply) || self.strays_acknowledged.contains(reply));
        self.given.retain(|question, _| store.tickets.values().any(|row| row.questions.contains_key(question)));
        for fate in &mut self.fates {
            let row = fate.id.and_then(|id| store.tickets.get(&id));
            let is_forgotten = fate.id.is_some_and(|id| self.forgotten.contains(&id));
            if row.is_none() && !fate.acknowledged && !is_forgotten {
                fate.id = None;
            }
            fate.shown = fate.shown.take().filter(|_| fate.id.is_some_and(|id| store.seen.contains(&id)));
            fate.reply = fate.reply.filter(|reply| self.replies.contains_key(reply));
            fate.ended = row.filter(|row| !row.is_open()).map(|row| row.progress);
        }
        let restarted = Move { step: Step::Restarted, message: 0 };
        self.observe(&restarted, effects, false);
    }

    /// The number of a ticket, from 0.
    #[must_use]
    pub fn number(&self, id: TicketId) -> Option<usize> {
        self.fates.iter().position(|fate| fate.id == Some(id))
    }

    /// The row of a ticket as it was decided.
    #[must_use]
    pub fn row(&self, ticket: usize) -> Option<&Ticket> {
        self.core.decided().tickets.get(&self.fates[ticket].id?)
    }

    /// Tells the tickets that made room for newer ones, as it was decided.
    pub(super) fn forgets(&self) -> impl Fn(TicketId) -> bool {
        let to_be = self.core.unstored().flatten().filter_map(|record| match record {
            Record::Forgotten(ticket, _) => Some(*ticket),
            _ => None,
        });
        let to_be: BTreeSet<TicketId> = to_be.collect();
        move |ticket| self.forgotten.contains(&ticket) || to_be.contains(&ticket)
    }

    /// Whether a ticket is one of them.
    #[must_use]
    pub fn is_forgotten(&self, ticket: usize) -> bool {
        self.fates[ticket].id.is_some_and(self.forgets())
    }

    /// The row of a ticket in the store.
    #[must_use]
    pub fn stored(&self, ticket: usize) -> Option<&Ticket> {
        self.store.tickets.get(&self.fates[ticket].id?)
    }

    pub(super) fn asked(&self, ticket: usize) -> usize {
        self.row(ticket).map_or(0, |row| row.questions.len())
    }

    /// How many replies to a ticket were accepted.
    pub(super) fn said(&self, ticket: usize) -> usize {
        let id = self.fates[ticket].id;
        self.replies.values().filter(|(_, named)| named.is_some() && *named == id).count()
    }

    pub(super) fn inboxed(&self, worker: WorkerId) -> usize {
        inboxed(self.core.decided(), worker)
    }

    pub(super) fn strays_acknowledged(&self, worker: WorkerId) -> usize {
        let is_of = |reply: &&ReplyId| self.replies.get(reply).is_some_and(|(by, _)| *by == worker);
        self.strays_acknowledged.iter().filter(is_of).count()
    }

    pub(super) fn is_stopping(&self, worker: WorkerId) -> bool {
        self.core.decided().workers.get(&worker).is_some_and(|row| row.life == Life::Stopping)
    }
}

/// Writes records.
pub(super) fn put(tables: &mut Tables, forgotten: &mut BTreeSet<TicketId>, records: &[Record]) {
    for record in records {
        if let Record::Forgotten(ticket, _) = record {
            forgotten.insert(*ticket);
        }
        tables.put(record.clone());
    }
}

/// Where replies are: each as often as it has a place, in order.
pub(super) struct Places(Vec<ReplyId>);

impl Places {
    pub(super) fn in_(tables: &Tables) -> Self {
        let of_tickets = tables.tickets.values().flat_map(Ticket::replies);
        let of_inboxes = tables.inboxes.values().flat_map(|inbox| inbox.replies.keys().copied());
        let mut places: Vec<ReplyId> = of_tickets.chain(of_inboxes).collect();
        places.sort_unstable();
        Self(places)
    }

    /// In how many places a reply is.
    pub(super) fn of(&self, reply: ReplyId) -> usize {
        let first = self.0.partition_point(|placed| *placed < reply);
        self.0[first..].iter().take_while(|placed| **placed == reply).count()
    }
}

pub(super) fn inboxed(tables: &Tables, worker: WorkerId) -> usize {
    tables.inboxes.values().flat_map(|inbox| inbox.replies.values()).filter(|by| **by == worker).count()
}

/// How far a ticket has come, in the words of the specification.
pub(super) fn word(row: &Ticket) -> &'static str {
    match row.progress {
        Progress::Queued => "queued",
        Progress::Working => "working",
        Progress::Ended(Ending::Replied(_)) => "replied",
        Progress::Ended(Ending::LastMessage) => "message",
        Progress::Ended(Ending::Stopped | Ending::Cancelled | Ending::Replaced) => "cancelled",
        Progress::Ended(_) => "failed",
    }
}

pub(super) fn life(worker: &lastword_core::delegation::Worker) -> &'static str {
    match worker.life {
        Life::Alive => "alive",
        Life::Stopping => "stopping",
        Life::Gone => "gone",
    }
}
