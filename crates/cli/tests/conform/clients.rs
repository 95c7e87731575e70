//! Clients: the right one keeps everything that shows, and each wrong one breaks what it must, by name.

use crate::{EVER_MS, PATIENCE_MS, code, conform, measured, peer};

const SPEAKS: [&str; 3] = ["--client", "--echoes", "--cancels"];

#[test]
fn a_right_client_keeps_every_promise_in_every_scenario() {
    let options = [&SPEAKS[..], &["--rounds", "2", "--patience-ms", EVER_MS]].concat();
    let results = measured(&options, &peer("client.py", "none"));
    assert_eq!((results.code, results.with("kept").len(), results.rows().len()), (0, 31, 31), "{:#}", results.json);
}

#[test]
fn a_client_that_prompts_once_is_started_again_for_each_round() {
    let options = [&SPEAKS[..], &["--rounds", "3", "--patience-ms", EVER_MS, "--only", "updates-response"]].concat();
    let results = measured(&options, &peer("client.py", "one-prompt"));
    assert_eq!(results.with("kept"), [("ResponseAfterEarlierNotifications", "updates-response")]);
    assert_eq!((&results.rows()[0]["kept"], results.code), (&3.into(), 0));
}

#[test]
fn of_a_client_that_does_not_say_what_it_does_the_barrier_does_not_show() {
    let results = measured(
        &["--client", "--rounds", "1", "--patience-ms", EVER_MS, "--only", "updates", "--only", "permission"],
        &peer("client.py", "none"),
    );
    assert_eq!(results.with("kept"), [("AnsweredOnce", "permission")]);
    let promises = ["AnsweredOnce", "NotificationsInOrder", "EveryNotificationIsHandled"];
    assert_eq!(results.with("not supported"), promises.map(|promise| (promise, "updates")));
}

#[track_caller]
fn breaks(bug: &str, scenarios: &[&str], expected: &[(&str, &str)]) {
    let mut options = [&SPEAKS[..], &["--rounds", "2", "--patience-ms", PATIENCE_MS]].concat();
    options.extend(scenarios.iter().flat_map(|name| ["--only", name]));
    let results = measured(&options, &peer("client.py", bug));
    assert_eq!((results.with("broken"), results.code), (expected.to_vec(), 1), "{:#}", results.json);
}

#[test]
fn a_client_that_answers_before_it_handles_breaks_the_order_of_requests() {
    breaks(
        "handles-late",
        &["updates-permission", "updates-response"],
        &[
            ("ResponseAfterEarlierNotifications", "updates-response"),
            ("RequestAfterEarlierNotifications", "updates-permission"),
        ],
    );
}

#[test]
fn a_client_that_handles_the_last_update_first_breaks_their_order() {
    breaks("out-of-order", &["updates", "permission"], &[("NotificationsInOrder", "updates")]);
}

#[test]
fn a_client_that_drops_an_update_does_not_handle_every_notification() {
    breaks(
        "drops-updates",
        &["updates", "permission"],
        &[("NotificationsInOrder", "updates"), ("EveryNotificationIsHandled", "updates")],
    );
}

#[test]
fn a_client_whose_caller_resumes_late_breaks_the_order_of_later_updates() {
    breaks("returns-late", &["response-update", "updates"], &[("ResponseBeforeLaterNotifications", "response-update")]);
}

#[test]
fn a_client_that_answers_twice_breaks_answered_once() {
    breaks("answers-twice", &["permission"], &[("AnsweredOnce", "permission")]);
}

#[test]
fn a_client_that_dies_of_garbage_breaks_what_comes_after() {
    breaks(
        "dies-at-garbage",
        &["garbage-line", "permission"],
        &[("AnsweredOnce", "garbage-line"), ("NoSilentDrop", "garbage-line")],
    );
}

#[test]
fn a_client_that_never_prompts_cannot_be_measured() {
    let peer = peer("client.py", "no-prompt");
    let output = conform(&["--client", "--rounds", "1", "--start-ms", "500"], &peer).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(code(&output) == 3 && said.contains("the client sent no session/prompt within 500 ms"), "{said}");
}
