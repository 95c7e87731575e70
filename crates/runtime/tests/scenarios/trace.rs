//! The trace of a connection is enough to do all of it again.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use lastword::schema::v1::StopReason;
use lastword_core::{Connection, Effects, Limits, Step};
use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::peer::{Peer, cancel, prompt, request};

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn the_steps_of_a_trace_give_the_same_effects_and_states_again() {
    let buffer = Buffer::default();
    let subscriber = tracing_subscriber::registry().with(lastword::trace::layer(buffer.clone()));
    let _default = tracing::subscriber::set_default(subscriber);
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "old"), prompt(2, "s", "new"), request(3, "_echo")]).await;
    peer.prompt("new").await.answer(Ok(StopReason::EndTurn));
    peer.lines(&[cancel("s")]).await;
    peer.method("cancel s").await.answer(Ok(()));
    assert_eq!(peer.rest().await.len(), 3);

    let trace = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    let mut lines = trace.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let header = lines.next().unwrap();
    let mut limits = Limits::default();
    limits.requests_in_flight_max = header["limits"]["requests_in_flight_max"].as_u64().unwrap() as usize;
    limits.notifications_queued_max = header["limits"]["notifications_queued_max"].as_u64().unwrap() as usize;
    let mut core = Connection::new(limits);
    let mut steps = 0;
    for line in lines {
        assert_eq!(line["connection"], header["connection"]);
        let step: Step = serde_json::from_value(line["step"].clone()).unwrap();
        let effects: Effects = serde_json::from_value(line["effects"].clone()).unwrap();
        assert_eq!(core.apply(step).unwrap(), effects);
        assert_eq!(core.digest(), line["digest"]);
        steps += 1;
    }
    // Three requests arrive, start, and but for the first return; a cancel arrives, starts and returns; the input ends.
    assert_eq!(steps, 3 + 3 + 2 + 3 + 1);
}
