//! The files of a fleet, all of them beside its journal and for its owner alone: the token of leads, the log, and what says
//! where the daemon is.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use super::{daemon::LEAD_PATH, token::Token};
use crate::logs;

/// Nobody else reads or writes it.
const OWNER_ONLY: u32 = 0o600;

/// How long the system may take to connect to a port of this machine.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Where a fleet's files are.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    journal: PathBuf,
}

/// Where a daemon is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whereabouts {
    /// The process.
    pub(crate) pid: u32,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Whereabouts {
    /// Where leads find their tools.
    pub(crate) fn url(&self) -> String {
        format!("http://{}{LEAD_PATH}", self.address)
    }

    /// Whether it is still there.
    pub(crate) fn is_there(&self) -> bool {
        // First the process: what took the port of one that is gone must not be shown the token.
        self.process().is_some_and(|process| test_kill_process(process).is_ok())
            && TcpStream::connect_timeout(&self.address, CONNECT_MAX).is_ok()
    }

    pub(crate) fn process(&self) -> Option<Pid> {
        Pid::from_raw(self.pid.try_into().ok()?)
    }
}

impl Place {
    pub(crate) fn new(journal: PathBuf) -> Self {
        Self { journal }
    }

    pub(crate) fn journal(&self) -> &Path {
        &self.journal
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.beside(".log")
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.journal.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    /// The token of leads, which is made where there is none.
    pub(crate) fn token(&self) -> Result<Token, String> {
        let path = self.beside(".token");
        let at = |error: io::Error| self.cannot_keep(&path, &error);
        if !path.try_exists().map_err(at)? {
            let made = self.write(&path, Token::mint()?.as_str(), |from, to| fs::hard_link(from, to));
            // Whoever else made it just now has made it whole.
            made.or_else(|error| if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(at(error)) })?;
        }
        let mode = fs::metadata(&path).map_err(at)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(format!(
                "{0} holds the token of leads and can be read by others (mode {1:o}); remove it for a new one, or run \
                 `chmod 600 {0}`",
                path.display(),
                mode & 0o777
            ));
        }
        let text = fs::read_to_string(&path).map_err(at)?;
        Token::parse(text.trim())
            .ok_or_else(|| format!("{} does not hold a token; remove it, and a new one is made", path.display()))
    }

    /// Where the daemon said that it is. It may be gone since.
    pub(crate) fn whereabouts(&self) -> Option<Whereabouts> {
        serde_json::from_slice(&fs::read(self.beside(".daemon")).ok()?).ok()
    }

    /// Says where the daemon is.
    pub(crate) fn say(&self, whereabouts: &Whereabouts) -> io::Result<()> {
        self.write(&self.beside(".daemon"), &serde_json::to_string(whereabouts)?, |from, to| fs::rename(from, to))
    }

    /// The daemon is gone.
    pub(crate) fn unsay(&self) {
        let _ = fs::remove_file(self.beside(".daemon"));
    }

    /// The log, to write to its end.
    pub(crate) fn open_log(&self) -> Result<File, String> {
        let path = self.log();
        logs::open_kept(&path).map_err(|error| self.cannot_keep(&path, &error))
    }

    /// What is wrong with a file of the fleet. Most often it is its folder.
    fn cannot_keep(&self, path: &Path, error: &io::Error) -> String {
        format!(
            "{}: {error}; the files of the fleet are kept in the folder of `journal` in fleet.toml, which must be there and \
             writable",
            path.display()
        )
    }

    /// Writes a file of one line beside its place, and moves it there once it is whole.
    fn write(&self, path: &Path, line: &str, place: impl Fn(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
        let new = self.beside(&format!(".new-{}", std::process::id()));
        let _ = fs::remove_file(&new);
        let write = || {
            writeln!(OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(&new)?, "{line}")?;
            place(&new, path)
        };
        let written = write();
        let _ = fs::remove_file(&new);
        written
    }
}
