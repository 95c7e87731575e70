//! What becomes of prompts that overlap.

use serde_json::json;

use crate::scene::{CANCELLED, END_TURN, Scene, cancel, prompt};

#[tokio::test]
async fn a_newer_prompt_replaces_the_older_one_once_that_has_its_answer() {
    let mut scene = Scene::start().await;
    let first = scene.prompt(1, "s").await;
    scene.client.says(&[prompt(2, "s")]).await;
    let told = scene.agent.hears_call("session/cancel").await;
    assert_eq!(told.params(), json!({"sessionId": "s"}));
    assert!(told.id.is_none());
    scene.agent.answers(first.id(), CANCELLED).await;
    let answer = scene.client.hears().await;
    assert_eq!((answer.id(), answer.raw_result()), ("1", CANCELLED));
    let second = loop {
        // It may have been told again before it answered.
        let line = scene.agent.hears().await;
        if line.method() != "session/cancel" {
            break line;
        }
    };
    assert_eq!(second.params()["n"], 2);
    scene.agent.answers(second.id(), END_TURN).await;
    let answer = scene.client.hears().await;
    assert_eq!((answer.id(), answer.raw_result()), ("2", END_TURN));
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn of_many_prompts_in_one_write_the_agent_sees_the_last_one_only() {
    let mut scene = Scene::start().await;
    scene.client.says(&(1..=50).map(|id| prompt(id, "s")).collect::<Vec<_>>()).await;
    let only = scene.agent.hears_call("session/prompt").await;
    assert_eq!(only.params()["n"], 50);
    scene.agent.answers(only.id(), END_TURN).await;
    for _ in 1..50 {
        assert_eq!(scene.client.hears().await.result(), json!({"stopReason": "cancelled"}));
    }
    assert_eq!(scene.client.hears().await.id(), "50");
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn in_a_queue_prompts_come_one_after_the_other_and_a_cancel_ends_them_all() {
    let mut scene = Scene::with(&["--overlap", "queue"]).await;
    scene.client.says(&[prompt(1, "s"), prompt(2, "s"), prompt(3, "s"), prompt(4, "s")]).await;
    for (id, n) in [("1", 1), ("2", 2)] {
        let line = scene.agent.hears_call("session/prompt").await;
        assert_eq!(line.params()["n"], n);
        scene.agent.answers(line.id(), END_TURN).await;
        assert_eq!(scene.client.hears().await.id(), id);
    }
    let third = scene.agent.hears_call("session/prompt").await;
    scene.client.says(&[cancel("s")]).await;
    let told = scene.agent.hears_call("session/cancel").await;
    assert_eq!(told.params.unwrap().get(), r#"{"sessionId":"s","_meta":1.0}"#);
    let answer = scene.client.hears().await;
    assert_eq!((answer.id(), answer.result()), ("4", json!({"stopReason": "cancelled"})));
    scene.agent.answers(third.id(), CANCELLED).await;
    assert_eq!(scene.client.hears().await.id(), "3");
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn a_prompt_that_is_refused_changes_nothing() {
    let mut scene = Scene::with(&["--overlap", "refuse"]).await;
    let first = scene.prompt(1, "s").await;
    scene.client.says(&[prompt(2, "s")]).await;
    let refused = scene.client.hears().await;
    assert_eq!((refused.id(), refused.error()["code"].clone()), ("2", json!(lastword::SESSION_BUSY)));
    let other = scene.prompt(3, "t").await;
    scene.agent.answers(other.id(), END_TURN).await;
    assert_eq!(scene.client.hears().await.id(), "3");
    scene.agent.answers(first.id(), END_TURN).await;
    assert_eq!(scene.client.hears().await.id(), "1");
    let next = scene.prompt(4, "s").await;
    scene.agent.answers(next.id(), END_TURN).await;
    assert_eq!(scene.client.hears().await.id(), "4");
    assert!(scene.end().await.0.success());
}
