//! Cancels in every form, before agents that come late to them or never.

use serde_json::json;

use crate::scene::{Agent, CANCELLED, END_TURN, Line, Scene, cancel, prompt};

/// The next line of the agent that is not one more cancel.
async fn after_cancels(agent: &mut Agent) -> Line {
    loop {
        let line = agent.hears().await;
        if line.method() != "session/cancel" {
            return line;
        }
    }
}

#[tokio::test]
async fn a_cancel_is_said_again_to_an_agent_that_lost_it() {
    let mut scene = Scene::start().await;
    let first = scene.prompt(1, "s").await;
    scene.client.says(&[cancel("s")]).await;
    for _ in 0..4 {
        let told = scene.agent.hears_call("session/cancel").await;
        assert_eq!(told.params.unwrap().get(), r#"{"sessionId":"s","_meta":1.0}"#);
    }
    scene.agent.answers(first.id(), CANCELLED).await;
    assert_eq!(scene.client.hears().await.raw_result(), CANCELLED);
    // Once it has answered, no further cancel can hit its next turn.
    scene.client.says(&[prompt(2, "s")]).await;
    let second = after_cancels(&mut scene.agent).await;
    assert_eq!(second.params()["n"], 2);
    scene.client.says(&[r#"{"jsonrpc":"2.0","id":3,"method":"_x"}"#]).await;
    let other = scene.agent.hears_call("_x").await;
    assert!(other.params.is_none());
    scene.agent.answers(other.id(), "null").await;
    assert_eq!(scene.client.hears().await.id(), "3");
    scene.agent.answers(second.id(), END_TURN).await;
    assert_eq!(scene.client.hears().await.id(), "2");
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn a_cancel_request_is_answered_here_and_becomes_a_notification() {
    let mut scene = Scene::start().await;
    let first = scene.prompt(1, "s").await;
    scene.client.says(&[r#"{"jsonrpc":"2.0","id":"c","method":"session/cancel","params":{"sessionId":"s"}}"#]).await;
    let answer = scene.client.hears().await;
    assert_eq!((answer.id(), answer.raw_result()), ("\"c\"", "null"));
    assert!(scene.agent.hears_call("session/cancel").await.id.is_none());
    // Whatever the agent says of a turn that was ended, it was cancelled.
    scene.agent.answers(first.id(), END_TURN).await;
    assert_eq!(scene.client.hears().await.result(), json!({"stopReason": "cancelled"}));
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn a_cancel_of_a_session_without_a_prompt_does_not_reach_the_agent() {
    let mut scene = Scene::start().await;
    scene.client.says(&[cancel("s"), prompt(1, "s")]).await;
    let first = scene.agent.hears_call("session/prompt").await;
    scene.client.says(&[cancel("t")]).await;
    scene.agent.answers(first.id(), END_TURN).await;
    assert_eq!(scene.client.hears().await.raw_result(), END_TURN);
    scene.client.ends();
    assert_eq!(scene.agent.next().await, None);
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn a_prompt_whose_cancel_the_agent_never_answers_is_given_up_after_the_grace_period() {
    let mut scene = Scene::with(&["--grace", "100"]).await;
    let first = scene.prompt(1, "s").await;
    scene.client.says(&[prompt(2, "s")]).await;
    let answer = scene.client.hears().await;
    assert_eq!((answer.id(), answer.result()), ("1", json!({"stopReason": "cancelled"})));
    let given_up = after_cancels(&mut scene.agent).await;
    assert_eq!(
        (given_up.method(), given_up.params()["requestId"].to_string().as_str()),
        ("$/cancel_request", first.id())
    );
    let second = scene.agent.hears_call("session/prompt").await;
    // The late answer finds nothing, and ends nothing.
    scene.agent.answers(first.id(), END_TURN).await;
    scene.agent.answers(second.id(), END_TURN).await;
    assert_eq!(scene.client.hears().await.id(), "2");
    let (status, log) = scene.end().await;
    assert!(status.success());
    assert!(log.contains("a response to no call"), "{log}");
}

#[tokio::test]
async fn answers_that_come_out_of_order_reach_their_requests() {
    let mut scene = Scene::start().await;
    let sessions = ["a", "b", "c"];
    let mut turns = Vec::new();
    for (id, session) in (1..).zip(sessions) {
        turns.push(scene.prompt(id, session).await);
    }
    scene.client.says(&[cancel("b")]).await;
    assert_eq!(scene.agent.hears_call("session/cancel").await.params()["sessionId"], "b");
    scene.agent.answers(turns[2].id(), r#"{"stopReason":"end_turn","t":3}"#).await;
    assert_eq!(scene.client.hears().await.id(), "3");
    scene.agent.answers(turns[0].id(), r#"{"stopReason":"end_turn","t":1}"#).await;
    let answer = scene.client.hears().await;
    assert_eq!((answer.id(), answer.result()["t"].clone()), ("1", json!(1)));
    scene.agent.answers(turns[1].id(), CANCELLED).await;
    assert_eq!(scene.client.hears().await.id(), "2");
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn a_cancelled_request_is_cancelled_at_the_other_side_under_its_id_there() {
    let mut scene = Scene::start().await;
    scene.client.says(&[r#"{"jsonrpc":"2.0","id":"x","method":"_long","params":[]}"#]).await;
    let call = scene.agent.hears_call("_long").await;
    scene.client.says(&[r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"x"}}"#]).await;
    assert_eq!(scene.client.hears().await.error()["code"], -32800);
    let told = scene.agent.hears_call("$/cancel_request").await;
    assert_eq!(told.params()["requestId"].to_string(), call.id());

    scene.agent.says(&[r#"{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{}}"#]).await;
    let call = scene.client.hears_call("session/request_permission").await;
    scene.agent.says(&[r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"p"}}"#]).await;
    let answer = scene.agent.hears().await;
    assert_eq!((answer.id(), answer.error()["code"].clone()), ("\"p\"", json!(-32800)));
    let told = scene.client.hears_call("$/cancel_request").await;
    assert_eq!(told.params()["requestId"].to_string(), call.id());
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn closing_a_session_comes_after_the_end_of_its_prompt() {
    let mut scene = Scene::start().await;
    let first = scene.prompt(1, "s").await;
    scene.client.says(&[r#"{"jsonrpc":"2.0","id":2,"method":"session/close","params":{"sessionId":"s"}}"#]).await;
    assert_eq!(scene.agent.hears_call("session/cancel").await.params(), json!({"sessionId": "s"}));
    scene.agent.answers(first.id(), CANCELLED).await;
    assert_eq!(scene.client.hears().await.id(), "1");
    let close = after_cancels(&mut scene.agent).await;
    assert_eq!((close.method(), close.params()), ("session/close", json!({"sessionId": "s"})));
    scene.agent.answers(close.id(), "{}").await;
    assert_eq!(scene.client.hears().await.id(), "2");
    assert!(scene.end().await.0.success());
}
