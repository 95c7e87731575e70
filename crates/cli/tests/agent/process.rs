//! The child process, and what a test says to it.

use std::{
    ffi::OsStr,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};

/// Longer than anything in a test takes, also on a machine that does ten other things.
const EVER: Duration = Duration::from_secs(60);

pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(EVER, what).await.expect("nothing happened for a minute")
}

/// `lastword agent`, killed when the test is over.
pub(crate) struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    log: ChildStderr,
}

/// What was left when the agent had exited.
pub(crate) struct Left {
    pub(crate) status: ExitStatus,
    pub(crate) lines: Vec<String>,
    pub(crate) log: String,
}

impl Agent {
    pub(crate) fn start() -> Self {
        Self::with(&[] as &[&str])
    }

    pub(crate) fn with(arguments: &[impl AsRef<OsStr>]) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_lastword")).arg("agent").args(arguments))
    }

    pub(crate) fn run(command: &mut Command) -> Self {
        let mut child = command
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let log = child.stderr.take().unwrap();
        Self { child, input, output, log }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.input.as_mut().unwrap().write_all(bytes.as_ref())).await.unwrap();
    }

    pub(crate) async fn line(&mut self, line: impl AsRef<[u8]>) {
        self.send([line.as_ref(), b"\n"].concat()).await;
    }

    /// The next message of the agent.
    pub(crate) async fn message(&mut self) -> Value {
        let line = soon(self.output.next_line()).await.unwrap().expect("the agent's output ended");
        serde_json::from_str(&line).unwrap()
    }

    /// The next message answers this request with an error of this code; gives what it says.
    pub(crate) async fn error(&mut self, id: impl Into<Value>, code: i64) -> String {
        let message = self.message().await;
        assert_eq!((&message["id"], &message["error"]["code"]), (&id.into(), &code.into()), "{message}");
        message["error"]["message"].as_str().unwrap().to_owned()
    }

    /// The next message is a chunk of text.
    pub(crate) async fn says(&mut self, text: &str) {
        let message = self.message().await;
        assert_eq!(message["method"], "session/update", "{message}");
        assert_eq!(message["params"]["update"]["content"]["text"], text, "{message}");
    }

    /// The next message ends this prompt with this reason.
    pub(crate) async fn stops(&mut self, id: u64, reason: &str) {
        let message = self.message().await;
        assert_eq!((&message["id"], &message["result"]["stopReason"]), (&id.into(), &reason.into()), "{message}");
    }

    /// Opens a session.
    pub(crate) async fn session(&mut self) -> String {
        self.line(r#"{"jsonrpc":"2.0","id":"new","method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#).await;
        self.message().await["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn prompt(&mut self, id: u64, session: &str, text: &str) {
        let params = serde_json::json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
        self.request(id, "session/prompt", &params).await;
    }

    pub(crate) async fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.line(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)).await;
    }

    /// Whether the agent still answers.
    pub(crate) async fn goes_on(&mut self) {
        self.line(r#"{"jsonrpc":"2.0","id":"alive?","method":"_lastword/echo","params":"alive!"}"#).await;
        let message = self.message().await;
        assert_eq!((&message["id"], &message["result"]), (&"alive?".into(), &"alive!".into()), "{message}");
    }

    /// Closes the agent's input; it must exit.
    pub(crate) async fn end(mut self) -> Left {
        drop(self.input.take());
        self.left().await
    }

    /// The agent must exit.
    pub(crate) async fn left(mut self) -> Left {
        let mut lines = Vec::new();
        while let Some(line) = soon(self.output.next_line()).await.unwrap() {
            lines.push(line);
        }
        let mut log = String::new();
        soon(self.log.read_to_string(&mut log)).await.unwrap();
        let status = soon(self.child.wait()).await.unwrap();
        Left { status, lines, log }
    }

    /// Stops reading for good. The other two pipes stay as they are.
    pub(crate) async fn left_without_its_output(mut self) -> ExitStatus {
        drop(self.output);
        soon(self.child.wait()).await.unwrap()
    }

    /// Closes the agent's input, reads nothing more and keeps its output open; it must exit.
    pub(crate) async fn end_without_reading(mut self) -> (ExitStatus, String) {
        drop(self.input.take());
        let status = soon(self.child.wait()).await.unwrap();
        let mut log = String::new();
        soon(self.log.read_to_string(&mut log)).await.unwrap();
        (status, log)
    }

    /// The most memory that the process had, in KiB.
    pub(crate) fn memory_peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}
