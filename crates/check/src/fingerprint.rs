//! Drift: the covered code no longer has the shape that was recorded when every promise last held.
//!
//! A model that drives the real code cannot drift from it, but what a specification says of the code, and what the shell
//! around the core does, can. So each item that a specification relies on is named in a `covered.toml`, and its shape is
//! recorded in fingerprint.txt. A change of shape is no fault; it asks a person to look at the actions that rely on it.
//!
//! The order of use: [`Coverage::read`], [`scan`], [`drift`] against the recorded [`Fingerprint`], and, once every
//! promise held, [`Scan::facts`] as the new record.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use similar::TextDiff;

use crate::report::{Drift, DriftKind};

mod coverage;
mod history;
mod record;
mod shape;

pub use coverage::Coverage;
pub use record::{Fingerprint, GraphFact, ItemFact, ItemName, TlcFact};
pub(crate) use shape::short_hash;

use history::History;
use shape::{Shape, shapes};

/// How many unchanged lines a diff shows around a change.
const DIFF_CONTEXT_LINES: usize = 3;

/// Why the shape of the covered code could not be found out. None of these is drift: nothing was compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FingerprintError {
    /// A file or folder could not be read.
    #[error("could not read {path}: {source}")]
    Unreadable {
        /// The file, from the root of the repository.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A covered file is not Rust.
    #[error("{path}:{line} does not parse as Rust: {reason}")]
    NotRust {
        /// The file, from the root of the repository.
        path: String,
        /// The line of the error.
        line: usize,
        /// What the parser says.
        reason: String,
    },
    /// A `covered.toml` does not say what is covered.
    #[error("{file} is malformed: {reason}")]
    BadCoverage {
        /// The `covered.toml`.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No `covered.toml` names a file.
    #[error("no specs/*/covered.toml names a file, so nothing is covered; write one (specs/README.md shows how)")]
    NothingCovered,
    /// A line of a `covered.toml` names an item that is not there.
    #[error("{file} covers `{item}` of {path}, which has no such item; correct that line to the item's new name")]
    NoSuchItem {
        /// The `covered.toml`.
        file: String,
        /// The file of the code.
        path: String,
        /// The item that is missing.
        item: String,
    },
    /// A line of fingerprint.txt is none that `--accept` writes.
    #[error(
        "fingerprint.txt line {line}: {reason}; restore the file from git, or record it anew with ./check.sh --accept"
    )]
    BadRecord {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// The shape of the covered code as it is now.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    items: BTreeMap<ItemName, Covered>,
    /// Items of covered files that no line covers and that lock, spawn or select, with the words that do.
    uncovered: BTreeMap<ItemName, (Vec<String>, Shape)>,
}

#[derive(Debug, Clone)]
struct Covered {
    fact: ItemFact,
    shape: Shape,
}

impl Scan {
    /// What fingerprint.txt records of it.
    #[must_use]
    pub fn facts(&self) -> BTreeMap<ItemName, ItemFact> {
        self.items.iter().map(|(name, covered)| (name.clone(), covered.fact.clone())).collect()
    }
}

/// Reads the shape of every covered item.
///
/// # Errors
///
/// If a covered file cannot be read or parsed, or a covered item is not there.
pub fn scan(root: &Path, coverage: &Coverage) -> Result<Scan, FingerprintError> {
    let mut scan = Scan::default();
    for path in coverage.paths() {
        let text = fs::read_to_string(root.join(path))
            .map_err(|source| FingerprintError::Unreadable { path: path.to_owned(), source })?;
        let shapes = shapes(&text).map_err(|error| FingerprintError::NotRust {
            path: path.to_owned(),
            line: error.span().start().line,
            reason: error.to_string(),
        })?;
        if let Some((file, item)) = coverage.named(path).find(|(_, item)| !shapes.contains_key(*item)) {
            return Err(FingerprintError::NoSuchItem {
                file: file.to_owned(),
                path: path.to_owned(),
                item: item.to_owned(),
            });
        }
        for (item, shape) in shapes {
            let actions = coverage.actions(path, &item);
            let name = ItemName { path: path.to_owned(), item };
            if let Some(actions) = actions {
                let fact = ItemFact { actions, hash: shape.hash() };
                scan.items.insert(name, Covered { fact, shape });
            } else {
                let words: Vec<String> = shape.concurrency().into_iter().map(str::to_owned).collect();
                if !words.is_empty() {
                    scan.uncovered.insert(name, (words, shape));
                }
            }
        }
    }
    Ok(scan)
}

/// Compares what is recorded with what is there, by path and item. `root` is where git finds the recorded text.
#[must_use]
pub fn drift(recorded: &Fingerprint, scan: &Scan, root: &Path) -> Vec<Drift> {
    let mut history = History::new(root);
    let mut found = Vec::new();
    let mut report = |name: &ItemName, fact: Option<&ItemFact>, kind, change| {
        let ItemName { path, item } = name.clone();
        let actions = fact.into_iter().flat_map(|fact| fact.actions.iter().cloned()).collect();
        found.push(Drift { path, item, actions, kind, change });
    };

    for (name, Covered { fact, shape }) in &scan.items {
        match recorded.items.get(name) {
            Some(old) if old == fact => {}
            Some(old) => {
                let change = changed(name, old, fact, shape, &mut history);
                report(name, Some(fact), DriftKind::Changed, change);
            }
            None => report(name, Some(fact), DriftKind::New, diff(name, "", &shape.source)),
        }
    }
    for (name, old) in &recorded.items {
        if !scan.items.contains_key(name) {
            let change = match history.source(&name.path, &name.item, &old.hash) {
                Some(source) => diff(name, &source, ""),
                None => format!("It was recorded as {}; git has no version with that hash.", old.hash),
            };
            report(name, Some(old), DriftKind::Gone, change);
        }
    }
    for (name, (words, shape)) in &scan.uncovered {
        let where_it_is = shape.source.lines().filter(|line| words.iter().any(|word| line.contains(word.as_str())));
        let lines: String = where_it_is.map(|line| format!("    {}\n", line.trim())).collect();
        let change = format!(
            "It has `{}`, and no covered.toml covers it: name the actions that rely on it there.\n{lines}",
            words.join("`, `")
        );
        report(name, None, DriftKind::Uncovered, change);
    }
    found.sort_by(|a, b| (&a.path, &a.item).cmp(&(&b.path, &b.item)));
    found
}

fn changed(name: &ItemName, old: &ItemFact, new: &ItemFact, shape: &Shape, history: &mut History<'_>) -> String {
    if old.hash == new.hash {
        let list = |fact: &ItemFact| fact.actions.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        return format!(
            "The code is as recorded; the actions that rely on it were [{}] and are [{}].",
            list(old),
            list(new)
        );
    }
    match history.source(&name.path, &name.item, &old.hash) {
        Some(source) => diff(name, &source, &shape.source),
        None => format!(
            "It was recorded as {} and is {}; git has no version with the recorded hash, so the change cannot be shown.",
            old.hash, new.hash
        ),
    }
}

fn diff(name: &ItemName, old: &str, new: &str) -> String {
    let header = format!("{} {}", name.path, name.item);
    let diff = TextDiff::from_lines(old, new);
    let mut unified = diff.unified_diff();
    unified.context_radius(DIFF_CONTEXT_LINES).header(&format!("recorded {header}"), &format!("now {header}"));
    unified.to_string()
}

#[cfg(test)]
mod tests;
