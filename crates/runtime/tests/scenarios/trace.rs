//! The trace of a connection is enough to do all of it again.

use std::{
    io::{self, Write},
    sync::{Mutex, Once},
};

use lastword::schema::v1::StopReason;
use lastword_core::{Connection, Effects, Limits, Step};
use serde_json::Value;
use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::peer::{Peer, cancel, prompt, request};

/// The trace of all scenarios that run in this process.
static TRACE: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Records every connection from now on. One subscriber for the whole process, as in a program: tracing forgets call sites
/// where threads come and go with subscribers of their own.
pub(crate) fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing_subscriber::registry().with(lastword::trace::layer(Recorder)).init());
}

struct Recorder;

impl Write for Recorder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TRACE.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn the_steps_of_a_trace_give_the_same_effects_and_states_again() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "traced", "old"), prompt(2, "traced", "new"), request(3, "_echo")]).await;
    peer.prompt("new").await.answer(Ok(StopReason::EndTurn));
    peer.lines(&[cancel("traced")]).await;
    peer.method("cancel traced").await.answer(Ok(()));
    assert_eq!(peer.rest().await.len(), 3);

    let trace = String::from_utf8(TRACE.lock().unwrap().clone()).unwrap();
    let lines: Vec<Value> = trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ours = &lines.iter().find(|line| line["step"]["PromptArrived"]["session"] == "traced").unwrap()["connection"];
    let mut lines = lines.iter().filter(|line| line["connection"] == *ours);
    let limit = |header: &Value, name: &str| header["limits"][name].as_u64().unwrap() as usize;
    let header = lines.next().unwrap();
    let mut limits = Limits::default();
    limits.requests_in_flight_max = limit(header, "requests_in_flight_max");
    limits.notifications_queued_max = limit(header, "notifications_queued_max");
    limits.notifications_stuck_max = limit(header, "notifications_stuck_max");
    let mut core = Connection::new(limits);
    let mut steps = 0;
    for line in lines {
        let step: Step = serde_json::from_value(line["step"].clone()).unwrap();
        let effects: Effects = serde_json::from_value(line["effects"].clone()).unwrap();
        assert_eq!(core.apply(step).unwrap(), effects);
        assert_eq!(core.digest(), line["digest"]);
        steps += 1;
    }
    // Three requests arrive, start, and but for the first return; a cancel arrives, starts and returns; the input ends.
    assert_eq!(steps, 3 + 3 + 2 + 3 + 1);
}
