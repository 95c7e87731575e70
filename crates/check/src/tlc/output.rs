//! What TLC prints under `-tool`: messages between two marker lines, each with a number and a severity. That is the form
//! that the TLA+ Toolbox reads, so it is the part of TLC's output that its authors keep stable.

use std::process::ExitStatus;

use super::{Lasso, Outcome, TlcError, TraceStep, Verdict, normalise_state};

/// TLC's exit codes that are a verdict. Every other one is "could not verify".
const EXIT_HOLDS: i32 = 0;
const EXIT_DEADLOCK: i32 = 11;
const EXIT_INVARIANT: i32 = 12;
const EXIT_PROPERTY: i32 = 13;

/// The numbers of the messages that are read.
const INVARIANT_VIOLATED_INITIALLY: u32 = 2107;
const INVARIANT_VIOLATED: u32 = 2110;
const ACTION_PROPERTY_VIOLATED: u32 = 2112;
const BACK_TO_STATE: u32 = 2122;
const NO_ERROR_FOUND: u32 = 2193;
const DEPTH: u32 = 2194;
const STATE_COUNTS: u32 = 2199;
const STATE: u32 = 2217;
const STUTTERING: u32 = 2218;

/// The severity of a message that is an error.
const ERROR: u32 = 1;

/// How many lines of TLC's output an error repeats: enough for the cause, too few for a stack trace.
const REASON_LINES_MAX: usize = 8;

/// How lines begin that never say what is wrong.
const NOISE: [&str; 14] = [
    "@!@!@",
    "Parsing file",
    "Semantic processing of module",
    "TLC threw an unexpected exception",
    "This was probably caused by an error in the spec",
    "See the User Output",
    "The exception was a",
    "Parsing or semantic analysis failed",
    "Residual stack trace",
    "Picked up ",
    "tla2sany.semantic.AbortException",
    "*** ",
    "Unknown location",
    "\tat ",
];

/// One message. A message inside another one, as TLC prints exceptions, is text of the outer one.
#[derive(Debug, Default)]
struct Message {
    number: u32,
    severity: u32,
    text: String,
}

/// Reads messages, and apart from them the lines outside of any message: those are the parser's.
fn messages(text: &str) -> (Vec<Message>, Vec<&str>) {
    let mut messages: Vec<Message> = Vec::new();
    let mut loose = Vec::new();
    let mut depth = 0_usize;
    for line in text.lines() {
        if let Some((before, marker)) = line.split_once("@!@!@STARTMSG ") {
            if depth == 0 {
                let numbers = marker.split_whitespace().next().unwrap_or_default();
                let (number, severity) = numbers.split_once(':').unwrap_or_default();
                messages.push(Message {
                    number: number.parse().unwrap_or_default(),
                    severity: severity.parse().unwrap_or_default(),
                    text: before.to_owned(),
                });
            }
            depth += 1;
        } else if line.contains("@!@!@ENDMSG ") {
            depth = depth.saturating_sub(1);
        } else if let (Some(message), true) = (messages.last_mut(), depth > 0) {
            message.text.push_str(line);
            message.text.push('\n');
        } else {
            loose.push(line);
        }
    }
    (messages, loose)
}

/// Reads the outcome of a run, without its graph.
pub(super) fn outcome(module: &str, status: ExitStatus, text: &str) -> Result<Outcome, TlcError> {
    let (messages, loose) = messages(text);
    let incoherent = |lacks| TlcError::Incoherent { module: module.to_owned(), status, lacks };
    let find = |number| messages.iter().find(|message| message.number == number);
    let verdict = match status.code() {
        Some(EXIT_HOLDS) => {
            find(NO_ERROR_FOUND).ok_or_else(|| incoherent("does not say that no error was found"))?;
            Verdict::Holds
        }
        Some(EXIT_DEADLOCK) => Verdict::Deadlock,
        Some(EXIT_INVARIANT) => {
            let message = find(INVARIANT_VIOLATED).or_else(|| find(INVARIANT_VIOLATED_INITIALLY));
            let name = message.and_then(|message| message.text.strip_prefix("Invariant ")?.split(' ').next());
            Verdict::Invariant { name: name.ok_or_else(|| incoherent("names no invariant"))?.to_owned() }
        }
        Some(EXIT_PROPERTY) => {
            let message = find(ACTION_PROPERTY_VIOLATED);
            let name = message.and_then(|message| message.text.strip_prefix("Action property ")?.split(' ').next());
            Verdict::Property { name: name.map(str::to_owned) }
        }
        _ => {
            return Err(TlcError::Rejected { module: module.to_owned(), status, reason: reason(&messages, &loose) });
        }
    };

    let trace = trace(&messages);
    if verdict != Verdict::Holds && trace.is_empty() {
        return Err(incoherent("has no counterexample"));
    }
    let counts = find(STATE_COUNTS).map(|message| numbers(&message.text));
    let (generated, distinct_states) = match counts.as_deref() {
        Some([generated, distinct, left]) if *left == 0 || verdict != Verdict::Holds => (*generated, *distinct),
        // A violated initial state ends the run before TLC counts.
        _ if find(INVARIANT_VIOLATED_INITIALLY).is_some() => (1, 1),
        _ => return Err(incoherent("does not say that every state was explored")),
    };
    if distinct_states == 0 {
        return Err(incoherent("says that there is no state at all"));
    }
    Ok(Outcome {
        verdict,
        distinct_states,
        generated,
        depth: find(DEPTH).and_then(|message| numbers(&message.text).first().copied()),
        trace,
        lasso: lasso(&messages),
        graph: None,
    })
}

fn trace(messages: &[Message]) -> Vec<TraceStep> {
    let steps = messages.iter().filter_map(|message| match message.number {
        // `2: <Started line 6, col 10 to line 6, col 52 of module Turns>`, then the state.
        STATE => {
            let (head, state) = message.text.split_once('\n')?;
            Some(TraceStep { action: action(head)?, state: normalise_state(state) })
        }
        INVARIANT_VIOLATED_INITIALLY => {
            let (_, state) = message.text.split_once('\n')?;
            Some(TraceStep { action: "Initial predicate".to_owned(), state: normalise_state(state) })
        }
        _ => None,
    });
    steps.collect()
}

fn lasso(messages: &[Message]) -> Option<Lasso> {
    messages.iter().find_map(|message| match message.number {
        STUTTERING => Some(Lasso::Stuttering),
        BACK_TO_STATE => {
            let state = message.text.split(':').next()?.parse::<usize>().ok()?.checked_sub(1)?;
            Some(Lasso::BackTo { state, action: action(&message.text)? })
        }
        _ => None,
    })
}

/// The action's name in `<Started line 6, col 10 to line 6, col 52 of module Turns>` or `<Initial predicate>`.
fn action(text: &str) -> Option<String> {
    let (_, location) = text.split_once('<')?;
    let (name, _) = location.split_once(" line ").or_else(|| location.split_once('>'))?;
    Some(name.to_owned())
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().filter_map(|word| word.trim_end_matches('.').replace(',', "").parse().ok()).collect()
}

/// The lines that say why there is no verdict: the parser's first, then TLC's errors.
fn reason(messages: &[Message], loose: &[&str]) -> String {
    let errors = messages.iter().filter(|message| message.severity == ERROR);
    let lines = loose.iter().copied().chain(errors.flat_map(|message| message.text.lines()));
    let telling = lines
        .map(|line| line.trim_start_matches(": "))
        .filter(|line| line.chars().any(char::is_alphanumeric) && !NOISE.iter().any(|noise| line.starts_with(noise)));
    let lines: Vec<&str> = telling.map(str::trim).take(REASON_LINES_MAX).collect();
    if lines.is_empty() { "it printed no reason".to_owned() } else { lines.join("; ") }
}
