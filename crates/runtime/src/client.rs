//! The client's side of the protocol: what a client implements, and which method goes where.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES as METHODS, CompleteElicitationNotification, CreateElicitationRequest,
    CreateElicitationResponse, CreateTerminalRequest, CreateTerminalResponse, Error, ExtNotification, ExtRequest,
    ExtResponse, KillTerminalRequest, KillTerminalResponse, ReadTextFileRequest, ReadTextFileResponse,
    ReleaseTerminalRequest, ReleaseTerminalResponse, RequestPermissionRequest, RequestPermissionResponse,
    SessionNotification, TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest,
    WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;

use crate::{
    handle::AgentHandle,
    handler::{self, not_found, raw, refuse},
    serve::{Notification, Request, Role},
    shell::Start,
    turn::Context,
    wire,
};

/// A client, usually an editor: what it does for each message of the agent.
///
/// Notifications are handled one at a time, in the order in which they arrived. The handler of a request starts once the
/// notifications that arrived before it were handled; otherwise requests run at the same time, each in a task of its own.
/// Whatever is not implemented is answered "method not found", and should not be among the capabilities that
/// `initialize` says. A handler that panics is answered with an internal error. A handler must not block its thread.
pub trait Client: Send + Sync + 'static {
    /// `session/update`
    fn session_update(
        &self,
        notification: SessionNotification,
        context: ClientContext,
    ) -> impl Future<Output = ()> + Send;

    /// `session/request_permission`. Where the agent takes its question back, the context's token fires.
    fn request_permission(
        &self,
        request: RequestPermissionRequest,
        context: ClientContext,
    ) -> impl Future<Output = Result<RequestPermissionResponse, Error>> + Send;

    /// `fs/read_text_file`
    fn read_text_file(
        &self,
        _request: ReadTextFileRequest,
        _context: ClientContext,
    ) -> impl Future<Output = Result<ReadTextFileResponse, Error>> + Send {
        async { Err(not_found(METHODS.fs_read_text_file)) }
    }

    /// `fs/write_text_file`
    fn write_text_file(
        &self,
        _request: WriteTextFileRequest,
        _context: ClientContext,
    ) -> impl Future<Output = Result<WriteTextFileResponse, Error>> + Send {
        async { Err(not_found(METHODS.fs_write_text_file)) }
    }

    /// `terminal/create`
    fn create_terminal(
        &self,
        _request: CreateTerminalRequest,
        _context: ClientContext,
    ) -> impl Future<Output = Result<CreateTerminalResponse, Error>> + Send {
        async { Err(not_found(METHODS.terminal_create)) }
    }

    /// `terminal/output`
    fn terminal_output(
        &self,
        _request: TerminalOutputRequest,
        _context: ClientContext,
    ) -> impl Future<Output = Result<TerminalOutputResponse, Error>> + Send {
        async { Err(not_found(METHODS.terminal_output)) }
    }

    /// `terminal/wait_for_exit`
    fn wait_for_terminal_exit(
        &self,
        _request: WaitForTerminalExitRequest,
        _context: ClientContext,
    ) -> impl Future<Output = Result<WaitForTerminalExitResponse, Error>> + Send {
        async { Err(not_found(METHODS.terminal_wait_for_exit)) }
    }

    /// `terminal/kill`
    fn kill_terminal(
        &self,
        _request: KillTerminalRequest,
        _context: ClientContext,
    ) -> impl Future<Output = Result<KillTerminalResponse, Error>> + Send {
        async { Err(not_found(METHODS.terminal_kill)) }
    }

    /// `terminal/release`
    fn release_terminal(
        &self,
        _request: ReleaseTerminalRequest,
        _context: ClientContext,
    ) -> impl Future<Output = Result<ReleaseTerminalResponse, Error>> + Send {
        async { Err(not_found(METHODS.terminal_release)) }
    }

    /// `elicitation/create`
    fn create_elicitation(
        &self,
        _request: CreateElicitationRequest,
        _context: ClientContext,
    ) -> impl Future<Output = Result<CreateElicitationResponse, Error>> + Send {
        async { Err(not_found(METHODS.elicitation_create)) }
    }

    /// `elicitation/complete`
    fn complete_elicitation(
        &self,
        _notification: CompleteElicitationNotification,
        _context: ClientContext,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// A method of an extension; its name begins with `_`.
    fn ext_method(
        &self,
        request: ExtRequest,
        _context: ClientContext,
    ) -> impl Future<Output = Result<ExtResponse, Error>> + Send {
        async move { Err(not_found(&request.method)) }
    }

    /// A notification of an extension; its name begins with `_`.
    fn ext_notification(
        &self,
        _notification: ExtNotification,
        _context: ClientContext,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// The surroundings of a client's handler: the agent to call, and the token that tells the handler to end.
#[derive(Clone)]
pub struct ClientContext {
    context: Context,
    agent: AgentHandle,
}

impl ClientContext {
    /// The number of the message: its place in the order in which the agent's messages arrived.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.context.number()
    }

    /// A handle for calls to the agent. A handler that waits for the agent may well use it: what it waits for gets through.
    #[must_use]
    pub fn agent(&self) -> &AgentHandle {
        &self.agent
    }

    /// Fires when the agent ends the request with `$/cancel_request`. A handler that goes on is dropped after the grace
    /// period.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        self.context.cancellation()
    }
}

/// Which method of the wire is which of the client.
pub(crate) struct ClientRole<C> {
    pub(crate) client: Arc<C>,
    /// What each handler gets one of its own of.
    pub(crate) agent: AgentHandle,
}

impl<C: Client> Role for ClientRole<C> {
    const HEARS_OUT: bool = true;

    fn request(&self, method: &str, params: Option<&str>) -> Request<'_> {
        Request::Other(self.decode(method, params).unwrap_or_else(refuse))
    }

    fn notification(&self, method: &str, params: Option<&str>) -> Result<Notification<'_>, Error> {
        const UPDATE: &str = METHODS.session_update;
        const COMPLETE_ELICITATION: &str = METHODS.elicitation_complete;
        let start = match method {
            UPDATE => self.tell(params, |client, update, context| async move {
                client.session_update(update, context).await;
            })?,
            COMPLETE_ELICITATION => self.tell(params, |client, complete, context| async move {
                client.complete_elicitation(complete, context).await;
            })?,
            _ if method.starts_with('_') => {
                let notification = ExtNotification::new(method, raw(params));
                self.start(move |client, context| async move {
                    client.ext_notification(notification, context).await;
                    Ok(())
                })
            }
            _ => return Err(not_found(method)),
        };
        Ok(Notification::Other(start))
    }
}

impl<C: Client> ClientRole<C> {
    fn decode(&self, method: &str, params: Option<&str>) -> Result<Start, Error> {
        const PERMISSION: &str = METHODS.session_request_permission;
        const READ: &str = METHODS.fs_read_text_file;
        const WRITE: &str = METHODS.fs_write_text_file;
        const CREATE: &str = METHODS.terminal_create;
        const OUTPUT: &str = METHODS.terminal_output;
        const WAIT: &str = METHODS.terminal_wait_for_exit;
        const KILL: &str = METHODS.terminal_kill;
        const RELEASE: &str = METHODS.terminal_release;
        const ELICIT: &str = METHODS.elicitation_create;
        // The closures look alike for the same reason as the agent's.
        match method {
            PERMISSION => {
                self.ask(
                    params,
                    |client, request, context| async move { client.request_permission(request, context).await },
                )
            }
            READ => self
                .ask(params, |client, request, context| async move { client.read_text_file(request, context).await }),
            WRITE => self
                .ask(params, |client, request, context| async move { client.write_text_file(request, context).await }),
            CREATE => self
                .ask(params, |client, request, context| async move { client.create_terminal(request, context).await }),
            OUTPUT => self
                .ask(params, |client, request, context| async move { client.terminal_output(request, context).await }),
            WAIT => self.ask(params, |client, request, context| async move {
                client.wait_for_terminal_exit(request, context).await
            }),
            KILL => {
                self.ask(params, |client, request, context| async move { client.kill_terminal(request, context).await })
            }
            RELEASE => self
                .ask(params, |client, request, context| async move { client.release_terminal(request, context).await }),
            ELICIT => {
                self.ask(
                    params,
                    |client, request, context| async move { client.create_elicitation(request, context).await },
                )
            }
            _ if method.starts_with('_') => {
                let request = ExtRequest::new(method, raw(params));
                Ok(self.start(move |client, context| async move { client.ext_method(request, context).await }))
            }
            _ => Err(not_found(method)),
        }
    }

    /// What starts the handler of a notification, once its parameters are read.
    fn tell<P, H>(
        &self,
        params: Option<&str>,
        handler: impl FnOnce(Arc<C>, P, ClientContext) -> H + Send + 'static,
    ) -> Result<Start, Error>
    where
        P: DeserializeOwned + Send + 'static,
        H: Future<Output = ()> + Send + 'static,
    {
        self.ask(params, |client, notification, context| async move {
            handler(client, notification, context).await;
            Ok(())
        })
    }

    /// What starts the handler of a request, once its parameters are read.
    fn ask<P, R, H>(
        &self,
        params: Option<&str>,
        handler: impl FnOnce(Arc<C>, P, ClientContext) -> H + Send + 'static,
    ) -> Result<Start, Error>
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        H: Future<Output = Result<R, Error>> + Send + 'static,
    {
        // Boxed, as an update is as long as half a kilobyte, and moves from hand to hand until its handler begins.
        let request = Box::new(wire::params(params)?);
        Ok(self.start(move |client, context| handler(client, *request, context)))
    }

    fn start<R, H>(&self, handler: impl FnOnce(Arc<C>, ClientContext) -> H + Send + 'static) -> Start
    where
        R: Serialize + 'static,
        H: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let (client, agent) = (Arc::clone(&self.client), self.agent.clone());
        handler::start(move |context| {
            let agent = agent.by(context.arrival());
            // Boxed for the same reason: a task is moved some times before it runs, whole.
            Box::pin(handler(client, ClientContext { context, agent }))
        })
    }
}
