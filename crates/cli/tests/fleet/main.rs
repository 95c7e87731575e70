//! The fleet's daemon as a child process: who gets in, what is too much or too slow, and how it ends.

mod bridge;
mod broken;
mod door;
mod end;
mod hold;
mod limits;
mod log;
mod scene;
mod tasks;
