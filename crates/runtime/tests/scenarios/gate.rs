//! The gate of the check build: a checker decides which step comes next.

use lastword::{Options, schema::v1::StopReason};
use lastword_core::{Arrival, Forced, Outcome, RequestId, SessionId, Step};

use crate::peer::{Peer, prompt};

fn arrived(id: u64) -> Step {
    Step::PromptArrived { id: RequestId::from(id), session: SessionId::from("s") }
}

#[tokio::test(start_paused = true)]
async fn steps_come_in_the_order_that_the_conductor_says() {
    let mut options = Options::default();
    let mut conductor = options.gated();
    let mut peer = Peer::with(options);
    peer.lines(&[prompt(1, "s", "1"), prompt(2, "s", "2")]).await;
    conductor.pass(&arrived(1)).await.unwrap();
    conductor.pass(&arrived(2)).await.unwrap();
    // The newer one's task runs first.
    conductor.pass(&Step::Started(Arrival(2))).await.unwrap();
    peer.prompt("2").await.answer(Ok(StopReason::EndTurn));
    conductor.pass(&Step::Returned(Arrival(2), Outcome::Succeeded)).await.unwrap();
    let passed = conductor.pass(&Step::Started(Arrival(1))).await.unwrap();
    assert_eq!(passed.effects.unwrap().len(), 1);
    assert!(passed.after.is_idle());
    assert_eq!(peer.answer(2).await, "end_turn");
    assert_eq!(peer.answer(1).await, "cancelled");
    drop(conductor);
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_nobody_takes_is_told_with_those_that_wait() {
    let mut options = Options::default();
    let mut conductor = options.gated();
    let mut peer = Peer::with(options);
    peer.lines(&[prompt(1, "s", "1")]).await;
    let nobody = conductor.pass(&Step::Started(Arrival(1))).await.unwrap_err();
    assert_eq!(nobody.waiting, [arrived(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_returned_late_may_still_be_beaten_by_the_end_of_its_grace_period() {
    for grace_over in [false, true] {
        let mut options = Options::default();
        let mut conductor = options.gated();
        let mut peer = Peer::with(options);
        peer.lines(&[prompt(1, "s", "1"), prompt(2, "s", "2")]).await;
        conductor.pass(&arrived(1)).await.unwrap();
        conductor.pass(&Step::Started(Arrival(1))).await.unwrap();
        let old = peer.prompt("1").await;
        conductor.pass(&arrived(2)).await.unwrap();
        old.answer(Ok(StopReason::EndTurn));
        let step =
            if grace_over { Step::GraceOver(Arrival(1)) } else { Step::Returned(Arrival(1), Outcome::Succeeded) };
        conductor.pass(&step).await.unwrap();
        assert_eq!(peer.answer(1).await, "cancelled");
        conductor.pass(&Step::Started(Arrival(2))).await.unwrap();
        assert!(!peer.prompt("2").await.context.cancellation().is_cancelled());
    }
}

#[tokio::test(start_paused = true)]
async fn a_deaf_handler_is_dropped_when_the_conductor_says_so() {
    let mut options = Options::default();
    let mut conductor = options.gated();
    let mut peer = Peer::with(options);
    peer.lines(&[prompt(1, "s", "1"), prompt(2, "s", "2")]).await;
    for step in [arrived(1), Step::Started(Arrival(1)), arrived(2)] {
        conductor.pass(&step).await.unwrap();
    }
    let mut deaf = peer.prompt("1").await;
    assert!(!deaf.is_dropped());
    conductor.pass(&Step::GraceOver(Arrival(1))).await.unwrap();
    deaf.dropped().await;
    assert_eq!(peer.answer(1).await, "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_forced_changes_the_runtime() {
    let mut options = Options::default();
    options.forced = Some(Forced { guard: "older-prompt-ends", to: false });
    let mut peer = Peer::with(options);
    peer.lines(&[prompt(1, "s", "1"), prompt(2, "s", "at once")]).await;
    let old = peer.prompt("1").await;
    assert!(!old.context.cancellation().is_cancelled());
}
