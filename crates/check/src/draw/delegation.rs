//! A path of the ticket service: the lead, the service, its store, and the workers.

use lastword_core::delegation::{Effect, Prompt, QuestionId, Step, TicketId, TurnEnd, WorkerId};
use lastword_model::{DelegationModel, Model as _, Move};

use crate::report::{Diagram, Line};

const LEAD: usize = 0;
const SERVICE: usize = 1;
const STORE: usize = 2;

/// Draws the moves from the initial state. `breaks` says at which step, from 0, the promise is broken.
#[must_use]
pub fn draw(model: &DelegationModel, moves: &[Move<Step>], breaks: Option<usize>) -> Diagram {
    let mut columns: Vec<String> = ["lead", "service", "store"].map(str::to_owned).to_vec();
    let mut world = model.first();
    columns.extend((1..=world.core.decided().workers.len()).map(|worker| format!("worker {worker}")));
    let mut lines = Vec::new();
    for (at, action) in moves.iter().enumerate() {
        let of_ticket =
            |ticket: &TicketId| world.core.decided().tickets.get(ticket).map_or(SERVICE, |row| column_of(row.worker));
        let of_question = |question: &QuestionId| world.core.ticket_of(*question).map_or(SERVICE, |id| of_ticket(&id));
        let (from, to, label) = match &action.step {
            Step::Sent { replace: true, .. } => (LEAD, SERVICE, "sends, in the place of what is open".to_owned()),
            Step::Sent { .. } => (LEAD, SERVICE, "sends".to_owned()),
            Step::Delivered { ticket } => {
                (of_ticket(ticket), of_ticket(ticket), format!("has the prompt of {ticket:?}"))
            }
            Step::Asked { worker, ticket } => (column_of(*worker), SERVICE, format!("asks in {ticket:?}")),
            Step::AskWindowClosed { question } => {
                (of_question(question), of_question(question), format!("no longer waits for {question:?}"))
            }
            Step::AnswerTaken { question } => {
                (of_question(question), of_question(question), format!("takes the answer to {question:?}"))
            }
            Step::Answered { question, .. } => (LEAD, SERVICE, format!("answers {question:?}")),
            Step::Replied { worker, ticket: Some(ticket) } => {
                (column_of(*worker), SERVICE, format!("replies to {ticket:?}"))
            }
            Step::Replied { worker, ticket: None } => (column_of(*worker), SERVICE, "replies".to_owned()),
            Step::TurnEnded { ticket, end: TurnEnd::Ended } => {
                (of_ticket(ticket), SERVICE, "ends its prompt".to_owned())
            }
            Step::TurnEnded { ticket, end: TurnEnd::Failed } => (of_ticket(ticket), SERVICE, "fails".to_owned()),
            Step::Polled { ticket, .. } => (LEAD, SERVICE, format!("polls {ticket:?}")),
            Step::Seen { ticket, .. } => (SERVICE, LEAD, format!("shows how {ticket:?} ended")),
            Step::WindowClosed { .. } => (LEAD, LEAD, "no longer waits".to_owned()),
            Step::Cancelled { ticket, .. } => (LEAD, SERVICE, format!("cancels {ticket:?}")),
            Step::Stopped { worker, .. } => (LEAD, SERVICE, format!("stops {worker:?}")),
            Step::WorkerDied { worker } => (column_of(*worker), column_of(*worker), "dies".to_owned()),
            Step::Persisted { entries } => (STORE, SERVICE, format!("has {entries} more")),
            Step::Restarted => (SERVICE, SERVICE, "dies, and begins again".to_owned()),
            _ => (SERVICE, SERVICE, action.step.name().to_owned()),
        };
        // A path that the machine does not take to its end is drawn as far as it goes.
        let Ok(effects) = world.take(action) else { break };
        let note = |effect: &Effect| match effect {
            Effect::Acknowledge(receipt) => Some((LEAD, format!("is told: {receipt:?}"))),
            Effect::Show { ticket, .. } => Some((LEAD, format!("is shown {ticket:?}"))),
            Effect::Deliver { ticket, prompt } => {
                let worker = world.core.decided().tickets.get(ticket).map_or(SERVICE, |row| column_of(row.worker));
                let what = match prompt {
                    Prompt::Task => "is given the task".to_owned(),
                    Prompt::Answer(question) => format!("is prompted with the answer to {question:?}"),
                };
                Some((worker, what))
            }
            Effect::Answer(question) => Some((SERVICE, format!("hands the answer to {question:?}"))),
            _ => None,
        };
        let notes = effects.iter().filter_map(note).collect();
        lines.push(Line { from, to: (to != from).then_some(to), label, notes, breaks: breaks == Some(at) });
    }
    Diagram { columns, lines }
}

fn column_of(worker: WorkerId) -> usize {
    STORE + usize::try_from(worker.0).expect("workers are few")
}
