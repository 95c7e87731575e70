//! Each scenario in which some agent of another team fails: all its lines in one write, round after round, and the outcome
//! of each round is exact. What a prompt that lives must outlast is everything that was sent before it is let go.

use std::{collections::BTreeMap, process::Stdio, time::Duration};

use lastword::{Options, serve_agent};
use lastword_model::trace::check;
use serde_json::{Value, json, value::RawValue};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _, duplex, split},
    process::Command,
    task::JoinSet,
};

use crate::{
    agent::Unruly,
    client::{Message, Messages, Said, answer, line, soon},
    record::Trace,
};

/// So often each scenario is played against the runtime in this process, each time on a connection of its own.
const ROUNDS: usize = 300;

/// So many of them at the same time, on two threads: then a task often starts long after its message arrived.
const ROUNDS_AT_ONCE: usize = 4;

/// How much the pipe to the agent holds, from round to round: all lines at once, so that the machine takes them in before a
/// task can start, or pieces of them, so that tasks start, run and return in between.
const PIPE_BYTES: [usize; 4] = [1 << 16, 256, 64, 17];

/// So often each scenario is played on one connection of a child process.
const CHILD_ROUNDS: usize = 25;

/// No handler is dropped: a prompt ends because its token fires, or the round never ends.
const NO_GRACE: Duration = Duration::from_millis(600_000);

/// The same for a child process.
const NO_GRACE_MS: &str = "600000";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    A,
    B,
}

/// What the client sends. A request has its place in the scenario as its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// It must end.
    Ends(Session),
    /// It must live until it is let go.
    Lives(Session),
    Cancel(Session),
    CancelAsRequest(Session),
    /// `$/cancel_request` for the request at this place.
    CancelRequest(usize),
}

use Sent::{Cancel, CancelAsRequest, CancelRequest, Ends, Lives};
use Session::{A, B};

macro_rules! scenarios {
    ($($name:ident: $sent:expr;)*) => {
        mod in_process {
            use super::*;
            $(#[test] fn $name() { in_process(&$sent); })*
        }
        mod in_a_child_process {
            use super::*;
            $(#[test] fn $name() { in_a_child_process(&[], 1, &$sent); })*
        }
        mod behind_the_guard {
            use super::*;
            $(#[test] fn $name() { in_a_child_process(&GUARD, 2, &$sent); })*
        }
    };
}

scenarios! {
    of_two_prompts_the_newer_one_lives_and_the_older_one_ends: [Ends(A), Lives(A)];
    a_cancel_ends_the_prompt_before_it: [Ends(A), Cancel(A)];
    a_cancel_that_is_a_request_ends_the_prompt_before_it: [Ends(A), CancelAsRequest(A)];
    a_cancel_spares_the_prompt_after_it: [Cancel(A), Lives(A)];
    a_cancel_that_is_a_request_spares_the_prompt_after_it: [CancelAsRequest(A), Lives(A)];
    a_cancel_between_two_prompts_ends_only_the_older_one: [Ends(A), Cancel(A), Lives(A)];
    a_cancel_after_two_prompts_ends_both: [Ends(A), Ends(A), Cancel(A)];
    a_cancel_of_a_request_ends_the_prompt_with_that_id: [Ends(A), CancelRequest(0)];
    a_cancel_of_one_session_ends_no_prompt_of_another_one: [Ends(A), Lives(B), Cancel(A)];
}

/// The client's end, with the sessions of one round.
struct Round<'a, W> {
    messages: &'a mut Messages,
    writer: &'a mut W,
    /// What the round's ids begin with.
    number: usize,
}

impl<W: AsyncWrite + Unpin> Round<'_, W> {
    fn id(&self, place: impl std::fmt::Display) -> String {
        format!("\"{}.{place}\"", self.number)
    }

    /// Plays the scenario, and says whether each request got the answer that it must get.
    async fn is_kept(&mut self, sent: &[Sent]) -> bool {
        let (answers, expected) = (self.play(sent).await, self.expected(sent));
        if answers != expected {
            eprintln!("round {}: {answers:?}, and not {expected:?}", self.number);
        }
        answers == expected
    }

    /// Says what each request was answered.
    async fn play(&mut self, sent: &[Sent]) -> BTreeMap<String, Said> {
        let sessions = [self.open("a").await, self.open("b").await];
        let session = |session: &Session| &sessions[usize::from(*session == B)];
        let prompt =
            |of: &Session, text: &str| json!({"sessionId": session(of), "prompt": [{"type": "text", "text": text}]});
        let lines = (0..).zip(sent).map(|(place, sent): (usize, _)| {
            let id = self.id(place);
            match sent {
                Ends(of) => line(Some(&id), "session/prompt", &prompt(of, "wait=600000")),
                Lives(of) => line(Some(&id), "session/prompt", &prompt(of, "permission")),
                Cancel(of) => line(None, "session/cancel", &json!({"sessionId": session(of)})),
                CancelAsRequest(of) => line(Some(&id), "session/cancel", &json!({"sessionId": session(of)})),
                CancelRequest(place) => {
                    let target: Value = serde_json::from_str(&self.id(place)).unwrap();
                    line(None, "$/cancel_request", &json!({"requestId": target}))
                }
            }
        });
        let lines: String = lines.collect();
        self.write(&lines).await;
        let last = self.id("last");
        self.write(&line(Some(&last), "_lastword/echo", &Value::Null)).await;
        self.answers(&last, requests(sent) + 1).await
    }

    /// Reads the answers. Calls of the agent are answered once everything that was sent has been taken in.
    async fn answers(&mut self, last: &str, count: usize) -> BTreeMap<String, Said> {
        let mut answers = BTreeMap::new();
        let mut calls: Vec<Box<RawValue>> = Vec::new();
        while answers.len() < count {
            match self.messages.next().await.expect("the agent's output ended") {
                Message::Response(id, said) => assert_eq!(answers.insert(id, said), None),
                Message::Call(call) => calls.push(call),
                Message::Notification => {}
            }
            if answers.contains_key(last) {
                for call in std::mem::take(&mut calls) {
                    self.write(&answer(&call)).await;
                }
            }
        }
        answers.remove(last);
        answers
    }

    async fn open(&mut self, name: &str) -> String {
        let id = self.id(name);
        self.write(&line(Some(&id), "session/new", &json!({"cwd": "/", "mcpServers": []}))).await;
        self.messages.opened(&id).await
    }

    async fn write(&mut self, lines: &str) {
        soon(self.writer.write_all(lines.as_bytes())).await.unwrap();
    }

    fn expected(&self, sent: &[Sent]) -> BTreeMap<String, Said> {
        let answers = (0..).zip(sent).filter_map(|(place, sent): (usize, _)| match sent {
            Ends(_) => Some((self.id(place), Said::Cancelled)),
            Lives(_) | CancelAsRequest(_) => Some((self.id(place), Said::Result)),
            Cancel(_) | CancelRequest(_) => None,
        });
        answers.collect()
    }
}

fn requests(sent: &[Sent]) -> usize {
    sent.iter().filter(|sent| !matches!(sent, Cancel(_) | CancelRequest(_))).count()
}

fn threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn in_process(sent: &'static [Sent]) {
    let trace = Trace::default();
    let broken = threads().block_on(async {
        let (mut rounds, mut broken) = (JoinSet::<bool>::new(), 0);
        for number in 0..ROUNDS {
            if rounds.len() == ROUNDS_AT_ONCE {
                broken += usize::from(!rounds.join_next().await.unwrap().unwrap());
            }
            rounds.spawn(is_kept_on_a_connection(sent, number, trace.clone()));
        }
        broken + rounds.join_all().await.into_iter().filter(|kept| !kept).count()
    });
    assert_eq!(broken, 0, "broken of {ROUNDS}");
    assert_eq!(trace.checked().connections, ROUNDS);
}

/// Whether every answer of a round is the one that it must be.
async fn is_kept_on_a_connection(sent: &[Sent], number: usize, trace: Trace) -> bool {
    let (ours, theirs) = duplex(PIPE_BYTES[number % PIPE_BYTES.len()]);
    let (reader, writer) = split(theirs);
    let mut options = Options::default();
    options.grace = NO_GRACE;
    let agent = Unruly::new();
    let served = tokio::spawn(trace.record(serve_agent(agent.clone(), reader, writer, options)));
    let (reader, mut writer) = split(ours);
    let mut messages = Messages::of(reader);
    let mut round = Round { messages: &mut messages, writer: &mut writer, number };
    let is_kept = round.is_kept(sent).await;
    writer.shutdown().await.unwrap();
    let is_silent = messages.next().await.is_none();
    soon(served).await.unwrap().unwrap();
    is_kept && is_silent && agent.kept_turns_apart()
}

/// What stands before the agent's own words.
const GUARD: [&str; 5] = ["guard", "--grace", NO_GRACE_MS, "--", env!("CARGO_BIN_EXE_lastword")];

fn in_a_child_process(before: &[&str], connections: usize, sent: &[Sent]) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.ndjson");
    let broken = threads().block_on(async {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lastword"))
            .args(before)
            .args(["agent", "--grace-ms", NO_GRACE_MS])
            .env_remove("RUST_LOG")
            .env("LASTWORD_TRACE", &trace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut writer = child.stdin.take().unwrap();
        let mut messages = Messages::of(child.stdout.take().unwrap());
        let mut broken = 0;
        for number in 0..CHILD_ROUNDS {
            let mut round = Round { messages: &mut messages, writer: &mut writer, number };
            broken += usize::from(!round.is_kept(sent).await);
        }
        drop(writer);
        assert!(messages.next().await.is_none());
        assert!(soon(child.wait()).await.unwrap().success());
        broken
    });
    assert_eq!(broken, 0, "broken of {CHILD_ROUNDS}");
    let summary = check(std::io::BufReader::new(std::fs::File::open(&trace).unwrap())).unwrap();
    assert_eq!(summary.connections, connections);
}
