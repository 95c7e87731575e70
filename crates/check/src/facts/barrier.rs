//! The facts of the domain barrier.

use lastword_core::{Arrival, CallId, Effect, Limits, Step};
use lastword_model::{Kind, Value};

use super::{Probe, text};
use crate::rig::RigError;

pub(super) const FACTS: [&str; 9] = [
    "CallersComeFirst",
    "CallersToldAtClose",
    "DrainAtClose",
    "FullQueue",
    "HandlersRun",
    "LateCallersRelease",
    "PeerWaitOpens",
    "RequestsWait",
    "ResponsesWait",
];

pub(super) async fn measure(fact: &str, limits: Limits) -> Result<Value, RigError> {
    match fact {
        "CallersComeFirst" => callers_come_first(limits).await,
        "CallersToldAtClose" => callers_told_at_close(limits).await,
        "DrainAtClose" => drain_at_close(limits).await,
        "FullQueue" => full_queue(limits).await,
        "HandlersRun" => handlers_run(limits).await,
        "LateCallersRelease" => late_callers_release(limits).await,
        "PeerWaitOpens" => peer_wait_opens(limits).await,
        "RequestsWait" => requests_wait(limits).await,
        _ => responses_wait(limits).await,
    }
}

const CALL: CallId = CallId(1);

/// Two notifications, and the task of the second one comes while the handler of the first one runs.
async fn handlers_run(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::client(&[Kind::Notification, Kind::Notification], limits);
    probe.arrives(1).await?;
    probe.arrives(2).await?;
    probe.starts(1).await?;
    probe.starts(2).await?;
    Ok(text(if probe.ran(2) { "at-once" } else { "one-by-one" }))
}

/// A response behind a notification whose handler runs.
async fn responses_wait(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::client(&[Kind::Notification, Kind::Call], limits);
    probe.arrives(2).await?;
    probe.arrives(1).await?;
    probe.starts(1).await?;
    probe.try_take(Step::ResponseArrived { call: CALL }, 2).await?;
    Ok(Value::Bool(!probe.rig.has_returned(2)))
}

/// A notification behind a response whose caller has not resumed.
async fn callers_come_first(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::client(&[Kind::Notification, Kind::Call], limits);
    probe.arrives(2).await?;
    probe.try_take(Step::ResponseArrived { call: CALL }, 2).await?;
    probe.arrives(1).await?;
    probe.starts(1).await?;
    Ok(Value::Bool(!probe.ran(1)))
}

/// The same, and the caller's time is over.
async fn late_callers_release(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::client(&[Kind::Notification, Kind::Call], limits);
    probe.arrives(2).await?;
    probe.try_take(Step::ResponseArrived { call: CALL }, 2).await?;
    probe.arrives(1).await?;
    if probe.may_come(&Step::ResumeOver { call: CALL }) {
        probe.try_take(Step::ResumeOver { call: CALL }, 2).await?;
    }
    probe.starts(1).await?;
    Ok(Value::Bool(probe.ran(1)))
}

/// A request behind a notification whose handler runs.
async fn requests_wait(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::client(&[Kind::Notification, Kind::Request], limits);
    probe.arrives(1).await?;
    probe.starts(1).await?;
    probe.arrives(2).await?;
    probe.starts(2).await?;
    Ok(Value::Bool(!probe.ran(2)))
}

/// The same, but that the handler waits for the peer.
async fn peer_wait_opens(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::client(&[Kind::Notification, Kind::Request], limits);
    probe.arrives(1).await?;
    probe.starts(1).await?;
    probe.try_take(Step::Called { by: Some(Arrival(1)) }, 1).await?;
    probe.arrives(2).await?;
    probe.starts(2).await?;
    Ok(Value::Bool(probe.ran(2)))
}

/// One notification more than the queue holds.
async fn full_queue(mut limits: Limits) -> Result<Value, RigError> {
    limits.notifications_queued_max = 1;
    limits.notifications_stuck_max = 1;
    let mut probe = Probe::client(&[Kind::Notification, Kind::Notification], limits);
    probe.arrives(1).await?;
    probe.starts(1).await?;
    let effects = match probe.take(Step::NotificationArrived, 2).await {
        Ok(effects) => effects,
        // The reader does not come to take it in.
        Err(RigError::NobodyCame(_)) => return Ok(text("waits")),
        Err(error) => return Err(error),
    };
    let closes = effects.iter().any(|effect| matches!(effect, Effect::Close(_)));
    Ok(text(if closes { "closes" } else { "drops" }))
}

/// Two notifications, and the input ends while the handler of the first one runs.
async fn drain_at_close(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::client(&[Kind::Notification, Kind::Notification, Kind::InputEnd], limits);
    probe.arrives(1).await?;
    probe.arrives(2).await?;
    probe.starts(1).await?;
    probe.arrives(3).await?;
    probe.returns(1).await?;
    probe.starts(2).await?;
    Ok(Value::Bool(probe.ran(2)))
}

/// The input ends while somebody waits for a response.
async fn callers_told_at_close(limits: Limits) -> Result<Value, RigError> {
    let mut probe = Probe::client(&[Kind::Call, Kind::InputEnd], limits);
    probe.arrives(1).await?;
    probe.arrives(2).await?;
    Ok(Value::Bool(probe.rig.has_returned(1)))
}
