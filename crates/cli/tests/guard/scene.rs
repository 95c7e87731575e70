//! The guard as a child process, and the two ends that a test plays.

use std::{
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::{
        TcpListener,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};

/// Longer than anything in a test takes, also on a machine that does ten other things.
const EVER: Duration = Duration::from_secs(60);

/// The agent's last words on standard error.
pub(crate) const LAST_WORDS: &str = "out of luck";

/// How the agent exits where the test ends its output.
pub(crate) const EXIT: i32 = 7;

/// Takes what it reads to the test, and what the test says to its output. It exits with 0 at the end of its input. Where the
/// test ends it, it says its last words.
const RELAY: &str = r#"
    exec 3<>/dev/tcp/127.0.0.1/$0
    cat <&3 & said=$!
    cat <&0 >&3 &
    wait -n
    kill -0 $said 2>/dev/null && exit 0
    echo "$1" >&2
    exit $2
"#;

pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(EVER, what).await.expect("nothing happened for a minute")
}

/// One end of the guard: the client's or the agent's.
pub(crate) struct Side<R, W> {
    output: BufReader<R>,
    input: Option<W>,
}

pub(crate) type Client = Side<ChildStdout, ChildStdin>;
pub(crate) type Agent = Side<OwnedReadHalf, OwnedWriteHalf>;

/// A line as it stands on the wire.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Line {
    pub(crate) id: Option<Box<RawValue>>,
    pub(crate) method: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) params: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) error: Option<Box<RawValue>>,
}

/// A member that is there, `null` included.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl Line {
    /// The id, to answer with it.
    pub(crate) fn id(&self) -> &str {
        self.id.as_ref().unwrap().get()
    }

    pub(crate) fn method(&self) -> &str {
        self.method.as_deref().unwrap_or("")
    }

    pub(crate) fn params(&self) -> Value {
        serde_json::from_str(self.params.as_ref().unwrap().get()).unwrap()
    }

    /// The result as it was written.
    pub(crate) fn raw_result(&self) -> &str {
        self.result.as_ref().unwrap_or_else(|| panic!("no result: {self:?}")).get()
    }

    pub(crate) fn result(&self) -> Value {
        serde_json::from_str(self.raw_result()).unwrap()
    }

    pub(crate) fn error(&self) -> Value {
        serde_json::from_str(self.error.as_ref().unwrap_or_else(|| panic!("no error: {self:?}")).get()).unwrap()
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Side<R, W> {
    /// Says lines in one write.
    pub(crate) async fn says(&mut self, lines: &[impl AsRef<str>]) {
        let text: String = lines.iter().map(|line| format!("{}\n", line.as_ref())).collect();
        soon(self.input.as_mut().unwrap().write_all(text.as_bytes())).await.unwrap();
    }

    /// The next line; none at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = soon(self.output.read_line(&mut line)).await.unwrap();
        (length > 0).then(|| line.trim_end_matches('\n').to_owned())
    }

    pub(crate) async fn hears(&mut self) -> Line {
        let line = self.next().await.expect("a line, and not the end");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    pub(crate) async fn hears_call(&mut self, method: &str) -> Line {
        let line = self.hears().await;
        assert_eq!(line.method(), method, "{line:?}");
        line
    }

    /// Its end of the line.
    pub(crate) fn ends(&mut self) {
        self.input = None;
    }

    pub(crate) async fn answers(&mut self, id: &str, result: &str) {
        self.says(&[format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)]).await;
    }
}

pub(crate) struct Scene {
    pub(crate) client: Client,
    pub(crate) agent: Agent,
    guard: Child,
    log: ChildStderr,
    trace: Option<TempDir>,
}

impl Scene {
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    pub(crate) async fn with(arguments: &[&str]) -> Self {
        Self::run(arguments, Some(TempDir::new().unwrap())).await
    }

    /// Without a trace: where thousands of messages are in flight, checking one takes minutes.
    pub(crate) async fn untraced() -> Self {
        Self::run(&[], None).await
    }

    async fn run(arguments: &[&str], trace: Option<TempDir>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
        if let Some(trace) = &trace {
            command.env("LASTWORD_TRACE", trace.path().join("trace"));
        }
        let mut guard = command
            .arg("guard")
            .args(arguments)
            .args(["--", "bash", "-c", RELAY, &port, LAST_WORDS, &EXIT.to_string()])
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let client =
            Side { output: BufReader::new(guard.stdout.take().unwrap()), input: Some(guard.stdin.take().unwrap()) };
        let (output, input) = soon(listener.accept()).await.unwrap().0.into_split();
        let agent = Side { output: BufReader::new(output), input: Some(input) };
        let log = guard.stderr.take().unwrap();
        Self { client, agent, guard, log, trace }
    }

    /// The client says a prompt, and the agent gets it.
    pub(crate) async fn prompt(&mut self, id: u64, session: &str) -> Line {
        self.client.says(&[prompt(id, session)]).await;
        let line = self.agent.hears_call("session/prompt").await;
        assert_eq!(line.params(), serde_json::from_str::<Value>(&prompt(id, session)).unwrap()["params"]);
        line
    }

    /// What both sides have said is a run that the machine could take, where it was traced. Gives the exit status and the log.
    pub(crate) async fn end(mut self) -> (ExitStatus, String) {
        self.client.ends();
        let mut log = String::new();
        let (status, read) = soon(async { tokio::join!(self.guard.wait(), self.log.read_to_string(&mut log)) }).await;
        read.unwrap();
        let status = status.unwrap();
        let Some(trace) = &self.trace else { return (status, log) };
        let trace = trace.path().join("trace");
        let checked = Command::new(env!("CARGO_BIN_EXE_lastword")).args(["trace", "check"]).arg(&trace).output();
        let checked = soon(checked).await.unwrap();
        let said = String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success() && said.starts_with("2 connections, "), "{said}");
        (status, log)
    }

    /// The process of the guard.
    pub(crate) fn id(&self) -> u32 {
        self.guard.id().unwrap()
    }
}

pub(crate) fn prompt(id: u64, session: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"{session}","prompt":[],"n":{id}}}}}"#
    )
}

pub(crate) fn cancel(session: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"{session}","_meta":1.0}}}}"#)
}

pub(crate) fn update(session: &str, n: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","n":{n}}}}}"#)
}

pub(crate) const CANCELLED: &str = r#"{"stopReason":"cancelled","_meta":{"used":1.50}}"#;
pub(crate) const END_TURN: &str = r#"{"stopReason":"end_turn","_meta":12345678901234567890123}"#;
