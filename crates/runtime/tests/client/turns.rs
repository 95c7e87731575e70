//! Prompts, cancels and permissions, against an agent of this crate.

use lastword::schema::{
    ProtocolVersion,
    v1::{
        CancelNotification, InitializeRequest, NewSessionRequest, PermissionOption, PermissionOptionKind,
        RequestPermissionOutcome, RequestPermissionRequest, StopReason, ToolCallUpdate, ToolCallUpdateFields,
    },
};

use crate::scene::{Scene, soon};

fn permission() -> RequestPermissionRequest {
    let call = ToolCallUpdate::new("call", ToolCallUpdateFields::new());
    RequestPermissionRequest::new("s", call, vec![PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce)])
}

#[tokio::test(start_paused = true)]
async fn a_session_is_opened_prompted_and_closed() {
    let (mut scene, mut prompts) = Scene::with_prompts();
    soon(scene.agent.initialize(InitializeRequest::new(ProtocolVersion::V1))).await.unwrap();
    let session = soon(scene.agent.new_session(NewSessionRequest::new("/"))).await.unwrap().session_id;
    let prompting = scene.prompt(&session.0, "hello");
    let turn = prompts.next("hello").await;
    for text in ["one", "two"] {
        soon(turn.context.say(text)).await.unwrap();
    }
    scene.handlers.updates(["one", "two"]).await;
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(soon(prompting).await.unwrap().unwrap(), StopReason::EndTurn);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_agent_asks_for_permission_and_learns_what_was_selected() {
    let (mut scene, mut prompts) = Scene::with_prompts();
    let prompting = scene.prompt("s", "1");
    let turn = prompts.next("1").await;
    let asking = tokio::spawn(turn.context.client().request_permission(permission()));
    scene.handlers.next("permission s").await.answer(Ok("yes".to_owned()));
    match soon(asking).await.unwrap().unwrap().outcome {
        RequestPermissionOutcome::Selected(selected) => assert_eq!(&*selected.option_id.0, "yes"),
        other => panic!("{other:?}"),
    }
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(soon(prompting).await.unwrap().unwrap(), StopReason::EndTurn);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_agent_takes_back_fires_the_handlers_token() {
    let (mut scene, mut prompts) = Scene::with_prompts();
    let prompting = scene.prompt("s", "1");
    let turn = prompts.next("1").await;
    let asking = tokio::spawn(turn.context.client().request_permission(permission()));
    let mut dialog = scene.handlers.next("permission s").await;
    asking.abort();
    soon(dialog.context.cancellation().cancelled()).await;
    // It is deaf, and so dropped after the grace period.
    dialog.dropped().await;
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(soon(prompting).await.unwrap().unwrap(), StopReason::EndTurn);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_overlapping_prompts_the_newer_one_has_the_last_word() {
    let (scene, mut prompts) = Scene::with_prompts();
    let older = scene.prompt("s", "older");
    let turn = prompts.next("older").await;
    let newer = scene.prompt("s", "newer");
    soon(turn.context.cancellation().cancelled()).await;
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(soon(older).await.unwrap().unwrap(), StopReason::Cancelled);
    prompts.next("newer").await.answer(Ok(StopReason::EndTurn));
    assert_eq!(soon(newer).await.unwrap().unwrap(), StopReason::EndTurn);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_prompt_before_it_and_spares_the_one_after_it() {
    let (scene, mut prompts) = Scene::with_prompts();
    let before = scene.prompt("s", "before");
    let turn = prompts.next("before").await;
    soon(scene.agent.cancel(CancelNotification::new("s"))).await.unwrap();
    let after = scene.prompt("s", "after");
    soon(turn.context.cancellation().cancelled()).await;
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(soon(before).await.unwrap().unwrap(), StopReason::Cancelled);
    let turn = prompts.next("after").await;
    assert!(!turn.context.cancellation().is_cancelled());
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(soon(after).await.unwrap().unwrap(), StopReason::EndTurn);
    scene.end().await;
}
