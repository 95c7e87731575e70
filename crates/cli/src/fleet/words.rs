//! What the tools take and give: each answer as data, and in a few words that a model can act on.

use std::{borrow::Cow, fmt::Write as _, time::Duration};

use lastword::delegation::{Heard, Letter, Placed, Question, Seen, SeenAll, SeenWorker, State, WorkerLife};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// An answer of a tool.
pub(crate) trait Answer: Serialize + JsonSchema + 'static {
    /// What it says, and what to do next. `wait` is the longest that a call may wait.
    fn words(&self, wait: Duration) -> String;
}

/// Spawn a worker.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spawn {
    /// The kind of worker: one of those that `fleet_list` shows.
    pub(crate) kind: String,
    /// What to call it; the kind if you do not say.
    #[serde(default)]
    pub(crate) name: Option<String>,
}

/// No arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Send work to a worker, or an answer to a question.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Send {
    /// The work, or the answer.
    pub(crate) content: String,
    /// For new work: the id of the worker.
    #[serde(default)]
    pub(crate) worker: Option<u64>,
    /// For an answer: the id of the question.
    #[serde(default)]
    pub(crate) question: Option<u64>,
    /// For an answer, where the ticket has one open question: the id of the ticket.
    #[serde(default)]
    pub(crate) ticket: Option<u64>,
    /// How many seconds to wait for the end of the ticket or for a question. 0, the default, does not wait.
    #[serde(default)]
    pub(crate) wait: Wait,
    /// For new work: any text that marks this send. The same send again, with the same key, gives the same ticket.
    #[serde(default)]
    pub(crate) request_key: Option<String>,
    /// For new work: cancel the open tickets of the worker instead of waiting behind them.
    #[serde(default)]
    pub(crate) replace: bool,
}

/// Look at one ticket, or at all of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Poll {
    /// The id of the ticket. Without it, all of your tickets.
    #[serde(default)]
    pub(crate) ticket: Option<u64>,
    /// How many seconds to wait for the end of the ticket or for a question. 0, the default, does not wait.
    #[serde(default)]
    pub(crate) wait: Wait,
}

/// Read what workers said outside of any ticket.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Inbox {
    /// The id of the last letter that you have read: it and those before it are not shown again.
    #[serde(default)]
    pub(crate) read_through: Option<u64>,
}

/// Stop a worker, or cancel a ticket. Say one of the two.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stop {
    /// The worker that is to end; its open tickets are cancelled.
    #[serde(default)]
    pub(crate) worker: Option<u64>,
    /// The ticket that is to be cancelled; its worker lives on.
    #[serde(default)]
    pub(crate) ticket: Option<u64>,
}

/// Ask the one who sent the ticket.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ask {
    /// The id of the ticket that you work on.
    pub(crate) ticket: u64,
    /// The question.
    pub(crate) question: String,
    /// Answers to choose from, if there are such.
    #[serde(default)]
    pub(crate) options: Vec<String>,
    /// How many seconds to wait for the answer: as many as may be, if you do not say.
    #[serde(default)]
    pub(crate) wait: Option<Wait>,
}

/// Reply to a ticket.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reply {
    /// What you found or did.
    pub(crate) content: String,
    /// The id of the ticket that you worked on. Without it, and while you have none, it goes to the inbox of your lead.
    #[serde(default)]
    pub(crate) ticket: Option<u64>,
}

/// A number of seconds to wait.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Wait(pub(crate) Duration);

impl JsonSchema for Wait {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Wait".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0 })
    }
}

impl TryFrom<f64> for Wait {
    type Error = String;

    fn try_from(seconds: f64) -> Result<Self, String> {
        // What is too long for a duration is longer than any wait.
        if seconds.is_nan() || seconds < 0.0 {
            return Err(format!("{seconds} is not a number of seconds to wait"));
        }
        Ok(Self(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
    }
}

/// A worker that was spawned.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Spawned {
    /// Its id: send to it.
    #[schemars(with = "i64")]
    pub(crate) worker: u64,
}

impl Answer for Spawned {
    fn words(&self, _: Duration) -> String {
        format!("Worker {0} starts. Call fleet_send with worker {0} and the work as content.", self.worker)
    }
}

/// The workers that there are, and the kinds of which there may be more.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Listed {
    /// Those that live, oldest first, then the last that are gone.
    pub(crate) workers: Vec<WorkerView>,
    /// The kinds of workers that can be spawned.
    pub(crate) kinds: Vec<KindView>,
}

/// A worker.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WorkerView {
    /// Its id: send to it.
    #[schemars(with = "i64")]
    pub(crate) worker: u64,
    /// What it was spawned as.
    pub(crate) kind: String,
    /// What it is called.
    pub(crate) name: String,
    /// `alive`, `stopping` or `gone`.
    pub(crate) life: &'static str,
    /// The ticket that it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub(crate) at: Option<u64>,
    /// How many tickets wait for it.
    #[schemars(with = "i64")]
    pub(crate) queued: usize,
    /// How its process ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) death: Option<String>,
}

/// A kind of worker.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KindView {
    /// The name to spawn it by.
    pub(crate) kind: String,
    /// What it is good for.
    pub(crate) description: String,
    /// How many of it may live at a time.
    #[schemars(with = "i64")]
    pub(crate) count_max: usize,
}

impl From<SeenWorker> for WorkerView {
    fn from(seen: SeenWorker) -> Self {
        let life = match seen.life {
            WorkerLife::Alive => "alive",
            WorkerLife::Stopping => "stopping",
            WorkerLife::Gone => "gone",
        };
        Self {
            worker: seen.worker.0,
            kind: seen.profile.kind,
            name: seen.profile.name,
            life,
            at: seen.at.map(|ticket| ticket.0),
            queued: seen.queued,
            death: seen.death,
        }
    }
}

impl Answer for Listed {
    fn words(&self, _: Duration) -> String {
        let mut text = String::new();
        for WorkerView { worker, kind, name, life, at, queued, death } in &self.workers {
            let _ = write!(text, "Worker {worker} ({name}, {kind}) is {life}");
            if let Some(ticket) = at {
                let _ = write!(text, ", at ticket {ticket}");
            }
            if *queued > 0 {
                let _ = write!(text, ", {queued} queued");
            }
            if let Some(death) = death {
                let _ = write!(text, ": {death}");
            }
            text.push('\n');
        }
        if self.workers.is_empty() {
            text.push_str("There are no workers yet.\n");
        }
        text.push_str("Spawn more with fleet_spawn, kind:");
        for KindView { kind, description, count_max } in &self.kinds {
            let _ = write!(text, "\n- {kind} (up to {count_max})");
            if !description.is_empty() {
                let _ = write!(text, ": {description}");
            }
        }
        text
    }
}

/// A ticket.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TicketView {
    /// Its id: poll it at any time.
    #[schemars(with = "i64")]
    pub(crate) ticket: u64,
    /// Who has it.
    #[schemars(with = "i64")]
    pub(crate) worker: u64,
    /// `queued`, `working`, `input_required`, `completed`, `failed` or `cancelled`; the last three are final.
    pub(crate) state: &'static str,
    /// How many tickets its worker comes to before it, where it is queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub(crate) position: Option<usize>,
    /// The questions that wait for an answer, oldest first.
    pub(crate) questions: Vec<QuestionView>,
    /// The reply, where it is completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reply: Option<String>,
    /// The worker ended its turn without a reply, and `reply` is the last that it said.
    pub(crate) is_last_message: bool,
    /// Why there is no reply, where it failed or was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// What the worker replied after the ticket had ended.
    pub(crate) late_replies: Vec<String>,
    /// The call waited in vain: poll again.
    pub(crate) timed_out: bool,
}

/// A question of a worker.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QuestionView {
    /// Its id: answer with it.
    #[schemars(with = "i64")]
    pub(crate) question: u64,
    /// What is asked.
    pub(crate) text: String,
    /// What may be answered. Where there are none, anything.
    pub(crate) options: Vec<String>,
    /// Whether the answer must be one of the options.
    pub(crate) only_options: bool,
}

impl From<Question> for QuestionView {
    fn from(question: Question) -> Self {
        let Question { id, text, options, only_options, .. } = question;
        Self { question: id.0, text, options, only_options }
    }
}

impl From<Seen> for TicketView {
    fn from(seen: Seen) -> Self {
        Self {
            ticket: seen.ticket.0,
            worker: seen.worker.0,
            state: seen.state.as_str(),
            position: seen.position,
            questions: seen.questions.into_iter().map(QuestionView::from).collect(),
            reply: seen.reply,
            is_last_message: seen.is_last_message,
            reason: seen.reason,
            late_replies: seen.late_replies,
            timed_out: seen.timed_out,
        }
    }
}

impl Answer for TicketView {
    fn words(&self, wait: Duration) -> String {
        let Self { ticket, worker, .. } = self;
        let again = format!("Call fleet_poll with ticket {ticket} and wait {}.", wait.as_secs_f64());
        let is = |state: State| self.state == state.as_str();
        let mut text = if is(State::Queued) {
            let place = match self.position {
                None | Some(0) => "as the next one".to_owned(),
                Some(before) => format!("behind {before} more"),
            };
            format!("Ticket {ticket} is queued for worker {worker}, {place}. {again}")
        } else if is(State::Working) {
            format!("Worker {worker} is at ticket {ticket}. {again}")
        } else if is(State::InputRequired) {
            format!("Worker {worker} needs an answer for ticket {ticket}.")
        } else if is(State::Completed) {
            let reply = self.reply.as_deref().unwrap_or_default();
            if self.is_last_message {
                format!(
                    "Ticket {ticket} is completed. Worker {worker} ended its turn without a reply; it said last:\n\n{reply}"
                )
            } else {
                format!("Ticket {ticket} is completed. Worker {worker} replied:\n\n{reply}")
            }
        } else {
            format!("Ticket {ticket} is {}: {}.", self.state, self.reason.as_deref().unwrap_or("no reason is known"))
        };
        for QuestionView { question, text: asked, options, only_options } in &self.questions {
            let _ = write!(
                text,
                "\n\nQuestion {question}:\n\n{asked}\n\nAnswer it: call fleet_send with question {question} and the answer as \
                 content."
            );
            if !options.is_empty() {
                let of = if *only_options { "It must be one of" } else { "Options" };
                let _ = write!(text, " {of}: {}.", options.join(" | "));
            }
        }
        for late in &self.late_replies {
            let _ = write!(text, "\n\nAfter the end of ticket {ticket}, worker {worker} replied:\n\n{late}");
        }
        text
    }
}

/// All tickets.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Tickets {
    /// Those that are open, oldest first, then those that have ended, newest first.
    pub(crate) tickets: Vec<TicketView>,
    /// How many more there are: poll them one by one.
    #[schemars(with = "i64")]
    pub(crate) left_out: usize,
    /// The call waited in vain: poll again.
    pub(crate) timed_out: bool,
}

impl From<SeenAll> for Tickets {
    fn from(seen: SeenAll) -> Self {
        let SeenAll { tickets, left_out, timed_out, .. } = seen;
        Self { tickets: tickets.into_iter().map(TicketView::from).collect(), left_out, timed_out }
    }
}

impl Answer for Tickets {
    fn words(&self, wait: Duration) -> String {
        if self.tickets.is_empty() {
            return "You have no tickets. Call fleet_send to make one.".to_owned();
        }
        let mut words: Vec<String> = self.tickets.iter().map(|ticket| ticket.words(wait)).collect();
        if self.left_out > 0 {
            words.push(format!("{} more are not shown; poll them one by one.", self.left_out));
        }
        words.join("\n\n---\n\n")
    }
}

/// The letters that were not read.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Letters {
    /// Oldest first.
    pub(crate) letters: Vec<LetterView>,
}

/// A reply that belongs to no ticket.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LetterView {
    /// Its id: say it as `read_through` when you have read it.
    #[schemars(with = "i64")]
    pub(crate) id: u64,
    /// Who sent it.
    #[schemars(with = "i64")]
    pub(crate) worker: u64,
    /// What it says.
    pub(crate) text: String,
}

impl From<Vec<Letter>> for Letters {
    fn from(letters: Vec<Letter>) -> Self {
        let letters =
            letters.into_iter().map(|Letter { id, from, text, .. }| LetterView { id: id.0, worker: from.0, text });
        Self { letters: letters.collect() }
    }
}

impl Answer for Letters {
    fn words(&self, _: Duration) -> String {
        let Some(last) = self.letters.last() else { return "There is nothing to read.".to_owned() };
        let mut text = String::new();
        for LetterView { id, worker, text: said } in &self.letters {
            let _ = write!(text, "Letter {id} of worker {worker}:\n\n{said}\n\n");
        }
        let _ = write!(text, "Call fleet_inbox with read_through {} once you have read them.", last.id);
        text
    }
}

/// What was stopped, and the tickets that it leaves.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Stopped {
    /// The worker that was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub(crate) worker: Option<u64>,
    /// The ticket that was cancelled, as it is now: one that was completed before stays completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ticket: Option<TicketView>,
}

impl Answer for Stopped {
    fn words(&self, wait: Duration) -> String {
        match (&self.worker, &self.ticket) {
            (Some(worker), _) => format!(
                "Worker {worker} was stopped. Its open tickets are cancelled; those that were completed stay so: poll them."
            ),
            (None, Some(ticket)) => ticket.words(wait),
            (None, None) => String::new(),
        }
    }
}

/// What became of a question.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Answered {
    /// The ticket in whose turn it was asked.
    #[schemars(with = "i64")]
    pub(crate) ticket: u64,
    /// Its id.
    #[schemars(with = "i64")]
    pub(crate) question: u64,
    /// The answer, where it has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<String>,
    /// What to do now, where it has not come. Some clients show their model the data alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<&'static str>,
}

/// What a worker does that has no answer yet.
const END_THE_TURN: &str =
    "end your turn now, without a reply and without asking again; the answer comes as your next prompt";

impl Answered {
    pub(crate) fn new(ticket: u64, heard: Heard) -> Self {
        let next = heard.answer.is_none().then_some(END_THE_TURN);
        Self { ticket, question: heard.question.0, answer: heard.answer, next }
    }
}

impl Answer for Answered {
    fn words(&self, _: Duration) -> String {
        let Self { ticket, question, answer, .. } = self;
        match answer {
            Some(answer) => format!("The answer to your question {question} of ticket {ticket}:\n\n{answer}"),
            None => format!("Question {question} of ticket {ticket} has no answer yet. It is kept: {END_THE_TURN}."),
        }
    }
}

/// Where a reply went.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Replied {
    /// The ticket that was replied to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub(crate) ticket: Option<u64>,
    /// `completed`: it completed its ticket; `late`: the ticket had ended, and it is kept beside it; `inbox`: it belongs to no
    /// ticket.
    pub(crate) placed: &'static str,
}

impl Replied {
    pub(crate) fn new(ticket: Option<u64>, placed: Placed) -> Self {
        let placed = match placed {
            Placed::Completed => "completed",
            Placed::Late => "late",
            Placed::Inbox => "inbox",
        };
        Self { ticket, placed }
    }
}

impl Answer for Replied {
    fn words(&self, _: Duration) -> String {
        match (self.ticket, self.placed) {
            (Some(ticket), "completed") => format!("Ticket {ticket} is completed with your reply. End your turn."),
            (Some(ticket), _) => {
                format!("Ticket {ticket} had ended before; your reply is kept beside it. End your turn.")
            }
            (None, _) => "Your reply is in the inbox of your lead.".to_owned(),
        }
    }
}
