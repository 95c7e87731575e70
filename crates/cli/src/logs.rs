//! Where logs and traces go: logs to standard error, as `RUST_LOG` says; the steps of each connection and of a fleet to the file
//! that `LASTWORD_TRACE` names.

use std::{error::Error, fs::File, io};

use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer, filter::LevelFilter, layer::SubscriberExt as _, registry::LookupSpan,
    util::SubscriberInitExt as _,
};

/// Names the file that the trace is written to.
pub(crate) const TRACE_VARIABLE: &str = "LASTWORD_TRACE";

/// Logs and the trace.
pub(crate) fn install() -> Result<(), Box<dyn Error>> {
    let trace = match std::env::var_os(TRACE_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => {
            let file = File::create(&path)
                .map_err(|error| format!("{TRACE_VARIABLE}={}: cannot write it: {error}", path.display()))?;
            Some(lastword::trace::layer(file))
        }
        None => None,
    };
    tracing_subscriber::registry().with(stderr()?).with(trace).init();
    Ok(())
}

/// Logs alone, for a program beside the one that is traced.
pub(crate) fn install_untraced() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::registry().with(stderr()?).init();
    Ok(())
}

fn stderr<S: Subscriber + for<'a> LookupSpan<'a>>() -> Result<impl Layer<S>, Box<dyn Error>> {
    let mut filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env()?;
    if std::env::var_os(EnvFilter::DEFAULT_ENV).is_none() {
        // It takes each client that stops watching for an error.
        filter = filter.add_directive("rmcp::service=off".parse()?);
    }
    Ok(tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false).with_filter(filter))
}
