//! The program behind check.sh and replay.sh.

use lastword_check as _;

fn main() {}
