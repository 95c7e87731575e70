//! The end of the client's input, at any time.

use serde_json::json;

use crate::scene::{CANCELLED, Scene, prompt};

#[tokio::test]
async fn at_the_end_of_input_turns_end_and_the_agent_is_asked_to_exit() {
    let mut scene = Scene::start().await;
    let turn = scene.prompt(1, "s").await;
    scene.client.ends();
    assert_eq!(scene.agent.hears_call("session/cancel").await.params(), json!({"sessionId": "s"}));
    scene.agent.answers(turn.id(), CANCELLED).await;
    assert_eq!(scene.client.hears().await.raw_result(), CANCELLED);
    assert_eq!(scene.client.next().await, None);
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn at_the_end_of_input_a_turn_that_the_agent_does_not_end_is_given_up() {
    let mut scene = Scene::with(&["--grace", "100"]).await;
    scene.prompt(1, "s").await;
    scene.client.says(&[prompt(2, "t")]).await;
    scene.client.ends();
    assert_eq!(scene.client.hears().await.result(), json!({"stopReason": "cancelled"}));
    assert_eq!(scene.client.hears().await.result(), json!({"stopReason": "cancelled"}));
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn an_agent_that_asks_a_client_that_is_gone_gets_an_error() {
    let mut scene = Scene::start().await;
    let turn = scene.prompt(1, "s").await;
    scene.agent.says(&[r#"{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{}}"#]).await;
    scene.client.hears_call("session/request_permission").await;
    scene.client.ends();
    let answer = loop {
        let line = scene.agent.hears().await;
        if line.method.is_none() {
            break line;
        }
    };
    assert_eq!((answer.id(), answer.error()["data"]["what"].clone()), ("\"p\"", json!("the client ended its side")));
    scene.agent.answers(turn.id(), CANCELLED).await;
    assert_eq!(scene.client.hears().await.id(), "1");
    assert!(scene.end().await.0.success());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_guard_that_is_told_to_terminate_leaves_no_agent_behind() {
    let mut scene = Scene::start().await;
    scene.prompt(1, "s").await;
    let killed = std::process::Command::new("kill").arg(scene.id().to_string()).status().unwrap();
    assert!(killed.success());
    // The agent's process holds the other end of this.
    while scene.agent.next().await.is_some() {}
    assert!(scene.end().await.0.success());
}
