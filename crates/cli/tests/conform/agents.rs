//! Agents: the right ones keep everything, and each wrong one breaks what it must, by name.

use crate::{EVER_MS, PATIENCE_MS, code, conform, measured, peer, reference};

const ROUNDS: u32 = 5;

/// How many rows a right agent has.
const ROWS: usize = 71;

#[test]
fn the_reference_agent_keeps_every_promise_in_every_scenario() {
    let results = measured(&["--rounds", &ROUNDS.to_string(), "--patience-ms", EVER_MS], &reference());
    assert_eq!((results.code, &results.json["verdict"]), (0, &"kept".into()), "{:#}", results.json);
    assert_eq!(results.with("kept").len(), ROWS);
    assert_eq!(results.rows().len(), ROWS);
    for row in results.rows() {
        assert_eq!((&row["rounds"], &row["kept"]), (&ROUNDS.into(), &ROUNDS.into()), "{row}");
    }
    let mut scenarios: Vec<&str> = results.with("kept").into_iter().map(|(_, scenario)| scenario).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    assert_eq!(scenarios.len(), 28);
}

#[test]
fn a_right_agent_of_another_kind_keeps_them_too() {
    let results = measured(&["--rounds", "2", "--patience-ms", EVER_MS], &peer("agent.py", "none"));
    assert_eq!((results.code, results.with("kept").len()), (0, ROWS), "{:#}", results.json);
}

/// What a wrong agent breaks, of the scenarios that are named.
#[track_caller]
fn breaks(bug: &str, scenarios: &[&str], expected: &[(&str, &str)]) {
    let mut options = vec!["--rounds", "2", "--patience-ms", PATIENCE_MS];
    options.extend(scenarios.iter().flat_map(|name| ["--only", name]));
    let results = measured(&options, &peer("agent.py", bug));
    assert_eq!(results.with("broken"), expected, "{:#}", results.json);
    assert_eq!((results.code, &results.json["verdict"]), (1, &"broken".into()));
    for row in results.rows().iter().filter(|row| row["verdict"] == "broken") {
        assert_eq!((&row["rounds"], &row["broken"]), (&2.into(), &2.into()), "{row}");
        assert_eq!(row["first_broken"]["round"], 1, "{row}");
        assert!(!row["first_broken"]["transcript"].as_array().unwrap().is_empty(), "{row}");
        assert!(!row["reason"].as_str().unwrap().is_empty(), "{row}");
    }
}

#[test]
fn an_agent_that_ignores_cancels_breaks_what_a_cancel_reaches() {
    breaks(
        "ignores-cancel",
        &["prompt-cancel", "prompt-prompt", "cancel-prompt"],
        &[("CancelReachesEarlierPrompts", "prompt-cancel")],
    );
}

#[test]
fn an_agent_that_answers_twice_breaks_answered_once() {
    breaks("answers-twice", &["cancel-prompt", "id-null"], &[("AnsweredOnce", "cancel-prompt")]);
}

#[test]
fn an_agent_that_writes_ids_anew_breaks_answered_once() {
    breaks(
        "parses-ids",
        &["ids-fractional", "ids-text", "prompt-cancel"],
        &[("AnsweredOnce", "ids-fractional"), ("AnsweredOnce", "ids-text")],
    );
}

#[test]
fn an_agent_that_drops_the_older_prompt_breaks_its_end() {
    breaks("drops-older", &["prompt-prompt", "prompt-cancel"], &[("OlderPromptEnds", "prompt-prompt")]);
}

#[test]
fn an_agent_that_cancels_the_newer_prompt_breaks_its_survival() {
    breaks(
        "cancels-newer",
        &["prompt-prompt", "prompt-cancel-prompt"],
        &[("NewerPromptSurvives", "prompt-prompt"), ("OlderPromptEnds", "prompt-prompt")],
    );
}

#[test]
fn an_agent_whose_cancels_reach_later_prompts_breaks_their_sparing() {
    breaks(
        "spares-nothing",
        &["cancel-prompt", "prompt-cancel-prompt", "prompt-prompt"],
        &[("CancelSparesLaterPrompts", "cancel-prompt"), ("CancelSparesLaterPrompts", "prompt-cancel-prompt")],
    );
}

#[test]
fn an_agent_that_answers_an_ended_prompt_with_an_error_does_not_say_cancelled() {
    breaks("says-error", &["prompt-abort-1"], &[("CancelledIsSaid", "prompt-abort-1")]);
}

#[test]
fn an_agent_that_dies_of_garbage_breaks_what_comes_after_and_is_started_again() {
    breaks(
        "dies-at-garbage",
        &["garbage-line", "batch", "prompt-prompt"],
        &[("AnsweredOnce", "garbage-line"), ("NoSilentDrop", "garbage-line")],
    );
}

#[test]
fn an_agent_that_says_nothing_of_garbage_drops_it_silently() {
    breaks("silent-at-garbage", &["garbage-line", "not-an-object"], &[("NoSilentDrop", "garbage-line")]);
}

#[test]
fn an_agent_that_hangs_is_replaced_and_spoils_no_other_scenario() {
    breaks(
        "hangs",
        &["prompt-prompt", "garbage-line", "unknown-method"],
        &[("OlderPromptEnds", "prompt-prompt"), ("EveryPromptIsAnswered", "prompt-prompt")],
    );
}

#[test]
fn an_agent_that_never_stops_to_speak_is_replaced() {
    breaks("floods", &["prompt-cancel", "garbage-line"], &[("CancelReachesEarlierPrompts", "prompt-cancel")]);
}

#[test]
fn an_answer_that_comes_only_when_a_round_is_cleaned_up_spoils_no_later_round() {
    // The first cancel of each session is lost, so that the prompt ends in the clean-up, beside a request with its id.
    breaks("loses-first-cancel", &["id-in-use", "prompt-cancel"], &[("CancelReachesEarlierPrompts", "prompt-cancel")]);
}

#[test]
fn what_an_agent_says_that_it_lacks_is_not_supported() {
    let options = ["--rounds", "2", "--patience-ms", EVER_MS, "--only", "prompt-cancel-request"];
    let results = measured(&options, &peer("agent.py", "no-cancel-request"));
    assert_eq!(results.code, 0);
    assert_eq!(results.with("not supported"), [("CancelReachesEarlierPrompts", "prompt-cancel-request")]);
    let row = &results.rows()[0];
    assert_eq!(row["reason"], "it answers session/cancel with -32601");

    let options = ["--rounds", "2", "--patience-ms", EVER_MS, "--only", "prompt-prompt-b-cancel"];
    let results = measured(&options, &peer("agent.py", "one-session"));
    assert_eq!(results.with("not supported").len(), 4, "{:#}", results.json);
    // Nothing was shown.
    assert_eq!((results.code, &results.json["verdict"]), (3, &"nothing shown".into()));
}

#[test]
fn what_cannot_be_measured_exits_with_3_and_says_why() {
    let start = ["--start-ms", "3000"];
    let cases: [(&[String], &[&str], &str); 5] = [
        (&["/no/such/agent".to_owned()], &[], "`/no/such/agent` could not be started"),
        (&peer("agent.py", "noise"), &start, "did not answer initialize within 3000 ms\n  it said:\n    loading 0..."),
        (&["true".to_owned()], &[], "did not answer initialize before its output ended"),
        (&peer("agent.py", "needs-login"), &[], "answers session/new with the error -32000 (Authentication required)"),
        (&reference(), &["--only", "no-such-scenario"], "there is no scenario no-such-scenario; --list names them"),
    ];
    for (peer, options, why) in cases {
        let output = conform(&[options, &["--rounds", "1"]].concat(), peer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(&output), 3, "{said}");
        assert!(said.contains(why), "{said}");
        assert_eq!(output.stdout, b"");
    }
}

#[test]
fn an_agent_that_dies_at_the_start_shows_its_last_words() {
    let dying = ["sh", "-c", "echo no key >&2; exit 7"].map(str::to_owned);
    let output = conform(&["--rounds", "1"], &dying).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(code(&output) == 3 && said.contains("on standard error:\n    no key"), "{said}");
}

#[test]
fn the_table_junit_and_markdown_say_what_json_says() {
    let folder = tempfile::tempdir().unwrap();
    let [junit, markdown, json] = ["r.xml", "r.md", "r.json"].map(|name| folder.path().join(name));
    let options = [
        ["--rounds", "2", "--patience-ms", PATIENCE_MS, "--only", "prompt-cancel", "--only", "prompt-prompt"]
            .as_slice(),
        &[
            "--junit",
            junit.to_str().unwrap(),
            "--markdown",
            markdown.to_str().unwrap(),
            "--json",
            json.to_str().unwrap(),
        ],
    ];
    let output = conform(&options.concat(), &peer("agent.py", "ignores-cancel")).output().unwrap();
    assert_eq!(code(&output), 1);
    // Nothing is drawn where there is no terminal.
    assert_eq!(output.stderr, b"");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(!table.contains('\u{1b}'), "{table}");
    assert_eq!(table.matches("✓ kept, 2 rounds").count(), 5, "{table}");
    assert_eq!(table.matches("✗ broken, 2 of 2").count(), 1, "{table}");
    assert_eq!(table.matches("– not shown").count(), 2, "{table}");
    for line in [
        "✗ CancelReachesEarlierPrompts broken in prompt-cancel (prompt 1, cancel)",
        "round 1: prompt 1 did not end within the patience",
        r#"──▶ {"jsonrpc":"2.0","method":"session/cancel""#,
    ] {
        assert!(table.contains(line), "{table}");
    }

    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 8);
    let markdown = std::fs::read_to_string(markdown).unwrap();
    assert_eq!(markdown.lines().filter(|line| line.starts_with("| ")).count(), 2 + 8, "{markdown}");
    let junit = std::fs::read_to_string(junit).unwrap();
    let suites = quick_junit::Report::deserialize_from_str(&junit).unwrap();
    assert_eq!((suites.tests, suites.failures, suites.errors), (8, 1, 0), "{junit}");
}

#[test]
fn the_list_names_every_scenario_and_what_is_not_told() {
    let output = conform(&["--list"], &[]).output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(list.ends_with("\n28 scenarios\n"), "{list}");
    assert_eq!(list.lines().filter(|line| line.starts_with("turns-")).count(), 5, "{list}");
    let output = conform(&["--list", "--client"], &[]).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().ends_with("\n21 scenarios\n"));
}
