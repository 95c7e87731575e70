//! The program `lastword`.

mod agent;
mod logs;
mod stdio;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tools around the Agent Client Protocol: a reference agent, and more to come.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Agent(agent::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = logs::install().and_then(|()| match cli.command {
        Command::Agent(options) => agent::run(&options),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lastword: {error}");
            ExitCode::FAILURE
        }
    }
}
