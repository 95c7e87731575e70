//! The program behind check.sh and replay.sh, as a library so that its parts are tested alone.
//!
//! Read `report` first: it says what a run can find. Then `run`, which goes through a whole run, and `domain`, which checks
//! one configuration by every layer.

pub mod domain;
pub mod draw;
pub mod facts;
pub mod fingerprint;
pub mod mutants;
pub mod replay;
pub mod report;
pub mod rig;
pub mod run;
pub mod specs;
pub mod subject;
pub mod table;
pub mod tlc;
