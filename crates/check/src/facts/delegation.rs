//! The facts of the domain delegation. They are measured on the machine itself, until the runtime has the service.

use lastword_core::{
    Forced,
    delegation::{
        Delegation, Effect, Ending, LeadId, Limits, Prompt, QuestionId, Receipt, Refused, Step, TicketId, TurnEnd,
        WatchId, WorkerId,
    },
};
use lastword_model::Value;

use super::text;

pub(super) const FACTS: [&str; 8] = [
    "AbandonChecksReply",
    "AcknowledgedOnceStored",
    "ForgetsOnlySeen",
    "LateAnswerIsPrompt",
    "QuestionsHaveIds",
    "QueueOutlivesTurn",
    "ReplyLooksAt",
    "UntakenAnswerReturns",
];

const LEAD: LeadId = LeadId(1);
const WORKER: WorkerId = WorkerId(1);
const TICKET: TicketId = TicketId(1);
const QUESTION: QuestionId = QuestionId(1);

pub(super) fn measure(fact: &str, forced: Option<Forced>) -> Result<Value, Refused> {
    match fact {
        "AbandonChecksReply" => abandon_checks_reply(forced),
        "AcknowledgedOnceStored" => acknowledged_once_stored(forced),
        "ForgetsOnlySeen" => forgets_only_seen(forced),
        "LateAnswerIsPrompt" => late_answer_is_prompt(forced),
        "QuestionsHaveIds" => questions_have_ids(forced),
        "QueueOutlivesTurn" => queue_outlives_turn(forced),
        "UntakenAnswerReturns" => untaken_answer_returns(forced),
        _ => reply_looks_at(forced),
    }
}

/// A worker that was given the task of a ticket that nobody watches.
struct Probe {
    machine: Delegation,
}

impl Probe {
    fn new(forced: Option<Forced>) -> Result<Self, Refused> {
        Self::with_room(usize::MAX, forced)
    }

    fn with_room(tickets_max: usize, forced: Option<Forced>) -> Result<Self, Refused> {
        let mut limits = Limits::default();
        (limits.tickets_max, limits.forced) = (tickets_max, forced);
        let mut probe = Self { machine: Delegation::new(limits) };
        probe.take(Step::Spawned { lead: LEAD })?;
        probe.send(false)?;
        probe.take(Step::Delivered { ticket: TICKET })?;
        Ok(probe)
    }

    /// Takes a step, and lets the store do what it was asked for.
    fn take(&mut self, step: Step) -> Result<Vec<Effect>, Refused> {
        let mut effects = self.machine.apply(step)?;
        while self.machine.unstored().next().is_some() {
            effects.extend(self.machine.apply(Step::Persisted { entries: 1 })?);
        }
        Ok(effects)
    }

    fn send(&mut self, replace: bool) -> Result<Vec<Effect>, Refused> {
        self.take(Step::Sent { lead: LEAD, worker: WORKER, key: None, replace, watch: false })
    }

    fn ask(&mut self) -> Result<Vec<Effect>, Refused> {
        self.take(Step::Asked { worker: WORKER, ticket: TICKET })
    }

    fn answer(&mut self, watch: bool) -> Result<Vec<Effect>, Refused> {
        self.take(Step::Answered { lead: LEAD, question: QUESTION, watch })
    }

    fn replies(&mut self) -> Result<bool, Refused> {
        self.take(Step::Replied { worker: WORKER, ticket: Some(TICKET) })?;
        Ok(self.is_completed())
    }

    fn is_completed(&self) -> bool {
        let view = self.machine.ticket(TICKET);
        view.is_some_and(|view| matches!(view.ticket.ending(), Some(Ending::Replied(_))))
    }
}

/// A reply that nobody waits for, in a turn that has not asked, and in one that has asked and was answered in vain.
fn reply_looks_at(forced: Option<Forced>) -> Result<Value, Refused> {
    if Probe::new(forced)?.replies()? {
        return Ok(text("ticket"));
    }
    let mut probe = Probe::new(forced)?;
    probe.ask()?;
    probe.answer(true)?;
    probe.take(Step::WindowClosed { watch: WatchId(1) })?;
    Ok(text(if probe.replies()? { "waiter-then-asked-ticket" } else { "waiter" }))
}

/// A reply, and then a stop.
fn abandon_checks_reply(forced: Option<Forced>) -> Result<Value, Refused> {
    let mut probe = Probe::new(forced)?;
    probe.replies()?;
    probe.take(Step::Stopped { lead: LEAD, worker: WORKER })?;
    Ok(Value::Bool(probe.is_completed()))
}

/// Two questions, and an answer to the first one.
fn questions_have_ids(forced: Option<Forced>) -> Result<Value, Refused> {
    let mut probe = Probe::new(forced)?;
    probe.ask()?;
    probe.ask()?;
    let effects = probe.answer(false)?;
    Ok(Value::Bool(effects.contains(&Effect::Answer(QUESTION))))
}

/// A second ticket that the store does not have.
fn acknowledged_once_stored(forced: Option<Forced>) -> Result<Value, Refused> {
    let mut probe = Probe::new(forced)?;
    let sent = Step::Sent { lead: LEAD, worker: WORKER, key: None, replace: false, watch: false };
    let effects = probe.machine.apply(sent)?;
    Ok(Value::Bool(!effects.contains(&Effect::Acknowledge(Receipt::Ticket(TicketId(2))))))
}

/// An answer that no call of the worker waits for any more.
fn late_answer_is_prompt(forced: Option<Forced>) -> Result<Value, Refused> {
    let mut probe = Probe::new(forced)?;
    probe.ask()?;
    probe.take(Step::AskWindowClosed { question: QUESTION })?;
    probe.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended })?;
    let effects = probe.answer(false)?;
    Ok(Value::Bool(effects.contains(&Effect::Deliver { ticket: TICKET, prompt: Prompt::Answer(QUESTION) })))
}

/// An answer that a call was handed, and a call that left before it took it.
fn untaken_answer_returns(forced: Option<Forced>) -> Result<Value, Refused> {
    let mut probe = Probe::new(forced)?;
    probe.ask()?;
    probe.answer(false)?;
    let left = probe.take(Step::AskWindowClosed { question: QUESTION });
    let effects = probe.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended })?;
    let returns = effects.contains(&Effect::Deliver { ticket: TICKET, prompt: Prompt::Answer(QUESTION) });
    Ok(Value::Bool(left.is_ok() && returns))
}

/// A worker that dies without an end of the turn whose ticket a newer one has replaced.
fn queue_outlives_turn(forced: Option<Forced>) -> Result<Value, Refused> {
    let mut probe = Probe::new(forced)?;
    probe.send(true)?;
    let effects = probe.take(Step::WorkerDied { worker: WORKER })?;
    Ok(Value::Bool(effects.contains(&Effect::Launch(WORKER))))
}

/// Room for one ticket, which has ended and was not shown, and one more.
fn forgets_only_seen(forced: Option<Forced>) -> Result<Value, Refused> {
    let mut probe = Probe::with_room(1, forced)?;
    probe.replies()?;
    probe.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended })?;
    Ok(Value::Bool(probe.send(false) == Err(Refused::TooManyTickets)))
}
