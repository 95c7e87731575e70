//! Measures this crate's client against a client on the Rust SDK, in one run: 50,000 updates of a turn in one burst.
//!
//! The driver plays the agent. It answers `initialize` and `session/new`, and writes to each client the same bytes once it
//! prompts: all updates as fast as they are taken, then the response. The clock runs from the first byte written until the
//! client says how many updates it has handled, which it does when its prompt has been answered; a wrong number is an
//! error. The third client is the floor: a loop that reads a line, parses the same typed update from it, and counts.
//!
//! The machine is rarely quiet, so ratios mean more than single figures: the clients take turns, every figure is the median
//! of all rounds, each client of each round is a fresh process, and its peak memory is what the kernel says before its
//! input ends (VmHWM), the worst of all rounds. Every client runs on one thread; with `--threads` both runtimes have one a
//! processor.

use std::{
    env,
    error::Error,
    ffi::OsString,
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    os::fd::AsFd as _,
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use lastword::{
    Client, ClientContext, Options, connect,
    schema::{
        ProtocolVersion,
        v1::{
            ContentBlock, ContentChunk, Error as ProtocolError, ExtNotification, InitializeRequest, NewSessionRequest,
            PromptRequest, RawValue, RequestPermissionRequest, RequestPermissionResponse, SessionNotification,
            SessionUpdate,
        },
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{net::unix::pipe, runtime::Builder};

/// Updates of the burst.
const UPDATES: usize = 50_000;
/// The text of each of them: about a word of a model's answer.
const TEXT: &str = "synchronization ";

/// The clients, in the order of the table's columns.
const CLIENTS: [&str; 3] = ["lastword", "Rust SDK", "bare loop"];
const LASTWORD: usize = 0;
const SDK: usize = 1;

/// Compares this crate's client with a client on the Rust SDK and with a bare loop.
#[derive(Parser)]
struct Arguments {
    /// How often each client takes the burst.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Let both runtimes have as many threads as there are processors.
    #[arg(long)]
    threads: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Be one of the clients.
    #[arg(long, hide = true)]
    play: Option<Part>,
    /// What cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Part {
    Lastword,
    Bare,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.play {
        None => measure(&arguments),
        Some(Part::Lastword) => play_lastword(arguments.threads),
        Some(Part::Bare) => play_bare(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("updates: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What a client says at the end.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Done {
    updates: usize,
    bytes: usize,
}

// The driver.

fn measure(arguments: &Arguments) -> Result<()> {
    let sdk = env::var_os("LASTWORD_BENCH_SDK_CLIENT")
        .ok_or("LASTWORD_BENCH_SDK_CLIENT is not set; scripts/bench builds it and names it")?;
    let this: OsString = env::current_exe()?.into();
    let mut commands: [Vec<OsString>; 3] =
        [vec![this.clone(), "--play".into(), "lastword".into()], vec![sdk], vec![this, "--play".into(), "bare".into()]];
    if arguments.threads {
        commands.iter_mut().for_each(|command| command.push("--threads".into()));
    }
    let burst = burst();
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for round in 0..arguments.rounds.max(1) {
        // Nobody is always the first, who finds the caches cold.
        for turn in 0..CLIENTS.len() {
            let client = (round + turn) % CLIENTS.len();
            let sample = take(&commands[client], &burst).map_err(|error| format!("{}: {error}", CLIENTS[client]))?;
            samples[client].push(sample);
        }
    }
    let figures = Figures::of(&samples);
    if arguments.json {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        println!("{}", figures.table());
    }
    Ok(())
}

/// What the agent says in the turn.
fn burst() -> Vec<u8> {
    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": TEXT } });
    let params = json!({ "sessionId": "session-1", "update": update });
    let line = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
    format!("{line}\n").repeat(UPDATES).into_bytes()
}

#[derive(Clone, Copy)]
struct Sample {
    took: Duration,
    peak_bytes: u64,
}

/// A message of a client, as far as the driver looks.
#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    id: Value,
    method: String,
    #[serde(default)]
    params: Value,
}

/// A client's process and the ends of its pipes.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

fn take(command: &[OsString], burst: &[u8]) -> Result<Sample> {
    let mut child =
        Command::new(&command[0]).args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { unreachable!("both are piped") };
    let mut client = Process { child, input, output: BufReader::new(output) };
    client.answer("initialize", &json!({ "protocolVersion": 1 }))?;
    client.answer("session/new", &json!({ "sessionId": "session-1" }))?;
    let prompt = client.said("session/prompt")?;
    let response = json!({ "jsonrpc": "2.0", "id": prompt.id, "result": { "stopReason": "end_turn" } });
    let begin = Instant::now();
    let done = thread::scope(|scope| {
        let Process { input, output, .. } = &mut client;
        let writer = scope.spawn(move || {
            input.write_all(burst)?;
            writeln!(input, "{response}")
        });
        let done = said(output, "_lastword/done");
        writer.join().expect("a write does not panic")?;
        done
    })?;
    let took = begin.elapsed();
    let done: Done = serde_json::from_value(done.params)?;
    if done != (Done { updates: UPDATES, bytes: UPDATES * TEXT.len() }) {
        return Err(format!("it handled {done:?}").into());
    }
    let peak_bytes = peak_bytes(client.child.id())?;
    drop(client.input);
    // The SDK's client does not end by itself.
    client.child.kill()?;
    client.child.wait()?;
    Ok(Sample { took, peak_bytes })
}

impl Process {
    fn said(&mut self, method: &str) -> Result<Said> {
        said(&mut self.output, method)
    }

    fn answer(&mut self, method: &str, result: &Value) -> Result<()> {
        let asked = self.said(method)?;
        let response = json!({ "jsonrpc": "2.0", "id": asked.id, "result": result });
        Ok(writeln!(self.input, "{response}")?)
    }
}

/// The next message of the client, which must be this one.
fn said(output: &mut impl io::BufRead, method: &str) -> Result<Said> {
    let mut line = String::new();
    if output.read_line(&mut line)? == 0 {
        return Err(format!("it ended before {method}").into());
    }
    let said: Said = serde_json::from_str(&line)?;
    if said.method == method { Ok(said) } else { Err(format!("it said {line} before {method}").into()) }
}

/// The most memory that a process had, as the kernel counts it.
fn peak_bytes(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the kernel does not say VmHWM")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024)
}

/// What was found, in the order of [`CLIENTS`], and what lastword is to reach.
#[derive(Serialize)]
struct Figures {
    clients: [&'static str; 3],
    updates_per_s: [f64; 3],
    peak_mb: [f64; 3],
    /// At least three times the SDK's rate.
    rate_reached: bool,
    /// At no more than its memory.
    memory_reached: bool,
}

impl Figures {
    fn of(samples: &[Vec<Sample>; 3]) -> Self {
        let updates_per_s = samples.each_ref().map(|samples| {
            let mut took: Vec<Duration> = samples.iter().map(|sample| sample.took).collect();
            took.sort_unstable();
            UPDATES as f64 / took[took.len() / 2].as_secs_f64()
        });
        let peak_mb = samples
            .each_ref()
            .map(|samples| samples.iter().map(|sample| sample.peak_bytes).max().unwrap_or_default() as f64 / 1e6);
        Self {
            clients: CLIENTS,
            updates_per_s,
            peak_mb,
            rate_reached: updates_per_s[LASTWORD] >= 3.0 * updates_per_s[SDK],
            memory_reached: peak_mb[LASTWORD] <= peak_mb[SDK],
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut header = vec!["", ""];
        header.extend(CLIENTS);
        header.extend(["to SDK", "target", "reached"]);
        table.set_header(header);
        let mut add = |what: &str, unit: &str, figures: [f64; 3], decimals, target: &str, reached| {
            let mut cells = vec![what.to_owned(), unit.to_owned()];
            cells.extend(figures.map(|figure| format!("{figure:.decimals$}")));
            cells.push(format!("{:.2}", figures[LASTWORD] / figures[SDK]));
            cells.extend([target.to_owned(), if reached { "yes" } else { "no" }.to_owned()]);
            table.add_row(cells);
        };
        add("updates", "1/s", self.updates_per_s, 0, ">= 3 SDK", self.rate_reached);
        add("peak memory", "MB", self.peak_mb, 1, "<= 1 SDK", self.memory_reached);
        for column in table.column_iter_mut().skip(2).take(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

// The clients.

/// Counts the updates.
#[derive(Clone, Default)]
struct Counter(Arc<(AtomicUsize, AtomicUsize)>);

impl Counter {
    fn count(&self, notification: &SessionNotification) {
        if let SessionUpdate::AgentMessageChunk(ContentChunk { content: ContentBlock::Text(text), .. }) =
            &notification.update
        {
            self.0.0.fetch_add(1, Ordering::Relaxed);
            self.0.1.fetch_add(text.text.len(), Ordering::Relaxed);
        }
    }

    fn done(&self) -> Done {
        Done { updates: self.0.0.load(Ordering::Relaxed), bytes: self.0.1.load(Ordering::Relaxed) }
    }
}

impl Client for Counter {
    async fn session_update(&self, notification: SessionNotification, _: ClientContext) {
        self.count(&notification);
    }

    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> std::result::Result<RequestPermissionResponse, ProtocolError> {
        Err(ProtocolError::internal_error())
    }
}

fn play_lastword(threads: bool) -> Result<()> {
    let mut builder = if threads { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().build()?.block_on(async {
        let input = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
        let output = pipe::Sender::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?)?;
        let counter = Counter::default();
        let (agent, connection) = connect(counter.clone(), input, output, Options::default());
        let connection = tokio::spawn(connection);
        agent.initialize(InitializeRequest::new(ProtocolVersion::V1)).await?;
        let session = agent.new_session(NewSessionRequest::new("/")).await?.session_id;
        agent.prompt(PromptRequest::new(session, vec!["go".into()])).await?;
        let done = RawValue::from_string(serde_json::to_string(&counter.done())?)?;
        agent.ext_notification(ExtNotification::new("_lastword/done", done.into())).await?;
        Ok(connection.await??)
    })
}

/// Reads line by line, and parses no more than it must.
fn play_bare() -> Result<()> {
    #[derive(Deserialize)]
    struct Line<'a> {
        method: Option<&'a str>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let mut input = BufReader::with_capacity(64 << 10, io::stdin().lock());
    let counter = Counter::default();
    let mut line = String::new();
    for (id, method) in ["initialize", "session/new", "session/prompt"].into_iter().enumerate() {
        println!("{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": {} }));
        loop {
            line.clear();
            if input.read_line(&mut line)? == 0 {
                return Err("the agent is gone".into());
            }
            let Line { method: Some(_), params: Some(params) } = serde_json::from_str(&line)? else { break };
            counter.count(&serde_json::from_str(params.get())?);
        }
    }
    println!("{}", json!({ "jsonrpc": "2.0", "method": "_lastword/done", "params": counter.done() }));
    input.read_line(&mut line)?;
    Ok(())
}
