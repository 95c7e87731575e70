//! The handle by which a client calls the agent.

use std::{sync::Arc, time::Duration};

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AuthenticateRequest, AuthenticateResponse, CancelNotification, CloseSessionRequest,
    CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse, ExtNotification, ExtRequest, ExtResponse,
    InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse, LoadSessionRequest,
    LoadSessionResponse, LogoutRequest, LogoutResponse, NewSessionRequest, NewSessionResponse, PromptRequest,
    PromptResponse, ResumeSessionRequest, ResumeSessionResponse, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest, SetSessionModeResponse,
};
use lastword_core::Arrival;
use serde::de::DeserializeOwned;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::line;
use crate::{
    error::{CallError, Exit},
    shell::Shell,
};

/// How long a caller who learned that the agent is gone waits to learn how it exited: longer than it takes to find out
/// where it did exit.
const EXIT_KNOWN_MAX: Duration = Duration::from_secs(2);

/// A handle for calls to the agent. Clones are cheap, and may be taken into tasks of their own.
///
/// Each method waits while the agent reads too slowly. A future of a call that is dropped tells the agent so with
/// `$/cancel_request`; a prompt is rather ended with [`AgentHandle::cancel`], which lets the agent say its last words. Once
/// one side has ended, calls give [`CallError::Disconnected`] or, of an agent that is a child process,
/// [`CallError::AgentExited`].
#[derive(Clone)]
pub struct AgentHandle {
    link: Arc<Link>,
    /// The message whose handler got this handle.
    by: Option<Arrival>,
}

/// What all handles of one connection share.
pub(crate) struct Link {
    pub(crate) shell: Arc<Shell>,
    /// Fires when nothing more is to be said to the agent.
    pub(crate) closing: CancellationToken,
    /// How the agent exited, once it did; none where it is no child process.
    pub(crate) exit: Option<watch::Receiver<Option<Exit>>>,
}

#[expect(clippy::needless_pass_by_value, reason = "what is sent is made for the call, as with every method below")]
impl AgentHandle {
    pub(crate) fn new(link: Link) -> Self {
        Self { link: Arc::new(link), by: None }
    }

    /// The same for the handler of a message. While a notification's handler waits for a call of its own handle, requests
    /// of the agent start, since the agent may need their answers first.
    pub(crate) fn by(&self, message: Arrival) -> Self {
        Self { link: Arc::clone(&self.link), by: Some(message) }
    }

    /// A handle that belongs to no handler, for a task that a handler does not wait for.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { link: Arc::clone(&self.link), by: None }
    }

    /// Says that nothing more comes: what has been said goes out, and then the agent's input ends. Responses and
    /// notifications of the agent are still taken in until it ends its side too.
    pub fn close(&self) {
        self.link.closing.cancel();
    }

    /// Sends `session/cancel`, which ends the prompts of the session. Each still gets its response.
    ///
    /// # Errors
    ///
    /// [`CallError`] where the agent is gone.
    pub fn cancel(&self, notification: CancelNotification) -> impl Future<Output = Result<(), CallError>> + use<> {
        self.say(line(AGENT_METHOD_NAMES.session_cancel, &notification))
    }

    /// Sends a notification of an extension; its method begins with `_`.
    ///
    /// # Errors
    ///
    /// [`CallError`] where the agent is gone.
    pub fn ext_notification(
        &self,
        notification: ExtNotification,
    ) -> impl Future<Output = Result<(), CallError>> + use<> {
        self.say(line(&notification.method, &notification.params))
    }

    /// Calls a method of an extension; its name begins with `_`.
    ///
    /// # Errors
    ///
    /// [`CallError`] where the agent refuses, or is gone.
    pub fn ext_method(&self, request: ExtRequest) -> impl Future<Output = Result<ExtResponse, CallError>> + use<> {
        let params = super::encode(&request.method, &request.params);
        self.call(request.method, params)
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    fn say(&self, line: Result<Vec<u8>, CallError>) -> impl Future<Output = Result<(), CallError>> + use<> {
        let link = Arc::clone(&self.link);
        async move {
            match link.shell.say(None, &line?).await {
                Err(CallError::Disconnected) => Err(link.gone().await),
                said => said,
            }
        }
    }

    fn call<M: AsRef<str>, R: DeserializeOwned>(
        &self,
        method: M,
        params: Result<Vec<u8>, CallError>,
    ) -> impl Future<Output = Result<R, CallError>> + use<M, R> {
        let (link, by) = (Arc::clone(&self.link), self.by);
        async move {
            match super::call(&link.shell, by, method.as_ref(), params?).await {
                Err(CallError::Disconnected) => Err(link.gone().await),
                answered => answered,
            }
        }
    }
}

calls! {
    AgentHandle, "agent", AGENT_METHOD_NAMES:
    initialize: initialize(InitializeRequest) -> InitializeResponse;
    authenticate: authenticate(AuthenticateRequest) -> AuthenticateResponse;
    logout: logout(LogoutRequest) -> LogoutResponse;
    new_session: session_new(NewSessionRequest) -> NewSessionResponse;
    load_session: session_load(LoadSessionRequest) -> LoadSessionResponse;
    list_sessions: session_list(ListSessionsRequest) -> ListSessionsResponse;
    delete_session: session_delete(DeleteSessionRequest) -> DeleteSessionResponse;
    resume_session: session_resume(ResumeSessionRequest) -> ResumeSessionResponse;
    close_session: session_close(CloseSessionRequest) -> CloseSessionResponse;
    set_session_mode: session_set_mode(SetSessionModeRequest) -> SetSessionModeResponse;
    set_session_config_option: session_set_config_option(SetSessionConfigOptionRequest)
        -> SetSessionConfigOptionResponse;
    prompt: session_prompt(PromptRequest) -> PromptResponse;
}

impl Link {
    /// What a caller learns when the agent is gone. How an agent exited that closed its output only is not known soon.
    pub(crate) async fn gone(&self) -> CallError {
        let Some(mut exit) = self.exit.clone() else { return CallError::Disconnected };
        match timeout(EXIT_KNOWN_MAX, exit.wait_for(Option::is_some)).await.ok().and_then(Result::ok).as_deref() {
            Some(Some(exit)) => CallError::AgentExited(exit.clone()),
            _ => CallError::Disconnected,
        }
    }
}
