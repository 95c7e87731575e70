//! The program that is measured, as a child process, and every byte that goes to it and comes from it.
//!
//! Threads and no runtime: one write must reach the pipe as one write, and each line gets its time when it comes. The child
//! leads a process group of its own, which is killed, and the child reaped, when the wire is dropped and when a signal ends
//! this program.

use std::{
    collections::{BTreeSet, VecDeque},
    io::{self, BufRead as _, BufReader, Read, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::transcript::What;

/// How many lines may wait to be judged; beyond that the peer waits.
const LINES_AHEAD_MAX: usize = 4096;

/// How long a line of the peer may be. It is far above what a scenario makes any peer say.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// How many of the last lines on standard error are kept, to say why a program died.
const LOG_LINES_MAX: usize = 20;

/// How long a program may take to exit by itself once its input has ended, before it is killed.
const EXIT_MAX: Duration = Duration::from_millis(500);

/// How long to wait for the end of standard error: what was written is there at once, and a peer that lives writes on.
const LOG_MAX: Duration = Duration::from_millis(500);

/// The process groups that run. Held to add one, to take one out, and to kill them all.
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// What the peer said, and when.
pub(crate) type Received = (Instant, What);

pub(crate) struct Wire {
    child: Child,
    /// To the thread that writes; none once the input has ended.
    input: Option<Sender<Vec<u8>>>,
    output: Receiver<Received>,
    log: Arc<Mutex<VecDeque<String>>>,
    /// Ends when standard error does.
    logged: Receiver<()>,
    pub(crate) started: Instant,
}

/// Kills what is measured before a signal ends this program.
pub(crate) fn watch_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Nothing is started any more: the lock is kept.
            let groups = lock(&GROUPS);
            for group in groups.iter().filter_map(|group| Pid::from_raw(*group)) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

impl Wire {
    pub(crate) fn start(command: &[String]) -> io::Result<Self> {
        let [program, arguments @ ..] = command else { return Err(io::ErrorKind::NotFound.into()) };
        let mut groups = lock(&GROUPS);
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        groups.insert(Pid::from_child(&child).as_raw_nonzero().get());
        drop(groups);
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            unreachable!("all three were asked for")
        };
        let (input, to_write) = mpsc::channel();
        let (said, output) = mpsc::sync_channel(LINES_AHEAD_MAX);
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let (logging, logged) = mpsc::channel();
        let kept = Arc::clone(&log);
        // From here on, dropping it kills the child.
        let wire = Self { child, input: Some(input), output, log, logged, started: Instant::now() };
        let start =
            |name: &str, work: Box<dyn FnOnce() + Send>| thread::Builder::new().name(name.to_owned()).spawn(work);
        start("input", Box::new(move || write_all(stdin, &to_write)))?;
        start("output", Box::new(move || read_lines(stdout, &said)))?;
        start(
            "log",
            Box::new(move || {
                keep_log(stderr, &kept);
                drop(logging);
            }),
        )?;
        Ok(wire)
    }

    /// Hands over what goes out in one write. A peer that does not read keeps it waiting, and nobody else.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) {
        if let Some(input) = &self.input {
            // A thread that is gone met a broken pipe: the peer is gone, which its output tells.
            let _ = input.send(bytes);
        }
    }

    /// Ends the input, behind what was sent.
    pub(crate) fn end_input(&mut self) {
        self.input = None;
    }

    /// The next thing that the peer says; none when the time is over, also for a peer that never stops to speak.
    pub(crate) fn receive(&self, until: Instant) -> Option<Received> {
        let left = until.checked_duration_since(Instant::now())?;
        match self.output.recv_timeout(left) {
            Ok(received) => Some(received),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some((Instant::now(), What::End)),
        }
    }

    /// The last lines on standard error. Those of a peer that just died may still be on their way.
    pub(crate) fn log(&self) -> Vec<String> {
        // It says nothing; it ends, or the time is over.
        let _ = self.logged.recv_timeout(LOG_MAX);
        lock(&self.log).iter().cloned().collect()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.input = None;
        let until = Instant::now() + EXIT_MAX;
        // Its output ends when it exits, which is sooner known than by asking again and again.
        while self.receive(until).is_some_and(|(_, what)| what != What::End) {}
        let group = Pid::from_child(&self.child);
        // Until the child is reaped, its number is nobody else's; a signal that comes meanwhile waits.
        let mut groups = lock(&GROUPS);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        groups.remove(&group.as_raw_nonzero().get());
    }
}

fn write_all(mut stdin: ChildStdin, to_write: &Receiver<Vec<u8>>) {
    for bytes in to_write {
        if stdin.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn read_lines(stdout: impl Read, said: &SyncSender<Received>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        // A line that is too long, like an output that cannot be read, is the end of what can be judged.
        let length = stdout.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).unwrap_or(0);
        let what = match line.pop() {
            None => What::End,
            Some(b'\n') => What::Line(line),
            Some(last) => {
                line.push(last);
                What::Unended(line)
            }
        };
        let ended = what == What::End || length as u64 == LINE_BYTES_MAX;
        // Nobody listens once the wire is dropped.
        if said.send((Instant::now(), what)).is_err() || ended {
            return;
        }
    }
}

fn keep_log(stderr: impl Read, log: &Mutex<VecDeque<String>>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = stderr.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
        let mut log = lock(log);
        log.push_back(super::transcript::shorten(line.trim_ascii()));
        if log.len() > LOG_LINES_MAX {
            log.pop_front();
        }
        line.clear();
    }
}

/// Nothing panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
