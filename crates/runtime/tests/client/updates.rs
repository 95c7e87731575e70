//! Notifications of the agent: their order, and handlers that call back.

use lastword::{Options, ServeError};

use crate::scene::{Scene, ask, request, result, soon, update};

#[tokio::test(start_paused = true)]
async fn updates_are_handled_one_at_a_time_in_the_order_in_which_they_arrived() {
    let (mut scene, mut agent) = Scene::raw();
    agent.send(&[update(1), update(2), update(3)]).await;
    for number in 1..=3 {
        let handler = scene.handlers.next(&format!("update {number}")).await;
        assert!(scene.handlers.is_empty());
        handler.answer(Ok(String::new()));
    }
    agent.end();
    soon(scene.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_caller_gets_its_response_only_after_the_updates_before_it_were_handled() {
    let (mut scene, mut agent) = Scene::raw();
    let asking = tokio::spawn(scene.agent.ext_method(ask("_why")));
    let why = agent.call("_why").await;
    agent.send(&[update(1), update(2), result(&why, "9"), update(3)]).await;
    for number in 1..=2 {
        let handler = scene.handlers.next(&format!("update {number}")).await;
        assert!(!asking.is_finished());
        handler.answer(Ok(String::new()));
    }
    // The update after it is not waited for.
    assert_eq!(soon(asking).await.unwrap().unwrap().0.get(), "9");
    scene.handlers.updates([3]).await;
    agent.end();
    soon(scene.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_of_the_agent_waits_for_the_updates_before_it() {
    let (mut scene, mut agent) = Scene::raw();
    agent.send(&[update(1), request(1, "_question"), update(2)]).await;
    let first = scene.handlers.next("update 1").await;
    assert!(scene.handlers.is_empty());
    first.answer(Ok(String::new()));
    // Both may start now, in either order.
    for _ in 0..2 {
        let handler = scene.handlers.any().await;
        assert!(["_question", "update 2"].contains(&&*handler.asked), "{}", handler.asked);
        handler.answer(Ok("8".to_owned()));
    }
    assert_eq!(agent.message().await.unwrap()["result"], 8);
    agent.end();
    soon(scene.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_an_update_that_waits_for_the_agent_does_not_hang() {
    let (mut scene, mut agent) = Scene::raw();
    agent.send(&[update(1), update(2)]).await;
    let first = scene.handlers.next("update 1").await;
    let asking = tokio::spawn(first.context.agent().ext_method(ask("_why")));
    let why = agent.call("_why").await;
    // The agent asks back before it answers.
    agent.send(&[request(1, "_who")]).await;
    scene.handlers.next("_who").await.answer(Ok("8".to_owned()));
    assert_eq!(agent.message().await.unwrap()["result"], 8);
    agent.send(&[result(&why, "9")]).await;
    assert_eq!(soon(asking).await.unwrap().unwrap().0.get(), "9");
    assert!(scene.handlers.is_empty());
    first.answer(Ok(String::new()));
    scene.handlers.updates([2]).await;
    agent.end();
    soon(scene.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn more_updates_than_the_queue_holds_wait_outside_and_none_is_lost() {
    const UPDATES: usize = 50_000;
    let (mut scene, mut agent) = Scene::raw();
    let sending = tokio::spawn(async move {
        let lines: Vec<String> = (0..UPDATES).map(update).collect();
        agent.send(&lines).await;
        agent
    });
    // While the first handler takes its time, the agent is held up: what is kept of its updates is bounded.
    let first = scene.handlers.next("update 0").await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!sending.is_finished());
    first.answer(Ok(String::new()));
    scene.handlers.updates(1..UPDATES).await;
    let mut agent = soon(sending).await.unwrap();
    agent.end();
    soon(scene.served).await.unwrap().unwrap();
    assert!(scene.handlers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn where_that_wait_could_never_end_the_connection_closes_and_callers_learn_of_it() {
    let mut options = Options::default();
    options.notifications_queued_max = 1;
    options.notifications_stuck_max = 2;
    let (mut scene, mut agent) = Scene::with_lines(options);
    agent.send(&[update(1), update(2), update(3)]).await;
    let first = scene.handlers.next("update 1").await;
    let asking = soon(first.context.agent().ext_method(ask("_why"))).await;
    assert!(matches!(asking, Err(lastword::CallError::Disconnected)));
    first.answer(Ok(String::new()));
    scene.handlers.updates([2]).await;
    let error = soon(scene.served).await.unwrap().unwrap_err();
    assert!(matches!(error, ServeError::NotificationsStuck { queued: 2 }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_disturbs_neither_the_next_update_nor_a_call() {
    let (mut scene, mut agent) = Scene::raw();
    agent.send(&[update("panic"), update(2)]).await;
    scene.handlers.updates([2]).await;
    let asking = tokio::spawn(scene.agent.ext_method(ask("_why")));
    let why = agent.call("_why").await;
    agent.send(&[result(&why, "9")]).await;
    assert_eq!(soon(asking).await.unwrap().unwrap().0.get(), "9");
    agent.end();
    soon(scene.served).await.unwrap().unwrap();
}
