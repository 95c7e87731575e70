//! What a run of check.sh found, and how people and machines read it.
//!
//! One [`Report`] is the source of every face: the table and the sequence diagrams on a terminal, JSON, JUnit and
//! Markdown. A face adds nothing and hides nothing. Each face is a submodule; all that they share about the meaning of a
//! result, above all which [`Status`] a run ends with, is here, so that no two faces can disagree.

use std::collections::BTreeSet;
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Serialize, Serializer};

pub mod diagram;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod progress;
pub mod terminal;
mod text;

/// The most names that a verdict lists of one kind of problem, so that it stays a line that a person reads.
const VERDICT_NAMES_MAX: usize = 3;

/// Everything that one run found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// One row for each thing that was checked, in the order in which it was checked.
    pub rows: Vec<Row>,
    /// One entry for each promise that broke where it must hold, and each edge that only one side has.
    pub breaches: Vec<Breach>,
    /// Covered code whose shape is not the recorded one.
    pub drift: Vec<Drift>,
    /// The kill matrix: what each layer says of each mutant.
    pub kills: Vec<crate::mutants::Kill>,
    /// What the last blind audit of core found, where mutants were asked for: the lines of specs/survivors.txt.
    pub survivors: Vec<String>,
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
    #[serde(rename = "time_seconds", serialize_with = "seconds")]
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
#[serde(rename_all = "kebab-case", tag = "verdict", content = "detail")]
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
#[serde(rename_all = "kebab-case", tag = "verdict", content = "detail")]
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
    /// The promise breaks, by the record of an earlier run on the same input.
    RecordedBreaks {
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

/// How a run ended, with the exit code of the process as its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Status {
    /// Every promise is kept and nothing drifted.
    Kept = 0,
    /// A promise breaks, or two things that must be equal differ.
    Broken = 1,
    /// The shape of covered code is not the recorded one.
    Drift = 2,
    /// Something could not be verified, which must never look like "verified".
    Unverified = 3,
}

impl Status {
    /// The exit code of the process.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The graver of two results. The order is not that of the exit codes: what is broken is certain, so it outranks
    /// what is unknown, which in turn outranks a drift, because nobody knows what the unknown would have been.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let gravity = |status| match status {
            Self::Kept => 0,
            Self::Drift => 1,
            Self::Unverified => 2,
            Self::Broken => 3,
        };
        if gravity(other) > gravity(self) { other } else { self }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.code())
    }
}

/// Why a row is not as expected, gravest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Problem {
    PromiseBroken,
    BreakNotFound,
    OtherLength,
    Differs,
    NotVerified,
    Drifted,
}

impl Problem {
    const ALL: [Self; 6] =
        [Self::PromiseBroken, Self::BreakNotFound, Self::OtherLength, Self::Differs, Self::NotVerified, Self::Drifted];

    fn status(self) -> Status {
        match self {
            Self::PromiseBroken | Self::BreakNotFound | Self::OtherLength | Self::Differs => Status::Broken,
            Self::NotVerified => Status::Unverified,
            Self::Drifted => Status::Drift,
        }
    }

    fn words(self, count: usize) -> &'static str {
        let (one, many) = match self {
            Self::PromiseBroken => ("promise broken", "promises broken"),
            Self::BreakNotFound => ("expected break not found", "expected breaks not found"),
            Self::OtherLength => ("counterexample of another length", "counterexamples of another length"),
            Self::Differs => ("difference", "differences"),
            Self::NotVerified => ("check could not be verified", "checks could not be verified"),
            Self::Drifted => ("item drifted", "items drifted"),
        };
        if count == 1 { one } else { many }
    }
}

impl Report {
    /// How the run ended: the gravest of all that it found. A run that checked nothing could not verify anything.
    #[must_use]
    pub fn exit_code(&self) -> Status {
        let nothing = if self.rows.is_empty() { Status::Unverified } else { Status::Kept };
        let breaches = if self.breaches.is_empty() { Status::Kept } else { Status::Broken };
        let drift = if self.drift.is_empty() { Status::Kept } else { Status::Drift };
        self.rows.iter().map(Row::status).fold(nothing.and(breaches).and(drift), Status::and)
    }

    /// The whole run in one line, for example `1 promise broken: OlderPromptEnds in turns/overlapping-prompts; 61 of 62
    /// checks as expected`.
    #[must_use]
    pub fn verdict(&self) -> String {
        let total = self.rows.len();
        let kept = self.rows.iter().filter(|row| row.status() == Status::Kept).count();
        let checks = if total == 1 { "check" } else { "checks" };
        let mut parts: Vec<String> = Problem::ALL.into_iter().filter_map(|problem| self.part(problem)).collect();
        if total == 0 {
            parts.push("nothing was checked, so nothing is verified".into());
        } else if parts.is_empty() {
            parts.push(format!("{total} {checks}: {kept} as expected"));
        } else {
            parts.push(format!("{kept} of {total} {checks} as expected"));
        }
        parts.join("; ")
    }

    /// What the verdict says of one kind of problem, if there is any. A promise that several layers saw break counts once.
    fn part(&self, problem: Problem) -> Option<String> {
        let mut names: Vec<String> = if problem == Problem::Drifted && !self.drift.is_empty() {
            self.drift.iter().map(Drift::name).collect()
        } else {
            self.rows.iter().filter(|row| row.problem() == Some(problem)).map(Row::name).collect()
        };
        if problem == Problem::PromiseBroken {
            names.extend(self.breaches_without_row().map(Breach::name));
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        let count = names.len();
        if count == 0 {
            return None;
        }
        names.truncate(VERDICT_NAMES_MAX);
        let more = match count - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("{count} {}: {}{more}", problem.words(count), names.join(", ")))
    }

    /// The breaches that no broken row of their configuration announces.
    fn breaches_without_row(&self) -> impl Iterator<Item = &Breach> {
        self.breaches.iter().filter(|breach| {
            !self.rows.iter().any(|row| row.status() == Status::Broken && row.place() == breach.configuration)
        })
    }

    /// The rows by the place that they are about, in the order in which each place was first checked.
    fn places(&self) -> Vec<(String, Vec<&Row>)> {
        let mut places: Vec<(String, Vec<&Row>)> = Vec::new();
        for row in &self.rows {
            let place = row.place();
            match places.iter_mut().find(|(name, _)| *name == place) {
                Some((_, rows)) => rows.push(row),
                None => places.push((place, vec![row])),
            }
        }
        places
    }
}

impl Row {
    /// What the row is about: `domain/configuration`, or the domain alone.
    #[must_use]
    pub fn place(&self) -> String {
        if self.configuration.is_empty() {
            self.domain.clone()
        } else {
            format!("{}/{}", self.domain, self.configuration)
        }
    }

    /// What the row alone would end a run with.
    #[must_use]
    pub fn status(&self) -> Status {
        self.problem().map_or(Status::Kept, Problem::status)
    }

    /// What is not as expected, in one sentence; none where all is.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        self.problem()?;
        let must = match self.expected {
            Expected::Holds => "must hold".into(),
            Expected::Breaks { steps } => format!("must break in {}", text::steps(steps)),
        };
        Some(match &self.found {
            Found::Differs(why) | Found::Drifted(why) | Found::NotVerified(why) => format!("{}: {why}", self.found),
            Found::Breaks { steps } | Found::RecordedBreaks { steps } => {
                format!("{must}, and breaks in {}", text::steps(*steps))
            }
            Found::Holds | Found::Recorded => format!("{must}, and holds"),
        })
    }

    fn problem(&self) -> Option<Problem> {
        match (&self.expected, &self.found) {
            (_, Found::Differs(_)) => Some(Problem::Differs),
            (_, Found::Drifted(_)) => Some(Problem::Drifted),
            (_, Found::NotVerified(_)) => Some(Problem::NotVerified),
            (Expected::Holds, Found::Holds | Found::Recorded) => None,
            (Expected::Holds, Found::Breaks { .. } | Found::RecordedBreaks { .. }) => Some(Problem::PromiseBroken),
            (Expected::Breaks { .. }, Found::Holds | Found::Recorded) => Some(Problem::BreakNotFound),
            (Expected::Breaks { steps: pinned }, Found::Breaks { steps } | Found::RecordedBreaks { steps }) => {
                (pinned != steps).then_some(Problem::OtherLength)
            }
        }
    }

    fn name(&self) -> String {
        format!("{} in {}", self.promise, self.place())
    }

    /// How long it took, or that nothing was run because a record was there.
    fn time_words(&self) -> String {
        match self.found {
            Found::Recorded | Found::RecordedBreaks { .. } => "recorded".into(),
            _ => text::time(self.time),
        }
    }
}

impl Breach {
    fn name(&self) -> String {
        format!("{} in {}", self.promise, self.configuration)
    }
}

impl Drift {
    fn name(&self) -> String {
        format!("{} {}", self.path, self.item)
    }

    /// ` (Arrive, Start)`: the actions that rely on the item; nothing where there are none.
    fn relied_on_by(&self) -> String {
        if self.actions.is_empty() { String::new() } else { format!(" ({})", self.actions.join(", ")) }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Graph => "graph",
            Self::Liveness => "liveness",
            Self::Spec => "spec",
            Self::Difference => "difference",
            Self::Fact => "fact",
            Self::Replay => "replay",
            Self::Fingerprint => "fingerprint",
            Self::Mutant => "mutant",
        })
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds => f.write_str("holds"),
            Self::Breaks { steps } => write!(f, "breaks in {steps}"),
        }
    }
}

/// In a word or two, whether it was found in this run or recorded. The sentence of a difference, a drift or an unverified check does not fit in a table: see
/// [`Row::sentence`].
impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds | Self::Recorded => f.write_str("holds"),
            Self::Breaks { steps } | Self::RecordedBreaks { steps } => write!(f, "breaks in {steps}"),
            Self::Differs(_) => f.write_str("differs"),
            Self::Drifted(_) => f.write_str("drifted"),
            Self::NotVerified(_) => f.write_str("not verified"),
        }
    }
}

impl fmt::Display for DriftKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "its shape is not the recorded one",
            Self::New => "covered and not recorded",
            Self::Gone => "recorded and no longer there",
            Self::Uncovered => "in a covered file, and no line covers it",
        })
    }
}

/// A duration for machines: seconds, as a number.
fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
