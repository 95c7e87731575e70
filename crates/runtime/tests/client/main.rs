//! The client's side, scenario by scenario. The test is the inside of every handler of the client, and either the agent
//! itself, line by line, or the inside of its prompts. In memory the clock is paused and moves only when every task is idle;
//! child processes are shell scripts that wait for nothing but lines. So nothing depends on timing.

mod calls;
mod end;
mod order;
#[cfg(target_os = "linux")]
mod process;
mod scene;
mod turns;
mod updates;
