//! How a daemon ends, and that there is one.

use std::fs;

use serde_json::{Value, json};

use crate::scene::{Fleet, bearer, begin, call, finish, lastword, tool, until};

#[test]
fn a_second_daemon_on_the_same_journal_refuses_to_start_and_says_which_one_runs() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let output = fleet.run(&["serve"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains(&format!("is in use by process {}", daemon.process.id())), "{said}");
    assert!(said.contains("`lastword fleet stop` stops it"), "{said}");

    // The same with a port of its own, which is taken before the journal is.
    let file = fs::read_to_string(fleet.file()).unwrap().replace("127.0.0.1:0", &daemon.address);
    fs::write(fleet.file(), file).unwrap();
    let output = fleet.run(&["serve"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains(&format!("is in use by process {}", daemon.process.id())), "{said}");
    assert!(daemon.ends_on("-TERM").success());
}

#[test]
fn at_sigterm_a_call_that_waits_is_answered_with_its_ticket_and_the_next_daemon_knows_it() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let token = fleet.token();
    let worker = call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "scripted"}))["worker"].clone();
    let busy = json!({"worker": worker, "content": "wait=60000", "wait": 25});
    let waiting = begin(&daemon.address, "/mcp", &bearer(&token), &tool("fleet_send", &busy).to_string());
    let queued = json!({"worker": worker, "content": "reply=queued"});
    let state = |address: &str, ticket: u64| {
        let polled = call(address, &token, "fleet_poll", &json!({"ticket": ticket}));
        polled["tickets"][0]["state"].as_str().unwrap().to_owned()
    };
    until(|| call(&daemon.address, &token, "fleet_poll", &json!({}))["tickets"][0]["state"] == "working");
    assert_eq!(call(&daemon.address, &token, "fleet_send", &queued)["ticket"], 2);

    assert!(daemon.ends_on("-TERM").success());
    let seen = finish(waiting).result()["structuredContent"].clone();
    assert_eq!((&seen["ticket"], &seen["state"]), (&json!(1), &json!("working")), "{seen}");
    assert!(!fleet.beside(".daemon").exists());
    assert_eq!(fleet.run(&["status"]).status.code(), Some(3));

    let daemon = fleet.serve();
    let polled = call(&daemon.address, &token, "fleet_poll", &json!({"ticket": 2, "wait": 25}));
    assert_eq!(polled["tickets"][0]["reply"], "queued", "{polled}");
    assert_eq!(state(&daemon.address, 1), "failed");
    assert!(daemon.ends_on("-TERM").success());
}

#[test]
fn a_client_that_leaves_only_stops_watching() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let token = fleet.token();
    let worker = call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "scripted"}))["worker"].clone();
    let work = json!({"worker": worker, "content": "wait=300 reply=done", "wait": 25});
    let waiting = begin(&daemon.address, "/mcp", &bearer(&token), &tool("fleet_send", &work).to_string());
    until(|| !call(&daemon.address, &token, "fleet_poll", &json!({}))["tickets"].as_array().unwrap().is_empty());
    drop(waiting);
    let polled = call(&daemon.address, &token, "fleet_poll", &json!({"wait": 25}));
    assert_eq!(polled["tickets"][0]["reply"], "done", "{polled}");
    assert!(daemon.ends_on("-TERM").success());
}

#[test]
fn people_see_the_fleet_as_tables_and_machines_as_json() {
    let fleet = Fleet::new("");
    for words in [["status"], ["stop"], ["log"]] {
        let output = fleet.run(&words);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    }
    let mut daemon = fleet.serve();
    let token = fleet.token();
    call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "scripted", "name": "Ada"}));
    let work = json!({"worker": 1, "content": "reply=done", "wait": 25});
    assert_eq!(call(&daemon.address, &token, "fleet_send", &work)["state"], "completed");

    let status: Value = serde_json::from_str(&fleet.said(&["status", "--json"])).unwrap();
    assert_eq!(
        (&status["workers"][0]["name"], &status["tickets"]["completed"]),
        (&json!("Ada"), &json!(1)),
        "{status}"
    );
    assert!(fleet.said(&["status"]).contains("1 completed"));
    let log: Value = serde_json::from_str(&fleet.said(&["log", "--json"])).unwrap();
    assert_eq!(log["tickets"][0]["reply"], "done", "{log}");
    assert!(fleet.said(&["log", "1"]).contains("done"));

    // Whoever stops it waits until it is gone, which it is once its parent has seen it.
    let pid = daemon.process.id();
    let stop = fleet.command(&["stop"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    assert!(daemon.process.wait().unwrap().success());
    let stopped = stop.wait_with_output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    assert_eq!(String::from_utf8(stopped.stdout).unwrap(), format!("Process {pid} has ended.\n"));
}

#[test]
fn a_trace_is_that_of_the_daemon_and_neither_a_worker_nor_another_command_writes_it() {
    let fleet = Fleet::new("");
    let trace = fleet.beside(".trace");
    let mut serve = fleet.command(&["serve"]);
    let daemon = Fleet::serve_by({
        serve.env("LASTWORD_TRACE", &trace);
        serve
    });
    let token = fleet.token();
    call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "scripted"}));
    let work = json!({"worker": 1, "content": "reply=done", "wait": 25});
    assert_eq!(call(&daemon.address, &token, "fleet_send", &work)["reply"], "done");
    assert!(fleet.command(&["status"]).env("LASTWORD_TRACE", &trace).output().unwrap().status.success());
    assert!(daemon.ends_on("-TERM").success());
    let checked = lastword(&["trace", "check", trace.to_str().unwrap()]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let checked = String::from_utf8(checked.stdout).unwrap();
    // The connection to the worker's agent is in it as well.
    assert!(
        checked.starts_with("1 connection, 1 ticket service, ") && checked.contains("every step allowed"),
        "{checked}"
    );
    let path = trace;
    let trace = fs::read_to_string(&path).unwrap();
    fs::write(&path, trace.replacen("\"Replied\":{\"worker\":1", "\"Replied\":{\"worker\":2", 1)).unwrap();
    let rejected = lastword(&["trace", "check", path.to_str().unwrap()]).output().unwrap();
    assert_eq!(rejected.status.code(), Some(1), "{rejected:?}");
    assert!(trace.starts_with("{\"service\":1,\"limits\""), "{trace}");
    assert_eq!(trace.lines().filter(|line| line.contains("\"Sent\"")).count(), 1, "{trace}");
    assert_eq!(trace.lines().filter(|line| line.contains("\"Replied\"")).count(), 1, "{trace}");
}
