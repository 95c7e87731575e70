//! The client's end of a connection, and what it reads.

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines};

/// Longer than anything in a test takes, also on a machine that does ten other things.
const EVER: Duration = Duration::from_secs(60);

pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(EVER, what).await.expect("nothing happened for a minute")
}

/// What a response says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Said {
    Result,
    Failed,
    Cancelled,
    RequestCancelled,
    IdInUse,
    TooManyInFlight,
}

impl Said {
    fn on_the_wire(result: Option<&Value>, error: Option<&Value>) -> Self {
        match (result, error) {
            (Some(result), None) if result["stopReason"] == "cancelled" => Self::Cancelled,
            (Some(_), None) => Self::Result,
            (None, Some(error)) => match error["code"].as_i64().unwrap() {
                -32800 => Self::RequestCancelled,
                -32600 => Self::IdInUse,
                code if code == i64::from(lastword::TOO_MANY_IN_FLIGHT) => Self::TooManyInFlight,
                _ => Self::Failed,
            },
            both_or_none => panic!("a response with {both_or_none:?}"),
        }
    }

    pub(crate) fn in_trace(answer: &Value) -> Self {
        match answer.as_str() {
            Some("Cancelled") => return Self::Cancelled,
            Some("RequestCancelled") => return Self::RequestCancelled,
            _ => {}
        }
        match (answer["Returned"].as_str(), answer["Refused"].as_str()) {
            (Some("Succeeded"), None) => Self::Result,
            (Some("Failed"), None) => Self::Failed,
            (None, Some("IdInUse")) => Self::IdInUse,
            (None, Some("TooManyInFlight")) => Self::TooManyInFlight,
            _ => panic!("no answer: {answer}"),
        }
    }
}

/// What the agent sends.
pub(crate) enum Message {
    /// A response, with the id as it stands on the wire.
    Response(String, Said),
    /// A request of the agent, by its id.
    Call(Box<RawValue>),
    /// An update, or anything else that wants no answer.
    Notification,
}

/// Everything that the agent sends, line by line.
pub(crate) struct Messages(Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>);

impl Messages {
    pub(crate) fn of(reader: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self(BufReader::new(Box::new(reader) as Box<dyn AsyncRead + Send + Unpin>).lines())
    }

    /// The next message; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let Envelope { id, method, result, error } = self.envelope().await?;
        Some(match (id, method) {
            (Some(id), None) => {
                Message::Response(id.get().to_owned(), Said::on_the_wire(result.as_ref(), error.as_ref()))
            }
            (Some(id), Some(_)) => Message::Call(id),
            (None, _) => Message::Notification,
        })
    }

    /// The session that this request opened.
    pub(crate) async fn opened(&mut self, id: &str) -> String {
        let envelope = self.envelope().await.unwrap();
        assert_eq!(envelope.id.unwrap().get(), id);
        envelope.result.unwrap()["sessionId"].as_str().unwrap().to_owned()
    }

    async fn envelope(&mut self) -> Option<Envelope> {
        let line = soon(self.0.next_line()).await.unwrap()?;
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default, deserialize_with = "present")]
    id: Option<Box<RawValue>>,
    method: Option<String>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    error: Option<Value>,
}

/// An id or a result may be null, which is not the same as none.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// The answer to any call of the agent: it fits a permission, and an extension takes whatever comes.
pub(crate) fn answer(call: &RawValue) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{call},\"result\":{{\"outcome\":{{\"outcome\":\"cancelled\"}}}}}}\n")
}

/// A request, or a notification where there is no id, as one line.
pub(crate) fn line(id: Option<&str>, method: &str, params: &Value) -> String {
    let id = id.map_or_else(String::new, |id| format!("\"id\":{id},"));
    format!("{{\"jsonrpc\":\"2.0\",{id}\"method\":\"{method}\",\"params\":{params}}}\n")
}
