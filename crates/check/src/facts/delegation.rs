//! The facts of the domain delegation, told from what leads and workers see of the real service, whose journal is a file.

use std::time::Duration;

use lastword::delegation::{Limits, QuestionId, Seen, State};
use lastword_core::{
    Forced,
    delegation::{LeadId, Refused, Step, TicketId, TurnEnd, WatchId, WorkerId},
};
use lastword_model::Value;

use super::text;
use crate::rig::delegation::{Rig, RigError, runtime};

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

pub(super) fn measure(fact: &str, forced: Option<Forced>) -> Result<Value, RigError> {
    runtime()?.block_on(async {
        match fact {
            "AbandonChecksReply" => abandon_checks_reply(forced).await,
            "AcknowledgedOnceStored" => acknowledged_once_stored(forced).await,
            "ForgetsOnlySeen" => forgets_only_seen(forced).await,
            "LateAnswerIsPrompt" => late_answer_is_prompt(forced).await,
            "QuestionsHaveIds" => questions_have_ids(forced).await,
            "QueueOutlivesTurn" => queue_outlives_turn(forced).await,
            "UntakenAnswerReturns" => untaken_answer_returns(forced).await,
            _ => reply_looks_at(forced).await,
        }
    })
}

/// A worker that was given the task of a ticket that nobody watches.
struct Probe {
    rig: Rig,
}

impl Probe {
    async fn new(forced: Option<Forced>) -> Result<Self, RigError> {
        Self::within(limits(forced)).await
    }

    async fn within(limits: Limits) -> Result<Self, RigError> {
        let mut probe = Self { rig: Rig::new(1, limits).await? };
        probe.take(sent(false)).await?;
        probe.take(Step::Delivered { ticket: TICKET }).await?;
        Ok(probe)
    }

    /// Takes a step, and lets the store do what it was asked for.
    async fn take(&mut self, step: Step) -> Result<(), RigError> {
        let (_, mut machine) = self.rig.take(&step).await?;
        while machine.unstored().next().is_some() {
            (_, machine) = self.rig.take(&Step::Persisted { entries: 1 }).await?;
        }
        self.rig.callers().await
    }

    /// Takes a step, if the service comes to it.
    async fn try_take(&mut self, step: Step) -> Result<bool, RigError> {
        let comes = self.rig.fleet().machine().may_come().contains(&step);
        if comes {
            self.take(step).await?;
        }
        Ok(comes)
    }

    /// Whether the worker hears the answer to its question by this step, if the service comes to it.
    async fn hears(&mut self, step: Step) -> Result<bool, RigError> {
        Ok(self.try_take(step).await? && self.rig.heard(QUESTION) == 1)
    }

    async fn ask(&mut self) -> Result<(), RigError> {
        self.take(Step::Asked { worker: WORKER, ticket: TICKET }).await
    }

    async fn answer(&mut self, watch: bool) -> Result<(), RigError> {
        self.take(Step::Answered { lead: LEAD, question: QUESTION, watch }).await
    }

    async fn replies(&mut self) -> Result<bool, RigError> {
        self.take(Step::Replied { worker: WORKER, ticket: Some(TICKET) }).await?;
        self.is_completed().await
    }

    /// Whether a poll shows the reply.
    async fn is_completed(&self) -> Result<bool, RigError> {
        let seen = self.rig.fleet().poll(LEAD, TICKET, Duration::ZERO).await;
        let Seen { state, reply, is_last_message, .. } = seen.map_err(|error| RigError::Told(error.to_string()))?;
        Ok(state == State::Completed && reply.is_some() && !is_last_message)
    }
}

fn limits(forced: Option<Forced>) -> Limits {
    let mut limits = Limits::default();
    limits.forced = forced;
    limits
}

fn sent(replace: bool) -> Step {
    Step::Sent { lead: LEAD, worker: WORKER, key: None, replace, watch: false }
}

/// A reply that nobody waits for, in a turn that has not asked, and in one that has asked and was answered in vain.
async fn reply_looks_at(forced: Option<Forced>) -> Result<Value, RigError> {
    if Probe::new(forced).await?.replies().await? {
        return Ok(text("ticket"));
    }
    let mut probe = Probe::new(forced).await?;
    probe.ask().await?;
    probe.answer(true).await?;
    probe.take(Step::WindowClosed { watch: WatchId(1) }).await?;
    Ok(text(if probe.replies().await? { "waiter-then-asked-ticket" } else { "waiter" }))
}

/// A reply, and then a stop.
async fn abandon_checks_reply(forced: Option<Forced>) -> Result<Value, RigError> {
    let mut probe = Probe::new(forced).await?;
    probe.replies().await?;
    probe.take(Step::Stopped { lead: LEAD, worker: WORKER }).await?;
    Ok(Value::Bool(probe.is_completed().await?))
}

/// Two questions, and an answer to the first one: whether its call takes it.
async fn questions_have_ids(forced: Option<Forced>) -> Result<Value, RigError> {
    let mut probe = Probe::new(forced).await?;
    probe.ask().await?;
    probe.ask().await?;
    probe.answer(false).await?;
    Ok(Value::Bool(probe.hears(Step::AnswerTaken { question: QUESTION }).await?))
}

/// A send that the store does not have: whether its call still waits.
async fn acknowledged_once_stored(forced: Option<Forced>) -> Result<Value, RigError> {
    let mut rig = Rig::new(1, limits(forced)).await?;
    rig.take(&sent(false)).await?;
    Ok(Value::Bool(rig.waiting() == 1))
}

/// An answer that no call of the worker waits for any more: whether the worker hears it with its next prompt.
async fn late_answer_is_prompt(forced: Option<Forced>) -> Result<Value, RigError> {
    let mut probe = Probe::new(forced).await?;
    probe.ask().await?;
    probe.take(Step::AskWindowClosed { question: QUESTION }).await?;
    probe.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended }).await?;
    probe.answer(false).await?;
    Ok(Value::Bool(probe.hears(Step::Delivered { ticket: TICKET }).await?))
}

/// An answer that a call was handed, and that the worker leaves before it takes it: whether it hears it with its next prompt.
async fn untaken_answer_returns(forced: Option<Forced>) -> Result<Value, RigError> {
    let mut probe = Probe::new(forced).await?;
    probe.ask().await?;
    probe.answer(false).await?;
    if probe.try_take(Step::AskWindowClosed { question: QUESTION }).await? {
        probe.try_take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended }).await?;
    }
    Ok(Value::Bool(probe.hears(Step::Delivered { ticket: TICKET }).await?))
}

/// A worker that dies without an end of the turn whose ticket a newer one has replaced: whether it comes to the newer one.
async fn queue_outlives_turn(forced: Option<Forced>) -> Result<Value, RigError> {
    let mut probe = Probe::new(forced).await?;
    probe.take(sent(true)).await?;
    probe.take(Step::WorkerDied { worker: WORKER }).await?;
    Ok(Value::Bool(probe.try_take(Step::Delivered { ticket: TicketId(2) }).await?))
}

/// Room for one ticket, which has ended and was not shown, and one more: whether that is refused.
async fn forgets_only_seen(forced: Option<Forced>) -> Result<Value, RigError> {
    let mut limits = limits(forced);
    limits.tickets_max = 1;
    let mut probe = Probe::within(limits).await?;
    probe.take(Step::Replied { worker: WORKER, ticket: Some(TICKET) }).await?;
    probe.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended }).await?;
    match probe.take(sent(false)).await {
        Ok(()) => Ok(Value::Bool(false)),
        Err(RigError::Refused(Refused::TooManyTickets)) => Ok(Value::Bool(true)),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use lastword_core::GUARDS;

    use super::*;

    fn forced(guard: &str, to: bool) -> Option<Forced> {
        let guard = GUARDS.into_iter().find(|known| *known == guard).expect("a guard of the core");
        Some(Forced { guard, to })
    }

    #[test]
    fn the_service_is_the_design_that_the_configurations_say() {
        for fact in FACTS {
            let value = if fact == "ReplyLooksAt" { "\"ticket\"" } else { "TRUE" };
            assert_eq!(measure(fact, None).expect("it is measured").to_string(), value, "{fact}");
        }
    }

    #[test]
    fn a_forced_guard_moves_the_fact_that_rests_on_it() {
        for (fact, guard, to, value) in [
            ("AbandonChecksReply", "ended-stays-ended", true, "FALSE"),
            ("AcknowledgedOnceStored", "acknowledged-once-stored", false, "FALSE"),
            ("ForgetsOnlySeen", "ended-is-to-be-seen", false, "FALSE"),
            ("LateAnswerIsPrompt", "late-answer-is-a-prompt", false, "FALSE"),
            ("QueueOutlivesTurn", "queue-outlives-a-turn-that-is-over", false, "FALSE"),
            ("ReplyLooksAt", "reply-completes-its-ticket", false, "\"waiter\""),
            ("UntakenAnswerReturns", "handed-is-not-taken", false, "FALSE"),
        ] {
            let measured = measure(fact, forced(guard, to)).expect("it is measured");
            assert_eq!(measured.to_string(), value, "{fact} under {guard}");
        }
    }
}
