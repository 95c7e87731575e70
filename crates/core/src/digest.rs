//! A fingerprint of a state, the same on every machine.

use alloc::string::String;
use core::fmt::{self, Write as _};

/// The fingerprint of a state's text in 16 hexadecimal digits.
pub(crate) fn of(state: &impl fmt::Debug) -> String {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    // Writing to a hash cannot fail.
    let _ = write!(hash, "{state:?}");
    alloc::format!("{:016x}", hash.0)
}

/// The 64-bit hash of Fowler, Noll and Vo (1a) over the text of a state.
struct Fnv(u64);

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}
