//! The program `lastword`.

mod agent;
mod completions;
mod conform;
mod fleet;
mod guard;
mod logs;
mod stdio;
mod trace;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// Tools around the Agent Client Protocol: a guard in front of any agent, a fleet of agents that work for another one, a measure
/// for any agent or client, a reference agent, and a checker of what a program recorded.
///
/// `lastword help COMMAND` is the page of a command.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Agent(agent::Options),
    Conform(Box<conform::Options>),
    Guard(guard::Options),
    Fleet(fleet::Options),
    Trace(trace::Options),
    Completions(completions::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Agent(options) => logs::install().and_then(|()| agent::run(&options)),
        Command::Conform(options) => return conform::run(&options),
        Command::Guard(options) => return guard::run(options),
        Command::Fleet(options) => return fleet::run(&options),
        // It records nothing: the file that LASTWORD_TRACE names may be the very one to check.
        Command::Trace(options) => return trace::run(&options),
        Command::Completions(options) => {
            completions::run(&options, Cli::command());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lastword: {error}");
            ExitCode::FAILURE
        }
    }
}
