//! A fleet in a folder of its own, with the reference agent as its worker, and plain HTTP to speak with it.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than anything in a test takes, also on a machine that does ten other things.
pub(crate) const EVER: Duration = Duration::from_secs(60);

/// The longest wait that the fleet allows.
pub(crate) const WAIT_SECONDS: u64 = 30;

pub(crate) fn lastword(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
    command.args(words);
    command
}

/// A folder with a fleet.toml. What daemon it has left is stopped with it.
pub(crate) struct Fleet {
    folder: TempDir,
}

/// A daemon that the test started itself.
pub(crate) struct Daemon {
    pub(crate) process: Child,
    /// The address that it said.
    pub(crate) address: String,
}

/// What came back for a request.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Fleet {
    pub(crate) fn new(limits: &str) -> Self {
        let fleet = Self { folder: tempfile::tempdir().unwrap() };
        let program = env!("CARGO_BIN_EXE_lastword");
        let file = format!(
            "listen = \"127.0.0.1:0\"\n[limits]\nwait_seconds = {WAIT_SECONDS}\n{limits}\n\
             [workers.scripted]\ncommand = {program:?}\nargs = [\"agent\"]\ncount = 2\n"
        );
        fs::write(fleet.file(), file).unwrap();
        fleet
    }

    /// A fleet whose worker is an agent that speaks no HTTP and ends no turn.
    pub(crate) fn silent() -> Self {
        let fleet = Self { folder: tempfile::tempdir().unwrap() };
        // It takes the bridge that session/new names, and keeps what it was told for the test.
        let agent = r#"
            read -r line; echo '{"id":"ID","result":{"protocolVersion":1,"agentCapabilities":{}}}' | sed "s/\"ID\"/$(id "$line")/"
            read -r line; echo "$line" > told
            echo '{"id":"ID","result":{"sessionId":"s"}}' | sed "s/\"ID\"/$(id "$line")/"
            while read -r line; do :; done"#;
        let agent = format!("id() {{ sed 's/.*\"id\":\\([^,}}]*\\).*/\\1/' <<< \"$1\"; }}\n{agent}");
        let file =
            format!("listen = \"127.0.0.1:0\"\n[workers.silent]\ncommand = \"bash\"\nargs = [\"-c\", {agent:?}]\n");
        fs::write(fleet.file(), file).unwrap();
        fleet
    }

    /// The server of tools that the silent worker was told of.
    pub(crate) fn told_to_silent(&self) -> Value {
        let told = self.file().with_file_name("told");
        until(|| fs::read_to_string(&told).is_ok_and(|told| told.ends_with('\n')));
        let told: Value = serde_json::from_str(&fs::read_to_string(&told).unwrap()).unwrap();
        told["params"]["mcpServers"][0].clone()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("fleet.toml")
    }

    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        self.folder.path().join(format!("fleet.journal{suffix}"))
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = lastword(&["fleet"]);
        command.args(words).arg("--config").arg(self.file());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// What a command prints, successfully.
    pub(crate) fn said(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn token(&self) -> String {
        self.said(&["token"]).trim().to_owned()
    }

    pub(crate) fn serve(&self) -> Daemon {
        Self::serve_by(self.command(&["serve"]))
    }

    pub(crate) fn serve_by(mut command: Command) -> Daemon {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("the fleet is at http://").unwrap().strip_suffix("/mcp").unwrap();
        Daemon { address: address.to_owned(), process }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.run(&["stop"]);
    }
}

impl Daemon {
    /// Sends a signal, and says how it ended.
    pub(crate) fn ends_on(mut self, signal: &str) -> std::process::ExitStatus {
        assert!(Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap().success());
        self.process.wait().unwrap()
    }
}

/// A request for a tool, as a client without a session makes it.
pub(crate) fn tool(name: &str, arguments: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
}

/// Posts a message, with the headers that every client sends and those that the test adds.
pub(crate) fn post(address: &str, path: &str, headers: &str, message: &str) -> Response {
    finish(begin(address, path, headers, message))
}

/// Posts a message, and leaves its response to come.
pub(crate) fn begin(address: &str, path: &str, headers: &str, message: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(EVER)).unwrap();
    let host = if headers.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    write!(
        stream,
        "POST {path} HTTP/1.1\r\n{host}Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         Connection: close\r\nContent-Length: {}\r\n{headers}\r\n{message}",
        message.len()
    )
    .unwrap();
    stream
}

pub(crate) fn finish(mut stream: TcpStream) -> Response {
    let mut text = String::new();
    // A server that refuses a request may close before it has read it all.
    let _ = stream.read_to_string(&mut text);
    let status = text.split(' ').nth(1).unwrap_or("0").parse().unwrap_or(0);
    Response { status, body: text }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

impl Response {
    /// The last message in it, as an event or as the whole of it.
    pub(crate) fn message(&self) -> Value {
        let mut lines = self.body.lines().rev().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let message = lines.find_map(|line| serde_json::from_str::<Value>(line).ok().filter(Value::is_object));
        message.unwrap_or_else(|| panic!("{self:?}"))
    }

    /// The result of the tool that was called.
    pub(crate) fn result(&self) -> Value {
        let line =
            self.body.lines().find_map(|line| line.strip_prefix("data: ").filter(|data| data.contains("\"id\":1")));
        serde_json::from_str::<Value>(line.unwrap_or_else(|| panic!("{self:?}"))).unwrap()["result"].clone()
    }
}

/// Calls a tool of leads, and gives its data.
pub(crate) fn call(address: &str, token: &str, name: &str, arguments: &Value) -> Value {
    let result = post(address, "/mcp", &bearer(token), &tool(name, arguments).to_string()).result();
    assert_ne!(result["isError"], true, "{result}");
    result["structuredContent"].clone()
}

/// Looks until something is so, which no event tells a process that is not its parent.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < EVER, "nothing happened for a minute");
        std::thread::yield_now();
    }
}
