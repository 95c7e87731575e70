//! The bridge on standard input and output.

use std::{
    io::{BufRead as _, BufReader, Lines, Write as _},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    scene::{Fleet, bearer, call, post, until},
    tasks::Lead,
};

struct Bridge {
    process: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Bridge {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take(), process.stdout.take().unwrap());
        Self { process, input, lines: BufReader::new(output).lines() }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_ref().unwrap(), "{message}").unwrap();
    }

    fn hear(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().expect("the bridge lives").unwrap()).unwrap()
    }

    fn call(&mut self, id: u64, name: &str, arguments: &Value) -> Value {
        self.say(&request(id, name, arguments));
        let heard = self.hear();
        assert_eq!(heard["id"], id, "{heard}");
        heard["result"].clone()
    }

    fn ends(mut self) {
        drop(self.input.take());
        assert!(self.process.wait().unwrap().success());
    }
}

fn request(id: u64, name: &str, arguments: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
}

fn initialize(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }})
}

#[test]
fn a_bridge_starts_the_daemon_which_outlives_it_and_starts_it_again_when_it_was_killed() {
    let fleet = Fleet::new("");
    let mut bridge = Bridge::start(fleet.command(&["mcp"]));
    bridge.say(&initialize(1));
    assert_eq!(bridge.hear()["result"]["protocolVersion"], "2025-11-25");
    bridge.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(bridge.call(2, "fleet_spawn", &json!({"kind": "scripted"}))["structuredContent"]["worker"], 1);
    let sent = bridge.call(3, "fleet_send", &json!({"worker": 1, "content": "reply=one", "wait": 25}));
    assert_eq!(sent["structuredContent"]["reply"], "one", "{sent}");

    let status = |fleet: &Fleet| -> Value { serde_json::from_str(&fleet.said(&["status", "--json"])).unwrap() };
    let pid = |fleet: &Fleet| status(fleet)["pid"].clone();
    let url = status(&fleet)["url"].as_str().unwrap().to_owned();
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
    let first = pid(&fleet);
    assert!(Command::new("kill").args(["-KILL", &first.to_string()]).status().unwrap().success());
    until(|| TcpStream::connect(address).is_err());
    let polled = bridge.call(4, "fleet_poll", &json!({"ticket": 1}));
    assert_eq!(polled["structuredContent"]["tickets"][0]["reply"], "one", "{polled}");
    let second = pid(&fleet);
    assert_ne!(first, second);

    bridge.ends();
    assert_eq!(pid(&fleet), second);
}

#[test]
fn two_bridges_at_once_start_one_daemon() {
    let fleet = Fleet::new("");
    let mut bridges: Vec<_> = (0..2).map(|_| Bridge::start(fleet.command(&["mcp"]))).collect();
    for (id, bridge) in (1..).zip(&mut bridges) {
        let spawned = bridge.call(id, "fleet_spawn", &json!({"kind": "scripted"}));
        assert_eq!(spawned["structuredContent"]["worker"], id, "{spawned}");
    }
    bridges.into_iter().for_each(Bridge::ends);
}

#[test]
fn a_call_that_is_cancelled_is_not_answered_and_others_go_on_meanwhile() {
    let fleet = Fleet::new("");
    let mut bridge = Bridge::start(fleet.command(&["mcp"]));
    bridge.call(1, "fleet_spawn", &json!({"kind": "scripted"}));
    bridge.say(&request(2, "fleet_send", &json!({"worker": 1, "content": "wait=60000", "wait": 25})));
    let mut id = 3;
    until(|| {
        id += 1;
        bridge.call(id, "fleet_poll", &json!({}))["structuredContent"]["tickets"] != json!([])
    });
    bridge.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}));
    let stopped = bridge.call(1000, "fleet_stop", &json!({"ticket": 1}));
    assert_eq!(stopped["structuredContent"]["ticket"]["state"], "cancelled", "{stopped}");
    // What was cancelled would have been answered by now, with the end of its ticket.
    bridge.call(1001, "fleet_list", &json!({}));
    bridge.ends();
}

#[test]
fn a_bridge_whose_daemon_does_not_start_says_why() {
    let fleet = Fleet::new("");
    std::fs::write(fleet.beside(""), "no journal").unwrap();
    let output = fleet.command(&["mcp"]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the daemon did not start") && said.contains("is not a journal"), "{said}");
}

#[test]
fn a_worker_whose_agent_does_not_speak_http_gets_a_bridge_with_its_own_token() {
    let fleet = Fleet::silent();
    let daemon = fleet.serve();
    let token = fleet.token();
    call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "silent"}));
    let server = fleet.told_to_silent();
    let program = env!("CARGO_BIN_EXE_lastword");
    assert_eq!((&server["command"], &server["args"]), (&json!(program), &json!(["fleet", "mcp"])), "{server}");

    let mut command = Command::new(server["command"].as_str().unwrap());
    command.args(["fleet", "mcp"]).current_dir("/");
    for variable in server["env"].as_array().unwrap() {
        command.env(variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap());
    }
    let mut bridge = Bridge::start(command);
    let replied = bridge.call(1, "fleet_reply", &json!({"content": "hello"}));
    assert_eq!(replied["structuredContent"]["placed"], "inbox", "{replied}");
    bridge.ends();
    let letters = call(&daemon.address, &token, "fleet_inbox", &json!({}));
    assert_eq!((&letters["letters"][0]["text"], &letters["letters"][0]["worker"]), (&json!("hello"), &json!(1)));

    // The token is good for nothing else, and for nobody once the worker is gone.
    let its_own = server["env"][1]["value"].as_str().unwrap();
    let list = request(1, "fleet_list", &json!({})).to_string();
    assert_eq!(post(&daemon.address, "/mcp", &bearer(its_own), &list).status, 403);
    // Neither are there tasks for it, whatever it declares.
    call(&daemon.address, &token, "fleet_send", &json!({"worker": 1, "content": "x"}));
    let of_worker = Lead::new(&daemon, its_own);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": "ticket-1", "inputResponses": {}});
        let refused = of_worker.says("/worker/mcp", method, "ticket-1", params);
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
    }
    call(&daemon.address, &token, "fleet_stop", &json!({"worker": 1}));
    until(|| post(&daemon.address, "/worker/mcp", &bearer(its_own), &list).status == 401);
    assert!(daemon.ends_on("-TERM").success());
}
