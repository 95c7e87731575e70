//! What a run of check.sh found, and how people and machines read it.
//!
//! One [`Report`] is the source of every face: the table and the sequence diagrams on a terminal, JSON, JUnit and
//! Markdown. A face adds nothing and hides nothing.

use std::time::Duration;

use serde::Serialize;

/// Everything that one run found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// One row for each thing that was checked, in the order in which it was checked.
    pub rows: Vec<Row>,
    /// One entry for each promise that broke where it must hold, and each edge that only one side has.
    pub breaches: Vec<Breach>,
    /// Covered code whose shape is not the recorded one.
    pub drift: Vec<Drift>,
}

/// One thing that was checked.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The domain, for example `turns`.
    pub domain: String,
    /// The configuration, for example `overlapping-prompts`; empty where the row is about the whole domain.
    pub configuration: String,
    /// Which of the independent checks this is.
    pub layer: Layer,
    /// The promise, or what else was compared.
    pub promise: String,
    /// What must be found.
    pub expected: Expected,
    /// What was found.
    pub found: Found,
    /// How many states were explored, where states were.
    pub states: Option<u64>,
    /// How many labelled edges were explored, where edges were.
    pub edges: Option<u64>,
    /// How long it took.
    pub time: Duration,
}

/// The independent checks of DESIGN section 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// A safety promise on the exact graph of the real code.
    Graph,
    /// A liveness promise on that graph.
    Liveness,
    /// A promise on the specification, by TLC.
    Spec,
    /// The exact graph against the graph of the specification.
    Difference,
    /// A fact about the code, measured on the runtime.
    Fact,
    /// A recorded counterexample on the tokio runtime.
    Replay,
    /// The recorded shape of the covered code.
    Fingerprint,
    /// A mutant that some promise must kill.
    Mutant,
}

/// What must be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    /// The promise holds.
    Holds,
    /// The promise breaks, and the shortest counterexample has this many steps.
    Breaks {
        /// Steps of the shortest counterexample.
        steps: usize,
    },
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// The promise holds, found out in this run.
    Holds,
    /// The promise holds, by the record of an earlier run on the same input.
    Recorded,
    /// The promise breaks, and the shortest counterexample has this many steps.
    Breaks {
        /// Steps of the shortest counterexample.
        steps: usize,
    },
    /// Two things that must be equal are not; the sentence says which and how.
    Differs(String),
    /// The shape of covered code is not the recorded one; the sentence says of how many items.
    Drifted(String),
    /// It could not be verified; the sentence says why and what to do.
    NotVerified(String),
}

/// A promise that broke where it must hold, told so that a person understands it without the source.
#[derive(Debug, Clone, Serialize)]
pub struct Breach {
    /// The name of the promise.
    pub promise: String,
    /// Its statement: one sentence.
    pub statement: String,
    /// `domain/configuration`.
    pub configuration: String,
    /// The shortest counterexample.
    pub diagram: Diagram,
    /// The file it was saved to, if it was.
    pub file: Option<String>,
    /// The command that replays it, if there is one.
    pub command: Option<String>,
}

/// A sequence diagram: time goes downwards, one line a step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Diagram {
    /// The columns from left to right, at most eight: client, reader, each turn, peer.
    pub columns: Vec<String>,
    /// The steps from first to last.
    pub lines: Vec<Line>,
}

/// One step of a diagram.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The column that acts.
    pub from: usize,
    /// The column that an arrow goes to; none where the step is something that `from` does by itself.
    pub to: Option<usize>,
    /// What happens, for example `session/prompt 2`.
    pub label: String,
    /// Things that this step caused, each at a column: `ends`, `answers cancelled`.
    pub notes: Vec<(usize, String)>,
    /// Whether the promise is broken once this step is done.
    pub breaks: bool,
}

/// One covered item whose shape is not the recorded one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// The file, from the root of the repository.
    pub path: String,
    /// The item, for example `Connection::prompt_arrived`.
    pub item: String,
    /// The actions of the specification that rely on it.
    pub actions: Vec<String>,
    /// What happened to it.
    pub kind: DriftKind,
    /// The change as a unified diff, or a sentence that says why there is none.
    pub change: String,
}

/// What happened to a covered item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriftKind {
    /// Its tokens are not the recorded ones.
    Changed,
    /// It is covered and not recorded.
    New,
    /// It is recorded and no longer there.
    Gone,
    /// A lock, spawn or select in a covered file that no line covers.
    Uncovered,
}
