//! What leads and workers are shown: always what is stored, so that no crash takes it back.

use lastword_core::delegation::{
    Ending, LeadId, Life, QuestionId, Refused, ReplyId, State, Ticket, TicketId, WorkerId,
};
use serde::{Deserialize, Serialize};

use super::{
    error::Error,
    journal::{Of, Reader},
    shell,
};

/// A ticket, as a lead sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Seen {
    /// Its id: poll it at any time.
    pub ticket: TicketId,
    /// Who has it.
    pub worker: WorkerId,
    /// Its state.
    pub state: State,
    /// How many tickets its worker comes to before it, where it is queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// The questions that wait for an answer, oldest first.
    pub questions: Vec<Question>,
    /// The reply, where it is completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// The worker ended its turn without a reply, and `reply` is the last that it said.
    pub is_last_message: bool,
    /// Why there is no reply, where it failed or was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the worker replied after the ticket had ended. It changes nothing.
    pub late_replies: Vec<String>,
    /// The call waited in vain: poll again.
    pub timed_out: bool,
}

/// A question of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Question {
    /// Its id: answer with it.
    pub id: QuestionId,
    /// What is asked.
    pub text: String,
    /// What may be answered. Where there are none, anything.
    pub options: Vec<String>,
    /// Whether the answer must be one of the options, as that to a request for permission.
    pub only_options: bool,
}

/// What became of a question, as a lead sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SeenQuestion {
    /// The ticket in whose turn it was asked.
    pub ticket: TicketId,
    /// The answer that is stored, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// When a ticket was stored and last changed, in UTC, as RFC 3339 writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Times {
    /// When it was stored first.
    pub created: String,
    /// When its last change was stored.
    pub updated: String,
}

/// What [`super::Handle::poll_all`] shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SeenAll {
    /// The tickets that are open, oldest first, then those that have ended, newest first.
    pub tickets: Vec<Seen>,
    /// How many more there are: poll them one by one.
    pub left_out: usize,
    /// The call waited in vain: poll again.
    pub timed_out: bool,
}

/// A worker, as its lead sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SeenWorker {
    /// Its id: send to it.
    pub worker: WorkerId,
    /// What it was spawned as.
    #[serde(flatten)]
    pub profile: Profile,
    /// How far its life has come.
    pub life: Life,
    /// The ticket that it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<TicketId>,
    /// How many tickets wait for it.
    pub queued: usize,
    /// How its process ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub death: Option<String>,
}

/// What a worker was spawned as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Which of the kinds that there are.
    pub kind: String,
    /// What its lead calls it.
    pub name: String,
}

/// A reply that belongs to no ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Letter {
    /// Its id: say it when you have read it.
    pub id: ReplyId,
    /// Who sent it.
    pub from: WorkerId,
    /// What it says.
    pub text: String,
}

/// What becomes of a question that a worker asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Heard {
    /// Its id.
    pub question: QuestionId,
    /// The answer. Where there is none, the window is over or the turn has ended; an answer that comes later is the next
    /// prompt, so that the worker should end its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// What became of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placed {
    /// It completed its ticket.
    Completed,
    /// The ticket had ended; it is kept beside it.
    Late,
    /// It belongs to no ticket, and is in the inbox of the lead.
    Inbox,
}

/// How a question is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct QuestionText {
    pub(super) text: String,
    pub(super) options: Vec<String>,
    pub(super) only_options: bool,
}

/// A ticket's row and what the machine knows beside it, taken under the lock; its texts are read after that.
pub(super) struct Glance {
    ticket: TicketId,
    row: Ticket,
    questions: Vec<QuestionId>,
    position: Option<usize>,
}

impl Glance {
    pub(super) fn at(state: &shell::State, lead: LeadId, ticket: TicketId) -> Result<Self, Error> {
        let view = state.core.ticket(ticket).ok_or(Refused::NoSuchTicket)?;
        if view.ticket.lead != lead {
            return Err(Refused::NotYours.into());
        }
        Ok(Self { ticket, row: view.ticket.clone(), questions: view.questions, position: view.position })
    }

    pub(super) fn read(self, reader: &Reader, timed_out: bool) -> Result<Seen, Error> {
        let Self { ticket, row, questions, position } = self;
        let text = |of| Ok::<_, Error>(reader.text(of)?.unwrap_or_default());
        // It may have made room for a newer one since it was looked at.
        let said = |id| reader.text(Of::Reply(id))?.ok_or(Error::Refused(Refused::NoSuchTicket));
        let questions = questions.into_iter().map(|id| question(reader, id)).collect::<Result<_, _>>()?;
        let (mut reply, mut reason) = (None, None);
        match row.ending() {
            None => {}
            Some(Ending::Replied(id)) => reply = Some(said(id)?),
            Some(Ending::LastMessage) => reply = Some(text(Of::End(ticket))?),
            Some(Ending::WorkerDied) => reason = Some(format!("the worker is gone: {}", text(Of::Death(row.worker))?)),
            Some(Ending::TurnFailed) => reason = Some(text(Of::End(ticket))?),
            Some(Ending::Restarted) => {
                reason = Some(
                    "the service ended while the worker was at it; look at what it has done, and send again".into(),
                );
            }
            Some(Ending::Stopped) => reason = Some("the worker was stopped".into()),
            Some(Ending::Cancelled) => reason = Some("it was cancelled".into()),
            Some(Ending::Replaced) => reason = Some("a newer ticket took its place".into()),
            Some(other) => reason = Some(format!("{other:?}")),
        }
        let late_replies = row.late_replies.iter().map(|id| said(*id)).collect::<Result<_, _>>()?;
        Ok(Seen {
            ticket,
            worker: row.worker,
            state: row.state(),
            position,
            questions,
            reply,
            is_last_message: row.ending() == Some(Ending::LastMessage),
            reason,
            late_replies,
            timed_out,
        })
    }
}

pub(super) fn question(reader: &Reader, id: QuestionId) -> Result<Question, Error> {
    let stored = reader.text(Of::Question(id))?.unwrap_or_default();
    // It was written by this program; what is not in its form is shown as it is.
    let QuestionText { text, options, only_options } = serde_json::from_str(&stored).unwrap_or_else(|_| QuestionText {
        text: stored,
        options: Vec::new(),
        only_options: false,
    });
    Ok(Question { id, text, options, only_options })
}

pub(super) fn profile(reader: &Reader, worker: WorkerId) -> Result<Profile, Error> {
    let stored = reader.text(Of::Worker(worker))?.unwrap_or_default();
    Ok(serde_json::from_str(&stored).unwrap_or_else(|_| Profile { kind: String::new(), name: stored }))
}
