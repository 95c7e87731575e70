//! The handle by which an agent calls the client.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, ExtNotification, ExtRequest, ExtResponse, KillTerminalRequest,
    KillTerminalResponse, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest, ReleaseTerminalResponse,
    RequestPermissionRequest, RequestPermissionResponse, SessionNotification, TerminalOutputRequest,
    TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest,
    WriteTextFileResponse,
};
use lastword_core::Arrival;
use serde::de::DeserializeOwned;

use super::{encode, line};
use crate::{error::CallError, shell::Shell};

/// A handle for calls to the client. Clones are cheap, and may be taken into tasks of their own.
///
/// Each method waits while the client reads too slowly. A future of a call that is dropped tells the client so with
/// `$/cancel_request`. Once the client has ended its side, calls give [`CallError::Disconnected`].
#[derive(Clone)]
pub struct ClientHandle {
    shell: Arc<Shell>,
    /// The message whose handler got this handle.
    by: Option<Arrival>,
    /// The same, where that is a prompt: nothing may be said in a turn that is over.
    turn: Option<Arrival>,
}

#[expect(clippy::needless_pass_by_value, reason = "what is sent is made for the call, as with every method below")]
impl ClientHandle {
    pub(crate) fn new(shell: Arc<Shell>, by: Arrival) -> Self {
        Self { shell, by: Some(by), turn: None }
    }

    pub(crate) fn of_turn(shell: Arc<Shell>, turn: Arrival) -> Self {
        Self { shell, by: Some(turn), turn: Some(turn) }
    }

    /// A handle that belongs to no handler, for a task that goes on after the handler returned. Its updates are not part
    /// of a turn.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { shell: Arc::clone(&self.shell), by: None, turn: None }
    }

    /// Sends `session/update`.
    ///
    /// # Errors
    ///
    /// [`CallError::TurnOver`] where the handle is a turn's and the turn was answered.
    pub fn session_update(&self, update: SessionNotification) -> impl Future<Output = Result<(), CallError>> + use<> {
        self.say(line(CLIENT_METHOD_NAMES.session_update, &update))
    }

    /// Sends `elicitation/complete`.
    ///
    /// # Errors
    ///
    /// As [`ClientHandle::session_update`].
    pub fn complete_elicitation(
        &self,
        notification: CompleteElicitationNotification,
    ) -> impl Future<Output = Result<(), CallError>> + use<> {
        self.say(line(CLIENT_METHOD_NAMES.elicitation_complete, &notification))
    }

    /// Sends a notification of an extension; its method begins with `_`.
    ///
    /// # Errors
    ///
    /// As [`ClientHandle::session_update`].
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
    /// [`CallError`] where the client refuses, or is gone.
    pub fn ext_method(&self, request: ExtRequest) -> impl Future<Output = Result<ExtResponse, CallError>> + use<> {
        let params = encode(&request.method, &request.params);
        self.call(request.method, params)
    }

    fn say(&self, line: Result<Vec<u8>, CallError>) -> impl Future<Output = Result<(), CallError>> + use<> {
        let (shell, turn) = (Arc::clone(&self.shell), self.turn);
        async move { shell.say(turn, &line?).await }
    }

    fn call<M: AsRef<str>, R: DeserializeOwned>(
        &self,
        method: M,
        params: Result<Vec<u8>, CallError>,
    ) -> impl Future<Output = Result<R, CallError>> + use<M, R> {
        let (shell, by) = (Arc::clone(&self.shell), self.by);
        async move { super::call(&shell, by, method.as_ref(), params?).await }
    }
}

calls! {
    ClientHandle, "client", CLIENT_METHOD_NAMES:
    request_permission: session_request_permission(RequestPermissionRequest) -> RequestPermissionResponse;
    read_text_file: fs_read_text_file(ReadTextFileRequest) -> ReadTextFileResponse;
    write_text_file: fs_write_text_file(WriteTextFileRequest) -> WriteTextFileResponse;
    create_terminal: terminal_create(CreateTerminalRequest) -> CreateTerminalResponse;
    terminal_output: terminal_output(TerminalOutputRequest) -> TerminalOutputResponse;
    wait_for_terminal_exit: terminal_wait_for_exit(WaitForTerminalExitRequest) -> WaitForTerminalExitResponse;
    kill_terminal: terminal_kill(KillTerminalRequest) -> KillTerminalResponse;
    release_terminal: terminal_release(ReleaseTerminalRequest) -> ReleaseTerminalResponse;
    create_elicitation: elicitation_create(CreateElicitationRequest) -> CreateElicitationResponse;
}
