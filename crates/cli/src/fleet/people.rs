//! What people ask of a fleet: is it there, what is it at, and stop it.

use std::time::Duration;

use comfy_table::{Table, presets};
use rmcp::model::JsonObject;
use rustix::process::{Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Failure, client::Server, config::Config, find, place::Whereabouts};

/// How long a daemon may take to end: its workers are asked to exit and then made to, which takes less than this.
const STOP_MAX: Duration = Duration::from_secs(30);

/// How often it is looked whether it has ended. It is nobody's child here, so nothing else tells.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How much of a text a row of a table shows.
const CELL_CHARS_MAX: usize = 60;

pub(super) async fn status(config: &Config, as_json: bool) -> Result<(), Failure> {
    let (daemon, server) = daemon(config)?;
    let listed = server.call("fleet_list", JsonObject::new()).await?;
    let polled = server.call("fleet_poll", JsonObject::new()).await?;
    let states = ["queued", "working", "input_required", "completed", "failed", "cancelled"];
    let of = |state: &str| rows(&polled["tickets"]).filter(|ticket| ticket["state"] == state).count();
    let counts: JsonObject = states.iter().map(|state| ((*state).to_owned(), of(state).into())).collect();
    if as_json {
        let status = json!({
            "pid": daemon.pid,
            "url": daemon.url(),
            "journal": config.place.journal(),
            "log": config.place.log(),
            "workers": listed["workers"],
            "kinds": listed["kinds"],
            "tickets": counts,
            "tickets_left_out": polled["left_out"],
        });
        println!("{status:#}");
        return Ok(());
    }
    println!("Process {} serves {} at {}.", daemon.pid, config.place.journal().display(), daemon.url());
    let mut workers = table(["worker", "name", "kind", "life", "ticket", "queued", "end"]);
    for row in rows(&listed["workers"]) {
        workers.add_row(["worker", "name", "kind", "life", "at", "queued", "death"].map(|key| cell(&row[key])));
    }
    println!("{workers}");
    let counts: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let left_out = polled["left_out"].as_u64().filter(|left_out| *left_out > 0);
    let left_out = left_out.map(|left_out| format!(", and {left_out} older ones")).unwrap_or_default();
    println!("Tickets: {}{left_out}.", counts.join(", "));
    let gone = rows(&listed["workers"]).any(|row| !row["death"].is_null());
    if gone {
        println!("`lastword fleet status --json` has each end in full.");
    }
    Ok(())
}

pub(super) async fn log(config: &Config, ticket: Option<u64>, as_json: bool) -> Result<(), Failure> {
    let (_, server) = daemon(config)?;
    let arguments = ticket.map(|ticket| ("ticket".to_owned(), ticket.into())).into_iter().collect();
    let polled = server.call("fleet_poll", arguments).await.map_err(|error| match ticket {
        Some(ticket) => format!("ticket {ticket}: {error}; `lastword fleet log` shows them"),
        None => error,
    })?;
    if as_json {
        println!("{polled:#}");
        return Ok(());
    }
    let whole = ticket.is_some();
    let show = |text: &Value| if whole { text.as_str().unwrap_or_default().to_owned() } else { cell(text) };
    let mut tickets = table(["ticket", "worker", "state", "what"]);
    for row in rows(&polled["tickets"]) {
        let asked =
            rows(&row["questions"]).map(|asked| format!("question {}: {}", asked["question"], show(&asked["text"])));
        let ended = [&row["reply"], &row["reason"]].into_iter().filter(|text| text.is_string()).map(show);
        let late = rows(&row["late_replies"]).map(|late| format!("late: {}", show(late)));
        let what: Vec<String> = asked.chain(ended).chain(late).collect();
        tickets.add_row([cell(&row["ticket"]), cell(&row["worker"]), cell(&row["state"]), what.join("\n")]);
    }
    println!("{tickets}");
    if let Some(left_out) = polled["left_out"].as_u64().filter(|left_out| *left_out > 0) {
        println!("{left_out} older ones are not shown; name one to see it.");
    }
    Ok(())
}

pub(super) async fn stop(config: &Config) -> Result<(), Failure> {
    let (daemon, _) = daemon(config)?;
    let Some(process) = daemon.process() else { return Err(Failure::other("the daemon has no process")) };
    kill_process(process, Signal::TERM)
        .map_err(|error| format!("process {} cannot be stopped: {error}", daemon.pid))?;
    let deadline = Instant::now() + STOP_MAX;
    while test_kill_process(process).is_ok() {
        if Instant::now() >= deadline {
            return Err(Failure::other(format!("process {} has not ended within {STOP_MAX:?}", daemon.pid)));
        }
        sleep(LOOK_EVERY).await;
    }
    println!("Process {} has ended.", daemon.pid);
    Ok(())
}

pub(super) fn token(config: &Config) -> Result<(), Failure> {
    println!("{}", config.place.token()?.as_str());
    Ok(())
}

fn daemon(config: &Config) -> Result<(Whereabouts, Server), Failure> {
    let Some(daemon) = find::running(config) else {
        let journal = config.place.journal().display();
        return Err(Failure::NotRunning(format!("no daemon serves {journal}; `lastword fleet serve` starts one")));
    };
    let server = Server::with_token(daemon.url(), config.place.token()?.as_str());
    Ok((daemon, server))
}

fn table<const N: usize>(heading: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heading);
    table
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The beginning of a text, in one line.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
