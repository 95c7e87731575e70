//! A path of steps as a sequence diagram that a person reads without the source.

pub mod delegation;

use lastword_core::{Answer, Effect, Outcome, Step};
use lastword_model::{ConnectionModel, Kind, Message, Move, World};

use crate::report::{Diagram, Line};

/// The columns that every diagram has, before those of the handlers.
const PEER: usize = 0;
const READER: usize = 1;

/// Draws the moves from the initial state. `breaks` says at which step, from 0, the promise is broken.
#[must_use]
pub fn draw(model: &ConnectionModel, moves: &[Move], breaks: Option<usize>) -> Diagram {
    let messages = &model.messages[..];
    let peer = if model.is_client() { "agent" } else { "client" };
    let mut columns: Vec<String> = [peer, "reader"].map(str::to_owned).to_vec();
    let mut column_of = vec![READER; messages.len()];
    for action in moves {
        if column_of[action.message] == READER && has_handler(&messages[action.message]) {
            column_of[action.message] = columns.len();
            columns.push(name(messages, action.message));
        }
    }
    let mut world = model.initial();
    let mut lines = Vec::new();
    for (at, action) in moves.iter().enumerate() {
        // A path that the machine does not take to its end is drawn as far as it goes.
        let Ok(effects) = world.take(messages, action) else { break };
        let own = column_of[action.message];
        let (from, to, label) = match &action.step {
            Step::Started(_) => (own, None, started(&effects)),
            Step::Returned(_, Outcome::Succeeded) => (own, None, "returns".to_owned()),
            Step::Returned(_, Outcome::Failed) => (own, None, "returns an error".to_owned()),
            Step::GraceOver(_) => (own, None, "is dropped: the grace period is over".to_owned()),
            Step::Called { .. } => (own, Some(PEER), "calls and waits".to_owned()),
            Step::ResponseArrived { .. } => (PEER, Some(own), "responds to the call".to_owned()),
            Step::Resumed { .. } => (own, None, "resumes".to_owned()),
            Step::ResumeOver { .. } => (own, None, "does not resume in time".to_owned()),
            Step::CallDropped { .. } => (own, None, "gives up".to_owned()),
            _ => (PEER, Some(READER), wire_name(messages, action.message)),
        };
        let notes = effects.iter().filter_map(|effect| note(effect, messages, &world, &column_of)).collect();
        lines.push(Line { from, to, label, notes, breaks: breaks == Some(at) });
    }
    Diagram { columns, lines }
}

fn has_handler(message: &Message) -> bool {
    !matches!(message.kind, Kind::RequestCancel | Kind::InputEnd)
}

fn started(effects: &[Effect]) -> String {
    let runs = effects.iter().any(|effect| matches!(effect, Effect::Run(_)));
    if runs { "starts" } else { "its task runs, its handler does not" }.to_owned()
}

/// What a message is called in a diagram.
fn name(messages: &[Message], message: usize) -> String {
    let what = match messages[message].kind {
        Kind::Prompt => "prompt",
        Kind::CancelNotification | Kind::CancelRequest => "cancel",
        Kind::Request => "request",
        Kind::Notification => "notification",
        Kind::RequestCancel => "$/cancel_request",
        Kind::InputEnd => "end of input",
        Kind::Call => "caller",
    };
    let sessions =
        messages.iter().filter_map(|message| message.session.as_ref()).collect::<std::collections::BTreeSet<_>>();
    match &messages[message].session {
        Some(session) if sessions.len() > 1 => format!("{what} {} of {}", message + 1, session.as_str()),
        _ => format!("{what} {}", message + 1),
    }
}

fn wire_name(messages: &[Message], message: usize) -> String {
    let number = message + 1;
    match messages[message].kind {
        Kind::Prompt => format!("session/prompt {number}"),
        Kind::CancelNotification => format!("session/cancel {number}"),
        Kind::CancelRequest => format!("session/cancel {number} (request)"),
        Kind::Request => format!("request {number}"),
        Kind::Notification => format!("notification {number}"),
        Kind::RequestCancel => match &messages[message].target {
            Some(target) => format!("$/cancel_request for {}", target.raw()),
            None => "$/cancel_request".to_owned(),
        },
        Kind::InputEnd => "end of input".to_owned(),
        Kind::Call => format!("call {number}"),
    }
}

fn note(effect: &Effect, messages: &[Message], world: &World, column_of: &[usize]) -> Option<(usize, String)> {
    match effect {
        Effect::Resume(call) => {
            // A handler's own call goes without saying.
            let caller = world.caller(*call).filter(|message| messages[*message].kind == Kind::Call)?;
            Some((column_of[caller], "has its response".to_owned()))
        }
        Effect::Close(_) => Some((READER, "closes the connection".to_owned())),
        Effect::Fire(arrival, _) => Some((column_of[world.message_of(*arrival)?], "token fires".to_owned())),
        Effect::Respond { id, arrival, answer } => {
            let said = match answer {
                Answer::Returned(Outcome::Succeeded) => "result",
                Answer::Returned(Outcome::Failed) => "error",
                Answer::Cancelled => "cancelled",
                Answer::RequestCancelled => "error -32800",
                _ => "refused",
            };
            let column = arrival
                .and_then(|arrival| world.message_of(arrival))
                .or_else(|| messages.iter().position(|message| message.id.as_ref() == Some(id)))
                .map_or(READER, |message| column_of[message]);
            Some((column, format!("answers {}: {said}", id.raw())))
        }
        _ => None,
    }
}
