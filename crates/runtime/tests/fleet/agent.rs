//! x
pub(crate) const ARGUMENT: &str = "--as-agent";
pub(crate) fn main() {}
