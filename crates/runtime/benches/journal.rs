//! Durable acknowledgements a second, with one caller and with many, against raw commits of one row on the same disk.
//!
//!     cargo bench -p lastword --features delegation --bench journal
//!
//! An acknowledgement is a send to a worker that is busy: the ticket and its task are on the disk when it returns. A raw
//! commit is one row of the same text in the same kind of SQLite file, by one caller, and nothing else. The disk's own time
//! goes up and down, so the three take short turns, and the ratio of each round is taken; the figure is the median of those.
//! Many callers leave the disk busy for a while, so that the two others change places from round to round.
//!
//! Exit status: 0 both ratios are at least what they must be, 1 one is not.

use std::{
    env,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use lastword::delegation::{Config, Handle, Launch, LeadId, Life, Seat, Service, Work, WorkerId};
use rusqlite::{Connection, params};

const LEAD: LeadId = LeadId(1);
const CALLERS: usize = 64;
const ROUNDS: usize = 60;

/// How long each of the three goes on in a round: some tens of commits of a slow disk.
const TURN: Duration = Duration::from_millis(100);

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

fn main() -> ExitCode {
    // `cargo test --benches` wants to know that it runs, and no figures.
    let is_test = env::args().any(|arg| arg == "--test");
    let (rounds, turn) = if is_test { (1, Duration::from_millis(10)) } else { (ROUNDS, TURN) };
    // On the disk that the build is on: a folder for temporary files may be no disk.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (raw, one, many) = runtime.block_on(measure(folder.path(), rounds, turn));
    let ratio = |those: &[f64]| median(those.iter().zip(&raw).map(|(those, raw)| those / raw).collect());
    let (one_ratio, many_ratio) = (ratio(&one), ratio(&many));
    println!("raw commits of one row       {:>8.0} /s", median(raw.clone()));
    println!(
        "acknowledgements, 1 caller   {:>8.0} /s   {one_ratio:.2} of raw, at least {ONE_CALLER_RATIO_MIN}",
        median(one)
    );
    println!(
        "acknowledgements, {CALLERS} callers {:>8.0} /s   {many_ratio:.2} of raw, at least {MANY_CALLERS_RATIO_MIN}",
        median(many)
    );
    let holds = one_ratio >= ONE_CALLER_RATIO_MIN && many_ratio >= MANY_CALLERS_RATIO_MIN;
    if holds || is_test { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The rates of each round.
async fn measure(folder: &Path, rounds: usize, turn: Duration) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let mut config = Config::new(Arc::new(Busy));
    config.limits.tickets_queued_max = usize::MAX;
    config.limits.tickets_max = usize::MAX;
    let service = Service::open(&folder.join("fleet.journal"), config).expect("it opens");
    let fleet = service.handle();
    let worker = fleet.spawn(LEAD, "busy", "Ada").await.expect("a worker");
    send(&fleet, worker).await;

    let raw = Connection::open(folder.join("raw.db")).expect("it opens");
    raw.pragma_update(None, "journal_mode", "wal").expect("a mode");
    raw.pragma_update(None, "synchronous", "full").expect("a mode");
    raw.execute_batch("CREATE TABLE row (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT").expect("a table");

    let (mut rates_raw, mut rates_one, mut rates_many) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            rates_raw.push(commits(&raw, turn));
        }
        rates_one.push(acknowledgements(&fleet, worker, 1, turn).await);
        if round % 2 == 1 {
            rates_raw.push(commits(&raw, turn));
        }
        rates_many.push(acknowledgements(&fleet, worker, CALLERS, turn).await);
    }
    service.close().await;
    (rates_raw, rates_one, rates_many)
}

fn commits(raw: &Connection, turn: Duration) -> f64 {
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < turn {
        let insert = raw.prepare_cached("INSERT INTO row (body) VALUES (?1)");
        insert.and_then(|mut insert| insert.execute(params![task()])).expect("a commit");
        count += 1;
    }
    f64::from(count) / begun.elapsed().as_secs_f64()
}

async fn acknowledgements(fleet: &Handle, worker: WorkerId, callers: usize, turn: Duration) -> f64 {
    let begun = Instant::now();
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let fleet = fleet.clone();
            tokio::spawn(async move {
                let mut count = 0;
                while begun.elapsed() < turn {
                    send(&fleet, worker).await;
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for caller in callers {
        count += caller.await.expect("it ends");
    }
    f64::from(count) / begun.elapsed().as_secs_f64()
}

async fn send(fleet: &Handle, worker: WorkerId) {
    fleet.send(LEAD, Work::new(worker, task())).await.expect("a ticket");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
