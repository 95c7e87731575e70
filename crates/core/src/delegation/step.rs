//! The alphabet of delegation: everything that can happen to the ticket service, and everything that it wants done.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::record::{LeadId, QuestionId, Record, ReplyId, RequestKey, TicketId, WatchId, WorkerId};

/// Everything that can happen. Time is a step as well: no clock is read here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Step {
    /// A lead wants a worker.
    Spawned {
        /// Whose it is to be.
        lead: LeadId,
    },
    /// A lead sends work.
    Sent {
        /// Who.
        lead: LeadId,
        /// To whom.
        worker: WorkerId,
        /// Marks the send, so that a repetition gives the same ticket.
        key: Option<RequestKey>,
        /// The worker's open tickets are cancelled for it.
        replace: bool,
        /// The caller watches the ticket.
        watch: bool,
    },
    /// The prompt that [`Effect::Deliver`] asked for was given to the worker.
    Delivered {
        /// Whose turn it is.
        ticket: TicketId,
    },
    /// A worker asks its lead, and its call waits for the answer.
    Asked {
        /// Who.
        worker: WorkerId,
        /// In whose turn.
        ticket: TicketId,
    },
    /// The worker's call takes the answer that it was handed, and returns with it.
    AnswerTaken {
        /// The question.
        question: QuestionId,
    },
    /// The worker's call no longer waits for the answer: its window is over, or the worker left it. One that it was handed
    /// and has not taken is no longer its.
    AskWindowClosed {
        /// The question.
        question: QuestionId,
    },
    /// A lead answers a question.
    Answered {
        /// Who.
        lead: LeadId,
        /// Which one.
        question: QuestionId,
        /// The caller watches the ticket.
        watch: bool,
    },
    /// A worker replies.
    Replied {
        /// Who.
        worker: WorkerId,
        /// To which ticket; none where it does not say.
        ticket: Option<TicketId>,
    },
    /// The worker answered its prompt: its turn ended, or pauses for an answer.
    TurnEnded {
        /// Whose turn it was.
        ticket: TicketId,
        /// How.
        end: TurnEnd,
    },
    /// A lead polls and waits until there is something to see. (A poll that does not wait is no step:
    /// [`super::Delegation::ticket`].)
    Polled {
        /// Who.
        lead: LeadId,
        /// What.
        ticket: TicketId,
    },
    /// A lead's call no longer watches: the window of its send, its answer or its poll is over, or the caller left.
    WindowClosed {
        /// The call.
        watch: WatchId,
    },
    /// A call of a lead shows it how the ticket ended, as it is stored, with all that came late.
    Seen {
        /// Who.
        lead: LeadId,
        /// What.
        ticket: TicketId,
    },
    /// A lead cancels one ticket; the worker lives on.
    Cancelled {
        /// Who.
        lead: LeadId,
        /// Which one.
        ticket: TicketId,
    },
    /// A lead stops a worker.
    Stopped {
        /// Who.
        lead: LeadId,
        /// Whom.
        worker: WorkerId,
    },
    /// A worker's process ended. In a turn whose ticket had ended it is started again, for the tickets that wait.
    WorkerDied {
        /// Whose.
        worker: WorkerId,
    },
    /// A lead has read its inbox.
    InboxRead {
        /// Who.
        lead: LeadId,
        /// As far as this.
        through: ReplyId,
    },
    /// The store has as many of the oldest entries that it did not have. Several at once are a group commit.
    Persisted {
        /// How many [`Effect::Persist`].
        entries: usize,
    },
    /// The daemon begins again with what the store has. It must be the first step of a restored machine.
    Restarted,
}

/// How a worker's turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TurnEnd {
    /// With a stop reason.
    Ended,
    /// With an error.
    Failed,
}

impl Step {
    /// The name of the step, which is the name of the action in the specification.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Spawned { .. } => "Spawned",
            Self::Sent { .. } => "Sent",
            Self::Delivered { .. } => "Delivered",
            Self::Asked { .. } => "Asked",
            Self::AnswerTaken { .. } => "AnswerTaken",
            Self::AskWindowClosed { .. } => "AskWindowClosed",
            Self::Answered { .. } => "Answered",
            Self::Replied { .. } => "Replied",
            Self::TurnEnded { .. } => "TurnEnded",
            Self::Polled { .. } => "Polled",
            Self::WindowClosed { .. } => "WindowClosed",
            Self::Seen { .. } => "Seen",
            Self::Cancelled { .. } => "Cancelled",
            Self::Stopped { .. } => "Stopped",
            Self::WorkerDied { .. } => "WorkerDied",
            Self::InboxRead { .. } => "InboxRead",
            Self::Persisted { .. } => "Persisted",
            Self::Restarted => "Restarted",
        }
    }

    /// Whether a lead or a worker says it. That may always come; every other step comes only where
    /// [`super::Delegation::may_come`] names it.
    #[must_use]
    pub fn is_said(&self) -> bool {
        matches!(
            self,
            Self::Spawned { .. }
                | Self::Sent { .. }
                | Self::Asked { .. }
                | Self::Answered { .. }
                | Self::Replied { .. }
                | Self::Polled { .. }
                | Self::Seen { .. }
                | Self::Cancelled { .. }
                | Self::Stopped { .. }
                | Self::InboxRead { .. }
        )
    }
}

/// Everything that the machine wants done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Effect {
    /// What came with the step was taken in under this name. Keep it; store it with the entry of this step; tell nobody.
    Accept(Receipt),
    /// Store these rows as one transaction, after those of earlier steps. Owes [`Step::Persisted`].
    Persist(Vec<Record>),
    /// Tell the caller that it is done: the store has it. Serves AcknowledgedSurvivesCrash.
    Acknowledge(Receipt),
    /// Start the worker's process, also in the place of one that ended. From now on it owes [`Step::WorkerDied`].
    Launch(WorkerId),
    /// Give this prompt to the worker. Owes [`Step::Delivered`], and then [`Step::TurnEnded`].
    Deliver {
        /// Whose turn it is.
        ticket: TicketId,
        /// What it says.
        prompt: Prompt,
    },
    /// Hand the answer to the worker's call that waits for it. Owes [`Step::AnswerTaken`] or [`Step::AskWindowClosed`].
    Answer(QuestionId),
    /// Cancel the prompt that the worker is at. Its [`Step::TurnEnded`] is still owed.
    CancelTurn(TicketId),
    /// End the worker's process. [`Step::WorkerDied`] is still owed.
    Kill(WorkerId),
    /// The call of this step watches the ticket under this name until [`Effect::Show`] or [`Step::WindowClosed`].
    Watch(WatchId),
    /// Let the call return: the ticket has ended, or a question waits.
    Show {
        /// The call.
        watch: WatchId,
        /// What it watched.
        ticket: TicketId,
    },
}

/// What a prompt says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Prompt {
    /// The task.
    Task,
    /// The answer to this question, whose call did not wait for it.
    Answer(QuestionId),
}

/// What a caller is told once it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Receipt {
    /// The worker is spawned.
    Worker(WorkerId),
    /// The ticket stands.
    Ticket(TicketId),
    /// The question is asked.
    Question(QuestionId),
    /// The question is answered.
    Answer(QuestionId),
    /// The reply has its place.
    Reply(ReplyId),
    /// The ticket is cancelled.
    Cancel(TicketId),
    /// The worker is stopped.
    Stop(WorkerId),
    /// The inbox is read.
    InboxRead(LeadId),
}

/// The effects of one step, in the order in which they must be carried out.
pub type Effects = Vec<Effect>;

/// Why a step was refused. Nothing changed; the caller is told this sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refused {
    /// No worker has this id.
    NoSuchWorker,
    /// No ticket has this id.
    NoSuchTicket,
    /// No question has this id.
    NoSuchQuestion,
    /// No call watches under this id.
    NoSuchWatch,
    /// It belongs to another lead, or to another worker.
    NotYours,
    /// The worker was stopped, or its process ended.
    WorkerGone,
    /// As many workers as [`super::Limits::workers_max`] live, or as many as [`super::Limits::workers_kept_max`] are kept, and all
    /// of them live or have tickets.
    TooManyWorkers,
    /// As many tickets as [`super::Limits::tickets_queued_max`] wait for this worker.
    QueueFull,
    /// As many tickets as [`super::Limits::tickets_max`] are kept, and none of them may be forgotten.
    TooManyTickets,
    /// As many questions as [`super::Limits::questions_open_max`] of this ticket are open.
    TooManyQuestions,
    /// As many calls as [`super::Limits::watches_max`] watch.
    TooManyWatches,
    /// As many replies as [`super::Limits::replies_kept_max`] are kept there.
    TooManyReplies,
    /// The ticket has ended.
    TicketEnded,
    /// The ticket's task was not given to the worker.
    NotStarted,
    /// The question was answered.
    AlreadyAnswered,
    /// The worker is at a ticket, and its reply does not say whether it means that one.
    WhichTicket,
    /// No such prompt runs.
    NotRunning,
    /// No such prompt is being given.
    NotDelivering,
    /// The worker's call does not wait for this answer.
    NotWaiting,
    /// The call was not handed an answer that it could take.
    NotHanded,
    /// The ticket has not ended, or how it ended was seen.
    NothingToSee,
    /// The inbox has nothing new up to there.
    NothingToRead,
    /// The store was not asked for so many entries.
    NotWritten,
    /// The machine was not restored just now.
    NotRestored,
    /// The machine was restored, and must be restarted first.
    RestartFirst,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchWorker => "there is no such worker; list the workers to see those that there are",
            Self::NoSuchTicket => "there is no such ticket; poll without one to see those that there are",
            Self::NoSuchQuestion => "there is no such question; poll the ticket to see those that wait",
            Self::NoSuchWatch => "this call no longer watches a ticket",
            Self::NotYours => "it belongs to somebody else",
            Self::WorkerGone => "the worker was stopped, or its process ended; spawn another one",
            Self::TooManyWorkers => "as many workers live as may; stop one first",
            Self::QueueFull => "as many tickets wait for this worker as may; wait for one to end, or replace them",
            Self::TooManyTickets => {
                "as many tickets are kept as may, and none of them has ended and was shown to its lead; poll or stop some"
            }
            Self::TooManyQuestions => "as many questions of this turn are open as may; wait for an answer",
            Self::TooManyWatches => "as many calls wait as may; poll without waiting",
            Self::TooManyReplies => "as many replies are kept there as may",
            Self::TicketEnded => "the ticket has ended; poll it to see how",
            Self::NotStarted => "the task of this ticket was not given to the worker",
            Self::AlreadyAnswered => "the question was answered already",
            Self::WhichTicket => "the worker is at a ticket: reply with the id of the turn that is meant",
            Self::NotRunning => "no prompt of this ticket runs",
            Self::NotDelivering => "no prompt of this ticket is being given to the worker",
            Self::NotWaiting => "no call waits for this answer",
            Self::NotHanded => "the call was handed no answer",
            Self::NothingToSee => "the ticket has not ended, or how it ended was seen",
            Self::NothingToRead => "the inbox has nothing new up to there",
            Self::NotWritten => "the store was not asked for so many entries",
            Self::NotRestored => "only a restored machine restarts",
            Self::RestartFirst => "a restored machine must restart before anything else",
        })
    }
}

impl core::error::Error for Refused {}
