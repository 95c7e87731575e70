//! What a line of the peer says, as far as it is judged. Ids stay as they were written.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// JSON-RPC's code for a method that is not there: how a peer says that it does not support something.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Request {
        id: String,
        method: String,
        params: String,
    },
    Notification {
        method: String,
        params: String,
    },
    Response(Response),
    /// Nothing that JSON-RPC knows.
    Noise,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    /// As it was written.
    pub(crate) id: String,
    pub(crate) answer: Answer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The result, as it was written.
    Result(String),
    Error {
        code: i64,
        message: String,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct ErrorBody {
    code: i64,
    #[serde(default)]
    message: String,
}

/// A member that is there, `null` included.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

pub(crate) fn parse(line: &[u8]) -> Message {
    let Ok(Envelope { id, method, params, result, error }) = serde_json::from_slice(line) else {
        return Message::Noise;
    };
    let text = |raw: &RawValue| raw.get().to_owned();
    let params = || params.map_or_else(|| "null".to_owned(), text);
    match (id, method, result, error) {
        (Some(id), Some(method), ..) => Message::Request { id: text(id), method, params: params() },
        (None, Some(method), ..) => Message::Notification { method, params: params() },
        (Some(id), None, _, Some(ErrorBody { code, message })) => {
            Message::Response(Response { id: text(id), answer: Answer::Error { code, message } })
        }
        (Some(id), None, Some(result), None) => {
            Message::Response(Response { id: text(id), answer: Answer::Result(text(result)) })
        }
        // An error that is about no request may leave the id out.
        (None, None, None, Some(ErrorBody { code, message })) => {
            Message::Response(Response { id: "null".to_owned(), answer: Answer::Error { code, message } })
        }
        _ => Message::Noise,
    }
}

impl Answer {
    /// Why the turn of a prompt stopped.
    pub(crate) fn stop_reason(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Stopped {
            stop_reason: String,
        }
        let Self::Result(result) = self else { return None };
        serde_json::from_str(result).ok().map(|Stopped { stop_reason }| stop_reason)
    }

    pub(crate) fn is_error(&self, wanted: i64) -> bool {
        matches!(self, Self::Error { code, .. } if *code == wanted)
    }

    /// In a few words.
    pub(crate) fn words(&self) -> String {
        match (self.stop_reason(), self) {
            (Some(reason), _) => reason,
            (None, Self::Result(_)) => "a result".to_owned(),
            (None, Self::Error { code, message }) => {
                format!("the error {code} ({})", super::transcript::shorten(message.as_bytes()))
            }
        }
    }
}
