//! `lastword trace check`, over what a real `lastword agent` recorded.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

fn lastword(arguments: &[&str], trace: Option<&Path>, input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
    command.args(arguments).env_remove("RUST_LOG").env_remove("LASTWORD_TRACE");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(trace) = trace {
        command.env("LASTWORD_TRACE", trace);
    }
    let mut child = command.spawn().unwrap();
    // A program that reads nothing may be gone.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn check(trace: &str) -> Output {
    lastword(&["trace", "check", "-"], None, trace)
}

/// What the program said, on both outputs, and how it exited.
fn said(output: &Output) -> (i32, &str, &str) {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// A session and two prompts of it in one write, recorded.
fn recorded() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.ndjson");
    let message = |id: u64, method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string() + "\n"
    };
    let prompt = |id, text| {
        let prompt = [json!({"type": "text", "text": text})];
        message(id, "session/prompt", json!({"sessionId": "session-1", "prompt": prompt}))
    };
    let lines = [
        message(1, "session/new", json!({"cwd": "/", "mcpServers": []})),
        prompt(2, "wait=600000"),
        prompt(3, "wait=600000"),
    ];
    let output = lastword(&["agent"], Some(&path), &lines.concat());
    assert!(output.status.success(), "{output:?}");
    let trace = fs::read_to_string(&path).unwrap();
    (folder, trace)
}

/// The number of the one line that has this text.
fn line_with(trace: &str, text: &str) -> usize {
    let lines: Vec<usize> =
        (1..).zip(trace.lines()).filter(|(_, line)| line.contains(text)).map(|(at, _)| at).collect();
    assert_eq!(lines.len(), 1, "{text} in\n{trace}");
    lines[0]
}

#[test]
fn a_recorded_trace_is_right() {
    let (folder, trace) = recorded();
    // All lines but that of the limits are steps.
    let steps = trace.lines().count() - 1;
    let right = format!("1 connection, {steps} steps: every step allowed, every effect equal, every promise kept\n");
    let path = folder.path().join("trace.ndjson");
    let path = path.to_str().unwrap();
    assert_eq!(said(&lastword(&["trace", "check", path], None, "")), (0, right.as_str(), ""));
    assert_eq!(said(&check(&trace)), (0, right.as_str(), ""));
    let output = lastword(&["trace", "check", "--json", path], None, "");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer, json!({"verdict": "right", "connections": 1, "services": 0, "steps": steps}));
}

#[test]
fn a_step_that_was_edited_by_hand_is_rejected_with_its_line() {
    let (_folder, trace) = recorded();
    let newer = r#""step":{"PromptArrived":{"id":"3","session":"session-1"}}"#;
    let line = line_with(&trace, newer);
    let edited = trace.replace(newer, &newer.replace("session-1", "session-2"));
    let output = check(&edited);
    let (status, out, err) = said(&output);
    assert_eq!((status, out), (1, ""));
    let named = format!("lastword: standard input: line {line}: after ");
    assert!(err.starts_with(&named) && err.lines().count() == 1, "{err}");

    let output = lastword(&["trace", "check", "--json", "-"], None, &edited);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["verdict"], &answer["line"]), (&json!("rejected"), &json!(line)), "{answer}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_line_that_is_missing_is_rejected_where_the_next_one_does_not_fit() {
    let (_folder, trace) = recorded();
    let line = line_with(&trace, r#""step":{"PromptArrived":{"id":"2""#);
    let without: String =
        (1..).zip(trace.lines()).filter(|(at, _)| *at != line).map(|(_, text)| format!("{text}\n")).collect();
    let output = check(&without);
    let (status, _, err) = said(&output);
    assert_eq!(status, 1);
    assert!(err.starts_with(&format!("lastword: standard input: line {line}: ")), "{err}");
}

#[test]
fn rows_of_a_journal_that_break_a_promise_are_rejected_with_its_name_and_its_statement() {
    let ticket = r#"{"Ticket":[1,{"lead":1,"worker":1,"key":null,"progress":{"Ended":{"Replied":1}},"questions":{},"late_replies":[]}]}"#;
    let limits = r#"{"workers_max":1,"workers_kept_max":1,"tickets_queued_max":1,"tickets_max":1,"questions_open_max":1,"watches_max":1,"replies_kept_max":1}"#;
    let opening = |stored: &str| format!("{{\"service\":1,\"limits\":{limits},\"stored\":[{ticket}{stored}]}}\n");
    // It ends before its first step.
    assert_eq!(check(&opening("")).status.code(), Some(3));
    let twice = check(&opening(r#",{"Inbox":[1,1,1]}"#));
    let (status, out, err) = said(&twice);
    assert_eq!((status, out), (1, ""));
    let named =
        "lastword: standard input: line 1: after this line the promise ReplyExactlyOnce is broken: an accepted reply";
    assert!(err.starts_with(named), "{err}");
}

#[test]
fn what_cannot_be_judged_never_looks_like_a_right_trace() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.ndjson");
    let [folder, missing] = [folder.path(), &missing].map(|path| path.to_str().unwrap());
    for path in [folder, missing] {
        let output = lastword(&["trace", "check", path], None, "");
        let (status, out, err) = said(&output);
        assert_eq!((status, out), (3, ""));
        assert!(err.starts_with(&format!("lastword: {path}: it could not be read: ")), "{err}");
    }
    let nothing = "lastword: standard input: the trace ends before its first step: nothing was checked\n";
    let limits = "{\"connection\":1,\"limits\":{\"requests_in_flight_max\":1,\"notifications_queued_max\":1,\"notifications_stuck_max\":1}}\n";
    for trace in ["", limits] {
        assert_eq!(said(&check(trace)), (3, "", nothing));
    }
    let output = lastword(&["trace", "check", "--json", missing], None, "");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &answer["verdict"]), (Some(3), &json!("not checked")));
}

#[test]
fn a_check_leaves_the_file_alone_that_the_variable_names() {
    let (folder, trace) = recorded();
    let path = folder.path().join("trace.ndjson");
    let output = lastword(&["trace", "check", path.to_str().unwrap()], Some(&path), "");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(fs::read_to_string(&path).unwrap(), trace);
}

#[test]
fn the_help_says_what_each_exit_status_means() {
    let output = lastword(&["trace", "check", "--help"], None, "");
    let (status, help, _) = said(&output);
    assert_eq!(status, 0);
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(
            "Exit status: 0 all of it is right; 1 a line is not right; 2 the arguments are wrong; 3 nothing was checked"
        ),
        "{help}"
    );
}
