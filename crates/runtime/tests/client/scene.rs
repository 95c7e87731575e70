//! The client whose handlers a scenario plays, and the agent at the other end.

use std::{fmt::Display, time::Duration};

use lastword::{
    Agent, AgentHandle, Client, ClientContext, Context, Options, ServeError, Turn, connect,
    schema::v1::{
        CompleteElicitationNotification, ContentBlock, ContentChunk, Error, ExtNotification, ExtRequest, ExtResponse,
        InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
        RawValue, ReadTextFileRequest, ReadTextFileResponse, RequestPermissionOutcome, RequestPermissionRequest,
        RequestPermissionResponse, SelectedPermissionOutcome, SessionNotification, SessionUpdate, StopReason,
    },
    serve_agent,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream, split},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// Longer than anything in a scenario takes. With a paused clock it is over at once when nothing moves any more.
const EVER: Duration = Duration::from_secs(60);

/// How much each direction of a connection holds, as a pipe of Linux.
const PIPE_BYTES: usize = 64 << 10;

pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(EVER, what).await.expect("nothing more happens")
}

/// A handler that was called and waits for the scenario.
pub(crate) struct Called<C, A> {
    pub(crate) asked: String,
    pub(crate) context: C,
    answer: oneshot::Sender<A>,
}

impl<C, A> Called<C, A> {
    pub(crate) fn answer(self, answer: A) {
        assert!(self.answer.send(answer).is_ok(), "the handler of {:?} was dropped", self.asked);
    }

    /// Waits until the handler has been dropped.
    pub(crate) async fn dropped(&mut self) {
        soon(self.answer.closed()).await;
    }
}

/// A handler of the client; the answer is what a request gives: the option to select, the text of a file.
pub(crate) type Handler = Called<ClientContext, Result<String, Error>>;
pub(crate) type Prompt = Called<Turn, Result<StopReason, Error>>;

/// A client that hands its handlers to the scenario: those of `session/update`, `session/request_permission`,
/// `fs/read_text_file` and of extensions. It has no terminals.
pub(crate) struct Played(mpsc::UnboundedSender<Handler>);

impl Played {
    pub(crate) fn new() -> (Self, Handlers) {
        let (handlers_in, handlers) = mpsc::unbounded_channel();
        (Self(handlers_in), Handlers(handlers))
    }

    async fn play(&self, asked: impl Into<String>, context: ClientContext) -> Result<String, Error> {
        let (answer, answered) = oneshot::channel();
        let _ = self.0.send(Called { asked: asked.into(), context, answer });
        match answered.await {
            Ok(answer) => answer,
            // A scenario that lets go of a handler wants it deaf.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Client for Played {
    async fn session_update(&self, notification: SessionNotification, context: ClientContext) {
        match text(&notification.update) {
            "panic" => panic!("as the update says"),
            text => drop(self.play(format!("update {text}"), context).await),
        }
    }

    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        context: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let option = self.play(format!("permission {}", request.session_id.0), context).await?;
        let selected = SelectedPermissionOutcome::new(option);
        Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(selected)))
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        context: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        self.play(format!("read {}", request.path.display()), context).await.map(ReadTextFileResponse::new)
    }

    async fn complete_elicitation(&self, notification: CompleteElicitationNotification, context: ClientContext) {
        let _ = self.play(format!("complete {}", notification.elicitation_id.0), context).await;
    }

    async fn ext_method(&self, request: ExtRequest, context: ClientContext) -> Result<ExtResponse, Error> {
        let text = self.play(&*request.method, context).await?;
        Ok(ExtResponse::new(RawValue::from_string(text).unwrap().into()))
    }

    async fn ext_notification(&self, notification: ExtNotification, context: ClientContext) {
        let _ = self.play(&*notification.method, context).await;
    }
}

/// The handlers of the client that were called, in that order.
pub(crate) struct Handlers(mpsc::UnboundedReceiver<Handler>);

impl Handlers {
    /// The next handler that was called is this one.
    pub(crate) async fn next(&mut self, asked: &str) -> Handler {
        let handler = self.any().await;
        assert_eq!(handler.asked, asked);
        handler
    }

    /// The next handler that was called.
    pub(crate) async fn any(&mut self) -> Handler {
        soon(self.0.recv()).await.unwrap()
    }

    /// The next handlers were called one after the other; each returns at once.
    pub(crate) async fn updates<T: Display>(&mut self, texts: impl IntoIterator<Item = T>) {
        for text in texts {
            self.next(&format!("update {text}")).await.answer(Ok(String::new()));
        }
    }

    /// Whether no handler was called that the scenario does not know of.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A connection, at the client's end.
pub(crate) struct Scene {
    pub(crate) agent: AgentHandle,
    pub(crate) handlers: Handlers,
    pub(crate) served: JoinHandle<Result<(), ServeError>>,
}

impl Scene {
    fn over<R, W>(reader: R, writer: W, options: Options) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (client, handlers) = Played::new();
        let (agent, connection) = connect(client, reader, writer, options);
        Self { agent, handlers, served: tokio::spawn(connection) }
    }

    /// The agent is what the scenario says, line by line.
    pub(crate) fn with_lines(options: Options) -> (Self, Lines) {
        // Two pipes, of which each may break alone.
        let (our_input, their_output) = tokio::io::duplex(PIPE_BYTES);
        let (our_output, their_input) = tokio::io::duplex(PIPE_BYTES);
        let lines = Lines { reader: BufReader::new(their_input).lines(), writer: Some(their_output) };
        (Self::over(our_input, our_output, options), lines)
    }

    pub(crate) fn raw() -> (Self, Lines) {
        Self::with_lines(Options::default())
    }

    /// The agent is served by this crate.
    pub(crate) fn with_agent(agent: impl Agent) -> Self {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (reader, writer) = split(theirs);
        tokio::spawn(serve_agent(agent, reader, writer, Options::default()));
        let (reader, writer) = split(ours);
        Self::over(reader, writer, Options::default())
    }

    /// The agent is served by this crate, and the scenario plays its prompts.
    pub(crate) fn with_prompts() -> (Self, Prompts) {
        let (prompts_in, prompts) = mpsc::unbounded_channel();
        (Self::with_agent(Prompted(prompts_in)), Prompts(prompts))
    }

    /// Ends the connection from this side; it must end well.
    pub(crate) async fn end(self) {
        self.agent.close();
        soon(self.served).await.unwrap().unwrap();
        assert!(self.handlers.is_empty());
    }

    pub(crate) fn prompt(&self, session: &str, text: &str) -> JoinHandle<Result<StopReason, lastword::CallError>> {
        let call = self.agent.prompt(PromptRequest::new(session.to_owned(), vec![text.into()]));
        tokio::spawn(async move { call.await.map(|response| response.stop_reason) })
    }
}

struct Prompted(mpsc::UnboundedSender<Prompt>);

impl Agent for Prompted {
    async fn initialize(&self, request: InitializeRequest, _: Context) -> Result<InitializeResponse, Error> {
        Ok(InitializeResponse::new(request.protocol_version))
    }

    async fn new_session(&self, _: NewSessionRequest, _: Context) -> Result<NewSessionResponse, Error> {
        Ok(NewSessionResponse::new("s"))
    }

    async fn prompt(&self, request: PromptRequest, turn: Turn) -> Result<PromptResponse, Error> {
        let asked = request.prompt.iter().map(block_text).collect();
        let (answer, answered) = oneshot::channel();
        let _ = self.0.send(Called { asked, context: turn, answer });
        match answered.await {
            Ok(answer) => answer.map(PromptResponse::new),
            Err(_) => std::future::pending().await,
        }
    }

    async fn ext_method(&self, request: ExtRequest, _: Context) -> Result<ExtResponse, Error> {
        Ok(ExtResponse::new(request.params))
    }
}

/// The prompts whose handlers were called, in that order.
pub(crate) struct Prompts(mpsc::UnboundedReceiver<Prompt>);

impl Prompts {
    pub(crate) async fn next(&mut self, asked: &str) -> Prompt {
        let prompt = soon(self.0.recv()).await.unwrap();
        assert_eq!(prompt.asked, asked);
        prompt
    }
}

/// An agent, line by line.
pub(crate) struct Lines {
    reader: tokio::io::Lines<BufReader<DuplexStream>>,
    writer: Option<DuplexStream>,
}

impl Lines {
    /// Sends lines in one write.
    pub(crate) async fn send(&mut self, lines: &[String]) {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        soon(self.writer.as_mut().unwrap().write_all(lines.as_bytes())).await.unwrap();
    }

    pub(crate) fn end(&mut self) {
        self.writer = None;
    }

    /// Reads nothing any more: what the client writes fails.
    pub(crate) fn close_input(&mut self) {
        let (closed, _) = tokio::io::duplex(1);
        self.reader = BufReader::new(closed).lines();
    }

    /// The next message of the client; none at its end.
    pub(crate) async fn message(&mut self) -> Option<Value> {
        Some(serde_json::from_str(&soon(self.reader.next_line()).await.unwrap()?).unwrap())
    }

    /// The next message of the client calls this method; gives its id.
    pub(crate) async fn call(&mut self, method: &str) -> Value {
        let message = self.message().await.unwrap();
        assert_eq!(message["method"], method, "{message}");
        message["id"].clone()
    }
}

pub(crate) fn update(text: impl Display) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
    )
}

pub(crate) fn request(id: u64, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
}

pub(crate) fn result(id: &Value, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

pub(crate) fn ask(method: &str) -> ExtRequest {
    ExtRequest::new(method, RawValue::from_string("7".to_owned()).unwrap().into())
}

fn text(update: &SessionUpdate) -> &str {
    match update {
        SessionUpdate::AgentMessageChunk(ContentChunk { content, .. }) => block_text(content),
        other => panic!("{other:?}"),
    }
}

fn block_text(block: &ContentBlock) -> &str {
    match block {
        ContentBlock::Text(text) => &text.text,
        other => panic!("{other:?}"),
    }
}
