//! The text of an item as it was when its hash was recorded. fingerprint.txt holds no text, but git does.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use super::shape::{Shape, shapes};

/// How far back the recorded version is looked for. A recorded shape is rarely older than the last few commits of its
/// file, and each version costs a call of git and a parse.
const VERSIONS_MAX: usize = 50;

/// Earlier versions of the covered files, read from git once each and only as far back as somebody asks.
pub(super) struct History<'r> {
    root: &'r Path,
    files: BTreeMap<String, Versions>,
}

#[derive(Default)]
struct Versions {
    /// The commits that are not read yet, newest last.
    revisions: Vec<String>,
    /// The items of each version that was read, newest first.
    read: Vec<BTreeMap<String, Shape>>,
}

impl<'r> History<'r> {
    pub(super) fn new(root: &'r Path) -> Self {
        History { root, files: BTreeMap::new() }
    }

    /// The text of the newest version of an item that has this hash.
    pub(super) fn source(&mut self, path: &str, item: &str, hash: &str) -> Option<String> {
        let root = self.root;
        let versions = self
            .files
            .entry(path.to_owned())
            .or_insert_with(|| Versions { revisions: revisions(root, path), read: Vec::new() });
        let has_hash = |items: &BTreeMap<String, Shape>| {
            items.get(item).filter(|shape| shape.hash() == hash).map(|shape| shape.source.clone())
        };
        if let Some(source) = versions.read.iter().find_map(has_hash) {
            return Some(source);
        }
        while let Some(revision) = versions.revisions.pop() {
            let text = git(root, &["show", &format!("{revision}:./{path}")]);
            // A version that does not parse, or a commit that deleted the file, has no item.
            let items = text.and_then(|text| shapes(&text).ok()).unwrap_or_default();
            let source = has_hash(&items);
            versions.read.push(items);
            if source.is_some() {
                return source;
            }
        }
        None
    }
}

/// The commits to look at, newest last.
fn revisions(root: &Path, path: &str) -> Vec<String> {
    let count = VERSIONS_MAX.to_string();
    let log = git(root, &["log", "--format=%H", "-n", &count, "--", path]).unwrap_or_default();
    let mut revisions: Vec<String> = log.lines().rev().map(str::to_owned).collect();
    // History is simplified along merges, so HEAD itself may not be in it.
    revisions.push("HEAD".to_owned());
    revisions
}

/// What git prints; nothing where there is no git, no repository, or no such version.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).stderr(Stdio::null()).output().ok()?;
    if output.status.success() { String::from_utf8(output.stdout).ok() } else { None }
}
