//! The fleet's daemon as a child process: who gets in, what is too much, and how it ends.

mod bridge;
mod door;
mod end;
mod limits;
mod scene;
mod tasks;
