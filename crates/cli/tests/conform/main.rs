//! `lastword conform` as a real process, against agents and clients that keep every promise, and against some that break
//! one. No test waits for time to pass; every wait has an end.

mod agents;
mod clients;
mod end;
mod replay;

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

/// A wrong peer that is silent makes a round wait so long; a right one never does.
const PATIENCE_MS: &str = "500";

/// Longer than any round of a right peer takes, also on a machine that does ten other things.
const EVER_MS: &str = "60000";

fn script(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conform").join(name).display().to_string()
}

/// The agent or the client in Python, with a bug.
fn peer(name: &str, bug: &str) -> Vec<String> {
    vec!["python3".to_owned(), script(name), bug.to_owned()]
}

fn reference() -> Vec<String> {
    vec![env!("CARGO_BIN_EXE_lastword").to_owned(), "agent".to_owned()]
}

fn conform(options: &[&str], peer: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
    command.arg("conform").args(options).arg("--").args(peer).env_remove("RUST_LOG").env_remove("LASTWORD_TRACE");
    command
}

/// What came of it.
struct Results {
    code: i32,
    json: Value,
}

/// Measures, and gives the results as JSON.
fn measured(options: &[&str], peer: &[String]) -> Results {
    let output = conform(&[options, &["--json", "-"]].concat(), peer).output().unwrap();
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    Results { code: code(&output), json }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

impl Results {
    fn rows(&self) -> &Vec<Value> {
        self.json["rows"].as_array().unwrap()
    }

    /// The rows with this verdict, as promise and scenario.
    fn with(&self, verdict: &str) -> Vec<(&str, &str)> {
        let rows = self.rows().iter().filter(|row| row["verdict"] == verdict);
        rows.map(|row| (row["promise"].as_str().unwrap(), row["scenario"].as_str().unwrap())).collect()
    }
}
