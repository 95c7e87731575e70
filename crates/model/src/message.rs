//! The messages that the peer sends, and the calls that somebody outside of any handler makes.

use lastword_core::{RequestId, SessionId, Step};

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `session/prompt`.
    Prompt,
    /// `session/cancel` without an id.
    CancelNotification,
    /// `session/cancel` with an id.
    CancelRequest,
    /// `$/cancel_request`.
    RequestCancel,
    /// Any other request.
    Request,
    /// Any other notification.
    Notification,
    /// The end of input.
    InputEnd,
    /// No message of the peer, but a call to it from outside of any handler.
    Call,
}

/// A message, and what the handler that it meets may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// Its request id, where it is a request.
    pub id: Option<RequestId>,
    /// Its session, where it has one.
    pub session: Option<SessionId>,
    /// The request that it names, where it is a `$/cancel_request`.
    pub target: Option<RequestId>,
    /// Its handler ignores its token and may never return.
    pub deaf: bool,
    /// Its handler returns an error.
    pub fails: bool,
    /// Its handler calls the peer once, which answers only when the requests with these message numbers are answered.
    pub waits: Option<Vec<usize>>,
    /// Whoever calls may give up.
    pub drops: bool,
    /// Where it is put to an agent: that one never answers.
    pub silent: bool,
}

impl Message {
    /// The message that begins with a step, as a trace tells it; none where the step is no such beginning.
    #[must_use]
    pub fn of(step: &Step) -> Option<Self> {
        let (kind, id, session, target) = match step {
            Step::PromptArrived { id, session } => (Kind::Prompt, Some(id), Some(session), None),
            Step::CancelArrived { id: Some(id), session } => (Kind::CancelRequest, Some(id), Some(session), None),
            Step::CancelArrived { id: None, session } => (Kind::CancelNotification, None, Some(session), None),
            Step::RequestArrived { id } => (Kind::Request, Some(id), None, None),
            Step::NotificationArrived => (Kind::Notification, None, None, None),
            Step::RequestCancelArrived { id } => (Kind::RequestCancel, None, None, Some(id)),
            Step::InputEnded => (Kind::InputEnd, None, None, None),
            Step::Called { by: None } => (Kind::Call, None, None, None),
            _ => return None,
        };
        let [id, target] = [id, target].map(Option::<&RequestId>::cloned);
        let session = session.cloned();
        Some(Self { kind, id, session, target, deaf: false, fails: false, waits: None, drops: false, silent: false })
    }

    /// The step with which it begins: the inverse of [`Message::of`].
    #[must_use]
    pub fn beginning(&self) -> Step {
        let id = || self.id.clone().unwrap_or_else(|| RequestId::from(0));
        let session = || self.session.clone().unwrap_or_else(|| SessionId::from(""));
        match self.kind {
            Kind::Prompt => Step::PromptArrived { id: id(), session: session() },
            Kind::CancelNotification => Step::CancelArrived { id: None, session: session() },
            Kind::CancelRequest => Step::CancelArrived { id: Some(id()), session: session() },
            Kind::RequestCancel => {
                Step::RequestCancelArrived { id: self.target.clone().unwrap_or_else(|| RequestId::from(0)) }
            }
            Kind::Request => Step::RequestArrived { id: id() },
            Kind::Notification => Step::NotificationArrived,
            Kind::InputEnd => Step::InputEnded,
            Kind::Call => Step::Called { by: None },
        }
    }

    /// Whether its handler stands in the queue of notifications.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        matches!(self.kind, Kind::Notification | Kind::CancelNotification)
    }

    /// Whether it gets a response.
    #[must_use]
    pub fn is_request(&self) -> bool {
        matches!(self.kind, Kind::Prompt | Kind::CancelRequest | Kind::Request)
    }

    /// Whether it is a prompt.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.kind == Kind::Prompt
    }

    /// Whether it is a cancel of a session, in either form.
    #[must_use]
    pub fn is_cancel(&self) -> bool {
        matches!(self.kind, Kind::CancelNotification | Kind::CancelRequest)
    }
}
