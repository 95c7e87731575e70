//! What is covered: `specs/DOMAIN/covered.toml` says which actions of a specification rely on which item of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::FingerprintError;

/// The item name that stands for every item of a file that has no line of its own.
const EVERY_OTHER_ITEM: &str = "*";

/// Every `covered.toml`, each kept apart, because `*` speaks only for the domain that wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    domains: Vec<Domain>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Domain {
    /// The `covered.toml` itself, for errors.
    file: String,
    /// File of the code, then item, then the actions that rely on it.
    covered: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl Coverage {
    /// Reads `specs/*/covered.toml` under the root of the repository.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or does not parse, or if there is none.
    pub fn read(root: &Path) -> Result<Self, FingerprintError> {
        let specs = root.join("specs");
        let unreadable = |path: &Path| {
            let path = path.display().to_string();
            move |source| FingerprintError::Unreadable { path, source }
        };
        let mut files = Vec::new();
        for entry in fs::read_dir(&specs).map_err(unreadable(&specs))? {
            let entry = entry.map_err(unreadable(&specs))?;
            if entry.path().join("covered.toml").is_file() {
                files.push(format!("specs/{}/covered.toml", entry.file_name().to_string_lossy()));
            }
        }
        files.sort();
        let mut coverage = Coverage::default();
        for file in files {
            let text = fs::read_to_string(root.join(&file)).map_err(unreadable(Path::new(&file)))?;
            coverage.add(&file, &text)?;
        }
        if coverage.paths().is_empty() {
            return Err(FingerprintError::NothingCovered);
        }
        Ok(coverage)
    }

    /// Adds one `covered.toml`; `file` is its path, for errors.
    ///
    /// # Errors
    ///
    /// If it does not parse, or if a name in it could not stand in fingerprint.txt.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), FingerprintError> {
        let malformed = |reason: String| FingerprintError::BadCoverage { file: file.to_owned(), reason };
        let covered: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> =
            toml::from_str(text).map_err(|error| malformed(error.to_string().trim_end().to_owned()))?;
        for (path, items) in &covered {
            let actions = items.values().flatten().map(String::as_str);
            for word in std::iter::once(path.as_str()).chain(actions) {
                if word.is_empty() || word == "-" || word.contains(|c: char| c.is_whitespace() || c == ',') {
                    return Err(malformed(format!("`{word}` is no name: it must be one word without a comma")));
                }
            }
        }
        self.domains.push(Domain { file: file.to_owned(), covered });
        Ok(())
    }

    /// The covered files, from the root of the repository.
    #[must_use]
    pub fn paths(&self) -> BTreeSet<&str> {
        self.domains.iter().flat_map(|domain| domain.covered.keys().map(String::as_str)).collect()
    }

    /// The actions that rely on an item, or none where no line covers it.
    pub(super) fn actions(&self, path: &str, item: &str) -> Option<BTreeSet<String>> {
        let mut lines = self.domains.iter().filter_map(|domain| {
            let items = domain.covered.get(path)?;
            items.get(item).or_else(|| items.get(EVERY_OTHER_ITEM))
        });
        let first = lines.next()?.clone();
        Some(lines.fold(first, |mut actions, line| {
            actions.extend(line.iter().cloned());
            actions
        }))
    }

    /// Every item of a file that has a line of its own, with the `covered.toml` that names it.
    pub(super) fn named(&self, path: &str) -> impl Iterator<Item = (&str, &str)> {
        self.domains.iter().flat_map(move |domain| {
            let items = domain.covered.get(path).into_iter().flatten();
            let names = items.map(|(item, _)| item.as_str()).filter(|item| *item != EVERY_OTHER_ITEM);
            names.map(|item| (domain.file.as_str(), item))
        })
    }
}
