//! The promises: one predicate each.
//!
//! A promise has one row in specs/promises.toml (its name, its statement, who keeps it), one predicate here, and one line
//! in the specification of its domain. `check.sh` fails where one of the three is missing.

use lastword_core::{Overlap, Stage};
use serde::Deserialize;

use crate::{
    message::{Kind, Message},
    world::{Breaches, Call, Said, World},
};

/// A promise and how it is told from a state.
#[derive(Debug, Clone, Copy)]
pub struct Promise<A = fn(View<'_>) -> bool, E = fn(View<'_>, usize) -> bool> {
    /// The name, the same in promises.toml, in the specification, in tests and in reports.
    pub name: &'static str,
    /// How it is checked.
    pub check: Check<A, E>,
}

/// How a promise is checked.
#[derive(Debug, Clone, Copy)]
pub enum Check<A, E> {
    /// It must be so in every state.
    Always(A),
    /// For each message: once `when` is so, `then` must be so in the end. Both stay so.
    Eventually {
        /// From where on it is owed.
        when: E,
        /// What must come.
        then: E,
    },
}

/// What a predicate may look at.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// What the client sends.
    pub messages: &'a [Message],
    /// The state.
    pub world: &'a World,
}

impl Promise {
    /// Whether a state keeps the promise. What must come in the end, no single state can break.
    #[must_use]
    pub fn holds(&self, messages: &[Message], world: &World) -> bool {
        match self.check {
            Check::Always(predicate) => predicate(View { messages, world }),
            Check::Eventually { .. } => true,
        }
    }
}

/// The row of a promise in specs/promises.toml.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The name.
    pub name: String,
    /// The statement: one sentence.
    pub statement: String,
    /// The domain.
    pub domain: String,
    /// The function of core that keeps it.
    pub keeper: String,
}

/// Reads the rows of specs/promises.toml.
///
/// # Errors
///
/// Where the text is no such table.
pub fn rows(text: &str) -> Result<Vec<Row>, toml::de::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Rows {
        promise: Vec<Row>,
    }
    Ok(toml::from_str::<Rows>(text)?.promise)
}

/// The promises of the domain turns.
pub const TURNS: &[Promise] = &[
    Promise { name: "NewerPromptSurvives", check: Check::Always(newer_prompt_survives) },
    Promise { name: "OlderPromptEnds", check: Check::Always(older_prompt_ends) },
    Promise { name: "OlderPromptFinishes", check: Check::Always(older_prompt_finishes) },
    Promise { name: "CancelReachesEarlierPrompts", check: Check::Always(cancel_reaches_earlier_prompts) },
    Promise { name: "CancelSparesLaterPrompts", check: Check::Always(cancel_spares_later_prompts) },
    Promise { name: "RequestCancelHitsItsRequest", check: Check::Always(request_cancel_hits_its_request) },
    Promise { name: "OneTurnAtATime", check: Check::Always(one_turn_at_a_time) },
    Promise { name: "AnsweredOnce", check: Check::Always(answered_once) },
    Promise { name: "CancelledIsSaid", check: Check::Always(cancelled_is_said) },
    Promise { name: "NothingLingers", check: Check::Always(nothing_lingers) },
    Promise { name: "EveryPromptIsAnswered", check: Check::Eventually { when: is_owed_an_answer, then: is_answered } },
];

/// The promises of the domain barrier.
pub const BARRIER: &[Promise] = &[
    Promise { name: "NotificationsInOrder", check: Check::Always(notifications_in_order) },
    Promise { name: "ResponseAfterEarlierNotifications", check: Check::Always(|view| !view.breaches().response_early) },
    Promise {
        name: "ResponseBeforeLaterNotifications",
        check: Check::Always(|view| !view.breaches().caller_overtaken),
    },
    Promise { name: "RequestAfterEarlierNotifications", check: Check::Always(|view| !view.breaches().request_early) },
    Promise { name: "PeerWaitReleases", check: Check::Eventually { when: waits_for_peer, then: is_answered_by_peer } },
    Promise { name: "EveryNotificationIsHandled", check: Check::Eventually { when: is_taken_in, then: is_handled } },
    Promise { name: "NoSilentDrop", check: Check::Always(no_silent_drop) },
    Promise { name: "FullQueueWaits", check: Check::Always(full_queue_waits) },
    Promise { name: "DrainedAtClose", check: Check::Eventually { when: is_left_at_close, then: is_handled } },
    Promise { name: "CallersLearnOfClose", check: Check::Always(callers_learn_of_close) },
];

/// The promises of the domain guard; all those of turns that a state can show are one of them.
pub const GUARD: &[Promise] = &[
    Promise { name: "AgentSeesOneTurn", check: Check::Always(agent_sees_one_turn) },
    Promise { name: "ClientSeesTurnsKept", check: Check::Always(client_sees_turns_kept) },
    Promise {
        name: "SilentAgentIsGivenUp",
        check: Check::Eventually { when: is_ended_and_with_agent, then: is_answered_or_given_up },
    },
];

/// The promises of a domain by their names, each with whether it must hold in every state.
#[must_use]
pub fn named(domain: &str) -> Vec<Named> {
    match domain {
        "turns" => TURNS.iter().map(Promise::named).collect(),
        "barrier" => BARRIER.iter().map(Promise::named).collect(),
        "guard" => GUARD.iter().map(Promise::named).collect(),
        "delegation" => crate::delegation::PROMISES.iter().map(Promise::named).collect(),
        _ => Vec::new(),
    }
}

/// A promise, whichever machine it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: &'static str,
    /// It must be so in every state; else it must come in the end.
    pub always: bool,
}

impl<A, E> Promise<A, E> {
    /// Its name, and of which kind it is.
    #[must_use]
    pub fn named(&self) -> Named {
        Named { name: self.name, always: matches!(self.check, Check::Always(_)) }
    }
}

/// The promises that every connection keeps, whatever stands behind it.
pub fn all() -> impl Iterator<Item = &'static Promise> {
    TURNS.iter().chain(BARRIER)
}

impl<'a> View<'a> {
    fn numbers(self, which: impl Fn(&Message) -> bool + 'a) -> impl Iterator<Item = usize> + 'a {
        (0..self.messages.len()).filter(move |number| which(&self.messages[*number]))
    }

    fn breaches(self) -> Breaches {
        self.world.breaches
    }

    fn notifications(self) -> impl Iterator<Item = usize> + 'a {
        self.numbers(Message::is_queued)
    }

    fn prompts(self) -> impl Iterator<Item = usize> + 'a {
        self.numbers(Message::is_prompt)
    }

    fn overlap(self) -> Overlap {
        self.world.core.limits().overlap
    }

    fn runs(self, number: usize) -> bool {
        self.world.fates[number].arrival.is_some_and(|arrival| self.world.core.is_running(arrival))
    }

    fn same_session(self, one: usize, other: usize) -> bool {
        self.messages[one].session == self.messages[other].session
    }

    /// The message that ended this one, if one did.
    fn ended_by(self, number: usize) -> Option<usize> {
        (self.world.fates[number].ended_by as usize).checked_sub(1)
    }

    /// Nothing of it goes on: it is done, or it was ended and a handler that runs knows.
    fn is_ending(self, number: usize) -> bool {
        let fate = &self.world.fates[number];
        let runs = fate.arrival.and_then(|arrival| self.world.core.stage(arrival)) == Some(Stage::Running);
        self.world.is_done(number) || (fate.ended_by > 0 && (!runs || fate.fired))
    }

    /// Its handler started although a message of this kind, which ends it, had arrived.
    fn started_late(self, number: usize, kind: impl Fn(&Message) -> bool) -> bool {
        (self.world.fates[number].late as usize).checked_sub(1).is_some_and(|ender| kind(&self.messages[ender]))
    }

    /// Each message of one kind that ended another one had arrived after it.
    fn ends_only_earlier_ones(self, kind: impl Fn(&Message) -> bool) -> bool {
        self.prompts().all(|prompt| match self.ended_by(prompt) {
            Some(ender) if kind(&self.messages[ender]) => self.world.is_before(prompt, ender),
            _ => true,
        })
    }

    /// Each prompt that one of these messages must end is ending, and did not start after it.
    fn reaches_earlier_prompts(self, kind: impl Fn(&Message) -> bool + Copy) -> bool {
        self.prompts().all(|prompt| {
            !self.started_late(prompt, kind)
                && self.numbers(kind).all(|ender| {
                    let counts = !(self.messages[ender].is_prompt() && self.world.is_refused(ender));
                    let must_end = counts && self.same_session(prompt, ender) && self.world.is_before(prompt, ender);
                    !must_end || self.is_ending(prompt)
                })
        })
    }
}

fn newer_prompt_survives(view: View<'_>) -> bool {
    view.ends_only_earlier_ones(Message::is_prompt)
}

fn older_prompt_ends(view: View<'_>) -> bool {
    view.overlap() != Overlap::Replace || view.reaches_earlier_prompts(Message::is_prompt)
}

fn older_prompt_finishes(view: View<'_>) -> bool {
    let is_live = |prompt: usize| !view.world.is_done(prompt) && view.ended_by(prompt).is_none();
    view.overlap() == Overlap::Replace
        || view.prompts().all(|prompt| {
            let ended_by_newer = view.ended_by(prompt).is_some_and(|ender| view.messages[ender].is_prompt());
            let overtaken = view.prompts().any(|newer| {
                view.same_session(prompt, newer) && view.world.is_before(prompt, newer) && view.runs(newer)
            });
            !(ended_by_newer || is_live(prompt) && overtaken)
        })
}

fn cancel_reaches_earlier_prompts(view: View<'_>) -> bool {
    view.reaches_earlier_prompts(Message::is_cancel)
}

fn cancel_spares_later_prompts(view: View<'_>) -> bool {
    view.ends_only_earlier_ones(Message::is_cancel)
}

fn request_cancel_hits_its_request(view: View<'_>) -> bool {
    let is_request_cancel = |message: &Message| message.kind == Kind::RequestCancel;
    let named = |cancel: usize, request: usize| {
        view.messages[request].id.is_some() && view.messages[request].id == view.messages[cancel].target
    };
    view.numbers(Message::is_request).all(|request| {
        let hit_rightly = match view.ended_by(request) {
            Some(ender) if is_request_cancel(&view.messages[ender]) => {
                named(ender, request) && view.world.is_before(request, ender)
            }
            _ => true,
        };
        let reached = view.numbers(is_request_cancel).all(|cancel| {
            !(named(cancel, request) && view.world.is_before(request, cancel)) || view.is_ending(request)
        });
        hit_rightly && reached && !view.started_late(request, is_request_cancel)
    })
}

fn one_turn_at_a_time(view: View<'_>) -> bool {
    let runs = |prompt: &usize| view.runs(*prompt);
    view.prompts()
        .filter(runs)
        .all(|one| view.prompts().filter(runs).all(|other| one == other || !view.same_session(one, other)))
}

fn answered_once(view: View<'_>) -> bool {
    view.numbers(Message::is_request).all(|request| {
        let fate = &view.world.fates[request];
        fate.responses == u8::from(view.world.is_done(request)) && !fate.misaddressed
    })
}

fn cancelled_is_said(view: View<'_>) -> bool {
    view.numbers(Message::is_request).filter(|request| view.world.is_done(*request)).all(|request| {
        let due = if view.messages[request].is_prompt() { Said::Cancelled } else { Said::RequestCancelled };
        let said = view.world.fates[request].said;
        said == Some(Said::Refused) || (said == Some(due)) == view.ended_by(request).is_some()
    })
}

fn nothing_lingers(view: View<'_>) -> bool {
    let core = &view.world.core;
    let in_flight = core.requests_in_flight() + core.notifications_queued();
    core.requests_in_flight() <= core.limits().requests_in_flight_max
        && core.size() <= 3 * in_flight + 2 * core.calls().count()
}

/// A deaf handler that nothing ends may run for ever; every other prompt must be answered.
fn is_owed_an_answer(view: View<'_>, number: usize) -> bool {
    let message = &view.messages[number];
    let fate = &view.world.fates[number];
    message.is_prompt() && fate.at > 0 && (!message.deaf || fate.ended_by > 0)
}

fn is_answered(view: View<'_>, number: usize) -> bool {
    view.world.fates[number].said.is_some()
}

/// No handler runs while that of an earlier notification has not returned.
fn notifications_in_order(view: View<'_>) -> bool {
    let runs =
        |number: &usize| view.world.fates[*number].arrival.is_some_and(|arrival| view.world.core.is_running(arrival));
    view.notifications().filter(runs).all(|running| {
        view.notifications().all(|earlier| !view.world.is_before(earlier, running) || view.world.is_done(earlier))
    })
}

fn waits_for_peer(view: View<'_>, number: usize) -> bool {
    view.messages[number].is_queued() && view.world.fates[number].call != Call::None
}

fn is_answered_by_peer(view: View<'_>, number: usize) -> bool {
    view.world.fates[number].call.is_over()
}

fn is_taken_in(view: View<'_>, number: usize) -> bool {
    view.messages[number].is_queued() && view.world.fates[number].arrival.is_some()
}

fn is_left_at_close(view: View<'_>, number: usize) -> bool {
    is_taken_in(view, number) && view.world.core.has_input_ended()
}

fn is_handled(view: View<'_>, number: usize) -> bool {
    view.world.fates[number].ran && view.world.is_done(number)
}

fn no_silent_drop(view: View<'_>) -> bool {
    view.numbers(|_| true).all(|number| !view.world.is_dropped(view.messages, number))
}

fn full_queue_waits(view: View<'_>) -> bool {
    let core = &view.world.core;
    !view.breaches().closed_early && core.notifications_queued() <= core.limits().notifications_stuck_max
}

fn callers_learn_of_close(view: View<'_>) -> bool {
    let core = &view.world.core;
    !core.has_input_ended() || !core.calls().any(|(call, _)| core.awaits_response(call))
}

fn agent_sees_one_turn(view: View<'_>) -> bool {
    let is_with_agent = |prompt: &usize| view.world.fates[*prompt].call == Call::Waiting;
    view.prompts()
        .filter(is_with_agent)
        .all(|one| view.prompts().filter(is_with_agent).all(|other| one == other || !view.same_session(one, other)))
}

fn client_sees_turns_kept(view: View<'_>) -> bool {
    TURNS.iter().all(|promise| promise.holds(view.messages, view.world))
}

fn is_ended_and_with_agent(view: View<'_>, number: usize) -> bool {
    let fate = &view.world.fates[number];
    view.messages[number].is_prompt() && fate.call != Call::None && fate.ended_by > 0
}

fn is_answered_or_given_up(view: View<'_>, number: usize) -> bool {
    view.world.fates[number].call.is_over()
}
