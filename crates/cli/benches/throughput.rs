//! Measures `lastword agent` against two other agents, in one run: a minimal agent on the Rust SDK, and a bare loop that
//! reads, parses and answers, which is the floor.
//!
//! The machine is rarely quiet, so single figures mean little and ratios mean more: the agents take turns, every figure
//! is the median of all rounds, and each agent of each round is a fresh process. What is measured:
//!
//! - `_lastword/echo` and `session/set_mode`: all requests are written as fast as the agent takes them, and the clock runs
//!   from the first byte written to the last answer read.
//! - `session/prompt`: the same with empty prompts. A newer prompt of a session would end an older one, which is another
//!   scenario; so the prompts go out in waves with one prompt a session, and a wave starts when all answers of the one
//!   before it were read. The sessions are created before the clock starts.
//! - ping-pong: one echo at a time, each sent when the answer to the one before was read.
//! - peak memory: what the kernel says before the input ends (VmHWM), the worst of the four scenarios.
//!
//! The driver shares the processors with the agents, so it is lean: the input is built before the clock starts, one
//! thread writes it, another one counts the line ends of the output. Before the rounds each agent answers each scenario
//! once more, unmeasured, and every answer is checked: each id exactly once, and the result that it must have.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Requests of a pipelined scenario.
const REQUESTS: usize = 50_000;
/// Sessions over which the prompts are spread, and so the prompts of one wave: a few times what the pipes hold, so that the
/// end of a wave, when the agent waits for the next one, is a small part of it.
const SESSIONS: usize = 2_000;
/// Round trips of the ping-pong scenario.
const ROUND_TRIPS: usize = 2_000;
/// What a pipe holds by default on Linux, and so the most that one read can give.
const READ_BYTES: usize = 64 * 1024;
/// The directory that sessions are opened with; no agent of the benchmark looks into it.
const DIRECTORY: &str = "/";

/// The agents, in the order of the table's columns.
const AGENTS: [&str; 3] = ["lastword", "Rust SDK", "bare loop"];
const LASTWORD: usize = 0;
const SDK: usize = 1;
const BARE: usize = 2;

/// Compares `lastword agent` with an agent on the Rust SDK and with a bare loop.
#[derive(Parser)]
struct Arguments {
    /// How often each agent does each scenario.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// What cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("throughput: {error}");
            ExitCode::FAILURE
        }
    }
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn run(arguments: &Arguments) -> Result<()> {
    let peer = |name: &str| {
        env::var_os(name).ok_or_else(|| format!("{name} is not set; scripts/bench builds the peers and names them"))
    };
    let commands: [Vec<OsString>; 3] = [
        vec![env!("CARGO_BIN_EXE_lastword").into(), "agent".into()],
        vec![peer("LASTWORD_BENCH_SDK_AGENT")?],
        vec![peer("LASTWORD_BENCH_BARE_AGENT")?],
    ];
    for scenario in Scenario::ALL {
        for (agent, command) in AGENTS.iter().zip(&commands) {
            scenario.validate(command).map_err(|error| format!("{agent}, {}: {error}", scenario.name()))?;
        }
    }
    let mut samples = Samples::default();
    for round in 0..arguments.rounds.max(1) {
        for scenario in Scenario::ALL {
            // Nobody is always the first, who finds the caches cold.
            for turn in 0..AGENTS.len() {
                let agent = (round + turn) % AGENTS.len();
                let sample = scenario
                    .measure(&commands[agent])
                    .map_err(|error| format!("{}, {}: {error}", AGENTS[agent], scenario.name()))?;
                samples.entry(scenario).or_default()[agent].push(sample);
            }
        }
    }
    if arguments.json {
        println!("{}", as_json(&samples));
    } else {
        println!("{}", as_table(&samples));
    }
    Ok(())
}

/// What an agent is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scenario {
    Echo,
    SetMode,
    Prompt,
    PingPong,
}

/// What one agent took for one scenario in one round.
#[derive(Clone, Copy)]
struct Sample {
    /// For ping-pong the median round trip, else the time for all requests.
    took: Duration,
    peak_bytes: u64,
}

/// For each scenario the samples of each agent.
type Samples = BTreeMap<Scenario, [Vec<Sample>; 3]>;

impl Scenario {
    const ALL: [Self; 4] = [Self::Echo, Self::SetMode, Self::Prompt, Self::PingPong];

    fn name(self) -> &'static str {
        match self {
            Self::Echo => "_lastword/echo",
            Self::SetMode => "session/set_mode",
            Self::Prompt => "session/prompt",
            Self::PingPong => "ping-pong",
        }
    }

    fn sessions(self) -> usize {
        match self {
            Self::Echo | Self::PingPong => 0,
            Self::SetMode => 1,
            Self::Prompt => SESSIONS,
        }
    }

    /// The input, parted into what may be in flight at a time: the lines, and how many they are.
    fn waves(self, sessions: &[String]) -> Vec<(String, usize)> {
        let (requests, wave) = match self {
            Self::Echo | Self::SetMode => (REQUESTS, REQUESTS),
            Self::Prompt => (REQUESTS, SESSIONS),
            Self::PingPong => (ROUND_TRIPS, 1),
        };
        let ids: Vec<usize> = (0..requests).collect();
        ids.chunks(wave)
            .map(|ids| {
                let mut lines = String::new();
                for id in ids {
                    lines.push_str(&self.request(*id, sessions));
                    lines.push('\n');
                }
                (lines, ids.len())
            })
            .collect()
    }

    fn request(self, id: usize, sessions: &[String]) -> String {
        let (method, params) = match self {
            Self::Echo | Self::PingPong => ("_lastword/echo", echo(id)),
            Self::SetMode => ("session/set_mode", json!({ "sessionId": sessions[0], "modeId": "code" })),
            Self::Prompt => ("session/prompt", json!({ "sessionId": sessions[id % sessions.len()], "prompt": [] })),
        };
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
    }

    /// Whether this is how an agent answers the request.
    fn accepts(self, id: usize, result: &Value) -> bool {
        match self {
            Self::Echo | Self::PingPong => *result == echo(id),
            Self::SetMode => result.is_object(),
            Self::Prompt => result["stopReason"] == "end_turn",
        }
    }

    /// Looks at every answer of the agent: each request has exactly one, and the right one.
    fn validate(self, command: &[OsString]) -> Result<()> {
        let mut agent = Agent::start(command)?;
        let sessions = agent.open(self.sessions())?;
        let mut output = Vec::new();
        for (lines, requests) in self.waves(&sessions) {
            agent.exchange(&lines, requests, &mut output)?;
        }
        let mut answers = BTreeMap::new();
        for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let answer: Answer = serde_json::from_slice(line)?;
            if !self.accepts(answer.id, &answer.result) {
                return Err(format!("a wrong answer: {}", String::from_utf8_lossy(line)).into());
            }
            if answers.insert(answer.id, ()).is_some() {
                return Err(format!("a second answer: {}", String::from_utf8_lossy(line)).into());
            }
        }
        let asked = self.waves(&sessions).iter().map(|(_, requests)| requests).sum::<usize>();
        if answers.len() != asked || answers.last_key_value().is_some_and(|(id, ())| *id >= asked) {
            return Err(format!("{asked} requests were asked and {} answered", answers.len()).into());
        }
        agent.end().map(|_| ())
    }

    fn measure(self, command: &[OsString]) -> Result<Sample> {
        let mut agent = Agent::start(command)?;
        let sessions = agent.open(self.sessions())?;
        let waves = self.waves(&sessions);
        let took = if self == Self::PingPong {
            let mut trips = Vec::with_capacity(waves.len());
            for (line, _) in &waves {
                let start = Instant::now();
                agent.input.write_all(line.as_bytes())?;
                count_lines(&mut agent.output, 1, |_| ())?;
                trips.push(start.elapsed());
            }
            median(trips)
        } else {
            let start = Instant::now();
            for (lines, requests) in &waves {
                let Agent { input, output, .. } = &mut agent;
                thread::scope(|scope| {
                    let writer = scope.spawn(|| input.write_all(lines.as_bytes()));
                    count_lines(output, *requests, |_| ())?;
                    writer.join().expect("a write does not panic").map_err(Into::into)
                })
                .map_err(|error: Box<dyn Error>| error)?;
            }
            start.elapsed()
        };
        Ok(Sample { took, peak_bytes: agent.end()? })
    }
}

fn echo(id: usize) -> Value {
    json!({ "number": id, "text": "the answer is the question" })
}

/// A response, as far as the validation looks.
#[derive(Deserialize)]
struct Answer {
    id: usize,
    result: Value,
}

/// The process of an agent and the ends of its pipes.
struct Agent {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Agent {
    fn start(command: &[OsString]) -> Result<Self> {
        let mut child =
            Command::new(&command[0]).args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped")
        };
        Ok(Self { child, input, output })
    }

    /// Initializes the connection and opens sessions.
    fn open(&mut self, sessions: usize) -> Result<Vec<String>> {
        let mut output = Vec::new();
        let initialize =
            json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } });
        self.exchange(&format!("{initialize}\n"), 1, &mut output)?;
        let mut lines = String::new();
        for id in 0..sessions {
            let params = json!({ "cwd": DIRECTORY, "mcpServers": [] });
            writeln!(lines, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": "session/new", "params": params }))?;
        }
        output.clear();
        self.exchange(&lines, sessions, &mut output)?;
        let answers = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        answers
            .map(|line| {
                let answer: Answer = serde_json::from_slice(line)?;
                let session = answer.result["sessionId"].as_str().ok_or("an answer to session/new has no sessionId")?;
                Ok(session.to_owned())
            })
            .collect()
    }

    /// Writes these lines while it reads as many answers, and keeps the answers.
    fn exchange(&mut self, lines: &str, answers: usize, kept: &mut Vec<u8>) -> Result<()> {
        let Self { input, output, .. } = self;
        thread::scope(|scope| {
            let writer = scope.spawn(|| input.write_all(lines.as_bytes()));
            count_lines(output, answers, |bytes| kept.extend_from_slice(bytes))?;
            Ok(writer.join().expect("a write does not panic")?)
        })
    }

    /// Ends the agent's input and waits for its exit; returns the peak of its memory.
    fn end(mut self) -> Result<u64> {
        let peak_bytes = peak_bytes(self.child.id())?;
        drop(self.input);
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest)?;
        if !rest.is_empty() {
            return Err(format!("more than was asked for: {}", String::from_utf8_lossy(&rest)).into());
        }
        let status = self.child.wait()?;
        if status.success() { Ok(peak_bytes) } else { Err(format!("it ended with {status}").into()) }
    }
}

/// Reads until so many lines have ended.
fn count_lines(output: &mut ChildStdout, lines: usize, mut each: impl FnMut(&[u8])) -> Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut seen = 0;
    while seen < lines {
        let read = output.read(&mut buffer)?;
        if read == 0 {
            return Err(format!("it closed its output after {seen} of {lines} answers").into());
        }
        seen += memchr::memchr_iter(b'\n', &buffer[..read]).count();
        each(&buffer[..read]);
    }
    if seen > lines { Err(format!("{seen} answers to {lines} requests").into()) } else { Ok(()) }
}

/// The most memory that a process had, as the kernel counts it.
fn peak_bytes(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the kernel does not say VmHWM")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024)
}

fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values[values.len() / 2]
}

/// One measured quantity: a figure for each agent, and what lastword is to reach.
#[derive(Serialize)]
struct Row {
    what: &'static str,
    unit: &'static str,
    /// In the order of [`AGENTS`].
    figures: [f64; 3],
    /// lastword's figure over that of the Rust SDK, and of the bare loop.
    ratios: [f64; 2],
    target: &'static str,
    reached: bool,
}

fn rows(samples: &Samples) -> Vec<Row> {
    let figures = |scenario: Scenario, figure: &dyn Fn(Duration) -> f64| {
        let taken = |agent: usize| median(samples[&scenario][agent].iter().map(|sample| sample.took).collect());
        [figure(taken(LASTWORD)), figure(taken(SDK)), figure(taken(BARE))]
    };
    let row = |what, unit, figures: [f64; 3], target, reached: &dyn Fn(f64, [f64; 2]) -> bool| {
        let ratios = [figures[LASTWORD] / figures[SDK], figures[LASTWORD] / figures[BARE]];
        Row { what, unit, figures, ratios, target, reached: reached(figures[LASTWORD], ratios) }
    };
    let mut rows = Vec::new();
    for scenario in [Scenario::Echo, Scenario::SetMode, Scenario::Prompt] {
        let rates = figures(scenario, &|took| REQUESTS as f64 / took.as_secs_f64());
        rows.push(row(scenario.name(), "requests/s", rates, ">= 5 SDK, >= 0.2 bare", &|_, [sdk, bare]| {
            sdk >= 5.0 && bare >= 0.2
        }));
    }
    let trips = figures(Scenario::PingPong, &|took| took.as_secs_f64() * 1e6);
    rows.push(row(Scenario::PingPong.name(), "µs", trips, "<= 1 SDK", &|_, [sdk, _]| sdk <= 1.0));
    let peak = |agent: usize| {
        let peaks = samples.values().flat_map(|agents| &agents[agent]).map(|sample| sample.peak_bytes);
        peaks.max().unwrap_or_default() as f64 / 1e6
    };
    rows.push(row("peak memory", "MB", [peak(LASTWORD), peak(SDK), peak(BARE)], "< 10 MB", &|peak, _| peak < 10.0));
    rows
}

fn as_table(samples: &Samples) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "", AGENTS[LASTWORD], AGENTS[SDK], AGENTS[BARE], "to SDK", "to bare", "target", "reached"]);
    for row in rows(samples) {
        let number = |value: &f64| if *value < 1000.0 { format!("{value:.1}") } else { format!("{value:.0}") };
        let mut cells = vec![row.what.to_owned(), row.unit.to_owned()];
        cells.extend(row.figures.iter().map(number));
        cells.extend(row.ratios.iter().map(|ratio| format!("{ratio:.2}")));
        cells.extend([row.target.to_owned(), if row.reached { "yes" } else { "no" }.to_owned()]);
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(2).take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn as_json(samples: &Samples) -> Value {
    let peaks: BTreeMap<&str, [u64; 3]> = samples
        .iter()
        .map(|(scenario, agents)| {
            let peak = |agent: &Vec<Sample>| agent.iter().map(|sample| sample.peak_bytes).max().unwrap_or_default();
            (scenario.name(), [peak(&agents[LASTWORD]), peak(&agents[SDK]), peak(&agents[BARE])])
        })
        .collect();
    json!({ "agents": AGENTS, "rows": rows(samples), "peak_bytes": peaks })
}
