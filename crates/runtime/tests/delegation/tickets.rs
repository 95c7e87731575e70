//! What becomes of tickets: the promises of delegation, each on the real service.

use std::time::Duration;

use lastword::delegation::{Placed, State, TurnEnd, Work};

use crate::scene::{Folder, LEAD, LONG, SHORT, send, worker};

/// The path on which replies were lost elsewhere: the answer's window runs out before the worker replies.
#[tokio::test]
async fn a_reply_reaches_its_ticket_when_the_window_of_the_answer_ran_out_before() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;

    let sent = send(&fleet, ada.id(), "Build it.").await;
    assert_eq!((sent.state, sent.timed_out), (State::Queued, false));
    let task = ada.next().await;
    assert_eq!((task.ticket, task.text.as_str()), (sent.ticket, "Build it."));

    let asker = fleet.clone();
    let asked = tokio::spawn(async move {
        asker.ask(ada.id(), task.ticket, "Which one?", vec![], LONG).await.map(|heard| (ada, heard))
    });
    let seen = fleet.poll(LEAD, sent.ticket, LONG).await.unwrap();
    assert_eq!((seen.state, seen.questions.len()), (State::InputRequired, 1));
    assert_eq!(seen.questions[0].text, "Which one?");

    let seen = fleet.answer(LEAD, seen.questions[0].id, "The first.", SHORT).await.unwrap();
    assert_eq!((seen.ticket, seen.state, seen.timed_out), (sent.ticket, State::Working, true));
    let (ada, heard) = asked.await.unwrap().unwrap();
    assert_eq!(heard.answer.as_deref(), Some("The first."));

    assert_eq!(fleet.reply(ada.id(), Some(sent.ticket), "Built.").await.unwrap(), Placed::Completed);
    let seen = fleet.poll(LEAD, sent.ticket, Duration::ZERO).await.unwrap();
    assert_eq!((seen.state, seen.reply.as_deref(), seen.is_last_message), (State::Completed, Some("Built."), false));

    fleet.stop(LEAD, ada.id()).await.unwrap();
    let seen = fleet.poll(LEAD, sent.ticket, LONG).await.unwrap();
    assert_eq!((seen.state, seen.reply.as_deref()), (State::Completed, Some("Built.")));
    service.close().await;
}

#[tokio::test]
async fn a_turn_that_ends_without_a_reply_completes_its_ticket_with_the_last_message() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    let mut work = Work::new(ada.id(), "Look.");
    work.wait = LONG;
    let waiting = fleet.send(LEAD, work);
    let works = async {
        let task = ada.next().await;
        ada.seat.ended(task.ticket, TurnEnd::Ended, "It looks well.".to_owned());
    };
    let (seen, ()) = tokio::join!(waiting, works);
    let seen = seen.unwrap();
    assert_eq!(
        (seen.state, seen.reply.as_deref(), seen.is_last_message),
        (State::Completed, Some("It looks well."), true)
    );
    service.close().await;
}
