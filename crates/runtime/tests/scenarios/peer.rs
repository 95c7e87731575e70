//! The client of a scenario, and the agent whose handlers the scenario plays.

use std::time::Duration;

use lastword::{
    Agent, Context, Options, ServeError, Turn,
    schema::v1::{
        CancelNotification, CloseSessionRequest, CloseSessionResponse, Error, ExtNotification, ExtRequest, ExtResponse,
        InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
        RawValue, StopReason,
    },
    serve_agent,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf, split},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// Longer than anything in a scenario takes. With a paused clock it is over at once when nothing moves any more.
const EVER: Duration = Duration::from_secs(60);

pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(EVER, what).await.expect("nothing more happens")
}

/// A handler that was called and waits for the scenario.
pub(crate) struct Called<C, A> {
    /// What it was asked: the text of a prompt, the method of an extension, the session of another method.
    pub(crate) asked: String,
    /// Its turn or context.
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

    pub(crate) fn is_dropped(&self) -> bool {
        self.answer.is_closed()
    }
}

type Result<T> = std::result::Result<T, Error>;
pub(crate) type Prompt = Called<Turn, Result<StopReason>>;
pub(crate) type Method = Called<Context, Result<()>>;

/// Hands each handler to the scenario.
struct Played {
    prompts: mpsc::UnboundedSender<Prompt>,
    methods: mpsc::UnboundedSender<Method>,
}

impl Played {
    async fn play(&self, asked: &str, context: Context) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let _ = self.methods.send(Called { asked: asked.to_owned(), context, answer });
        // A scenario that lets go of a handler wants it deaf.
        match answered.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Agent for Played {
    async fn initialize(&self, request: InitializeRequest, _: Context) -> Result<InitializeResponse> {
        Ok(InitializeResponse::new(request.protocol_version))
    }

    async fn new_session(&self, _: NewSessionRequest, _: Context) -> Result<NewSessionResponse> {
        Ok(NewSessionResponse::new("s"))
    }

    async fn prompt(&self, request: PromptRequest, turn: Turn) -> Result<PromptResponse> {
        let asked = serde_json::to_value(&request.prompt).unwrap()[0]["text"].as_str().unwrap_or_default().to_owned();
        match asked.as_str() {
            "at once" => return Ok(PromptResponse::new(StopReason::EndTurn)),
            "panic" => panic!("as the prompt says"),
            _ => {}
        }
        let (answer, answered) = oneshot::channel();
        let _ = self.prompts.send(Called { asked, context: turn, answer });
        match answered.await {
            Ok(answer) => answer.map(PromptResponse::new),
            Err(_) => std::future::pending().await,
        }
    }

    async fn cancel(&self, notification: CancelNotification, context: Context) {
        let _ = self.play(&format!("cancel {}", notification.session_id.0), context).await;
    }

    async fn close_session(&self, request: CloseSessionRequest, context: Context) -> Result<CloseSessionResponse> {
        self.play(&format!("close {}", request.session_id.0), context).await?;
        Ok(CloseSessionResponse::new())
    }

    async fn ext_method(&self, request: ExtRequest, context: Context) -> Result<ExtResponse> {
        if &*request.method == "_echo" {
            return Ok(ExtResponse::new(request.params));
        }
        self.play(&request.method, context).await?;
        Ok(ExtResponse::new(RawValue::NULL.to_owned().into()))
    }

    async fn ext_notification(&self, notification: ExtNotification, context: Context) {
        let _ = self.play(&notification.method, context).await;
    }
}

/// The client's end.
pub(crate) struct Peer {
    reader: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: Option<WriteHalf<DuplexStream>>,
    prompts: mpsc::UnboundedReceiver<Prompt>,
    methods: mpsc::UnboundedReceiver<Method>,
    pub(crate) served: JoinHandle<std::result::Result<(), ServeError>>,
}

impl Peer {
    pub(crate) fn start() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        Self::with_pipe(options, 1 << 20)
    }

    /// With so many bytes of room in the stream each way.
    pub(crate) fn with_pipe(options: Options, bytes: usize) -> Self {
        crate::trace::record();
        let (ours, theirs) = tokio::io::duplex(bytes);
        let (agent_reader, agent_writer) = split(theirs);
        let (reader, writer) = split(ours);
        let (prompts_in, prompts) = mpsc::unbounded_channel();
        let (methods_in, methods) = mpsc::unbounded_channel();
        let agent = Played { prompts: prompts_in, methods: methods_in };
        let served = tokio::spawn(serve_agent(agent, agent_reader, agent_writer, options));
        Self { reader: BufReader::new(reader).lines(), writer: Some(writer), prompts, methods, served }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.writer.as_mut().unwrap().write_all(bytes.as_ref())).await.unwrap();
    }

    /// Sends lines in one write.
    pub(crate) async fn lines(&mut self, lines: &[String]) {
        self.send(lines.iter().map(|line| format!("{line}\n")).collect::<String>()).await;
    }

    pub(crate) async fn end_input(&mut self) {
        self.writer.take().unwrap().shutdown().await.unwrap();
    }

    /// The next line of the agent, as it stands on the wire; none at the end.
    pub(crate) async fn line(&mut self) -> Option<String> {
        soon(self.reader.next_line()).await.unwrap()
    }

    /// The next message of the agent.
    pub(crate) async fn message(&mut self) -> Value {
        serde_json::from_str(&self.line().await.expect("the agent's output ended")).unwrap()
    }

    /// The next message of the agent answers this request; gives its stop reason, or its error's code.
    pub(crate) async fn answer(&mut self, id: impl Into<Value>) -> Value {
        let message = self.message().await;
        assert_eq!(message["id"], id.into(), "{message}");
        match message["error"]["code"].as_i64() {
            Some(code) => code.into(),
            None => message["result"]["stopReason"].clone(),
        }
    }

    /// The next prompt whose handler was called.
    pub(crate) async fn prompt(&mut self, asked: &str) -> Prompt {
        let prompt = soon(self.prompts.recv()).await.unwrap();
        assert_eq!(prompt.asked, asked);
        prompt
    }

    /// The next other handler that was called.
    pub(crate) async fn method(&mut self, asked: &str) -> Method {
        let method = soon(self.methods.recv()).await.unwrap();
        assert_eq!(method.asked, asked);
        method
    }

    /// Whether no handler was called that the scenario does not know of.
    pub(crate) fn no_prompt(&mut self) -> bool {
        self.prompts.is_empty()
    }

    pub(crate) fn no_method(&mut self) -> bool {
        self.methods.is_empty()
    }

    /// From now on every handler of a method or a notification returns at once.
    pub(crate) fn answer_methods(&mut self) {
        let (_, none) = mpsc::unbounded_channel();
        let mut methods = std::mem::replace(&mut self.methods, none);
        tokio::spawn(async move {
            while let Some(method) = methods.recv().await {
                method.answer(Ok(()));
            }
        });
    }

    /// Everything the agent still had to say, once it ended well.
    pub(crate) async fn rest(mut self) -> Vec<String> {
        if self.writer.is_some() {
            self.end_input().await;
        }
        let mut rest = Vec::new();
        while let Some(line) = self.line().await {
            rest.push(line);
        }
        soon(self.served).await.unwrap().unwrap();
        rest
    }
}

pub(crate) fn prompt(id: u64, session: &str, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"{session}","prompt":[{{"type":"text","text":"{text}"}}]}}}}"#
    )
}

pub(crate) fn cancel(session: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"{session}"}}}}"#)
}

pub(crate) fn cancel_as_request(id: u64, session: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"session/cancel","params":{{"sessionId":"{session}"}}}}"#)
}

pub(crate) fn cancel_request(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#)
}

pub(crate) fn request(id: u64, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
}

pub(crate) fn notification(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)
}
