//! TLC, the model checker of TLA+: run one specification in one configuration, and read what it found.
//!
//! TLC is a judge that shares no code with the exact search of ours. It is also an old program with habits, so this
//! module trusts nothing that it does not say outright: a run counts as `holds` only if the exit code and the output
//! both say so, and everything unexpected is a [`TlcError`], which means "could not verify".
//!
//! Two runs at the same time do not meet: each has a folder of its own for the specification, the configuration, TLC's
//! working files (named after the second in which it starts) and the standard modules that it unpacks.

use std::env;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::fingerprint::short_hash;

mod graph;
mod output;

pub use graph::{DumpError, SpecEdge, SpecGraph, graph_digest, normalise_state};

/// Enough for the largest configuration on a slow machine; a run that takes longer is stuck.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// Where [`Tlc::find`] looks for the jar under the root of the repository, and where scripts/fetch-tlc puts it.
const JAR: &str = "target/tla2tools.jar";

/// How the JVM is started. `TieredStopAtLevel=1` is for short runs: on a specification of 82,165 states it brought 4.7 s
/// and more down to 4.3 s, and a tiny one from 1.04 s to 0.9 s. `UsePerfData` would leave a file outside of our folder.
const JVM_FLAGS: [&str; 6] = [
    "-XX:+UseParallelGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dfile.encoding=UTF-8",
    "-Duser.language=en",
    "-Duser.country=US",
];

/// Why a specification could not be verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlcError {
    /// There is no jar.
    #[error("TLC is not at {0}; run scripts/fetch-tlc, or let TLA2TOOLS_JAR name a tla2tools.jar")]
    NoJar(PathBuf),
    /// There is no Java.
    #[error(
        "TLC needs Java, and neither JAVA_HOME nor the PATH has it; install a Java 17 runtime, then run scripts/fetch-tlc"
    )]
    NoJava,
    /// A file of the run could not be read or written, or Java could not be started.
    #[error("could not {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The run took too long and was killed.
    #[error("TLC did not finish {module} within {} s and was killed; make the configuration smaller", .timeout.as_secs())]
    TimedOut {
        /// The specification.
        module: String,
        /// How long it was given.
        timeout: Duration,
    },
    /// TLC found no verdict: the specification or its configuration is wrong.
    #[error("TLC could not check {module} ({status}): {reason}")]
    Rejected {
        /// The specification.
        module: String,
        /// How Java ended.
        status: ExitStatus,
        /// The first lines of TLC's output that mean something.
        reason: String,
    },
    /// TLC's exit code and its output do not agree.
    #[error(
        "TLC ended {module} with {status}, but its output {lacks}; is this jar the TLC that scripts/fetch-tlc fetches?"
    )]
    Incoherent {
        /// The specification.
        module: String,
        /// How Java ended.
        status: ExitStatus,
        /// What the output should have said.
        lacks: &'static str,
    },
    /// The graph that TLC dumped is not one.
    #[error("the graph that TLC dumped of {module} is malformed: {source}")]
    Dump {
        /// The specification.
        module: String,
        /// Where and how.
        source: DumpError,
    },
}

/// A TLC that can be run.
#[derive(Debug, Clone)]
pub struct Tlc {
    java: PathBuf,
    jar: PathBuf,
}

/// One run of TLC.
#[derive(Debug, Clone)]
pub struct Job {
    /// The specification. The other .tla files of its folder are there for it to extend.
    pub module: PathBuf,
    /// The configuration: the text of a .cfg file.
    pub cfg: String,
    /// Whether a liveness property is checked: then TLC gets a single worker, because with several it may miss one.
    pub liveness: bool,
    /// Whether the labelled graph is wanted.
    pub dump: bool,
    /// How long the run may take, usually [`TIMEOUT`].
    pub timeout: Duration,
}

/// What TLC found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether everything that the configuration names holds.
    pub verdict: Verdict,
    /// How many different states TLC came to, on a counterexample those until then.
    pub distinct_states: u64,
    /// How many states it generated, the same one each time that it came up.
    pub generated: u64,
    /// The length of the longest shortest path from an initial state, counted in states; TLC does not always say.
    pub depth: Option<u64>,
    /// The counterexample, shortest unless it is of a liveness property; empty if everything holds.
    pub trace: Vec<TraceStep>,
    /// How a counterexample of a liveness property goes on for ever.
    pub lasso: Option<Lasso>,
    /// The graph, if it was wanted and everything holds. Otherwise TLC stops early and the graph has no end.
    pub graph: Option<SpecGraph>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Everything that the configuration names holds.
    Holds,
    /// A state has no step out of it. [`Tlc::run`] switches that check off, because a machine at rest is no fault.
    Deadlock,
    /// An invariant is violated.
    Invariant {
        /// Its name.
        name: String,
    },
    /// A property is violated.
    Property {
        /// Its name, which TLC tells only of a property of steps.
        name: Option<String>,
    },
}

/// One state of a counterexample, and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    /// The name of the action; `Initial predicate` for the first state.
    pub action: String,
    /// The state, in the form of [`normalise_state`].
    pub state: String,
}

/// How a counterexample of a liveness property goes on for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lasso {
    /// Nothing happens any more.
    Stuttering,
    /// It goes back to an earlier state and repeats from there.
    BackTo {
        /// That state's index in the trace.
        state: usize,
        /// The action that leads there.
        action: String,
    },
}

impl Job {
    /// The hash of everything that the outcome depends on, so that a recorded outcome can be told from a stale one
    /// where there is no Java: every .tla file of the folder, the configuration, and how TLC is run.
    ///
    /// # Errors
    ///
    /// If a file of the folder cannot be read.
    pub fn input_hash(&self) -> Result<String, TlcError> {
        let mut text = format!("{} liveness={} dump={}\n", self.name(), self.liveness, self.dump);
        let mut add = |name: &str, part: &str| text.push_str(&format!("{name} {}\n{part}\n", part.len()));
        add(".cfg", &self.cfg);
        for file in self.modules()? {
            let content = io_error(|| format!("read {}", file.display()), fs::read_to_string(&file))?;
            add(&file.file_name().unwrap_or_default().to_string_lossy(), &content);
        }
        Ok(short_hash(text.as_bytes()))
    }

    fn name(&self) -> String {
        self.module.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Every .tla file of the module's folder, sorted.
    fn modules(&self) -> Result<Vec<PathBuf>, TlcError> {
        let folder = self.module.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let what = || format!("list the specifications in {}", folder.display());
        let mut modules = Vec::new();
        for entry in io_error(what, fs::read_dir(folder))? {
            let path = io_error(what, entry)?.path();
            if path.extension().is_some_and(|extension| extension == "tla") {
                modules.push(path);
            }
        }
        modules.sort();
        Ok(modules)
    }
}

impl Tlc {
    /// Finds the jar (the one that `TLA2TOOLS_JAR` names, or the one that scripts/fetch-tlc fetched under `root`) and
    /// Java.
    ///
    /// # Errors
    ///
    /// If one of them is missing; the error says what to do.
    pub fn find(root: &Path) -> Result<Self, TlcError> {
        let named = env::var_os("TLA2TOOLS_JAR").filter(|jar| !jar.is_empty());
        let jar = named.map_or_else(|| root.join(JAR), PathBuf::from);
        if !jar.is_file() {
            return Err(TlcError::NoJar(jar));
        }
        // A run happens in a folder of its own, where a relative path would lead nowhere.
        let jar = io_error(|| format!("find {}", jar.display()), jar.canonicalize())?;
        let home = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin"));
        let path = env::var_os("PATH").unwrap_or_default();
        let executable = format!("java{}", env::consts::EXE_SUFFIX);
        let candidates = home.into_iter().chain(env::split_paths(&path)).map(|folder| folder.join(&executable));
        let java = candidates.into_iter().find(|java| java.is_file()).ok_or(TlcError::NoJava)?;
        Ok(Tlc { java, jar })
    }

    /// Runs TLC once.
    ///
    /// # Errors
    ///
    /// If there is no verdict, whatever the reason.
    pub fn run(&self, job: &Job) -> Result<Outcome, TlcError> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers = if job.liveness { 1 } else { cores };
        let outcome = self.run_with(job, workers)?;
        if outcome.verdict == Verdict::Holds || workers == 1 {
            return Ok(outcome);
        }
        // Several workers may come to a longer counterexample first; one worker searches breadth first.
        self.run_with(job, 1)
    }

    fn run_with(&self, job: &Job, workers: usize) -> Result<Outcome, TlcError> {
        let module = job.name();
        let folder = io_error(|| "make a temporary folder".to_owned(), tempfile::tempdir())?;
        let unpacked = folder.path().join("unpacked");
        io_error(|| format!("make {}", unpacked.display()), fs::create_dir(&unpacked))?;
        for file in job.modules()? {
            let copy = folder.path().join(file.file_name().unwrap_or_default());
            io_error(|| format!("copy {}", file.display()), fs::copy(&file, copy))?;
        }
        let cfg = folder.path().join("run.cfg");
        io_error(|| format!("write {}", cfg.display()), fs::write(&cfg, &job.cfg))?;

        let mut command = Command::new(&self.java);
        command.current_dir(folder.path()).args(JVM_FLAGS).arg("-Djava.io.tmpdir=unpacked");
        command.arg("-cp").arg(&self.jar).args(["tlc2.TLC", "-tool", "-metadir", "meta", "-deadlock"]);
        command.args(["-workers", &workers.to_string(), "-config", "run.cfg"]);
        if job.dump {
            command.args(["-dump", "dot,actionlabels", "graph.dot"]);
        }
        command.arg(format!("{module}.tla"));

        let (status, text) = finish(command, job)?;
        let mut outcome = output::outcome(&module, status, &text)?;
        if job.dump && outcome.verdict == Verdict::Holds {
            let dump = io_error(|| format!("open the graph of {module}"), File::open(folder.path().join("graph.dot")))?;
            let graph = SpecGraph::read(BufReader::new(dump));
            outcome.graph = Some(graph.map_err(|source| TlcError::Dump { module, source })?);
        }
        Ok(outcome)
    }
}

/// Runs a command to its end or to its timeout, and gives everything that it printed.
fn finish(mut command: Command, job: &Job) -> Result<(ExitStatus, String), TlcError> {
    let (mut reader, writer) = io_error(|| "make a pipe".to_owned(), io::pipe())?;
    let errors = io_error(|| "make a pipe".to_owned(), writer.try_clone())?;
    command.stdin(Stdio::null()).stdout(writer).stderr(errors);
    let started = command.spawn();
    let mut child = io_error(|| format!("start {}", command.get_program().display()), started)?;
    // The command holds our ends of the pipe; only without them does the pipe end when Java does.
    drop(command);

    // Reads until Java is gone. It is not joined: should Java leave a child behind, we do not wait for that one.
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let result = reader.read_to_end(&mut bytes).map(|_| bytes);
        // The receiver is gone after a timeout, and then nobody wants the text.
        let _ = sender.send(result);
    });
    let Ok(printed) = receiver.recv_timeout(job.timeout) else {
        // A kill fails only if Java has just ended by itself, which is as good.
        let _ = child.kill();
        io_error(|| "wait for Java".to_owned(), child.wait())?;
        return Err(TlcError::TimedOut { module: job.name(), timeout: job.timeout });
    };
    let bytes = io_error(|| "read what TLC printed".to_owned(), printed)?;
    let status = io_error(|| "wait for Java".to_owned(), child.wait())?;
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

fn io_error<T>(what: impl FnOnce() -> String, result: io::Result<T>) -> Result<T, TlcError> {
    result.map_err(|source| TlcError::Io { what: what(), source })
}

#[cfg(test)]
mod tests;
