//! The real runtime on several threads, under everything that a client may send. What happens is recorded, and every record
//! is judged by the model: so the environment that the model assumes is the one that tokio really gives.
//!
//! No test waits for time to pass; every wait has an end.

mod agent;
mod client;
mod random;

mod record;
mod table;
