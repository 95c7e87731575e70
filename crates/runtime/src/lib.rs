//! An Agent Client Protocol connection that keeps its word.
//!
//! An agent implements [`Agent`] and hands it to [`serve_agent`] with a reader and a writer. Of two overlapping prompts of a
//! session the newer one has the last word; a cancel reaches every earlier prompt and spares every later one; each request
//! gets exactly one response.
//!
//! A client implements [`Client`] and hands it to [`connect`], or to an agent that it starts as a child process. Updates are
//! handled one at a time, in the order in which they arrived.
//!
//! These promises are kept by `lastword-core`, a pure state machine that decides about a message when it arrives, and which
//! is checked state by state; this crate is the shell around it.
//!
//! With the feature `delegation`, the module of that name is a ticket service: a lead delegates to agents, and every reply
//! reaches its ticket, through time-outs, crashes and restarts.
//!
//! Read [`serve_agent`] or [`connect`] first: there are an agent and a client of twenty lines. [`Options`] lists every bound.

mod agent;
mod client;
mod connect;
#[cfg(all(unix, feature = "delegation"))]
pub mod delegation;
mod error;
#[cfg(feature = "check")]
pub mod gate;
#[cfg(unix)]
mod guard;
mod handle;
mod handler;
mod options;
#[cfg(unix)]
mod process;
mod relay;
mod serve;
mod shell;
pub mod trace;
mod turn;
mod wire;

pub use agent::Agent;
/// The types of the protocol.
pub use agent_client_protocol_schema as schema;
pub use client::{Client, ClientContext};
pub use connect::connect;
pub use error::{CallError, Exit, ServeError};
#[cfg(unix)]
pub use guard::{GuardEnded, GuardOptions, guard};
pub use handle::{AgentHandle, ClientHandle};
pub use lastword_core::{Cause, Overlap};
pub use options::{Options, SESSION_BUSY, TOO_MANY_IN_FLIGHT};
#[cfg(unix)]
pub use process::{AgentProcess, Ended, ProcessOptions, SpawnError};
pub use serve::serve_agent;
pub use turn::{Context, Turn};

/// The Rust of the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
