//! What is too much.

use serde_json::json;

use crate::scene::{Fleet, bearer, call, post, tool};

#[test]
fn a_body_over_the_limit_is_refused_and_one_under_it_is_not() {
    let fleet = Fleet::new("body_bytes = 2000");
    let daemon = fleet.serve();
    let token = bearer(&fleet.token());
    let send = |bytes: usize| {
        let send = tool("fleet_send", &json!({"worker": 1, "content": "x".repeat(bytes)}));
        post(&daemon.address, "/mcp", &token, &send.to_string()).status
    };
    assert_eq!((send(1000), send(3000)), (200, 413));
    assert!(daemon.ends_on("-TERM").success());
}

#[test]
fn what_a_tool_refuses_is_said_to_the_model() {
    let fleet = Fleet::new("workers = 2\ntext_bytes = 20\ntickets_queued = 1");
    let daemon = fleet.serve();
    let token = fleet.token();
    let refused = |name: &str, arguments| {
        let response = post(&daemon.address, "/mcp", &bearer(&token), &tool(name, &arguments).to_string());
        let result = response.result();
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let call = |name, arguments| call(&daemon.address, &token, name, &arguments);

    let said = refused("fleet_spawn", json!({"kind": "coder"}));
    assert_eq!(said, "there is no kind of worker \"coder\"; there are: scripted");
    let worker = call("fleet_spawn", json!({"kind": "scripted"}))["worker"].clone();
    call("fleet_spawn", json!({"kind": "scripted"}));
    let said = refused("fleet_spawn", json!({"kind": "scripted"}));
    assert_eq!(said, "2 workers of kind \"scripted\" live, which is as many as may; stop one first");

    let said = refused("fleet_send", json!({"worker": worker, "content": "x".repeat(21)}));
    assert!(said.starts_with("the text has 21 bytes, and may have 20"), "{said}");
    call("fleet_send", json!({"worker": worker, "content": "wait=60000"}));
    call("fleet_send", json!({"worker": worker, "content": "say=second"}));
    let said = refused("fleet_send", json!({"worker": worker, "content": "say=third"}));
    assert!(said.contains("as many tickets wait for this worker as may"), "{said}");

    for (name, arguments, what) in [
        ("fleet_send", json!({"content": "x"}), "say the worker for new work, or the question for an answer"),
        ("fleet_send", json!({"worker": 1, "question": 1, "content": "x"}), "and not both"),
        ("fleet_send", json!({"worker": 1}), "missing field `content`"),
        ("fleet_send", json!({"ticket": 1, "content": "x"}), "ticket 1 has 0 open questions"),
        ("fleet_send", json!({"question": 1, "content": "x", "replace": true}), "for new work"),
        ("fleet_poll", json!({"ticket": 99}), "there is no such ticket"),
        ("fleet_poll", json!({"ticket": 1, "wait": -1}), "is not a number of seconds"),
        ("fleet_poll", json!({"tickets": 1}), "unknown field `tickets`"),
        ("fleet_stop", json!({}), "say the worker that is to end"),
    ] {
        let said = refused(name, arguments.clone());
        assert!(said.contains(what), "{name} {arguments}: {said}");
    }
    assert!(daemon.ends_on("-TERM").success());
}
