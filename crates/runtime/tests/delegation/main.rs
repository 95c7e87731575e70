//! The ticket service on real files, real processes and real time.

mod journal;
mod scene;
mod tickets;
