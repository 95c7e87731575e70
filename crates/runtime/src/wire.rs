//! The wire: lines of JSON-RPC 2.0, and what one of them says, before anything is decided.
//!
//! An envelope borrows from its line; ids and parameters stay as they were written, so that nothing that passes through
//! is changed. The member `jsonrpc` is not checked: there is one version, and refusing a message for it helps nobody.

use std::{borrow::Cow, io};

use agent_client_protocol_schema::v1::Error;
use lastword_core::{CallId, IdError, RequestId};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned, de::IgnoredAny};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt as _};

mod scan;

/// How deep JSON may be nested. The parser of typed values stops there to protect its stack; values that are passed on
/// unparsed are held to the same bound, so that whoever gets them can parse them.
const NESTING_MAX: usize = 128;

/// How much of a bad line is logged.
const LOGGED_BYTES_MAX: usize = 200;

/// How much is asked of the reader at a time. More would only mean that more messages wait in memory at the same time.
const CHUNK_BYTES: usize = 16 << 10;

/// A buffer that grew beyond this for one long message is given back afterwards.
pub(crate) const KEPT_BYTES_MAX: usize = 256 << 10;

/// Cuts the input into lines.
pub(crate) struct Lines<R> {
    reader: R,
    /// What was read. Lines before `start` were taken; no newline stands between `start` and `scanned`.
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    /// The rest of a line that was too long comes next, and is dropped.
    skipping: bool,
    ended: bool,
    line_bytes_max: usize,
}

#[derive(Debug)]
pub(crate) enum Line<'a> {
    Whole(&'a [u8]),
    TooLong,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R, line_bytes_max: usize) -> Self {
        Self { reader, buffer: Vec::new(), start: 0, scanned: 0, skipping: false, ended: false, line_bytes_max }
    }

    /// The next line that is there completely.
    pub(crate) fn take(&mut self) -> Option<Line<'_>> {
        loop {
            let Some(length) = memchr::memchr(b'\n', &self.buffer[self.scanned..]) else {
                self.scanned = self.buffer.len();
                return self.cut_long_line();
            };
            let (start, end) = (self.start, self.scanned + length);
            self.start = end + 1;
            self.scanned = end + 1;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if end - start > self.line_bytes_max {
                return Some(Line::TooLong);
            }
            return Some(Line::Whole(&self.buffer[start..end]));
        }
    }

    /// What stands after the last newline, once the input has ended.
    pub(crate) fn take_rest(&mut self) -> &[u8] {
        let rest = &self.buffer[self.start..];
        if self.skipping { &[] } else { rest }
    }

    /// Gives up a line as soon as it is too long, and what comes of it later.
    fn cut_long_line(&mut self) -> Option<Line<'_>> {
        let too_long = self.buffer.len() - self.start > self.line_bytes_max;
        if !too_long && !self.skipping {
            return None;
        }
        self.start = self.buffer.len();
        self.scanned = self.buffer.len();
        let first = !std::mem::replace(&mut self.skipping, true);
        first.then_some(Line::TooLong)
    }

    /// Reads once more. False at the end of input. May be dropped at any time without losing anything.
    pub(crate) async fn fill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        // What is left is moved only where no less was taken, so that no byte is moved more than once or twice, also where
        // much is read ahead and little taken at a time.
        if self.start >= self.ahead() {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BYTES_MAX {
            self.buffer = Vec::new();
        }
        self.buffer.reserve(CHUNK_BYTES);
        self.ended = self.reader.read_buf(&mut self.buffer).await? == 0;
        Ok(!self.ended)
    }

    /// How much was read and not taken.
    pub(crate) fn ahead(&self) -> usize {
        self.buffer.len() - self.start
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }
}

/// What a line says.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request {
        id: RequestId,
        /// An error where the request has no method that could be looked up.
        method: Result<Cow<'a, str>, Error>,
        params: Option<&'a str>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a str>,
    },
    Response {
        /// None where no call of ours has such an id.
        call: Option<CallId>,
        /// What the peer answered or, as an error, what it refused with, each as it stands on the wire.
        result: Result<&'a str, &'a str>,
    },
    /// Nothing that has an id to answer to.
    Bad(Error),
    /// White space between messages.
    Blank,
}

/// The members of a message, each as it stands on the wire.
#[derive(Debug, Default, PartialEq, Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a str>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a str>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a str>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a str>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a str>,
}

/// A member that is there, `null` included: a request with the id `null` is no notification.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a str>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(|raw| Some(raw.get()))
}

/// Reads one line.
pub(crate) fn decode(line: &[u8]) -> Message<'_> {
    let text = match std::str::from_utf8(line) {
        Ok(text) => text.trim_ascii(),
        Err(error) => return Message::Bad(Error::new(-32700, format!("Parse error: the line is not UTF-8: {error}"))),
    };
    if text.is_empty() {
        return Message::Blank;
    }
    if let Some(envelope) = scan::envelope(text) {
        return classify(&envelope);
    }
    if !text.starts_with('{') {
        return Message::Bad(match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) if text.starts_with('[') => {
                Error::new(-32600, "Invalid request: batches are not part of the protocol, send one message a line")
            }
            Ok(_) => Error::new(-32600, "Invalid request: a message is a JSON object"),
            Err(error) => Error::new(-32700, format!("Parse error: {error}")),
        });
    }
    if is_too_deep(text) {
        return Message::Bad(Error::new(
            -32700,
            format!("Parse error: the line is nested deeper than {NESTING_MAX} levels"),
        ));
    }
    let envelope: Envelope<'_> = match serde_json::from_str(text) {
        Ok(envelope) => envelope,
        Err(error) => return Message::Bad(Error::new(-32700, format!("Parse error: {error}"))),
    };
    classify(&envelope)
}

fn classify<'a>(envelope: &Envelope<'a>) -> Message<'a> {
    let params = envelope.params;
    if envelope.method.is_none() && (envelope.result.is_some() || envelope.error.is_some()) {
        let result = match (envelope.error, envelope.result) {
            // Some peers write `"error": null` beside each result.
            (Some("null") | None, Some(result)) => Ok(result),
            (Some(error), _) => Err(error),
            (None, None) => return Message::Blank,
        };
        return Message::Response { call: envelope.id.and_then(call_id), result };
    }
    let method = match envelope.method.map(method_name) {
        Some(Some(method)) => Ok(method),
        Some(None) => Err(Error::new(-32600, "Invalid request: `method` is not a string")),
        None => Err(Error::new(-32600, "Invalid request: `method` is missing")),
    };
    match (envelope.id.map(RequestId::parse), method) {
        (Some(Ok(id)), method) => Message::Request { id, method, params },
        (Some(Err(IdError::TooLong)), _) => Message::Bad(Error::new(
            -32600,
            format!("Invalid request: `id` is longer than {} bytes", lastword_core::REQUEST_ID_BYTES_MAX),
        )),
        (Some(Err(_)), _) => {
            Message::Bad(Error::new(-32600, "Invalid request: `id` is not a string, a number or null"))
        }
        (None, Ok(method)) => Message::Notification { method, params },
        (None, Err(error)) => Message::Bad(error),
    }
}

fn method_name(raw: &str) -> Option<Cow<'_, str>> {
    let text = raw.strip_prefix('"')?.strip_suffix('"')?;
    if text.contains('\\') {
        return serde_json::from_str::<String>(raw).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(text))
}

/// Our ids are plain integers; a peer that writes `1.0` for `1` means the same one.
fn call_id(raw: &str) -> Option<CallId> {
    if let Ok(number) = raw.parse() {
        return Some(CallId(number));
    }
    let number = raw.parse::<f64>().ok()? as u64;
    (RequestId::parse(raw).ok()? == RequestId::from(number)).then_some(CallId(number))
}

/// Whether brackets are nested too deep. Few lines have as many opening brackets at all, and counting those is fast.
fn is_too_deep(text: &str) -> bool {
    let opening = text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
    opening > NESTING_MAX && nesting(text) > NESTING_MAX
}

fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string) = (0_usize, 0, false);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                bytes.next();
            }
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Reads the parameters of a method. The error names the field that is wrong.
pub(crate) fn params<T: DeserializeOwned>(params: Option<&str>) -> Result<T, Error> {
    let text = params.unwrap_or("null");
    if text.starts_with('[') {
        return Err(Error::new(-32602, "Invalid params: `params` is an object, not an array"));
    }
    serde_json::from_str(text).map_err(|error| {
        // A second look, that keeps book of where it is, only where the first one failed.
        let mut again = serde_json::Deserializer::from_str(text);
        let text = match serde_path_to_error::deserialize::<_, T>(&mut again) {
            Err(error) if error.path().iter().next().is_some() => format!("`{}`: {}", error.path(), error.inner()),
            _ => error.to_string(),
        };
        Error::new(-32602, format!("Invalid params: {text}"))
    })
}

/// The start of a line, for the log.
pub(crate) fn excerpt(line: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&line[..line.len().min(LOGGED_BYTES_MAX)])
}

/// A value as JSON on one line: what a handler passes on unparsed may hold newlines between its tokens.
pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut json = serde_json::to_vec(value)?;
    if json.contains(&b'\n') || json.contains(&b'\r') {
        for byte in &mut json {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
    Ok(json)
}

/// What the peer refused with.
pub(crate) fn peer_error(raw: &str) -> Error {
    serde_json::from_str(raw)
        .unwrap_or_else(|wrong| Error::new(-32603, format!("the peer's error is none of JSON-RPC: {wrong}: {raw}")))
}

/// An error as it is written.
pub(crate) fn encode_error(error: &Error) -> Vec<u8> {
    encode(error).unwrap_or_else(|_| b"{\"code\":-32603,\"message\":\"Internal error\"}".to_vec())
}

/// Appends a response: the id byte for byte, and the result or the error.
pub(crate) fn write_response(out: &mut Vec<u8>, id: &str, answer: Result<&[u8], &[u8]>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_bytes());
    match answer {
        Ok(result) => {
            out.extend_from_slice(b",\"result\":");
            out.extend_from_slice(result);
        }
        Err(error) => {
            out.extend_from_slice(b",\"error\":");
            out.extend_from_slice(error);
        }
    }
    out.extend_from_slice(b"}\n");
}

/// Appends a request, or a notification where there is no id.
pub(crate) fn write_call(out: &mut Vec<u8>, id: Option<CallId>, method: &str, params: Option<&[u8]>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    // Neither a number nor a string can fail to be written to memory.
    if let Some(CallId(id)) = id {
        out.extend_from_slice(b",\"id\":");
        let _ = serde_json::to_writer(&mut *out, &id);
    }
    out.extend_from_slice(b",\"method\":");
    let _ = serde_json::to_writer(&mut *out, method);
    if let Some(params) = params {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params);
    }
    out.extend_from_slice(b"}\n");
}

/// Whether a result of a prompt says that the turn was cancelled.
pub(crate) fn is_cancelled(result: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Result<'a> {
        #[serde(borrow, rename = "stopReason")]
        stop_reason: Cow<'a, str>,
    }
    serde_json::from_slice::<Result<'_>>(result).is_ok_and(|result| result.stop_reason == "cancelled")
}

/// The notification that ends a request by its id.
pub(crate) const CANCEL_REQUEST: &str = agent_client_protocol_schema::v1::PROTOCOL_LEVEL_METHOD_NAMES.cancel_request;

/// Which request `$/cancel_request` is about: `requestId`, or `id` as the Language Server Protocol has it.
pub(crate) fn cancelled_request(raw: Option<&str>) -> Result<RequestId, Error> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "requestId", alias = "id", deserialize_with = "present")]
        id: Option<&'a str>,
    }
    let params: Params<'_> = raw
        .map_or(Ok(Params { id: None }), serde_json::from_str)
        .map_err(|error| Error::new(-32602, format!("Invalid params: {error}")))?;
    let id = params.id.ok_or_else(|| Error::new(-32602, "Invalid params: `requestId` is missing"))?;
    RequestId::parse(id).map_err(|error| Error::new(-32602, format!("Invalid params: `requestId`: {error}")))
}
