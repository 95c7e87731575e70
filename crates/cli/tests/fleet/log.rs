//! The log of a daemon that nobody looks after.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    process::Stdio,
};

use serde_json::json;

use crate::scene::{Fleet, call, until};

/// What a log may have before it is put aside.
const LOG_BYTES_MAX: usize = 4 << 20;

fn append(fleet: &Fleet) -> File {
    OpenOptions::new().append(true).create(true).open(fleet.beside(".log")).unwrap()
}

/// A log that has become too large, as its last line says.
fn fill(fleet: &Fleet, last: &str) {
    let line = "a line of a log that is a hundred bytes long".repeat(2);
    let mut lines = format!("{line}\n").repeat(LOG_BYTES_MAX / line.len());
    lines.push_str(last);
    lines.push('\n');
    append(fleet).write_all(lines.as_bytes()).unwrap();
}

fn last_line_of(fleet: &Fleet, suffix: &str) -> String {
    fs::read_to_string(fleet.beside(suffix)).unwrap_or_default().lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_daemon_puts_its_log_aside_when_it_is_too_large_and_keeps_one_old_one() {
    let fleet = Fleet::new("");
    let mut serve = fleet.command(&["serve"]);
    serve.env("RUST_LOG", "debug").stderr(Stdio::from(append(&fleet)));
    let daemon = Fleet::serve_by(serve);
    let token = fleet.token();
    for round in ["the first round", "the second round"] {
        fill(&fleet, round);
        // Whatever is logged next goes into the new one. That of the last entry before is a matter of microseconds.
        until(|| {
            call(&daemon.address, &token, "fleet_list", &json!({}));
            let old = fs::read_to_string(fleet.beside(".log.1")).unwrap_or_default();
            old.lines().any(|line| line == round)
        });
        until(|| fs::metadata(fleet.beside(".log")).is_ok_and(|log| log.len() > 0));
    }
    let old = fs::read_to_string(fleet.beside(".log.1")).unwrap();
    assert!(!old.contains("the first round"), "it grows for ever");
    assert!(daemon.ends_on("-TERM").success());
    let logs = fs::read_dir(fleet.file().parent().unwrap()).unwrap();
    let logs = logs.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains(".log"));
    assert_eq!(logs.count(), 2);
}

#[test]
fn a_bridge_that_starts_a_daemon_puts_a_log_aside_that_is_too_large() {
    let fleet = Fleet::new("");
    fill(&fleet, "the end of the old one");
    // It fails, and says why at the end of the log.
    fs::write(fleet.beside(""), "no journal").unwrap();
    let output = fleet.command(&["mcp"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(last_line_of(&fleet, ".log.1"), "the end of the old one");
    let new = fs::read_to_string(fleet.beside(".log")).unwrap();
    assert!(new.lines().count() == 1 && new.contains("is not a journal"), "{new}");
}

#[test]
fn a_daemon_leaves_standard_error_alone_where_it_is_not_the_log() {
    let fleet = Fleet::new("");
    fill(&fleet, "of somebody else");
    let elsewhere = fleet.beside(".elsewhere");
    let mut serve = fleet.command(&["serve"]);
    serve.env("RUST_LOG", "debug").stderr(Stdio::from(File::create(&elsewhere).unwrap()));
    let daemon = Fleet::serve_by(serve);
    call(&daemon.address, &fleet.token(), "fleet_list", &json!({}));
    until(|| fs::metadata(&elsewhere).is_ok_and(|log| log.len() > 0));
    assert!(daemon.ends_on("-TERM").success());
    assert_eq!(last_line_of(&fleet, ".log"), "of somebody else");
    assert!(!fleet.beside(".log.1").exists());
}
