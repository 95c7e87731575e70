//! `lastword conform`: measures any agent or client against the promises, at the wire.
//!
//! It has no connection of this project between itself and the peer: it must be able to send anything in one write and to see
//! every byte.

mod message;
mod path;
mod play;
mod probes;
mod report;
mod scenario;
mod transcript;
mod wire;

use std::{
    error::Error,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use self::{
    play::{Manner, Player, Round},
    report::{Report, Row},
    scenario::{Need, Role, Scenario, Verdict},
    transcript::{Entry, Phase},
};

/// A promise was broken.
const BROKEN: u8 = 1;
/// Nothing was measured, which must never look like kept promises.
const COULD_NOT_RUN: u8 = 3;

/// How many rounds of a scenario that moves megabytes are played at most.
const HEAVY_ROUNDS_MAX: u32 = 5;

/// What the progress bar shows.
const TEMPLATE: &str = "{wide_bar} {pos}/{len} rounds  {msg}  {elapsed}";

/// Measure any ACP agent or client against the promises, at the wire.
///
///     lastword conform -- lastword agent
///     lastword conform --prompt-long 'count to a million' --prompt-short 'say hi' -- my-agent --acp
///     lastword conform --only prompt-cancel --rounds 300 --transcripts broken -- my-agent --acp
///     lastword conform --replay broken/prompt-cancel-7.ndjson -- my-agent --acp
///     lastword conform --client --echoes --cancels -- my-client
///
/// An agent runs as a child process and is spoken to on its standard input and output, one message a line. Each scenario
/// is sent in one write, --rounds times, each time in a new session. What must happen is what the checked machine of
/// lastword does with the same messages. Where something is due and does not come within --patience-ms, the round is
/// broken; what still runs is then cancelled, and an agent that does not end it is replaced. A scenario that ends the
/// input has a process of its own. --list tells each scenario, and which counterexamples do not show at the wire.
///
/// The prompt --prompt-long must take longer than the patience, unless it is cancelled, and --prompt-short must not.
/// Requests for permission are answered with their first option.
///
/// A client runs as a child process and speaks ACP on its standard input and output. By itself it must send initialize,
/// session/new and session/prompt, with any text; lastword plays the agent. When its prompt was answered it may prompt
/// again, for the next round, or exit: then it is started again. It is expected to answer session/request_permission.
/// What its handlers do does not show at the wire unless it says so:
///
///     --echoes     it sends the notification _lastword/echo with {"handling": TEXT} when its handler of an
///                  agent_message_chunk begins, {"handled": TEXT} when that handler is done, and
///                  {"returned": STOP_REASON} when its call of session/prompt has returned
///     --cancels    it sends session/cancel for an agent_message_chunk with the text of --cancel-text
///
/// Verdicts: `kept` in every round, or in those that could show it; `broken, K of N`; `not supported` where the peer says
/// so; `not shown` where what would show it did not happen.
///
/// Exit status: 0 every promise that could be shown is kept; 1 a promise is broken; 2 the arguments are wrong; 3 nothing
/// was measured, since the program does not start or does not answer, or a file cannot be read or written.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Options {
    /// The program to measure, and its arguments
    #[arg(last = true, required_unless_present = "list", value_name = "AGENT")]
    command: Vec<String>,
    /// Measure a client; lastword plays the agent
    #[arg(long)]
    client: bool,
    /// How many rounds of each scenario; 5 at most of one that moves megabytes
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Play only the scenarios with these names
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the scenarios and the promises that each one shows, and play none
    #[arg(long)]
    list: bool,
    /// A prompt that takes long and can be cancelled
    #[arg(long, value_name = "TEXT", default_value = "wait=600000")]
    prompt_long: String,
    /// A prompt that is soon done
    #[arg(long, value_name = "TEXT", default_value = "hello")]
    prompt_short: String,
    /// The folder that sessions are opened in
    #[arg(long, value_name = "DIR", default_value = ".")]
    cwd: PathBuf,
    /// Authenticate with this method before the first session
    #[arg(long, value_name = "METHOD")]
    authenticate: Option<String>,
    /// How long a round waits for what is due, in milliseconds; ten times that where it moves megabytes
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    patience_ms: u64,
    /// How long the program may take to start and to open a session, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    start_ms: u64,
    /// The client says what its handlers do
    #[arg(long, requires = "client")]
    echoes: bool,
    /// The client cancels when it is told to
    #[arg(long, requires = "client")]
    cancels: bool,
    /// The text that tells it to
    #[arg(long, value_name = "TEXT", default_value = "cancel")]
    cancel_text: String,
    /// Write the results as JSON; `-` is standard output, in the place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the results as Markdown; `-` is standard output, in the place of the table
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the transcript of the first broken round of each scenario to this folder
    #[arg(long, value_name = "DIR")]
    transcripts: Option<PathBuf>,
    /// Play the rounds of a transcript again, and judge them again
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rounds", "only", "list"])]
    replay: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match options.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lastword: {error}");
            COULD_NOT_RUN.into()
        }
    }
}

impl Options {
    fn run(&self) -> Result<ExitCode, Box<dyn Error>> {
        let role = if self.client { Role::Client } else { Role::Agent };
        let (scenarios, untold) = all(role);
        if self.list {
            anstream::print!("{}", report::list(&scenarios, &untold));
            return Ok(ExitCode::SUCCESS);
        }
        wire::watch_signals()?;
        let mut player = Player::new(self.manner(role)?);
        let report = match &self.replay {
            Some(file) => self.replay(&mut player, &scenarios, file)?,
            None => self.measure(&mut player, self.chosen(scenarios)?)?,
        };
        self.write(&report)?;
        Ok(match report.verdict() {
            report::Verdict::Kept => ExitCode::SUCCESS,
            report::Verdict::Broken => BROKEN.into(),
            report::Verdict::NothingShown => COULD_NOT_RUN.into(),
        })
    }

    fn manner(&self, role: Role) -> Result<Manner, Box<dyn Error>> {
        let cwd = self.cwd.canonicalize().map_err(|error| format!("--cwd {}: {error}", self.cwd.display()))?;
        Ok(Manner {
            role,
            command: self.command.clone(),
            cwd: cwd.to_str().ok_or("--cwd: the path is not UTF-8, so no message can hold it")?.to_owned(),
            authenticate: self.authenticate.clone(),
            long: self.prompt_long.clone(),
            short: self.prompt_short.clone(),
            cancel: self.cancel_text.clone(),
            patience: Duration::from_millis(self.patience_ms),
            start: Duration::from_millis(self.start_ms),
        })
    }

    /// The scenarios to play.
    fn chosen(&self, mut scenarios: Vec<Scenario>) -> Result<Vec<Scenario>, String> {
        if let Some(unknown) = self.only.iter().find(|name| scenarios.iter().all(|scenario| scenario.name != **name)) {
            return Err(format!("there is no scenario {unknown}; --list names them"));
        }
        scenarios.retain(|scenario| self.only.is_empty() || self.only.contains(&scenario.name));
        Ok(scenarios)
    }

    fn measure(&self, player: &mut Player, scenarios: Vec<Scenario>) -> Result<Report, Box<dyn Error>> {
        player.start()?;
        let rounds = |scenario: &Scenario| {
            if self.lacks(scenario).is_some() {
                0
            } else if scenario.heavy {
                self.rounds.min(HEAVY_ROUNDS_MAX)
            } else {
                self.rounds
            }
        };
        let style = ProgressStyle::with_template(TEMPLATE)?;
        // It draws on standard error, and only where that is a terminal.
        let bar =
            ProgressBar::new(scenarios.iter().map(|scenario| u64::from(rounds(scenario))).sum()).with_style(style);
        let mut rows = Vec::new();
        for scenario in scenarios {
            bar.set_message(scenario.name.clone());
            let mut of_scenario = Row::of(&scenario);
            if let Some(why) = self.lacks(&scenario) {
                of_scenario.iter_mut().for_each(|row| row.not_supported(why));
            }
            let mut written = false;
            for number in 1..=rounds(&scenario) {
                bar.inc(1);
                match player.round(&scenario, number)? {
                    Ok(round) => {
                        let broken = round.verdicts.iter().any(|verdict| matches!(verdict, Verdict::Broken(_)));
                        if broken && !std::mem::replace(&mut written, true) {
                            self.keep(&scenario, number, &round)?;
                        }
                        report::count(&mut of_scenario, &scenario, &round);
                    }
                    Err(why) => {
                        of_scenario.iter_mut().for_each(|row| row.not_supported(&why));
                        bar.inc(u64::from(rounds(&scenario) - number));
                        break;
                    }
                }
            }
            rows.extend(of_scenario);
        }
        bar.finish_and_clear();
        Ok(Report::new(&self.command, rows))
    }

    /// Why a client cannot show a scenario.
    fn lacks(&self, scenario: &Scenario) -> Option<&'static str> {
        match scenario.needs {
            Some(Need::Echo) if !self.echoes => Some("it does not show at the wire; see --echoes"),
            Some(Need::Cancel) if !self.cancels => Some("it does not cancel when told to; see --cancels"),
            _ => None,
        }
    }

    /// Writes the transcript of a broken round, if that was asked for.
    fn keep(&self, scenario: &Scenario, number: u32, round: &Round) -> Result<(), String> {
        let Some(folder) = &self.transcripts else { return Ok(()) };
        let path = folder.join(format!("{}-{number}.ndjson", scenario.name));
        fs::create_dir_all(folder)
            .and_then(|()| File::create(&path))
            .and_then(|file| transcript::write(&round.transcript, BufWriter::new(file)))
            .map_err(|error| format!("{}: the transcript could not be written: {error}", path.display()))
    }

    fn replay(&self, player: &mut Player, scenarios: &[Scenario], file: &Path) -> Result<Report, Box<dyn Error>> {
        let in_file = |what: String| format!("{}: {what}", file.display());
        let opened = File::open(file).map_err(|error| in_file(error.to_string()))?;
        let entries = transcript::read(BufReader::new(opened)).map_err(|error| in_file(error.to_string()))?;
        let mut rows = Vec::new();
        for recorded in entries.chunk_by(|one, next| one.scenario == next.scenario && one.round == next.round) {
            if !recorded.iter().any(|entry| entry.phase == Phase::Play) {
                continue;
            }
            let name = &recorded[0].scenario;
            let scenario = scenarios.iter().find(|scenario| scenario.name == *name);
            let scenario = scenario.ok_or_else(|| in_file(format!("there is no scenario {name}")))?;
            if sent(recorded) != scenario.parts.len() {
                return Err(in_file(format!("round {} has not the messages of {name}", recorded[0].round)).into());
            }
            let mut of_scenario = Row::of(scenario);
            match player.replay(scenario, recorded)? {
                Ok(round) => {
                    self.keep(scenario, recorded[0].round, &round)?;
                    report::count(&mut of_scenario, scenario, &round);
                }
                Err(why) => of_scenario.iter_mut().for_each(|row| row.not_supported(&why)),
            }
            rows.extend(of_scenario);
        }
        Ok(Report::new(&self.command, rows))
    }

    fn write(&self, report: &Report) -> Result<(), Box<dyn Error>> {
        let is_stdout = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| path.as_os_str() == "-");
        if !is_stdout(&self.json) && !is_stdout(&self.markdown) {
            anstream::print!("{}", report.table());
        }
        if let Some(path) = &self.json {
            write_to(path, &format!("{:#}\n", report.json()))?;
        }
        if let Some(path) = &self.junit {
            write_to(path, &report.junit()?)?;
        }
        if let Some(path) = &self.markdown {
            write_to(path, &report.markdown())?;
        }
        Ok(())
    }
}

/// Writes to a file, or to standard output where the path is `-`.
fn write_to(path: &Path, text: &str) -> Result<(), String> {
    let written = if path.as_os_str() == "-" { io::stdout().write_all(text.as_bytes()) } else { fs::write(path, text) };
    written.map_err(|error| format!("{}: it could not be written: {error}", path.display()))
}

/// How many messages of the scenario itself were sent in a recorded round.
fn sent(recorded: &[Entry]) -> usize {
    let played = |entry: &&Entry| entry.phase == Phase::Play && entry.from == transcript::Side::Lastword;
    recorded.iter().filter(played).count()
}

/// Every scenario of one side, and the counterexamples that cannot be told.
fn all(role: Role) -> (Vec<Scenario>, Vec<path::Untold>) {
    let (mut scenarios, untold) = match role {
        Role::Agent => path::scenarios(),
        Role::Client => (Vec::new(), Vec::new()),
    };
    scenarios.extend(probes::scenarios(role));
    (scenarios, untold)
}
