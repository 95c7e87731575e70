//! Measures `lastword guard` against a bare pipe proxy and against no proxy, in one run. The proxy is a tokio program that
//! reads lines from one pipe and writes them to the other, both ways, and flushes when its input is drained.
//!
//! The machine is rarely quiet, so single figures mean little and ratios mean more: the three take turns, every figure is the
//! median of all rounds, and each round is a fresh process. What is measured:
//!
//! - ping-pong: one `_lastword/echo` at a time, each sent when the answer to the one before was read. What a way adds is what
//!   it takes longer than no proxy.
//! - echo: the requests are written as fast as they are taken, and the clock runs from the first byte written to the last
//!   answer read.
//! - updates: one prompt that `lastword agent` answers with so many updates, up to its answer.

use std::{
    env,
    error::Error,
    ffi::OsString,
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _};

/// Round trips of the ping-pong scenario.
const ROUND_TRIPS: usize = 5_000;
/// Requests of the echo scenario, and updates of the other one.
const MESSAGES: usize = 50_000;
/// What a pipe holds by default on Linux.
const PIPE_BYTES: usize = 64 * 1024;
/// The word that makes this program the bare proxy.
const PROXY: &str = "--bare-proxy";

/// The ways from the client to the agent, in the order of the table's columns.
const WAYS: [&str; 3] = ["no proxy", "bare proxy", "guard"];

/// Compares `lastword guard` with a bare pipe proxy.
#[derive(Parser)]
struct Arguments {
    /// How often each way is measured in each scenario.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// What cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs a command, and gives its figure.
type Measure = fn(&[OsString]) -> Result<f64>;

fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    let result = match &words[..] {
        [_, first, agent @ ..] if first == PROXY => proxy(agent),
        _ => run(&Arguments::parse()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guard: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let bare = env::var_os("LASTWORD_BENCH_BARE_AGENT")
        .ok_or("LASTWORD_BENCH_BARE_AGENT is not set; scripts/bench builds that agent and names it")?;
    let lastword = OsString::from(env!("CARGO_BIN_EXE_lastword"));
    let this = env::current_exe()?.into_os_string();
    let ways = [vec![], vec![this, PROXY.into()], vec![lastword.clone(), "guard".into(), "--".into()]];
    let agents = [vec![bare.clone()], vec![bare], vec![lastword, "agent".into()]];
    let scenarios: [Measure; 3] = [ping_pong, echo, updates];
    let mut samples: [[Vec<f64>; 3]; 3] = Default::default();
    for round in 0..arguments.rounds.max(1) {
        for (scenario, measure) in scenarios.iter().enumerate() {
            // Nobody is always the first, who finds the caches cold.
            for turn in 0..WAYS.len() {
                let way = (round + turn) % WAYS.len();
                let command = [ways[way].as_slice(), &agents[scenario]].concat();
                let sample = measure(&command).map_err(|error| format!("{}: {error}", WAYS[way]))?;
                samples[scenario][way].push(sample);
            }
        }
    }
    let [trip, echo, updates] = samples.map(|ways| ways.map(median));
    let added = (trip[2] - trip[0]) / (trip[1] - trip[0]);
    let ratio = |rates: [f64; 3]| rates[2] / rates[1];
    if arguments.json {
        let scenario =
            |values: [f64; 3]| WAYS.iter().copied().zip(values).collect::<std::collections::BTreeMap<_, _>>();
        println!(
            "{}",
            json!({
                "ping_pong_us": scenario(trip), "echo_per_s": scenario(echo), "updates_per_s": scenario(updates),
                "added_latency_guard_to_proxy": added,
                "echo_guard_to_proxy": ratio(echo), "updates_guard_to_proxy": ratio(updates),
            })
        );
        return Ok(());
    }
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(["scenario"].into_iter().chain(WAYS).chain(["guard to proxy"]));
    let row = |name: &str, values: [f64; 3], unit: &str, ratio: String| {
        [name.to_owned()].into_iter().chain(values.map(|value| format!("{value:.0} {unit}"))).chain([ratio])
    };
    table.add_row(row("ping-pong", trip, "µs", format!("{added:.2} of what is added")));
    table.add_row(row("echo", echo, "/s", format!("{:.2}", ratio(echo))));
    table.add_row(row("updates", updates, "/s", format!("{:.2}", ratio(updates))));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn request(id: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"_lastword/echo","params":{{"text":"some words of a message","n":{id}}}}}"#
    ) + "\n"
}

/// Runs a command for as long as `with` does something with its pipes. It must exit well once its input has ended.
fn with_child<T>(
    command: &[OsString],
    with: impl FnOnce(std::process::ChildStdin, BufReader<std::process::ChildStdout>) -> Result<T>,
) -> Result<T> {
    let mut child =
        Command::new(&command[0]).args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the pipes are gone".into());
    };
    let given = with(input, BufReader::with_capacity(PIPE_BYTES, output));
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("{status}").into());
    }
    given
}

/// Microseconds a round trip.
fn ping_pong(command: &[OsString]) -> Result<f64> {
    with_child(command, |mut input, mut output| {
        let mut line = String::new();
        let mut trips = Vec::with_capacity(ROUND_TRIPS);
        for id in 0..ROUND_TRIPS {
            let request = request(id);
            let start = Instant::now();
            input.write_all(request.as_bytes())?;
            line.clear();
            output.read_line(&mut line)?;
            trips.push(start.elapsed().as_secs_f64() * 1e6);
            if !line.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"text""#)) {
                return Err(format!("request {id} was answered {line:?}").into());
            }
        }
        Ok(median(trips))
    })
}

/// Requests a second.
fn echo(command: &[OsString]) -> Result<f64> {
    let requests: String = (0..MESSAGES).map(request).collect();
    with_child(command, |mut input, output| {
        let start = Instant::now();
        let writer = thread::spawn(move || input.write_all(requests.as_bytes()).map(|()| input));
        let elapsed = read(output, MESSAGES, start)?;
        drop(writer.join().map_err(|_| "the writer panicked")??);
        Ok(MESSAGES as f64 / elapsed.as_secs_f64())
    })
}

/// Updates a second.
fn updates(command: &[OsString]) -> Result<f64> {
    with_child(command, |mut input, mut output| {
        input.write_all(b"{\"id\":1,\"method\":\"session/new\",\"params\":{\"cwd\":\"/\",\"mcpServers\":[]}}\n")?;
        output.read_line(&mut String::new())?;
        let text = format!("updates={MESSAGES}");
        let params = json!({"sessionId": "session-1", "prompt": [{"type": "text", "text": text}]});
        let prompt = format!("{}\n", json!({"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": params}));
        let start = Instant::now();
        input.write_all(prompt.as_bytes())?;
        let elapsed = read(output, MESSAGES + 1, start)?;
        Ok(MESSAGES as f64 / elapsed.as_secs_f64())
    })
}

/// Reads so many lines, none of which is an error, and gives the time up to the last one.
fn read(mut output: BufReader<std::process::ChildStdout>, lines: usize, start: Instant) -> Result<Duration> {
    let mut line = Vec::new();
    for read in 0..lines {
        line.clear();
        if output.read_until(b'\n', &mut line)? == 0 {
            return Err(format!("the output ended after {read} of {lines} lines").into());
        }
        if line.windows(8).any(|part| part == b"\"error\":") {
            return Err(format!("an error: {}", String::from_utf8_lossy(&line)).into());
        }
    }
    Ok(start.elapsed())
}

/// The bare proxy: lines in, lines out, both ways.
fn proxy(agent: &[OsString]) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut child = tokio::process::Command::new(&agent[0])
            .args(&agent[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the pipes are gone".into());
        };
        // Pipes that are not blocking, as the guard has them.
        let ours = tokio::net::unix::pipe::OpenOptions::new();
        let client = ours.open_receiver("/dev/stdin")?;
        let to_client = ours.open_sender("/dev/stdout")?;
        let there = tokio::spawn(copy_lines(client, input));
        copy_lines(output, to_client).await?;
        there.abort();
        child.wait().await?;
        Ok(())
    })
}

async fn copy_lines(from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut from = tokio::io::BufReader::with_capacity(PIPE_BYTES, from);
    let mut to = tokio::io::BufWriter::with_capacity(PIPE_BYTES, to);
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.read_until(b'\n', &mut line).await? == 0 {
            return to.shutdown().await;
        }
        to.write_all(&line).await?;
        if from.buffer().is_empty() {
            to.flush().await?;
        }
    }
}
