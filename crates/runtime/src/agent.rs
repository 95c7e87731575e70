//! The agent's side of the protocol: what an agent implements, and which method goes where.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES as METHODS, AuthenticateRequest, AuthenticateResponse, CancelNotification, CloseSessionRequest,
    CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse, Error, ExtNotification, ExtRequest, ExtResponse,
    InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse, LoadSessionRequest,
    LoadSessionResponse, LogoutRequest, LogoutResponse, NewSessionRequest, NewSessionResponse, PromptRequest,
    PromptResponse, ResumeSessionRequest, ResumeSessionResponse, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest, SetSessionModeResponse,
};
use lastword_core::SessionId;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    handler::{self, not_found, raw, refuse},
    serve::{Notification, Request, Role},
    shell::Start,
    turn::{Context, Turn},
    wire,
};

/// An agent: what it does for each message of the client.
///
/// Handlers run at the same time, each in a task of its own, but for the prompts of one session: there the newer one ends
/// the older one, and starts when that one's handler is gone. Whatever is not implemented is answered "method not
/// found". A handler that panics is answered with an internal error. A handler must not block its thread.
pub trait Agent: Send + Sync + 'static {
    /// `initialize`
    fn initialize(
        &self,
        request: InitializeRequest,
        context: Context,
    ) -> impl Future<Output = Result<InitializeResponse, Error>> + Send;

    /// `session/new`
    fn new_session(
        &self,
        request: NewSessionRequest,
        context: Context,
    ) -> impl Future<Output = Result<NewSessionResponse, Error>> + Send;

    /// `session/prompt`
    fn prompt(&self, request: PromptRequest, turn: Turn) -> impl Future<Output = Result<PromptResponse, Error>> + Send;

    /// `session/cancel`: for what the agent wants to do beside. The prompts that it reaches have been ended already.
    fn cancel(&self, _notification: CancelNotification, _context: Context) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// `authenticate`
    fn authenticate(
        &self,
        _request: AuthenticateRequest,
        _context: Context,
    ) -> impl Future<Output = Result<AuthenticateResponse, Error>> + Send {
        async { Err(not_found(METHODS.authenticate)) }
    }

    /// `logout`
    fn logout(
        &self,
        _request: LogoutRequest,
        _context: Context,
    ) -> impl Future<Output = Result<LogoutResponse, Error>> + Send {
        async { Err(not_found(METHODS.logout)) }
    }

    /// `session/load`
    fn load_session(
        &self,
        _request: LoadSessionRequest,
        _context: Context,
    ) -> impl Future<Output = Result<LoadSessionResponse, Error>> + Send {
        async { Err(not_found(METHODS.session_load)) }
    }

    /// `session/list`
    fn list_sessions(
        &self,
        _request: ListSessionsRequest,
        _context: Context,
    ) -> impl Future<Output = Result<ListSessionsResponse, Error>> + Send {
        async { Err(not_found(METHODS.session_list)) }
    }

    /// `session/delete`
    fn delete_session(
        &self,
        _request: DeleteSessionRequest,
        _context: Context,
    ) -> impl Future<Output = Result<DeleteSessionResponse, Error>> + Send {
        async { Err(not_found(METHODS.session_delete)) }
    }

    /// `session/resume`
    fn resume_session(
        &self,
        _request: ResumeSessionRequest,
        _context: Context,
    ) -> impl Future<Output = Result<ResumeSessionResponse, Error>> + Send {
        async { Err(not_found(METHODS.session_resume)) }
    }

    /// `session/close`. The session's prompts have been ended already, as by a cancel.
    fn close_session(
        &self,
        _request: CloseSessionRequest,
        _context: Context,
    ) -> impl Future<Output = Result<CloseSessionResponse, Error>> + Send {
        async { Err(not_found(METHODS.session_close)) }
    }

    /// `session/set_mode`
    fn set_session_mode(
        &self,
        _request: SetSessionModeRequest,
        _context: Context,
    ) -> impl Future<Output = Result<SetSessionModeResponse, Error>> + Send {
        async { Err(not_found(METHODS.session_set_mode)) }
    }

    /// `session/set_config_option`
    fn set_session_config_option(
        &self,
        _request: SetSessionConfigOptionRequest,
        _context: Context,
    ) -> impl Future<Output = Result<SetSessionConfigOptionResponse, Error>> + Send {
        async { Err(not_found(METHODS.session_set_config_option)) }
    }

    /// A method of an extension; its name begins with `_`.
    fn ext_method(
        &self,
        request: ExtRequest,
        _context: Context,
    ) -> impl Future<Output = Result<ExtResponse, Error>> + Send {
        async move { Err(not_found(&request.method)) }
    }

    /// A notification of an extension; its name begins with `_`.
    fn ext_notification(&self, _notification: ExtNotification, _context: Context) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Which method of the wire is which of the agent.
pub(crate) struct AgentRole<A> {
    pub(crate) agent: Arc<A>,
}

impl<A: Agent> Role for AgentRole<A> {
    const HEARS_OUT: bool = false;

    fn request(&self, method: &str, params: Option<&str>) -> Request<'_> {
        self.decode(method, params).unwrap_or_else(|error| Request::Other(refuse(error)))
    }

    fn notification(&self, method: &str, params: Option<&str>) -> Result<Notification<'_>, Error> {
        const CANCEL: &str = METHODS.session_cancel;
        Ok(match method {
            CANCEL => {
                let (session, start) = self.cancel(params)?;
                Notification::EndsPrompts(session, start)
            }
            _ if method.starts_with('_') => {
                let notification = ExtNotification::new(method, raw(params));
                Notification::Other(self.start(move |agent, context| async move {
                    agent.ext_notification(notification, context).await;
                    Ok(())
                }))
            }
            _ => return Err(not_found(method)),
        })
    }
}

impl<A: Agent> AgentRole<A> {
    fn decode(&self, method: &str, params: Option<&str>) -> Result<Request<'_>, Error> {
        const INITIALIZE: &str = METHODS.initialize;
        const AUTHENTICATE: &str = METHODS.authenticate;
        const LOGOUT: &str = METHODS.logout;
        const NEW: &str = METHODS.session_new;
        const LOAD: &str = METHODS.session_load;
        const LIST: &str = METHODS.session_list;
        const DELETE: &str = METHODS.session_delete;
        const RESUME: &str = METHODS.session_resume;
        const CLOSE: &str = METHODS.session_close;
        const SET_MODE: &str = METHODS.session_set_mode;
        const SET_CONFIG_OPTION: &str = METHODS.session_set_config_option;
        const PROMPT: &str = METHODS.session_prompt;
        const CANCEL: &str = METHODS.session_cancel;
        // The closures look alike, but each is a type of its own: the trait's methods cannot be named as values, since
        // their futures borrow the agent.
        let start = match method {
            PROMPT => {
                let request: PromptRequest = wire::params(params)?;
                let session = SessionId::from(&*request.session_id.0);
                let start = self.start(move |agent, context| async move {
                    let turn = Turn::new(context, request.session_id.clone());
                    agent.prompt(request, turn).await
                });
                return Ok(Request::Prompt(session, start));
            }
            CANCEL => {
                let (session, start) = self.cancel(params)?;
                return Ok(Request::EndsPrompts(session, start));
            }
            CLOSE => {
                let request: CloseSessionRequest = wire::params(params)?;
                let session = SessionId::from(&*request.session_id.0);
                let start =
                    self.start(move |agent, context| async move { agent.close_session(request, context).await });
                return Ok(Request::EndsPrompts(session, start));
            }
            INITIALIZE => {
                self.ask(params, |agent, request, context| async move { agent.initialize(request, context).await })
            }
            AUTHENTICATE => {
                self.ask(params, |agent, request, context| async move { agent.authenticate(request, context).await })
            }
            LOGOUT => self.ask(params, |agent, request, context| async move { agent.logout(request, context).await }),
            NEW => self.ask(params, |agent, request, context| async move { agent.new_session(request, context).await }),
            LOAD => {
                self.ask(params, |agent, request, context| async move { agent.load_session(request, context).await })
            }
            LIST => {
                self.ask(params, |agent, request, context| async move { agent.list_sessions(request, context).await })
            }
            DELETE => {
                self.ask(params, |agent, request, context| async move { agent.delete_session(request, context).await })
            }
            RESUME => {
                self.ask(params, |agent, request, context| async move { agent.resume_session(request, context).await })
            }
            SET_MODE => self
                .ask(params, |agent, request, context| async move { agent.set_session_mode(request, context).await }),
            SET_CONFIG_OPTION => self.ask(params, |agent, request, context| async move {
                agent.set_session_config_option(request, context).await
            }),
            _ if method.starts_with('_') => {
                let request = ExtRequest::new(method, raw(params));
                Ok(self.start(move |agent, context| async move { agent.ext_method(request, context).await }))
            }
            _ => Err(not_found(method)),
        };
        start.map(Request::Other)
    }

    /// `session/cancel`; as a request it is answered with `null`.
    fn cancel(&self, params: Option<&str>) -> Result<(SessionId, Start), Error> {
        let notification: CancelNotification = wire::params(params)?;
        let session = SessionId::from(&*notification.session_id.0);
        let start = self.start(move |agent, context| async move {
            agent.cancel(notification, context).await;
            Ok(())
        });
        Ok((session, start))
    }

    /// What starts the handler of a request, once its parameters are read.
    fn ask<P, R, H>(
        &self,
        params: Option<&str>,
        handler: impl FnOnce(Arc<A>, P, Context) -> H + Send + 'static,
    ) -> Result<Start, Error>
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        H: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let request = wire::params(params)?;
        Ok(self.start(move |agent, context| handler(agent, request, context)))
    }

    fn start<R, H>(&self, handler: impl FnOnce(Arc<A>, Context) -> H + Send + 'static) -> Start
    where
        R: Serialize + 'static,
        H: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let agent = Arc::clone(&self.agent);
        handler::start(move |context| handler(agent, context))
    }
}
