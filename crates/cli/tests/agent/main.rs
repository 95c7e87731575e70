//! `lastword agent` as a real process, driven with raw bytes. No test waits for time to pass; every wait has an end.

mod bad_input;
mod process;
mod script;
