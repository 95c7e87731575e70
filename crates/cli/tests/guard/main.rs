//! `lastword guard` between a client and an agent, both of which are the test: it says what each of them says, byte by byte
//! and in any order, and reads what each of them gets.

// Its peak of memory is known on Linux.
#[cfg(target_os = "linux")]
mod burst;
mod cancel;
mod end;
mod overlap;
mod pass;
mod scene;
mod trouble;
