//! Bad input, row by row, as raw bytes: the agent says what is wrong, to whom it can, and goes on.

use serde_json::{Value, json};

use crate::process::Agent;

/// The line is answered to nobody with this code, logged, and the agent goes on.
async fn answered_to_nobody(line: &[u8], code: i64) {
    let mut agent = Agent::start();
    agent.line(line).await;
    agent.error(Value::Null, code).await;
    agent.goes_on().await;
    let log = agent.end().await.log;
    assert_eq!(log.matches("WARN").count(), 1, "{log}");
    let start = String::from_utf8_lossy(&line[..line.len().min(20)]).into_owned();
    assert!(log.contains(&start), "{log}");
}

#[tokio::test]
async fn a_line_that_is_not_json_is_answered_to_nobody() {
    answered_to_nobody(b"hello, agent", -32700).await;
}

#[tokio::test]
async fn a_line_that_is_not_utf8_is_answered_to_nobody() {
    answered_to_nobody(b"{\"id\":1,\"method\":\"\xff\"}", -32700).await;
}

#[tokio::test]
async fn a_line_that_is_no_object_is_answered_to_nobody() {
    answered_to_nobody(b"\"hello\"", -32600).await;
}

#[tokio::test]
async fn a_batch_is_answered_to_nobody() {
    answered_to_nobody(br#"[{"jsonrpc":"2.0","id":1,"method":"_lastword/echo"}]"#, -32600).await;
}

#[tokio::test]
async fn only_the_start_of_a_bad_line_is_logged() {
    let mut agent = Agent::start();
    agent.line("x".repeat(10_000)).await;
    agent.error(Value::Null, -32700).await;
    let log = agent.end().await.log;
    assert!(log.contains(&"x".repeat(200)) && !log.contains(&"x".repeat(201)), "{log}");
}

#[tokio::test]
async fn an_unknown_request_is_answered_and_an_unknown_notification_is_not() {
    let mut agent = Agent::start();
    agent.request(1, "session/fly", &json!({})).await;
    assert!(agent.error(1, -32601).await.contains("session/fly"));
    agent.request(2, "_other/method", &json!({})).await;
    assert!(agent.error(2, -32601).await.contains("_other/method"));
    agent.line(r#"{"jsonrpc":"2.0","method":"session/fly"}"#).await;
    agent.line(r#"{"jsonrpc":"2.0","method":"_other/method"}"#).await;
    agent.goes_on().await;
    assert_eq!(agent.end().await.log, "");
}

#[tokio::test]
async fn bad_parameters_name_the_field_and_change_nothing_else() {
    let mut agent = Agent::start();
    let session = agent.session().await;
    agent.prompt(1, &session, "started wait=600000").await;
    agent.says("started").await;
    for (params, field) in [
        (json!({"sessionId": session}), "`prompt`"),
        (json!({"sessionId": 5, "prompt": []}), "`sessionId`"),
        (json!({"sessionId": session, "prompt": [{"type": "text"}]}), "`prompt[0]`"),
        (json!([session, []]), "`params`"),
    ] {
        agent.request(2, "session/prompt", &params).await;
        let said = agent.error(2, -32602).await;
        assert!(said.contains(field), "{said}");
    }
    agent.line(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"session":1}}"#).await;
    agent.goes_on().await;
    // Nothing of all this has ended the turn.
    agent.prompt(3, &session, "done").await;
    agent.stops(1, "cancelled").await;
    agent.says("done").await;
    agent.stops(3, "end_turn").await;
}

#[tokio::test]
async fn a_request_with_an_id_in_use_is_refused_and_the_first_one_goes_on() {
    let mut agent = Agent::start();
    let session = agent.session().await;
    agent.prompt(1, &session, "started wait=600000").await;
    agent.says("started").await;
    agent.line(r#"{"jsonrpc":"2.0","id":1.0,"method":"_lastword/echo"}"#).await;
    let refused = agent.message().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1.0), &json!(-32600)));
    agent.line(format!(r#"{{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"{session}"}}}}"#)).await;
    agent.stops(1, "cancelled").await;
}

#[tokio::test]
async fn a_response_to_no_call_is_a_warning() {
    let mut agent = Agent::start();
    agent.line(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).await;
    agent.line(r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}"#).await;
    agent.goes_on().await;
    let log = agent.end().await.log;
    assert_eq!(log.matches("a response to no call").count(), 2, "{log}");
}

#[tokio::test]
async fn an_id_is_echoed_byte_for_byte() {
    let mut agent = Agent::start();
    let ids = ["1", "1.0", "1e0", "1.5", "-7", "9007199254740993", "18446744073709551616", "null", r#""\u00e9\ud800""#];
    for id in ids {
        agent.line(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"_lastword/echo","params":0}}"#)).await;
    }
    let left = agent.end().await;
    let expected: Vec<String> = ids.iter().map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":0}}"#)).collect();
    // The second and the third have the id of the first, which is in flight when they come in the same read.
    assert_eq!(left.lines.len(), ids.len());
    for expected in expected.iter().skip(3) {
        assert!(left.lines.contains(expected), "{expected} in {:?}", left.lines);
    }
}

#[tokio::test]
async fn what_is_no_id_and_an_id_that_is_too_long_are_refused() {
    for id in ["true", "[]", "{}"] {
        answered_to_nobody(format!(r#"{{"id":{id},"method":"_lastword/echo"}}"#).as_bytes(), -32600).await;
    }
    answered_to_nobody(format!(r#"{{"id":"{}","method":"_lastword/echo"}}"#, "x".repeat(4095)).as_bytes(), -32600)
        .await;
    let mut agent = Agent::start();
    agent.line(format!(r#"{{"id":"{}","method":"_lastword/echo","params":0}}"#, "x".repeat(4094))).await;
    assert_eq!(agent.message().await["result"], 0);
}

#[tokio::test]
async fn a_line_over_the_limit_is_skipped_without_being_kept() {
    const LIMIT: usize = 1 << 20;
    let mut agent = Agent::with(&["--line-bytes-max", &LIMIT.to_string()]);
    agent.goes_on().await;
    let before = agent.memory_peak_kib();
    for _ in 0..100 {
        agent.send("x".repeat(LIMIT)).await;
    }
    agent.send("\n").await;
    assert!(agent.error(Value::Null, -32600).await.contains(&LIMIT.to_string()));
    agent.goes_on().await;
    // Of a hundred times the limit, less than ten times was ever kept.
    let grown = agent.memory_peak_kib() - before;
    assert!(grown < 10 * 1024, "grown by {grown} KiB");
    let log = agent.end().await.log;
    assert_eq!(log.matches("WARN").count(), 1, "{log}");
}

#[tokio::test]
async fn a_last_line_without_a_newline_is_handled_where_it_is_complete() {
    let mut agent = Agent::start();
    agent.send(r#"{"jsonrpc":"2.0","id":1,"method":"_lastword/echo","params":0}"#).await;
    let left = agent.end().await;
    assert_eq!(left.lines, [r#"{"jsonrpc":"2.0","id":1,"result":0}"#]);
    let mut agent = Agent::start();
    agent.send(r#"{"jsonrpc":"2.0","id":1,"meth"#).await;
    let left = agent.end().await;
    assert!(left.status.success());
    assert_eq!(left.lines.len(), 0);
    assert!(left.log.contains("ERROR") && left.log.contains("the input ended within a line"), "{}", left.log);
}

#[tokio::test]
async fn where_the_peer_does_not_read_memory_stays_bounded_and_all_is_there_when_it_reads() {
    const UPDATES: u64 = 100_000;
    let mut agent = Agent::start();
    let session = agent.session().await;
    // What a prompt runs is in memory before it is measured what one with more updates takes.
    agent.prompt(1000, &session, "updates=1").await;
    agent.says("1").await;
    assert_eq!(agent.message().await["id"], 1000);
    let before = agent.memory_peak_kib();
    agent.prompt(1, &session, &format!("updates={UPDATES}")).await;
    agent.says("1").await;
    // The agent goes on until the pipe and its output are full. What follows is in its input, and waits there.
    for id in 2..1000 {
        agent.request(id, "_lastword/echo", &json!("x".repeat(100))).await;
    }
    let mut updates = 1;
    for _ in 0..UPDATES + 998 - 1 {
        if agent.message().await["method"] == "session/update" {
            updates += 1;
        }
    }
    assert_eq!(updates, UPDATES);
    // All updates together are 16 MB.
    let grown = agent.memory_peak_kib() - before;
    assert!(grown < 4 * 1024, "grown by {grown} KiB");
}

#[tokio::test]
async fn where_the_peer_never_reads_the_end_of_input_still_ends_it() {
    let mut agent = Agent::start();
    let session = agent.session().await;
    agent.prompt(1, &session, "updates=1000000").await;
    let (status, log) = agent.end_without_reading().await;
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("drain time"), "{log}");
}

#[tokio::test]
async fn a_broken_pipe_ends_it() {
    let mut agent = Agent::start();
    let session = agent.session().await;
    agent.prompt(1, &session, "started updates=1000000").await;
    agent.says("started").await;
    assert_eq!(agent.left_without_its_output().await.code(), Some(1));
}

#[tokio::test]
async fn at_the_bound_a_request_is_refused_and_a_cancel_gets_through() {
    let mut agent = Agent::with(&["--requests-in-flight-max", "1"]);
    let session = agent.session().await;
    agent.prompt(1, &session, "started wait=600000").await;
    agent.says("started").await;
    agent.request(2, "_lastword/echo", &json!(0)).await;
    let said = agent.error(2, -32005).await;
    assert!(said.contains("in flight"), "{said}");
    agent.line(format!(r#"{{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"{session}"}}}}"#)).await;
    agent.stops(1, "cancelled").await;
    agent.goes_on().await;
}

#[tokio::test]
async fn deep_nesting_duplicate_keys_and_lone_surrogates_are_refused_or_passed_on_unchanged() {
    let deep =
        format!(r#"{{"id":1,"method":"_lastword/echo","params":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    answered_to_nobody(deep.as_bytes(), -32700).await;
    answered_to_nobody(br#"{"id":1,"id":2,"method":"_lastword/echo"}"#, -32700).await;
    let mut agent = Agent::start();
    for params in [r#"{"a":1,"a":2}"#, r#"["\ud800"]"#] {
        agent.line(format!(r#"{{"id":1,"method":"_lastword/echo","params":{params}}}"#)).await;
    }
    agent.line(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"\ud800","prompt":[]}}"#).await;
    agent.line(r#"{"id":3,"method":"session/prompt","params":{"sessionId":"a","sessionId":"b","prompt":[]}}"#).await;
    let lines = agent.end().await.lines;
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().any(|line| line.contains(r#""result":{"a":1,"a":2}"#)), "{lines:?}");
    for id in [2, 3] {
        let refused = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"#);
        assert!(lines.iter().any(|line| line.starts_with(&refused)), "{lines:?}");
    }
}
