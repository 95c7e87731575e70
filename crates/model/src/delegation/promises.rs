//! The promises of the domain delegation: one predicate each.

use lastword_core::delegation::{Asked, Ending, Progress, State, TicketId};

use super::{
    DelegationModel,
    world::{Places, World},
};
use crate::{
    model::PromiseOf,
    promises::{Check, Promise},
};

/// What a predicate may look at.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The state.
    pub world: &'a World,
}

/// The promises of the domain delegation.
pub const PROMISES: &[PromiseOf<DelegationModel>] = &[
    Promise { name: "ReplyReachesTicket", check: Check::Always(reply_reaches_ticket) },
    Promise { name: "NoFalseFailure", check: Check::Always(no_false_failure) },
    Promise { name: "ReplyExactlyOnce", check: Check::Always(reply_exactly_once) },
    Promise { name: "NoWrongTicket", check: Check::Always(no_wrong_ticket) },
    Promise { name: "TerminalIsFinal", check: Check::Always(terminal_is_final) },
    Promise { name: "SameKeySameTicket", check: Check::Always(same_key_same_ticket) },
    Promise { name: "QuestionReachesLead", check: Check::Always(question_reaches_lead) },
    Promise { name: "AnswerReachesWorker", check: Check::Eventually { when: is_answered, then: has_the_answers } },
    Promise { name: "AnswerExactlyOnce", check: Check::Always(answer_exactly_once) },
    Promise { name: "EveryTicketEnds", check: Check::Eventually { when: is_stored, then: has_ended } },
    Promise { name: "WaitingTicketSurvives", check: Check::Always(waiting_ticket_survives) },
    Promise { name: "UnseenIsKept", check: Check::Always(unseen_is_kept) },
    Promise { name: "AcknowledgedSurvivesCrash", check: Check::Always(acknowledged_survives_crash) },
];

impl<'a> View<'a> {
    fn tickets(self) -> impl Iterator<Item = usize> + 'a {
        0..self.world.fates.len()
    }
}

/// The reply that was accepted while the ticket was open is the one that completed it.
fn reply_reaches_ticket(view: View<'_>) -> bool {
    view.tickets().all(|ticket| match (view.world.fates[ticket].reply, view.world.row(ticket)) {
        (Some(reply), Some(row)) => row.reply() == Some(reply) || row.state().is_terminal() && row.reply().is_none(),
        _ => true,
    })
}

fn no_false_failure(view: View<'_>) -> bool {
    view.tickets().all(|ticket| {
        let state = view.world.row(ticket).map(lastword_core::delegation::Ticket::state);
        let is_failure = matches!(state, Some(State::Failed | State::Cancelled));
        !(is_failure && view.world.fates[ticket].reply.is_some())
    })
}

fn reply_exactly_once(view: View<'_>) -> bool {
    let places = Places::in_(view.world.core.decided());
    let is_forgotten = view.world.forgets();
    view.world
        .replies
        .iter()
        .all(|(reply, (_, named))| places.of(*reply) == usize::from(!named.is_some_and(&is_forgotten)))
        && !view.world.breaches.contains("stray")
}

/// Whatever stands at a ticket was said to it, by its worker; and each answer was given for the question it is to.
fn no_wrong_ticket(view: View<'_>) -> bool {
    view.world.core.decided().tickets.iter().all(|(id, row): (&TicketId, _)| {
        let rightly = |reply| match view.world.replies.get(&reply) {
            Some((worker, named)) => *worker == row.worker && *named == Some(*id),
            None => false,
        };
        let is_given = |question| view.world.given.contains_key(question);
        row.reply().into_iter().chain(row.late_replies.iter().copied()).all(rightly)
            && row.questions.iter().all(|(question, asked)| *asked == Asked::Answered || !is_given(question))
    })
}

fn terminal_is_final(view: View<'_>) -> bool {
    view.tickets().all(|ticket| match (view.world.fates[ticket].ended, view.world.row(ticket)) {
        (Some(ended), Some(row)) => row.progress == ended,
        _ => true,
    })
}

fn same_key_same_ticket(view: View<'_>) -> bool {
    view.world.fates.iter().all(|fate| !fate.is_double)
}

/// A poll shows each stored question, no call goes on watching beside one, and no ticket ends by a last message while one
/// waits.
fn question_reaches_lead(view: View<'_>) -> bool {
    view.tickets().all(|ticket| {
        let (Some(row), Some(id)) = (view.world.row(ticket), view.world.fates[ticket].id) else { return true };
        let open = |row: &lastword_core::delegation::Ticket| row.open_questions().collect::<Vec<_>>();
        let shown = view.world.core.ticket(id).map(|shown| shown.questions);
        let is_watched = || view.world.core.watches().any(|(_, watched)| watched == id);
        let is_stored = || view.world.stored(ticket) == Some(row);
        shown == view.world.stored(ticket).map(open)
            && !(row.state() == State::InputRequired && is_stored() && is_watched())
            && !(row.ending() == Some(Ending::LastMessage) && row.questions.values().any(|asked| *asked == Asked::Open))
    })
}

fn waiting_ticket_survives(view: View<'_>) -> bool {
    !view.world.breaches.contains("waiting")
}

fn unseen_is_kept(view: View<'_>) -> bool {
    !view.world.breaches.contains("unseen")
}

fn is_answered(view: View<'_>, ticket: usize) -> bool {
    view.world.stored(ticket).is_some_and(|row| row.questions.values().any(|asked| *asked == Asked::Answered))
}

/// The worker has each answer that is stored, or the ticket has ended without it.
fn has_the_answers(view: View<'_>, ticket: usize) -> bool {
    let answered = view.world.stored(ticket).into_iter().flat_map(|row| &row.questions);
    has_ended(view, ticket)
        || answered
            .filter(|(_, asked)| **asked == Asked::Answered)
            .all(|(question, _)| view.world.given.contains_key(question))
}

fn answer_exactly_once(view: View<'_>) -> bool {
    let given = |question| view.world.given.get(question).copied().unwrap_or(0);
    view.world.given.values().all(|times| *times == 1)
        && view.tickets().filter_map(|ticket| view.world.row(ticket)).all(|row| {
            row.ending() != Some(Ending::LastMessage)
                || row.questions.iter().all(|(question, asked)| *asked == Asked::Open || given(question) == 1)
        })
}

fn is_stored(view: View<'_>, ticket: usize) -> bool {
    view.world.stored(ticket).is_some()
}

fn has_ended(view: View<'_>, ticket: usize) -> bool {
    view.world.stored(ticket).is_some_and(|row| matches!(row.progress, Progress::Ended(_)))
}

/// What anybody was told of is in the store, so that a crash in this very state would leave it; and after a crash it is in
/// the machine.
fn acknowledged_survives_crash(view: View<'_>) -> bool {
    let tables = [&view.world.store, view.world.core.decided()];
    let is_forgotten = view.world.forgets();
    let places = tables.map(Places::in_);
    let is_kept = |reply| places.iter().all(|places| places.of(reply) == 1);
    view.world.strays_acknowledged.iter().all(|reply| is_kept(*reply))
        && view.tickets().filter(|ticket| !view.world.fates[*ticket].id.is_some_and(&is_forgotten)).all(|ticket| {
            let fate = &view.world.fates[ticket];
            let rows = [view.world.stored(ticket), view.world.row(ticket)];
            (!fate.acknowledged || rows.iter().all(Option::is_some))
                && fate.replies_acknowledged.iter().all(|reply| is_kept(*reply))
                && fate.answers_acknowledged.iter().all(|question| {
                    rows.iter().all(|row| row.is_some_and(|row| row.questions.get(question) == Some(&Asked::Answered)))
                })
        })
        && view
            .world
            .workers_acknowledged
            .iter()
            .all(|worker| tables.iter().all(|tables| tables.workers.contains_key(worker)))
}
