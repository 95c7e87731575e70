//! The ticket service with real processes: daemons that are killed, and workers that are agents.
//!
//! The program is the test and each of its child processes: its first argument says which.

mod agent;
mod crash;
mod daemon;
mod trace;
mod workers;

use std::{env, process::ExitCode};

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    match args.next().as_deref() {
        Some(agent::ARGUMENT) => agent::main(),
        Some(daemon::ARGUMENT) => daemon::main(args),
        _ => {
            let trials = crash::trials().into_iter().chain(trace::trials()).chain(workers::trials()).collect();
            return libtest_mimic::run(&Arguments::from_args(), trials).exit_code();
        }
    }
    ExitCode::SUCCESS
}

/// A test that is a function, under the name of the function.
macro_rules! trials {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn trials() -> Vec<crate::Trial> {
            vec![$(crate::Trial::test(stringify!($name), || { $name(); Ok(()) })),*]
        }
    };
}
pub(crate) use trials;
