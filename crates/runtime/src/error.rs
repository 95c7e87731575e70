//! What can go wrong, for the program that serves a connection and for a handler that calls the peer.

use std::{fmt, io, process::ExitStatus};

use agent_client_protocol_schema::v1::Error;

/// Why a connection ended otherwise than by the end of its input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The input could not be read any further.
    #[error("reading from the peer failed: {0}")]
    Read(#[source] io::Error),
    /// The output could not be written any further; usually the peer is gone.
    #[error("writing to the peer failed: {0}")]
    Write(#[source] io::Error),
    /// As many notifications wait as may, and the handler that runs waits for a response that only reading on could bring.
    #[error(
        "{queued} notifications wait while the handler of the first one waits for the peer; the connection was closed, \
         since no more may wait and the peer's response was not among them: let the handler return before it calls, or raise \
         `notifications_stuck_max`"
    )]
    NotificationsStuck {
        /// How many notifications wait.
        queued: usize,
    },
    /// The input ended, and within the drain time not everything owed was finished and written.
    #[error(
        "the input ended, and {requests} requests and {bytes} bytes of output were still open when the drain time was \
         over; they were given up"
    )]
    Unfinished {
        /// How many requests were in flight.
        requests: usize,
        /// How many bytes the peer did not read.
        bytes: usize,
    },
    /// The agent was a child process and has exited, but its output does not end.
    #[error("the agent exited, and a process that left its group keeps its output open; the connection was given up")]
    OutputKeptOpen,
}

/// Why something could not be said to the peer, or what it asked of the peer did not come back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The peer is gone, or one side said that it will send nothing more.
    #[error("the peer disconnected")]
    Disconnected,
    /// The agent was a child process, and it has exited.
    #[error("the agent is gone: {0}")]
    AgentExited(Exit),
    /// The turn was answered: nothing more may be said in it.
    #[error("the turn is over, and an update after its response would be out of place")]
    TurnOver,
    /// The peer answered with an error.
    #[error("the peer answered `{method}` with the error {}: {error}", i32::from(error.code))]
    Refused {
        /// What was asked.
        method: Box<str>,
        /// What the peer said.
        #[source]
        error: Error,
    },
    /// The peer's result is not what the method gives.
    #[error("the peer's result of `{method}` cannot be read: {error}")]
    BadResult {
        /// What was asked.
        method: Box<str>,
        /// What is wrong with it.
        #[source]
        error: serde_json::Error,
    },
    /// What was to be sent has no form in JSON.
    #[error("`{method}` cannot be written as JSON: {error}")]
    Unwritable {
        /// What was to be sent.
        method: Box<str>,
        /// What is wrong with it.
        #[source]
        error: serde_json::Error,
    },
}

/// How an agent that was a child process exited.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exit {
    /// None where another part of the program took the status away.
    pub status: Option<ExitStatus>,
    /// Its last lines on standard error.
    pub stderr: Vec<String>,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{status}")?,
            None => f.write_str("it exited with an unknown status")?,
        }
        if self.stderr.is_empty() {
            return f.write_str(", and it wrote nothing on standard error");
        }
        f.write_str("; its last lines on standard error:")?;
        self.stderr.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// A handler passes it on with `?`: the peer's own error as it came, everything else as an internal error.
impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused { error, .. } => error,
            other => Error::internal_error().data(serde_json::Value::String(other.to_string())),
        }
    }
}
