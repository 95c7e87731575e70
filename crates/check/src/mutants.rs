//! Mutants: each guard of core forced one way, and each old design brought back by a patch. A promise must kill each of
//! them; what nothing kills, no check would notice.

use std::{
    collections::BTreeSet,
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use lastword_core::{Forced, GUARDS, Limits};
use lastword_model::{Configuration, ConnectionModel, Counterexample, DelegationModel, Graph, liveness, promises::Row};
use serde::{Deserialize, Serialize};

use crate::{
    domain::{code_digest, record as record_path},
    replay::{Stage, Verdict, replay},
    report::terminal::RULES,
    subject::{Subject, is_of_delegation},
};

/// Set for a build of a patched tree: its code is the mutant, and recorded states are those of other code.
const PATCHED_VARIABLE: &str = "LASTWORD_CHECK_PATCHED";

/// Whether this program was built from a patched tree.
#[must_use]
pub fn is_patched() -> bool {
    env::var_os(PATCHED_VARIABLE).is_some()
}

/// A mutant, as its row in specs/DOMAIN/mutants.toml says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// The domain.
    pub domain: String,
    /// Its name.
    pub name: String,
    /// What is changed.
    pub change: Change,
    /// The promise that must kill it.
    pub kills: String,
    /// The configuration in which it must, without its domain.
    pub configuration: String,
    /// The length of the shortest counterexample there.
    pub steps: usize,
}

/// What a mutant changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A guard of core is forced.
    Guard(Forced),
    /// A patch of core, by its file name beside mutants.toml.
    Patch(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    mutant: Vec<MutantRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MutantRow {
    name: String,
    guard: Option<String>,
    forced: Option<bool>,
    patch: Option<String>,
    kills: String,
    configuration: String,
    steps: usize,
}

impl Mutant {
    /// Reads the rows of a domain.
    ///
    /// # Errors
    ///
    /// A sentence where the text is no such table, or a row names no guard of core.
    pub fn read_all(domain: &str, text: &str) -> Result<Vec<Self>, String> {
        let rows: Rows = toml::from_str(text).map_err(|error| error.to_string())?;
        rows.mutant
            .into_iter()
            .map(|row| {
                let change = match (&row.guard, row.forced, row.patch) {
                    (Some(name), Some(to), None) => {
                        let guard = GUARDS.into_iter().find(|guard| guard == name).ok_or_else(|| {
                            format!("{}: core has no guard {name}; it has {}", row.name, GUARDS.join(", "))
                        })?;
                        Change::Guard(Forced { guard, to })
                    }
                    (None, None, Some(patch)) => Change::Patch(patch),
                    _ => return Err(format!("{}: it needs either `guard` and `forced`, or `patch`", row.name)),
                };
                Ok(Self {
                    domain: domain.to_owned(),
                    name: row.name,
                    change,
                    kills: row.kills,
                    configuration: row.configuration,
                    steps: row.steps,
                })
            })
            .collect()
    }

    /// The guard that it forces, if it is no patch.
    #[must_use]
    pub fn forced(&self) -> Option<Forced> {
        match self.change {
            Change::Guard(forced) => Some(forced),
            Change::Patch(_) => None,
        }
    }

    /// `DOMAIN/NAME` of its configuration.
    #[must_use]
    pub fn configuration_id(&self) -> String {
        format!("{}/{}", self.domain, self.configuration)
    }
}

/// A sentence for each guard without a mutant, each promise that no mutant breaks, and each name that leads nowhere.
#[must_use]
pub fn strangers(
    mutants: &[Mutant],
    promises: &[Row],
    configurations: &[Configuration],
    counterexamples: &[(String, Counterexample)],
) -> Vec<String> {
    let mut missing = Vec::new();
    let guards: BTreeSet<&str> = mutants
        .iter()
        .filter_map(|mutant| if let Change::Guard(forced) = &mutant.change { Some(forced.guard) } else { None })
        .collect();
    for guard in GUARDS.into_iter().filter(|guard| !guards.contains(guard)) {
        missing.push(format!("guard {guard}: no mutant forces it; add a row to specs/DOMAIN/mutants.toml"));
    }
    for row in promises.iter().filter(|row| !mutants.iter().any(|mutant| mutant.kills == row.name)) {
        missing
            .push(format!("promise {}: no mutant breaks it; add a row to specs/{}/mutants.toml", row.name, row.domain));
    }
    for mutant in mutants {
        if !promises.iter().any(|row| row.name == mutant.kills) {
            missing.push(format!("mutant {}: there is no promise {}", mutant.name, mutant.kills));
        }
        if !configurations.iter().any(|configuration| configuration.id() == mutant.configuration_id()) {
            missing.push(format!("mutant {}: there is no configuration {}", mutant.name, mutant.configuration_id()));
        }
        if !counterexamples.iter().any(|(_, counterexample)| counterexample.mutant == mutant.name) {
            missing.push(format!("mutant {}: no file under specs/counterexamples replays it", mutant.name));
        }
    }
    for (file, counterexample) in counterexamples {
        if !mutants.iter().any(|mutant| mutant.name == counterexample.mutant) {
            missing.push(format!("{file}: there is no mutant {}", counterexample.mutant));
        }
        let id = format!("{}/{}", counterexample.domain, counterexample.configuration);
        if !configurations.iter().any(|configuration| configuration.id() == id) {
            missing.push(format!("{file}: there is no configuration {id}"));
        }
    }
    missing
}

/// What each layer says of one mutant: one line of the kill matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// The mutant.
    pub mutant: String,
    /// The promise that must kill it.
    pub promise: String,
    /// The promises of every state that break on the exact graph, each with the length of its shortest counterexample.
    pub graph: Vec<(String, usize)>,
    /// The promises of what must come in the end that break on it.
    pub liveness: Vec<(String, usize)>,
    /// The graph is not that of the specification.
    pub difference: bool,
    /// The recorded files, each with the promise that it broke on the runtime, if it did.
    pub replay: Vec<(String, Option<String>)>,
}

impl Kill {
    /// How many steps the named promise took to kill it, if it did.
    #[must_use]
    pub fn steps(&self) -> Option<usize> {
        self.graph.iter().chain(&self.liveness).find(|(promise, _)| *promise == self.promise).map(|(_, steps)| *steps)
    }

    /// The files that are not red although their mutant is there.
    pub fn green_files(&self) -> impl Iterator<Item = &str> {
        self.replay.iter().filter(|(_, broken)| broken.is_none()).map(|(file, _)| file.as_str())
    }
}

/// Tries one mutant in this build: a guard is forced; a patch is already in.
///
/// # Errors
///
/// A sentence where its graph could not be explored.
pub fn try_here(
    mutant: &Mutant,
    configuration: &Configuration,
    digest_of_the_specification: &str,
    counterexamples: &[(String, Counterexample)],
    configurations: &[Configuration],
) -> Result<Kill, String> {
    let mut kill = if is_of_delegation(&mutant.domain) {
        try_on::<DelegationModel>(mutant, configuration, digest_of_the_specification)?
    } else {
        try_on::<ConnectionModel>(mutant, configuration, digest_of_the_specification)?
    };
    for (file, counterexample) in counterexamples.iter().filter(|(_, file)| file.mutant == mutant.name) {
        let id = format!("{}/{}", counterexample.domain, counterexample.configuration);
        let configuration = configurations.iter().find(|configuration| configuration.id() == id);
        let configuration = configuration.ok_or_else(|| format!("{file}: there is no configuration {id}"))?;
        let broken = match replay_under(counterexample, configuration, mutant.forced())? {
            Verdict::Broken { promise, .. } if promise == counterexample.promise => Some(promise.to_owned()),
            _ => None,
        };
        kill.replay.push((file.clone(), broken));
    }
    Ok(kill)
}

/// What the graph of one mutant says.
fn try_on<M: Subject>(
    mutant: &Mutant,
    configuration: &Configuration,
    digest_of_the_specification: &str,
) -> Result<Kill, String> {
    let model = M::read(configuration, mutant.forced()).map_err(|error| error.to_string())?;
    let graph = Graph::explore(&model, |_| {}).map_err(|error| error.to_string())?;
    let depth = |state| graph.path_to(&model, state).len();
    let mut kill = Kill {
        mutant: mutant.name.clone(),
        promise: mutant.kills.clone(),
        graph: Vec::new(),
        liveness: Vec::new(),
        difference: code_digest(&model, &graph) != digest_of_the_specification,
        replay: Vec::new(),
    };
    for promise in model.promises() {
        if let Some(state) = graph.first_breach(&model, promise) {
            kill.graph.push((promise.name.to_owned(), depth(state)));
        }
        if let Some(stuck) = liveness::first_breach(&graph, &model, promise) {
            kill.liveness.push((promise.name.to_owned(), depth(stuck.state)));
        }
    }
    Ok(kill)
}

/// Replays a file on the runtime with a guard forced, or with the patch that is in, where its promise must break.
///
/// # Errors
///
/// A sentence where the configuration is no model.
pub fn replay_under(
    counterexample: &Counterexample,
    configuration: &Configuration,
    forced: Option<Forced>,
) -> Result<Verdict, String> {
    if is_of_delegation(&counterexample.domain) {
        let model = DelegationModel::read(configuration, forced).map_err(|error| error.to_string())?;
        return Ok(crate::replay::delegation::replay(counterexample, &model, true, Stage::Runtime, |_| {}));
    }
    let mut limits = Limits::default();
    limits.forced = forced;
    let model = ConnectionModel::read(configuration, forced).map_err(|error| error.to_string())?;
    Ok(replay(counterexample, &model, limits, Stage::Runtime, |_| {}))
}

/// The shortest path on which a mutant breaks its promise, as a counterexample with the states of the real code.
///
/// # Errors
///
/// A sentence where nothing kills the mutant, or it is a patch, whose path only a patched build can find.
pub fn record(mutant: &Mutant, configuration: &Configuration, story: String) -> Result<Counterexample, String> {
    if is_of_delegation(&mutant.domain) {
        record_on::<DelegationModel>(mutant, configuration, story)
    } else {
        record_on::<ConnectionModel>(mutant, configuration, story)
    }
}

fn record_on<M: Subject>(
    mutant: &Mutant,
    configuration: &Configuration,
    story: String,
) -> Result<Counterexample, String> {
    let Change::Guard(forced) = mutant.change else {
        return Err(format!("{} is a patch: write its steps by hand, then `./replay.sh --renew FILE`", mutant.name));
    };
    let real = M::read(configuration, None).map_err(|error| error.to_string())?;
    let model = M::read(configuration, Some(forced)).map_err(|error| error.to_string())?;
    let graph = Graph::explore(&model, |_| {}).map_err(|error| error.to_string())?;
    let promise = model
        .promises()
        .iter()
        .find(|promise| promise.name == mutant.kills)
        .ok_or_else(|| format!("there is no promise {}", mutant.kills))?;
    let state = graph
        .first_breach(&model, promise)
        .or_else(|| liveness::first_breach(&graph, &model, promise).map(|stuck| stuck.state))
        .ok_or_else(|| format!("{} does not break {} in {}", mutant.name, mutant.kills, configuration.id()))?;
    let path = record_path(&real, configuration, promise.name, &graph.path_to(&model, state));
    Ok(Counterexample { mutant: mutant.name.clone(), story, ..path })
}

/// Tries a patched mutant: builds the program again from a patched copy of the tree, and asks it.
///
/// # Errors
///
/// A sentence where the copy, the patch or the build fails, or the answer is not understood.
pub fn try_patched(mutant: &Mutant, patch: &str, root: &Path, digest: &str) -> Result<Kill, String> {
    let said = |what: &str, error: &dyn std::fmt::Display| format!("mutant {}: {what}: {error}", mutant.name);
    let target = root.join("target/mutants");
    fs::create_dir_all(&target).map_err(|error| said("target/mutants could not be made", &error))?;
    // Two runs at the same time would overwrite each other's program.
    let lock = fs::File::create(target.join("lock")).map_err(|error| said("the lock could not be made", &error))?;
    lock.lock().map_err(|error| said("the lock could not be taken", &error))?;
    let tree = tempfile::tempdir_in(&target).map_err(|error| said("a folder could not be made", &error))?;
    for part in ["crates", "specs", "Cargo.toml", "Cargo.lock"] {
        copy(&root.join(part), &tree.path().join(part))
            .map_err(|error| said(&format!("{part} could not be copied"), &error))?;
    }
    let patch = root.join("specs").join(&mutant.domain).join(patch);
    let input =
        fs::File::open(&patch).map_err(|error| said(&format!("{} could not be read", patch.display()), &error))?;
    let applied = Command::new("patch")
        .args(["--strip=1", "--no-backup-if-mismatch", "--fuzz=0", "--silent", "--batch"])
        .current_dir(tree.path())
        .stdin(input)
        .output()
        .map_err(|error| said("the program patch could not be run", &error))?;
    if !applied.status.success() {
        let problem = String::from_utf8_lossy(&applied.stdout).trim().to_owned();
        return Err(said(&format!("{} no longer applies; make it again", patch.display()), &problem));
    }
    let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--package", "lastword-check", "--target-dir"])
        .arg(target.join("build"))
        // Built fast: it explores one small configuration, and is then thrown away.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        .current_dir(tree.path())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| said("cargo could not be run", &error))?;
    if !built.status.success() {
        return Err(said("the patched tree does not build", &String::from_utf8_lossy(&built.stderr).trim()));
    }
    let answer = Command::new(target.join("build/debug/lastword-check"))
        .args(["try-mutant", &mutant.name, "--digest", digest])
        .current_dir(tree.path())
        .env(PATCHED_VARIABLE, "1")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| said("the patched program could not be run", &error))?;
    serde_json::from_slice(&answer.stdout).map_err(|error| {
        said(&format!("its answer is not understood ({})", String::from_utf8_lossy(&answer.stderr).trim()), &error)
    })
}

/// Copies a file or a folder, without what builds leave behind.
fn copy(from: &PathBuf, to: &PathBuf) -> io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            if name != "target" && name != "node_modules" {
                copy(&from.join(&name), &to.join(&name))?;
            }
        }
        Ok(())
    } else {
        fs::copy(from, to).map(|_| ())
    }
}

/// The kill matrix as a table: a line a mutant, a column a layer.
#[must_use]
pub fn matrix(kills: &[Kill]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(RULES);
    table.set_header(["mutant", "must be killed by", "graph", "specification", "liveness", "replay"]);
    for kill in kills {
        let steps = |broken: &[(String, usize)]| match broken.iter().find(|(promise, _)| *promise == kill.promise) {
            Some((_, steps)) => format!("killed in {steps}"),
            None if broken.is_empty() => "-".to_owned(),
            None => {
                format!("only {}", broken.iter().map(|(promise, _)| promise.as_str()).collect::<Vec<_>>().join(", "))
            }
        };
        let red = kill.replay.len() - kill.green_files().count();
        table.add_row([
            kill.mutant.clone(),
            kill.promise.clone(),
            steps(&kill.graph),
            if kill.difference { "differs" } else { "same graph" }.to_owned(),
            steps(&kill.liveness),
            format!("{red} of {} red", kill.replay.len()),
        ]);
    }
    table.to_string()
}
