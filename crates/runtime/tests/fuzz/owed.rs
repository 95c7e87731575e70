//! What bytes must be answered with, judged from each line alone.

use std::{collections::BTreeSet, fmt};

use lastword_core::RequestId;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The id of an answer to nobody.
const NOBODY: &str = "null";

/// The bounds of the wire, as they are documented.
const ID_BYTES_MAX: usize = 4096;
const NESTING_MAX: usize = 128;

/// The id of each answer that these bytes must have, as it stands on the wire.
pub(crate) fn all(bytes: &[u8], line_bytes_max: usize) -> Vec<String> {
    let mut lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    let too_long = |line: &[u8]| line.len() > line_bytes_max;
    let mut owed: Vec<_> = lines
        .into_iter()
        .filter_map(|line| if too_long(line) { Some(NOBODY.to_owned()) } else { by_line(line).map(Answer::id) })
        .collect();
    // The input ended within it: it is handled where it is complete, and else nobody would read an answer.
    if too_long(rest) {
        owed.push(NOBODY.to_owned());
    } else if let Some(Answer::To(id)) = by_line(rest) {
        owed.push(id);
    }
    owed
}

/// The ids, among these, that another one is equal to: the second request with it is refused while the first one is in
/// flight, whatever it asks.
pub(crate) fn come_again(ids: &[String]) -> BTreeSet<String> {
    let value = |id: &String| RequestId::parse(id).expect("it was judged to be an id");
    let is_equal = |id: &&String| ids.iter().filter(|other| value(other) == value(id)).count() > 1;
    ids.iter().filter(is_equal).cloned().collect()
}

enum Answer {
    To(String),
    ToNobody,
}

impl Answer {
    fn id(self) -> String {
        match self {
            Self::To(id) => id,
            Self::ToNobody => NOBODY.to_owned(),
        }
    }
}

/// The answer that a line must have, if any.
fn by_line(line: &[u8]) -> Option<Answer> {
    let Ok(text) = std::str::from_utf8(line) else { return Some(Answer::ToNobody) };
    let text = text.trim_ascii();
    if text.is_empty() {
        return None;
    }
    let members = match serde_json::from_str::<Members<'_>>(text) {
        Ok(Members(members)) if depth(text) <= NESTING_MAX => members,
        _ => return Some(Answer::ToNobody),
    };
    let all = |name: &str| members.iter().filter(|member| member.0 == name).map(|member| member.1.get()).collect();
    let [id, method, params, result, error]: [Vec<&str>; 5] = ["id", "method", "params", "result", "error"].map(all);
    if [&id, &method, &params, &result, &error].iter().any(|values| values.len() > 1) {
        return Some(Answer::ToNobody);
    }
    if method.is_empty() && !(result.is_empty() && error.is_empty()) {
        // A response.
        return None;
    }
    match id.first() {
        Some(id) if is_id(id) => Some(Answer::To((*id).to_owned())),
        // A notification, where it has a method.
        None if method.first().is_some_and(|method| serde_json::from_str::<String>(method).is_ok()) => None,
        _ => Some(Answer::ToNobody),
    }
}

fn is_id(raw: &str) -> bool {
    raw.len() <= ID_BYTES_MAX
        && (raw == "null" || raw.starts_with(|first: char| matches!(first, '"' | '-' | '0'..='9')))
}

/// How deep brackets are nested, outside of strings.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for character in text.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The members of an object, also where a name comes twice.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}
