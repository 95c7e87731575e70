//! fingerprint.txt: the recorded facts as text that a reviewer reads in a diff.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::FingerprintError;

const HEADER: &str = "\
# What ./check.sh found when every promise last held: the shape of the covered code, the graphs, the results of TLC.
# Do not edit: ./check.sh --accept writes it anew. Sorted, one fact a line.
";

/// What stands for a field that has no value.
const NONE: &str = "-";

/// Everything that fingerprint.txt records. `Display` writes it, `FromStr` reads it back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fingerprint {
    /// The shape of each covered item.
    pub items: BTreeMap<ItemName, ItemFact>,
    /// The exact graph of the code, by `domain/configuration`.
    pub graphs: BTreeMap<String, GraphFact>,
    /// What TLC found, by `domain/configuration`.
    pub tlc: BTreeMap<String, TlcFact>,
    /// How many files a folder holds, so that it does not shrink unnoticed.
    pub files: BTreeMap<String, u64>,
}

/// A covered item. The name of the item may hold spaces, its path may not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemName {
    /// The file, from the root of the repository.
    pub path: String,
    /// The item, for example `Connection::apply` or `<Turn as Drop>::drop`.
    pub item: String,
}

/// The recorded shape of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemFact {
    /// The actions of the specifications that rely on it.
    pub actions: BTreeSet<String>,
    /// The hash of its normalised tokens.
    pub hash: String,
}

/// The behaviour of the code in one configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphFact {
    /// How many states.
    pub states: u64,
    /// How many labelled edges.
    pub edges: u64,
    /// The digest of both.
    pub digest: String,
    /// How many edges each step has.
    pub steps: BTreeMap<String, u64>,
}

/// What TLC found on one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlcFact {
    /// One word, for example `holds` or `breaks:OlderPromptEnds:7`.
    pub verdict: String,
    /// How many states.
    pub states: u64,
    /// How many labelled edges.
    pub edges: u64,
    /// The digest of its graph, where one was dumped.
    pub graph: Option<String>,
    /// The hash of everything that the result depends on.
    pub input: String,
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEADER)?;
        for (folder, count) in &self.files {
            writeln!(f, "files {folder} {count}")?;
        }
        for (configuration, GraphFact { states, edges, digest, steps }) in &self.graphs {
            write!(f, "graph {configuration} states={states} edges={edges} digest={digest}")?;
            for (step, count) in steps {
                write!(f, " {step}={count}")?;
            }
            writeln!(f)?;
        }
        for (ItemName { path, item }, ItemFact { actions, hash }) in &self.items {
            let actions = actions.iter().map(String::as_str).collect::<Vec<_>>().join(",");
            let actions = if actions.is_empty() { NONE } else { &actions };
            writeln!(f, "item {path} {item} {actions} {hash}")?;
        }
        for (configuration, TlcFact { verdict, states, edges, graph, input }) in &self.tlc {
            let graph = graph.as_deref().unwrap_or(NONE);
            writeln!(
                f,
                "tlc {configuration} verdict={verdict} states={states} edges={edges} graph={graph} input={input}"
            )?;
        }
        Ok(())
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let mut fingerprint = Fingerprint::default();
        for (at, line) in text.lines().enumerate() {
            if !line.trim().is_empty() && !line.starts_with('#') {
                fingerprint.line(line).map_err(|reason| FingerprintError::BadRecord { line: at + 1, reason })?;
            }
        }
        Ok(fingerprint)
    }
}

impl Fingerprint {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            ["files", folder, count] => insert(&mut self.files, (*folder).to_owned(), number("count", count)?),
            ["graph", configuration, states, edges, digest, steps @ ..] => {
                let mut edges_of = BTreeMap::new();
                for step in steps {
                    let (step, count) = step.split_once('=').ok_or_else(|| format!("`{step}` is not STEP=COUNT"))?;
                    insert(&mut edges_of, step.to_owned(), number(step, count)?)?;
                }
                let fact = GraphFact {
                    states: number("states", value("states", states)?)?,
                    edges: number("edges", value("edges", edges)?)?,
                    digest: hash(value("digest", digest)?)?,
                    steps: edges_of,
                };
                insert(&mut self.graphs, (*configuration).to_owned(), fact)
            }
            // An item's name may hold spaces; the two fields after it may not.
            ["item", path, item @ .., actions, digest] if !item.is_empty() => {
                let actions = actions.split(',').filter(|action| *action != NONE).map(str::to_owned).collect();
                let name = ItemName { path: (*path).to_owned(), item: item.join(" ") };
                insert(&mut self.items, name, ItemFact { actions, hash: hash(digest)? })
            }
            ["tlc", configuration, verdict, states, edges, graph, input] => {
                let graph = value("graph", graph)?;
                let fact = TlcFact {
                    verdict: value("verdict", verdict)?.to_owned(),
                    states: number("states", value("states", states)?)?,
                    edges: number("edges", value("edges", edges)?)?,
                    graph: if graph == NONE { None } else { Some(hash(graph)?) },
                    input: hash(value("input", input)?)?,
                };
                insert(&mut self.tlc, (*configuration).to_owned(), fact)
            }
            [kind @ ("files" | "graph" | "item" | "tlc"), ..] => Err(format!("a `{kind}` line has other fields")),
            _ => Err("it begins with none of files, graph, item, tlc".to_owned()),
        }
    }
}

fn insert<K: Ord + fmt::Debug, V>(map: &mut BTreeMap<K, V>, key: K, value: V) -> Result<(), String> {
    let shown = format!("{key:?}");
    match map.insert(key, value) {
        None => Ok(()),
        Some(_) => Err(format!("{shown} is recorded twice")),
    }
}

fn value<'l>(name: &str, field: &'l str) -> Result<&'l str, String> {
    let value = field.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
    value.filter(|value| !value.is_empty()).ok_or_else(|| format!("`{field}` is not {name}=VALUE"))
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number of {name}"))
}

fn hash(text: &str) -> Result<String, String> {
    let is_hash = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if is_hash { Ok(text.to_owned()) } else { Err(format!("`{text}` is no hash")) }
}
