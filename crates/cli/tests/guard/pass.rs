//! What passes through is not changed.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    thread,
};

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::json;

use crate::scene::{CANCELLED, END_TURN, Scene, cancel, prompt, update};

/// JSON as it may stand on a line: unknown fields, numbers in every form, texts with escapes, white space.
fn any_json() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        Just("1.0".to_owned()),
        Just("1e400".to_owned()),
        Just("-0.0".to_owned()),
        Just("18446744073709551617".to_owned()),
        "-?[1-9][0-9]{0,30}(\\.[0-9]{1,20})?(e[+-]?[0-9]{1,2})?",
    ];
    let text = prop_oneof![
        Just(r#""\ud83d\ude00 \u0000 \/ \u2028""#.to_owned()),
        any::<String>().prop_map(|text| json!(text).to_string()),
    ];
    let leaf = prop_oneof![Just("null".to_owned()), Just("true".to_owned()), number, text];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|all| format!("[ {} ]", all.join(" ,"))),
            prop::collection::btree_map("[a-zA-Z_$ é]{0,5}", inner, 0..5).prop_map(|all| {
                let all: Vec<String> =
                    all.into_iter().map(|(name, value)| format!("{}: {value}", json!(name))).collect();
                format!("{{{}}}", all.join(","))
            }),
        ]
    })
}

#[test]
fn any_json_passes_in_both_directions_as_it_was_written() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let scene = std::cell::RefCell::new(runtime.block_on(Scene::start()));
    let names = "[a-z_/]{1,8}";
    // All cases go through one guard, so that a smaller one cannot be looked for after a failure.
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 200,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Default::default()
    });
    let given = (any_json(), any_json(), names, any::<bool>());
    runner
        .run(&given, |(asked, answered, method, refuses)| {
            let mut scene = scene.borrow_mut();
            let scene = &mut *scene;
            let method = format!("_{method}");
            let request = format!(r#"{{"jsonrpc":"2.0","id":"é","method":"{method}","params":{asked}}}"#);
            let notification = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{asked}}}"#);
            let answer = if refuses {
                format!(r#"{{"code":-1.0e1,"message":"no","data":{answered},"more":{asked}}}"#)
            } else {
                answered.clone()
            };
            let member = if refuses { "error" } else { "result" };
            runtime.block_on(async {
                scene.client.says(&[&notification, &request]).await;
                assert_eq!(scene.agent.hears_call(&method).await.params.unwrap().get(), asked);
                let call = scene.agent.hears_call(&method).await;
                assert_eq!(call.params.as_ref().unwrap().get(), asked);
                scene.agent.says(&[format!(r#"{{"id":{},"{member}":{answer}}}"#, call.id())]).await;
                assert_eq!(
                    scene.client.next().await.unwrap(),
                    format!(r#"{{"jsonrpc":"2.0","id":"é","{member}":{answer}}}"#)
                );

                scene.agent.says(&[&notification, &request]).await;
                assert_eq!(scene.client.next().await.unwrap(), notification);
                let call = scene.client.hears_call(&method).await;
                assert_eq!(call.params.as_ref().unwrap().get(), asked);
                scene.client.says(&[format!(r#"{{"id":{},"{member}":{answer}}}"#, call.id())]).await;
                assert_eq!(
                    scene.agent.next().await.unwrap(),
                    format!(r#"{{"jsonrpc":"2.0","id":"é","{member}":{answer}}}"#)
                );
            });
            Ok(())
        })
        .unwrap();
    assert!(runtime.block_on(scene.into_inner().end()).0.success());
}

#[tokio::test]
async fn a_response_stands_between_the_updates_before_it_and_those_after_it() {
    const ROUNDS: u64 = 100;
    let mut scene = Scene::start().await;
    for round in 0..ROUNDS {
        let turn = scene.prompt(round, "s").await;
        let mut lines: Vec<String> = (0..20).map(|n| update("s", n)).collect();
        lines.push(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{END_TURN}}}"#, turn.id()));
        lines.extend((20..40).map(|n| update("s", n)));
        scene.agent.says(&lines).await;
        for n in 0..20 {
            assert_eq!(scene.client.hears_call("session/update").await.params()["n"], n);
        }
        assert_eq!(scene.client.hears().await.id(), round.to_string());
        for n in 20..40 {
            assert_eq!(scene.client.hears_call("session/update").await.params()["n"], n);
        }
    }
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn what_the_client_says_reaches_the_agent_in_its_order() {
    const COUNT: usize = 2000;
    let mut scene = Scene::untraced().await;
    let lines: Vec<String> = (0..COUNT)
        .map(|n| {
            // Some hundred bytes, so that all of it is more than the pipes hold.
            let id = if n % 3 == 0 { String::new() } else { format!(r#""id":{n},"#) };
            format!(r#"{{"jsonrpc":"2.0",{id}"method":"_n","params":[{n},"{}"]}}"#, "x".repeat(500))
        })
        .collect();
    let Scene { client, agent, .. } = &mut scene;
    tokio::join!(client.says(&lines), async {
        for n in 0..COUNT {
            assert_eq!(agent.hears_call("_n").await.params()[0], n);
        }
    });
    assert!(scene.end().await.0.success());
}

#[tokio::test]
async fn a_prompt_without_a_session_is_answered_here_and_reaches_nobody() {
    let mut scene = Scene::start().await;
    for params in ["{}", "[]", r#"{"sessionId":1}"#, r#"{"sessionId":"a","sessionId":"b","prompt":[]}"#] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{params}}}"#);
        scene.client.says(&[line]).await;
        assert_eq!(scene.client.hears().await.error()["code"], -32602, "{params}");
    }
    scene.client.says(&[prompt(2, "s")]).await;
    let turn = scene.agent.hears_call("session/prompt").await;
    scene.agent.answers(turn.id(), END_TURN).await;
    assert_eq!(scene.client.hears().await.id(), "2");
    assert!(scene.end().await.0.success());
}

#[test]
fn an_agent_that_reads_nothing_while_what_it_says_is_not_taken_does_not_stop_the_guard() {
    const COUNT: usize = 50_000;
    // It says what it reads, and while it cannot say it, it does not read.
    let mut guard = Command::new(env!("CARGO_BIN_EXE_lastword"))
        .args(["guard", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = guard.stdin.take().unwrap();
    let line = |n: usize| format!(r#"{{"jsonrpc":"2.0","method":"_n","params":[{n},"{}"]}}"#, "x".repeat(100));
    let lines: String = (0..COUNT).map(|n| line(n) + "\n").collect();
    let writer = thread::spawn(move || input.write_all(lines.as_bytes()).map(|()| input));
    let mut output = BufReader::new(guard.stdout.take().unwrap()).lines();
    for n in 0..COUNT {
        assert_eq!(output.next().unwrap().unwrap(), line(n));
    }
    drop(writer.join().unwrap().unwrap());
    assert!(output.next().is_none());
    assert!(guard.wait().unwrap().success());
}

#[tokio::test]
async fn what_comes_in_one_write_with_a_prompt_a_cancel_or_an_answer_keeps_its_place() {
    let mut scene = Scene::start().await;
    let note = |method: &str| format!(r#"{{"method":"{method}"}}"#);
    scene.client.says(&[prompt(1, "s"), note("_after_the_prompt"), cancel("s"), note("_after_the_cancel")]).await;
    let turn = scene.agent.hears_call("session/prompt").await;
    for method in ["_after_the_prompt", "session/cancel", "_after_the_cancel"] {
        scene.agent.hears_call(method).await;
    }
    let answer = format!(r#"{{"id":{},"result":{CANCELLED}}}"#, turn.id());
    scene.agent.says(&[answer, r#"{"id":7,"method":"_after_the_answer"}"#.to_owned()]).await;
    assert_eq!(scene.client.hears().await.id(), "1");
    let asked = scene.client.hears_call("_after_the_answer").await;
    scene.client.answers(asked.id(), "null").await;
    // It may have been told to cancel once more before it answered.
    while scene.agent.hears().await.method.is_some() {}
    assert!(scene.end().await.0.success());
}
