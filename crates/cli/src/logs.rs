//! Where logs and traces go: logs to standard error, as `RUST_LOG` says; the steps of each connection to the file that
//! `LASTWORD_TRACE` names.

use std::{error::Error, fs::File, io};

use tracing_subscriber::{
    EnvFilter, Layer as _, filter::LevelFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// Names the file that the trace is written to.
pub(crate) const TRACE_VARIABLE: &str = "LASTWORD_TRACE";

pub(crate) fn install() -> Result<(), Box<dyn Error>> {
    let mut filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env()?;
    if std::env::var_os(EnvFilter::DEFAULT_ENV).is_none() {
        // It takes each client that stops watching for an error.
        filter = filter.add_directive("rmcp::service=off".parse()?);
    }
    let logs = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false).with_filter(filter);
    let trace = match std::env::var_os(TRACE_VARIABLE) {
        Some(path) => {
            let file = File::create(&path)
                .map_err(|error| format!("{TRACE_VARIABLE}={}: cannot write it: {error}", path.display()))?;
            Some(lastword::trace::layer(file))
        }
        None => None,
    };
    tracing_subscriber::registry().with(logs).with(trace).init();
    Ok(())
}
