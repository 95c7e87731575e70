//! The ticket service on real files, real processes and real time.

mod bounds;
mod journal;
mod scene;
mod tickets;
