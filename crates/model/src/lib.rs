//! Models that drive `lastword-core` itself.
//!
//! There is no second transition relation: a world ([`World`], [`delegation::World`]) holds the real machine, and each move
//! of it is one step of that machine. What the world adds is the client (which messages it may send) and a memory of what each
//! message has met, so that the promises can be told from the state alone.
//!
//! - [`Configuration`]: which messages the client sends; one file of specs/DOMAIN each.
//! - [`ConnectionModel`]: the model of the domains turns and barrier. Its graph is explored twice, by [`Graph::explore`],
//!   which keeps every state and is the judge, and by stateright.
//! - [`DelegationModel`]: the model of the domain delegation. [`Model`] is what both have in common.
//! - [`promises`]: one predicate a promise.
//! - [`liveness`]: what must happen in the end, on the exact graph.
//! - [`trace`]: the same machine and the same promises over what a running program recorded.
//! - [`Counterexample`]: a path to a broken promise, as a file.

mod configuration;
mod connection;
mod counterexample;
pub mod delegation;
mod graph;
pub mod liveness;
mod message;
mod model;
pub mod promises;
pub mod trace;

mod world;

pub use configuration::{Configuration, ConfigurationError, Expectation, Value};
pub use connection::ConnectionModel;
pub use counterexample::{Counterexample, CounterexampleError, CounterexampleStep, RecordedStep};
pub use delegation::DelegationModel;
pub use graph::{Edge, Graph, GraphError, NodeIndex};
pub use message::{Kind, Message};
pub use model::{Model, PromiseOf};
pub use world::{Breaches, Call, Fate, Move, OpenCall, Said, World};
