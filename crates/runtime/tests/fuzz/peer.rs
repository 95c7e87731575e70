//! One side of a connection, with handlers that all return, and what was seen of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use lastword::{
    Agent, Client, ClientContext, Context, Options, Turn, connect,
    schema::{
        ProtocolVersion,
        v1::{
            ContentBlock, Error, ExtNotification, ExtRequest, ExtResponse, InitializeRequest, InitializeResponse,
            NewSessionRequest, NewSessionResponse, PermissionOption, PermissionOptionKind, PromptRequest,
            PromptResponse, RawValue, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
            SessionNotification, StopReason, ToolCallUpdate, ToolCallUpdateFields,
        },
    },
    serve_agent,
};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Far more than any handler takes. The clock is paused: it is over at once when nothing moves any more.
const EVER: Duration = Duration::from_secs(600);

/// The calls that the client makes, and which lines of the corpus respond to.
const CALLS: u64 = 3;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Agent,
    Client,
}

/// What was seen of a connection.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    /// How often each answer came, which is the id as it stands on the wire and what it says.
    answers: BTreeMap<(String, String), usize>,
    /// The notifications that were handled, in that order.
    handled: Vec<String>,
}

impl Seen {
    /// The id of each answer, sorted.
    pub(crate) fn ids(&self) -> Vec<String> {
        let mut ids: Vec<_> =
            self.answers.iter().flat_map(|((id, _), count)| std::iter::repeat_n(id.clone(), *count)).collect();
        ids.sort_unstable();
        ids
    }

    /// The requests that were ended by a cancel of their own.
    pub(crate) fn cancelled(&self) -> impl Iterator<Item = String> {
        self.answers.keys().filter(|(_, says)| says.contains("-32800")).map(|(id, _)| id.clone())
    }

    /// Keeps only of the answers to these ids that there were any.
    pub(crate) fn forget_reasons_of(&mut self, ids: &BTreeSet<String>) {
        for ((id, says), count) in std::mem::take(&mut self.answers) {
            let says = if ids.contains(&id) { String::new() } else { says };
            *self.answers.entry((id, says)).or_insert(0) += count;
        }
    }

    pub(crate) fn answered_probe(&self) -> bool {
        self.answers.keys().any(|(id, _)| id == r#""still there?""#)
    }
}

/// Serves one side until the input, which comes in these pieces, has ended.
pub(crate) fn run(side: Side, bytes: Vec<u8>, cuts: Vec<usize>, line_bytes_max: usize) -> Seen {
    let handled = Arc::new(Mutex::new(Vec::new()));
    let played = Played { handled: Arc::clone(&handled) };
    let written = Arc::new(Mutex::new(Vec::new()));
    let (reader, writer) = (Cut { bytes, cuts, at: 0, reads: 0, wait: true }, Kept(Arc::clone(&written)));
    let mut options = Options::default();
    options.line_bytes_max = line_bytes_max;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let served = runtime.block_on(async {
        let serving = async {
            match side {
                Side::Agent => serve_agent(played, reader, writer, options).await,
                Side::Client => {
                    let (agent, connection) = connect(played, reader, writer, options);
                    let calls: Vec<_> = (0..CALLS)
                        .map(|_| {
                            tokio::spawn(agent.ext_method(ExtRequest::new("_ask", RawValue::NULL.to_owned().into())))
                        })
                        .collect();
                    let served = connection.await;
                    for call in calls {
                        // It came back, with whatever the bytes responded to it or with the end.
                        let _ = call.await.unwrap();
                    }
                    served
                }
            }
        };
        tokio::time::timeout(EVER, serving).await.expect("nothing moves any more")
    });
    served.unwrap();
    drop(runtime);
    let written = std::mem::take(&mut *written.lock().unwrap());
    let handled = std::mem::take(&mut *handled.lock().unwrap());
    Seen { answers: answers(&written), handled }
}

#[derive(Deserialize)]
struct Line<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The answers among the lines that were written, by their errors. A result is not looked at: whether a turn was ended before
/// it was done is a matter of time, and so of the cuts.
fn answers(written: &[u8]) -> BTreeMap<(String, String), usize> {
    let mut answers = BTreeMap::new();
    assert!(written.is_empty() || written.ends_with(b"\n"), "the last line has an end");
    for line in written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let text = std::str::from_utf8(line).expect("what is written is UTF-8");
        let message: Line<'_> = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(message.jsonrpc, "2.0");
        if message.method.is_some() {
            continue;
        }
        // An id that is null is none for serde.
        let id = message.id.map_or("null", RawValue::get);
        let says = message.error.map_or("", RawValue::get);
        *answers.entry((id.to_owned(), says.to_owned())).or_insert(0) += 1;
    }
    answers
}

/// An agent and a client: it takes down what notifications it handles.
struct Played {
    handled: Arc<Mutex<Vec<String>>>,
}

impl Played {
    async fn handle(&self, notification: String) {
        // As with any work of more than one step, others come in between.
        tokio::task::yield_now().await;
        self.handled.lock().unwrap().push(notification);
    }

    fn answer(request: ExtRequest) -> Result<ExtResponse, Error> {
        match &*request.method {
            "_echo" => Ok(ExtResponse::new(request.params)),
            _ => Err(Error::new(-32601, "Method not found")),
        }
    }
}

impl Agent for Played {
    async fn initialize(&self, _: InitializeRequest, _: Context) -> Result<InitializeResponse, Error> {
        Ok(InitializeResponse::new(ProtocolVersion::V1))
    }

    async fn new_session(&self, _: NewSessionRequest, _: Context) -> Result<NewSessionResponse, Error> {
        Ok(NewSessionResponse::new("s"))
    }

    async fn prompt(&self, request: PromptRequest, turn: Turn) -> Result<PromptResponse, Error> {
        let reason = StopReason::EndTurn;
        match request.prompt.first() {
            Some(ContentBlock::Text(text)) if text.text == "ask" => {
                let call = ToolCallUpdate::new("t", ToolCallUpdateFields::new());
                let options = vec![PermissionOption::new("o", "O", PermissionOptionKind::AllowOnce)];
                let request = RequestPermissionRequest::new(turn.session().clone(), call, options);
                tokio::select! {
                    () = turn.cancellation().cancelled() => {}
                    // Whatever the bytes respond.
                    _ = turn.client().request_permission(request) => {}
                }
            }
            Some(ContentBlock::Text(text)) if text.text == "wait" => turn.cancellation().cancelled().await,
            _ => turn.say("done").await?,
        }
        Ok(PromptResponse::new(reason))
    }

    async fn ext_method(&self, request: ExtRequest, _: Context) -> Result<ExtResponse, Error> {
        Self::answer(request)
    }

    async fn ext_notification(&self, notification: ExtNotification, _: Context) {
        self.handle(format!("{} {}", notification.method, notification.params)).await;
    }
}

impl Client for Played {
    async fn session_update(&self, notification: SessionNotification, _: ClientContext) {
        self.handle(format!("{notification:?}")).await;
    }

    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled))
    }

    async fn ext_method(&self, request: ExtRequest, _: ClientContext) -> Result<ExtResponse, Error> {
        Self::answer(request)
    }

    async fn ext_notification(&self, notification: ExtNotification, _: ClientContext) {
        self.handle(format!("{} {}", notification.method, notification.params)).await;
    }
}

/// Gives the bytes in reads of these lengths; before each it is not ready once.
struct Cut {
    bytes: Vec<u8>,
    cuts: Vec<usize>,
    at: usize,
    reads: usize,
    wait: bool,
}

impl AsyncRead for Cut {
    fn poll_read(self: Pin<&mut Self>, context: &mut TaskContext<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if std::mem::replace(&mut this.wait, false) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.wait = true;
        let length = this.cuts[this.reads % this.cuts.len()].min(this.bytes.len() - this.at).min(into.remaining());
        this.reads += 1;
        into.put_slice(&this.bytes[this.at..this.at + length]);
        this.at += length;
        Poll::Ready(Ok(()))
    }
}

/// Keeps what is written.
struct Kept(Arc<Mutex<Vec<u8>>>);

impl AsyncWrite for Kept {
    fn poll_write(self: Pin<&mut Self>, _: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
