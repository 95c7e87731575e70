//! Names of things: requests and sessions as the peer names them, arrivals and calls as we do.

use alloc::{string::String, vec::Vec};
use core::{cmp::Ordering, fmt};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// The longest request id that is accepted, in bytes as written on the wire. Longer ones serve nobody and would be kept
/// for as long as the request is in flight.
pub const REQUEST_ID_BYTES_MAX: usize = 4096;

/// The place of a message in the order in which messages arrived: the first is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Arrival(pub u64);

impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The id of a request that we sent to the peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub u64);

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}", self.0)
    }
}

/// The name of a session, as the peer writes it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(SmolStr);

impl SessionId {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for SessionId {
    fn from(name: &str) -> Self {
        Self(SmolStr::new(name))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The id of a request of the peer: written back byte for byte, compared by value.
///
/// JSON-RPC lets an id be a string, a number or null. `1`, `1.0` and `1e0` are one id, `"1"` is another, and `"\u0031"`
/// is the same as `"1"`. Serves the promise AnsweredOnce: a response carries the id exactly as it came.
///
/// ```
/// use lastword_core::RequestId;
/// let id = |raw| RequestId::parse(raw).unwrap();
/// assert_eq!(id("1"), id("1.0"));
/// assert_ne!(id("1"), id("\"1\""));
/// assert_eq!(id("10e-1").raw(), "10e-1");
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct RequestId {
    /// As it stands on the wire.
    raw: SmolStr,
    /// What it is compared by.
    value: IdValue,
}

/// The value of an id, each in one form only. Most ids are small integers, which are compared at once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum IdValue {
    /// A natural number that fits.
    Small(u64),
    /// Any other number; a string with its quotes, which keep it apart from a number, and without escapes; or null.
    Text(SmolStr),
}

/// Why something is not a request id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdError {
    /// It is longer than [`REQUEST_ID_BYTES_MAX`].
    TooLong,
    /// It is not a string, a number or null.
    NotAnId,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "the request id is longer than {REQUEST_ID_BYTES_MAX} bytes"),
            Self::NotAnId => f.write_str("the request id is not a string, a number or null"),
        }
    }
}

impl core::error::Error for IdError {}

impl RequestId {
    /// Reads an id from its JSON text, without white space around it.
    ///
    /// # Errors
    ///
    /// [`IdError`] where the text is too long or no JSON string, number or null.
    pub fn parse(raw: &str) -> Result<Self, IdError> {
        if raw.len() > REQUEST_ID_BYTES_MAX {
            return Err(IdError::TooLong);
        }
        let value = match raw.as_bytes() {
            [b'1'..=b'9', digits @ ..] if digits.len() < SMALL_DIGITS_MAX && digits.iter().all(u8::is_ascii_digit) => {
                match raw.parse() {
                    Ok(number) => IdValue::Small(number),
                    Err(_) => return Err(IdError::NotAnId),
                }
            }
            b"null" => IdValue::Text(SmolStr::new_static("null")),
            [b'"', text @ .., b'"'] => {
                if text.contains(&b'\\') {
                    IdValue::Text(unescaped(&raw[1..raw.len() - 1]).ok_or(IdError::NotAnId)?)
                } else if text.iter().any(|byte| *byte == b'"' || *byte < 0x20) {
                    return Err(IdError::NotAnId);
                } else {
                    IdValue::Text(SmolStr::new(raw))
                }
            }
            _ => IdValue::small_or_text(normal_number(raw).ok_or(IdError::NotAnId)?),
        };
        Ok(Self { raw: SmolStr::new(raw), value })
    }

    /// What it is compared by.
    pub(crate) fn value(&self) -> &IdValue {
        &self.value
    }

    /// The id as it came, to be written back.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.raw
    }
}

/// How many digits always fit a [`IdValue::Small`].
const SMALL_DIGITS_MAX: usize = 19;

impl fmt::Debug for IdValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Small(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl IdValue {
    /// A number in its normal form.
    fn small_or_text(normal: SmolStr) -> Self {
        match normal.parse() {
            Ok(number) if normal.len() <= SMALL_DIGITS_MAX => Self::Small(number),
            _ => Self::Text(normal),
        }
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        let mut raw = String::new();
        // Writing to a string cannot fail.
        let _ = fmt::Write::write_fmt(&mut raw, format_args!("{number}"));
        Self { value: IdValue::small_or_text(SmolStr::new(&raw)), raw: SmolStr::from(raw) }
    }
}

impl TryFrom<SmolStr> for RequestId {
    type Error = IdError;
    fn try_from(raw: SmolStr) -> Result<Self, IdError> {
        Self::parse(&raw)
    }
}

impl From<RequestId> for SmolStr {
    fn from(id: RequestId) -> Self {
        id.raw
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}
impl Eq for RequestId {}
impl PartialOrd for RequestId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for RequestId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}
impl core::hash::Hash for RequestId {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}
impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.raw)
    }
}

/// The text of a JSON string in quotes, each escape replaced by what it stands for; quotes keep it apart from a number.
/// A lone surrogate stands for nothing that a string can hold, so it stays an escape, in lower case.
fn unescaped(text: &str) -> Option<SmolStr> {
    let mut value = String::with_capacity(text.len() + 2);
    value.push('"');
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => return None,
            c if (c as u32) < 0x20 => return None,
            '\\' => match rest.next()? {
                c @ ('"' | '/') => value.push(c),
                // A backslash is doubled so that `\\ud800` and the lone surrogate `\ud800` stay two values.
                '\\' => value.push_str("\\\\"),
                'b' => value.push('\u{8}'),
                'f' => value.push('\u{c}'),
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                'u' => {
                    let unit = hex4(&mut rest)?;
                    let mut ahead = rest.clone();
                    let low = match (ahead.next(), ahead.next()) {
                        (Some('\\'), Some('u')) if (0xd800..0xdc00).contains(&unit) => hex4(&mut ahead),
                        _ => None,
                    };
                    match low {
                        Some(low) if (0xdc00..0xe000).contains(&low) => {
                            value.push(char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))?);
                            rest = ahead;
                        }
                        _ => match char::from_u32(unit) {
                            Some('\\') => value.push_str("\\\\"),
                            Some(c) => value.push(c),
                            None => {
                                let _ = fmt::Write::write_fmt(&mut value, format_args!("\\u{unit:04x}"));
                            }
                        },
                    }
                }
                _ => return None,
            },
            c => value.push(c),
        }
    }
    value.push('"');
    // An escaped string without a backslash left compares equal to the same string written plainly.
    Some(SmolStr::from(value))
}

fn hex4(chars: &mut core::str::Chars<'_>) -> Option<u32> {
    (0..4).try_fold(0, |unit, _| Some(unit * 16 + chars.next()?.to_digit(16)?))
}

/// A JSON number by its value: an integer without leading or trailing zeros, times a power of ten; a plain positive
/// integer keeps its plain form, so that it needs no second copy.
fn normal_number(raw: &str) -> Option<SmolStr> {
    let (negative, rest) = match raw.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, raw),
    };
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((_, "")) => return None,
        Some((whole, fraction)) => (whole, fraction),
        None => (mantissa, ""),
    };
    let digits_only = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits_only(whole) || !digits_only(fraction) || (whole.len() > 1 && whole.starts_with('0'))
    {
        return None;
    }
    let exponent: i64 = match exponent {
        None => 0,
        Some(text) => {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            if digits.is_empty() || !digits_only(digits) {
                return None;
            }
            // Where the exponent is beyond any number that a program can mean, the spelling is the value.
            match text.parse::<i64>() {
                Ok(exponent) if exponent.unsigned_abs() < 1 << 60 => exponent,
                _ => return Some(SmolStr::new(raw)),
            }
        }
    };
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    let digits = core::str::from_utf8(&digits).ok()?;
    let shift = exponent - i64::try_from(fraction.len()).ok()?;
    let significant = digits.trim_start_matches('0');
    let trimmed = significant.trim_end_matches('0');
    if trimmed.is_empty() {
        return Some(SmolStr::new_static("0"));
    }
    let shift = shift + i64::try_from(significant.len() - trimmed.len()).ok()?;
    let mut value = String::new();
    if negative {
        value.push('-');
    }
    value.push_str(trimmed);
    // A number that fits an id is spelled out; a larger one keeps its power of ten.
    match usize::try_from(shift) {
        Ok(zeros) if value.len() + zeros <= REQUEST_ID_BYTES_MAX => value.extend(core::iter::repeat_n('0', zeros)),
        _ => {
            let _ = fmt::Write::write_fmt(&mut value, format_args!("e{shift}"));
        }
    }
    Some(SmolStr::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use proptest::prelude::*;

    fn id(raw: &str) -> RequestId {
        RequestId::parse(raw).expect(raw)
    }

    #[test]
    fn numbers_are_compared_by_value_and_written_back_as_they_came() {
        for (one, other) in [
            ("1", "1.0"),
            ("1", "1e0"),
            ("100", "1E+2"),
            ("-0", "0"),
            ("0.0", "0"),
            ("12.50", "125e-1"),
            ("18446744073709551616", "18446744073709551616.0"),
        ] {
            assert_eq!(id(one), id(other), "{one} and {other}");
            assert_eq!(id(other).raw(), other);
        }
        for (one, other) in
            [("1", "-1"), ("1", "\"1\""), ("9007199254740993", "9007199254740992"), ("1.5", "15"), ("null", "0")]
        {
            assert_ne!(id(one), id(other), "{one} and {other}");
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for raw in ["", "true", "{}", "[1]", "01", "1.", ".5", "1e", "+1", "\"a", "\"\\x\"", "\"a\"b\"", "--1", "\""] {
            assert_eq!(RequestId::parse(raw).unwrap_err(), IdError::NotAnId, "{raw}");
        }
        let long = format!("\"{}\"", "a".repeat(REQUEST_ID_BYTES_MAX));
        assert_eq!(RequestId::parse(&long).unwrap_err(), IdError::TooLong);
    }

    #[test]
    fn an_escaped_string_equals_the_plain_one() {
        assert_eq!(id(r#""\u0031""#), id("\"1\""));
        assert_eq!(id(r#""\ud83d\ude00""#), id("\"\u{1f600}\""));
        assert_eq!(id(r#""\uD800""#), id(r#""\ud800""#));
        assert_ne!(id(r#""\ud800""#), id(r#""\\ud800""#));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(raw in ".{0,40}") {
            let _ = RequestId::parse(&raw);
        }

        #[test]
        fn strings_compare_as_serde_json_compares_them(one in ".{0,8}", other in ".{0,8}") {
            let escape = |text: &str| {
                let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
                format!("\"{units}\"")
            };
            let plain = |text: &str| serde_json::to_string(text).unwrap();
            prop_assert_eq!(id(&escape(&one)), id(&plain(&one)));
            prop_assert_eq!(id(&plain(&one)) == id(&escape(&other)), one == other);
        }

        #[test]
        fn a_number_equals_itself_with_its_point_moved(digits in 1u64.., zeros in 0usize..5) {
            let raw = format!("{digits}");
            prop_assert_eq!(id(&raw), id(&format!("{digits}{}e-{zeros}", "0".repeat(zeros))));
            prop_assert_eq!(id(&raw), RequestId::from(digits));
        }
    }
}
