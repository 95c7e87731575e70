//! How a connection ends, in whatever state it is.

use lastword::{CallError, Options, ServeError, connect, schema::v1::StopReason};
use tokio::{io::split, time::Instant};

use crate::scene::{Played, Scene, ask, request, soon, update};

fn is_disconnected<T>(result: &Result<T, CallError>) -> bool {
    matches!(result, Err(CallError::Disconnected))
}

#[tokio::test(start_paused = true)]
async fn closing_ends_the_agents_turns_and_their_last_words_still_arrive() {
    let (mut scene, mut prompts) = Scene::with_prompts();
    let prompting = scene.prompt("s", "1");
    let turn = prompts.next("1").await;
    scene.agent.close();
    soon(turn.context.cancellation().cancelled()).await;
    soon(turn.context.say("goodbye")).await.unwrap();
    scene.handlers.updates(["goodbye"]).await;
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(soon(prompting).await.unwrap().unwrap(), StopReason::Cancelled);
    assert!(is_disconnected(&soon(scene.agent.ext_method(ask("_question"))).await));
    soon(scene.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_said_before_the_close_goes_out_before_it() {
    let (scene, mut agent) = Scene::raw();
    let asking: Vec<_> = (0..100).map(|_| tokio::spawn(scene.agent.ext_method(ask("_question")))).collect();
    tokio::task::yield_now().await;
    scene.agent.close();
    for _ in 0..100 {
        agent.call("_question").await;
    }
    assert_eq!(agent.message().await, None);
    agent.end();
    for asking in asking {
        assert!(is_disconnected(&soon(asking).await.unwrap()));
    }
    soon(scene.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_caller_learns_that_the_agent_is_gone() {
    let (scene, mut agent) = Scene::raw();
    let prompting = scene.prompt("s", "1");
    let asking = tokio::spawn(scene.agent.ext_method(ask("_question")));
    for method in ["session/prompt", "_question"] {
        agent.call(method).await;
    }
    agent.end();
    assert!(is_disconnected(&soon(prompting).await.unwrap()));
    assert!(is_disconnected(&soon(asking).await.unwrap()));
    assert!(is_disconnected(&soon(scene.agent.ext_method(ask("_question"))).await));
    soon(scene.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn updates_that_arrived_before_the_end_are_all_handled() {
    let (mut scene, mut agent) = Scene::raw();
    agent.send(&[update(1), update(2), update(3)]).await;
    agent.end();
    scene.handlers.updates(1..=3).await;
    soon(scene.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_reads_no_more_is_still_heard_out() {
    let (mut scene, mut agent) = Scene::raw();
    agent.close_input();
    // The output is broken, which is noticed when something is said.
    let prompting = scene.prompt("s", "1");
    tokio::task::yield_now().await;
    agent.send(&[update(1), update(2)]).await;
    agent.end();
    scene.handlers.updates(1..=2).await;
    assert!(is_disconnected(&soon(prompting).await.unwrap()));
    let error = soon(scene.served).await.unwrap().unwrap_err();
    assert!(matches!(error, ServeError::Write(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_return_after_the_end_is_dropped_after_the_drain_time() {
    let (mut scene, mut agent) = Scene::raw();
    agent.send(&[update(1), request(1, "_question")]).await;
    let mut first = scene.handlers.next("update 1").await;
    let begin = Instant::now();
    agent.end();
    first.dropped().await;
    assert_eq!(begin.elapsed().as_secs(), Options::default().drain_max.as_secs());
    let error = soon(scene.served).await.unwrap().unwrap_err();
    assert!(matches!(error, ServeError::Unfinished { requests: 1, bytes: 0 }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_connection_drops_its_handlers_and_disconnects_every_caller() {
    let (mut scene, mut agent) = Scene::raw();
    agent.send(&[update(1)]).await;
    let mut first = scene.handlers.next("update 1").await;
    let prompting = scene.prompt("s", "1");
    agent.call("session/prompt").await;
    scene.served.abort();
    first.dropped().await;
    assert!(is_disconnected(&soon(prompting).await.unwrap()));
    assert!(is_disconnected(&soon(first.context.agent().ext_method(ask("_question"))).await));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_dropped_before_it_began_disconnects_every_caller_too() {
    let (ours, _theirs) = tokio::io::duplex(1000);
    let (reader, writer) = split(ours);
    let (agent, connection) = connect(Played::new().0, reader, writer, Options::default());
    let asking = tokio::spawn(agent.ext_method(ask("_question")));
    tokio::task::yield_now().await;
    drop(connection);
    assert!(is_disconnected(&soon(asking).await.unwrap()));
    assert!(is_disconnected(&soon(agent.ext_method(ask("_question"))).await));
}
