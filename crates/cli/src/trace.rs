//! `lastword trace check`: whether what a program recorded is a run that the machine could take, every promise kept.

use std::{
    fs::File,
    io::{self, BufReader},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Subcommand};
use lastword_model::{
    promises,
    trace::{Problem, Summary, TraceError, check},
};
use serde_json::{Value, json};

/// The rows of the promises, to say what a broken one had promised.
const PROMISES: &str = include_str!("../../../specs/promises.toml");

/// The trace is not right.
const REJECTED: u8 = 1;
/// There is no trace to judge, which must never look like a right one.
const NOT_CHECKED: u8 = 3;

/// Work with traces: the steps of a running program, recorded with LASTWORD_TRACE=FILE.
///
/// Record what an agent does, and check it:
///
///     LASTWORD_TRACE=trace.ndjson lastword agent
///     lastword trace check trace.ndjson
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(Check),
}

/// Check a trace against the machine itself.
///
/// Takes every recorded step again, in the recorded order: each must be allowed there, have exactly the recorded effects and
/// lead to the recorded state, and keep every promise. Says how many connections and steps were checked, or which line is the
/// first one that is not right, and why.
///
///     lastword trace check trace.ndjson
///     lastword trace check --json - < trace.ndjson
///
/// Exit status: 0 all of it is right; 1 a line is not right; 2 the arguments are wrong; 3 nothing was checked, since the file
/// cannot be read or holds no step.
#[derive(Args)]
#[command(verbatim_doc_comment)]
struct Check {
    /// The trace; `-` is standard input
    file: PathBuf,
    /// Say it as one object of JSON: `verdict` is "right", "rejected" or "not checked"
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let Command::Check(Check { file, json }) = &options.command;
    let (name, result) = if file.as_os_str() == "-" {
        ("standard input".into(), check(io::stdin().lock()))
    } else {
        let opened = File::open(file).map_err(|error| TraceError { line: 0, problem: error.into() });
        (file.to_string_lossy(), opened.and_then(|file| check(BufReader::new(file))))
    };
    if *json {
        println!("{}", in_json(&result));
    } else {
        match &result {
            Ok(summary) => println!("{}", right(summary)),
            Err(error) => eprintln!("lastword: {name}: {}", wrong(error)),
        }
    }
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) if is_judged(&error.problem) => REJECTED.into(),
        Err(_) => NOT_CHECKED.into(),
    }
}

/// Whether there was a trace to judge.
fn is_judged(problem: &Problem) -> bool {
    !matches!(problem, Problem::Read(_) | Problem::Empty)
}

fn right(summary: &Summary) -> String {
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let services = match summary.services {
        0 => String::new(),
        services => format!("{}, ", count(services, "ticket service")),
    };
    let (connections, steps) = (count(summary.connections, "connection"), count(summary.steps, "step"));
    format!("{connections}, {services}{steps}: every step allowed, every effect equal, every promise kept")
}

fn wrong(error: &TraceError) -> String {
    match &error.problem {
        problem if !is_judged(problem) => problem.to_string(),
        Problem::Broken(promise) => format!("{error}: {}", statement(promise)),
        _ => error.to_string(),
    }
}

fn in_json(result: &Result<Summary, TraceError>) -> Value {
    match result {
        Ok(Summary { connections, services, steps }) => {
            json!({"verdict": "right", "connections": connections, "services": services, "steps": steps})
        }
        Err(TraceError { line, problem }) => {
            let mut answer = json!({"verdict": "not checked", "problem": problem.to_string()});
            if is_judged(problem) {
                answer["verdict"] = "rejected".into();
                answer["line"] = (*line).into();
            }
            if let Problem::Broken(promise) = problem {
                answer["promise"] = json!({"name": promise, "statement": statement(promise)});
            }
            answer
        }
    }
}

/// What a promise says. Each one has a row; the test below holds that.
fn statement(promise: &str) -> String {
    let rows = promises::rows(PROMISES).unwrap_or_default();
    rows.into_iter().find(|row| row.name == promise).map_or_else(String::new, |row| row.statement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_is_said_with_its_line_and_its_statement() {
        let broken = TraceError { line: 7, problem: Problem::Broken("NewerPromptSurvives") };
        assert_eq!(
            wrong(&broken),
            "line 7: after this line the promise NewerPromptSurvives is broken: a prompt is never ended by a prompt that \
             arrived before it"
        );
        assert_eq!(
            in_json(&Err(broken)),
            json!({
                "verdict": "rejected",
                "line": 7,
                "problem": "after this line the promise NewerPromptSurvives is broken",
                "promise": {
                    "name": "NewerPromptSurvives",
                    "statement": "a prompt is never ended by a prompt that arrived before it",
                },
            })
        );
    }

    #[test]
    fn every_promise_has_a_statement() {
        let of_tickets = lastword_model::delegation::PROMISES.iter().map(|promise| promise.name);
        assert!(promises::all().map(|promise| promise.name).chain(of_tickets).all(|name| !statement(name).is_empty()));
    }
}
