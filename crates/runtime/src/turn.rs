//! What a handler gets beside its request.

use std::sync::{Arc, OnceLock};

use agent_client_protocol_schema::v1::{ContentChunk, SessionId, SessionNotification, SessionUpdate};
use lastword_core::{Arrival, Cause};
use tokio_util::sync::CancellationToken;

use crate::{error::CallError, handle::ClientHandle, shell::Shell};

/// The surroundings of a handler: the client to call, and the token that tells the handler to end.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

/// Made once for each message that is taken in, and shared by all who deal with it.
struct Inner {
    shell: Arc<Shell>,
    arrival: Arrival,
    /// Made when somebody asks for it: most handlers return before anybody does.
    token: OnceLock<CancellationToken>,
}

impl Context {
    pub(crate) fn new(shell: Arc<Shell>, arrival: Arrival) -> Self {
        Self(Arc::new(Inner { shell, arrival, token: OnceLock::new() }))
    }

    pub(crate) fn shell(&self) -> &Arc<Shell> {
        &self.0.shell
    }

    pub(crate) fn arrival(&self) -> Arrival {
        self.0.arrival
    }

    /// The number of the message: its place in the order in which the client's messages arrived.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.arrival.0
    }

    /// A handle for calls to the client.
    #[must_use]
    pub fn client(&self) -> ClientHandle {
        ClientHandle::new(Arc::clone(&self.0.shell), self.0.arrival)
    }

    /// Fires when the client ends the request with `$/cancel_request`. A handler that goes on is dropped after the grace
    /// period.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        self.0.token.get_or_init(CancellationToken::new)
    }
}

/// One turn: a prompt that is being handled.
///
/// Its token fires when the turn has been ended: by a newer prompt of its session, by a cancel, by the end of input. Return
/// soon then; what is returned does not matter, the answer is `cancelled`. A handler that goes on is dropped after the grace
/// period. Updates may still be sent until the handler returns, and never after.
#[derive(Clone)]
pub struct Turn {
    context: Context,
    session: SessionId,
}

impl Turn {
    pub(crate) fn new(context: Context, session: SessionId) -> Self {
        Self { context, session }
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The number of the turn: its place in the order in which the client's messages arrived.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.context.arrival().0
    }

    /// Fires when the turn has been ended.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        self.context.cancellation()
    }

    /// What ended the turn, once something did and while it is not answered.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        self.context.shell().lock().core.ended(self.context.arrival())
    }

    /// Sends an update of this turn.
    ///
    /// # Errors
    ///
    /// [`CallError::TurnOver`] once the turn was answered.
    pub fn update(&self, update: SessionUpdate) -> impl Future<Output = Result<(), CallError>> + use<> {
        self.client().session_update(SessionNotification::new(self.session.clone(), update))
    }

    /// Sends a chunk of the agent's message.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    pub fn say<T: Into<String>>(&self, text: T) -> impl Future<Output = Result<(), CallError>> + use<T> {
        self.update(SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into().into())))
    }

    /// A handle for calls to the client. What it sends is part of the turn, see [`ClientHandle::detached`].
    #[must_use]
    pub fn client(&self) -> ClientHandle {
        ClientHandle::of_turn(Arc::clone(self.context.shell()), self.context.arrival())
    }
}
