//! What the reference agent does.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::process::{Agent, soon};

#[tokio::test]
async fn it_says_what_it_can_do() {
    let mut agent = Agent::start();
    agent.request(1, "initialize", &json!({"protocolVersion": 1})).await;
    let result = agent.message().await["result"].take();
    assert_eq!(result["protocolVersion"], 1);
    assert_eq!(result["agentCapabilities"]["loadSession"], true);
    assert_eq!(result["agentCapabilities"]["sessionCapabilities"], json!({"list": {}, "close": {}}));
    assert_eq!(result["agentInfo"]["name"], "lastword");
}

#[tokio::test]
async fn sessions_are_opened_listed_loaded_and_closed_and_an_unknown_one_is_named() {
    let mut agent = Agent::start();
    let (one, two) = (agent.session().await, agent.session().await);
    assert_ne!(one, two);
    agent.request(1, "session/list", &json!({})).await;
    let listed = agent.message().await["result"]["sessions"].take();
    assert_eq!(listed, json!([{"sessionId": one, "cwd": "/"}, {"sessionId": two, "cwd": "/"}]));
    agent.request(2, "session/load", &json!({"sessionId": one, "cwd": "/", "mcpServers": []})).await;
    assert_eq!(agent.message().await["id"], 2);
    agent.request(3, "session/set_mode", &json!({"sessionId": one, "modeId": "any"})).await;
    assert_eq!(agent.message().await["id"], 3);
    agent.request(4, "session/close", &json!({"sessionId": one})).await;
    assert_eq!(agent.message().await["id"], 4);
    for (id, method, params) in [
        (5, "session/close", json!({"sessionId": one})),
        (6, "session/load", json!({"sessionId": one, "cwd": "/", "mcpServers": []})),
        (7, "session/set_mode", json!({"sessionId": one, "modeId": "any"})),
        (8, "session/prompt", json!({"sessionId": one, "prompt": []})),
    ] {
        agent.request(id, method, &params).await;
        let said = agent.error(id, -32602).await;
        assert!(said.contains(&one), "{said}");
    }
    assert_eq!(agent.session().await, "session-3");
}

#[tokio::test]
async fn the_steps_of_a_prompt_run_in_order() {
    let mut agent = Agent::start();
    let session = agent.session().await;
    agent.prompt(1, &session, "hello say=a=b wait=1 updates=3 deaf=1 world").await;
    for text in ["hello", "a=b", "1", "2", "3", "world"] {
        agent.says(text).await;
    }
    agent.stops(1, "end_turn").await;
    agent.prompt(2, &session, "wait=soon").await;
    let said = agent.error(2, -32602).await;
    assert!(said.contains("wait=soon"), "{said}");
    let left = agent.end().await;
    assert!(left.status.success());
    assert_eq!((left.lines.len(), left.log.as_str()), (0, ""));
}

#[tokio::test]
async fn it_asks_for_permission_and_says_what_came_of_it() {
    let mut agent = Agent::start();
    let session = agent.session().await;
    agent.prompt(1, &session, "permission").await;
    for (outcome, said) in [
        (json!({"outcome": "selected", "optionId": "allow"}), "allow"),
        (json!({"outcome": "selected", "optionId": "reject"}), "reject"),
        (json!({"outcome": "cancelled"}), "cancelled"),
    ] {
        let request = agent.message().await;
        assert_eq!(request["method"], "session/request_permission");
        let response = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"outcome": outcome}});
        agent.line(response.to_string()).await;
        agent.says(said).await;
        agent.stops(1, "end_turn").await;
        agent.prompt(1, &session, "permission").await;
    }
    // A cancel takes the question back.
    let question = agent.message().await["id"].clone();
    agent.line(format!(r#"{{"method":"session/cancel","params":{{"sessionId":"{session}"}}}}"#)).await;
    let withdrawn = agent.message().await;
    assert_eq!((&withdrawn["method"], &withdrawn["params"]["requestId"]), (&"$/cancel_request".into(), &question));
    agent.stops(1, "cancelled").await;
}

#[tokio::test]
async fn a_newer_prompt_ends_the_older_one_and_has_the_last_word() {
    let mut agent = Agent::start();
    let session = agent.session().await;
    agent.prompt(1, &session, "started wait=600000 never").await;
    agent.says("started").await;
    agent.prompt(2, &session, "newer").await;
    agent.stops(1, "cancelled").await;
    agent.says("newer").await;
    agent.stops(2, "end_turn").await;
}

#[tokio::test]
async fn a_deaf_turn_is_dropped_after_the_grace_period_that_was_asked_for() {
    let mut agent = Agent::with(&["--grace-ms", "50"]);
    let session = agent.session().await;
    agent.prompt(1, &session, "started deaf=600000 never").await;
    agent.says("started").await;
    agent.request(2, "session/cancel", &json!({"sessionId": session})).await;
    let null = agent.message().await;
    assert_eq!((&null["id"], &null["result"]), (&2.into(), &Value::Null));
    assert!(null.as_object().unwrap().contains_key("result"));
    agent.stops(1, "cancelled").await;
    agent.goes_on().await;
}

#[tokio::test]
async fn a_turn_that_fails_or_panics_is_answered_and_logged_and_the_agent_goes_on() {
    let mut agent = Agent::start();
    let session = agent.session().await;
    agent.prompt(1, &session, "fail").await;
    assert_eq!(agent.error(1, -32603).await, "the prompt said `fail`");
    agent.prompt(2, &session, "panic").await;
    agent.error(2, -32603).await;
    agent.goes_on().await;
    let log = agent.end().await.log;
    assert!(log.contains("ERROR") && log.contains("a handler panicked: the prompt said `panic`"), "{log}");
}

#[tokio::test]
async fn at_end_of_input_it_ends_its_turns_answers_them_and_exits() {
    let mut agent = Agent::start();
    let (one, two) = (agent.session().await, agent.session().await);
    agent.prompt(1, &one, "started wait=600000 never").await;
    agent.says("started").await;
    agent.prompt(2, &two, "permission never").await;
    agent.message().await;
    let left = agent.end().await;
    assert!(left.status.success());
    assert_eq!(
        left.lines.iter().filter(|line| line.contains(r#""result":{"stopReason":"cancelled"}"#)).count(),
        2,
        "{:?}",
        left.lines
    );
}

#[tokio::test]
async fn it_works_with_files_and_records_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("in"), "{\"id\":1,\"method\":\"_lastword/echo\",\"params\":7}\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
    command.arg("agent").env("LASTWORD_TRACE", path("trace"));
    command.stdin(std::fs::File::open(path("in")).unwrap()).stdout(std::fs::File::create(path("out")).unwrap());
    assert!(soon(command.stderr(Stdio::inherit()).status()).await.unwrap().success());
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    assert_eq!(read("out"), "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":7}\n");
    let steps: Vec<Value> = read("trace").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The limits, the arrival, the start, the return, the end of input.
    assert_eq!(steps.len(), 5);
    assert_eq!(steps[0]["limits"]["requests_in_flight_max"], 65_536);
    assert_eq!(steps[1]["step"], json!({"RequestArrived": {"id": "1"}}));
}

#[tokio::test]
async fn it_works_over_a_socket_pair() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
    command.arg("agent").stdin(std::os::fd::OwnedFd::from(theirs.try_clone().unwrap()));
    let mut child = command.stdout(std::os::fd::OwnedFd::from(theirs)).kill_on_drop(true).spawn().unwrap();
    drop(command);
    ours.set_nonblocking(true).unwrap();
    let mut stream = tokio::net::UnixStream::from_std(ours).unwrap();
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    stream.write_all(b"{\"id\":1,\"method\":\"_lastword/echo\",\"params\":7}\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut said = String::new();
    soon(stream.read_to_string(&mut said)).await.unwrap();
    assert_eq!(said, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":7}\n");
    assert!(soon(child.wait()).await.unwrap().success());
}
