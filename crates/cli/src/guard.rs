//! `lastword guard`: the promises of the runtime in front of any agent.

use std::{error::Error as StdError, ffi::OsString, process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use lastword::{GuardEnded, GuardOptions, Overlap, SpawnError};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{logs, stdio};

/// The agent ended before the client, or could not be spoken with.
const AGENT_ENDED: u8 = 1;
/// There is no agent.
const NOT_STARTED: u8 = 3;

/// How much longer than the grace period the end of the client's input is waited for: enough to write the last answers.
const AFTER_GRACE: Duration = Duration::from_secs(2);

/// Keep the promises of lastword in front of any agent.
///
/// Starts AGENT and stands between it and the client: what the client writes to standard input goes to the agent, what the
/// agent says goes to standard output, and nothing of it is changed. But whatever the agent does:
///
/// - Of two prompts of a session that overlap the newer one replaces the older one; or it waits, or is refused: --overlap.
/// - A session/cancel, in either form, ends every earlier prompt of its session and no later one. An agent that comes late
///   to it is told again until it has answered.
/// - An ended prompt is answered `cancelled` when the agent has answered it, or after --grace if it does not.
/// - Each request gets exactly one response, and a response stands in its place among the updates.
///
/// The agent sees one prompt of a session at a time, a cancel only as a notification and only while it has a prompt of that
/// session, and everything else in the order in which the client said it.
///
/// Where the agent dies or does not answer, each request in flight gets an error that says what happened, with the agent's
/// last lines on standard error. All of its standard error is passed on. Lines on its standard output that are no message
/// go to the log. At the end of the client's input every turn is ended, and the agent is asked to exit; an agent that does
/// not is terminated, then killed, with all that it started.
///
/// In an editor, the guard stands in the agent's place. In the settings of Zed:
///
///     "agent_servers": {
///       "My agent": { "type": "custom", "command": "lastword", "args": ["guard", "--", "my-agent", "--acp"] }
///     }
///
/// By hand, with a record of both connections to look at afterwards:
///
///     $ LASTWORD_TRACE=trace.ndjson lastword guard -- lastword agent
///     {"id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}
///     {"id":2,"method":"session/prompt","params":{"sessionId":"session-1","prompt":[{"type":"text","text":"hello"}]}}
///     $ lastword trace check trace.ndjson
///
/// Exit status: 0 the client ended its side; 1 the agent ended first, or could not be spoken with; 2 the arguments are
/// wrong; 3 the agent could not be started. Standard error says why.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Options {
    /// What becomes of a prompt that arrives while an older one of its session is in flight
    #[arg(long, value_enum, default_value_t = Policy::Replace)]
    overlap: Policy,
    /// How long the agent may take to answer a prompt that was ended, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    grace: u64,
    /// How long the agent may take to answer any other request, in seconds
    ///
    /// The time in which the client owes the agent an answer does not count, here and for --silence.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    answer_within: Duration,
    /// How long the agent may say nothing at all while it has a prompt, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = seconds)]
    silence: Duration,
    /// The agent: a program and its arguments
    #[arg(last = true, required = true, value_name = "AGENT")]
    agent: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Policy {
    /// It ends the older one, and starts when the agent has answered that or the grace period is over
    Replace,
    /// It starts after those before it
    Queue,
    /// It is refused with an error, and nothing changes
    Refuse,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

pub(crate) fn run(options: Options) -> ExitCode {
    match logs::install().and_then(|()| serve(options)) {
        Ok(GuardEnded::Client { connection, .. }) => {
            if let Err(error) = connection {
                eprintln!("lastword: the client: {error}");
            }
            ExitCode::SUCCESS
        }
        Ok(GuardEnded::Agent(ended)) => {
            match ended.connection {
                Ok(()) => eprintln!("lastword: the agent ended before the client did: {}", ended.exit),
                Err(error) => eprintln!("lastword: the agent could not be spoken with: {error}; {}", ended.exit),
            }
            AGENT_ENDED.into()
        }
        Ok(other) => {
            eprintln!("lastword: the guard ended: {other:?}");
            AGENT_ENDED.into()
        }
        Err(error) if error.is::<SpawnError>() => {
            eprintln!("lastword: {error}; is it installed, and on the PATH?");
            NOT_STARTED.into()
        }
        Err(error) => {
            eprintln!("lastword: {error}");
            AGENT_ENDED.into()
        }
    }
}

fn serve(options: Options) -> Result<GuardEnded, Box<dyn StdError>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let (input, output) = (stdio::input()?, stdio::output()?);
        let (command, options) = options.resolve();
        stop_on_signal(&options.stop)?;
        // A task, so that it takes its turn with those of the handlers; what is blocked on is polled before them all.
        Ok(tokio::spawn(lastword::guard(command, input, output, options)).await??)
    });
    // A blocking read of a terminal may never return; nobody waits for it.
    runtime.shutdown_background();
    ended
}

/// Whoever ends the guard means the agent too, which is in a process group of its own.
fn stop_on_signal(stop: &CancellationToken) -> std::io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let (mut signals, stop) = (signal(kind)?, stop.clone());
        tokio::spawn(async move {
            signals.recv().await;
            stop.cancel();
        });
    }
    Ok(())
}

impl Options {
    fn resolve(self) -> (std::process::Command, GuardOptions) {
        let mut words = self.agent.into_iter();
        // clap asks for at least one.
        let mut command = std::process::Command::new(words.next().unwrap_or_default());
        // The trace is that of the guard: two programs cannot write to one file.
        command.args(words).env_remove(logs::TRACE_VARIABLE);
        let mut options = GuardOptions::default();
        options.client.overlap = match self.overlap {
            Policy::Replace => Overlap::Replace,
            Policy::Queue => Overlap::Queue,
            Policy::Refuse => Overlap::Refuse,
        };
        options.client.grace = Duration::from_millis(self.grace);
        options.client.drain_max = options.client.drain_max.max(options.client.grace + AFTER_GRACE);
        options.answer_max = self.answer_within;
        options.silence_max = self.silence;
        (command, options)
    }
}
