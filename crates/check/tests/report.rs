//! What each face of a report says, to the letter, and which exit status a report ends with.
//!
//! The expected texts are the files beside this one; `UPDATE_EXPECT=1 cargo test -p lastword-check --test report` writes
//! them anew.

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use anstream::adapter::strip_str;
use expect_test::expect_file;
use lastword_check::report::{
    Breach, Diagram, Drift, DriftKind, Expected, Found, Layer, Line, Report, Row, Status, diagram, json, junit,
    markdown, terminal,
};
use proptest::prelude::*;

fn row(configuration: &str, layer: Layer, promise: &str, expected: Expected, found: Found) -> Row {
    Row {
        domain: "turns".into(),
        configuration: configuration.into(),
        layer,
        promise: promise.into(),
        expected,
        found,
        states: None,
        edges: None,
        time: Duration::from_millis(40),
    }
}

fn kept() -> Report {
    let holds = |configuration, layer, promise, found| row(configuration, layer, promise, Expected::Holds, found);
    let mut rows = vec![
        holds("overlapping-prompts", Layer::Graph, "NewerPromptSurvives", Found::Holds),
        holds("cancel-requests", Layer::Graph, "CancelSparesLaterPrompts", Found::Holds),
        holds("overlapping-prompts", Layer::Spec, "NewerPromptSurvives", Found::Recorded),
        row(
            "newest-wins-never",
            Layer::Spec,
            "NewerPromptSurvives",
            Expected::Breaks { steps: 5 },
            Found::RecordedBreaks { steps: 5 },
        ),
        holds("", Layer::Fingerprint, "recorded shape", Found::Holds),
    ];
    (rows[0].states, rows[0].edges, rows[0].time) = (Some(841), Some(2_310), Duration::from_millis(3));
    (rows[1].states, rows[1].edges, rows[1].time) = (Some(134_169), Some(1_045_805), Duration::from_millis(3_420));
    Report { rows, ..Report::default() }
}

fn overlapping() -> Diagram {
    let line = |from, to, label: &str| Line { from, to, label: label.into(), notes: Vec::new(), breaks: false };
    let mut lines = vec![
        line(0, Some(1), "session/prompt 1"),
        line(2, None, "starts"),
        line(0, Some(1), "session/prompt 2"),
        line(3, None, "starts"),
        line(3, Some(0), "end_turn"),
        line(2, None, "still runs, not ended"),
    ];
    lines[0].notes = vec![(2, "waits".into())];
    lines[2].notes = vec![(0, "sent before 1 was answered".into()), (3, "waits".into())];
    lines[5].breaks = true;
    Diagram { columns: ["client", "reader", "prompt 1", "prompt 2"].map(String::from).to_vec(), lines }
}

fn breach() -> Breach {
    Breach {
        promise: "OlderPromptEnds".into(),
        statement: "once a newer prompt of its session has arrived, an older one ends".into(),
        configuration: "turns/overlapping-prompts".into(),
        diagram: overlapping(),
        file: Some("specs/counterexamples/turns-OlderPromptEnds-1.json".into()),
        command: Some("./replay.sh specs/counterexamples/turns-OlderPromptEnds-1.json".into()),
    }
}

fn drift() -> Drift {
    Drift {
        path: "crates/core/src/turns.rs".into(),
        item: "Turns::arrived".into(),
        actions: vec!["PromptArrives".into(), "CancelArrives".into()],
        kind: DriftKind::Changed,
        change: "@@ -1,3 +1,3 @@\n for turn in turns {\n-    end(turn);\n+    end_later(turn);\n }".into(),
    }
}

fn broken() -> Report {
    let mut report = kept();
    let place = "overlapping-prompts";
    report.rows.extend([
        row(place, Layer::Graph, "OlderPromptEnds", Expected::Holds, Found::Breaks { steps: 6 }),
        row(place, Layer::Spec, "OlderPromptEnds", Expected::Holds, Found::Breaks { steps: 6 }),
        row(place, Layer::Mutant, "OneTurnAtATime", Expected::Breaks { steps: 4 }, Found::Holds),
        row(
            place,
            Layer::Difference,
            "edges",
            Expected::Holds,
            Found::Differs(
                "the code has 2,310 edges and the specification 2,309: only the code lets prompt 2 start while prompt 1 \
                 is in its grace window; see the step in the diagram below"
                    .into(),
            ),
        ),
        row(
            "",
            Layer::Spec,
            "Turns.tla",
            Expected::Holds,
            Found::NotVerified("there is no Java; install Java 17, or set TLA2TOOLS_JAR".into()),
        ),
        row("", Layer::Fingerprint, "covered code", Expected::Holds, Found::Drifted("1 item drifted".into())),
    ]);
    report.breaches.push(breach());
    report.drift.push(drift());
    report
}

fn plain(text: &str) -> String {
    strip_str(text).to_string()
}

#[test]
fn the_table_of_a_run_in_which_every_promise_held() {
    expect_file!["report/kept.txt"].assert_eq(&plain(&terminal::render(&kept(), 100)));
}

#[test]
fn the_terminal_of_a_run_in_which_everything_went_wrong() {
    expect_file!["report/broken.txt"].assert_eq(&plain(&terminal::render(&broken(), 100)));
}

#[test]
fn the_styles_of_a_broken_promise() {
    let styled = diagram::breach(&breach(), 100).replace('\u{1b}', "␛");
    expect_file!["report/breach-styled.txt"].assert_eq(&styled);
}

#[test]
fn a_narrow_terminal_does_without_the_counts_and_says_so() {
    let text = plain(&terminal::render(&kept(), 80));
    expect_file!["report/kept-narrow.txt"].assert_eq(&text);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_diagram_with_eight_columns_in_a_hundred() {
    let names = ["client", "reader", "cancel handler", "prompt 1", "prompt 2", "prompt 3", "prompt 4", "peer"];
    let line = |from, to, label: &str| Line { from, to, label: label.into(), notes: Vec::new(), breaks: false };
    let mut lines = vec![
        line(0, Some(1), "session/prompt 1"),
        line(0, Some(1), "session/prompt 2"),
        line(0, Some(1), "session/cancel"),
        line(2, Some(7), "session/request_permission"),
        line(7, Some(2), "allowed"),
        line(4, None, "starts"),
        line(7, None, "learns that the connection was closed"),
        line(6, Some(5), "an unlikely message with a long label that has no room on its arrow"),
    ];
    lines[2].notes = vec![(3, "ends".into()), (4, "ends".into()), (7, "waits for an answer".into())];
    lines[7].breaks = true;
    let diagram = Diagram { columns: names.map(String::from).to_vec(), lines };
    let text = plain(&diagram::render(&diagram, 100));
    expect_file!["report/eight.txt"].assert_eq(&text);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_broken_promise_without_a_step_says_that_the_first_state_breaks_it() {
    let breach = Breach { diagram: Diagram::default(), file: None, command: None, ..breach() };
    let text = plain(&diagram::breach(&breach, 100));
    assert!(text.ends_with("\nThe first state breaks it already, so there is no step to show.\n"), "{text}");
}

#[test]
fn the_job_summary_of_a_run_in_which_everything_went_wrong() {
    expect_file!["report/broken.md"].assert_eq(&markdown::render(&broken()));
}

#[test]
fn the_json_of_a_run_in_which_everything_went_wrong() {
    expect_file!["report/broken.json"].assert_eq(&json::render(&broken()).unwrap());
}

#[test]
fn the_junit_document_of_a_run_in_which_everything_went_wrong() {
    let xml = junit::render(&broken()).unwrap();
    let read = quick_junit::Report::deserialize_from_str(&xml).unwrap();
    // 11 rows and 1 drift; OlderPromptEnds twice, the mutant, the difference, the row that drifted, the item that drifted.
    assert_eq!((read.tests, read.failures, read.errors), (12, 6, 1));
    assert!(!xml.contains("<skipped"), "{xml}");
    expect_file!["report/broken.xml"].assert_eq(&xml);
}

#[test]
fn a_junit_document_of_nothing_holds_an_error() {
    let document = junit::document(&Report::default());
    assert_eq!((document.tests, document.failures, document.errors), (1, 0, 1));
}

#[test]
fn a_breach_without_a_row_fails_in_junit_and_is_named_in_the_verdict() {
    let report = Report { breaches: vec![breach()], ..kept() };
    assert_eq!(junit::document(&report).failures, 1);
    let expected = "1 promise broken: OlderPromptEnds in turns/overlapping-prompts; 5 of 5 checks as expected";
    assert_eq!(report.verdict(), expected);
}

#[test]
fn the_verdict_names_each_kind_of_problem_once() {
    assert_eq!(kept().verdict(), "5 checks: 5 as expected");
    assert_eq!(Report::default().verdict(), "nothing was checked, so nothing is verified");
    let expected = "1 promise broken: OlderPromptEnds in turns/overlapping-prompts; \
                    1 expected break not found: OneTurnAtATime in turns/overlapping-prompts; \
                    1 difference: edges in turns/overlapping-prompts; \
                    1 check could not be verified: Turns.tla in turns; \
                    1 item drifted: crates/core/src/turns.rs Turns::arrived; \
                    5 of 11 checks as expected";
    assert_eq!(broken().verdict(), expected);
}

#[test]
fn the_verdict_lists_three_names_and_counts_the_others() {
    let rows = (1..=5).map(|n| row("c", Layer::Graph, &format!("P{n}"), Expected::Holds, Found::Breaks { steps: 1 }));
    let report = Report { rows: rows.collect(), ..Report::default() };
    let expected =
        "5 promises broken: P1 in turns/c, P2 in turns/c, P3 in turns/c and 2 more; 0 of 5 checks as expected";
    assert_eq!(report.verdict(), expected);
}

/// The exit status and the sentence of every pair of what was expected and what was found.
#[test]
fn every_pair_of_expected_and_found_has_its_status() {
    let (two, three) = (Expected::Breaks { steps: 2 }, Found::Breaks { steps: 3 });
    let why = || "a sentence".to_string();
    let cases = [
        (Expected::Holds, Found::Holds, Status::Kept, None),
        (Expected::Holds, Found::Recorded, Status::Kept, None),
        (Expected::Holds, Found::Breaks { steps: 1 }, Status::Broken, Some("must hold, and breaks in 1 step")),
        (Expected::Holds, Found::RecordedBreaks { steps: 3 }, Status::Broken, Some("must hold, and breaks in 3 steps")),
        (Expected::Holds, Found::Differs(why()), Status::Broken, Some("differs: a sentence")),
        (Expected::Holds, Found::Drifted(why()), Status::Drift, Some("drifted: a sentence")),
        (Expected::Holds, Found::NotVerified(why()), Status::Unverified, Some("not verified: a sentence")),
        (two.clone(), Found::Holds, Status::Broken, Some("must break in 2 steps, and holds")),
        (two.clone(), Found::Recorded, Status::Broken, Some("must break in 2 steps, and holds")),
        (two.clone(), Found::Breaks { steps: 2 }, Status::Kept, None),
        (two.clone(), three, Status::Broken, Some("must break in 2 steps, and breaks in 3 steps")),
        (two.clone(), Found::RecordedBreaks { steps: 2 }, Status::Kept, None),
        (
            two.clone(),
            Found::RecordedBreaks { steps: 1 },
            Status::Broken,
            Some("must break in 2 steps, and breaks in 1 step"),
        ),
        (two.clone(), Found::Differs(why()), Status::Broken, Some("differs: a sentence")),
        (two.clone(), Found::Drifted(why()), Status::Drift, Some("drifted: a sentence")),
        (two, Found::NotVerified(why()), Status::Unverified, Some("not verified: a sentence")),
    ];
    for (expected, found, status, sentence) in cases {
        let row = row("c", Layer::Graph, "P", expected, found);
        assert_eq!(row.status(), status, "{row:?}");
        assert_eq!(row.sentence().as_deref(), sentence, "{row:?}");
        let report = Report { rows: vec![row], ..Report::default() };
        assert_eq!(report.exit_code(), status);
    }
}

#[test]
fn the_exit_codes_are_those_that_are_documented() {
    assert_eq!([Status::Kept, Status::Broken, Status::Drift, Status::Unverified].map(Status::code), [0, 1, 2, 3]);
}

#[test]
fn a_report_without_rows_is_unverified_unless_a_promise_broke() {
    assert_eq!(Report::default().exit_code(), Status::Unverified);
    assert_eq!(Report { drift: vec![drift()], ..Report::default() }.exit_code(), Status::Unverified);
    assert_eq!(Report { breaches: vec![breach()], ..Report::default() }.exit_code(), Status::Broken);
}

/// Not a test of its own: the process that the next test starts, whose output is that of a program that prints a report.
#[test]
fn prints_a_report_when_the_next_test_asks_for_it() {
    if std::env::var_os("LASTWORD_PRINT_REPORT").is_some() {
        write!(anstream::stdout(), "{}", terminal::render(&broken(), 100)).unwrap();
    }
}

#[test]
fn no_color_and_a_pipe_leave_no_escape_byte() {
    let printed = |set: &[&str]| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "prints_a_report_when_the_next_test_asks_for_it", "--nocapture", "--color=never"]);
        program
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .env_remove("CLICOLOR")
            .env("LASTWORD_PRINT_REPORT", "1");
        for name in set {
            program.env(name, "1");
        }
        let output = program.output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("OlderPromptEnds"), "{text}");
        text
    };
    assert!(!printed(&[]).contains('\u{1b}'));
    assert!(!printed(&["NO_COLOR", "CLICOLOR_FORCE"]).contains('\u{1b}'));
    assert!(printed(&["CLICOLOR_FORCE"]).contains('\u{1b}'));
}

fn any_expected() -> impl Strategy<Value = Expected> {
    prop_oneof![Just(Expected::Holds), (0..3usize).prop_map(|steps| Expected::Breaks { steps })]
}

fn any_found() -> impl Strategy<Value = Found> {
    prop_oneof![
        4 => Just(Found::Holds),
        2 => Just(Found::Recorded),
        1 => (0..3usize).prop_map(|steps| Found::Breaks { steps }),
        1 => (0..3usize).prop_map(|steps| Found::RecordedBreaks { steps }),
        1 => any::<String>().prop_map(Found::Differs),
        1 => any::<String>().prop_map(Found::Drifted),
        1 => any::<String>().prop_map(Found::NotVerified),
    ]
}

prop_compose! {
    fn any_report()(
        rows in prop::collection::vec((any_expected(), any_found(), "\\PC{0,12}|[a-c]", any::<Option<u64>>()), 0..6),
        breaches in prop::collection::vec(any::<String>(), 0..2),
        drifts in prop::collection::vec(any::<String>(), 0..2),
    ) -> Report {
        Report {
            rows: rows.into_iter().map(|(expected, found, name, states)| Row {
                states, ..row(&name, Layer::Graph, &name, expected, found)
            }).collect(),
            breaches: breaches.into_iter().map(|promise| Breach { promise, ..breach() }).collect(),
            drift: drifts.into_iter().map(|change| Drift { change, ..drift() }).collect(),
            kills: Vec::new(),
            survivors: Vec::new(),
        }
    }
}

proptest! {
    /// The precedence as DESIGN section 4 words it, in the order of its words.
    #[test]
    fn the_status_follows_the_documented_precedence(report in any_report()) {
        let broken = |row: &Row| match (&row.expected, &row.found) {
            (_, Found::Differs(_)) => true,
            (_, Found::Drifted(_) | Found::NotVerified(_)) => false,
            (Expected::Holds, found) => !matches!(found, Found::Holds | Found::Recorded),
            (Expected::Breaks { steps: pinned }, Found::Breaks { steps } | Found::RecordedBreaks { steps }) => pinned != steps,
            (Expected::Breaks { .. }, _) => true,
        };
        let found = |test: fn(&Found) -> bool| report.rows.iter().any(|row| test(&row.found));
        let expected = if !report.breaches.is_empty() || report.rows.iter().any(broken) {
            1
        } else if report.rows.is_empty() || found(|found| matches!(found, Found::NotVerified(_))) {
            3
        } else if !report.drift.is_empty() || found(|found| matches!(found, Found::Drifted(_))) {
            2
        } else {
            0
        };
        prop_assert_eq!(report.exit_code().code(), expected);
    }

    #[test]
    fn the_faces_agree_on_every_report(report in any_report(), width in 0..200usize) {
        let status = report.exit_code();
        let json: serde_json::Value = serde_json::from_str(&json::render(&report).unwrap()).unwrap();
        prop_assert_eq!(&json["schema"], 1);
        prop_assert_eq!(&json["exit_code"], status.code());
        prop_assert_eq!(json["rows"].as_array().unwrap().len(), report.rows.len());

        let xml = junit::render(&report).unwrap();
        let read = quick_junit::Report::deserialize_from_str(&xml).unwrap();
        prop_assert_eq!(read.failures + read.errors == 0, status == Status::Kept);
        prop_assert_eq!(read.errors > 0, report.rows.is_empty() || report.rows.iter().any(|row| row.status() == Status::Unverified));

        let terminal = plain(&terminal::render(&report, width));
        let escapes = terminal.contains('\u{1b}');
        prop_assert!(!escapes);
        let sign = ["✓", "✗", "~", "?"][usize::from(status.code())];
        prop_assert!(terminal.rsplit("\n\n").next().unwrap().starts_with(sign));
        let sign = ["✅", "❌", "⚠️", "❓"][usize::from(status.code())];
        let markdown = markdown::render(&report);
        let heading = format!("## {sign} ");
        prop_assert!(markdown.starts_with(&heading));
    }
}
