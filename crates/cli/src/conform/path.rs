//! Scenarios whose expectations are what the real core says: the arrivals of a path, in one write, and every way in which
//! the machine may go on from there.
//!
//! What is claimed of a message is only what comes of it on every such way, so that no schedule of a peer can be blamed.

use std::collections::{BTreeMap, BTreeSet};

use lastword_core::{Connection, Limits, Outcome, RequestId, SessionId, Step};
use lastword_model::{Counterexample, Kind, Message, Move, Said, World};

use super::scenario::{Claim, Holds, Part, Scenario, Template};

/// The recorded counterexamples: the name of the file, and its text.
const COUNTEREXAMPLES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/counterexamples.rs"));

/// What peers.md measured first: each row is the words of one scenario. They are scenarios like the others, so that their
/// expectations are the core's as well.
const ROWS: &[&str] = &[
    "prompt prompt",
    "prompt cancel",
    "prompt cancel-request",
    "cancel prompt",
    "cancel-request prompt",
    "prompt cancel prompt",
    "prompt prompt cancel",
    "prompt abort-1",
    "prompt prompt-b cancel",
    // A prompt that is in flight when the input ends.
    "prompt end",
];

/// Why no scenario has a call of the machine to its peer in it.
const NO_MESSAGE: &str = "a path that has more than messages of the client is not told";

/// A counterexample that cannot be told at the wire, and why.
pub(crate) struct Untold {
    pub(crate) name: &'static str,
    pub(crate) why: String,
}

/// The scenarios of the domain turns, and the counterexamples that are none.
pub(crate) fn scenarios() -> (Vec<Scenario>, Vec<Untold>) {
    let mut scenarios: BTreeMap<String, Scenario> = BTreeMap::new();
    let mut order = Vec::new();
    let mut add = |arrivals: &[Step], source: &str| -> Result<(), String> {
        let arrivals = renumbered(arrivals);
        let name = name(&arrivals)?;
        if let Some(known) = scenarios.get_mut(&name) {
            known.sources.push(source.to_owned());
            return Ok(());
        }
        scenarios.insert(name.clone(), scenario(&name, &arrivals, source)?);
        order.push(name);
        Ok(())
    };
    for row in ROWS {
        add(&parse(row), "what the peers do").expect("the rows can be told; a test tells them all");
    }
    let mut untold = Vec::new();
    for (name, text) in COUNTEREXAMPLES {
        if let Err(why) = arrivals(text).and_then(|arrivals| add(&arrivals, name)) {
            untold.push(Untold { name, why });
        }
    }
    (order.into_iter().filter_map(|name| scenarios.remove(&name)).collect(), untold)
}

/// The messages of the client on a recorded path, if that is all there is to it for the one who sends them.
fn arrivals(text: &str) -> Result<Vec<Step>, String> {
    let recorded: Counterexample =
        serde_json::from_str(text).map_err(|error| format!("it could not be read: {error}"))?;
    if recorded.domain != "turns" {
        // The scenarios of clients ask for the same promises.
        return Err(format!("in the domain {}, what breaks is when a handler runs", recorded.domain));
    }
    match &*recorded.promise {
        "NothingLingers" => return Err("what a machine remembers does not show at the wire".to_owned()),
        "OneTurnAtATime" => {
            return Err("whether two handlers run at the same time does not show at the wire".to_owned());
        }
        _ => {}
    }
    let mut arrivals = Vec::new();
    for recorded in recorded.steps {
        let step = Step::try_from(recorded.step).map_err(|step| format!("{step:?} is no step of a connection"))?;
        match step {
            Step::Called { .. } | Step::ResponseArrived { .. } | Step::CallDropped { .. } => {
                return Err("no client can make the handlers of an agent call it at that moment".to_owned());
            }
            step if step.is_arrival() => arrivals.push(step),
            // What the tasks of the machine do is up to the agent.
            _ => {}
        }
    }
    Ok(arrivals)
}

/// The same messages with the ids 1, 2, ... and the sessions A, B in the order of their coming.
fn renumbered(arrivals: &[Step]) -> Vec<Step> {
    let mut sessions: Vec<SessionId> = Vec::new();
    let mut session = |wanted: &SessionId| {
        let at = sessions.iter().position(|known| known == wanted).unwrap_or_else(|| {
            sessions.push(wanted.clone());
            sessions.len() - 1
        });
        SessionId::from(["A", "B", "C"][at.min(2)])
    };
    let mut ids: Vec<(RequestId, RequestId)> = Vec::new();
    let new = |at: usize| RequestId::from(at as u64 + 1);
    let mut id = |at: usize, wanted: &RequestId| {
        ids.push((wanted.clone(), new(at)));
        new(at)
    };
    let mut renumbered = Vec::new();
    for (at, step) in arrivals.iter().enumerate() {
        renumbered.push(match step {
            Step::PromptArrived { id: old, session: of } => {
                Step::PromptArrived { id: id(at, old), session: session(of) }
            }
            Step::CancelArrived { id: old, session: of } => {
                Step::CancelArrived { id: old.as_ref().map(|old| id(at, old)), session: session(of) }
            }
            Step::RequestArrived { id: old } => Step::RequestArrived { id: id(at, old) },
            other => other.clone(),
        });
    }
    for step in &mut renumbered {
        if let Step::RequestCancelArrived { id } = step
            && let Some((_, new)) = ids.iter().find(|(old, _)| old == id)
        {
            *id = new.clone();
        }
    }
    renumbered
}

/// The words that make a scenario.
fn parse(row: &str) -> Vec<Step> {
    let one = |(at, word): (usize, &str)| {
        let id = RequestId::from(at as u64 + 1);
        let session = SessionId::from(if word.ends_with("-b") { "B" } else { "A" });
        match word.trim_end_matches("-b") {
            "prompt" => Step::PromptArrived { id, session },
            "cancel" => Step::CancelArrived { id: None, session },
            "cancel-request" => Step::CancelArrived { id: Some(id), session },
            "abort-1" => Step::RequestCancelArrived { id: RequestId::from(1) },
            "end" => Step::InputEnded,
            other => unreachable!("no row has the word {other}"),
        }
    };
    row.split(' ').enumerate().map(one).collect()
}

fn name(arrivals: &[Step]) -> Result<String, String> {
    let words: Result<Vec<String>, String> = arrivals
        .iter()
        .map(|step| {
            let of = |session: &SessionId| match session.as_str() {
                "A" => Ok(""),
                "B" => Ok("-b"),
                _ => Err("it has more than two sessions".to_owned()),
            };
            Ok(match step {
                Step::PromptArrived { session, .. } => format!("prompt{}", of(session)?),
                Step::CancelArrived { id: None, session } => format!("cancel{}", of(session)?),
                Step::CancelArrived { id: Some(_), session } => format!("cancel-request{}", of(session)?),
                Step::RequestCancelArrived { id } => format!("abort-{}", id.raw()),
                Step::RequestArrived { .. } => "request".to_owned(),
                Step::NotificationArrived => "notification".to_owned(),
                Step::InputEnded => "end".to_owned(),
                other => return Err(format!("no client sends {other:?}")),
            })
        })
        .collect();
    Ok(words?.join("-"))
}

fn scenario(name: &str, arrivals: &[Step], source: &str) -> Result<Scenario, String> {
    let messages: Vec<Message> = arrivals.iter().filter_map(Message::of).collect();
    let fates = fates(&messages)?;
    let mut claims = vec![Claim { promise: "AnsweredOnce", what: Holds::EachAnsweredOnce }];
    for (prompt, message) in messages.iter().enumerate().filter(|(_, message)| message.is_prompt()) {
        let mut claim = |promise, what| claims.push(Claim { promise, what });
        let Some(by) = fates[prompt].ended_by else {
            // Where several messages might have ended it, the last of them stands for all: the wire does not tell which did.
            let spared = messages.iter().enumerate().rev().find_map(|(despite, other)| {
                spared_by(prompt, message, despite, other).map(|promise| (promise, Holds::Lives { prompt, despite }))
            });
            if let Some((promise, what)) = spared {
                claim(promise, what);
            }
            claim("EveryPromptIsAnswered", Holds::IsAnswered { prompt });
            continue;
        };
        match messages[by].kind {
            Kind::Prompt => claim("OlderPromptEnds", Holds::Ends { prompt, by }),
            Kind::CancelNotification | Kind::CancelRequest => {
                claim("CancelReachesEarlierPrompts", Holds::Ends { prompt, by });
            }
            Kind::RequestCancel => claim("RequestCancelHitsItsRequest", Holds::Ends { prompt, by }),
            _ => claim("EveryPromptIsAnswered", Holds::IsAnswered { prompt }),
        }
        claim("CancelledIsSaid", Holds::SaysCancelled { prompt });
    }
    let parts = messages.iter().enumerate().map(|(at, message)| part(message, fates[at].ended_by.is_some()));
    Ok(Scenario {
        name: name.to_owned(),
        title: title(&messages),
        sources: vec![source.to_owned()],
        parts: parts.collect(),
        claims,
        heavy: false,
        needs: None,
    })
}

/// The promise by which a prompt lives although this other message came, if there is one.
fn spared_by(at: usize, prompt: &Message, other_at: usize, other: &Message) -> Option<&'static str> {
    let earlier = other_at < at;
    match other.kind {
        Kind::Prompt if earlier => Some("NewerPromptSurvives"),
        Kind::CancelNotification | Kind::CancelRequest if earlier => Some("CancelSparesLaterPrompts"),
        // It came after the prompt, and did not end it: it is about another session.
        Kind::CancelNotification | Kind::CancelRequest => Some("CancelReachesEarlierPrompts"),
        Kind::RequestCancel if other.target != prompt.id => Some("RequestCancelHitsItsRequest"),
        _ => None,
    }
}

/// What comes of a message on every way that the machine may take.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Fate {
    said: Option<Said>,
    ended_by: Option<usize>,
}

fn fates(messages: &[Message]) -> Result<Vec<Fate>, String> {
    let mut world = World::new(Connection::new(Limits::default()), messages.len());
    for (message, arriving) in messages.iter().enumerate() {
        let action = Move { step: arriving.beginning(), message };
        world.take(messages, &action).map_err(|error| format!("the machine does not take it in: {error}"))?;
    }
    let mut ends: BTreeSet<Vec<Fate>> = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut next = vec![world];
    while let Some(world) = next.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        let moves: Vec<Move> = world.core.may_come().into_iter().filter_map(|step| task(&world, step)).collect();
        if moves.is_empty() {
            ends.insert(
                world
                    .fates
                    .iter()
                    .map(|fate| Fate { said: fate.said, ended_by: (fate.ended_by as usize).checked_sub(1) })
                    .collect(),
            );
        }
        for action in moves {
            let mut after = world.clone();
            after.take(messages, &action).map_err(|error| error.to_string())?;
            next.push(after);
        }
    }
    let mut ends = ends.into_iter();
    match (ends.next(), ends.next()) {
        (Some(only), None) if only.iter().any(|fate| fate.said == Some(Said::Refused)) => {
            Err("the machine refuses one of its messages".to_owned())
        }
        (Some(only), None) => Ok(only),
        _ => Err("what comes of it depends on the schedule of the agent".to_owned()),
    }
}

/// What handlers that do as they are told may do: they start, and they return.
fn task(world: &World, step: Step) -> Option<Move> {
    let (Step::Started(arrival) | Step::Returned(arrival, Outcome::Succeeded)) = step else { return None };
    world.message_of(arrival).map(|message| Move { step, message })
}

/// How a message is sent. A prompt that must be ended takes long, every other one is short.
fn part(message: &Message, ended: bool) -> Part {
    let session = if message.session.as_ref().map(SessionId::as_str) == Some("B") { "$B" } else { "$A" };
    let text = if ended { "$LONG" } else { "$SHORT" };
    let call = |method: &str, params: &str| format!(r#"{{"jsonrpc":"2.0",{method},"params":{params}}}"#);
    let template = Template::Text(match message.kind {
        Kind::Prompt => call(
            r#""id":$NEW,"method":"session/prompt""#,
            &format!(r#"{{"sessionId":{session},"prompt":[{{"type":"text","text":{text}}}]}}"#),
        ),
        Kind::CancelNotification => call(r#""method":"session/cancel""#, &format!(r#"{{"sessionId":{session}}}"#)),
        Kind::CancelRequest => call(r#""id":$NEW,"method":"session/cancel""#, &format!(r#"{{"sessionId":{session}}}"#)),
        Kind::RequestCancel => {
            let target = message.target.as_ref().map_or("0", |target| target.raw());
            call(r#""method":"$/cancel_request""#, &format!(r#"{{"requestId":${target}}}"#))
        }
        Kind::Request => call(r#""id":$NEW,"method":"_lastword/nothing""#, "{}"),
        Kind::Notification => call(r#""method":"_lastword/nothing""#, "{}"),
        Kind::InputEnd => return Part { template: Template::End, is_request: false },
        Kind::Call => unreachable!("{NO_MESSAGE}"),
    });
    Part { template, is_request: message.is_request() }
}

fn title(messages: &[Message]) -> String {
    let two_sessions = messages.iter().any(|message| message.session.as_ref().map(SessionId::as_str) == Some("B"));
    let one = |(at, message): (usize, &Message)| {
        let of = message
            .session
            .as_ref()
            .map(SessionId::as_str)
            .filter(|_| two_sessions)
            .map_or(String::new(), |name| format!(" of {name}"));
        match message.kind {
            Kind::Prompt => format!("prompt {}{of}", at + 1),
            Kind::CancelNotification => format!("cancel{of}"),
            Kind::CancelRequest => format!("cancel{of} as a request"),
            Kind::RequestCancel => {
                format!("$/cancel_request of {}", message.target.as_ref().map_or("nothing", |target| target.raw()))
            }
            Kind::Request => "a request".to_owned(),
            Kind::Notification => "a notification".to_owned(),
            Kind::InputEnd => "the end of the input".to_owned(),
            Kind::Call => unreachable!("{NO_MESSAGE}"),
        }
    };
    messages.iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_and_every_counterexample_is_told_or_says_why_not() {
        let (scenarios, untold) = scenarios();
        let from_files: usize = scenarios.iter().flat_map(|scenario| &scenario.sources).count() - ROWS.len();
        assert_eq!(from_files + untold.len(), COUNTEREXAMPLES.len());
        let of_turns = untold.iter().map(|untold| untold.name).filter(|name| name.starts_with("turns-"));
        assert_eq!(
            of_turns.collect::<Vec<_>>(),
            [
                "turns-CancelSparesLaterPrompts-cancel-waits-for-the-peer",
                "turns-EveryPromptIsAnswered-peer-wait-does-not-release",
                "turns-NothingLingers-idle-session-lingers",
                "turns-NothingLingers-in-flight-without-bound",
                "turns-OneTurnAtATime-turns-run-side-by-side",
            ]
        );
    }

    /// What a change of the machine would change here unnoticed, since the claims are its own.
    #[test]
    fn which_prompts_end_and_which_live_is_pinned() {
        let (scenarios, _) = scenarios();
        let told = |scenario: &Scenario| {
            let fates = scenario.claims.iter().filter_map(|claim| match claim.what {
                Holds::Ends { prompt, by } => Some(format!(" {} by {}", prompt + 1, by + 1)),
                Holds::Lives { prompt, .. } => Some(format!(" {} lives", prompt + 1)),
                _ => None,
            });
            format!("{}:{}", scenario.name, fates.collect::<String>())
        };
        assert_eq!(
            scenarios.iter().map(told).collect::<Vec<_>>(),
            [
                "prompt-prompt: 1 by 2 2 lives",
                "prompt-cancel: 1 by 2",
                "prompt-cancel-request: 1 by 2",
                "cancel-prompt: 2 lives",
                "cancel-request-prompt: 2 lives",
                "prompt-cancel-prompt: 1 by 2 3 lives",
                "prompt-prompt-cancel: 1 by 2 2 by 3",
                "prompt-abort-1: 1 by 2",
                "prompt-prompt-b-cancel: 1 by 3 2 lives",
                "prompt-end:",
                "cancel-request-prompt-cancel-request: 2 by 3",
                "prompt-prompt-cancel-prompt: 1 by 2 2 by 3 4 lives",
            ]
        );
    }

    #[test]
    fn what_is_claimed_is_what_the_machine_does() {
        let (scenarios, _) = scenarios();
        let claims = |name: &str| {
            let scenario = scenarios.iter().find(|scenario| scenario.name == name).unwrap();
            scenario.claims.iter().map(|claim| (claim.promise, claim.what.clone())).collect::<Vec<_>>()
        };
        assert_eq!(
            claims("prompt-cancel-prompt"),
            [
                ("AnsweredOnce", Holds::EachAnsweredOnce),
                ("CancelReachesEarlierPrompts", Holds::Ends { prompt: 0, by: 1 }),
                ("CancelledIsSaid", Holds::SaysCancelled { prompt: 0 }),
                ("CancelSparesLaterPrompts", Holds::Lives { prompt: 2, despite: 1 }),
                ("EveryPromptIsAnswered", Holds::IsAnswered { prompt: 2 }),
            ]
        );
        assert_eq!(
            claims("prompt-prompt-b-cancel"),
            [
                ("AnsweredOnce", Holds::EachAnsweredOnce),
                ("CancelReachesEarlierPrompts", Holds::Ends { prompt: 0, by: 2 }),
                ("CancelledIsSaid", Holds::SaysCancelled { prompt: 0 }),
                ("CancelReachesEarlierPrompts", Holds::Lives { prompt: 1, despite: 2 }),
                ("EveryPromptIsAnswered", Holds::IsAnswered { prompt: 1 }),
            ]
        );
    }
}
