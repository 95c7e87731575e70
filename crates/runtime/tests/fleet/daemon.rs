//! A daemon under load, which says each thing that was acknowledged to it, in one write, before it goes on.
//!
//! Its arguments are the journal, a seed, and the file for a trace of its steps, if there is to be one. What it says, a line
//! each:
//!
//! ```text
//! open
//! spawned LEAD WORKER         a worker was acknowledged
//! ticket LEAD KEY ID          a send was acknowledged
//! given ID                    a worker got the task of a ticket
//! asked LEAD QUESTION         a question was acknowledged
//! answered QUESTION           an answer was acknowledged
//! heard QUESTION              a worker got an answer
//! replied LEAD TICKET TEXT    a reply was acknowledged; ticket 0 is none
//! ended LEAD TICKET STATE     a lead saw that a ticket had ended, or its cancel was acknowledged
//! stopped LEAD WORKER         a stop was acknowledged
//! reading LEAD                a lead is about to say that it has read its inbox
//! read LEAD REPLY             a lead has read its inbox so far
//! failed WHY                  the journal failed, and the daemon ends
//! broken WHAT                 something is wrong
//! ```

use std::{fs::File, io::Write as _, path::Path, sync::Arc, time::Duration};

use lastword::delegation::{
    Assignment, Config, Error, Handle, Launch, LeadId, Life, Placed, Seat, Service, TicketId, TurnEnd, Work, WorkerId,
    WorkerLife,
};
use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};

pub(crate) const ARGUMENT: &str = "--as-daemon";

pub(crate) const LEADS: [LeadId; 2] = [LeadId(1), LeadId(2)];
const WORKERS_OF_A_LEAD: usize = 3;
const SENDERS_OF_A_LEAD: usize = 3;

/// Numbers that look random and are the same for the same seed.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// One of the numbers below the bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn ms(&mut self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }
}

/// One write, so that a kill leaves a whole line or none.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let line = format!("{line}\n");
    std::io::stdout().write_all(line.as_bytes()).expect("the test reads");
}

pub(crate) fn main(mut args: impl Iterator<Item = String>) {
    let journal = args.next().expect("a journal");
    let seed = args.next().and_then(|seed| seed.parse().ok()).expect("a seed");
    if let Some(trace) = args.next() {
        let trace = File::options().append(true).create(true).open(trace).expect("a trace");
        tracing_subscriber::registry().with(lastword::trace::layer(trace)).init();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let service = Service::open(Path::new(&journal), Config::new(Arc::new(Workers { seed }))).expect("it opens");
        say(format_args!("open"));
        let fleet = service.handle();
        for lead in LEADS {
            tokio::spawn(answer(fleet.clone(), lead));
            tokio::spawn(read(fleet.clone(), lead));
            tokio::spawn(end(fleet.clone(), lead, Random(seed ^ (lead.0 << 24))));
            let workers = workers(&fleet, lead).await;
            for sender in 0..SENDERS_OF_A_LEAD {
                // What the daemon before sent is sent again: the last of it may have been stored and not acknowledged.
                let keys = (0_u64..).flat_map(move |number| {
                    [seed.wrapping_sub(1), seed].map(|seed| format!("{seed}-{}-{sender}-{number}", lead.0))
                });
                let random = Random(seed ^ (lead.0 << 8) ^ sender as u64);
                tokio::spawn(send(fleet.clone(), lead, workers.clone(), keys, random));
            }
        }
        say(format_args!("failed {}", service.failed().await));
    });
}

/// What was done. Where the journal failed, the daemon is about to end.
async fn lives<T>(done: Result<T, Error>) -> T {
    match done {
        Ok(done) => done,
        Err(Error::Journal(_)) => std::future::pending().await,
        Err(error) => panic!("the service lives: {error}"),
    }
}

/// Those that live, and as many more as are missing.
async fn workers(fleet: &Handle, lead: LeadId) -> Vec<WorkerId> {
    let seen = lives(fleet.list(lead).await).await;
    let alive = seen.iter().filter(|seen| seen.life == WorkerLife::Alive).map(|seen| seen.worker);
    let mut alive: Vec<_> = alive.take(WORKERS_OF_A_LEAD).collect();
    while alive.len() < WORKERS_OF_A_LEAD {
        // Its name says whose it is.
        let worker = lives(fleet.spawn(lead, "any", &lead.0.to_string()).await).await;
        say(format_args!("spawned {} {}", lead.0, worker.0));
        alive.push(worker);
    }
    alive
}

/// Sends, sometimes twice with the same key, and sometimes waits for the end.
async fn send(
    fleet: Handle,
    lead: LeadId,
    mut workers: Vec<WorkerId>,
    keys: impl Iterator<Item = String>,
    mut random: Random,
) {
    for key in keys {
        let mut seen = None;
        while seen.is_none() || random.below(4) == 0 {
            let mut work = Work::new(workers[random.below(workers.len() as u64) as usize], format!("task {key}"));
            work.key = Some(key.as_str().into());
            work.wait = random.ms(10);
            work.replace = random.below(20) == 0;
            let sent = match fleet.send(lead, work).await {
                // The worker was stopped meanwhile.
                Err(Error::Refused(_)) => {
                    workers = self::workers(&fleet, lead).await;
                    continue;
                }
                sent => lives(sent).await,
            };
            say(format_args!("ticket {} {key} {}", lead.0, sent.ticket.0));
            if sent.state.is_terminal() {
                say(format_args!("ended {} {} {}", lead.0, sent.ticket.0, sent.state.as_str()));
            }
            if seen.is_some_and(|seen| seen != sent.ticket) {
                say(format_args!("broken key {key}: {seen:?} and {:?}", sent.ticket));
            }
            seen = Some(sent.ticket);
        }
    }
}

/// Cancels tickets, and now and then stops a worker.
async fn end(fleet: Handle, lead: LeadId, mut random: Random) {
    loop {
        tokio::time::sleep(random.ms(20)).await;
        if random.below(8) == 0 {
            let seen = lives(fleet.list(lead).await).await;
            let alive = seen.iter().find(|seen| seen.life == WorkerLife::Alive);
            let Some(worker) = alive.map(|seen| seen.worker) else { continue };
            lives(fleet.stop(lead, worker).await).await;
            say(format_args!("stopped {} {}", lead.0, worker.0));
            continue;
        }
        let seen = lives(fleet.poll_all(lead, Duration::ZERO).await).await;
        let open: Vec<_> = seen.tickets.iter().filter(|seen| !seen.state.is_terminal()).collect();
        let Some(ticket) = open.get(random.below(1 + open.len() as u64) as usize).map(|seen| seen.ticket) else {
            continue;
        };
        match fleet.cancel(lead, ticket).await {
            Ok(seen) => say(format_args!("ended {} {} {}", lead.0, ticket.0, seen.state.as_str())),
            // It has ended since it was seen.
            Err(Error::Refused(_)) => {}
            failed => drop(lives(failed).await),
        }
    }
}

/// Answers every question that is to be seen.
async fn answer(fleet: Handle, lead: LeadId) {
    loop {
        let seen = lives(fleet.poll_all(lead, Duration::from_millis(5)).await).await;
        for question in seen.tickets.iter().flat_map(|seen| &seen.questions) {
            match fleet.answer(lead, question.id, format!("answer to {}", question.id.0), Duration::ZERO).await {
                Ok(_) => say(format_args!("answered {}", question.id.0)),
                // It has ended, or was answered, since it was seen.
                Err(Error::Refused(_)) => {}
                failed => drop(lives(failed).await),
            }
        }
        tokio::task::yield_now().await;
    }
}

/// The second lead reads its inbox.
async fn read(fleet: Handle, lead: LeadId) {
    if lead != LEADS[1] {
        return;
    }
    let mut through = None;
    loop {
        if through.is_some() {
            say(format_args!("reading {}", lead.0));
        }
        let letters = lives(fleet.inbox(lead, through).await).await;
        if let Some(through) = through {
            say(format_args!("read {} {}", lead.0, through.0));
        }
        through = letters.first().map(|letter| letter.id).or(through);
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

struct Workers {
    seed: u64,
}

impl Launch for Workers {
    fn kinds(&self) -> Vec<String> {
        vec!["any".to_owned()]
    }

    fn launch(&self, mut seat: Seat) -> Life {
        let seed = self.seed;
        Box::pin(async move {
            let mut random = Random(seed ^ (seat.worker().0 << 16));
            let profile = lives(seat.profile()).await;
            let lead = profile.name.parse().expect("the number of its lead");
            let fleet = seat.handle();
            let mut number = 0;
            while let Some(assignment) = seat.next().await {
                number += 1;
                let name = format!("{seed}-{}-{number}", seat.worker().0);
                work(&fleet, &seat, lead, &assignment, &name, &mut random).await;
            }
            "done".to_owned()
        })
    }
}

/// A turn: asks or not, replies once, twice, or not, and sometimes to nobody.
async fn work(fleet: &Handle, seat: &Seat, lead: u64, assignment: &Assignment, name: &str, random: &mut Random) {
    let (worker, ticket) = (seat.worker(), assignment.ticket);
    match &assignment.question {
        None => {
            say(format_args!("given {}", ticket.0));
            if !assignment.text.starts_with("task ") {
                say(format_args!("broken task of {ticket:?}: {}", assignment.text));
            }
        }
        Some(asked) => {
            say(format_args!("heard {}", asked.id.0));
            if assignment.text != format!("answer to {}", asked.id.0) {
                say(format_args!("broken answer of {:?}: {}", asked.id, assignment.text));
            }
        }
    }
    for _ in 0..random.below(3) {
        match fleet.ask(worker, ticket, format!("question of {name}"), Vec::new(), random.ms(15)).await {
            Ok(heard) => {
                say(format_args!("asked {lead} {}", heard.question.0));
                if let Some(answer) = heard.answer {
                    say(format_args!("heard {}", heard.question.0));
                    if answer != format!("answer to {}", heard.question.0) {
                        say(format_args!("broken answer of {:?}: {answer}", heard.question));
                    }
                }
            }
            // It was cancelled meanwhile.
            Err(Error::Refused(_)) => {}
            failed => drop(lives(failed).await),
        }
    }
    for reply in 0..random.below(3) {
        replies(fleet, worker, lead, Some(ticket), &format!("reply-{name}-{reply}")).await;
    }
    if assignment.cancelled.is_cancelled() || random.below(3) == 0 {
        // Where it has replied, its turn is open and its ticket is not: this is for the inbox.
        replies(fleet, worker, lead, None, &format!("letter-{name}")).await;
    }
    seat.ended(ticket, TurnEnd::Ended, format!("last message of {name}"));
}

async fn replies(fleet: &Handle, worker: WorkerId, lead: u64, ticket: Option<TicketId>, text: &str) {
    match fleet.reply(worker, ticket, text).await {
        Ok(placed) => {
            if (placed == Placed::Inbox) != ticket.is_none() {
                say(format_args!("broken place of {text}: {placed:?}"));
            }
            say(format_args!("replied {lead} {} {text}", ticket.map_or(0, |ticket| ticket.0)));
        }
        // It is at an open ticket, and says no ticket.
        Err(Error::Refused(_)) => {}
        failed => drop(lives(failed).await),
    }
}
