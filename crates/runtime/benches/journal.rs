//! Durable acknowledgements a second, with one caller and with many, against raw commits of one row on the same disk.
//!
//!     scripts/bench journal
//!
//! An acknowledgement is a send to a worker of the caller's that is busy: the ticket and its task are on the disk when it returns. A raw
//! commit is one row of the same text in the same kind of SQLite file, by one caller, and nothing else.
//!
//! While a write-ahead log grows, a commit waits for the file system too, and so for whatever else is being written on the
//! machine; once it has its full length, it is written over and over, and a commit waits for the disk alone. So both files
//! are brought there before anything is measured. Even so, a disk answers now at once and now after milliseconds, and a file
//! that is quick stays so for a while. So ours and the raw commits take turns, the other one first in every second round: of one
//! commit each for the one caller, of a few for many, who share theirs. The ratio of each round is taken, and the figure is
//! the median of those. Many callers leave the disk busy for a while, so that one caller is measured before them.
//!
//! Exit status: 0 both ratios are at least what they must be, 1 one is not.

use std::{env, fs, path::Path, process::ExitCode, sync::Arc, time::Instant};

use lastword::delegation::{Config, Handle, Launch, LeadId, Life, Seat, Service, Work, WorkerId};
use rusqlite::{Connection, params};
use tokio::task::JoinSet;

const LEAD: LeadId = LeadId(1);
const CALLERS: usize = 64;

/// How often, and how many commits a turn has, for the one caller and for many.
const ONE: Turns = Turns { rounds: 1500, commits: 1 };
const MANY: Turns = Turns { rounds: 150, commits: 10 };

/// What a write-ahead log has before SQLite begins it again: a thousand pages.
const LOG_BYTES: u64 = 1000 * 4096;

/// What must be.
const ONE_CALLER_RATIO_MIN: f64 = 0.9;
const MANY_CALLERS_RATIO_MIN: f64 = 8.0;

/// A task as a model would write it.
fn task() -> String {
    "Look at why the build fails, and mend it. ".repeat(10)
}

/// Takes its first prompt, and is at it for ever.
struct Busy;

impl Launch for Busy {
    fn kinds(&self) -> Vec<String> {
        vec!["busy".to_owned()]
    }

    fn launch(&self, mut seat: Seat) -> Life {
        Box::pin(async move {
            seat.next().await;
            seat.stopped().await;
            "it was stopped".to_owned()
        })
    }
}

#[derive(Clone, Copy)]
struct Turns {
    rounds: usize,
    commits: usize,
}

/// The rates of each round: of raw commits, and of ours.
type Rates = (Vec<f64>, Vec<f64>);

fn main() -> ExitCode {
    // `cargo test --benches` wants to know that it runs, and no figures.
    let is_test = env::args().any(|arg| arg == "--test");
    let turns = |turns: Turns| if is_test { Turns { rounds: 1, ..turns } } else { turns };
    // On the disk that the build is on: a folder for temporary files may be no disk.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let bench = runtime.block_on(Bench::open(folder.path()));
    let one = runtime.block_on(bench.measure(1, turns(ONE)));
    let many = runtime.block_on(bench.measure(CALLERS, turns(MANY)));
    runtime.block_on(bench.service.close());
    let one_ratio = report("1 caller", one, ONE_CALLER_RATIO_MIN);
    let many_ratio = report(&format!("{CALLERS} callers"), many, MANY_CALLERS_RATIO_MIN);
    let holds = one_ratio >= ONE_CALLER_RATIO_MIN && many_ratio >= MANY_CALLERS_RATIO_MIN;
    if holds || is_test { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(callers: &str, (raw, ours): Rates, ratio_min: f64) -> f64 {
    let ratio = median(ours.iter().zip(&raw).map(|(ours, raw)| ours / raw).collect());
    let (raw, ours) = (median(raw), median(ours));
    println!(
        "{callers:<10} {ours:>6.0} acknowledgements/s, {raw:>4.0} raw commits/s: {ratio:.2} of raw, at least {ratio_min}"
    );
    ratio
}

struct Bench {
    service: Service,
    fleet: Handle,
    /// One for each caller.
    workers: Vec<WorkerId>,
    raw: Connection,
}

impl Bench {
    async fn open(folder: &Path) -> Self {
        let mut config = Config::new(Arc::new(Busy));
        config.limits.tickets_queued_max = usize::MAX;
        config.limits.tickets_max = usize::MAX;
        let service = Service::open(&folder.join("fleet.journal"), config).expect("it opens");
        let fleet = service.handle();
        let mut workers = Vec::new();
        for _ in 0..CALLERS {
            workers.push(fleet.spawn(LEAD, "busy", "Ada").await.expect("a worker"));
        }

        let raw = Connection::open(folder.join("raw.db")).expect("it opens");
        raw.pragma_update(None, "journal_mode", "wal").expect("a mode");
        raw.pragma_update(None, "synchronous", "full").expect("a mode");
        raw.execute_batch("CREATE TABLE row (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT").expect("a table");
        let bench = Self { service, fleet, workers, raw };
        let is_full = |log| fs::metadata(folder.join(log)).is_ok_and(|log| log.len() > LOG_BYTES);
        while !is_full("raw.db-wal") {
            bench.commits(MANY.commits);
        }
        while !is_full("fleet.journal-wal") {
            bench.acknowledgements(CALLERS, MANY.commits).await;
        }
        // Whoever was the last to write has begun again by now.
        bench.measure(CALLERS, Turns { rounds: 1, ..MANY }).await;
        bench
    }

    async fn measure(&self, callers: usize, Turns { rounds, commits }: Turns) -> Rates {
        let (mut raw, mut ours) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            if round % 2 == 0 {
                raw.push(self.commits(commits));
            }
            ours.push(self.acknowledgements(callers, commits).await);
            if round % 2 == 1 {
                raw.push(self.commits(commits));
            }
        }
        (raw, ours)
    }

    fn commits(&self, commits: usize) -> f64 {
        let begun = Instant::now();
        for _ in 0..commits {
            let insert = self.raw.prepare_cached("INSERT INTO row (body) VALUES (?1)");
            insert.and_then(|mut insert| insert.execute(params![task()])).expect("a commit");
        }
        commits as f64 / begun.elapsed().as_secs_f64()
    }

    /// Each caller goes on as soon as it was acknowledged.
    async fn acknowledgements(&self, callers: usize, commits: usize) -> f64 {
        let begun = Instant::now();
        let send = |worker: WorkerId| {
            let fleet = self.fleet.clone();
            async move {
                for _ in 0..commits {
                    fleet.send(LEAD, Work::new(worker, task())).await.expect("a ticket");
                }
            }
        };
        let mut sending: JoinSet<()> = JoinSet::new();
        for worker in &self.workers[1..callers] {
            sending.spawn(send(*worker));
        }
        // The one caller is this thread, as it is for the raw commits.
        send(self.workers[0]).await;
        sending.join_all().await;
        (callers * commits) as f64 / begun.elapsed().as_secs_f64()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
