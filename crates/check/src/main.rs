//! The program behind check.sh and replay.sh.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};
use lastword_check::{
    mutants::{self, Change},
    replay::{self, Happened, Stage, Verdict},
    report::{self, Diagram, Report, Status},
    run::{self, Wanted},
    specs::Specs,
    subject::{Subject, is_of_delegation},
    table,
};
use lastword_core::Limits;
use lastword_model::{ConnectionModel, Counterexample, DelegationModel, Expectation, Move, RecordedStep};

/// Where stateright's Explorer listens, on this machine only.
const EXPLORER_ADDRESS: &str = "127.0.0.1:3000";

/// The exit codes of check.sh, in the order of their precedence.
const CHECK_STATUS: &str = "\
Exit status:
  0  every promise holds and nothing drifted
  1  a promise breaks, or code and specification differ
  3  something could not be verified
  2  DRIFT: covered code has another shape than the recorded one";

/// The exit codes of replay.sh.
const REPLAY_STATUS: &str = "\
Exit status:
  0  every file is green, and red under its mutant
  1  one is not
  3  one could not be replayed";

#[derive(Parser)]
#[command(
    name = "lastword-check",
    about = "Checks every promise of lastword on its real code; ./check.sh and ./replay.sh start it"
)]
struct Cli {
    /// The root of the repository
    #[arg(long, global = true, default_value = ".", hide = true)]
    root: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check every promise on the real code
    #[command(override_usage = "./check.sh [OPTIONS]", after_help = CHECK_STATUS)]
    Run(Run),
    /// Replay counterexamples on the model and on the tokio runtime
    #[command(override_usage = "./replay.sh [--renew] [FILE]...", after_help = REPLAY_STATUS)]
    Replay(Replay),
    /// Write the shortest path on which a mutant breaks its promise as a file under specs/counterexamples
    Record {
        /// The mutant, by its name in specs/DOMAIN/mutants.toml
        mutant: String,
        /// What happens on the path, in one sentence
        #[arg(long)]
        story: String,
    },
    /// Write the table of delegation, state by step, into specs/delegation/README.md
    Table,
    /// Try one patched mutant in this very build, and print what each layer says as JSON
    #[command(hide = true)]
    TryMutant {
        name: String,
        #[arg(long)]
        digest: String,
    },
}

#[derive(Args)]
struct Run {
    /// Only this domain, or DOMAIN/CONFIGURATION; the fingerprint is then left out
    #[arg(long, value_name = "DOMAIN[/CONFIG]")]
    only: Option<String>,
    /// List the configurations and what each covers
    #[arg(long)]
    list: bool,
    /// Open this configuration in stateright's Explorer
    #[arg(long, value_name = "DOMAIN/CONFIG")]
    explore: Option<String>,
    /// Record what was found in fingerprint.txt, if every promise holds
    #[arg(long, conflicts_with_all = ["only", "list", "explore"])]
    accept: bool,
    /// Try every mutant as well, and print the kill matrix
    #[arg(long)]
    mutants: bool,
    /// Run TLC also where its result is recorded
    #[arg(long)]
    no_cache: bool,
    /// Exit with 3 where TLC cannot be run
    #[arg(long)]
    require_tlc: bool,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the results as a job summary in Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

#[derive(Args)]
struct Replay {
    /// The files; all of specs/counterexamples where none is named
    files: Vec<PathBuf>,
    /// Write the digests of the present code into the files, if they are green and, under their mutants, red
    #[arg(long, requires = "files")]
    renew: bool,
}

fn main() -> ExitCode {
    // A panic has told why on stderr; whatever it cut short was not verified.
    std::panic::catch_unwind(checked_main).unwrap_or_else(|_| Status::Unverified.into())
}

fn checked_main() -> ExitCode {
    // clap would end with 2, which means DRIFT here.
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Status::Unverified.into() } else { ExitCode::SUCCESS };
        }
    };
    let specs = match Specs::read(&cli.root) {
        Ok(specs) => specs,
        Err(error) => {
            anstream::eprintln!("specs cannot be used, so nothing was verified:\n{error}");
            return Status::Unverified.into();
        }
    };
    if !specs.strangers.is_empty() && !matches!(cli.command, Command::Record { .. }) {
        anstream::eprintln!("specs do not belong together, so nothing was verified:\n{}", specs.strangers.join("\n"));
        return Status::Unverified.into();
    }
    match cli.command {
        Command::Run(run) => check(&specs, &run),
        Command::Record { mutant, story } => record(&specs, &mutant, story),
        Command::Replay(files) => replay_files(&specs, &files),
        Command::Table => match table::write(&specs.root) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                anstream::eprintln!("{error}");
                Status::Unverified.into()
            }
        },
        Command::TryMutant { name, digest } => try_mutant(&specs, &name, &digest),
    }
}

fn check(specs: &Specs, run: &Run) -> ExitCode {
    if run.list {
        return list(specs);
    }
    if let Some(id) = &run.explore {
        return explore(specs, id);
    }
    let wanted = Wanted {
        only: run.only.clone(),
        mutants: run.mutants,
        no_cache: run.no_cache,
        require_tlc: run.require_tlc,
        accept: run.accept,
    };
    if let Some(only) = &run.only
        && !specs
            .configurations
            .iter()
            .any(|configuration| configuration.id() == *only || configuration.domain == *only)
    {
        anstream::eprintln!("there is no domain or configuration {only}; `./check.sh --list` names them");
        return Status::Unverified.into();
    }
    let report = run::run(specs, &wanted);
    show(&report);
    let files = [
        (&run.json, report::json::render(&report).map_err(|error| error.to_string())),
        (&run.junit, report::junit::render(&report).map_err(|error| error.to_string())),
        (&run.markdown, Ok(report::markdown::render(&report))),
    ];
    for (path, text) in files {
        let Some(path) = path else { continue };
        let written = text.and_then(|text| fs::write(path, text).map_err(|error| error.to_string()));
        if let Err(error) = written {
            anstream::eprintln!("{} could not be written: {error}", path.display());
            return report.exit_code().and(Status::Unverified).into();
        }
    }
    report.exit_code().into()
}

/// A broken pipe while printing is no result: the exit status still tells it.
fn show(report: &Report) {
    let width = report::terminal::width();
    let mut out = anstream::stdout();
    let _ = out.write_all(report::terminal::render(report, width).as_bytes());
    if !report.kills.is_empty() {
        let _ = writeln!(out, "\n{}", mutants::matrix(&report.kills));
    }
    for line in &report.survivors {
        let _ = writeln!(out, "{line}");
    }
}

fn list(specs: &Specs) -> ExitCode {
    for configuration in &specs.configurations {
        let expectation = match &configuration.expectation {
            Expectation::Holds => "must hold".to_owned(),
            Expectation::Fails { promise, steps } => format!("must fail: {promise} in {steps} steps"),
        };
        anstream::println!("{} ({expectation})", configuration.id());
        for line in &configuration.about {
            anstream::println!("    {line}");
        }
    }
    ExitCode::SUCCESS
}

fn explore(specs: &Specs, id: &str) -> ExitCode {
    use stateright::Model as _;
    let Some(configuration) = specs.configuration(id) else {
        anstream::eprintln!("there is no configuration {id}; `./check.sh --list` names them");
        return Status::Unverified.into();
    };
    let shown = if is_of_delegation(&configuration.domain) {
        DelegationModel::read(configuration, None).map(|model| {
            anstream::println!("http://{EXPLORER_ADDRESS} shows {id}; stop with Ctrl-C");
            model.checker().serve(EXPLORER_ADDRESS);
        })
    } else {
        ConnectionModel::read(configuration, None).map(|model| {
            anstream::println!("http://{EXPLORER_ADDRESS} shows {id}; stop with Ctrl-C");
            model.checker().serve(EXPLORER_ADDRESS);
        })
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("{error}");
            Status::Unverified.into()
        }
    }
}

fn replay_files(specs: &Specs, wanted: &Replay) -> ExitCode {
    if wanted.files.is_empty() {
        let mut report = Report::default();
        for (file, counterexample) in &specs.counterexamples {
            report.rows.extend(run::replay_file(specs, file, counterexample));
        }
        show(&report);
        return report.exit_code().into();
    }
    let mut status = Status::Kept;
    for file in &wanted.files {
        status = status.and(match Counterexample::read(file) {
            Ok(counterexample) if wanted.renew => renew(specs, file, counterexample),
            Ok(counterexample) => replay_one(specs, file, &counterexample),
            Err(error) => {
                anstream::eprintln!("{error}");
                Status::Unverified
            }
        });
    }
    status.into()
}

/// Prints the steps of one file as they happen on the runtime, and the whole as a diagram.
fn replay_one(specs: &Specs, file: &Path, counterexample: &Counterexample) -> Status {
    anstream::println!("{}\n{}\n", file.display(), counterexample.story);
    let replayed = if is_of_delegation(&counterexample.domain) {
        replay_on(specs, counterexample, |model, tell| {
            replay::delegation::replay(counterexample, model, mutants::is_patched(), Stage::Runtime, tell)
        })
    } else {
        replay_on(specs, counterexample, |model, tell| {
            replay::replay(counterexample, model, Limits::default(), Stage::Runtime, tell)
        })
    };
    let (verdict, diagram) = match replayed {
        Ok(replayed) => replayed,
        Err(error) => {
            anstream::eprintln!("{}: {error}", file.display());
            return Status::Unverified;
        }
    };
    anstream::println!("\n{}", report::diagram::render(&diagram, report::terminal::width()));
    match verdict {
        Verdict::Kept => {
            let rows = run::replay_file(specs, &file.display().to_string(), counterexample);
            let status = rows.iter().fold(Status::Kept, |status, row| status.and(row.status()));
            let guard = specs.mutants.iter().find(|mutant| mutant.name == counterexample.mutant);
            let under = match guard.map(|mutant| &mutant.change) {
                Some(Change::Guard(_)) if status == Status::Kept => {
                    format!(", and breaks under its mutant {}", counterexample.mutant)
                }
                Some(Change::Patch(_)) => {
                    format!("; its mutant {} is a patch, which `./check.sh --mutants` tries", counterexample.mutant)
                }
                _ => String::new(),
            };
            anstream::println!("{} holds on the runtime{under}", counterexample.promise);
            for sentence in rows.iter().filter_map(report::Row::sentence) {
                anstream::println!("{sentence}");
            }
            status
        }
        Verdict::Broken { promise, step } => {
            anstream::println!("{promise} is broken at step {step}: {}", specs.statement(promise));
            Status::Broken
        }
        Verdict::Differs(what) => {
            anstream::println!("the code does something else than what is recorded: {what}");
            Status::Broken
        }
    }
}

/// Replays a file, tells its steps, and draws them.
fn replay_on<M: Subject>(
    specs: &Specs,
    counterexample: &Counterexample,
    replay: impl FnOnce(&M, &mut dyn FnMut(&Happened<'_>)) -> Verdict,
) -> Result<(Verdict, Diagram), String> {
    let model: M = specs.model_of(counterexample, None)?;
    let mut taken = Vec::new();
    let verdict = replay(&model, &mut |happened| {
        let effects = happened.effects.as_deref().unwrap_or("not owed by this code");
        anstream::println!("{:>4}  {}  {} -> {effects}", happened.number, happened.digest, happened.text);
        if happened.effects.is_some() {
            taken.push(happened.step.clone());
        }
    });
    let diagram = diagram(&model, counterexample, taken, &verdict);
    Ok((verdict, diagram))
}

/// Draws the steps that were taken.
fn diagram<M: Subject>(
    model: &M,
    counterexample: &Counterexample,
    taken: Vec<RecordedStep>,
    verdict: &Verdict,
) -> Diagram {
    let mut world = model.first();
    let mut moves = Vec::new();
    for step in taken {
        let recorded = counterexample.steps.iter().find(|recorded| recorded.step == step);
        let Ok(step) = M::Step::try_from(step) else { break };
        let known = model.moves(&world).into_iter().find(|action| action.step == step);
        let recorded = recorded.map(|recorded| recorded.message - 1);
        let Some(message) = known.map(|action| action.message).or(recorded) else { break };
        let action = Move { step, message };
        if model.take(&mut world, &action).is_err() {
            break;
        }
        moves.push(action);
    }
    let breaks = match verdict {
        Verdict::Broken { step, .. } => Some(step - 1),
        _ => None,
    };
    model.draw(&moves, breaks)
}

/// Writes the digests of the present code into a file.
fn renew(specs: &Specs, file: &Path, mut counterexample: Counterexample) -> Status {
    let renewed = if is_of_delegation(&counterexample.domain) {
        let model = specs.model_of::<DelegationModel>(&counterexample, None);
        model.and_then(|model| renew_digests(&model, &mut counterexample))
    } else {
        let model = specs.model_of::<ConnectionModel>(&counterexample, None);
        model.and_then(|model| renew_digests(&model, &mut counterexample))
    };
    match renewed.and_then(|()| counterexample.write(file).map_err(|error| error.to_string())) {
        Ok(()) => replay_one(specs, file, &counterexample),
        Err(error) => {
            anstream::eprintln!("{}: {error}", file.display());
            Status::Unverified
        }
    }
}

fn renew_digests<M: Subject>(model: &M, counterexample: &mut Counterexample) -> Result<(), String> {
    let mut world = model.first();
    for recorded in &mut counterexample.steps {
        let step = M::Step::try_from(recorded.step.clone())
            .map_err(|_| format!("{:?} is no step of this domain", recorded.step))?;
        let action = Move { step, message: recorded.message - 1 };
        let taken = model.owes(&world, &action) && model.take(&mut world, &action).is_ok();
        recorded.digest = taken.then(|| M::digest(&world));
    }
    Ok(())
}

fn record(specs: &Specs, name: &str, story: String) -> ExitCode {
    let written = specs.mutant(name).and_then(|(mutant, configuration)| {
        let counterexample = mutants::record(mutant, configuration, story)?;
        let file = format!("specs/counterexamples/{}-{}-{name}.json", mutant.domain, mutant.kills);
        counterexample.write(&specs.root.join(&file)).map_err(|error| error.to_string())?;
        Ok(file)
    });
    match written {
        Ok(file) => {
            anstream::println!("{file}: read it, then `./replay.sh {file}`");
            ExitCode::SUCCESS
        }
        Err(error) => {
            anstream::eprintln!("{error}");
            Status::Unverified.into()
        }
    }
}

fn try_mutant(specs: &Specs, name: &str, digest: &str) -> ExitCode {
    let kill = specs
        .mutant(name)
        .and_then(|(mutant, configuration)| {
            mutants::try_here(mutant, configuration, digest, &specs.counterexamples, &specs.configurations)
        })
        .and_then(|kill| serde_json::to_string(&kill).map_err(|error| error.to_string()));
    match kill {
        Ok(kill) => {
            println!("{kill}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            Status::Unverified.into()
        }
    }
}
