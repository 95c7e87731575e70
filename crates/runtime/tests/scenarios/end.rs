//! How a connection ends, and what happens where one side is slow.

use lastword::{CallError, Cause, Options, ServeError, schema::v1::StopReason};
use tokio::time::Instant;

use crate::peer::{Peer, notification, prompt, request, soon};

#[tokio::test(start_paused = true)]
async fn at_end_of_input_every_turn_ends_and_other_requests_finish() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "a", "1"), prompt(2, "b", "2"), request(3, "_slow")]).await;
    let (a, b) = (peer.prompt("1").await, peer.prompt("2").await);
    let slow = peer.method("_slow").await;
    peer.end_input().await;
    soon(a.context.cancellation().cancelled()).await;
    assert_eq!(b.context.cause(), Some(Cause::InputEnded));
    assert!(!slow.context.cancellation().is_cancelled());
    a.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(1).await, "cancelled");
    slow.answer(Ok(()));
    assert_eq!(peer.line().await.unwrap(), r#"{"jsonrpc":"2.0","id":3,"result":null}"#);
    // The other turn is deaf. It is dropped after the grace period, and still answered.
    assert_eq!(peer.answer(2).await, "cancelled");
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_finish_after_the_end_of_input_is_given_up_after_the_drain_time() {
    let mut peer = Peer::start();
    peer.lines(&[request(1, "_slow")]).await;
    let mut slow = peer.method("_slow").await;
    let begin = Instant::now();
    peer.end_input().await;
    slow.dropped().await;
    assert_eq!(begin.elapsed().as_secs(), Options::default().drain_max.as_secs());
    let error = soon(&mut peer.served).await.unwrap().unwrap_err();
    assert!(matches!(error, ServeError::Unfinished { requests: 1, bytes: 0 }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_connection_drops_its_handlers_and_disconnects_its_handles() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "1")]).await;
    let mut turn = peer.prompt("1").await;
    peer.served.abort();
    turn.dropped().await;
    assert!(matches!(turn.context.say("hello?").await, Err(CallError::Disconnected)));
}

#[tokio::test(start_paused = true)]
async fn while_the_peer_does_not_read_updates_wait_and_nothing_more_is_taken_in() {
    const SMALL: usize = 1000;
    let mut options = Options::default();
    options.out_bytes_max = SMALL;
    options.read_ahead_bytes_max = SMALL;
    let mut peer = Peer::with_pipe(options, SMALL);
    peer.lines(&[prompt(1, "s", "1")]).await;
    let turn = peer.prompt("1").await;
    let speaker = turn.context.clone();
    let speaking = tokio::spawn(async move {
        for _ in 0..1000 {
            speaker.say("more").await.unwrap();
        }
    });
    // The stream and the output are full: the next prompt is not taken in, so the first one is not ended.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!speaking.is_finished());
    peer.lines(&[prompt(2, "s", "2")]).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(turn.context.cause(), None);
    // Once the peer reads, all goes on.
    for _ in 0..1000 {
        assert_eq!(peer.message().await["method"], "session/update");
    }
    soon(speaking).await.unwrap();
    soon(turn.context.cancellation().cancelled()).await;
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(1).await, "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_ends_its_side_and_never_reads_is_given_up_after_the_drain_time() {
    const SMALL: usize = 1000;
    let mut options = Options::default();
    options.out_bytes_max = SMALL;
    let mut peer = Peer::with_pipe(options, SMALL);
    let begin = Instant::now();
    for id in 0..1000 {
        peer.lines(&[prompt(id, "s", "at once")]).await;
    }
    peer.end_input().await;
    let error = soon(&mut peer.served).await.unwrap().unwrap_err();
    assert!(matches!(error, ServeError::Unfinished { bytes, .. } if bytes >= SMALL), "{error}");
    assert_eq!(begin.elapsed().as_secs(), Options::default().drain_max.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_broken_pipe_ends_the_connection_and_its_turns() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "1")]).await;
    let turn = peer.prompt("1").await;
    let Peer { served, .. } = { peer };
    let _ = turn.context.say("hello?").await;
    soon(turn.context.cancellation().cancelled()).await;
    turn.answer(Ok(StopReason::EndTurn));
    assert!(soon(served).await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn where_the_queue_of_notifications_is_full_the_reader_waits() {
    let mut options = Options::default();
    options.notifications_queued_max = 2;
    let mut peer = Peer::with(options);
    peer.lines(&[notification("_1"), notification("_2"), notification("_3"), prompt(1, "s", "1")]).await;
    for asked in ["_1", "_2", "_3"] {
        let method = peer.method(asked).await;
        assert!(peer.no_method() && peer.no_prompt());
        method.answer(Ok(()));
    }
    peer.prompt("1").await.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(1).await, "end_turn");
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn where_that_wait_could_never_end_the_connection_closes_and_says_why() {
    let mut options = Options::default();
    options.notifications_queued_max = 1;
    options.notifications_stuck_max = 2;
    let mut peer = Peer::with(options);
    peer.lines(&[notification("_1"), notification("_2"), notification("_3")]).await;
    let first = peer.method("_1").await;
    let client = first.context.client();
    let null = lastword::schema::v1::RawValue::NULL.to_owned();
    let call = client.ext_method(lastword::schema::v1::ExtRequest::new("_question", null.into()));
    assert!(matches!(soon(call).await, Err(CallError::Disconnected)));
    first.answer(Ok(()));
    peer.method("_2").await.answer(Ok(()));
    let error = soon(&mut peer.served).await.unwrap().unwrap_err();
    assert!(matches!(error, ServeError::NotificationsStuck { queued: 2 }), "{error}");
}
