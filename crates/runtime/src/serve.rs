//! Serving a connection: the reader that decides at the door, the writer that batches, and the end.

use std::{io, pin::pin, sync::Arc};

use agent_client_protocol_schema::v1::Error;
use lastword_core::{CallId, Effect, Effects, SessionId, Step};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{Agent, AgentRole},
    error::ServeError,
    handler,
    options::Options,
    relay::{self, Relay},
    shell::{Shell, Start, State, With},
    wire::{self, Line, Lines, Message},
};

/// What the messages of the peer mean, which depends on the side that we are on.
pub(crate) trait Role: Send + Sync + 'static {
    /// Whether to read on once the peer does not. What an agent said before it died matters to its client; a client that
    /// cannot be answered asks for nothing.
    const HEARS_OUT: bool;

    /// A request is always taken in: the handler of one that cannot be understood answers with the error.
    fn request(&self, method: &str, params: Option<&str>) -> Request<'_>;
    /// Where nobody handles it, the error says why.
    fn notification(&self, method: &str, params: Option<&str>) -> Result<Notification<'_>, Error>;

    /// Something was read.
    fn heard(&self) {}

    /// Where messages are passed on to, if they are. A message is then taken in only while there is room for it there, and one
    /// that is passed on waits until the tasks that earlier ones started or woke have run: so what is said there is in order.
    fn relay(&self) -> Option<&Arc<Relay>> {
        None
    }
}

pub(crate) enum Request<'a> {
    Prompt(SessionId, Start),
    /// It ends the prompts of its session that arrived before it.
    EndsPrompts(SessionId, Start),
    Other(Start),
    /// It is passed on.
    PassedOn(&'a Arc<Relay>),
}

pub(crate) enum Notification<'a> {
    /// It ends the prompts of its session that arrived before it.
    EndsPrompts(SessionId, Start),
    Other(Start),
    /// It is passed on.
    PassedOn(&'a Arc<Relay>),
}

/// Serves an agent to the client at the other end, until the client ends its side.
///
/// At the end of input every turn is ended, other handlers finish, what is owed is written, all within
/// [`Options::drain_max`]. Dropping the future ends the connection and every handler at once. It runs inside a tokio runtime
/// with time enabled, of either flavor.
///
/// ```
/// use lastword::{Agent, Context, Options, Turn, schema::v1::*, serve_agent};
/// use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
///
/// struct Echo;
///
/// impl Agent for Echo {
///     async fn initialize(&self, request: InitializeRequest, _: Context) -> Result<InitializeResponse, Error> {
///         Ok(InitializeResponse::new(request.protocol_version))
///     }
///     async fn new_session(&self, _: NewSessionRequest, _: Context) -> Result<NewSessionResponse, Error> {
///         Ok(NewSessionResponse::new("session-1"))
///     }
///     async fn prompt(&self, request: PromptRequest, turn: Turn) -> Result<PromptResponse, Error> {
///         for block in request.prompt {
///             turn.update(SessionUpdate::AgentMessageChunk(ContentChunk::new(block))).await?;
///         }
///         Ok(PromptResponse::new(StopReason::EndTurn))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (ours, theirs) = tokio::io::duplex(4096);
/// let (reader, writer) = tokio::io::split(ours);
/// let agent = tokio::spawn(serve_agent(Echo, reader, writer, Options::default()));
///
/// let (reader, mut client) = tokio::io::split(theirs);
/// let prompt = r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"session-1","prompt":[]}}"#;
/// client.write_all(format!("{prompt}\n").as_bytes()).await.unwrap();
/// client.shutdown().await.unwrap();
///
/// let mut lines = BufReader::new(reader).lines();
/// let response = lines.next_line().await.unwrap().unwrap();
/// assert_eq!(response, r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#);
/// agent.await.unwrap().unwrap();
/// # }
/// ```
///
/// # Errors
///
/// [`ServeError`] where the connection ended otherwise than by the end of its input.
pub async fn serve_agent<R, W>(agent: impl Agent, reader: R, writer: W, options: Options) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let end = End(Arc::new(Shell::new(options)));
    serve(&AgentRole { agent: Arc::new(agent) }, end, reader, writer, CancellationToken::new()).await
}

/// Reads, decides and writes, all in this one future; only handlers have tasks of their own. Our side ends when `closing`
/// fires, the whole when the peer has ended its side.
pub(crate) async fn serve<O: Role, R, W>(
    role: &O,
    end: End,
    reader: R,
    writer: W,
    closing: CancellationToken,
) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let shell = &end.0;
    let ending = CancellationToken::new();
    let lines = Lines::new(reader, shell.options.line_bytes_max);
    let mut reader = Reader { shell, role, lines, ending: ending.clone() };
    let mut reading = pin!(reader.read());
    let mut drained = pin!(async {
        ending.cancelled().await;
        if shell.is_gated() {
            // The checker decides when time is over.
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(shell.options.drain_max).await;
    });
    let closed = CancellationToken::new();
    let mut write = Box::pin(write(shell, writer, &closing, &closed));
    let mut write_error = None;
    let taken_in = loop {
        tokio::select! {
            // What is ready to be written goes out first; then there is room to take more in.
            biased;
            // The writer comes to an end only where it fails.
            error = &mut write, if write_error.is_none() => {
                write_error = Some(ServeError::Write(error));
                shell.close();
                ending.cancel();
                if !O::HEARS_OUT {
                    break Ok(());
                }
            }
            // The input ended, or the connection must be closed.
            taken_in = &mut reading => break taken_in,
            // The input ended, and the peer does not read what it would have to before the last lines can be taken in; or
            // the output failed, and the input does not end.
            () = &mut drained => return Err(write_error.unwrap_or_else(|| unfinished(shell))),
        }
    };
    ending.cancel();
    let mut finish = pin!(async {
        // Nothing arrives after it, so it is owed.
        let _ = shell.step(Step::InputEnded, With::Nothing).await;
        shell.until(|state| state.core.is_over() && state.unwritten() == 0).await;
    });
    let finished = loop {
        tokio::select! {
            biased;
            // All is done, and written.
            () = &mut finish => break Ok(()),
            // The peer is gone. It learns nothing more, so what is done for it need not be finished.
            error = &mut write, if write_error.is_none() => {
                write_error = Some(ServeError::Write(error));
                shell.close();
                if !O::HEARS_OUT {
                    break Ok(());
                }
            }
            // A handler or the peer took too long.
            () = &mut drained => break Err(unfinished(shell)),
        }
    };
    taken_in.and(write_error.map_or(Ok(()), Err)).and(finished)?;
    closing.cancel();
    tokio::select! {
        biased;
        // The peer is told that nothing more comes. One that is gone needs no telling.
        () = closed.cancelled() => {}
        _ = &mut write => {}
        () = &mut drained => {}
    }
    Ok(())
}

fn unfinished(shell: &Shell) -> ServeError {
    let state = shell.lock();
    ServeError::Unfinished { requests: state.core.requests_in_flight(), bytes: state.unwritten() }
}

/// Whatever ends the serve future, or drops it before it began, ends the tasks of its handlers.
pub(crate) struct End(pub(crate) Arc<Shell>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Writes all that is ready in one go, and flushes when nothing more is. Gives the error that ended it.
async fn write(
    shell: &Shell,
    mut writer: impl AsyncWrite + Unpin,
    closing: &CancellationToken,
    closed: &CancellationToken,
) -> io::Error {
    let mut batch = Vec::new();
    let mut closing = pin!(closing.cancelled());
    loop {
        if batch.capacity() > wire::KEPT_BYTES_MAX {
            batch = Vec::new();
        }
        tokio::select! {
            biased;
            // There is something to write.
            () = shell.take_output(&mut batch) => {}
            // There is not, and nothing more is to come.
            () = &mut closing => break,
        }
        if let Err(error) = writer.write_all(&batch).await {
            return error;
        }
        if shell.is_drained()
            && let Err(error) = writer.flush().await
        {
            return error;
        }
        shell.output_written();
    }
    let rest = shell.close();
    if let Err(error) = writer.write_all(&rest).await {
        return error;
    }
    // The other half of a split stream may live on, so the peer is told. One that is gone needs no telling.
    let _ = writer.shutdown().await;
    // A pipe is closed by nothing else.
    drop(writer);
    closed.cancel();
    std::future::pending().await
}

struct Reader<'a, R, O> {
    shell: &'a Arc<Shell>,
    role: &'a O,
    lines: Lines<R>,
    /// Fires when the end of input was read, though perhaps not all lines before it were taken in.
    ending: CancellationToken,
}

impl<R: AsyncRead + Unpin, O: Role> Reader<'_, R, O> {
    /// Takes in one line after the other, each completely before the next, until the input ends.
    async fn read(&mut self) -> Result<(), ServeError> {
        loop {
            loop {
                if let Some(relay) = self.role.relay()
                    && !relay.has_room()
                {
                    self.wait(relay.room()).await?;
                }
                match self.lines.take() {
                    Some(Line::Whole(line)) => {
                        if let Some(lack) = take_in(self.shell, self.role, line).await? {
                            let line = line.to_vec();
                            self.take_in_later(&line, lack).await?;
                        }
                    }
                    Some(Line::TooLong) => {
                        too_long(self.shell);
                        self.wait_for(Lack::Output).await?;
                    }
                    None => break,
                }
            }
            // The handlers that were started come first, and then more is taken in.
            tokio::task::yield_now().await;
            self.shell.until_begun().await;
            if !self.fill().await? {
                break;
            }
        }
        let rest = self.lines.take_rest().to_vec();
        if let Message::Bad(error) = wire::decode(&rest) {
            tracing::error!(connection = self.shell.number, line = %wire::excerpt(&rest), "the input ended within a line: {error}");
            return Ok(());
        }
        match take_in(self.shell, self.role, &rest).await? {
            Some(lack) => self.take_in_later(&rest, lack).await,
            None => Ok(()),
        }
    }

    async fn take_in_later(&mut self, line: &[u8], lack: Lack) -> Result<(), ServeError> {
        let mut lack = Some(lack);
        while let Some(lacking) = lack {
            self.wait_for(lacking).await?;
            lack = take_in(self.shell, self.role, line).await?;
        }
        Ok(())
    }

    async fn wait_for(&mut self, lack: Lack) -> Result<(), ServeError> {
        let shell = self.shell;
        self.wait(shell.until(|state| !lack.is_in(state, &shell.options))).await
    }

    async fn fill(&mut self) -> Result<bool, ServeError> {
        let more = self.lines.fill().await.map_err(ServeError::Read)?;
        if !more {
            self.ending.cancel();
        } else {
            self.role.heard();
        }
        Ok(more)
    }

    /// Waits, and reads ahead meanwhile so that the end of input is noticed.
    async fn wait(&mut self, waited: impl Future<Output = ()>) -> Result<(), ServeError> {
        let mut waited = pin!(waited);
        loop {
            let may_read = !self.lines.has_ended() && self.lines.ahead() < self.shell.options.read_ahead_bytes_max;
            tokio::select! {
                biased;
                // It is so.
                () = &mut waited => return Ok(()),
                // More was read, or the input has ended.
                more = self.fill(), if may_read => more?,
            };
        }
    }
}

fn too_long(shell: &Shell) {
    let bytes = shell.options.line_bytes_max;
    tracing::warn!(connection = shell.number, "a line is longer than {bytes} bytes and was skipped");
    shell.answer_nobody(&Error::new(-32600, format!("Invalid request: the line is longer than {bytes} bytes")));
}

/// What a line has to wait for.
#[derive(Clone, Copy)]
enum Lack {
    /// While the peer does not read, nothing is taken in that has to be answered. All else is: perhaps the peer does not read
    /// because what it says is not taken in.
    Output,
    /// A notification waits while too many do.
    Queue,
}

impl Lack {
    fn is_in(self, state: &State, options: &Options) -> bool {
        match self {
            Self::Output => state.unwritten() >= options.out_bytes_max,
            Self::Queue => !state.core.has_room(),
        }
    }
}

/// Takes in a line, unless it has to wait for something; then nothing has happened.
async fn take_in<O: Role>(shell: &Arc<Shell>, role: &O, line: &[u8]) -> Result<Option<Lack>, ServeError> {
    let message = wire::decode(line);
    let lack = match message {
        Message::Request { .. } | Message::Bad(_) => Some(Lack::Output),
        Message::Notification { ref method, .. } if method != wire::CANCEL_REQUEST => Some(Lack::Queue),
        _ => None,
    };
    if lack.is_some_and(|lack| lack.is_in(&shell.lock(), &shell.options)) {
        return Ok(lack);
    }
    let arrived = arrived(shell, role, line, message);
    let passes_on = match arrived {
        Arrived::PassedOn(..) => true,
        Arrived::Response(..) => role.relay().is_some(),
        Arrived::Step(..) | Arrived::DealtWith => false,
    };
    if passes_on && shell.has_woken() {
        tokio::task::yield_now().await;
    }
    let result = match arrived {
        Arrived::Response(call, response) => {
            shell.hold(&Step::ResponseArrived { call }).await;
            if let Err(error) = shell.response_arrived(call, response) {
                tracing::warn!(connection = shell.number, "a response to no call: {error}");
            }
            return Ok(None);
        }
        Arrived::Step(step, with) => shell.step(step, with).await,
        Arrived::PassedOn(step, relay, message) => relay.arrive(step, &message),
        Arrived::DealtWith => return Ok(None),
    };
    let closes = |effects: &Effects| effects.iter().any(|effect| matches!(effect, Effect::Close(_)));
    // What else arrives is always owed.
    if result.is_ok_and(|effects| closes(&effects)) {
        let queued = shell.lock().core.notifications_queued();
        return Err(ServeError::NotificationsStuck { queued });
    }
    Ok(None)
}

/// What a line comes to.
enum Arrived<'a> {
    Step(Step, With<'static>),
    PassedOn(Step, &'a Arc<Relay>, relay::Message<'a>),
    Response(CallId, Result<&'a str, &'a str>),
    DealtWith,
}

fn arrived<'a>(shell: &Shell, role: &'a impl Role, line: &[u8], message: Message<'a>) -> Arrived<'a> {
    match message {
        Message::Request { id, method, params } => {
            let request = match &method {
                Ok(method) => role.request(method, params),
                Err(error) => Request::Other(handler::refuse(error.clone())),
            };
            match request {
                Request::Prompt(session, start) => {
                    Arrived::Step(Step::PromptArrived { id, session }, With::Message(start))
                }
                Request::EndsPrompts(session, start) => {
                    Arrived::Step(Step::CancelArrived { id: Some(id), session }, With::Message(start))
                }
                Request::Other(start) => Arrived::Step(Step::RequestArrived { id }, With::Message(start)),
                Request::PassedOn(relay) => {
                    let method = method.unwrap_or_default();
                    let message = relay::Message { is_request: true, method, params };
                    Arrived::PassedOn(Step::RequestArrived { id }, relay, message)
                }
            }
        }
        Message::Notification { method, params } if method == wire::CANCEL_REQUEST => {
            match wire::cancelled_request(params) {
                Ok(id) => Arrived::Step(Step::RequestCancelArrived { id }, With::Nothing),
                Err(error) => ignore(shell, &method, &error),
            }
        }
        Message::Notification { method, params } => match role.notification(&method, params) {
            Ok(Notification::EndsPrompts(session, start)) => {
                Arrived::Step(Step::CancelArrived { id: None, session }, With::Message(start))
            }
            Ok(Notification::Other(start)) => Arrived::Step(Step::NotificationArrived, With::Message(start)),
            Ok(Notification::PassedOn(relay)) => {
                let message = relay::Message { is_request: false, method, params };
                Arrived::PassedOn(Step::NotificationArrived, relay, message)
            }
            Err(error) => ignore(shell, &method, &error),
        },
        Message::Response { call: Some(call), result } => Arrived::Response(call, result),
        Message::Response { call: None, .. } => {
            tracing::warn!(connection = shell.number, line = %wire::excerpt(line), "a response to no call");
            Arrived::DealtWith
        }
        Message::Bad(error) => {
            shell.log_bad(line, &error);
            shell.answer_nobody(&error);
            Arrived::DealtWith
        }
        Message::Blank => Arrived::DealtWith,
    }
}

/// A notification cannot be answered, so one that nobody handles is logged: quietly where its method is not known.
fn ignore(shell: &Shell, method: &str, error: &Error) -> Arrived<'static> {
    if i32::from(error.code) == -32601 {
        tracing::debug!(connection = shell.number, method, "a notification that nobody handles was ignored");
    } else {
        tracing::warn!(connection = shell.number, method, "a notification was ignored: {error}");
    }
    Arrived::DealtWith
}
