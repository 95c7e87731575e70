//! What the faces for people share: how wide a text is, how it is wrapped, and in which style it is written.
//!
//! Every style is one of the terminal's own sixteen colours, so that it is legible on a dark and on a light background
//! alike. Text is styled unconditionally; whoever writes it goes through `anstream`, which takes the styles out for a
//! pipe and for `NO_COLOR`. No meaning hangs on a colour alone.

use std::fmt::Display;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Status;

pub(super) const PLAIN: Style = Style::new();
pub(super) const STRONG: Style = Style::new().bold();
pub(super) const FAINT: Style = Style::new().dimmed();
pub(super) const KEPT: Style = AnsiColor::Green.on_default();
pub(super) const BROKEN: Style = AnsiColor::Red.on_default().bold();
pub(super) const DRIFT: Style = AnsiColor::Yellow.on_default();
pub(super) const UNVERIFIED: Style = AnsiColor::Magenta.on_default();
pub(super) const ADDED: Style = AnsiColor::Green.on_default();
pub(super) const REMOVED: Style = AnsiColor::Red.on_default();
pub(super) const HUNK: Style = AnsiColor::Cyan.on_default();

/// The sign and the style of a result.
pub(super) fn sign(status: Status) -> (&'static str, Style) {
    match status {
        Status::Kept => ("✓", KEPT),
        Status::Broken => ("✗", BROKEN),
        Status::Drift => ("~", DRIFT),
        Status::Unverified => ("?", UNVERIFIED),
    }
}

/// `text` in `style`.
pub(super) fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// `text` as one line on which every character takes a known number of columns: white space becomes spaces, other
/// control characters become visible as `�`, and what takes no column is left out.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            c if c.is_whitespace() => ' ',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .filter(|c| c.width() != Some(0))
        .collect()
}

/// How many columns a text takes that was [`clean`]ed.
pub(super) fn width(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum::<usize>().max(text.width())
}

/// A cleaned text in lines of at most `room` columns, broken between words where that is possible. There is always at
/// least one line.
pub(super) fn wrap(text: &str, room: usize) -> Vec<String> {
    // A single wide character needs two columns, so that less room than that could not be kept.
    textwrap::wrap(&clean(text), room.max(2)).into_iter().map(|line| line.trim_end().to_string()).collect()
}

/// A paragraph that a sign opens, with its further lines indented below its first word.
pub(super) fn paragraph(status: Status, text: &str, width: usize) -> String {
    let (sign, style) = sign(status);
    let mut out = String::new();
    for (index, line) in wrap(text, width.saturating_sub(2)).into_iter().enumerate() {
        if index == 0 {
            out.push_str(&styled(style.bold(), sign));
        } else {
            out.push(' ');
        }
        out.push(' ');
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// `1 step`, `3 steps`.
pub(super) fn steps(count: usize) -> String {
    if count == 1 { "1 step".into() } else { format!("{count} steps") }
}

/// A duration for people, with as much precision as they can use.
pub(super) fn time(time: Duration) -> String {
    // Rounded once, so that 59.96 s is a minute and not `60.0 s`.
    let tenths = (time.as_millis() + 50) / 100;
    match tenths {
        0..10 => format!("{} ms", time.as_millis()),
        10..600 => format!("{}.{} s", tenths / 10, tenths % 10),
        _ => format!("{} min {:02} s", tenths / 600, tenths % 600 / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_written_with_the_precision_that_people_can_use() {
        let written = |millis| time(Duration::from_millis(millis));
        assert_eq!(written(0), "0 ms");
        assert_eq!(written(949), "949 ms");
        assert_eq!(written(950), "1.0 s");
        assert_eq!(written(3_449), "3.4 s");
        assert_eq!(written(59_949), "59.9 s");
        assert_eq!(written(59_950), "1 min 00 s");
        assert_eq!(written(125_000), "2 min 05 s");
    }

    #[test]
    fn a_clean_text_is_one_line_without_escapes() {
        assert_eq!(clean("a\tb\nc\u{1b}[31md\u{200d}\u{301}"), "a b c�[31md");
    }
}
