//! The alphabet: everything that can happen to a connection, and everything that it wants done.
//!
//! The same words are the actions of the model, the lines of a trace, the steps of a counterexample, the units of a
//! replay and the actions of the specification.

use core::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::id::{Arrival, CallId, RequestId, SessionId};

/// Everything that can happen to a connection. Time is a step as well: no clock is read here.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Step {
    /// A `session/prompt` was read off the wire, completely decoded.
    PromptArrived {
        /// Its id.
        id: RequestId,
        /// Its session.
        session: SessionId,
    },
    /// A `session/cancel` was read, or a request that ends a session's prompts just like one (`session/close`).
    CancelArrived {
        /// Its id, where it came as a request.
        id: Option<RequestId>,
        /// Its session.
        session: SessionId,
    },
    /// Any other request was read. One with bad parameters is such a request too: it ends nothing.
    RequestArrived {
        /// Its id.
        id: RequestId,
    },
    /// Any other notification was read that has a handler.
    NotificationArrived,
    /// A `$/cancel_request` was read.
    RequestCancelArrived {
        /// The request to end.
        id: RequestId,
    },
    /// The peer's response to a call of ours was read.
    ResponseArrived {
        /// The call.
        call: CallId,
    },
    /// The peer will send nothing more.
    InputEnded,
    /// The task that [`Effect::Start`] asked for runs now; the handler itself has not been called.
    Started(Arrival),
    /// The handler returned.
    Returned(Arrival, Outcome),
    /// The handler did not return within the grace period after its token fired, and has been dropped.
    GraceOver(Arrival),
    /// A handler, or somebody outside of any handler, calls the peer and waits for its response.
    Called {
        /// The message whose handler calls.
        by: Option<Arrival>,
    },
    /// The caller gave up: it no longer waits for the response, or never looked at it.
    CallDropped {
        /// The call.
        call: CallId,
    },
    /// The caller has seen the response that [`Effect::Resume`] gave it.
    Resumed {
        /// The call.
        call: CallId,
    },
    /// The caller did not come to its response in the time that [`Effect::AwaitCaller`] began; what waits for it goes on.
    ResumeOver {
        /// The call.
        call: CallId,
    },
}

impl Step {
    /// The name of the step, which is the name of the action in the specification.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::PromptArrived { .. } => "PromptArrived",
            Self::CancelArrived { .. } => "CancelArrived",
            Self::RequestArrived { .. } => "RequestArrived",
            Self::NotificationArrived => "NotificationArrived",
            Self::RequestCancelArrived { .. } => "RequestCancelArrived",
            Self::ResponseArrived { .. } => "ResponseArrived",
            Self::InputEnded => "InputEnded",
            Self::Started(_) => "Started",
            Self::Returned(..) => "Returned",
            Self::GraceOver(_) => "GraceOver",
            Self::Called { .. } => "Called",
            Self::CallDropped { .. } => "CallDropped",
            Self::Resumed { .. } => "Resumed",
            Self::ResumeOver { .. } => "ResumeOver",
        }
    }

    /// Whether the step is the arrival of something from the peer.
    #[must_use]
    pub fn is_arrival(&self) -> bool {
        match self {
            Self::PromptArrived { .. }
            | Self::CancelArrived { .. }
            | Self::RequestArrived { .. }
            | Self::NotificationArrived
            | Self::RequestCancelArrived { .. }
            | Self::ResponseArrived { .. }
            | Self::InputEnded => true,
            Self::Started(_)
            | Self::Returned(..)
            | Self::GraceOver(_)
            | Self::Called { .. }
            | Self::CallDropped { .. }
            | Self::Resumed { .. }
            | Self::ResumeOver { .. } => false,
        }
    }
}

/// How a handler returned. What it returned stays with whoever drives the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// With a result.
    Succeeded,
    /// With an error, or by a panic.
    Failed,
}

/// Everything that a connection wants done.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Effect {
    /// The message was taken in under this number. Keep what came with it until it starts or is answered.
    Accept(Arrival),
    /// Start a task for the message. The task owes [`Step::Started`].
    Start(Arrival),
    /// Call the message's handler, in the task. The task owes [`Step::Returned`] or, once the token fired and the grace
    /// period is over, [`Step::GraceOver`]. A task that is not told to run has nothing more to do.
    Run(Arrival),
    /// Fire the handler's cancellation token, and begin its grace period.
    Fire(Arrival, Cause),
    /// Write the response.
    Respond {
        /// The id, to be written exactly as it came.
        id: RequestId,
        /// Which message is answered; none where it was not taken in.
        arrival: Option<Arrival>,
        /// What to say.
        answer: Answer,
    },
    /// Write the call to the peer under this id.
    Call(CallId),
    /// Give the response to the caller. It owes [`Step::Resumed`] or [`Step::CallDropped`] where the call is still open then.
    Resume(CallId),
    /// A notification waits for the caller of this call, which has its response, to resume: begin the time after which
    /// [`Step::ResumeOver`] is owed.
    AwaitCaller(CallId),
    /// Tell the caller that the peer is gone. Serves CallersLearnOfClose.
    Disconnect(CallId),
    /// Tell the peer that nobody waits for the response any more.
    CancelCall(CallId),
    /// Close the connection and say why: the message that arrived could be neither kept nor answered. Take in nothing more
    /// but [`Step::InputEnded`]. Serves NoSilentDrop.
    Close(Reason),
}

/// Why the machine closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// [`crate::Limits::notifications_stuck_max`] notifications wait behind a handler that itself waits for the peer.
    NotificationsStuck,
}

/// The effects of one step, in the order in which they must be carried out.
pub type Effects = SmallVec<[Effect; 2]>;

/// What ended a request before its handler was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Cause {
    /// A newer prompt of its session arrived.
    NewerPrompt,
    /// A `session/cancel` of its session arrived after it.
    Cancel,
    /// A `$/cancel_request` with its id arrived.
    RequestCancel,
    /// The peer will send nothing more.
    InputEnded,
}

/// What a response says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Answer {
    /// What the handler returned: its result or its error.
    Returned(Outcome),
    /// `stopReason: cancelled`, the answer of an ended prompt.
    Cancelled,
    /// The error -32800, the answer of any other ended request.
    RequestCancelled,
    /// An error that says why the request was not taken in.
    Refused(Refusal),
}

/// Why a request was not taken in. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// A request with this id is in flight.
    IdInUse,
    /// As many requests as [`crate::Limits::requests_in_flight_max`] are in flight.
    TooManyInFlight,
    /// A prompt of its session is in flight, and prompts are not to overlap: [`crate::Overlap::Refuse`].
    SessionBusy,
}

/// A step that nothing owes: whoever drives the machine broke its law. The state is unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotOwed(pub Step);

impl fmt::Display for NotOwed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing owes the step {:?} in this state; nothing was changed", self.0)
    }
}

impl core::error::Error for NotOwed {}
