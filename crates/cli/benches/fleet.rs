//! Measures `lastword fleet serve` over HTTP, as a lead meets it: what a look at a ticket takes beside an echo tool on bare rmcp,
//! and how long many tickets over many workers take.
//!
//! - poll: `fleet_poll` of a ticket that is completed, and an `echo` that gives as much text, by the same rmcp client, each
//!   over one connection that is kept. The bare server is a process of its own on the same rmcp and the same runtime, without
//!   a token; once with sessions, as rmcp has them by default, and once without, as the fleet is. The three take turns in
//!   short batches, the ratio of each round is taken, and the figure is the median of those.
//! - tickets: so many tickets over so many workers, each a `lastword agent` that replies through its tools. It ends when the
//!   lead has seen the reply of each, which must be the one that its task asked for.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    time::Instant,
};

use axum::{
    http::{HeaderValue, header},
    serve::ListenerExt as _,
};
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use rmcp::{
    ErrorData, RoleClient, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult, PaginatedRequestParams,
        ServerCapabilities, ServerConfig, Tool,
    },
    service::{RequestContext, RunningService},
    transport::{
        StreamableHttpClientTransport,
        streamable_http_client::StreamableHttpClientTransportConfig,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Calls of one way before the next one has its turn.
const BATCH: usize = 25;
/// How many calls a way makes before anything is measured.
const WARM_UP: usize = 200;
/// The many tickets, and the many workers.
const TICKETS: usize = 1_000;
const WORKERS: usize = 50;
/// The longest wait that the fleet allows by default.
const WAIT_SECONDS: u64 = 45;
/// The reply, and what is echoed.
const TEXT: &str = "The build passes now, and the tests do as well.";
/// The words that make this program the bare server.
const BARE: &str = "--bare-echo";

/// The ways, in the order of the table's rows.
const WAYS: [&str; 3] = ["fleet_poll", "echo, bare rmcp", "echo, bare rmcp without sessions"];

/// Compares `lastword fleet serve` with an echo tool on bare rmcp, and counts tickets a second.
#[derive(Parser)]
struct Arguments {
    /// How many batches of calls each way makes.
    #[arg(long, default_value_t = 80)]
    rounds: usize,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// What cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Client = RunningService<RoleClient, ()>;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().collect();
    // As the daemon has it.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(Into::into).and_then(|runtime| match &words[..] {
        [_, first, sessions] if first == BARE => runtime.block_on(bare(sessions == "true")),
        _ => runtime.block_on(run(&Arguments::parse())),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    // On the disk that the build is on: a folder for temporary files may be no disk.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let fleet = Server::fleet(folder.path())?;
    let servers = [Server::bare(true)?, Server::bare(false)?];
    let lead = fleet.client().await?;
    let clients = [fleet.client().await?, servers[0].client().await?, servers[1].client().await?];

    let worker = call(&lead, "fleet_spawn", json!({"kind": "agent"})).await?["worker"].clone();
    let task = format!("reply={}", TEXT.replace(' ', "_"));
    let sent = call(&lead, "fleet_send", json!({"worker": worker, "content": task, "wait": WAIT_SECONDS})).await?;
    if sent["reply"] != TEXT.replace(' ', "_") {
        return Err(format!("the ticket has no reply: {sent}").into());
    }
    let (poll, echo) = (json!({"ticket": sent["ticket"]}), json!({"text": TEXT}));
    let calls = [("fleet_poll", poll), ("echo", echo.clone()), ("echo", echo)];
    let mut times: [Vec<Vec<f64>>; 3] = Default::default();
    for (client, (tool, arguments)) in clients.iter().zip(&calls) {
        batch(client, tool, arguments, WARM_UP).await?;
    }
    for round in 0..arguments.rounds.max(1) {
        // Nobody is always the first.
        for turn in 0..WAYS.len() {
            let way = (round + turn) % WAYS.len();
            let (tool, arguments) = &calls[way];
            times[way].push(batch(&clients[way], tool, arguments, BATCH).await?);
        }
    }
    let (seconds, peak) = (tickets(&lead).await?, fleet.peak_memory()?);
    report(arguments, &times, seconds, peak);
    Ok(())
}

/// Microseconds of each of some calls, one after the other.
async fn batch(client: &Client, tool: &'static str, arguments: &Value, calls: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let begun = Instant::now();
        let answer = call(client, tool, arguments.clone()).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        if answer.is_null() {
            return Err(format!("{tool} said nothing").into());
        }
    }
    Ok(times)
}

/// Seconds from the first task sent to the last reply seen. Each worker has its share, and each lead one worker.
async fn tickets(client: &Client) -> Result<f64> {
    let workers = call(client, "fleet_list", json!({})).await?["workers"].as_array().map_or(0, Vec::len);
    for _ in workers..WORKERS {
        call(client, "fleet_spawn", json!({"kind": "agent"})).await?;
    }
    // So that starting them is not measured: each has had a ticket.
    let share = |worker: usize, from: usize, to: usize| {
        let peer = client.peer().clone();
        async move {
            let mut sent = Vec::new();
            for number in from..to {
                let task = format!("reply=reply-{worker}-{number}");
                sent.push(answer(&peer, "fleet_send", json!({"worker": worker, "content": task})).await?);
            }
            for (number, sent) in (from..to).zip(sent) {
                loop {
                    let wait = json!({"ticket": sent["ticket"], "wait": WAIT_SECONDS});
                    let seen = answer(&peer, "fleet_poll", wait).await?["tickets"][0].clone();
                    match seen["state"].as_str() {
                        Some("completed") if seen["reply"] == format!("reply-{worker}-{number}") => break,
                        Some("queued" | "working") => {}
                        _ => return Err(format!("a ticket has not its reply: {seen}").into()),
                    }
                }
            }
            Ok(())
        }
    };
    let all = |from, to| {
        let mut shares: JoinSet<Result<()>> = JoinSet::new();
        (1..=WORKERS).for_each(|worker| drop(shares.spawn(share(worker, from, to))));
        async move {
            while let Some(done) = shares.join_next().await {
                done??;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        }
    };
    all(0, 1).await?;
    let begun = Instant::now();
    all(1, 1 + TICKETS / WORKERS).await?;
    Ok(begun.elapsed().as_secs_f64())
}

async fn call(client: &Client, tool: &'static str, arguments: Value) -> Result<Value> {
    answer(client.peer(), tool, arguments).await
}

/// What a tool says as data.
async fn answer(peer: &rmcp::Peer<RoleClient>, tool: &'static str, arguments: Value) -> Result<Value> {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let result = peer.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await?;
    if result.is_error == Some(true) {
        return Err(format!("{tool}: {:?}", result.content).into());
    }
    Ok(result.structured_content.unwrap_or_default())
}

/// A server in a process of its own, which ends with this.
struct Server {
    process: Child,
    url: String,
    token: String,
}

impl Server {
    fn fleet(folder: &Path) -> Result<Self> {
        let program = env!("CARGO_BIN_EXE_lastword");
        let file = folder.join("fleet.toml");
        let kind = format!("command = {program:?}\nargs = [\"agent\"]\ncount = {WORKERS}");
        fs::write(&file, format!("listen = \"127.0.0.1:0\"\n[workers.agent]\n{kind}\n"))?;
        let mut command = Command::new(program);
        command.args(["fleet", "serve", "--config"]).arg(&file);
        let mut server = Self::start(command)?;
        server.token = fs::read_to_string(folder.join("fleet.journal.token"))?.trim().to_owned();
        Ok(server)
    }

    fn bare(sessions: bool) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args([BARE, &sessions.to_string()]);
        Self::start(command)
    }

    /// It says where it is in its first line.
    fn start(mut command: Command) -> Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().ok_or("it has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let url = line.find("http://").map(|at| line[at..].trim().to_owned()).ok_or("a server did not start")?;
        Ok(Self { process, url, token: String::new() })
    }

    async fn client(&self) -> Result<Client> {
        let bearer = HeaderValue::try_from(format!("Bearer {}", self.token))?;
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.clone())
            .custom_headers([(header::AUTHORIZATION, bearer)].into());
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(().serve(StreamableHttpClientTransport::with_client(http, config)).await?)
    }

    /// The most memory that it has had so far, in MiB, as the kernel says.
    fn peak_memory(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let kib: Option<f64> =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        Ok(kib.ok_or("the kernel does not say")? / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The fleet must end its workers, so that it is asked.
        if let Some(process) = rustix::process::Pid::from_raw(self.process.id().cast_signed()) {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        let _ = self.process.wait();
    }
}

/// A server with one tool, and nothing around it, until its input ends.
async fn bare(sessions: bool) -> Result<()> {
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(sessions);
    let service = StreamableHttpService::new(|| Ok(Echo), Arc::new(LocalSessionManager::default()), config);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    // Without it, an answer in two writes waits 40 ms for the client's system, and whatever is compared with that is quick.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let served = axum::serve(listener, axum::Router::new().nest_service("/mcp", service));
    tokio::select! {
        served = served.into_future() => served?,
        // Its own thread, so that nothing is shared with the server.
        _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())) => {}
    }
    Ok(())
}

struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object"}).as_object().cloned().unwrap_or_default();
        Ok(ListToolsResult::with_all_items(vec![Tool::new("echo", "Echoes.", Arc::new(schema))]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let echoed = Value::Object(request.arguments.unwrap_or_default());
        let mut result = CallToolResult::success(vec![ContentBlock::text(echoed.to_string())]);
        result.structured_content = Some(echoed);
        Ok(result.into())
    }
}

fn report(arguments: &Arguments, times: &[Vec<Vec<f64>>; 3], seconds: f64, peak: f64) {
    let all = times.each_ref().map(|batches| batches.concat());
    let medians = all.each_ref().map(|times| quantile(times, 0.5));
    let tails = all.each_ref().map(|times| quantile(times, 0.99));
    let ratio = |way: usize, of: f64| {
        let rounds = times[0].iter().zip(&times[way]);
        quantile(&rounds.map(|(ours, bare)| quantile(ours, of) / quantile(bare, of)).collect::<Vec<_>>(), 0.5)
    };
    let ratios = [1, 2].map(|way| ratio(way, 0.5));
    let rate = TICKETS as f64 / seconds;
    if arguments.json {
        let ways = |values: [f64; 3]| WAYS.into_iter().zip(values).collect::<std::collections::BTreeMap<_, _>>();
        println!(
            "{}",
            json!({
                "median_us": ways(medians), "p99_us": ways(tails),
                "poll_to_echo": ratios[0], "poll_to_echo_without_sessions": ratios[1],
                "tickets": TICKETS, "workers": WORKERS, "tickets_seconds": seconds, "tickets_per_s": rate,
                "daemon_peak_mib": peak,
            })
        );
        return;
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(["call", "median", "p99", "fleet_poll takes"]);
    for way in 0..WAYS.len() {
        let ratio = if way == 0 { String::new() } else { format!("{:.2} of it", ratios[way - 1]) };
        table.add_row([
            WAYS[way].to_owned(),
            format!("{:.0} µs", medians[way]),
            format!("{:.0} µs", tails[way]),
            ratio,
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    println!(
        "{TICKETS} tickets over {WORKERS} workers: {seconds:.1} s, {rate:.0} a second; the daemon's peak memory is {peak:.0} MiB"
    );
}

fn quantile(values: &[f64], of: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * of).round() as usize]
}
