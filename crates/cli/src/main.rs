//! The program `lastword`.
fn main() {}
