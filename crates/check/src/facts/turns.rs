//! The facts of the domain turns.

use lastword_core::{Arrival, Limits, Step};
use lastword_model::{Kind, Value};

use super::{Probe, text};
use crate::rig::RigError;

pub(super) const FACTS: [&str; 8] = [
    "CancelComparesArrival",
    "CancelForms",
    "CleanUpOwnEntryOnly",
    "DecideAt",
    "KeepNewerBy",
    "MarkerKeepsLatest",
    "NewestDropsWhen",
    "PeerWaitReleases",
];

/// A guard is the same connection, and one that gives an agent up.
pub(super) const FACTS_OF_GUARD: [&str; 9] = {
    let mut facts = ["GivesUp"; 9];
    let mut at = 0;
    while at < FACTS.len() {
        facts[at] = FACTS[at];
        at += 1;
    }
    facts
};

pub(super) async fn measure(fact: &str, limits: Limits) -> Result<Value, RigError> {
    match fact {
        "CancelComparesArrival" => cancel_compares_arrival(limits).await,
        "CancelForms" => cancel_forms(limits).await,
        "CleanUpOwnEntryOnly" => clean_up_own_entry_only(limits).await,
        "GivesUp" => gives_up(limits).await,
        "DecideAt" => decide_at(limits).await,
        "KeepNewerBy" => keep_newer_by(limits).await,
        "MarkerKeepsLatest" => marker_keeps_latest(limits).await,
        "NewestDropsWhen" => newest_drops_when(limits).await,
        _ => peer_wait_releases(limits).await,
    }
}

/// A running prompt, and a newer one whose task has not run yet.
async fn decide_at(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::agent(&[Kind::Prompt, Kind::Prompt], limits);
    probe.arrives(1).await?;
    probe.starts(1).await?;
    probe.arrives(2).await?;
    Ok(text(if probe.is_cancelled(1) { "arrival" } else { "registration" }))
}

/// A running prompt that was ended and whose handler does not return, and a newer one.
async fn gives_up(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::agent(&[Kind::Prompt, Kind::Prompt], limits);
    probe.arrives(1).await?;
    probe.starts(1).await?;
    probe.arrives(2).await?;
    probe.try_take(Step::GraceOver(Arrival(1)), 1).await?;
    probe.starts(2).await?;
    Ok(Value::Bool(probe.ran(2)))
}

/// The task of the newer prompt runs first; then that of the older one, before or after the newer one has returned.
async fn keep_newer_by(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::agent(&[Kind::Prompt, Kind::Prompt], limits);
    probe.arrives(1).await?;
    probe.arrives(2).await?;
    probe.starts(2).await?;
    probe.starts(1).await?;
    if probe.is_cancelled(2) {
        return Ok(text("never"));
    }
    let mut probe = Probe::agent(&[Kind::Prompt, Kind::Prompt], limits);
    probe.arrives(1).await?;
    probe.arrives(2).await?;
    probe.starts(2).await?;
    probe.returns(2).await?;
    probe.starts(1).await?;
    Ok(text(if probe.lives(1) { "prev" } else { "newest" }))
}

/// Another request returns between the newer prompt and the task of the older one.
async fn newest_drops_when(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::agent(&[Kind::Prompt, Kind::Prompt, Kind::Request], limits);
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
    let mut probe = Probe::agent(&[Kind::CancelRequest, Kind::Prompt, Kind::CancelRequest], limits);
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
    let mut probe = Probe::agent(&[Kind::CancelRequest, Kind::Prompt], limits);
    probe.arrives(1).await?;
    probe.arrives(2).await?;
    probe.starts(2).await?;
    probe.starts(1).await?;
    probe.returns(1).await?;
    Ok(Value::Bool(probe.lives(2)))
}

/// An older prompt returns while the newer one is there; then a cancel looks for the newer one.
async fn clean_up_own_entry_only(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::agent(&[Kind::Prompt, Kind::Prompt, Kind::CancelNotification], limits);
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
        let mut probe = Probe::agent(&[Kind::Prompt, kind], limits);
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
    let mut probe = Probe::agent(&[Kind::Notification, Kind::Prompt], limits);
    probe.arrives(1).await?;
    probe.starts(1).await?;
    probe.try_take(Step::Called { by: Some(Arrival(1)) }, 1).await?;
    probe.arrives(2).await?;
    probe.starts(2).await?;
    Ok(Value::Bool(probe.ran(2)))
}
