//! What fleet.toml says. Whatever it does not say has a default, and a word that it should not say is an error with its line.

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use lastword::delegation::{Limits, Permissions, WorkerKind};
use serde::{Deserialize, Deserializer};

use super::place::Place;
use crate::logs::TRACE_VARIABLE;

/// What a daemon is made of.
#[derive(Debug)]
pub(crate) struct Config {
    /// The file itself, as an absolute path.
    pub(crate) file: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) place: Place,
    /// The longest that a call waits, whatever it asks for.
    pub(crate) wait_max: Duration,
    /// How often a call that waits says so.
    pub(crate) progress_every: Duration,
    pub(crate) body_bytes_max: usize,
    pub(crate) text_bytes_max: usize,
    pub(crate) workers_max: usize,
    pub(crate) tickets_queued_max: usize,
    pub(crate) tickets_max: usize,
    pub(crate) offers: BTreeMap<String, Offer>,
}

/// A kind of worker, and what a lead may know of it.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) kind: WorkerKind,
    pub(crate) description: String,
    /// How many of it may live.
    pub(crate) count_max: usize,
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    listen: Loopback,
    #[serde(default = "journal")]
    journal: PathBuf,
    #[serde(default)]
    limits: Bounds,
    #[serde(default)]
    workers: BTreeMap<String, Kind>,
}

/// Where the daemon listens. Only on this machine: whoever reaches it from elsewhere would need more than a token.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Loopback(SocketAddr);

impl Default for Loopback {
    fn default() -> Self {
        Self(SocketAddr::from(([127, 0, 0, 1], 4137)))
    }
}

impl TryFrom<String> for Loopback {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let address: SocketAddr =
            text.parse().map_err(|_| format!("{text:?} is not an address and a port, as 127.0.0.1:4137 is"))?;
        if !address.ip().is_loopback() {
            return Err(format!("{text:?} is not a loopback address; take one of 127.0.0.0/8 or [::1]"));
        }
        Ok(Self(address))
    }
}

fn journal() -> PathBuf {
    "fleet.journal".into()
}

/// A time in seconds, also with a part of one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
struct Seconds(Duration);

impl TryFrom<f64> for Seconds {
    type Error = String;

    fn try_from(seconds: f64) -> Result<Self, String> {
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() => Ok(Self(time)),
            _ => Err(format!("{seconds} is not a time in seconds")),
        }
    }
}

/// A bound that lets something through.
fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    NonZeroUsize::deserialize(deserializer).map(NonZeroUsize::get)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Bounds {
    wait_seconds: Seconds,
    progress_seconds: Seconds,
    #[serde(deserialize_with = "some")]
    body_bytes: usize,
    #[serde(deserialize_with = "some")]
    text_bytes: usize,
    #[serde(deserialize_with = "some")]
    workers: usize,
    #[serde(deserialize_with = "some")]
    tickets_queued: usize,
    #[serde(deserialize_with = "some")]
    tickets: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        let Limits { workers_max, tickets_queued_max, tickets_max, .. } = Limits::default();
        Self {
            // Clients give up on a silent call after 60 s.
            wait_seconds: Seconds(Duration::from_secs(45)),
            // Some of them begin to count again with each sign of life.
            progress_seconds: Seconds(Duration::from_secs(10)),
            // A text of the greatest length, with room for what JSON makes of it.
            body_bytes: 4 << 20,
            text_bytes: 1 << 20,
            workers: workers_max,
            tickets_queued: tickets_queued_max,
            tickets: tickets_max,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table [workers.NAME] with a command")]
struct Kind {
    command: PathBuf,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default = "here")]
    cwd: PathBuf,
    #[serde(default)]
    permissions: Permission,
    #[serde(default = "count", deserialize_with = "some")]
    count: usize,
    #[serde(default)]
    description: String,
    start_seconds: Option<Seconds>,
    cancel_seconds: Option<Seconds>,
    silence_seconds: Option<Seconds>,
}

fn here() -> PathBuf {
    ".".into()
}

/// As many agents as a laptop bears beside what they start.
fn count() -> usize {
    8
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Permission {
    Allow,
    #[default]
    Deny,
    Ask,
}

impl Config {
    /// Reads the file. Paths in it begin at its folder, wherever the program was started.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let at = |error: &dyn Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| {
            at(&error) + "; write one, or name it with --config: `lastword help fleet` has an example"
        })?;
        let file: File = toml::from_str(&text).map_err(|error| at(&error.to_string().trim_end()))?;
        let path = path.canonicalize().map_err(|error| at(&error))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        if file.workers.is_empty() {
            return Err(at(&"there are no workers; describe one in a table [workers.NAME]"));
        }
        let offers = file.workers.into_iter().map(|(name, kind)| match kind.resolve(folder) {
            Ok(offer) => Ok((name, offer)),
            Err(error) => Err(at(&format!("workers.{name}: {error}"))),
        });
        let limits = file.limits;
        Ok(Self {
            listen: file.listen.0,
            place: Place::new(folder.join(file.journal)),
            wait_max: limits.wait_seconds.0,
            progress_every: limits.progress_seconds.0,
            body_bytes_max: limits.body_bytes,
            text_bytes_max: limits.text_bytes,
            workers_max: limits.workers,
            tickets_queued_max: limits.tickets_queued,
            tickets_max: limits.tickets,
            offers: offers.collect::<Result<_, _>>()?,
            file: path,
        })
    }
}

impl Kind {
    fn resolve(self, folder: &Path) -> Result<Offer, String> {
        let cwd = folder.join(self.cwd);
        let cwd = cwd.canonicalize().map_err(|error| {
            format!("cwd: {}: {error}; make the folder that it is to work in, or name another one", cwd.display())
        })?;
        if self.command.as_os_str().is_empty() {
            return Err("command: it is empty; name the program of an agent that speaks ACP".to_owned());
        }
        // A name alone is looked up on the PATH; with a slash it is a file.
        let command = if self.command.components().count() > 1 { folder.join(self.command) } else { self.command };
        let mut kind = WorkerKind::new(command, cwd);
        kind.args = self.args;
        kind.env = self.env;
        // The file that it names is that of the daemon.
        kind.env.entry(TRACE_VARIABLE.to_owned()).or_default();
        kind.permissions = match self.permissions {
            Permission::Allow => Permissions::Allow,
            Permission::Deny => Permissions::Deny,
            Permission::Ask => Permissions::Ask,
        };
        let set = |time: &mut Duration, said: Option<Seconds>| {
            if let Some(Seconds(said)) = said {
                *time = said;
            }
        };
        set(&mut kind.start_max, self.start_seconds);
        set(&mut kind.cancel_max, self.cancel_seconds);
        set(&mut kind.silence_max, self.silence_seconds);
        Ok(Offer { kind, description: self.description, count_max: self.count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.toml");
        fs::write(&path, text).unwrap();
        Config::read(&path)
    }

    #[test]
    fn what_the_file_does_not_say_has_a_default() {
        let config = read("[workers.coder]\ncommand = \"my-agent\"\n").unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:4137");
        assert_eq!((config.wait_max.as_secs(), config.progress_every.as_secs()), (45, 10));
        let coder = &config.offers["coder"];
        assert_eq!((coder.kind.command.to_str(), coder.count_max), (Some("my-agent"), 8));
        assert_eq!(coder.kind.permissions, Permissions::Deny);
        assert!(coder.kind.cwd.is_absolute());
    }

    #[test]
    fn an_error_names_its_line() {
        for (text, line, what) in [
            ("listen = \"0.0.0.0:1\"\n[workers.a]\ncommand = \"a\"\n", 1, "not a loopback address"),
            ("[workers.a]\ncommand = \"a\"\ncomand = \"b\"\n", 3, "unknown field `comand`"),
            ("[limits]\nwait_seconds = -1\n[workers.a]\ncommand = \"a\"\n", 2, "not a time"),
            ("[workers.a]\ncommand = \"a\"\npermissions = \"some\"\n", 3, "unknown variant `some`"),
            ("[limits]\nworkers = 0\n[workers.a]\ncommand = \"a\"\n", 2, "expected a nonzero usize"),
            ("[workers.a]\ncommand = \"a\"\ncount = 0\n", 3, "expected a nonzero usize"),
            ("[workers]\ncommand = \"a\"\n", 2, "expected a table [workers.NAME]"),
            ("[workers.a\n", 1, ""),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(&format!("at line {line},")) && error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_fleet_without_workers_or_with_one_in_no_folder_is_refused() {
        for none in ["", "[workers]\n"] {
            assert!(read(none).unwrap_err().contains("there are no workers; describe one in a table"));
        }
        let error = read("[workers.a]\ncommand = \"a\"\ncwd = \"nowhere\"\n").unwrap_err();
        assert!(error.contains("workers.a: cwd: ") && error.contains("nowhere"), "{error}");
        let error = read("[workers.a]\ncommand = \"\"\n").unwrap_err();
        assert!(error.contains("workers.a: command: it is empty"), "{error}");
    }
}
