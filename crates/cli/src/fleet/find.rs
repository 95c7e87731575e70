//! Finds the daemon of a fleet, or starts it.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    time::{Instant, sleep, timeout_at},
};

use super::{IN_USE, config::Config, place::Whereabouts};

/// How long a daemon may take to start: it reads its whole journal first.
const START_MAX: Duration = Duration::from_secs(30);

/// How often it is looked whether a daemon that somebody else has started is there, which nothing else tells.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How much of the end of the log is shown where a daemon does not start.
const LOG_LINES_MAX: usize = 5;

/// The daemon, if it runs.
pub(super) fn running(config: &Config) -> Option<Whereabouts> {
    config.place.whereabouts().filter(Whereabouts::is_there)
}

/// The daemon, which is started if none runs.
pub(super) async fn find_or_start(config: &Config) -> Result<Whereabouts, String> {
    let deadline = Instant::now() + START_MAX;
    loop {
        if let Some(daemon) = running(config) {
            return Ok(daemon);
        }
        if Instant::now() >= deadline {
            return Err(format!(
                "the daemon did not start within {START_MAX:?}; its log is {}",
                config.place.log().display()
            ));
        }
        if !start(config, deadline).await? {
            sleep(LOOK_EVERY).await;
        }
    }
}

/// Starts a daemon that outlives us; false where somebody else does.
async fn start(config: &Config, deadline: Instant) -> Result<bool, String> {
    let cannot = |error: std::io::Error| format!("the daemon cannot be started: {error}");
    let log = config.place.open_log()?;
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    command.args(["fleet", "serve", "--detach", "--config"]).arg(&config.file);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).current_dir("/");
    let mut daemon = tokio::process::Command::from(command).spawn().map_err(cannot)?;
    let Some(output) = daemon.stdout.take() else { return Err("the daemon has no output".to_owned()) };
    // It says a line once it is there, and its output ends if it fails before.
    let mut said = String::new();
    let _ = timeout_at(deadline, BufReader::new(output).read_line(&mut said)).await;
    if !said.is_empty() {
        return Ok(true);
    }
    match timeout_at(deadline, daemon.wait()).await {
        Ok(Ok(status)) if status.code() == Some(IN_USE.into()) => Ok(false),
        Ok(Ok(status)) => {
            let log = std::fs::read_to_string(config.place.log()).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n");
            Err(format!("the daemon did not start ({status}):\n{last}"))
        }
        Ok(Err(error)) => Err(cannot(error)),
        Err(_) => Ok(false),
    }
}
