//! `lastword completions`: what a shell needs to complete the arguments, written from the very parser that reads them.

use std::io;

use clap::{Args, Command};
use clap_complete::{Shell, generate};

/// Print what a shell needs to complete the arguments of lastword.
///
/// For the running shell:
///
///     source <(lastword completions bash)
///     source <(lastword completions zsh)
///     lastword completions fish | source
///
/// For every shell to come, write it where the shell looks:
///
///     lastword completions bash > ~/.local/share/bash-completion/completions/lastword
///     lastword completions zsh > ~/.zfunc/_lastword        (with ~/.zfunc in fpath)
///     lastword completions fish > ~/.config/fish/completions/lastword.fish
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Options {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(options: &Options, mut command: Command) {
    let mut script = Vec::new();
    generate(options.shell, &mut command, "lastword", &mut script);
    // Whoever reads it may have seen enough.
    let _ = io::Write::write_all(&mut io::stdout(), &script);
}
