//! `lastword fleet`: a lead delegates to worker agents over MCP, and no reply is lost.
//!
//! One daemon has the journal and the workers; whoever else there is speaks MCP with it over HTTP, and may come and go.

mod bridge;
pub(crate) mod client;
mod config;
mod daemon;
mod find;
mod http;
mod people;
mod place;
mod tasks;
mod token;
mod tools;
mod words;

use std::{fmt::Display, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

use self::config::Config;
use crate::logs;

/// The daemon or the command failed.
const FAILED: u8 = 1;
/// No daemon runs.
const NOT_RUNNING: u8 = 3;
/// Another daemon has the journal or the port.
const IN_USE: u8 = 4;

/// Let an agent delegate work to other agents, and lose no reply.
///
/// A lead is any agent that speaks MCP; its workers are any agents that speak ACP. The lead sends work and gets a ticket,
/// which is kept on the disk from then on: through time-outs, crashes and restarts it is `queued`, `working` or
/// `input_required` until it is `completed`, `failed` or `cancelled`. A reply that was accepted is never lost and never
/// reported as a failure.
///
/// Which workers there are stands in fleet.toml:
///
///     [workers.coder]
///     command = "my-agent"          # speaks ACP on standard input and output
///     args = ["--acp"]
///     cwd = "."                     # where it works; paths begin at the folder of this file
///     permissions = "ask"           # allow, deny (the default), or ask the lead
///     count = 4                     # how many of it may live; 8 if it is not said
///     description = "Writes and tests Rust."
///
/// The lead's configuration starts a bridge, which starts the daemon if none runs:
///
///     {"mcpServers": {"fleet": {"command": "lastword", "args": ["fleet", "mcp", "--config", "/path/to/fleet.toml"]}}}
///
/// By hand, the daemon and a look at it:
///
///     $ lastword fleet serve --config fleet.toml
///     $ lastword fleet status
///
/// What else fleet.toml may say, with the defaults:
///
///     listen = "127.0.0.1:4137"     # a loopback address; port 0 takes any
///     journal = "fleet.journal"     # beside it are .token, .log, .lock and .daemon
///     [limits]
///     wait_seconds = 45             # the longest that a call waits
///     progress_seconds = 10         # how often it says that it waits
///     body_bytes = 4194304          # of one request
///     text_bytes = 1048576          # of one task, question, answer or reply
///     workers = 256                 # that live
///     tickets_queued = 1024         # for one worker
///     tickets = 100000              # that are kept
///
/// A table of a worker may also say env (a table), start_seconds = 60, cancel_seconds = 10 and silence_seconds = 1800:
/// how long it may take to start, to end a cancelled turn, and to say nothing at all in a turn.
///
/// Exit status: 0 done; 1 it failed, which standard error explains; 2 the arguments are wrong; 3 no daemon runs; 4 another
/// daemon has the journal or the port.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
    /// The file that describes the fleet
    #[arg(long, global = true, value_name = "FILE", default_value = "fleet.toml")]
    config: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// Run the daemon, until SIGTERM or SIGINT
    Serve {
        /// Leave the terminal that it was started from
        #[arg(long)]
        detach: bool,
    },
    /// Be an MCP server on standard input and output, which passes everything on to the daemon
    ///
    /// It starts the daemon if none runs; the daemon outlives it.
    Mcp,
    /// Show the daemon, its workers, and how many tickets there are
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop the daemon, and wait until it has ended
    ///
    /// What it has acknowledged stays, and the next one goes on from there.
    Stop,
    /// Show the tickets, open ones first, or all of one
    Log {
        /// The ticket
        ticket: Option<u64>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the token of leads, for those that connect over HTTP
    Token,
}

/// Why a command failed.
pub(crate) enum Failure {
    NotRunning(String),
    InUse(String),
    Other(String),
}

impl Failure {
    fn other(error: impl Display) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(error: String) -> Self {
        Self::Other(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::other(error)
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let (code, error) = match dispatch(options) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::NotRunning(error)) => (NOT_RUNNING, error),
        Err(Failure::InUse(error)) => (IN_USE, error),
        Err(Failure::Other(error)) => (FAILED, error),
    };
    eprintln!("lastword: {error}");
    code.into()
}

fn dispatch(options: &Options) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let config = || Config::read(&options.config);
    if !matches!(options.command, Command::Serve { .. }) {
        // A trace is that of the daemon, which may run all the while.
        logs::install_untraced().map_err(Failure::other)?;
    }
    let done = runtime.block_on(async {
        match &options.command {
            Command::Serve { detach } => {
                if *detach {
                    // It fails where it has a session of its own already.
                    let _ = rustix::process::setsid();
                }
                let config = config()?;
                logs::install_kept(config.place.log()).map_err(Failure::other)?;
                daemon::serve(config).await
            }
            Command::Mcp => bridge::run(config).await,
            Command::Status { json } => people::status(&config()?, *json).await,
            Command::Stop => people::stop(&config()?).await,
            Command::Log { ticket, json } => people::log(&config()?, *ticket, *json).await,
            Command::Token => people::token(&config()?),
        }
    });
    // A blocking read of a terminal may never return; nobody waits for it.
    runtime.shutdown_background();
    done
}
