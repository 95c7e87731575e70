//! Where logs and traces go: logs to standard error, as `RUST_LOG` says; the steps of each connection and of a fleet to the file
//! that `LASTWORD_TRACE` names.

use std::{
    error::Error,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::{
        fd::AsFd as _,
        unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer, filter::LevelFilter, fmt::MakeWriter, layer::SubscriberExt as _, registry::LookupSpan,
    util::SubscriberInitExt as _,
};

/// Names the file that the trace is written to.
pub(crate) const TRACE_VARIABLE: &str = "LASTWORD_TRACE";

/// How large the file of a daemon's log may become before it is put aside: some ten thousands of lines.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// Logs and the trace.
pub(crate) fn install() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::registry().with(to(io::stderr)?).with(trace()?).init();
    Ok(())
}

/// The same for a daemon, which lives for long: where standard error is this file, it stays within bounds.
pub(crate) fn install_kept(file: PathBuf) -> Result<(), Box<dyn Error>> {
    tracing_subscriber::registry().with(to(move || Kept(file.clone()))?).with(trace()?).init();
    Ok(())
}

/// Logs alone, for a program beside the one that is traced.
pub(crate) fn install_untraced() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::registry().with(to(io::stderr)?).init();
    Ok(())
}

fn trace<S: Subscriber + for<'a> LookupSpan<'a>>() -> Result<Option<impl Layer<S>>, Box<dyn Error>> {
    let Some(path) = std::env::var_os(TRACE_VARIABLE).filter(|path| !path.is_empty()) else { return Ok(None) };
    let file = File::create(&path)
        .map_err(|error| format!("{TRACE_VARIABLE}={}: cannot write it: {error}", path.display()))?;
    Ok(Some(lastword::trace::layer(file)))
}

fn to<S: Subscriber + for<'a> LookupSpan<'a>>(
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Result<impl Layer<S>, Box<dyn Error>> {
    let mut filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env()?;
    if std::env::var_os(EnvFilter::DEFAULT_ENV).is_none() {
        // It takes each client that stops watching for an error.
        filter = filter.add_directive("rmcp::service=off".parse()?);
    }
    Ok(tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false).with_filter(filter))
}

/// Opens the file of a log, to write to its end; one that has become too large is put aside before.
pub(crate) fn open_kept(file: &Path) -> io::Result<File> {
    if fs::metadata(file).is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
        let mut aside = file.as_os_str().to_owned();
        aside.push(".1");
        fs::rename(file, aside)?;
    }
    // Nobody else reads it.
    OpenOptions::new().append(true).create(true).mode(0o600).open(file)
}

/// Standard error, which may be this file.
struct Kept(PathBuf);

impl Kept {
    /// Whether it is, and has become too large.
    fn is_too_large(&self) -> io::Result<bool> {
        let file = fs::metadata(&self.0)?;
        let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?).metadata()?;
        Ok(file.len() > LOG_BYTES_MAX && (file.dev(), file.ino()) == (stderr.dev(), stderr.ino()))
    }
}

impl Write for Kept {
    /// One whole entry of the log.
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        // No two threads put it aside.
        let mut stderr = io::stderr().lock();
        if self.is_too_large().unwrap_or(false) {
            // So that all goes there that is written to standard error, a panic too.
            rustix::stdio::dup2_stderr(open_kept(&self.0)?)?;
        }
        stderr.write(entry)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
