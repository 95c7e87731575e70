//! Connecting to an agent.

use std::sync::Arc;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};
use tokio_util::sync::CancellationToken;

use crate::{
    client::{Client, ClientRole},
    error::{Exit, ServeError},
    handle::{AgentHandle, Link},
    options::Options,
    serve::{End, Role, serve},
    shell::Shell,
};

/// Connects a client to the agent at the other end. Gives the handle for calls to the agent, and the future that serves
/// the connection: nothing happens unless it runs, usually in a task of its own.
///
/// The future is done when the agent has ended its side and the handlers of all that it said are done, for at most
/// [`Options::drain_max`]; [`AgentHandle::close`] asks the agent to end. Dropping the future ends the connection, every
/// handler and every call at once. It runs inside a tokio runtime with time enabled, of either flavor.
///
#[cfg_attr(unix, doc = "For an agent that is a program to be started, see [`AgentProcess`](crate::AgentProcess).")]
///
/// ```
/// use lastword::{Client, ClientContext, Options, connect, schema::ProtocolVersion, schema::v1::*};
///
/// struct Editor;
///
/// impl Client for Editor {
///     async fn session_update(&self, notification: SessionNotification, _: ClientContext) {
///         if let SessionUpdate::AgentMessageChunk(ContentChunk { content: ContentBlock::Text(text), .. }) = notification.update {
///             println!("{}", text.text);
///         }
///     }
///     async fn request_permission(
///         &self,
///         request: RequestPermissionRequest,
///         _: ClientContext,
///     ) -> Result<RequestPermissionResponse, Error> {
///         let first = SelectedPermissionOutcome::new(request.options[0].option_id.clone());
///         Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(first)))
///     }
/// }
///
/// # struct Echo;
/// # impl lastword::Agent for Echo {
/// #     async fn initialize(&self, request: InitializeRequest, _: lastword::Context) -> Result<InitializeResponse, Error> {
/// #         Ok(InitializeResponse::new(request.protocol_version))
/// #     }
/// #     async fn new_session(&self, _: NewSessionRequest, _: lastword::Context) -> Result<NewSessionResponse, Error> {
/// #         Ok(NewSessionResponse::new("session-1"))
/// #     }
/// #     async fn prompt(&self, request: PromptRequest, turn: lastword::Turn) -> Result<PromptResponse, Error> {
/// #         for block in request.prompt {
/// #             turn.update(SessionUpdate::AgentMessageChunk(ContentChunk::new(block))).await?;
/// #         }
/// #         Ok(PromptResponse::new(StopReason::EndTurn))
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (ours, theirs) = tokio::io::duplex(4096);
/// # let (reader, writer) = tokio::io::split(theirs);
/// # tokio::spawn(lastword::serve_agent(Echo, reader, writer, Options::default()));
/// # let (reader, writer) = tokio::io::split(ours);
/// let (agent, connection) = connect(Editor, reader, writer, Options::default());
/// let connection = tokio::spawn(connection);
///
/// agent.initialize(InitializeRequest::new(ProtocolVersion::V1)).await?;
/// let session = agent.new_session(NewSessionRequest::new("/")).await?.session_id;
/// let response = agent.prompt(PromptRequest::new(session, vec!["Hello".into()])).await?;
/// assert_eq!(response.stop_reason, StopReason::EndTurn);
///
/// agent.close();
/// connection.await??;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The future gives [`ServeError`] where the connection ended otherwise than by the end of its input.
pub fn connect<R, W>(
    client: impl Client,
    reader: R,
    writer: W,
    options: Options,
) -> (AgentHandle, impl Future<Output = Result<(), ServeError>> + Send + 'static)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let role = |agent| ClientRole { client: Arc::new(client), agent };
    connect_link(role, reader, writer, options, CancellationToken::new(), None)
}

/// The same for any role of the client's side, which gets a handle too.
pub(crate) fn connect_link<O: Role, R, W>(
    role: impl FnOnce(AgentHandle) -> O,
    reader: R,
    writer: W,
    options: Options,
    closing: CancellationToken,
    exit: Option<watch::Receiver<Option<Exit>>>,
) -> (AgentHandle, impl Future<Output = Result<(), ServeError>> + Send + 'static)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let shell = Arc::new(Shell::new(options));
    let end = End(Arc::clone(&shell));
    let agent = AgentHandle::new(Link { shell, closing: closing.clone(), exit });
    let role = role(agent.clone());
    (agent, async move { serve(&role, end, reader, writer, closing).await })
}
