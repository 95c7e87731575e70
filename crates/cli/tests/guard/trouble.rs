//! Agents that die, hang or print noise.

use serde_json::json;

use crate::scene::{CANCELLED, END_TURN, EXIT, LAST_WORDS, Scene, cancel, prompt};

#[tokio::test]
async fn each_request_in_flight_learns_how_the_agent_died() {
    let mut scene = Scene::start().await;
    scene.prompt(1, "a").await;
    scene.prompt(2, "b").await;
    scene.client.says(&[r#"{"jsonrpc":"2.0","id":3,"method":"_x"}"#]).await;
    scene.agent.hears_call("_x").await;
    // This one is held: its session has another prompt, which has been ended.
    scene.client.says(&[prompt(4, "b")]).await;
    scene.agent.hears_call("session/cancel").await;
    scene.agent.ends();
    let mut answered = Vec::new();
    while let Some(line) = scene.client.next().await {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        answered.push(line["id"].as_u64().unwrap());
        if line["id"] == 2 {
            assert_eq!(line["result"], json!({"stopReason": "cancelled"}));
            continue;
        }
        assert_eq!(line["error"]["code"], -32603, "{line}");
        assert_eq!(line["error"]["data"]["what"], "the agent exited");
        assert_eq!(line["error"]["data"]["how"], format!("exit status: {EXIT}"));
        assert_eq!(line["error"]["data"]["stderr"], json!([LAST_WORDS]));
    }
    answered.sort_unstable();
    assert_eq!(answered, [1, 2, 3, 4]);
    let (status, log) = scene.end().await;
    assert_eq!(status.code(), Some(1));
    // Once as it came, once in the last line of the guard.
    assert_eq!(log.matches(LAST_WORDS).count(), 2, "{log}");
    assert!(log.contains(&format!("the agent ended before the client did: exit status: {EXIT}")), "{log}");
}

#[tokio::test]
async fn noise_on_the_agents_output_never_reaches_the_client() {
    let mut scene = Scene::start().await;
    let turn = scene.prompt(1, "s").await;
    scene.agent.says(&["Welcome!", "{\"half\":", "[1,2]", "{}", "\u{7f}", r#"{"id":99,"result":1}"#]).await;
    scene.agent.answers(turn.id(), END_TURN).await;
    assert_eq!(scene.client.hears().await.id(), "1");
    let (status, log) = scene.end().await;
    assert!(status.success());
    assert!(log.contains("Welcome!") && log.contains("a response to no call"), "{log}");
}

#[tokio::test]
async fn a_request_that_the_agent_does_not_answer_in_time_gets_an_error() {
    let mut scene = Scene::with(&["--answer-within", "0.2"]).await;
    scene.client.says(&[r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}"#]).await;
    let call = scene.agent.hears_call("session/new").await;
    let answer = scene.client.hears().await;
    assert_eq!(answer.error()["code"], -32603);
    assert!(answer.error()["data"]["what"].as_str().unwrap().contains("`session/new`"));
    assert_eq!(scene.agent.hears_call("$/cancel_request").await.params()["requestId"].to_string(), call.id());
    scene.agent.answers(call.id(), "{}").await;
    let turn = scene.prompt(2, "s").await;
    scene.agent.answers(turn.id(), END_TURN).await;
    assert_eq!(scene.client.hears().await.id(), "2");
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn a_turn_in_which_the_agent_says_nothing_is_cancelled_and_then_given_up() {
    let mut scene = Scene::with(&["--silence", "0.3", "--grace", "100"]).await;
    let turn = scene.prompt(1, "s").await;
    assert_eq!(scene.agent.hears_call("session/cancel").await.params(), json!({"sessionId": "s"}));
    let answer = scene.client.hears().await;
    assert!(answer.error()["data"]["what"].as_str().unwrap().contains("said nothing at all for 300ms"));
    scene.agent.answers(turn.id(), CANCELLED).await;
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn an_agent_that_waits_for_the_client_is_not_silent() {
    let mut scene = Scene::with(&["--silence", "1", "--answer-within", "1"]).await;
    scene.client.says(&[r#"{"jsonrpc":"2.0","id":9,"method":"authenticate","params":{}}"#, &prompt(1, "s")]).await;
    let login = scene.agent.hears_call("authenticate").await;
    let turn = scene.agent.hears_call("session/prompt").await;
    scene.agent.says(&[r#"{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{}}"#]).await;
    let asked = scene.client.hears_call("session/request_permission").await;
    // The user thinks for longer than the agent may be silent; there is no event to wait for.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    scene.client.answers(asked.id(), "{}").await;
    assert_eq!(scene.agent.hears().await.id(), "\"p\"");
    scene.agent.answers(turn.id(), END_TURN).await;
    assert_eq!(scene.client.hears().await.id(), "1");
    scene.agent.answers(login.id(), "{}").await;
    assert_eq!(scene.client.hears().await.id(), "9");
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn an_error_of_the_agent_that_came_after_a_cancel_is_still_a_cancelled_turn() {
    let mut scene = Scene::start().await;
    let turn = scene.prompt(1, "s").await;
    scene.client.says(&[cancel("s")]).await;
    scene.agent.hears_call("session/cancel").await;
    scene.agent.says(&[format!(r#"{{"id":{},"error":{{"code":-32800,"message":"aborted"}}}}"#, turn.id())]).await;
    assert_eq!(scene.client.hears().await.result(), json!({"stopReason": "cancelled"}));
    assert!(scene.end().await.0.success());
}

#[test]
fn an_agent_that_cannot_be_started_is_named() {
    let guard = std::process::Command::new(env!("CARGO_BIN_EXE_lastword"))
        .args(["guard", "--", "/nowhere/agent"])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(guard.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&guard.stderr).contains("the agent `/nowhere/agent` could not be started"));
}
