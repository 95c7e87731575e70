//! Whatever a client may send, in pieces cut anywhere, to handlers that do whatever they like: each id is answered as often
//! as it was used, the wire says what the machine decided and in that order, and the model finds nothing wrong.

use std::{cell::RefCell, collections::BTreeSet, time::Duration};

use lastword::{Options, serve_agent};
use proptest::{collection::vec, option, prelude::*, sample::select, test_runner::TestRunner};
use serde_json::json;
use tokio::{
    io::{AsyncWriteExt as _, DuplexStream, WriteHalf, duplex, split},
    sync::mpsc,
};

use crate::{
    agent::{Script, Then, Unruly},
    client::{Message, Messages, Said, answer, line, soon},
    record::Trace,
};

const CASES: u32 = 400;

/// A case that hangs is over after a minute; few of those are enough to make it smaller.
const SHRINK_MS_MAX: u32 = 120_000;

/// How many different steps there are, but for ResumeOver: who calls here always looks at the response.
const STEP_NAMES: usize = 13;

/// Few, so that some are used twice at once; and some are equal without looking so.
const IDS: [&str; 7] = ["1", "1.0", "2", "3", "\"3\"", "null", "\"\\u0033\""];

#[derive(Debug, Clone)]
enum Sent {
    Prompt(&'static str, Session, Script),
    Cancel(Option<&'static str>, Session, Script),
    CancelRequest(&'static str),
    Request(&'static str, Script),
    Notification(Script),
}

type Session = &'static str;

impl Sent {
    fn id(&self) -> Option<&'static str> {
        match self {
            Self::Prompt(id, ..) | Self::Cancel(Some(id), ..) | Self::Request(id, _) => Some(id),
            Self::Cancel(None, ..) | Self::CancelRequest(_) | Self::Notification(_) => None,
        }
    }

    fn line(&self) -> String {
        let (method, params) = match self {
            Self::Prompt(_, session, script) => {
                let text = json!(script).to_string();
                ("session/prompt", json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]}))
            }
            Self::Cancel(_, session, script) => ("session/cancel", json!({"sessionId": session, "_meta": script})),
            Self::CancelRequest(id) => {
                let id: Box<serde_json::value::RawValue> = serde_json::from_str(id).unwrap();
                return format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"$/cancel_request\",\"params\":{{\"requestId\":{id}}}}}\n"
                );
            }
            Self::Request(_, script) => ("_stress/request", json!(script)),
            Self::Notification(script) => ("_stress/notification", json!(script)),
        };
        line(self.id(), method, &params)
    }
}

/// How a scenario is sent.
#[derive(Debug, Clone)]
struct Scenario {
    sent: Vec<Written>,
    /// After so many messages the handlers that wait to be released are let go; else at the end.
    released_after: usize,
    /// The client ends its side at once when it has sent everything, or when it has read every answer.
    leaves_early: bool,
    requests_in_flight_max: usize,
    grace_ms: u64,
    /// How much a pipe holds each way.
    pipe_bytes: usize,
    out_bytes_max: usize,
}

#[derive(Debug, Clone)]
struct Written {
    message: Sent,
    /// Where its line is cut in two writes, from its beginning.
    cut: Option<prop::sample::Index>,
    /// It is not written together with the next one.
    alone: bool,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let written = (sent(), option::weighted(0.3, any::<prop::sample::Index>()), any::<bool>())
        .prop_map(|(message, cut, alone)| Written { message, cut, alone });
    (
        vec(written, 1..40),
        0..60_usize,
        any::<bool>(),
        select(&[1, 2, 4, 65_536][..]),
        select(&[0, 2, 600_000][..]),
        select(&[64, 1 << 16][..]),
        select(&[1, 256 << 10][..]),
    )
        .prop_map(
            |(sent, released_after, leaves_early, requests_in_flight_max, grace_ms, pipe_bytes, out_bytes_max)| {
                Scenario {
                    sent,
                    released_after,
                    leaves_early,
                    requests_in_flight_max,
                    grace_ms,
                    pipe_bytes,
                    out_bytes_max,
                }
            },
        )
}

fn sent() -> impl Strategy<Value = Sent> {
    let id = || select(&IDS[..]);
    let session = || select(&["a", "b"][..]);
    prop_oneof![
        5 => (id(), session(), script()).prop_map(|(id, session, script)| Sent::Prompt(id, session, script)),
        2 => (option::of(id()), session(), script()).prop_map(|(id, session, script)| Sent::Cancel(id, session, script)),
        2 => id().prop_map(Sent::CancelRequest),
        2 => (id(), script()).prop_map(|(id, script)| Sent::Request(id, script)),
        1 => script().prop_map(Sent::Notification),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    let then = select(
        &[Then::Return, Then::Fail, Then::Panic, Then::Wait, Then::IgnoreCancels, Then::Ask, Then::AskAndIgnoreCancels]
            [..],
    );
    (0..5_u8, any::<bool>(), then).prop_map(|(yields, spawns, then)| Script { yields, spawns, then })
}

#[test]
fn whatever_a_client_sends_each_id_is_answered_once_and_the_record_is_right() {
    let config = ProptestConfig { cases: CASES, max_shrink_time: SHRINK_MS_MAX, ..ProptestConfig::default() };
    // What tokio does with a case is not in its seed, so a seed is not kept.
    let config = ProptestConfig { failure_persistence: None, ..config };
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let met = RefCell::new(BTreeSet::new());
    let played = TestRunner::new(config).run(&scenarios(), |scenario| {
        let trace = threads.block_on(play(scenario))?;
        met.borrow_mut().extend(trace.step_names());
        Ok(())
    });
    played.unwrap_or_else(|error| panic!("{error}"));
    // The cases were varied enough: everything that can happen to a connection happened.
    assert_eq!(met.into_inner().len(), STEP_NAMES, "different steps");
}

async fn play(scenario: Scenario) -> Result<Trace, TestCaseError> {
    let trace = Trace::default();
    let agent = Unruly::new();
    let (ours, theirs) = duplex(scenario.pipe_bytes);
    let (reader, writer) = split(theirs);
    let mut options = Options::default();
    options.requests_in_flight_max = scenario.requests_in_flight_max;
    options.grace = Duration::from_millis(scenario.grace_ms);
    options.out_bytes_max = scenario.out_bytes_max;
    let served = tokio::spawn(trace.clone().record(serve_agent(agent.clone(), reader, writer, options)));

    let (reader, writer) = split(ours);
    let mut asked: Vec<&str> = scenario.sent.iter().filter_map(|written| written.message.id()).collect();
    let (give, answers) = mpsc::unbounded_channel();
    let (read, ()) =
        tokio::join!(read(Messages::of(reader), asked.len(), give), write(writer, &scenario, &agent, answers));
    soon(served).await.unwrap().map_err(|error| TestCaseError::fail(error.to_string()))?;

    let mut answered: Vec<&str> = read.iter().map(|(id, _)| id.as_str()).collect();
    asked.sort_unstable();
    answered.sort_unstable();
    prop_assert_eq!(asked, answered);
    prop_assert_eq!(read, trace.responses());
    prop_assert_eq!(trace.checked().connections, 1);
    prop_assert!(agent.kept_turns_apart());
    Ok(trace)
}

/// Reads every response, in order, and gives the answers to calls of the agent to whoever writes.
async fn read(mut messages: Messages, requests: usize, give: mpsc::UnboundedSender<String>) -> Vec<(String, Said)> {
    let mut responses = Vec::new();
    let mut give = (requests > 0).then_some(give);
    while let Some(message) = messages.next().await {
        match message {
            Message::Response(id, said) => responses.push((id, said)),
            Message::Call(call) => {
                // Whoever writes may have left.
                let _ = give.as_ref().map(|give| give.send(answer(&call)));
            }
            Message::Notification => {}
        }
        if responses.len() == requests {
            // Nothing more is owed.
            give = None;
        }
    }
    responses
}

async fn write(
    mut writer: WriteHalf<DuplexStream>,
    scenario: &Scenario,
    agent: &Unruly,
    mut answers: mpsc::UnboundedReceiver<String>,
) {
    let mut ready = String::new();
    for (number, Written { message, cut, alone }) in scenario.sent.iter().enumerate() {
        if number == scenario.released_after {
            agent.release();
        }
        let line = message.line();
        let cut = cut.map(|cut| cut.index(line.len()));
        ready.push_str(&line[..cut.unwrap_or(line.len())]);
        if cut.is_some() || *alone {
            send(&mut writer, &mut ready).await;
        }
        if let Some(cut) = cut {
            ready.push_str(&line[cut..]);
        }
        while let Ok(answer) = answers.try_recv() {
            ready.push_str(&answer);
        }
    }
    send(&mut writer, &mut ready).await;
    agent.release();
    while !scenario.leaves_early
        && let Some(answer) = soon(answers.recv()).await
    {
        ready.push_str(&answer);
        send(&mut writer, &mut ready).await;
    }
    writer.shutdown().await.unwrap();
}

/// Writes what is ready, and lets others go first before there is more.
async fn send(writer: &mut WriteHalf<DuplexStream>, ready: &mut String) {
    soon(writer.write_all(ready.as_bytes())).await.unwrap();
    ready.clear();
    tokio::task::yield_now().await;
}
