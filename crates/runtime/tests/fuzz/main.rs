//! Arbitrary bytes on the wire, cut anywhere into reads, for both sides of a connection.
//!
//! A case is made of lines of the corpus, changed and spliced, and of bytes that nobody thought of. What must be answered is
//! judged here from the line alone ([`owed`]), once more and without the code under test. Whatever the bytes are:
//!
//! - nothing panics and nothing hangs,
//! - each request is answered exactly once, with its id byte for byte; each bad line is answered to nobody; nothing else is,
//! - every line of ours is JSON,
//! - the connection goes on: a request that follows is answered,
//! - the same bytes, cut in another way, have the same answers, and the same notifications are handled in the same order.
//!
//! Each test goes on for `LASTWORD_FUZZ_SECONDS`, [`SECONDS_DEFAULT`] if that is not set. A failure is shrunk, and its
//! seed is kept in `tests/fuzz/regressions`, which is to be committed with the fix: it comes first in every later run.

mod owed;
mod peer;

use std::{
    panic::resume_unwind,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use peer::{Seen, Side};
use proptest::{
    collection::vec,
    prelude::*,
    sample::Index,
    test_runner::{Config, FileFailurePersistence, TestError, TestRunner},
};

/// Long enough for some hundred cases.
const SECONDS_DEFAULT: u64 = 2;

/// A case takes milliseconds. One that is still not done has hung.
const CASE_MAX: Duration = Duration::from_secs(60);

/// Cases between two looks at the clock.
const CASES_PER_LOOK: u32 = 20;

/// The longest line that is taken in: short, so that longer ones are met.
const LINE_BYTES_MAX: usize = 8192;

/// What each case ends with, so that it is seen that the connection goes on.
const PROBE: &str = r#"{"jsonrpc":"2.0","id":"still there?","method":"_echo","params":"yes"}"#;

/// One file a kind of line. A line that was found to fail belongs here too.
const CORPUS: [&[u8]; 8] = [
    include_bytes!("corpus/requests.ndjson"),
    include_bytes!("corpus/prompts.ndjson"),
    include_bytes!("corpus/notifications.ndjson"),
    include_bytes!("corpus/responses.ndjson"),
    include_bytes!("corpus/ids.ndjson"),
    include_bytes!("corpus/limits.ndjson"),
    include_bytes!("corpus/bad-lines.ndjson"),
    include_bytes!("corpus/bytes.ndjson"),
];

/// What a change puts in: what JSON and this protocol stumble over.
const TOKENS: [&str; 24] = [
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\n",
    "\r\n",
    "\0",
    "null",
    "true",
    "-0",
    "1e999",
    "\\ud800",
    "\\u0000",
    "\"id\":1,",
    "\"id\":null,",
    "\"method\":\"_echo\",",
    "\"params\":{},",
    "\"result\":0,",
    "\"error\":{},",
    "\u{feff}",
];

/// A piece of a case.
#[derive(Debug, Clone)]
enum Piece {
    /// A line of the corpus, and what is done to it.
    Line(Index, Vec<Change>),
    /// The start of one line of the corpus and the end of another.
    Splice([Index; 2], [Index; 2]),
    /// A line of this many bytes, in one string.
    Long(usize),
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone)]
enum Change {
    Set(Index, u8),
    Insert(Index, Index),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
}

#[derive(Debug, Clone)]
struct Case {
    pieces: Vec<Piece>,
    /// What stands after the last newline.
    rest: Piece,
    /// Two ways to cut the bytes into reads: the lengths, again and again.
    cuts: [Vec<usize>; 2],
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (any::<Index>(), any::<Index>()).prop_map(|(at, token)| Change::Insert(at, token)),
        (any::<Index>(), 1..20_usize).prop_map(|(at, length)| Change::Remove(at, length)),
        (any::<Index>(), 1..20_usize, 1..200_usize).prop_map(|(at, length, times)| Change::Repeat(at, length, times)),
    ]
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        6 => (any::<Index>(), vec(change(), 0..4)).prop_map(|(line, changes)| Piece::Line(line, changes)),
        2 => (any::<[Index; 2]>(), any::<[Index; 2]>()).prop_map(|(lines, at)| Piece::Splice(lines, at)),
        1 => prop_oneof![LINE_BYTES_MAX - 2..LINE_BYTES_MAX + 3, LINE_BYTES_MAX..LINE_BYTES_MAX * 3].prop_map(Piece::Long),
        1 => vec(any::<u8>(), 0..60).prop_map(Piece::Bytes),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let cuts = || vec(prop_oneof![1 => 1..8_usize, 2 => 1..3000_usize], 1..6);
    (vec(piece(), 0..24), piece(), [cuts(), cuts()]).prop_map(|(pieces, rest, cuts)| Case { pieces, rest, cuts })
}

impl Piece {
    fn bytes(&self, corpus: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Line(line, changes) => {
                let mut line = line.get(corpus).to_vec();
                for change in changes {
                    change.make(&mut line);
                }
                line
            }
            Self::Splice(lines, at) => {
                let [start, end] = lines.map(|line| *line.get(corpus));
                let [to, from] = [at[0].index(start.len() + 1), at[1].index(end.len() + 1)];
                [&start[..to], &end[from..]].concat()
            }
            Self::Long(length) => {
                let (start, end) = (r#"{"id":"long","method":"_echo","params":""#, "\"}");
                format!("{start}{}{end}", "x".repeat(length.saturating_sub(start.len() + end.len()))).into_bytes()
            }
            Self::Bytes(bytes) => bytes.clone(),
        }
    }
}

impl Change {
    fn make(&self, line: &mut Vec<u8>) {
        let within = |at: &Index| at.index(line.len() + 1);
        match self {
            Self::Set(at, byte) => {
                let at = within(at);
                if let Some(place) = line.get_mut(at) {
                    *place = *byte;
                }
            }
            Self::Insert(at, token) => {
                let at = within(at);
                line.splice(at..at, token.get(&TOKENS).bytes());
            }
            Self::Remove(at, length) => {
                let at = within(at);
                line.drain(at..line.len().min(at + length));
            }
            Self::Repeat(at, length, times) => {
                let at = within(at);
                let end = line.len().min(at + length);
                let again = line[at..end].repeat(*times);
                line.splice(end..end, again);
            }
        }
    }
}

fn corpus() -> Vec<&'static [u8]> {
    CORPUS.iter().flat_map(|file| file.split(|byte| *byte == b'\n')).collect()
}

/// Takes the bytes in, cut in this way, and gives what was seen. A panic in there is one here; so is a hang.
fn run(side: Side, bytes: &[u8], cuts: &[usize]) -> Seen {
    let (bytes, cuts) = (bytes.to_vec(), cuts.to_vec());
    let (tell, told) = mpsc::channel();
    let running = thread::spawn(move || {
        let seen = peer::run(side, bytes, cuts, LINE_BYTES_MAX);
        let _ = tell.send(());
        seen
    });
    match told.recv_timeout(CASE_MAX) {
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        // It is done, or it panicked.
        Ok(()) | Err(RecvTimeoutError::Disconnected) => running.join().unwrap_or_else(|panic| resume_unwind(panic)),
    }
}

/// What stands above holds for these bytes, however they are cut.
fn judge(side: Side, bytes: &[u8], cuts: &[Vec<usize>]) {
    let mut owed = owed::all(bytes, LINE_BYTES_MAX);
    owed.sort_unstable();
    let mut seen: Vec<Seen> = cuts.iter().map(|cuts| run(side, bytes, cuts)).collect();
    // How far a request was when another one with its id or its cancel came is a matter of time, and so of the cuts.
    let mut timely = owed::come_again(&owed);
    timely.extend(seen.iter().flat_map(Seen::cancelled));
    seen.iter_mut().for_each(|seen| seen.forget_reasons_of(&timely));
    for seen in &seen {
        assert_eq!(seen.ids(), owed, "what was answered, and what was owed");
        assert!(seen.answered_probe(), "the connection did not go on: {seen:?}");
    }
    for other in &seen[1..] {
        assert_eq!(&seen[0], other, "the same bytes, cut in another way");
    }
}

fn seconds() -> Duration {
    let seconds = std::env::var("LASTWORD_FUZZ_SECONDS").map(|text| text.parse().expect("LASTWORD_FUZZ_SECONDS"));
    Duration::from_secs(seconds.unwrap_or(SECONDS_DEFAULT))
}

fn fuzz(side: Side, regressions: &'static str) {
    let corpus = corpus();
    let until = Instant::now() + seconds();
    let mut cases = 0;
    while Instant::now() < until {
        let mut runner = TestRunner::new(Config {
            cases: CASES_PER_LOOK,
            failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
            ..Config::default()
        });
        let result = runner.run(&case(), |case| {
            let mut pieces: Vec<_> = case.pieces.iter().map(|piece| piece.bytes(&corpus)).collect();
            pieces.push(PROBE.into());
            pieces.push(case.rest.bytes(&corpus));
            judge(side, &pieces.join(&b'\n'), &case.cuts);
            Ok(())
        });
        match result {
            Ok(()) => cases += CASES_PER_LOOK,
            Err(TestError::Fail(reason, case)) => panic!("{side:?}, after {cases} cases: {reason}\n{case:#?}"),
            Err(TestError::Abort(reason)) => panic!("{reason}"),
        }
    }
    println!("{side:?}: {cases} cases");
}

/// As it stands, whole, and cut into single bytes and into reads of any small length.
fn take_in_corpus(side: Side) {
    let cuts: Vec<_> = [usize::MAX, 5, 1, 1000].map(|length| vec![length]).into();
    for file in CORPUS {
        judge(side, &[file, PROBE.as_bytes(), b"\n"].concat(), &cuts);
        for line in file.split(|byte| *byte == b'\n') {
            judge(side, &[line, b"\n", PROBE.as_bytes(), b"\n"].concat(), &cuts[..2]);
            // The rest, which no newline ends.
            judge(side, &[PROBE.as_bytes(), b"\n", line].concat(), &cuts[..2]);
        }
    }
}

#[test]
fn an_agent_takes_the_corpus_in() {
    take_in_corpus(Side::Agent);
}

#[test]
fn a_client_takes_the_corpus_in() {
    take_in_corpus(Side::Client);
}

#[test]
fn an_agent_takes_any_bytes_in() {
    fuzz(Side::Agent, "tests/fuzz/regressions/agent.txt");
}

#[test]
fn a_client_takes_any_bytes_in() {
    fuzz(Side::Client, "tests/fuzz/regressions/client.txt");
}
