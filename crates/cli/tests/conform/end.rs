//! Nothing of what was measured is left behind, however it ends.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use crate::{code, conform, peer};

/// Longer than anything in a test takes.
const EVER: Duration = Duration::from_secs(60);

/// Tells that the agent has started, and then that it and its child are gone: each of them holds the other end open.
fn watch(fifo: &Path) -> Receiver<&'static str> {
    assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    let (tell, told) = mpsc::channel();
    let fifo = fifo.to_owned();
    thread::spawn(move || {
        let mut file = BufReader::new(File::open(fifo).unwrap());
        file.read_line(&mut String::new()).unwrap();
        let _ = tell.send("started");
        file.read_to_end(&mut Vec::new()).unwrap();
        let _ = tell.send("gone");
    });
    told
}

#[test]
fn an_agent_that_hangs_is_gone_with_its_child_when_the_run_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("alive");
    let told = watch(&fifo);
    let mut command = conform(
        &["--rounds", "1", "--only", "prompt-cancel", "--patience-ms", "200"],
        &peer("agent.py", "leaves-child"),
    );
    let output = command.env("ALIVE", &fifo).output().unwrap();
    assert_eq!(code(&output), 1);
    assert_eq!(told.recv_timeout(EVER), Ok("started"));
    assert_eq!(told.recv_timeout(EVER), Ok("gone"));
}

#[test]
fn a_signal_ends_the_agent_and_its_child_too() {
    for signal in ["INT", "TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("alive");
        let told = watch(&fifo);
        let mut command = conform(
            &["--rounds", "1", "--only", "prompt-cancel", "--patience-ms", "600000"],
            &peer("agent.py", "leaves-child"),
        );
        let mut running = command.env("ALIVE", &fifo).stdout(Stdio::null()).spawn().unwrap();
        assert_eq!(told.recv_timeout(EVER), Ok("started"));
        let kill = Command::new("kill").args(["-s", signal, &running.id().to_string()]).status().unwrap();
        assert!(kill.success());
        assert_eq!(told.recv_timeout(EVER), Ok("gone"));
        assert!(!running.wait().unwrap().success());
    }
}
