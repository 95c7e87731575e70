//! A daemon is killed again and again, at any point, under load. Nothing that it acknowledged may be missing, and nothing
//! may be there, or be given, twice.
//!
//! A kill takes what the process has and leaves what the system has, written to the disk or not: that each commit waits for the
//! disk, which matters where the power fails, cannot be seen here.
//!
//! `LASTWORD_CRASHES` says how many times; 40 unless it does.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use lastword::delegation::{Config, Error, LeadId, QuestionId, Seen, Service, State, TicketId, WorkerId, WorkerLife};
use rusqlite::{Connection, OpenFlags, Row};

use crate::{
    daemon::{self, LEADS, Random},
    trials, workers,
};

trials! {
    nothing_is_acknowledged_that_a_full_disk_has_no_room_for,
    nothing_acknowledged_is_missing_and_nothing_is_given_twice_when_a_daemon_is_killed_at_any_point,
}

const CRASHES: u64 = 40;

/// After as many crashes begins a new journal, so that what a check reads stays small.
const CRASHES_OF_A_JOURNAL: u64 = 10;

/// A daemon lives for less than this after it has opened its journal: a few tens of commits.
const LIFE_MS_MAX: u64 = 120;

/// One in so many is killed while it starts.
const EARLY: u64 = 4;

/// It has opened its journal by then, or not.
const START_MS_MAX: u64 = 40;

/// A daemon that does not open its journal in this time is at fault, and not only slow.
const OPEN_MAX: Duration = Duration::from_secs(60);

fn nothing_acknowledged_is_missing_and_nothing_is_given_twice_when_a_daemon_is_killed_at_any_point() {
    let crashes = env::var("LASTWORD_CRASHES").map_or(CRASHES, |crashes| crashes.parse().expect("a number of crashes"));
    // Another run, other points: what fails says its seed.
    let seed =
        env::var("LASTWORD_SEED").map_or_else(|_| u64::from(std::process::id()), |seed| seed.parse().expect("a seed"));
    let mut random = Random(seed);
    let mut lines_of = BTreeMap::new();
    let mut repeated = 0;
    for first in (0..crashes).step_by(CRASHES_OF_A_JOURNAL as usize) {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = folder.path().join("fleet.journal");
        let mut said = Said::default();
        for crash in first..crashes.min(first + CRASHES_OF_A_JOURNAL) {
            let number = (seed << 16) + crash;
            let lines = if random.below(EARLY) == 0 {
                Running::start(&journal, number, None).killed_after(Duration::from_millis(random.below(START_MS_MAX)))
            } else {
                killed_after(Duration::from_millis(random.below(LIFE_MS_MAX)), &journal, number, None)
            };
            repeated += said.repeated(&lines);
            for line in lines {
                *lines_of.entry(line.split(' ').next().unwrap_or_default().to_owned()).or_insert(0_u64) += 1;
                said.take(&line).unwrap_or_else(|wrong| panic!("LASTWORD_SEED={seed}, crash {crash}: {wrong}: {line}"));
            }
            if let Err(missing) = check(&journal, &said) {
                panic!("LASTWORD_SEED={seed}, crash {crash}: {missing}");
            }
        }
    }
    eprintln!("{crashes} crashes, {repeated} sends of the daemon before repeated, and what was said: {lines_of:?}");
    assert!(repeated > 0, "nothing was repeated after a crash");
    let kinds =
        ["answered", "asked", "ended", "given", "heard", "read", "reading", "replied", "spawned", "stopped", "ticket"];
    assert!(lines_of.keys().eq(kinds), "the daemons did not do all that they should have done");
    assert!(lines_of["ticket"] > crashes, "the daemons did next to nothing");
}

/// The disk is full for a process that may write no larger files.
fn nothing_is_acknowledged_that_a_full_disk_has_no_room_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = folder.path().join("fleet.journal");
    let program = env::current_exe().expect("this program");
    let mut said = Said::default();
    let daemon = Command::new("sh")
        // In blocks of 512 bytes: the room for some hundred commits.
        .args(["-c", "trap '' XFSZ; ulimit -f 2000; exec \"$0\" \"$@\""])
        .arg(program)
        .args([daemon::ARGUMENT.as_ref(), journal.as_os_str(), "1".as_ref()])
        .output()
        .expect("a daemon");
    let output = String::from_utf8_lossy(&daemon.stdout);
    let mut lines: Vec<&str> = output.lines().collect();
    assert!(daemon.status.success(), "{daemon:?}");
    let place = lines.iter().position(|line| line.starts_with("failed ")).expect("it says that it failed");
    let failed = lines.remove(place);
    assert!(failed.contains(&journal.display().to_string()) && failed.contains("see to the disk"), "{failed}");
    assert!(lines.len() > 50, "the disk was full before it began: {lines:?}");
    for line in &lines[1..] {
        said.take(line).unwrap_or_else(|wrong| panic!("{wrong}: {line}"));
    }
    check(&journal, &said).unwrap_or_else(|missing| panic!("{missing}"));
}

/// What a daemon says before it is killed, so long after it has opened its journal.
pub(crate) fn killed_after(life: Duration, journal: &Path, seed: u64, trace: Option<&Path>) -> Vec<String> {
    let daemon = Running::start(journal, seed, trace);
    let opened = daemon.lines.recv_timeout(OPEN_MAX).expect("it opens its journal");
    assert_eq!(opened, "open");
    daemon.killed_after(life)
}

/// A daemon, and what it says.
struct Running {
    process: Child,
    lines: mpsc::Receiver<String>,
    reader: thread::JoinHandle<()>,
}

impl Running {
    fn start(journal: &Path, seed: u64, trace: Option<&Path>) -> Self {
        let mut process = Command::new(env::current_exe().expect("this program"))
            .arg(daemon::ARGUMENT)
            .arg(journal)
            .arg(seed.to_string())
            .args(trace)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a daemon");
        let stdout = BufReader::new(process.stdout.take().expect("it is piped"));
        let (said, lines) = mpsc::channel();
        let reader = thread::spawn(move || stdout.lines().map_while(Result::ok).for_each(|line| drop(said.send(line))));
        Self { process, lines, reader }
    }

    fn killed_after(mut self, life: Duration) -> Vec<String> {
        // The one time that is waited for: it is the point of the crash.
        thread::sleep(life);
        self.process.kill().expect("it is killed");
        self.process.wait().expect("it is dead");
        self.reader.join().expect("its output is read");
        self.lines.iter().filter(|line| line != "open").collect()
    }
}

/// All that daemons of one journal said.
#[derive(Default)]
struct Said {
    spawned: BTreeMap<WorkerId, LeadId>,
    stopped: BTreeSet<WorkerId>,
    tickets: BTreeMap<TicketId, LeadId>,
    keys: BTreeMap<(LeadId, String), TicketId>,
    given: BTreeSet<TicketId>,
    asked: BTreeMap<QuestionId, LeadId>,
    answered: BTreeSet<QuestionId>,
    heard: BTreeSet<QuestionId>,
    /// Of the tickets, and of no ticket.
    replies: Vec<(LeadId, Option<TicketId>, String)>,
    ended: BTreeMap<TicketId, String>,
    /// The leads that may have read some letters, acknowledged or not.
    reading: BTreeSet<LeadId>,
    read: BTreeMap<LeadId, u64>,
}

impl Said {
    fn is_empty(&self) -> bool {
        self.spawned.is_empty() && self.tickets.is_empty() && self.replies.is_empty()
    }

    /// How many sends have the key of one that another daemon acknowledged.
    fn repeated(&self, lines: &[String]) -> usize {
        let sends = lines.iter().filter_map(|line| line.strip_prefix("ticket ")?.split(' ').nth(1));
        let known: BTreeSet<&str> = self.keys.keys().map(|(_, key)| key.as_str()).collect();
        sends.filter(|key| known.contains(key)).count()
    }

    fn take(&mut self, line: &str) -> Result<(), &'static str> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |place: usize| words.get(place).and_then(|word| word.parse::<u64>().ok()).ok_or("no number");
        match words[0] {
            "spawned" => {
                if self.spawned.insert(WorkerId(number(2)?), LeadId(number(1)?)).is_some() {
                    return Err("a worker was spawned twice");
                }
            }
            "stopped" => drop(self.stopped.insert(WorkerId(number(2)?))),
            "ticket" => {
                let (lead, ticket) = (LeadId(number(1)?), TicketId(number(3)?));
                self.tickets.insert(ticket, lead);
                if self.keys.insert((lead, words[2].to_owned()), ticket).is_some_and(|known| known != ticket) {
                    return Err("one key, two tickets");
                }
            }
            "given" => {
                if !self.given.insert(TicketId(number(1)?)) {
                    return Err("a task was given twice");
                }
            }
            "asked" => drop(self.asked.insert(QuestionId(number(2)?), LeadId(number(1)?))),
            "answered" => {
                if !self.answered.insert(QuestionId(number(1)?)) {
                    return Err("a question was answered twice");
                }
            }
            "heard" => {
                if !self.heard.insert(QuestionId(number(1)?)) {
                    return Err("an answer was given twice");
                }
            }
            "replied" => {
                let ticket = Some(TicketId(number(2)?)).filter(|ticket| ticket.0 > 0);
                self.replies.push((LeadId(number(1)?), ticket, words[3].to_owned()));
            }
            "ended" => {
                let known = self.ended.insert(TicketId(number(2)?), words[3].to_owned());
                if known.is_some_and(|known| known != words[3]) {
                    return Err("an ended ticket changed");
                }
            }
            "reading" => drop(self.reading.insert(LeadId(number(1)?))),
            "read" => drop(self.read.insert(LeadId(number(1)?), number(2)?)),
            _ => return Err("something is wrong"),
        }
        Ok(())
    }
}

/// Compares what was said with a copy of the journal, so that looking changes nothing.
fn check(journal: &Path, said: &Said) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("fleet.journal");
    if !journal.exists() {
        // The first one was killed before it had made it.
        return if said.is_empty() { Ok(()) } else { Err("the journal is missing".to_owned()) };
    }
    fs::copy(journal, &copy).expect("a copy");
    // What is not in the journal yet is in here.
    let wal = |path: &Path| path.with_extension("journal-wal");
    if wal(journal).exists() {
        fs::copy(wal(journal), wal(&copy)).expect("a copy");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(compare(&copy, said))
}

async fn compare(journal: &Path, said: &Said) -> Result<(), String> {
    let mut config = Config::new(workers::none());
    config.shown_max = usize::MAX;
    let service = Service::open(journal, config).map_err(|error| error.to_string())?;
    let fleet = service.handle();
    texts_are_right(&Texts::of(journal), said)?;
    let begun = Instant::now();
    let mut seen: BTreeMap<TicketId, Seen> = BTreeMap::new();
    let mut letters: BTreeMap<LeadId, Vec<String>> = BTreeMap::new();
    for lead in LEADS {
        let all = fleet.poll_all(lead, Duration::ZERO).await.map_err(|error| error.to_string())?;
        seen.extend(all.tickets.into_iter().map(|seen| (seen.ticket, seen)));
        let inbox = fleet.inbox(lead, None).await.map_err(|error| error.to_string())?;
        if let Some(letter) = inbox.iter().find(|letter| said.read.get(&lead).is_some_and(|read| letter.id.0 <= *read))
        {
            return Err(format!("a letter that was read is there again: {letter:?}"));
        }
        letters.insert(lead, inbox.into_iter().map(|letter| letter.text).collect());
    }
    let mut known = BTreeMap::new();
    for lead in LEADS {
        let workers = fleet.list(lead).await.map_err(|error| error.to_string())?;
        known.extend(workers.into_iter().map(|seen| (seen.worker, (lead, seen.life))));
    }
    for (worker, lead) in &said.spawned {
        match known.get(worker) {
            Some((of, life)) if of == lead => {
                if said.stopped.contains(worker) && *life == WorkerLife::Alive {
                    return Err(format!("{worker:?} was stopped, and lives"));
                }
            }
            found => return Err(format!("{worker:?} of {lead:?} was acknowledged, and there is {found:?}")),
        }
    }
    for ticket in said.tickets.keys().chain(&said.given) {
        if !seen.contains_key(ticket) {
            return Err(format!("{ticket:?} was acknowledged and is missing"));
        }
    }
    for (ticket, state) in &said.ended {
        if seen[ticket].state.as_str() != state {
            return Err(format!("{ticket:?} was {state} and is {}", seen[ticket].state.as_str()));
        }
    }
    places_are_right(said, &seen, &letters)?;
    for (question, lead) in &said.asked {
        let again = fleet.answer(*lead, *question, "again", Duration::ZERO).await;
        match again {
            Err(Error::Refused(refused)) => {
                let refused = format!("{refused:?}");
                let right = if said.answered.contains(question) {
                    &["AlreadyAnswered"][..]
                } else {
                    &["AlreadyAnswered", "TicketEnded"]
                };
                if !right.contains(&refused.as_str()) {
                    return Err(format!("{question:?} was acknowledged; to answer it again is refused with {refused}"));
                }
            }
            Ok(_) if said.answered.contains(question) => {
                return Err(format!("{question:?} was answered, and can be answered again"));
            }
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    service.close().await;
    assert!(begun.elapsed() < OPEN_MAX, "a look at the journal takes too long");
    Ok(())
}

/// The texts as they stand in the file, whatever the service makes of them, by their kind and the id that they belong to.
struct Texts {
    texts: BTreeMap<(String, u64), String>,
    tickets: BTreeSet<u64>,
}

impl Texts {
    fn of(journal: &Path) -> Self {
        let file = Connection::open_with_flags(journal, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("it opens");
        let mut select = file.prepare("SELECT kind, id, body FROM text").expect("there are texts");
        let id = |row: &Row<'_>, column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        let texts = select.query_map([], |row| Ok(((row.get(0)?, id(row, 1)?), row.get(2)?))).expect("they are read");
        let mut select = file.prepare("SELECT id FROM ticket").expect("there are tickets");
        let tickets = select.query_map([], |row| id(row, 0)).expect("they are read");
        Self { texts: texts.map(Result::unwrap).collect(), tickets: tickets.map(Result::unwrap).collect() }
    }

    fn get(&self, kind: &str, id: u64) -> Option<&str> {
        self.texts.get(&(kind.to_owned(), id)).map(String::as_str)
    }
}

/// What was acknowledged or given has its text, a ticket is stored with its task or not at all, and one send made one ticket.
fn texts_are_right(texts: &Texts, said: &Said) -> Result<(), String> {
    for ((_, key), ticket) in &said.keys {
        if texts.get("task", ticket.0) != Some(&format!("task {key}")) {
            return Err(format!("{ticket:?} of key {key} has the task {:?}", texts.get("task", ticket.0)));
        }
    }
    for question in said.answered.iter().chain(&said.heard) {
        if texts.get("answer", question.0) != Some(&format!("answer to {}", question.0)) {
            return Err(format!("{question:?} has the answer {:?}", texts.get("answer", question.0)));
        }
    }
    if let Some(question) = said.asked.keys().find(|question| texts.get("question", question.0).is_none()) {
        return Err(format!("{question:?} was acknowledged and has no text"));
    }
    let tasks = || texts.texts.iter().filter(|((kind, _), _)| kind == "task");
    if tasks().map(|((_, id), _)| *id).ne(texts.tickets.iter().copied()) {
        return Err("there are tickets without a task, or tasks without a ticket".to_owned());
    }
    let mut keys = BTreeSet::new();
    match tasks().find(|(_, task)| !keys.insert(*task)) {
        Some((_, task)) => Err(format!("two tickets have the same key: {task}")),
        None => Ok(()),
    }
}

/// Each acknowledged reply has exactly one place: its ticket, beside its ticket, or the inbox of its lead.
fn places_are_right(
    said: &Said,
    seen: &BTreeMap<TicketId, Seen>,
    letters: &BTreeMap<LeadId, Vec<String>>,
) -> Result<(), String> {
    let mut places: BTreeMap<&str, Vec<(LeadId, Option<TicketId>)>> = BTreeMap::new();
    for (ticket, seen) in seen {
        let lead = said.tickets.get(ticket).copied();
        let reply = seen.reply.as_ref().filter(|_| !seen.is_last_message && seen.state == State::Completed);
        for text in reply.into_iter().chain(&seen.late_replies) {
            places.entry(text).or_default().push((lead.unwrap_or(LeadId(0)), Some(*ticket)));
        }
    }
    for (lead, letters) in letters {
        letters.iter().for_each(|text| places.entry(text).or_default().push((*lead, None)));
    }
    if let Some((text, places)) = places.iter().find(|(_, places)| places.len() > 1) {
        return Err(format!("{text} has {} places: {places:?}", places.len()));
    }
    for (lead, ticket, text) in &said.replies {
        let place = places.get(text.as_str()).and_then(|places| places.first());
        match (ticket, place) {
            (Some(ticket), Some((_, Some(at)))) if ticket == at => {}
            (None, Some((_, None))) => {}
            // It may have been read. The other lead reads nothing, so that its letters must all be there.
            (None, None) if said.reading.contains(lead) => {}
            _ => return Err(format!("{text} to {ticket:?} was acknowledged and is at {place:?}")),
        }
    }
    Ok(())
}
