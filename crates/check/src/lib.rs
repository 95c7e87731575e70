//! The program behind check.sh and replay.sh, as a library so that its parts are tested alone.
//!
//! Read `report` first: it says what a run can find.

pub mod fingerprint;
pub mod report;
pub mod tlc;
