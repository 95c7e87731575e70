//! Scenarios over an in-memory stream. The test is the client, and it is also the inside of every handler: each handler
//! hands itself to the test and waits for what the test says. So nothing depends on timing; where time matters the clock is
//! paused, and moves only when every task is idle.

mod calls;
mod end;
#[cfg(feature = "check")]
mod gate;
mod peer;
mod stress;
mod trace;
mod turns;
mod wire;
