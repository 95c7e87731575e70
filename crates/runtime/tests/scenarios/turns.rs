//! Prompts and cancels of sessions: the promises of the domain turns, seen from the wire.

use lastword::{
    CallError, Cause, Options,
    schema::v1::{Error, StopReason},
};
use serde_json::Value;
use tokio::time::Instant;

use crate::peer::{Peer, cancel, cancel_as_request, cancel_request, prompt, request, soon};

#[tokio::test(start_paused = true)]
async fn the_newer_of_two_prompts_survives_and_the_older_one_ends() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "old")]).await;
    let old = peer.prompt("old").await;
    peer.lines(&[prompt(2, "s", "new")]).await;
    soon(old.context.cancellation().cancelled()).await;
    assert_eq!(old.context.cause(), Some(Cause::NewerPrompt));
    old.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(1).await, "cancelled");
    let new = peer.prompt("new").await;
    assert!(!new.context.cancellation().is_cancelled());
    new.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(2).await, "end_turn");
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn of_prompts_in_one_write_only_the_last_ones_handler_is_called() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "1"), prompt(2, "s", "2"), prompt(3, "s", "3")]).await;
    let last = peer.prompt("3").await;
    last.answer(Ok(StopReason::EndTurn));
    for (id, reason) in [(1, "cancelled"), (2, "cancelled"), (3, "end_turn")] {
        assert_eq!(peer.answer(id).await, reason);
    }
    assert!(peer.no_prompt());
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deaf_handler_is_dropped_after_the_grace_period_and_only_then_the_next_turn_starts() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "deaf")]).await;
    let mut deaf = peer.prompt("deaf").await;
    let begin = Instant::now();
    peer.lines(&[prompt(2, "s", "next")]).await;
    let next = peer.prompt("next").await;
    assert!(deaf.is_dropped());
    assert_eq!(begin.elapsed().as_secs(), Options::default().grace.as_secs());
    deaf.dropped().await;
    assert_eq!(peer.answer(1).await, "cancelled");
    next.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(2).await, "end_turn");
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_prompt_before_it_and_spares_the_one_after_it() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "before")]).await;
    let before = peer.prompt("before").await;
    peer.lines(&[cancel("s"), prompt(2, "s", "after")]).await;
    let hook = peer.method("cancel s").await;
    assert_eq!(before.context.cause(), Some(Cause::Cancel));
    before.answer(Err(Error::internal_error()));
    assert_eq!(peer.answer(1).await, "cancelled");
    // However long the cancel's own handler takes.
    assert!(peer.no_prompt());
    hook.answer(Ok(()));
    let after = peer.prompt("after").await;
    assert!(!after.context.cancellation().is_cancelled());
    after.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(2).await, "end_turn");
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_as_a_request_does_the_same_and_is_answered_null_after_its_handler() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "before"), cancel_as_request(2, "s"), prompt(3, "s", "after")]).await;
    let hook = peer.method("cancel s").await;
    let after = peer.prompt("after").await;
    after.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(1).await, "cancelled");
    assert_eq!(peer.answer(3).await, "end_turn");
    hook.answer(Ok(()));
    assert_eq!(peer.line().await.unwrap(), r#"{"jsonrpc":"2.0","id":2,"result":null}"#);
    assert!(peer.no_prompt());
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_one_session_leaves_the_other_alone() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "a", "1"), prompt(2, "b", "2")]).await;
    let (a, b) = (peer.prompt("1").await, peer.prompt("2").await);
    peer.lines(&[cancel("a")]).await;
    peer.method("cancel a").await.answer(Ok(()));
    assert!(a.context.cancellation().is_cancelled());
    assert!(!b.context.cancellation().is_cancelled());
    a.answer(Ok(StopReason::Cancelled));
    b.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(1).await, "cancelled");
    assert_eq!(peer.answer(2).await, "end_turn");
}

#[tokio::test(start_paused = true)]
async fn closing_a_session_ends_its_prompts() {
    let mut peer = Peer::start();
    let close = r#"{"jsonrpc":"2.0","id":2,"method":"session/close","params":{"sessionId":"s"}}"#;
    peer.lines(&[prompt(1, "s", "1")]).await;
    let turn = peer.prompt("1").await;
    peer.lines(&[close.to_owned()]).await;
    peer.method("close s").await.answer(Ok(()));
    assert_eq!(peer.message().await["id"], 2);
    assert_eq!(turn.context.cause(), Some(Cause::Cancel));
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(1).await, "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_request_cancel_ends_the_prompt_with_that_id_and_nothing_else() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "a", "1"), prompt(2, "b", "2")]).await;
    let (a, b) = (peer.prompt("1").await, peer.prompt("2").await);
    peer.lines(&[cancel_request(7), cancel_request(2)]).await;
    soon(b.context.cancellation().cancelled()).await;
    assert_eq!(b.context.cause(), Some(Cause::RequestCancel));
    assert!(!a.context.cancellation().is_cancelled());
    b.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(2).await, "cancelled");
    a.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(1).await, "end_turn");
}

#[tokio::test(start_paused = true)]
async fn another_request_that_was_cancelled_says_so_even_where_its_handler_is_deaf() {
    let mut peer = Peer::start();
    peer.lines(&[request(1, "_slow")]).await;
    let mut slow = peer.method("_slow").await;
    peer.lines(&[cancel_request(1)]).await;
    soon(slow.context.cancellation().cancelled()).await;
    slow.dropped().await;
    assert_eq!(peer.answer(1).await, -32800);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_failed_or_panicked_is_answered_with_an_error_and_the_session_goes_on() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "fail")]).await;
    peer.prompt("fail").await.answer(Err(Error::new(-32050, "no")));
    assert_eq!(peer.answer(1).await, -32050);
    peer.lines(&[prompt(2, "s", "panic")]).await;
    assert_eq!(peer.answer(2).await, -32603);
    peer.lines(&[prompt(3, "s", "at once")]).await;
    assert_eq!(peer.answer(3).await, "end_turn");
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_prompt_ends_nothing() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "1")]).await;
    let turn = peer.prompt("1").await;
    let invalid =
        r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":5}]}}"#;
    peer.lines(&[invalid.to_owned()]).await;
    let message = peer.message().await;
    assert_eq!(message["error"]["code"], -32602);
    assert!(message["error"]["message"].as_str().unwrap().contains("`prompt[0]"), "{message}");
    assert!(!turn.context.cancellation().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn no_update_of_a_turn_follows_its_response_also_from_a_task_that_its_handler_spawned() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "1")]).await;
    let turn = peer.prompt("1").await;
    let (late, client) = (turn.context.clone(), turn.context.client());
    let speaker = tokio::spawn(async move {
        let mut said = 0;
        while late.say("more").await.is_ok() {
            said += 1;
            tokio::task::yield_now().await;
        }
        assert!(matches!(late.say("too late").await, Err(CallError::TurnOver)));
        said
    });
    assert_eq!(peer.message().await["method"], "session/update");
    turn.answer(Ok(StopReason::EndTurn));
    let mut updates = 1;
    let response = loop {
        let message = peer.message().await;
        if message["method"] == Value::Null {
            break message;
        }
        updates += 1;
    };
    assert_eq!(response["id"], 1);
    assert_eq!(soon(speaker).await.unwrap(), updates);
    // A handle that belongs to no turn may speak on.
    let ping =
        || lastword::schema::v1::ExtNotification::new("_ping", lastword::schema::v1::RawValue::NULL.to_owned().into());
    assert!(matches!(client.ext_notification(ping()).await, Err(CallError::TurnOver)));
    client.detached().ext_notification(ping()).await.unwrap();
    assert_eq!(peer.message().await["method"], "_ping");
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_notifications_before_it_but_not_while_their_handler_waits_for_the_peer() {
    let mut peer = Peer::start();
    peer.lines(&[crate::peer::notification("_first"), crate::peer::notification("_second"), request(1, "_after")])
        .await;
    let first = peer.method("_first").await;
    assert!(peer.no_method());
    first.answer(Ok(()));
    let second = peer.method("_second").await;
    let client = second.context.client();
    let asking = tokio::spawn(async move {
        let question =
            lastword::schema::v1::ExtRequest::new("_question", lastword::schema::v1::RawValue::NULL.to_owned().into());
        client.ext_method(question).await
    });
    let question = peer.message().await;
    peer.method("_after").await.answer(Ok(()));
    assert_eq!(peer.message().await["id"], 1);
    peer.lines(&[format!(r#"{{"id":{},"result":7}}"#, question["id"])]).await;
    assert_eq!(soon(asking).await.unwrap().unwrap().0.get(), "7");
    second.answer(Ok(()));
    assert_eq!(peer.rest().await.len(), 0);
}
