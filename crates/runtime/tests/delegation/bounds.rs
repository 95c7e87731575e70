//! Each bound of the service: one more is refused with its reason, changes nothing, and is taken once there is room again.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use lastword::delegation::{Error, Limits, Placed, State, TurnEnd, Work, WorkerLife};
use lastword_core::delegation::Refused;

use crate::scene::{Folder, LEAD, LONG, OTHER_LEAD, send, worker};

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(call: Result<T, Error>, reason: Refused) {
    match call {
        Err(Error::Refused(refused)) => assert_eq!(refused, reason),
        other => panic!("it came to {other:?}"),
    }
}

#[tokio::test]
async fn as_many_workers_live_as_may_whichever_lead_they_are_of() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.try_open(limits(|limits| limits.workers_max = 2)).unwrap();
    let ada = worker(&fleet, &stage).await;
    fleet.spawn(OTHER_LEAD, "puppet", "Bob").await.unwrap();
    is_refused(fleet.spawn(LEAD, "puppet", "Eve").await, Refused::TooManyWorkers);
    is_refused(fleet.spawn(OTHER_LEAD, "puppet", "Eve").await, Refused::TooManyWorkers);
    assert_eq!((fleet.list(LEAD).await.unwrap().len(), fleet.list(OTHER_LEAD).await.unwrap().len()), (1, 1));

    // A worker that is to stop lives until its process has ended, which fails what it was at.
    let sent = send(&fleet, ada.id(), "task").await;
    ada.dies("it fell over");
    assert_eq!(fleet.poll(LEAD, sent.ticket, LONG).await.unwrap().state, State::Failed);
    let eve = fleet.spawn(LEAD, "puppet", "Eve").await.unwrap();
    let listed = fleet.list(LEAD).await.unwrap();
    let lives: Vec<_> = listed.iter().map(|seen| (seen.worker, seen.life)).collect();
    assert_eq!(lives[0], (eve, WorkerLife::Alive));
    assert_eq!((lives.len(), lives[1].1), (2, WorkerLife::Gone));
    service.close().await;
}

#[tokio::test]
async fn as_many_tickets_wait_for_a_worker_as_may_and_one_that_replaces_them_is_taken() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.try_open(limits(|limits| limits.tickets_queued_max = 1)).unwrap();
    let mut ada = worker(&fleet, &stage).await;
    let at = send(&fleet, ada.id(), "one").await;
    assert_eq!(ada.next().await.ticket, at.ticket);
    let queued = send(&fleet, ada.id(), "two").await;
    is_refused(fleet.send(LEAD, Work::new(ada.id(), "three")).await, Refused::QueueFull);
    assert_eq!(fleet.poll_all(LEAD, Duration::ZERO).await.unwrap().tickets.len(), 2);

    let mut work = Work::new(ada.id(), "four");
    work.replace = true;
    let newest = fleet.send(LEAD, work).await.unwrap();
    for ticket in [at.ticket, queued.ticket] {
        assert_eq!(fleet.poll(LEAD, ticket, Duration::ZERO).await.unwrap().state, State::Cancelled);
    }
    ada.seat.ended(at.ticket, TurnEnd::Ended, "over".to_owned());
    assert_eq!(ada.next().await.ticket, newest.ticket);
    service.close().await;
}

#[tokio::test]
async fn as_many_questions_of_a_ticket_are_open_as_may() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.try_open(limits(|limits| limits.questions_open_max = 1)).unwrap();
    let mut ada = worker(&fleet, &stage).await;
    let sent = send(&fleet, ada.id(), "task").await;
    ada.next().await;
    let ask = |text: &'static str| fleet.ask(ada.id(), sent.ticket, text, vec![], Duration::ZERO);
    let first = ask("first?").await.unwrap();
    is_refused(ask("second?").await, Refused::TooManyQuestions);
    let seen = fleet.answer(LEAD, first.question, "yes", Duration::ZERO).await.unwrap();
    assert_eq!((seen.state, seen.questions), (State::Working, vec![]));
    assert!(ask("second?").await.unwrap().question > first.question);
    service.close().await;
}

#[tokio::test]
async fn as_many_calls_watch_as_may_and_one_that_does_not_wait_is_taken() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.try_open(limits(|limits| limits.watches_max = 1)).unwrap();
    let mut ada = worker(&fleet, &stage).await;
    let sent = send(&fleet, ada.id(), "task").await;
    ada.next().await;
    {
        let mut watching = pin!(fleet.poll(LEAD, sent.ticket, LONG));
        let seen = poll_fn(|context| Poll::Ready(watching.as_mut().poll(context))).await;
        assert!(seen.is_pending(), "nothing has happened yet");
        is_refused(fleet.poll(LEAD, sent.ticket, LONG).await, Refused::TooManyWatches);
        let mut work = Work::new(ada.id(), "another");
        work.wait = LONG;
        is_refused(fleet.send(LEAD, work).await, Refused::TooManyWatches);
        assert_eq!(fleet.poll_all(LEAD, Duration::ZERO).await.unwrap().tickets.len(), 1);
    }
    // The one that watched has left.
    let replied = fleet.reply(ada.id(), Some(sent.ticket), "done");
    let (seen, placed) = tokio::join!(fleet.poll(LEAD, sent.ticket, LONG), replied);
    assert_eq!((seen.unwrap().state, placed.unwrap()), (State::Completed, Placed::Completed));
    service.close().await;
}

#[tokio::test]
async fn as_many_replies_are_kept_beside_a_ticket_and_unread_in_an_inbox_as_may() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.try_open(limits(|limits| limits.replies_kept_max = 1)).unwrap();
    let mut ada = worker(&fleet, &stage).await;
    let sent = send(&fleet, ada.id(), "task").await;
    ada.next().await;
    let reply = |ticket| fleet.reply(ada.id(), ticket, "reply");
    assert_eq!(reply(Some(sent.ticket)).await.unwrap(), Placed::Completed);
    assert_eq!(reply(Some(sent.ticket)).await.unwrap(), Placed::Late);
    is_refused(reply(Some(sent.ticket)).await, Refused::TooManyReplies);
    let seen = fleet.poll(LEAD, sent.ticket, Duration::ZERO).await.unwrap();
    assert_eq!((seen.state, seen.late_replies.len()), (State::Completed, 1));

    assert_eq!(reply(None).await.unwrap(), Placed::Inbox);
    is_refused(reply(None).await, Refused::TooManyReplies);
    let letters = fleet.inbox(LEAD, None).await.unwrap();
    assert_eq!((letters.len(), letters[0].from), (1, ada.id()));
    assert_eq!(fleet.inbox(LEAD, Some(letters[0].id)).await.unwrap(), []);
    assert_eq!(reply(None).await.unwrap(), Placed::Inbox);
    assert_eq!(fleet.inbox(OTHER_LEAD, None).await.unwrap(), []);
    service.close().await;
}
