//! A transcript: what went over the wire, one line of JSON a message, with its direction and its time.
//!
//! ```json
//! {"scenario":"prompt-cancel","round":3,"phase":"play","ms":12.345,"from":"lastword","text":"{...}"}
//! ```
//!
//! `text` is the line as it went over the wire; `hex` stands in its place where the line is not UTF-8. `unended` says that no
//! newline followed. A side that said nothing more has the last line `"end":true`.

use std::{fmt::Write as _, io};

use serde::{Deserialize, Serialize};

/// How many lines of a transcript are shown.
const SHOWN_LINES_MAX: usize = 24;

/// How much of a line is shown, in characters.
const SHOWN_CHARS_MAX: usize = 140;

/// Who says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    Lastword,
    /// The agent or the client that is measured.
    Peer,
}

/// What a line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// It opens what the scenario needs.
    Setup,
    /// It is the scenario.
    Play,
    /// It answers a request of the peer.
    Answer,
    /// Its answer shows that all answers before it have come.
    Fence,
    /// It ends what the scenario left.
    Cleanup,
}

/// What came or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Line(Vec<u8>),
    /// A line that no newline ends.
    Unended(Vec<u8>),
    /// Nothing more comes.
    End,
}

impl What {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Line(text.into().into_bytes())
    }

    /// The bytes on the wire.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Line(line) => {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
            Self::Unended(line) => out.extend_from_slice(line),
            Self::End => {}
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Line(line) | Self::Unended(line) => line,
            Self::End => &[],
        }
    }
}

/// A line of a transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub(crate) struct Entry {
    pub(crate) scenario: String,
    pub(crate) round: u32,
    pub(crate) phase: Phase,
    /// Milliseconds since the peer was started.
    pub(crate) ms: f64,
    pub(crate) from: Side,
    pub(crate) what: What,
}

/// An entry as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    scenario: String,
    round: u32,
    phase: Phase,
    ms: f64,
    from: Side,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    unended: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    end: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl From<Entry> for Stored {
    fn from(Entry { scenario, round, phase, ms, from, what }: Entry) -> Self {
        let (end, unended) = (what == What::End, matches!(what, What::Unended(_)));
        let (text, hex) = match what {
            What::End => (None, None),
            What::Line(line) | What::Unended(line) => match String::from_utf8(line) {
                Ok(text) => (Some(text), None),
                Err(error) => (None, Some(to_hex(error.as_bytes()))),
            },
        };
        Self { scenario, round, phase, ms, from, text, hex, unended, end }
    }
}

impl TryFrom<Stored> for Entry {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let Stored { scenario, round, phase, ms, from, text, hex, unended, end } = stored;
        let line = match (text, hex) {
            (Some(text), None) => Some(text.into_bytes()),
            (None, Some(hex)) => Some(from_hex(&hex).ok_or("`hex` is not a row of hexadecimal bytes")?),
            (None, None) => None,
            (Some(_), Some(_)) => return Err("a line has either `text` or `hex`"),
        };
        let what = match (line, unended, end) {
            (Some(line), _, _) if line.contains(&b'\n') => return Err("a line holds no newline"),
            (Some(line), false, false) => What::Line(line),
            (Some(line), true, false) => What::Unended(line),
            (None, false, true) => What::End,
            _ => return Err("an entry has one of `text`, `hex` and `end`"),
        };
        Ok(Self { scenario, round, phase, ms, from, what })
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).ok()).collect()
}

/// Why a transcript could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TranscriptError {
    #[error("it could not be read: {0}")]
    Read(#[from] io::Error),
    #[error("line {line} is no line of a transcript: {source}")]
    Parse { line: usize, source: serde_json::Error },
    #[error("it holds no line that lastword sent, so that there is nothing to play")]
    Empty,
}

/// Reads a transcript.
pub(crate) fn read(input: impl io::BufRead) -> Result<Vec<Entry>, TranscriptError> {
    let mut entries = Vec::new();
    for (line, text) in (1..).zip(input.split(b'\n')) {
        let entry: Entry = serde_json::from_slice(&text?).map_err(|source| TranscriptError::Parse { line, source })?;
        entries.push(entry);
    }
    if entries.iter().any(|entry| entry.from == Side::Lastword && entry.phase == Phase::Play) {
        Ok(entries)
    } else {
        Err(TranscriptError::Empty)
    }
}

/// Writes a transcript.
pub(crate) fn write(entries: &[Entry], mut output: impl io::Write) -> io::Result<()> {
    for entry in entries {
        serde_json::to_writer(&mut output, entry)?;
        output.write_all(b"\n")?;
    }
    output.flush()
}

/// A transcript for a reader: a line a message, the long ones cut, and the middle left out where there are too many.
pub(crate) fn show(entries: &[Entry]) -> Vec<String> {
    let start = entries.first().map_or(0.0, |entry| entry.ms);
    let line = |entry: &Entry| {
        let arrow = if entry.from == Side::Lastword { "──▶" } else { "◀──" };
        let text = match &entry.what {
            What::End => "end of its output".to_owned(),
            what => shorten(what.bytes()),
        };
        format!("{:>9.1} ms {arrow} {text}", entry.ms - start)
    };
    if entries.len() <= SHOWN_LINES_MAX {
        return entries.iter().map(line).collect();
    }
    let half = SHOWN_LINES_MAX / 2;
    let (first, rest) = entries.split_at(half);
    let (left_out, last) = rest.split_at(rest.len() - half);
    let mut lines: Vec<String> = first.iter().map(line).collect();
    lines.push(format!("             … {} more lines", left_out.len()));
    lines.extend(last.iter().map(line));
    lines
}

/// The start of a line, without what would move the cursor.
pub(crate) fn shorten(line: &[u8]) -> String {
    // No character is longer than four bytes, or, where it is none, shown as more than one.
    let start = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN_CHARS_MAX)]);
    let mut text: String = start
        .chars()
        .take(SHOWN_CHARS_MAX)
        .map(|character| if character.is_control() { '\u{fffd}' } else { character })
        .collect();
    if text.len() < line.len() && start.chars().count() > SHOWN_CHARS_MAX {
        let _ = write!(text, "… ({} bytes)", line.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            "\\PC{0,40}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>().prop_filter("no newline", |byte| *byte != b'\n'), 0..40),
        ]
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let what = prop_oneof![line().prop_map(What::Line), line().prop_map(What::Unended), Just(What::End)];
        let phase = prop::sample::select(vec![Phase::Setup, Phase::Play, Phase::Answer, Phase::Fence, Phase::Cleanup]);
        let from = prop::sample::select(vec![Side::Lastword, Side::Peer]);
        ("\\PC{0,10}", any::<u32>(), phase, 0_u32..1_000_000_000, from, what).prop_map(
            |(scenario, round, phase, us, from, what)| Entry {
                scenario,
                round,
                phase,
                ms: f64::from(us) / 1000.0,
                from,
                what,
            },
        )
    }

    proptest! {
        #[test]
        fn a_transcript_is_read_back_as_it_was_written(entries in prop::collection::vec(entry(), 0..20)) {
            let mut bytes = Vec::new();
            write(&entries, &mut bytes).unwrap();
            prop_assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), entries.len());
            let plays = entries.iter().any(|entry| entry.from == Side::Lastword && entry.phase == Phase::Play);
            match read(&bytes[..]) {
                Ok(read) => prop_assert!(plays && read == entries),
                Err(error) => prop_assert!(!plays && matches!(error, TranscriptError::Empty)),
            }
        }

        #[test]
        fn whatever_is_read_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes[..]);
        }

        #[test]
        fn a_line_is_shown_short_and_without_control_characters(bytes in line()) {
            let shown = shorten(&bytes.repeat(100));
            prop_assert!(!shown.chars().any(char::is_control) && shown.chars().count() <= SHOWN_CHARS_MAX + 30);
        }
    }

    #[test]
    fn what_is_no_entry_is_named_by_its_line() {
        let good = r#"{"scenario":"s","round":1,"phase":"play","ms":0.5,"from":"lastword","text":"x"}"#;
        for (bad, why) in [
            ("noise", "expected"),
            (r#"{"scenario":"s","round":1,"phase":"play","ms":0,"from":"peer"}"#, "one of `text`, `hex` and `end`"),
            (r#"{"scenario":"s","round":1,"phase":"play","ms":0,"from":"peer","hex":"f"}"#, "hexadecimal"),
            (r#"{"scenario":"s","round":1,"phase":"play","ms":0,"from":"peer","text":"a\nb"}"#, "no newline"),
            (r#"{"scenario":"s","round":1,"phase":"play","ms":0,"from":"peer","text":"a","more":1}"#, "unknown field"),
        ] {
            let error = read(format!("{good}\n{bad}\n").as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("line 2 ") && error.contains(why), "{error}");
        }
    }
}
