//! Workers that are none, and files that cannot be kept: what people and models are told.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use crate::scene::{Fleet, bearer, call, post, tool, until};

/// What a worker of a kind of its own comes to: how its process ended, and what somebody who sends to it is told then.
fn end_of(command: &str) -> (String, String, String) {
    let fleet = Fleet::new("");
    let log = fleet.beside(".log");
    let mut file = fs::read_to_string(fleet.file()).unwrap();
    file.push_str(&format!("[workers.broken]\nstart_seconds = 1\n{command}\n"));
    fs::write(fleet.file(), file).unwrap();
    let mut serve = fleet.command(&["serve"]);
    serve.stderr(Stdio::from(fs::File::create(&log).unwrap()));
    let daemon = Fleet::serve_by(serve);
    let token = fleet.token();
    call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "broken"}));
    let mut death = Value::Null;
    until(|| {
        death = call(&daemon.address, &token, "fleet_list", &json!({}))["workers"][0]["death"].clone();
        death.is_string()
    });
    let send = tool("fleet_send", &json!({"worker": 1, "content": "x"})).to_string();
    let told = post(&daemon.address, "/mcp", &bearer(&token), &send).result();
    assert_eq!(told["isError"], true, "{told}");
    assert!(daemon.ends_on("-TERM").success());
    let told = told["content"][0]["text"].as_str().unwrap().to_owned();
    (death.as_str().unwrap().to_owned(), told, fs::read_to_string(log).unwrap())
}

#[test]
fn whoever_sends_to_a_worker_that_is_gone_and_who_reads_the_log_are_told_how_it_ended() {
    let (death, told, log) = end_of("command = \"/no/such/agent\"");
    assert_eq!(
        death,
        "the agent `/no/such/agent` could not be started: No such file or directory (os error 2); see its `command`, and \
         `cwd` where it is to run"
    );
    let first = "the worker was stopped, or its process ended; spawn another one. Worker 1 is gone: ";
    assert_eq!(told, format!("{first}{death}"));
    assert!(log.contains(&format!("a worker is gone: {death}")), "{log}");
}

#[test]
fn a_worker_that_dies_at_once_ends_with_its_status_and_its_last_words_alone() {
    let (death, ..) = end_of("command = \"sh\"\nargs = [\"-c\", \"echo no licence >&2; exit 7\"]");
    assert_eq!(death, "exit status: 7; its last lines on standard error:\n  no licence");
}

#[test]
fn a_worker_that_answers_with_garbage_is_given_up_and_does_not_fill_the_log() {
    let script = "while read line; do echo I am no agent; done";
    let (death, _, log) = end_of(&format!("command = \"sh\"\nargs = [\"-c\", {script:?}]"));
    let start = "it did not answer `initialize` within 1s; its command must speak ACP on standard input and output: ";
    assert!(death.starts_with(start), "{death}");
    assert_eq!(log.matches("a bad line: ").count(), 20, "{log}");
    assert_eq!(log.matches("no more bad lines of this connection are logged").count(), 1, "{log}");
}

#[test]
fn a_worker_that_speaks_another_version_is_given_up() {
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":9}}"#;
    let script = format!("read line; echo '{answer}'; cat >/dev/null");
    let (death, ..) = end_of(&format!("command = \"sh\"\nargs = [\"-c\", {script:?}]"));
    assert!(death.starts_with("it speaks version 9 of ACP, and the fleet version 1; take "), "{death}");
}

#[test]
fn a_folder_that_is_not_there_is_named_with_what_to_do() {
    let fleet = Fleet::new("");
    let file = fs::read_to_string(fleet.file()).unwrap();
    fs::write(fleet.file(), format!("journal = \"nowhere/fleet.journal\"\n{file}")).unwrap();
    for (words, name) in [("serve", ".token"), ("token", ".token"), ("mcp", ".log")] {
        let output = fleet.command(&[words]).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("nowhere/fleet.journal{name}: No such file or directory")), "{said}");
        assert!(
            said.contains("kept in the folder of `journal` in fleet.toml, which must be there and writable"),
            "{said}"
        );
    }
}

#[test]
fn a_ticket_that_is_not_there_is_named() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let output = fleet.run(&["log", "7"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("ticket 7: there is no such ticket") && said.contains("`lastword fleet log` shows"),
        "{said}"
    );
    assert!(daemon.ends_on("-TERM").success());
}
