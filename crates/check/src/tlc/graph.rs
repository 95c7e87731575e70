//! The labelled graph of a specification, as TLC dumps it with `-dump dot,actionlabels`.
//!
//! What TLC 2.15 writes, measured on small specifications:
//!
//! - one statement a line; a state is `ID [label="..."];`, and `ID [label="...",style = filled]` if it is initial. ID is the
//!   state's fingerprint, a signed 64-bit number. In the label `\` is `\\`, `"` is `\"`, and a line break is `\n`;
//! - an edge is `ID -> ID [label="Action",color=...];`. It may come before the line of the state that it leads to. It is
//!   written once for each way to take it, so the same edge may come several times; we keep it once;
//! - a disjunct of `Next` that is no operator of its own has the label `Next`;
//! - a step of an action that changes nothing is an edge like every other. Stuttering, which the specification allows
//!   anywhere, is not dumped, except in a liveness run, as `ID -> ID [style="dashed"];`; we leave it out;
//! - a state that a CONSTRAINT excludes has neither a line nor edges;
//! - values are wrapped at 80 columns, so that white space means nothing. We remove all of it.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead};

use sha2::{Digest, Sha256};

/// How many hexadecimal digits of a SHA-256 a digest keeps.
const DIGEST_DIGITS: usize = 32;

/// Lines of a dump that only say how to draw it begin so.
const DRAWING: [&str; 6] = ["strict digraph", "nodesep", "subgraph", "color=", "{rank", "}"];

/// Where and how a dump is malformed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// It could not be read.
    #[error("it could not be read: {0}")]
    Read(#[from] io::Error),
    /// A line is none that TLC writes.
    #[error("line {line} is {reason}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// What it is.
        reason: &'static str,
    },
    /// An edge leads to a state that has no line.
    #[error("state {0} has an edge and no line of its own")]
    NoSuchState(i64),
    /// It ends in the middle.
    #[error("it ends before the graph does")]
    Truncated,
}

/// Every state and every labelled edge that TLC found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpecGraph {
    /// Each state, in the form of [`normalise_state`].
    pub states: Vec<String>,
    /// The initial states, as indices into `states`, sorted.
    pub initial: Vec<u32>,
    /// The names of the actions.
    pub actions: Vec<String>,
    /// The edges, each once, sorted.
    pub edges: Vec<SpecEdge>,
}

/// A step from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecEdge {
    /// The index of the state before.
    pub from: u32,
    /// The index of the action.
    pub action: u32,
    /// The index of the state after.
    pub to: u32,
}

impl SpecGraph {
    /// Reads a dump line by line; what is kept is the graph and not its text.
    ///
    /// # Errors
    ///
    /// If anything in it is not as TLC writes it.
    pub fn read(mut dump: impl BufRead) -> Result<Self, DumpError> {
        let mut reading = Reading::default();
        let mut bytes = Vec::new();
        let mut number = 0;
        let mut ended = false;
        while dump.read_until(b'\n', &mut bytes)? > 0 {
            number += 1;
            let line = bytes.trim_ascii();
            if !line.is_empty() {
                ended = line == b"}";
                reading.line(line).map_err(|reason| DumpError::Line { line: number, reason })?;
            }
            bytes.clear();
        }
        if !ended {
            return Err(DumpError::Truncated);
        }
        reading.graph()
    }

    /// [`graph_digest`] of this graph.
    #[must_use]
    pub fn digest(&self) -> String {
        let edges = self.edges.iter().map(|edge| (edge.from, self.actions[edge.action as usize].as_str(), edge.to));
        graph_digest(&self.states, self.initial.iter().copied(), edges)
    }
}

/// The form of a state that two sides can compare: as TLC prints it, `/\ a = 1 /\ b = <<2>>`, without any white space, and
/// sorted: the order in which TLC prints the variables changes with the text of the specification.
#[must_use]
pub fn normalise_state(state: &str) -> String {
    sorted(&state.chars().filter(|character| !character.is_ascii_whitespace()).collect::<String>())
}

/// A state without white space, its conjuncts sorted.
fn sorted(text: &str) -> String {
    let mut conjuncts: Vec<&str> = text.split("/\\").collect();
    conjuncts.sort_unstable();
    conjuncts.join("/\\")
}

/// One digest for a graph, whoever found it and in whatever order: equal exactly if the same texts are states, the same
/// of them initial, and the same labelled edges between them. A state that is listed twice, as when two states of the
/// code look alike to the specification, counts once; so does an edge.
///
/// The form is canonical without repeating long texts: states sorted, each known by its place, then edges sorted.
///
/// # Panics
///
/// If `initial` or an edge has an index that is none of `states`.
#[must_use]
pub fn graph_digest<'a, S: AsRef<str>>(
    states: &[S],
    initial: impl IntoIterator<Item = u32>,
    edges: impl IntoIterator<Item = (u32, &'a str, u32)>,
) -> String {
    let mut order: Vec<usize> = (0..states.len()).collect();
    order.sort_unstable_by_key(|&at| states[at].as_ref());
    let mut hasher = Sha256::new();
    let mut places = vec![0_u32; states.len()];
    let mut count = 0_u32;
    for (nth, &at) in order.iter().enumerate() {
        let text = states[at].as_ref();
        if nth == 0 || states[order[nth - 1]].as_ref() != text {
            hasher.update(format!("state {text}\n"));
            count += 1;
        }
        places[at] = count;
    }
    let initial: BTreeSet<u32> = initial.into_iter().map(|at| places[at as usize]).collect();
    for place in initial {
        hasher.update(format!("initial {place}\n"));
    }
    let place_edge = |(from, action, to): (u32, &'a str, u32)| (places[from as usize], action, places[to as usize]);
    let mut edges: Vec<(u32, &str, u32)> = edges.into_iter().map(place_edge).collect();
    edges.sort_unstable();
    edges.dedup();
    for (from, action, to) in edges {
        hasher.update(format!("edge {from} {action} {to}\n"));
    }
    let mut digits: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    digits.truncate(DIGEST_DIGITS);
    digits
}

/// A dump in the middle of being read.
#[derive(Default)]
struct Reading {
    graph: SpecGraph,
    /// The index of each state that was mentioned, by fingerprint, and the fingerprints by index.
    index: HashMap<i64, u32>,
    fingerprints: Vec<i64>,
    action_index: HashMap<Vec<u8>, u32>,
}

impl Reading {
    fn line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        if !matches!(line.first(), Some(b'-' | b'0'..=b'9')) {
            let is_drawing = DRAWING.iter().any(|drawing| line.starts_with(drawing.as_bytes()));
            return if is_drawing { Ok(()) } else { Err("no statement that TLC writes") };
        }
        let (from, rest) = fingerprint(line).ok_or("no state and no edge")?;
        if let Some(rest) = rest.strip_prefix(b" -> ") {
            let (to, rest) = fingerprint(rest).ok_or("an edge that leads to no state")?;
            if rest.starts_with(b" [style=\"dashed\"]") {
                return Ok(());
            }
            let label = rest.strip_prefix(b" [label=\"").ok_or("an edge without a label")?;
            let end = label.iter().position(|&byte| byte == b'"').ok_or("an edge whose label has no end")?;
            let action = self.action(&label[..end])?;
            let (from, to) = (self.state(from), self.state(to));
            self.graph.edges.push(SpecEdge { from, action, to });
            return Ok(());
        }
        let label = rest.strip_prefix(b" [label=\"").ok_or("a state without a label")?;
        let (text, rest) = unescape(label).ok_or("a state whose label has no end")?;
        let at = self.state(from);
        let known = &mut self.graph.states[at as usize];
        if known.is_empty() {
            *known = text;
        } else if *known != text {
            return Err("a second state with the same fingerprint");
        }
        if rest.starts_with(b",style = filled") {
            self.graph.initial.push(at);
        }
        Ok(())
    }

    /// The index of a state, which may be mentioned before its line comes.
    fn state(&mut self, fingerprint: i64) -> u32 {
        *self.index.entry(fingerprint).or_insert_with(|| {
            self.fingerprints.push(fingerprint);
            self.graph.states.push(String::new());
            u32::try_from(self.graph.states.len() - 1).expect("a dump of 4 billion states does not fit on a disk")
        })
    }

    fn action(&mut self, name: &[u8]) -> Result<u32, &'static str> {
        if let Some(&at) = self.action_index.get(name) {
            return Ok(at);
        }
        let text = str::from_utf8(name).map_err(|_| "an edge whose label is not UTF-8")?;
        let at = u32::try_from(self.graph.actions.len()).map_err(|_| "one action too many")?;
        self.graph.actions.push(text.to_owned());
        self.action_index.insert(name.to_vec(), at);
        Ok(at)
    }

    fn graph(mut self) -> Result<SpecGraph, DumpError> {
        if let Some(at) = self.graph.states.iter().position(String::is_empty) {
            return Err(DumpError::NoSuchState(self.fingerprints[at]));
        }
        self.graph.initial.sort_unstable();
        self.graph.initial.dedup();
        self.graph.edges.sort_unstable();
        self.graph.edges.dedup();
        Ok(self.graph)
    }
}

fn fingerprint(text: &[u8]) -> Option<(i64, &[u8])> {
    let end = text.iter().position(|&byte| byte != b'-' && !byte.is_ascii_digit()).unwrap_or(text.len());
    let number = str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some((number, &text[end..]))
}

/// The state in a label, normalised, and what comes after the label.
fn unescape(label: &[u8]) -> Option<(String, &[u8])> {
    let mut state = Vec::with_capacity(label.len());
    let mut at = 0;
    loop {
        match *label.get(at)? {
            b'"' => return Some((sorted(str::from_utf8(&state).ok()?), &label[at + 1..])),
            b'\\' => {
                match *label.get(at + 1)? {
                    b'n' => {}
                    escaped => state.push(escaped),
                }
                at += 2;
            }
            byte => {
                if !byte.is_ascii_whitespace() {
                    state.push(byte);
                }
                at += 1;
            }
        }
    }
}
