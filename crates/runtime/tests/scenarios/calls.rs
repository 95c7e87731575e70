//! Calls to the client.

use lastword::{
    CallError,
    schema::v1::{ReadTextFileRequest, StopReason},
};
use serde_json::json;

use crate::peer::{Peer, cancel, prompt, soon};

#[tokio::test(start_paused = true)]
async fn a_call_gets_the_clients_result_or_its_error() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "1")]).await;
    let turn = peer.prompt("1").await;
    for (member, content) in
        [(r#""result":{"content":"text"}"#, Some("text")), (r#""error":{"code":-32002,"message":"gone"}"#, None)]
    {
        let client = turn.context.client();
        let reading = tokio::spawn(async move { client.read_text_file(ReadTextFileRequest::new("s", "/file")).await });
        let call = peer.message().await;
        assert_eq!(call["method"], "fs/read_text_file");
        assert_eq!(call["params"], json!({"sessionId": "s", "path": "/file"}));
        peer.lines(&[format!(r#"{{"jsonrpc":"2.0","id":{},{member}}}"#, call["id"])]).await;
        match (soon(reading).await.unwrap(), content) {
            (Ok(response), Some(content)) => assert_eq!(response.content, content),
            (Err(CallError::Refused { error, .. }), None) => assert_eq!(i32::from(error.code), -32002),
            (other, _) => panic!("{other:?}"),
        }
    }
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(1).await, "end_turn");
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_result_of_another_shape_is_an_error_that_names_the_method() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "1")]).await;
    let turn = peer.prompt("1").await;
    let client = turn.context.client();
    let reading = tokio::spawn(async move { client.read_text_file(ReadTextFileRequest::new("s", "/file")).await });
    let call = peer.message().await;
    peer.lines(&[format!(r#"{{"id":{}.0,"result":5}}"#, call["id"])]).await;
    let error = soon(reading).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("`fs/read_text_file`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_cancelled_at_the_client_and_its_late_response_disturbs_nobody() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "1")]).await;
    let turn = peer.prompt("1").await;
    let client = turn.context.client();
    let reading = tokio::spawn(async move { client.read_text_file(ReadTextFileRequest::new("s", "/file")).await });
    let call = peer.message().await["id"].clone();
    reading.abort();
    let cancelled = peer.message().await;
    assert_eq!(cancelled["method"], "$/cancel_request");
    assert_eq!(cancelled["params"], json!({ "requestId": call }));
    peer.lines(&[format!(r#"{{"id":{call},"result":{{"content":""}}}}"#), prompt(2, "other", "at once")]).await;
    assert_eq!(peer.answer(2).await, "end_turn");
}

#[tokio::test(start_paused = true)]
async fn callers_learn_that_the_peer_disconnected() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "1")]).await;
    let turn = peer.prompt("1").await;
    let client = turn.context.client();
    let read = |client: lastword::ClientHandle| async move {
        client.read_text_file(ReadTextFileRequest::new("s", "/file")).await
    };
    let reading = tokio::spawn(read(client.clone()));
    assert_eq!(peer.message().await["method"], "fs/read_text_file");
    peer.end_input().await;
    assert!(matches!(soon(reading).await.unwrap(), Err(CallError::Disconnected)));
    assert!(matches!(soon(read(client.clone())).await, Err(CallError::Disconnected)));
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(peer.answer(1).await, "cancelled");
    assert_eq!(peer.rest().await.len(), 0);
    assert!(matches!(soon(read(client.detached())).await, Err(CallError::Disconnected)));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_dropped_takes_its_calls_along() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "1")]).await;
    let turn = peer.prompt("1").await;
    peer.lines(&[cancel("s")]).await;
    peer.method("cancel s").await.answer(Ok(()));
    // A call by a turn that was ended is still a call.
    let client = turn.context.client();
    let reading = tokio::spawn(async move { client.read_text_file(ReadTextFileRequest::new("s", "/file")).await });
    let call = peer.message().await["id"].clone();
    peer.lines(&[format!(r#"{{"id":{call},"result":{{"content":"x"}}}}"#)]).await;
    assert_eq!(soon(reading).await.unwrap().unwrap().content, "x");
}
