//! The facts: which of the designs that were tried elsewhere the code is. Measured, not declared.
//!
//! Each probe takes the real tokio runtime through a tiny scenario, in one order of steps, and tells the fact from what the
//! handlers saw. A step that the design at hand does not owe at that point is skipped: the designs differ in just that.

use std::{collections::BTreeMap, time::Duration};

use lastword_core::{Arrival, Limits, Outcome, Step};
use lastword_model::{Kind, Message, Move, Value, World};

use crate::{
    replay::runtime,
    rig::{Rig, RigError},
};

/// A probe that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[error("the fact {fact} could not be measured: {source}")]
pub struct FactError {
    /// The fact.
    pub fact: &'static str,
    /// What went wrong.
    pub source: RigError,
}

/// The names of the facts of the domain turns.
pub const TURNS: [&str; 8] = [
    "CancelComparesArrival",
    "CancelForms",
    "CleanUpOwnEntryOnly",
    "DecideAt",
    "KeepNewerBy",
    "MarkerKeepsLatest",
    "NewestDropsWhen",
    "PeerWaitReleases",
];

/// Measures one fact of the domain turns.
///
/// # Errors
///
/// [`FactError`] where the runtime does not come to the end of the scenario.
pub fn measure(fact: &'static str, limits: Limits) -> Result<Value, FactError> {
    runtime()
        .block_on(async {
            match fact {
                "CancelComparesArrival" => cancel_compares_arrival(limits).await,
                "CancelForms" => cancel_forms(limits).await,
                "CleanUpOwnEntryOnly" => clean_up_own_entry_only(limits).await,
                "DecideAt" => decide_at(limits).await,
                "KeepNewerBy" => keep_newer_by(limits).await,
                "MarkerKeepsLatest" => marker_keeps_latest(limits).await,
                "NewestDropsWhen" => newest_drops_when(limits).await,
                _ => peer_wait_releases(limits).await,
            }
        })
        .map_err(|source| FactError { fact, source })
}

/// Measures all facts of the domain turns.
///
/// # Errors
///
/// The first [`FactError`].
pub fn measure_all(limits: Limits) -> Result<BTreeMap<String, Value>, FactError> {
    TURNS.into_iter().map(|fact| Ok((fact.to_owned(), measure(fact, limits)?))).collect()
}

/// A running prompt, and a newer one whose task has not run yet.
async fn decide_at(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::new(&[Kind::Prompt, Kind::Prompt], limits);
    probe.arrives(1).await?;
    probe.starts(1).await?;
    probe.arrives(2).await?;
    Ok(text(if probe.is_cancelled(1) { "arrival" } else { "registration" }))
}

/// The task of the newer prompt runs first; then that of the older one, before or after the newer one has returned.
async fn keep_newer_by(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::new(&[Kind::Prompt, Kind::Prompt], limits);
    probe.arrives(1).await?;
    probe.arrives(2).await?;
    probe.starts(2).await?;
    probe.starts(1).await?;
    if probe.is_cancelled(2) {
        return Ok(text("never"));
    }
    let mut probe = Probe::new(&[Kind::Prompt, Kind::Prompt], limits);
    probe.arrives(1).await?;
    probe.arrives(2).await?;
    probe.starts(2).await?;
    probe.returns(2).await?;
    probe.starts(1).await?;
    Ok(text(if probe.lives(1) { "prev" } else { "newest" }))
}

/// Another request returns between the newer prompt and the task of the older one.
async fn newest_drops_when(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::new(&[Kind::Prompt, Kind::Prompt, Kind::Request], limits);
    for message in 1..=3 {
        probe.arrives(message).await?;
    }
    probe.starts(2).await?;
    probe.starts(3).await?;
    probe.returns(3).await?;
    probe.starts(1).await?;
    Ok(text(if probe.is_cancelled(2) { "any-return" } else { "none-older" }))
}

/// A prompt between two cancels, of which the older one's handler runs last; then the task of the prompt runs.
async fn marker_keeps_latest(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::new(&[Kind::CancelRequest, Kind::Prompt, Kind::CancelRequest], limits);
    for message in 1..=3 {
        probe.arrives(message).await?;
    }
    for cancel in [3, 1] {
        probe.starts(cancel).await?;
        probe.returns(cancel).await?;
    }
    probe.starts(2).await?;
    Ok(Value::Bool(!probe.lives(2)))
}

/// A cancel whose handler runs after a later prompt has started.
async fn cancel_compares_arrival(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::new(&[Kind::CancelRequest, Kind::Prompt], limits);
    probe.arrives(1).await?;
    probe.arrives(2).await?;
    probe.starts(2).await?;
    probe.starts(1).await?;
    probe.returns(1).await?;
    Ok(Value::Bool(probe.lives(2)))
}

/// An older prompt returns while the newer one is there; then a cancel looks for the newer one.
async fn clean_up_own_entry_only(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::new(&[Kind::Prompt, Kind::Prompt, Kind::CancelNotification], limits);
    probe.arrives(1).await?;
    probe.starts(1).await?;
    probe.arrives(2).await?;
    probe.starts(2).await?;
    probe.returns(1).await?;
    probe.starts(2).await?;
    probe.arrives(3).await?;
    probe.starts(3).await?;
    probe.returns(3).await?;
    Ok(Value::Bool(!probe.lives(2)))
}

/// A running prompt, and a cancel in each form.
async fn cancel_forms(limits: Limits) -> Result<Value, RigError> {
    let mut forms = std::collections::BTreeSet::new();
    for (form, kind) in [("notification", Kind::CancelNotification), ("request", Kind::CancelRequest)] {
        let mut probe = Probe::new(&[Kind::Prompt, kind], limits);
        probe.arrives(1).await?;
        probe.starts(1).await?;
        probe.arrives(2).await?;
        probe.starts(2).await?;
        probe.returns(2).await?;
        if probe.is_cancelled(1) {
            forms.insert(text(form));
        }
    }
    Ok(Value::Set(forms))
}

/// A notification whose handler waits for the peer, and a prompt behind it.
async fn peer_wait_releases(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::new(&[Kind::Notification, Kind::Prompt], limits);
    probe.arrives(1).await?;
    probe.starts(1).await?;
    probe.try_take(Step::Called { by: Some(Arrival(1)) }, 1).await?;
    probe.arrives(2).await?;
    probe.starts(2).await?;
    Ok(Value::Bool(probe.rig.seen(2).ran))
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// A scenario on the runtime. Messages are counted from 1, in the order of their arrival.
struct Probe {
    messages: Vec<Message>,
    world: World,
    rig: Rig,
}

impl Probe {
    fn new(kinds: &[Kind], limits: Limits) -> Self {
        let messages: Vec<Message> = (1..)
            .zip(kinds)
            .map(|(number, kind)| {
                let has_session = matches!(kind, Kind::Prompt | Kind::CancelNotification | Kind::CancelRequest);
                let is_request = matches!(kind, Kind::Prompt | Kind::CancelRequest | Kind::Request);
                Message {
                    kind: *kind,
                    id: is_request.then(|| lastword_core::RequestId::from(number)),
                    session: has_session.then(|| lastword_core::SessionId::from("A")),
                    target: None,
                    deaf: false,
                    fails: false,
                    waits: None,
                }
            })
            .collect();
        let world = World::new(lastword_core::Connection::new(limits), messages.len());
        let rig = Rig::new(&messages, &limits);
        Self { messages, world, rig }
    }

    async fn arrives(&mut self, message: u64) -> Result<(), RigError> {
        let arrival = self.messages[index(message)].arrival();
        self.try_take(arrival, message).await
    }

    async fn starts(&mut self, message: u64) -> Result<(), RigError> {
        self.try_take(Step::Started(Arrival(message)), message).await
    }

    async fn returns(&mut self, message: u64) -> Result<(), RigError> {
        self.try_take(Step::Returned(Arrival(message), Outcome::Succeeded), message).await
    }

    /// Takes the step, if this design owes it now.
    async fn try_take(&mut self, step: Step, message: u64) -> Result<(), RigError> {
        if self.world.core.clone().apply(step.clone()).is_err() {
            return Ok(());
        }
        let action = Move { step, message: index(message) };
        let (effects, core) = self.rig.take(&action).await?;
        self.world.core = core;
        self.world.observe(&self.messages, &action, &effects);
        // The clock is paused: it moves only once every task is idle, so that what the step made possible has happened.
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    fn is_cancelled(&self, message: u64) -> bool {
        self.rig.seen(message).is_cancelled()
    }

    fn lives(&self, message: u64) -> bool {
        self.rig.seen(message).lives()
    }
}

fn index(message: u64) -> usize {
    usize::try_from(message).expect("messages are few") - 1
}
