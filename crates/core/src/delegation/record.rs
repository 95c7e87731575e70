//! What a store keeps: the rows of workers, tickets and inboxes. A record is one row as it is from now on, so that the
//! order in which rows of different names are written does not matter, and writing one twice changes nothing.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $word:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }
    )*};
}

ids! {
    /// A lead: whoever delegates. The service knows each by its token.
    LeadId "lead";
    /// A worker, for as long as the journal knows it. Never used again for another one.
    WorkerId "worker";
    /// A ticket. The work on a ticket is one turn of its worker, so that this is the id of that turn as well: what a
    /// worker says with it can reach no other ticket.
    TicketId "ticket";
    /// A question. Each one has an id of its own, also where a turn asks several.
    QuestionId "question";
    /// A reply that was accepted.
    ReplyId "reply";
    /// A blocking call of a lead that watches a ticket. It is not stored: who watches leaves with the daemon.
    WatchId "watch";
}

/// The key by which a lead marks a send, so that a send that it repeats gives the same ticket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestKey(SmolStr);

impl RequestKey {
    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for RequestKey {
    fn from(key: &str) -> Self {
        Self(SmolStr::new(key))
    }
}

/// The row of a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Worker {
    /// Who spawned it, and alone may send to it.
    pub lead: LeadId,
    /// How far its life has come.
    pub life: Life,
}

/// How far the life of a worker has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Life {
    /// It takes tickets. Its process may have to be started, also again after a restart.
    Alive,
    /// It was stopped, and its process has not ended.
    Stopping,
    /// Its process has ended.
    Gone,
}

/// The row of a ticket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket {
    /// Who sent it.
    pub lead: LeadId,
    /// Whom it was sent to.
    pub worker: WorkerId,
    /// The key of the send, if it had one.
    pub key: Option<RequestKey>,
    /// How far it has come.
    pub progress: Progress,
    /// The questions of its turn, each with whether it was answered.
    pub questions: BTreeMap<QuestionId, Asked>,
    /// The replies that came after it had ended. They change nothing.
    pub late_replies: Vec<ReplyId>,
}

/// How far a ticket has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Progress {
    /// Its task was not given to the worker.
    Queued,
    /// Its task was, or is about to be.
    Working,
    /// It is over, for good.
    Ended(Ending),
}

/// How a ticket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Ending {
    /// Completed: the worker replied.
    Replied(ReplyId),
    /// Completed: the turn ended without a reply, and its last message stands for one.
    LastMessage,
    /// Failed: the worker's process ended.
    WorkerDied,
    /// Failed: the worker answered its prompt with an error.
    TurnFailed,
    /// Failed: the daemon ended while the worker was at it. It may have done a part of the work, so that it is not run again.
    Restarted,
    /// Cancelled: the lead stopped the worker.
    Stopped,
    /// Cancelled: the lead cancelled the ticket.
    Cancelled,
    /// Cancelled: a newer ticket with `replace` took its place.
    Replaced,
}

/// Whether a question was answered. What was said stays with whoever drives the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Asked {
    /// It waits for an answer.
    Open,
    /// It has one.
    Answered,
}

/// The state of a ticket, in the words of MCP tasks and of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for its worker.
    Queued,
    /// The worker is at it.
    Working,
    /// The worker asked, and waits for the answer.
    InputRequired,
    /// There is a reply, or a last message.
    Completed,
    /// There will be none.
    Failed,
    /// The lead no longer wants one.
    Cancelled,
}

impl State {
    /// The word of MCP tasks.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether it never changes again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl Ticket {
    /// Its state.
    #[must_use]
    pub fn state(&self) -> State {
        match self.progress {
            Progress::Queued => State::Queued,
            Progress::Working if self.open_questions().next().is_some() => State::InputRequired,
            Progress::Working => State::Working,
            Progress::Ended(ending) => match ending {
                Ending::Replied(_) | Ending::LastMessage => State::Completed,
                Ending::WorkerDied | Ending::TurnFailed | Ending::Restarted => State::Failed,
                Ending::Stopped | Ending::Cancelled | Ending::Replaced => State::Cancelled,
            },
        }
    }

    /// How it ended, if it did.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        match self.progress {
            Progress::Ended(ending) => Some(ending),
            Progress::Queued | Progress::Working => None,
        }
    }

    /// The reply that completed it, if one did.
    #[must_use]
    pub fn reply(&self) -> Option<ReplyId> {
        match self.progress {
            Progress::Ended(Ending::Replied(reply)) => Some(reply),
            _ => None,
        }
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.ending().is_none()
    }

    /// The last of its questions, or 0.
    pub(super) fn last_question(&self) -> u64 {
        self.questions.keys().next_back().map_or(0, |question| question.0)
    }

    /// The last of its replies, or 0.
    pub(super) fn last_reply(&self) -> u64 {
        self.replies().map(|reply| reply.0).max().unwrap_or(0)
    }

    /// Every reply to it: the one that completed it, and those that came late.
    pub fn replies(&self) -> impl Iterator<Item = ReplyId> {
        self.reply().into_iter().chain(self.late_replies.iter().copied())
    }

    /// The questions that wait for an answer, oldest first. There are none once the ticket has ended.
    pub fn open_questions(&self) -> impl Iterator<Item = QuestionId> {
        let is_open = self.is_open();
        self.questions.iter().filter(move |(_, asked)| is_open && **asked == Asked::Open).map(|(question, _)| *question)
    }
}

/// The inbox of a lead: the replies of its workers that belong to no ticket.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inbox {
    /// The replies that the lead has not read, each with the worker that it came from.
    pub replies: BTreeMap<ReplyId, WorkerId>,
    /// As far as this it has read them; what was read is not kept.
    pub read: Option<ReplyId>,
}

/// One row as it is from now on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Record {
    /// The row of a worker.
    Worker(WorkerId, Worker),
    /// The worker, which is gone, makes room: its row goes, and whatever was said of it.
    WorkerForgotten(WorkerId),
    /// The row of a ticket. How it stands now, its lead has not seen.
    Ticket(TicketId, Ticket),
    /// The lead of a ticket was shown how it ended.
    Seen(TicketId),
    /// The ticket, which was this, makes room: its row goes, and whatever was said with it.
    Forgotten(TicketId, Ticket),
    /// What went with forgotten tickets and must not be used again.
    Marks(Marks),
    /// A reply in the inbox of a lead.
    Inbox(LeadId, ReplyId, WorkerId),
    /// How far a lead has read its inbox. What it has read goes, and what that said.
    InboxRead(LeadId, ReplyId),
}

/// The highest ids that went with forgotten tickets. (No ticket is forgotten but for a newer one, so that tickets need none.)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Marks {
    /// Of questions, or 0.
    pub question: u64,
    /// Of replies, or 0.
    pub reply: u64,
}

/// All rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tables {
    /// Every worker.
    pub workers: BTreeMap<WorkerId, Worker>,
    /// Every ticket.
    pub tickets: BTreeMap<TicketId, Ticket>,
    /// The tickets of which their leads were shown how they ended.
    pub seen: BTreeSet<TicketId>,
    /// What must not be used again although no row has it.
    pub marks: Marks,
    /// The inbox of every lead that has one.
    pub inboxes: BTreeMap<LeadId, Inbox>,
}

impl Tables {
    /// Writes a row.
    pub fn put(&mut self, record: Record) {
        match record {
            Record::Worker(id, worker) => drop(self.workers.insert(id, worker)),
            Record::WorkerForgotten(id) => drop(self.workers.remove(&id)),
            Record::Ticket(id, ticket) => {
                self.seen.remove(&id);
                self.tickets.insert(id, ticket);
            }
            Record::Seen(id) => drop(self.seen.insert(id)),
            Record::Forgotten(id, _) => {
                self.seen.remove(&id);
                self.tickets.remove(&id);
            }
            Record::Marks(marks) => self.marks = marks,
            Record::Inbox(lead, reply, worker) => {
                self.inboxes.entry(lead).or_default().replies.insert(reply, worker);
            }
            Record::InboxRead(lead, through) => {
                let inbox = self.inboxes.entry(lead).or_default();
                inbox.read = Some(through);
                inbox.replies.retain(|reply, _| *reply > through);
            }
        }
    }

    /// What makes empty tables these.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let workers = self.workers.iter().map(|(id, row)| Record::Worker(*id, row.clone()));
        let tickets = self.tickets.iter().map(|(id, row)| Record::Ticket(*id, row.clone()));
        let seen = self.seen.iter().map(|id| Record::Seen(*id));
        let marks = (self.marks != Marks::default()).then_some(Record::Marks(self.marks));
        let inboxes = self.inboxes.iter().flat_map(|(lead, inbox)| {
            let replies = inbox.replies.iter().map(|(reply, worker)| Record::Inbox(*lead, *reply, *worker));
            replies.chain(inbox.read.map(|read| Record::InboxRead(*lead, read)))
        });
        workers.chain(tickets).chain(seen).chain(marks).chain(inboxes)
    }

    /// The highest question that was asked.
    pub(super) fn last_question(&self) -> u64 {
        let of_tickets = self.tickets.values().map(Ticket::last_question).max();
        self.marks.question.max(of_tickets.unwrap_or(0))
    }

    /// The highest reply that was accepted.
    pub(super) fn last_reply(&self) -> u64 {
        let of_tickets = self.tickets.values().map(Ticket::last_reply);
        let of_inboxes = self
            .inboxes
            .values()
            .flat_map(|inbox| inbox.replies.keys().next_back().copied().max(inbox.read))
            .map(|reply| reply.0);
        of_tickets.chain(of_inboxes).max().unwrap_or(0).max(self.marks.reply)
    }
}
