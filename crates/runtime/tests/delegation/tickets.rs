//! What becomes of tickets: the promises of delegation, each on the real service.

use std::time::Duration;

use lastword::delegation::{Limits, Placed, State, TurnEnd, Work, WorkerId};

use crate::scene::{Folder, LEAD, LONG, OTHER_LEAD, SHORT, send, worker};

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

#[tokio::test]
async fn a_reply_that_races_the_end_of_the_window_is_never_lost() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    let (mut in_time, mut too_late) = (0, 0);
    for round in 0..100 {
        let mut work = Work::new(ada.id(), format!("round {round}"));
        // About as long as the way through the journal takes, so that either may win.
        work.wait = Duration::from_micros(100 * (round + 1));
        let waiting = tokio::spawn({
            let fleet = fleet.clone();
            async move { fleet.send(LEAD, work).await.unwrap() }
        });
        let task = ada.next().await;
        assert_eq!(
            fleet.reply(ada.id(), Some(task.ticket), format!("reply {round}")).await.unwrap(),
            Placed::Completed
        );
        ada.seat.ended(task.ticket, TurnEnd::Ended, "over".to_owned());
        let seen = waiting.await.unwrap();
        *(if seen.timed_out { &mut too_late } else { &mut in_time }) += 1;
        // Where the window was over first, the call may still show what came meanwhile.
        if !seen.timed_out {
            assert_eq!(seen.reply, Some(format!("reply {round}")));
        }
        let seen = fleet.poll(LEAD, task.ticket, Duration::ZERO).await.unwrap();
        assert_eq!((seen.state, seen.reply), (State::Completed, Some(format!("reply {round}"))));
    }
    assert_eq!(in_time + too_late, 100);
    service.close().await;
}

#[tokio::test]
async fn a_reply_that_races_a_stop_has_exactly_one_place() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    for round in 0..40 {
        let mut ada = worker(&fleet, &stage).await;
        let sent = send(&fleet, ada.id(), "race").await;
        let task = ada.next().await;
        let reply = fleet.reply(ada.id(), Some(task.ticket), "done");
        let stop = fleet.stop(LEAD, ada.id());
        let (placed, stopped) = if round % 2 == 0 {
            tokio::join!(reply, stop)
        } else {
            let (stopped, placed) = tokio::join!(stop, reply);
            (placed, stopped)
        };
        stopped.unwrap();
        let seen = fleet.poll(LEAD, sent.ticket, Duration::ZERO).await.unwrap();
        let expected = if round % 2 == 0 { Placed::Completed } else { Placed::Late };
        assert_eq!(placed.unwrap(), expected);
        match expected {
            Placed::Completed => {
                assert_eq!(
                    (seen.state, seen.reply.as_deref(), seen.late_replies.len()),
                    (State::Completed, Some("done"), 0)
                );
            }
            _ => assert_eq!(
                (seen.state, seen.reply, &seen.late_replies[..]),
                (State::Cancelled, None, &["done".to_owned()][..])
            ),
        }
        assert_eq!(fleet.inbox(LEAD, None).await.unwrap(), []);
    }
    service.close().await;
}

#[tokio::test]
async fn a_send_that_is_repeated_with_its_key_is_one_ticket_also_after_a_restart() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    let mut work = Work::new(ada.id(), "once");
    work.key = Some("key".into());
    let first = fleet.send(LEAD, work.clone()).await.unwrap();
    let (second, third) = tokio::join!(fleet.send(LEAD, work.clone()), fleet.send(LEAD, work.clone()));
    assert_eq!((second.unwrap().ticket, third.unwrap().ticket), (first.ticket, first.ticket));
    let task = ada.next().await;
    fleet.reply(ada.id(), Some(task.ticket), "done").await.unwrap();
    service.close().await;

    let (service, fleet, _stage) = folder.open();
    let again = fleet.send(LEAD, work.clone()).await.unwrap();
    assert_eq!((again.ticket, again.state, again.reply.as_deref()), (first.ticket, State::Completed, Some("done")));
    work.key = None;
    assert_ne!(fleet.send(LEAD, work).await.unwrap().ticket, first.ticket);
    service.close().await;
}

#[tokio::test]
async fn two_questions_of_a_turn_get_each_its_own_answer() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    send(&fleet, ada.id(), "ask").await;
    let task = ada.next().await;
    let ask = |text: &'static str| {
        let (fleet, worker) = (fleet.clone(), ada.id());
        async move { fleet.ask(worker, task.ticket, text, Vec::new(), LONG).await.unwrap() }
    };
    let answers = async {
        loop {
            let seen = fleet.poll(LEAD, task.ticket, LONG).await.unwrap();
            if let [first, second] = &seen.questions[..] {
                // The later one first.
                fleet.answer(LEAD, second.id, format!("to {}", second.text), SHORT).await.unwrap();
                fleet.answer(LEAD, first.id, format!("to {}", first.text), SHORT).await.unwrap();
                return;
            }
        }
    };
    let (first, second, ()) = tokio::join!(ask("one"), ask("two"), answers);
    assert_eq!((first.answer.as_deref(), second.answer.as_deref()), (Some("to one"), Some("to two")));
    let error = fleet.answer(LEAD, first.question, "again", SHORT).await.unwrap_err();
    assert_eq!(error.to_string(), "the question was answered already");
    service.close().await;
}

#[tokio::test]
async fn an_answer_that_races_the_window_of_its_question_is_given_exactly_once() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    for round in 0..60 {
        let sent = send(&fleet, ada.id(), "ask").await;
        let task = ada.next().await;
        let wait = Duration::from_micros(200 * round);
        let asked = fleet.ask(ada.id(), task.ticket, "?", Vec::new(), wait);
        let answer = async {
            let seen = fleet.poll(LEAD, sent.ticket, LONG).await.unwrap();
            fleet.answer(LEAD, seen.questions[0].id, "!", Duration::ZERO).await.unwrap();
        };
        let (heard, ()) = tokio::join!(asked, answer);
        ada.seat.ended(task.ticket, TurnEnd::Ended, "over".to_owned());
        let late = match heard.unwrap().answer {
            Some(answer) => answer,
            None => {
                let prompt = ada.next().await;
                assert_eq!((prompt.ticket, prompt.question.unwrap().text.as_str()), (sent.ticket, "?"));
                ada.seat.ended(prompt.ticket, TurnEnd::Ended, "over".to_owned());
                prompt.text
            }
        };
        assert_eq!(late, "!");
        assert_eq!(fleet.poll(LEAD, sent.ticket, LONG).await.unwrap().state, State::Completed);
    }
    service.close().await;
}

#[tokio::test]
async fn a_call_that_is_dropped_only_stops_watching() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    let mut work = Work::new(ada.id(), "go on");
    (work.wait, work.key) = (LONG, Some("key".into()));
    {
        let mut sending = std::pin::pin!(fleet.send(LEAD, work.clone()));
        // Once the worker has it, the send is stored, and its call waits.
        tokio::select! {
            biased;
            _ = &mut sending => panic!("nobody replied"),
            task = ada.next() => assert_eq!(task.text, "go on"),
        }
    }
    work.wait = SHORT;
    let seen = fleet.send(LEAD, work).await.unwrap();
    assert_eq!((seen.state, seen.timed_out), (State::Working, true));
    fleet.reply(ada.id(), Some(seen.ticket), "done").await.unwrap();
    assert_eq!(fleet.poll(LEAD, seen.ticket, SHORT).await.unwrap().reply.as_deref(), Some("done"));
    service.close().await;
}

#[tokio::test]
async fn a_call_that_asks_and_is_dropped_gets_its_answer_as_the_next_prompt() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    let sent = send(&fleet, ada.id(), "ask").await;
    let task = ada.next().await;
    let question = {
        let mut asking = std::pin::pin!(fleet.ask(ada.id(), task.ticket, "?", Vec::new(), LONG));
        tokio::select! {
            biased;
            _ = &mut asking => panic!("nobody answered"),
            seen = fleet.poll(LEAD, sent.ticket, LONG) => seen.unwrap().questions[0].id,
        }
    };
    fleet.answer(LEAD, question, "!", Duration::ZERO).await.unwrap();
    ada.seat.ended(task.ticket, TurnEnd::Ended, "I wait".to_owned());
    assert_eq!(ada.next().await.text, "!");
    service.close().await;
}

#[tokio::test]
async fn an_answer_that_was_handed_to_a_call_that_is_dropped_before_it_returns_is_the_next_prompt() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    let sent = send(&fleet, ada.id(), "ask").await;
    let task = ada.next().await;
    {
        let mut asking = std::pin::pin!(fleet.ask(ada.id(), task.ticket, "?", Vec::new(), LONG));
        let question = tokio::select! {
            biased;
            _ = &mut asking => panic!("nobody answered"),
            seen = fleet.poll(LEAD, sent.ticket, LONG) => seen.unwrap().questions[0].id,
        };
        // The answer is stored, and handed to the call, which never looks at it.
        fleet.answer(LEAD, question, "!", Duration::ZERO).await.unwrap();
    }
    ada.seat.ended(task.ticket, TurnEnd::Ended, "my call failed".to_owned());
    let prompt = ada.next().await;
    assert_eq!((prompt.ticket, prompt.text.as_str()), (sent.ticket, "!"));
    ada.seat.ended(prompt.ticket, TurnEnd::Ended, "now I know".to_owned());
    let seen = fleet.poll(LEAD, sent.ticket, LONG).await.unwrap();
    assert_eq!((seen.state, seen.reply.as_deref()), (State::Completed, Some("now I know")));
    service.close().await;
}

#[tokio::test]
async fn a_full_journal_forgets_the_oldest_ticket_that_was_seen_to_have_ended_and_none_of_which_nobody_knows() {
    let folder = Folder::new();
    let limits = || {
        let mut limits = Limits::default();
        limits.tickets_max = 2;
        limits
    };
    let (service, fleet, stage) = folder.try_open(limits()).unwrap();
    let mut ada = worker(&fleet, &stage).await;
    let sent = [send(&fleet, ada.id(), "one").await.ticket, send(&fleet, ada.id(), "two").await.ticket];
    for ticket in sent {
        assert_eq!(ada.next().await.ticket, ticket);
        ada.seat.ended(ticket, TurnEnd::Ended, "over".to_owned());
    }
    let full =
        "as many tickets are kept as may, and none of them has ended and was shown to its lead; poll or stop some";
    let three = || Work::new(WorkerId(1), "three");
    assert_eq!(fleet.send(LEAD, three()).await.unwrap_err().to_string(), full);
    let shown = fleet.poll(LEAD, sent[0], LONG).await.unwrap();
    // Meanwhile something else came to it, which was not shown.
    assert_eq!(fleet.reply(ada.id(), Some(sent[0]), "late").await.unwrap(), Placed::Late);
    fleet.saw(LEAD, &shown);
    assert_eq!(fleet.send(LEAD, three()).await.unwrap_err().to_string(), full);
    let shown = fleet.poll(LEAD, sent[0], LONG).await.unwrap();
    fleet.saw(OTHER_LEAD, &shown);
    assert_eq!(fleet.send(LEAD, three()).await.unwrap_err().to_string(), full);
    fleet.saw(LEAD, &shown);
    service.close().await;

    // That it was seen is known, and so is, after the next restart, that it was forgotten.
    let (service, fleet, stage) = folder.try_open(limits()).unwrap();
    let mut ada = stage.enters().await;
    assert_eq!(fleet.send(LEAD, three()).await.unwrap().ticket.0, 3);
    assert_eq!(ada.next().await.text, "three");
    assert_eq!(
        fleet.poll(LEAD, sent[0], LONG).await.unwrap_err().to_string(),
        "there is no such ticket; poll without one to see those that there are"
    );
    service.close().await;
    let (service, fleet, _stage) = folder.try_open(limits()).unwrap();
    let left: Vec<u64> =
        fleet.poll_all(LEAD, Duration::ZERO).await.unwrap().tickets.iter().map(|seen| seen.ticket.0).collect();
    assert_eq!(left, [3, 2]);
    service.close().await;
    let connection = rusqlite::Connection::open(folder.journal()).unwrap();
    let texts = "SELECT count(*) FROM text WHERE kind IN ('task', 'end', 'reply')";
    let count: i64 = connection.query_row(texts, [], |row| row.get(0)).unwrap();
    // The tasks of two and three, and the end of two.
    assert_eq!(count, 3);
}

#[tokio::test]
async fn a_question_of_a_turn_that_is_cancelled_ends_without_an_answer_at_once() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    let sent = send(&fleet, ada.id(), "ask").await;
    let task = ada.next().await;
    let asking = fleet.ask(ada.id(), task.ticket, "?", Vec::new(), LONG);
    let cancel = async {
        fleet.poll(LEAD, sent.ticket, LONG).await.unwrap();
        fleet.cancel(LEAD, sent.ticket).await.unwrap()
    };
    let (heard, seen) = tokio::join!(asking, cancel);
    assert_eq!((heard.unwrap().answer, seen.state, seen.questions.len()), (None, State::Cancelled, 0));
    assert!(task.cancelled.is_cancelled());
    service.close().await;
}

#[tokio::test]
async fn what_belongs_to_one_lead_is_none_of_anothers_business() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    let sent = send(&fleet, ada.id(), "ask").await;
    let task = ada.next().await;
    let heard = fleet.ask(ada.id(), task.ticket, "?", vec!["yes".to_owned()], Duration::ZERO).await.unwrap();
    let refusals = [
        fleet.send(OTHER_LEAD, Work::new(ada.id(), "mine")).await.map(drop),
        fleet.poll(OTHER_LEAD, sent.ticket, Duration::ZERO).await.map(drop),
        fleet.poll(OTHER_LEAD, sent.ticket, LONG).await.map(drop),
        fleet.answer(OTHER_LEAD, heard.question, "yes", LONG).await.map(drop),
        fleet.cancel(OTHER_LEAD, sent.ticket).await.map(drop),
        fleet.stop(OTHER_LEAD, ada.id()).await,
    ];
    for refusal in refusals {
        assert_eq!(refusal.unwrap_err().to_string(), "it belongs to somebody else");
    }
    assert_eq!(fleet.list(OTHER_LEAD).await.unwrap(), []);
    assert_eq!(fleet.poll_all(OTHER_LEAD, LONG).await.unwrap().tickets, []);
    service.close().await;
}

#[tokio::test]
async fn a_worker_that_dies_fails_what_it_was_at_and_what_was_queued_and_a_reply_before_stays() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    let id = ada.id();
    let (replied, at, queued) =
        (send(&fleet, id, "one").await, send(&fleet, id, "two").await, send(&fleet, id, "three").await);
    let task = ada.next().await;
    fleet.reply(id, Some(task.ticket), "done").await.unwrap();
    ada.seat.ended(task.ticket, TurnEnd::Ended, "over".to_owned());
    assert_eq!(ada.next().await.ticket, at.ticket);
    ada.dies("it fell over");
    for ticket in [at.ticket, queued.ticket] {
        let seen = fleet.poll(LEAD, ticket, LONG).await.unwrap();
        assert_eq!((seen.state, seen.reason.as_deref()), (State::Failed, Some("the worker is gone: it fell over")));
    }
    let seen = fleet.poll(LEAD, replied.ticket, LONG).await.unwrap();
    assert_eq!((seen.state, seen.reply.as_deref()), (State::Completed, Some("done")));
    let workers = fleet.list(LEAD).await.unwrap();
    assert_eq!((workers.len(), workers[0].death.as_deref()), (1, Some("it fell over")));
    service.close().await;
}

#[tokio::test]
async fn texts_are_bounded_and_a_refusal_changes_nothing() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let ada = worker(&fleet, &stage).await;
    let long = "x".repeat((1 << 20) + 1);
    let refusals = [
        fleet.send(LEAD, Work::new(ada.id(), "  ")).await.map(drop),
        fleet.send(LEAD, Work::new(ada.id(), long.clone())).await.map(drop),
        fleet.reply(ada.id(), None, long).await.map(drop),
        fleet.spawn(LEAD, "unheard of", "Bob").await.map(drop),
    ];
    let said: Vec<String> = refusals.into_iter().map(|refusal| refusal.unwrap_err().to_string()).collect();
    assert_eq!(
        said,
        [
            "the text is empty; say something",
            "the text has 1048577 bytes, and may have 1048576; put the long part into a file and name that",
            "the text has 1048577 bytes, and may have 1048576; put the long part into a file and name that",
            "there is no kind of worker \"unheard of\"; there are: puppet",
        ]
    );
    assert_eq!(fleet.poll_all(LEAD, Duration::ZERO).await.unwrap().tickets, []);
    assert_eq!(fleet.inbox(LEAD, None).await.unwrap(), []);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tickets_over_fifty_workers_each_get_their_own_reply() {
    const WORKERS: usize = 50;
    const TICKETS_OF_A_WORKER: usize = 20;
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut leads = Vec::new();
    for _ in 0..WORKERS {
        let mut puppet = worker(&fleet, &stage).await;
        let (fleet, id) = (fleet.clone(), puppet.id());
        let workers_fleet = fleet.clone();
        tokio::spawn(async move {
            // All of it, so that it lives as long as this.
            let puppet = &mut puppet;
            while let Some(task) = puppet.seat.next().await {
                if task.question.is_none() && task.text.ends_with('3') {
                    let heard = workers_fleet.ask(id, task.ticket, "?", Vec::new(), SHORT).await.unwrap();
                    if heard.answer.is_none() {
                        puppet.seat.ended(task.ticket, TurnEnd::Ended, "I wait".to_owned());
                        continue;
                    }
                }
                let reply = format!("reply to ticket {}", task.ticket.0);
                assert_eq!(workers_fleet.reply(id, Some(task.ticket), reply).await.unwrap(), Placed::Completed);
                puppet.seat.ended(task.ticket, TurnEnd::Ended, "over".to_owned());
            }
        });
        leads.push(tokio::spawn(async move {
            let mut open = Vec::new();
            for number in 0..TICKETS_OF_A_WORKER {
                open.push(send(&fleet, id, &format!("task {number}")).await.ticket);
            }
            for ticket in &open {
                let mut seen = fleet.poll(LEAD, *ticket, LONG).await.unwrap();
                while let [question] = &seen.questions[..] {
                    seen = fleet.answer(LEAD, question.id, "!", LONG).await.unwrap();
                }
                assert_eq!(seen.reply, Some(format!("reply to ticket {}", ticket.0)));
            }
            open.len()
        }));
    }
    let mut replied = 0;
    for lead in leads {
        replied += lead.await.unwrap();
    }
    assert_eq!(replied, WORKERS * TICKETS_OF_A_WORKER);
    assert_eq!(fleet.inbox(LEAD, None).await.unwrap(), []);
    let all = fleet.poll_all(LEAD, Duration::ZERO).await.unwrap();
    assert_eq!((all.tickets.len(), all.left_out), (100, 900));
    assert!(all.tickets.iter().all(|seen| seen.state == State::Completed && seen.late_replies.is_empty()));
    service.close().await;
}
