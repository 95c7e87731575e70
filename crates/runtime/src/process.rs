//! An agent that is a child process: how it is started, how it is ended, and what is left of it.
//!
//! An agent is often started by a launcher (`npx`, a shell), so a process group is what is started and ended: the launcher
//! leads it, and whatever it starts belongs to it. A process that leaves its group on purpose is out of reach.
//!
//! Each process has a thread that waits for it, kills what is left of its group, and reaps it. That works without a
//! runtime, so neither an orphan nor a zombie is left wherever the rest of the program stands, as long as it lives.

use std::{
    collections::VecDeque,
    io,
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    io::retry_on_intr,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStderr, ChildStdin, ChildStdout},
    sync::{oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    client::{Client, ClientRole},
    connect::connect_link,
    error::{Exit, ServeError},
    handle::AgentHandle,
    options::Options,
    serve::Role,
};

/// How long to wait for the end of the standard error of a process that has exited. It is there at once, unless a process
/// that left the group keeps the pipe open.
const STDERR_END_MAX: Duration = Duration::from_secs(1);

/// How much of a line of standard error is kept.
const STDERR_LINE_BYTES_MAX: usize = 500;

/// The bounds and times of an agent that is a child process. Take the default and change what you need.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProcessOptions {
    /// Those of the connection.
    pub connection: Options,
    /// How long an agent may take to exit once it was asked to by the end of its input, before its group
    /// gets SIGTERM: 5 s, as long as an agent
    /// on this crate takes at most to end its turns and say its last words.
    pub exit_max: Duration,
    /// How long it may take from there, before its group gets SIGKILL: 2 s.
    pub term_max: Duration,
    /// Whether what it writes on standard error also goes to our own: false.
    pub stderr_passes: bool,
    /// How many of its last lines on standard error are kept, to say why it died: 20, about a stack trace. Each is kept up to
    /// 500 bytes.
    pub stderr_lines_max: usize,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        Self {
            connection: Options::default(),
            exit_max: Duration::from_secs(5),
            term_max: Duration::from_secs(2),
            stderr_passes: false,
            stderr_lines_max: 20,
        }
    }
}

/// The agent could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the agent `{program}` could not be started: {source}")]
#[non_exhaustive]
pub struct SpawnError {
    /// The program.
    pub program: String,
    /// What is wrong.
    #[source]
    pub source: io::Error,
}

/// How an agent that was a child process ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended {
    /// How it exited.
    pub exit: Exit,
    /// How the connection ended.
    pub connection: Result<(), ServeError>,
}

/// An agent that runs as a child process, and the connection to it.
///
/// The process leads a process group of its own, so that Ctrl-C in a terminal does not reach it, and so that everything
/// that it started ends with it. When the process exits, the rest of its group is killed. Dropping this kills the whole
/// group at once and ends the connection, every handler and every call.
///
/// ```no_run
/// # use lastword::{Client, schema::ProtocolVersion, schema::v1::*};
/// use lastword::{AgentProcess, ProcessOptions};
/// use std::process::Command;
///
/// # async fn example(editor: impl Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut command = Command::new("lastword");
/// command.arg("agent");
/// let process = AgentProcess::spawn(command, editor, ProcessOptions::default())?;
/// let initialized = process.agent().initialize(InitializeRequest::new(ProtocolVersion::V1)).await?;
/// let ended = process.close().await;
/// println!("the agent is gone: {}", ended.exit);
/// # Ok(())
/// # }
/// ```
pub struct AgentProcess {
    agent: AgentHandle,
    group: Leash,
    exit: watch::Receiver<Option<Exit>>,
    /// Serves the connection and sees the process to its end.
    keeper: JoinHandle<Ended>,
}

impl AgentProcess {
    /// Starts an agent and connects the client to it. Must be called within a tokio runtime with IO and time enabled.
    ///
    /// Standard input and output of the command become the connection, its standard error is read and its last lines are
    /// kept. Everything else is as the command says.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] where the program cannot be started.
    pub fn spawn(command: Command, client: impl Client, options: ProcessOptions) -> Result<Self, SpawnError> {
        Self::spawn_role(command, |agent| ClientRole { client: Arc::new(client), agent }, options)
    }

    pub(crate) fn spawn_role<O: Role>(
        command: Command,
        role: impl FnOnce(AgentHandle) -> O,
        options: ProcessOptions,
    ) -> Result<Self, SpawnError> {
        let program = command.get_program().to_string_lossy().into_owned();
        Self::start(command, role, options).map_err(|source| SpawnError { program, source })
    }

    fn start<O: Role>(
        mut command: Command,
        role: impl FnOnce(AgentHandle) -> O,
        options: ProcessOptions,
    ) -> io::Result<Self> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (group, exited) = Group::watch(child)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else { unreachable!("all three were asked for") };
        let (stdin, stdout) = (ChildStdin::from_std(stdin)?, ChildStdout::from_std(stdout)?);
        let stderr = ChildStderr::from_std(stderr)?;

        let closing = CancellationToken::new();
        let (exit_known, exit) = watch::channel(None);
        let (agent, connection) =
            connect_link(role, stdout, stdin, options.connection.clone(), closing.clone(), Some(exit.clone()));
        let keeper = Keeper { group: Arc::clone(&group.0), exited, stderr, closing, exit_known, options };
        let keeper = tokio::spawn(keeper.keep(connection));
        Ok(Self { agent, group, exit, keeper })
    }

    /// The handle for calls to the agent.
    #[must_use]
    pub fn agent(&self) -> &AgentHandle {
        &self.agent
    }

    /// The id of the process, which is that of its group too.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.group.0.leader.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until the process has exited, by itself or because it was asked to.
    pub async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        let known = exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
        // Without a keeper nobody can say: the runtime that it was spawned on is gone.
        known.unwrap_or(Exit { status: None, stderr: Vec::new() })
    }

    /// Ends the agent: its input ends, and it should exit; after [`ProcessOptions::exit_max`] its group gets SIGTERM, and
    /// after [`ProcessOptions::term_max`] SIGKILL. What it says meanwhile is still taken in.
    pub async fn close(mut self) -> Ended {
        self.agent.close();
        self.ended().await
    }

    /// Waits until the process has exited and the connection is over. Only one caller gets to know.
    pub(crate) async fn ended(&mut self) -> Ended {
        match (&mut self.keeper).await {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        // The leash kills the group.
        self.keeper.abort();
    }
}

/// What the task of an agent's process works with.
struct Keeper {
    group: Arc<Group>,
    exited: Exited,
    stderr: ChildStderr,
    /// Fires when the agent is to exit: it was asked to, or the connection is over.
    closing: CancellationToken,
    exit_known: watch::Sender<Option<Exit>>,
    options: ProcessOptions,
}

impl Keeper {
    async fn keep(self, connection: impl Future<Output = Result<(), ServeError>>) -> Ended {
        let Self { group, exited, stderr, closing, exit_known, options } = self;
        let connection = async {
            let mut exit = exit_known.subscribe();
            let outlived = async {
                // The sender is ours.
                let _ = exit.wait_for(Option::is_some).await;
                // The connection has its own drain time once its input ends; where it does not, that is noticed here.
                sleep(options.connection.drain_max * 2).await;
            };
            let ended = tokio::select! {
                // The agent ended its side, or the connection broke.
                ended = connection => ended,
                // The process has exited, and something that left its group keeps its output open.
                () = outlived => Err(ServeError::OutputKeptOpen),
            };
            closing.cancel();
            ended
        };
        let process = async {
            let lines_max = options.stderr_lines_max;
            let tail = Arc::new(Mutex::new(Tail { lines: VecDeque::new(), lines_max, line: Vec::new() }));
            // A set, so that the task ends with this one.
            let mut reading = JoinSet::new();
            reading.spawn(read_stderr(stderr, Arc::clone(&tail), group.leader, options.stderr_passes));
            let status = group.end(exited, &closing, &options).await;
            let _ = timeout(STDERR_END_MAX, reading.join_next()).await;
            let stderr = {
                let mut tail = lock(&tail);
                tail.end_line(group.leader);
                tail.lines.drain(..).collect()
            };
            let exit = Exit { status, stderr };
            tracing::debug!(agent = %group.leader, "an agent is gone: {exit}");
            exit_known.send_replace(Some(exit.clone()));
            exit
        };
        let (connection, exit) = tokio::join!(connection, process);
        Ended { exit, connection }
    }
}

/// Gives the status of the leader, where it is known, once it has exited.
type Exited = oneshot::Receiver<Option<ExitStatus>>;

/// The process group of an agent. Held by its leash, by its keeper, and by the thread that waits for it.
struct Group {
    leader: Pid,
    /// The leader until it has been reaped: from then on its number may be another's. Held for a signal and for the reaping,
    /// neither of which waits.
    child: Mutex<Option<Child>>,
}

/// Dropped, it kills the group. The thread of the group does the rest.
struct Leash(Arc<Group>);

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.signal(Signal::KILL);
    }
}

impl Group {
    /// Watches over a process that was started as the leader of a group of its own.
    fn watch(leader: Child) -> io::Result<(Leash, Exited)> {
        let group = Arc::new(Self { leader: Pid::from_child(&leader), child: Mutex::new(Some(leader)) });
        let (tell, exited) = oneshot::channel();
        let watched = Arc::clone(&group);
        let thread = thread::Builder::new().name("lastword-agent".to_owned()).spawn(move || {
            // Nobody listens where the keeper is gone.
            let _ = tell.send(watched.reap());
        });
        if let Err(error) = thread {
            group.signal(Signal::KILL);
            group.reap();
            return Err(error);
        }
        Ok((Leash(group), exited))
    }

    fn signal(&self, signal: Signal) {
        if lock(&self.child).is_some() {
            // A group whose every process is gone needs no signal.
            let _ = kill_process_group(self.leader, signal);
        }
    }

    /// Waits, on this thread, until the leader has exited, kills the rest of the group, and reaps the leader. It is done in
    /// this order since the group's number is nobody else's while its leader is a zombie.
    fn reap(&self) -> Option<ExitStatus> {
        let exited = retry_on_intr(|| waitid(WaitId::Pid(self.leader), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
        let mut child = lock(&self.child);
        if exited.is_ok() {
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
        child.take()?.wait().ok()
    }

    /// Sees the process to its end, however it comes to it: by itself or, once it was asked to, by force.
    async fn end(
        &self,
        mut exited: Exited,
        closing: &CancellationToken,
        options: &ProcessOptions,
    ) -> Option<ExitStatus> {
        tokio::select! {
            biased;
            // It exited by itself.
            status = &mut exited => return status.ok().flatten(),
            // It has been asked to.
            () = closing.cancelled() => {}
        }
        for (max, signal, name) in
            [(options.exit_max, Signal::TERM, "SIGTERM"), (options.term_max, Signal::KILL, "SIGKILL")]
        {
            if let Ok(status) = timeout(max, &mut exited).await {
                return status.ok().flatten();
            }
            tracing::warn!(agent = %self.leader, "an agent did not exit within {max:?}; its group gets {name}");
            self.signal(signal);
        }
        exited.await.ok().flatten()
    }
}

/// Reads standard error to its end, and keeps its last lines.
async fn read_stderr(mut stderr: ChildStderr, tail: Arc<Mutex<Tail>>, leader: Pid, passes: bool) {
    let mut chunk = [0; 4096];
    // Whoever reads ours may be slow: that holds up the process, and nothing else.
    let mut ours = passes.then(tokio::io::stderr);
    // What cannot be read any more has ended.
    while let Ok(length @ 1..) = stderr.read(&mut chunk).await {
        lock(&tail).push(&chunk[..length], leader);
        if let Some(ours) = &mut ours {
            // Nobody may be left to read it.
            let _ = ours.write_all(&chunk[..length]).await;
            let _ = ours.flush().await;
        }
    }
    lock(&tail).end_line(leader);
}

/// The last lines of standard error. Shared by the task that reads it and by the keeper.
struct Tail {
    lines: VecDeque<String>,
    lines_max: usize,
    /// The line that has no end yet, as far as it is kept.
    line: Vec<u8>,
}

impl Tail {
    fn push(&mut self, bytes: &[u8], leader: Pid) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let room = STDERR_LINE_BYTES_MAX - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if ends {
                self.end_line(leader);
            }
        }
    }

    fn end_line(&mut self, leader: Pid) {
        let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        self.line.clear();
        if line.is_empty() {
            return;
        }
        tracing::debug!(agent = %leader, "standard error: {line}");
        self.lines.push_back(line);
        if self.lines.len() > self.lines_max {
            self.lines.pop_front();
        }
    }
}

/// Nothing panics while it holds one of these locks, and if something did, what they hold would still be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
