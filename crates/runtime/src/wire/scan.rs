//! A quick look at a line: where the members of an envelope stand, if the line is plainly one.
//!
//! Each line of a connection comes by here, and what is passed on is looked at by nothing else. So this reads every byte once and
//! keeps nothing. It takes what it is sure of: a JSON object without control characters, no deeper than allowed, no member twice. All else is for
//! the parser, which knows what is wrong with it.

use memchr::memchr2;

use super::{Envelope, NESTING_MAX};

/// The members of an envelope, or none where the line may be none.
pub(super) fn envelope(text: &str) -> Option<Envelope<'_>> {
    // No string may hold them, and few peers write them between tokens. To look at all bytes at once is fast.
    if text.bytes().fold(false, |found, byte| found | (byte < b' ')) {
        return None;
    }
    let mut scan = Scan { text, at: 0 };
    let mut envelope = Envelope::default();
    scan.expect(b'{')?;
    loop {
        scan.space();
        let name = scan.string()?;
        scan.space();
        scan.expect(b':')?;
        scan.space();
        let from = scan.at;
        scan.value(1)?;
        let value = &text[from..scan.at];
        let member = match name {
            "id" => Some(&mut envelope.id),
            "method" => Some(&mut envelope.method),
            "params" => Some(&mut envelope.params),
            "result" => Some(&mut envelope.result),
            "error" => Some(&mut envelope.error),
            // A name may be written in another way.
            name if name.contains('\\') => return None,
            _ => None,
        };
        if let Some(member) = member
            && member.replace(value).is_some()
        {
            return None;
        }
        scan.space();
        match scan.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    (scan.at == text.len()).then_some(envelope)
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    #[inline]
    fn space(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    /// Goes over a string, and gives what stands between its quotes.
    #[inline]
    fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let from = self.at;
        loop {
            self.at += memchr2(b'"', b'\\', &self.text.as_bytes()[self.at..])?;
            if self.next()? == b'"' {
                return Some(&self.text[from..self.at - 1]);
            }
            self.escape()?;
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => (0..4).try_for_each(|_| self.next()?.is_ascii_hexdigit().then_some(())),
            _ => None,
        }
    }

    fn digits(&mut self) -> Option<()> {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > from).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    /// Goes over one value within so many others.
    fn value(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'{' => self.list(depth, b'}', |scan| {
                scan.string()?;
                scan.space();
                scan.expect(b':')?;
                scan.space();
                scan.value(depth + 1)
            }),
            b'[' => self.list(depth, b']', |scan| scan.value(depth + 1)),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => self.number(),
        }
    }

    fn list(&mut self, depth: usize, end: u8, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        if depth >= NESTING_MAX {
            return None;
        }
        self.at += 1;
        self.space();
        if self.peek()? == end {
            self.at += 1;
            return Some(());
        }
        loop {
            item(self)?;
            self.space();
            match self.next()? {
                b',' => self.space(),
                byte => return (byte == end).then_some(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// JSON and what is nearly JSON, in pieces.
    const PIECES: [&str; 34] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "\t",
        "\r",
        "\"id\"",
        "\"method\"",
        "\"params\"",
        "\"result\"",
        "\"error\"",
        "\"m\\u0065thod\"",
        "\"x\"",
        "\"\\ud800\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\\"\\\\\"",
        "\"é\"",
        "\"\u{1}\"",
        "\"",
        "null",
        "true",
        "fals",
        "1",
        "-0",
        "01",
        "1.5e+3",
        "1.",
        "-",
        "2E",
        "\u{7f}",
    ];

    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<f64>().prop_map(|number| serde_json::json!(number).to_string()),
            any::<i64>().prop_map(|number| number.to_string()),
            any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
        ];
        leaf.prop_recursive(4, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[ {} ]", items.join(" ,"))),
                prop::collection::vec((any::<String>(), inner), 0..4).prop_map(|members| {
                    let member = |(name, value)| format!("{}: {value}", serde_json::json!(name));
                    format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(", "))
                }),
            ]
        })
    }

    fn line() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec!["id", "method", "params", "result", "error", "jsonrpc", "x"]);
        prop::collection::vec((name, value()), 1..6).prop_map(|members| {
            let member = |(name, value)| format!("\"{name}\" : {value}");
            format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(","))
        })
    }

    fn parsed(text: &str) -> Option<Envelope<'_>> {
        serde_json::from_str(text).ok()
    }

    proptest! {
        #[test]
        fn what_is_taken_is_what_the_parser_finds(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..12)) {
            let text = format!("{{\"id\":1,{}}}", pieces.concat());
            if let Some(envelope) = envelope(&text) {
                prop_assert_eq!(Some(envelope), parsed(&text), "{}", text);
            }
        }

        #[test]
        fn a_line_that_is_json_is_taken_unless_a_member_is_there_twice(text in line()) {
            prop_assert_eq!(envelope(&text), parsed(&text), "{}", text);
        }

        #[test]
        fn a_line_that_was_changed_is_taken_only_where_the_parser_takes_it(
            text in line(), at in any::<prop::sample::Index>(), piece in prop::sample::select(&PIECES[..]), cut in 0usize..4
        ) {
            let chars: Vec<char> = text.chars().collect();
            let at = at.index(chars.len());
            let rest = chars.iter().skip(at + cut).collect::<String>();
            let text = chars[..at].iter().collect::<String>() + piece + &rest;
            if let Some(envelope) = envelope(&text) {
                prop_assert_eq!(Some(envelope), parsed(&text), "{}", text);
            }
        }
    }

    #[test]
    fn a_value_is_taken_down_to_the_depth_that_is_allowed() {
        let text = |depth: usize| format!("{{\"id\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(envelope(&text(NESTING_MAX - 1)).is_some());
        assert!(envelope(&text(NESTING_MAX)).is_none());
    }
}
