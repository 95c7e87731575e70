//! The model of the domain delegation: leads and workers around the machine itself, a store that may lag behind, and a
//! daemon that may die at any moment.
//!
//! Left out, as in the specification: spawning (the workers live from the start; tests of the core have it), reading an
//! inbox, several leads, the bounds but for that of tickets, and what is said.

use std::collections::BTreeSet;

use lastword_core::delegation::{Asked, Call, LeadId, Limits, RequestKey, Step, Tables, TicketId, TurnEnd, WorkerId};

use crate::{
    configuration::{Configuration, ConfigurationError},
    model::{Model, PromiseOf},
    promises::Check,
    world::Move,
};

mod promises;
mod world;

pub use promises::{PROMISES, View};
pub use world::{Fate, World};

/// The only lead.
const LEAD: LeadId = LeadId(1);

/// The model of one configuration.
#[derive(Debug, Clone)]
pub struct DelegationModel {
    /// How many tickets are sent, in the order of their numbers.
    tickets: usize,
    /// How many workers live.
    workers: usize,
    of_worker_two: BTreeSet<usize>,
    watched: BTreeSet<usize>,
    replaces: BTreeSet<usize>,
    keyed: BTreeSet<usize>,
    asks: BTreeSet<usize>,
    asks_max: usize,
    answers_watch: bool,
    replies: BTreeSet<usize>,
    replies_max: usize,
    strays: BTreeSet<usize>,
    polls: BTreeSet<usize>,
    sees: BTreeSet<usize>,
    cancels: BTreeSet<usize>,
    fails: BTreeSet<usize>,
    stops: BTreeSet<usize>,
    deaths: BTreeSet<usize>,
    crashes: usize,
    limits: Limits,
}

impl DelegationModel {
    /// Reads a configuration. `limits` is where a mutant forces a guard.
    ///
    /// # Errors
    ///
    /// [`ConfigurationError::Constant`] where a constant is missing or of the wrong kind.
    pub fn new(configuration: &Configuration, limits: Limits) -> Result<Self, ConfigurationError> {
        let set = |name| configuration.set(name);
        let sends = set("Sends")?;
        if !sends.iter().copied().eq(1..=sends.len()) {
            return Err(ConfigurationError::Constant {
                configuration: configuration.id(),
                name: "Sends".to_owned(),
                expected: "a set of numbers from 1 without a gap",
            });
        }
        let of_worker_two = set("OfWorkerTwo")?;
        Ok(Self {
            tickets: sends.len(),
            workers: if of_worker_two.is_empty() { 1 } else { 2 },
            of_worker_two,
            watched: set("Watched")?,
            replaces: set("Replaces")?,
            keyed: set("Keyed")?,
            asks: set("Asks")?,
            asks_max: configuration.number("AsksMax")?,
            answers_watch: configuration.flag("AnswersWatch")?,
            replies: set("Replies")?,
            replies_max: configuration.number("RepliesMax")?,
            strays: set("Strays")?,
            polls: set("Polls")?,
            sees: set("Sees")?,
            cancels: set("Cancels")?,
            fails: set("Fails")?,
            stops: set("Stops")?,
            deaths: set("Deaths")?,
            crashes: configuration.number("Crashes")?,
            limits: with_room(limits, configuration.number("TicketsMax")?),
        })
    }

    /// The same leads and workers in front of a machine with other limits, for example with a guard forced. There is room for
    /// as many tickets.
    #[must_use]
    pub fn with_limits(&self, limits: Limits) -> Self {
        Self { limits: with_room(limits, self.limits.tickets_max), ..self.clone() }
    }

    /// How many workers live from the start.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The worker of a ticket, both from 0.
    #[must_use]
    pub fn worker_of(&self, ticket: usize) -> usize {
        usize::from(self.of_worker_two.contains(&(ticket + 1)))
    }

    fn sending(&self, ticket: usize) -> Step {
        let number = ticket + 1;
        Step::Sent {
            lead: LEAD,
            worker: worker_id(self.worker_of(ticket)),
            key: self.keyed.contains(&number).then(|| RequestKey::from(number.to_string().as_str())),
            replace: self.replaces.contains(&number),
            watch: self.watched.contains(&number),
        }
    }

    /// What the lead may do with a ticket, whatever the machine says to it.
    fn of_lead(&self, world: &World, ticket: usize, steps: &mut Vec<Step>) {
        let number = ticket + 1;
        let fate = &world.fates[ticket];
        let is_kept = world.row(ticket).is_some();
        let is_sent = |ticket| world.row(ticket).is_some() || world.is_forgotten(ticket);
        if (!is_sent(ticket) && (0..ticket).all(is_sent)) || (is_kept && self.keyed.contains(&number) && !fate.again) {
            steps.push(self.sending(ticket));
        }
        let Some(id) = fate.id else { return };
        // A lead knows a ticket once it was told of it, and a question once it is shown.
        if fate.acknowledged && self.polls.contains(&number) && !fate.polled {
            steps.push(Step::Polled { lead: LEAD, ticket: id });
        }
        if self.sees.contains(&number) {
            steps.push(Step::Seen { lead: LEAD, ticket: id });
        }
        if fate.acknowledged && self.cancels.contains(&number) {
            steps.push(Step::Cancelled { lead: LEAD, ticket: id });
        }
        for question in world.core.ticket(id).map(|view| view.questions).unwrap_or_default() {
            steps.push(Step::Answered { lead: LEAD, question, watch: self.answers_watch });
        }
        if let Some((watch, _)) = world.core.watches().find(|(_, watched)| *watched == id) {
            steps.push(Step::WindowClosed { watch });
        }
    }

    /// What workers may say to a ticket, each of them to each.
    fn of_workers(&self, world: &World, ticket: usize, steps: &mut Vec<Step>) {
        let number = ticket + 1;
        let Some(id) = world.fates[ticket].id else { return };
        for worker in (0..self.workers).map(worker_id) {
            if self.asks.contains(&number) && world.asked(ticket) < self.asks_max {
                steps.push(Step::Asked { worker, ticket: id });
            }
            if self.replies.contains(&number) && world.said(ticket) < self.replies_max {
                steps.push(Step::Replied { worker, ticket: Some(id) });
            }
        }
        for question in world.row(ticket).into_iter().flat_map(|row| row.questions.keys().copied()) {
            match world.core.call(question) {
                Some(Call::Handed) => {
                    steps.extend([Step::AnswerTaken { question }, Step::AskWindowClosed { question }]);
                }
                Some(Call::Waiting) => steps.push(Step::AskWindowClosed { question }),
                Some(Call::Left) | None => {}
            }
        }
    }

    /// Of what a worker's process or the clock may bring, what this configuration has.
    fn owed(&self, world: &World) -> Vec<Move<Step>> {
        let ticket = |id: TicketId| world.number(id);
        let step_of = |step: Step| {
            let message = match &step {
                Step::Delivered { ticket: id } => ticket(*id)?,
                Step::TurnEnded { ticket: id, end } => {
                    let number = ticket(*id)?;
                    if *end == TurnEnd::Failed && !self.fails.contains(&(number + 1)) {
                        return None;
                    }
                    number
                }
                Step::WorkerDied { worker } => {
                    let number = number_of(*worker);
                    if !self.deaths.contains(&(number + 1)) && !world.is_stopping(*worker) {
                        return None;
                    }
                    number
                }
                Step::Persisted { .. } => 0,
                _ => return None,
            };
            Some(Move { step, message })
        };
        world.core.may_come().into_iter().filter_map(step_of).collect()
    }
}

impl Model for DelegationModel {
    type Step = Step;
    type World = World;
    type Always = fn(View<'_>) -> bool;
    type Eventually = fn(View<'_>, usize) -> bool;

    fn first(&self) -> World {
        World::new(self.limits, self.tickets, self.workers)
    }

    fn moves(&self, world: &World) -> Vec<Move<Step>> {
        let mut moves = self.owed(world);
        let mut said: Vec<(usize, Step)> = Vec::new();
        for ticket in 0..self.tickets {
            let mut steps = Vec::new();
            self.of_lead(world, ticket, &mut steps);
            self.of_workers(world, ticket, &mut steps);
            said.extend(steps.into_iter().map(|step| (ticket, step)));
        }
        for worker in 0..self.workers {
            let id = worker_id(worker);
            if self.strays.contains(&(worker + 1)) && world.inboxed(id) == 0 {
                said.push((worker, Step::Replied { worker: id, ticket: None }));
            }
            if self.stops.contains(&(worker + 1)) {
                said.push((worker, Step::Stopped { lead: LEAD, worker: id }));
            }
        }
        if world.crashes < self.crashes {
            said.push((0, Step::Restarted));
        }
        // Leads and workers may say anything at any time; what the machine refuses changes nothing.
        let is_taken = |step: &Step| *step == Step::Restarted || world.core.clone().apply(step.clone()).is_ok();
        moves.extend(said.into_iter().filter(|(_, step)| is_taken(step)).map(|(message, step)| Move { step, message }));
        moves
    }

    fn take(&self, world: &mut World, action: &Move<Step>) -> Result<String, String> {
        world.take(action).map(|effects| format!("{effects:?}")).map_err(|refused| refused.to_string())
    }

    fn name(step: &Step) -> &'static str {
        step.name()
    }

    /// The store stores, prompts are given, turns end, and a lead answers what it is asked. Nobody must do anything else.
    fn is_fair(&self, step: &Step, _: usize) -> bool {
        matches!(step, Step::Persisted { .. } | Step::Delivered { .. } | Step::TurnEnded { .. } | Step::Answered { .. })
    }

    fn count(&self) -> usize {
        self.tickets
    }

    fn holds(&self, always: Self::Always, world: &World) -> bool {
        always(View { world })
    }

    fn holds_for(&self, eventually: Self::Eventually, world: &World, message: usize) -> bool {
        eventually(View { world }, message)
    }

    fn promises(&self) -> &'static [PromiseOf<Self>] {
        PROMISES
    }

    fn project(&self, world: &World) -> String {
        let tickets = |text: &dyn Fn(usize) -> String| tuple((0..self.tickets).map(text));
        let workers = |text: &dyn Fn(usize) -> String| tuple((0..self.workers).map(text));
        let counted = |counts: &dyn Fn(&Fate) -> usize| tickets(&|ticket| counts(&world.fates[ticket]).to_string());
        let flag = |is: bool| if is { "TRUE" } else { "FALSE" }.to_owned();
        let turn = |worker: usize| {
            let turn = world.core.turn(worker_id(worker)).and_then(|id| world.number(id));
            turn.map_or(0, |ticket| ticket + 1).to_string()
        };
        let ask = |ticket: usize| {
            let Some(row) = world.row(ticket) else { return "<<>>".to_owned() };
            tuple(row.questions.keys().map(|question| {
                let word = match (world.given.get(question), world.core.call(*question)) {
                    (Some(_), _) => "given",
                    (None, Some(Call::Waiting)) => "waiting",
                    (None, Some(Call::Handed)) => "handed",
                    (None, Some(Call::Left)) => "closed",
                    (None, None) => "void",
                };
                format!("\"{word}\"")
            }))
        };
        let watching = |ticket: usize| {
            let id = world.fates[ticket].id;
            world.core.watches().filter(|(_, watched)| Some(*watched) == id).count().to_string()
        };
        format!(
            "/\\acked=<<{},{},{},{}>>/\\again={}/\\ask={}/\\breach={{{}}}/\\crashes={}/\\log={}/\\polled={}/\\stage={}/\\turn={}/\\watch={}",
            tickets(&|ticket| flag(world.fates[ticket].acknowledged)),
            counted(&|fate| fate.answers_acknowledged.len()),
            counted(&|fate| fate.replies_acknowledged.len()),
            workers(&|worker| world.strays_acknowledged(worker_id(worker)).to_string()),
            tickets(&|ticket| flag(world.fates[ticket].again)),
            tickets(&ask),
            world.breaches.iter().map(|breach| format!("\"{breach}\"")).collect::<Vec<_>>().join(","),
            world.crashes,
            self.project_log(world),
            tickets(&|ticket| flag(world.fates[ticket].polled)),
            workers(&|worker| format!("\"{}\"", world.core.stage(worker_id(worker)).unwrap_or("none"))),
            workers(&turn),
            tickets(&watching),
        )
    }

    fn digest(world: &World) -> String {
        world.core.digest()
    }
}

impl DelegationModel {
    /// What is stored, and then what would be after each entry that is not: the last one is what was decided.
    fn project_log(&self, world: &World) -> String {
        let mut tables = world.core.stored().clone();
        let mut forgotten = world.forgotten.clone();
        let mut log = vec![self.project_tables(world, &tables, &forgotten)];
        for entry in world.core.unstored() {
            world::put(&mut tables, &mut forgotten, entry);
            log.push(self.project_tables(world, &tables, &forgotten));
        }
        tuple(log)
    }

    fn project_tables(&self, world: &World, tables: &Tables, forgotten: &BTreeSet<TicketId>) -> String {
        let row = |ticket: usize| tables.tickets.get(&world.fates[ticket].id?);
        let is_of =
            |set: &BTreeSet<TicketId>, ticket: usize| world.fates[ticket].id.is_some_and(|id| set.contains(&id));
        let tickets = |text: &dyn Fn(usize) -> String| tuple((0..self.tickets).map(text));
        let word = |ticket: usize| match row(ticket) {
            Some(row) => format!("\"{}\"", world::word(row)),
            None if is_of(forgotten, ticket) => "\"forgotten\"".to_owned(),
            None => "\"none\"".to_owned(),
        };
        let seen = |ticket: usize| if is_of(&tables.seen, ticket) { "TRUE" } else { "FALSE" }.to_owned();
        let questions = |ticket: usize| {
            tuple(row(ticket).into_iter().flat_map(|row| row.questions.values()).map(|asked| match asked {
                Asked::Open => "\"open\"".to_owned(),
                Asked::Answered => "\"answered\"".to_owned(),
            }))
        };
        let late = |ticket: usize| row(ticket).map_or(0, |row| row.late_replies.len()).to_string();
        // A reply that missed its ticket would be in none of these places.
        let none = |_: usize| "0".to_owned();
        let said = |ticket: usize| {
            row(ticket).map_or(0, |row| usize::from(row.reply().is_some()) + row.late_replies.len()).to_string()
        };
        let workers =
            |text: &dyn Fn(WorkerId) -> String| tuple((0..self.workers).map(|worker| text(worker_id(worker))));
        format!(
            "<<{},{},{},{},{},{},{},{}>>",
            tickets(&word),
            tickets(&questions),
            tickets(&late),
            tickets(&none),
            tickets(&said),
            workers(&|worker| world::inboxed(tables, worker).to_string()),
            workers(&|worker| format!("\"{}\"", tables.workers.get(&worker).map_or("none", world::life))),
            tickets(&seen),
        )
    }
}

fn with_room(mut limits: Limits, tickets_max: usize) -> Limits {
    limits.tickets_max = tickets_max;
    limits
}

fn tuple(values: impl IntoIterator<Item = String>) -> String {
    format!("<<{}>>", values.into_iter().collect::<Vec<_>>().join(","))
}

fn worker_id(worker: usize) -> WorkerId {
    WorkerId(worker as u64 + 1)
}

fn number_of(worker: WorkerId) -> usize {
    usize::try_from(worker.0).expect("workers are few") - 1
}

/// The second, independent explorer.
impl stateright::Model for DelegationModel {
    type State = World;
    type Action = Move<Step>;

    fn init_states(&self) -> Vec<World> {
        vec![self.first()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Move<Step>>) {
        actions.extend(self.moves(world));
    }

    fn next_state(&self, world: &World, action: Move<Step>) -> Option<World> {
        let mut next = world.clone();
        next.take(&action).ok()?;
        Some(next)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        vec![stateright::Property::always("every promise", |model: &Self, world| {
            model.promises().iter().all(|promise| match promise.check {
                Check::Always(always) => model.holds(always, world),
                Check::Eventually { .. } => true,
            })
        })]
    }
}
