//! TLC itself on tiny specifications, and the readers of its output alone on recorded text.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::time::Instant;

use super::*;

const COUNTER: &str = r#"---- MODULE Counter ----
EXTENDS Naturals, Step
CONSTANT Max
VARIABLES n, note
vars == <<n, note>>
Init == n = 0 /\ note = [text |-> "a \"b\\ c", seen |-> {}]
Up == n < Max /\ n' = Plus(n, 1) /\ UNCHANGED note
Twice == \E k \in {1, 2} : n < Max /\ n' = Plus(n, k - k + 1) /\ UNCHANGED note
Reset == n = Max /\ n' = 0 /\ UNCHANGED note
Stay == UNCHANGED vars
Next == Up \/ Twice \/ Reset \/ Stay
Spec == Init /\ [][Next]_vars
Fair == Spec /\ WF_vars(Up)
Endless == n = 0 /\ note = 0 /\ [][n' = n + 1 /\ UNCHANGED note]_vars
Small == n < 3
NotZero == n # 0
Grows == [][n' >= n]_vars
ReachesMax == <>(n = Max)
TooFar == <>(n = Max + 1)
Crash == n < "a"
====
"#;

const STEP: &str = "---- MODULE Step ----\nEXTENDS Naturals\nPlus(a, b) == a + b\n====\n";

/// TLC, or nothing where there is none; then the test says so where a person sees it, not where the harness swallows it.
fn tlc() -> Option<Tlc> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match Tlc::find(&root) {
        Ok(tlc) => Some(tlc),
        Err(error) => {
            let _ = writeln!(io::stderr(), "\nNOT TESTED against TLC: {error}\n");
            None
        }
    }
}

fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("a file that is written");
    }
    folder
}

fn counter(cfg: &str, max: u32) -> (tempfile::TempDir, Job) {
    let folder = folder_with(&[("Counter.tla", COUNTER), ("Step.tla", STEP)]);
    let module = folder.path().join("Counter.tla");
    let cfg = format!("CONSTANT Max = {max}\n{cfg}\n");
    (folder, Job { module, cfg, liveness: false, dump: false, timeout: TIMEOUT })
}

fn state(n: u32) -> String {
    format!(r#"/\n={n}/\note=[text|->"a\"b\\c",seen|->{{}}]"#)
}

#[test]
fn a_specification_that_holds_gives_its_exact_graph() {
    let Some(tlc) = tlc() else { return };
    let (_folder, mut job) = counter("SPECIFICATION Spec", 3);
    job.dump = true;
    let outcome = tlc.run(&job).expect("a verdict");
    assert_eq!((&outcome.verdict, outcome.distinct_states, outcome.depth), (&Verdict::Holds, 4, Some(4)));
    // Initially 1, then each state's Stay, Up once and Twice twice for 0, 1 and 2, and Reset for 3.
    assert_eq!(outcome.generated, 1 + 4 + 3 + 6 + 1);
    assert_eq!(outcome.trace, []);
    let graph = outcome.graph.expect("a graph");
    assert_eq!(graph.initial.iter().map(|&at| &graph.states[at as usize]).collect::<Vec<_>>(), [&state(0)]);
    let mut edges: Vec<(String, &str, String)> = graph
        .edges
        .iter()
        .map(|edge| {
            let text = |at: u32| graph.states[at as usize].clone();
            (text(edge.from), graph.actions[edge.action as usize].as_str(), text(edge.to))
        })
        .collect();
    edges.sort();
    let mut expected: Vec<(String, &str, String)> = (0..=3).map(|n| (state(n), "Stay", state(n))).collect();
    expected.extend((0..3).flat_map(|n| ["Up", "Twice"].map(|action| (state(n), action, state(n + 1)))));
    expected.push((state(3), "Reset", state(0)));
    expected.sort();
    assert_eq!(edges, expected);

    let states: Vec<String> = (0..=3).rev().map(state).collect();
    let ours = [(3, "Up", 2), (2, "Up", 1), (1, "Up", 0), (3, "Twice", 2), (2, "Twice", 1), (1, "Twice", 0)];
    let ours = ours.into_iter().chain([(0, "Reset", 3)]).chain((0..4).map(|at| (at, "Stay", at)));
    assert_eq!(graph.digest(), graph_digest(&states, [3], ours));
}

#[test]
fn a_graph_is_the_same_with_liveness_and_one_worker() {
    let Some(tlc) = tlc() else { return };
    let (_folder, mut job) = counter("SPECIFICATION Fair\nPROPERTY ReachesMax", 3);
    job.dump = true;
    let several = tlc.run(&Job { cfg: "CONSTANT Max = 3\nSPECIFICATION Spec".to_owned(), ..job.clone() });
    job.liveness = true;
    let one = tlc.run(&job).expect("a verdict");
    assert_eq!(one.verdict, Verdict::Holds);
    let digest = |outcome: Outcome| outcome.graph.expect("a graph").digest();
    assert_eq!(digest(one), digest(several.expect("a verdict")));
}

#[test]
fn a_violated_invariant_is_named_with_its_shortest_trace() {
    let Some(tlc) = tlc() else { return };
    let (_folder, job) = counter("SPECIFICATION Spec\nINVARIANT Small", 5);
    let outcome = tlc.run(&job).expect("a verdict");
    assert_eq!(outcome.verdict, Verdict::Invariant { name: "Small".into() });
    let actions: Vec<&str> = outcome.trace.iter().map(|step| step.action.as_str()).collect();
    assert_eq!(actions, ["Initial predicate", "Up", "Up", "Up"]);
    assert_eq!(
        outcome.trace.iter().map(|step| step.state.clone()).collect::<Vec<_>>(),
        (0..4).map(state).collect::<Vec<_>>()
    );
    assert_eq!((outcome.graph, outcome.lasso), (None, None));
}

#[test]
fn an_invariant_that_the_initial_state_violates_has_a_trace_of_one_state() {
    let Some(tlc) = tlc() else { return };
    let (_folder, job) = counter("SPECIFICATION Spec\nINVARIANT NotZero", 3);
    let outcome = tlc.run(&job).expect("a verdict");
    assert_eq!(outcome.verdict, Verdict::Invariant { name: "NotZero".into() });
    assert_eq!(outcome.trace, [TraceStep { action: "Initial predicate".into(), state: state(0) }]);
}

#[test]
fn a_violated_property_of_steps_is_named() {
    let Some(tlc) = tlc() else { return };
    let (_folder, job) = counter("SPECIFICATION Spec\nPROPERTY Grows", 2);
    let outcome = tlc.run(&job).expect("a verdict");
    assert_eq!(outcome.verdict, Verdict::Property { name: Some("Grows".into()) });
    assert_eq!(outcome.trace.last(), Some(&TraceStep { action: "Reset".into(), state: state(0) }));
    assert_eq!(outcome.trace.len(), 4);
}

#[test]
fn a_violated_liveness_property_has_a_lasso() {
    let Some(tlc) = tlc() else { return };
    let (_folder, mut job) = counter("SPECIFICATION Spec\nPROPERTY ReachesMax", 2);
    job.liveness = true;
    let outcome = tlc.run(&job).expect("a verdict");
    assert_eq!((outcome.verdict, outcome.lasso), (Verdict::Property { name: None }, Some(Lasso::Stuttering)));
    job.cfg = "CONSTANT Max = 2\nSPECIFICATION Fair\nPROPERTY TooFar\n".into();
    let outcome = tlc.run(&job).expect("a verdict");
    assert_eq!(outcome.verdict, Verdict::Property { name: None });
    assert!(matches!(outcome.lasso, Some(Lasso::BackTo { .. })), "{:?}", outcome.lasso);
}

#[test]
fn what_has_no_verdict_is_an_error_that_says_why() {
    let Some(tlc) = tlc() else { return };
    let cases = [
        ("INVARIANT Nope", "The invariant Nope specified in the configuration file"),
        ("PROPERTY Nope", "The property Nope specified in the configuration file"),
        ("INVARIANT Crash", "The second argument of < should be an integer"),
        ("CONSTANT Max 3", "TLC found an error in the configuration file"),
    ];
    for (line, reason) in cases {
        let (_folder, job) = counter(&format!("SPECIFICATION Spec\n{line}"), 3);
        let error = tlc.run(&job).expect_err(line);
        assert!(matches!(error, TlcError::Rejected { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let texts = [
        ("VARIABLE n\nInit == n = (", "Encountered"),
        ("VARIABLE n\nInit == n = m", "Unknown operator: `m'"),
        ("EXTENDS Missing\nVARIABLE n", "Cannot find source file for module Missing"),
    ];
    for (text, reason) in texts {
        let folder = folder_with(&[("Bad.tla", &format!("---- MODULE Bad ----\n{text}\n====\n"))]);
        let (_other, job) = counter("INIT Init\nNEXT Init", 3);
        let error = tlc.run(&Job { module: folder.path().join("Bad.tla"), ..job }).expect_err(text);
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn a_run_without_an_end_is_killed_at_its_timeout() {
    let Some(tlc) = tlc() else { return };
    let (_folder, mut job) = counter("SPECIFICATION Endless", 3);
    job.timeout = Duration::from_millis(1500);
    let start = Instant::now();
    let error = tlc.run(&job).expect_err("no verdict");
    assert!(matches!(error, TlcError::TimedOut { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(30), "it was not killed but came to an end");
}

#[test]
fn two_runs_at_once_do_not_disturb_each_other_nor_the_folder() {
    let Some(tlc) = tlc() else { return };
    let (folder, mut job) = counter("SPECIFICATION Spec", 3);
    job.dump = true;
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let runs: Vec<_> = (0..2).map(|_| scope.spawn(|| tlc.run(&job).expect("a verdict"))).collect();
        runs.into_iter().map(|run| run.join().expect("no panic")).collect()
    });
    let digests: Vec<String> = outcomes.into_iter().map(|outcome| outcome.graph.expect("a graph").digest()).collect();
    assert_eq!(digests[0], digests[1]);
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 2);
}

#[test]
fn a_missing_jar_is_an_error_that_says_what_to_run() {
    let error = TlcError::NoJar("target/tla2tools.jar".into()).to_string();
    assert!(error.contains("run scripts/fetch-tlc"), "{error}");
    let empty = tempfile::tempdir().expect("a temporary folder");
    if env::var_os("TLA2TOOLS_JAR").is_none() {
        assert!(matches!(Tlc::find(empty.path()), Err(TlcError::NoJar(_))));
    }
}

#[test]
fn the_input_hash_moves_with_everything_that_the_outcome_depends_on() {
    let (folder, job) = counter("SPECIFICATION Spec", 3);
    let hash = job.input_hash().expect("a hash");
    assert_eq!(counter("SPECIFICATION Spec", 3).1.cfg, job.cfg);
    let (_same, same) = counter("SPECIFICATION Spec", 3);
    assert_eq!(same.input_hash().expect("a hash"), hash);
    let (_other, other) = counter("SPECIFICATION Spec", 4);
    assert_ne!(other.input_hash().expect("a hash"), hash);
    assert_ne!(Job { liveness: true, ..job.clone() }.input_hash().expect("a hash"), hash);
    fs::write(folder.path().join("Step.tla"), STEP.replace("a + b", "b + a")).expect("a file");
    assert_ne!(job.input_hash().expect("a hash"), hash);
}

fn ended(code: i32, text: &str) -> Result<Outcome, TlcError> {
    output::outcome("Fixture", ExitStatus::from_raw(code << 8), text)
}

fn message(number: u32, severity: u32, text: &str) -> String {
    format!("@!@!@STARTMSG {number}:{severity} @!@!@\n{text}\n@!@!@ENDMSG {number} @!@!@\n")
}

#[test]
fn a_recorded_deadlock_is_read() {
    let text = [
        message(2114, 1, "Deadlock reached."),
        message(2217, 4, "1: <Initial predicate>\nn = 7\n"),
        message(2217, 4, "2: <Up line 7, col 7 to line 7, col 9 of module Counter>\nn = <<8,\n  9>>\n"),
        message(2199, 0, "3 states generated, 2 distinct states found, 1 states left on queue."),
        message(2194, 0, "The depth of the complete state graph search is 2."),
    ];
    let outcome = ended(11, &text.concat()).expect("a verdict");
    assert_eq!(outcome.verdict, Verdict::Deadlock);
    assert_eq!((outcome.generated, outcome.distinct_states, outcome.depth), (3, 2, Some(2)));
    assert_eq!(outcome.trace[1], TraceStep { action: "Up".into(), state: "n=<<8,9>>".into() });
}

#[test]
fn an_exit_code_alone_is_no_verdict() {
    let counts = message(2199, 0, "3 states generated, 2 distinct states found, 0 states left on queue.");
    let done = message(2193, 0, "Model checking completed. No error has been found.");
    assert!(ended(0, &format!("{done}{counts}")).is_ok());
    let unfinished = counts.replace("0 states left", "1 states left");
    let silent = [
        (0, String::new()),
        (0, counts.clone()),
        (0, done.clone()),
        (0, format!("{done}{unfinished}")),
        (12, counts.clone()),
        (13, counts.clone()),
    ];
    for (code, text) in silent {
        assert!(matches!(ended(code, &text), Err(TlcError::Incoherent { .. })), "{code} {text}");
    }
    for code in [1, 10, 75, 150, 151, 255] {
        assert!(matches!(ended(code, &format!("{done}{counts}")), Err(TlcError::Rejected { .. })), "{code}");
    }
}

const DUMP: &str = r#"strict digraph DiskGraph {
nodesep=0.35;
subgraph cluster_graph {
color="white";
7 [label="/\\ n = 0\n/\\ q = << [ a |-> \"x \\\"y\\\\z\",\n     b |-> {} ] >>",style = filled]
7 -> -3 [label="Up",color="black",fontcolor="black"];
-3 [label="/\\ n = 1\n/\\ q = <<>>"];
7 -> -3 [label="Up",color="black",fontcolor="black"];
-3 -> -3 [style="dashed"];
-3 -> -3 [label="Next",color="black",fontcolor="black"];
{rank = same; 7;}
{rank = same; -3;}
}
}"#;

#[test]
fn a_recorded_dump_is_read() {
    let graph = SpecGraph::read(DUMP.as_bytes()).expect("a graph");
    assert_eq!(graph.states, [r#"/\n=0/\q=<<[a|->"x\"y\\z",b|->{}]>>"#, r"/\n=1/\q=<<>>"]);
    assert_eq!(graph.initial, [0]);
    assert_eq!(graph.actions, ["Up", "Next"]);
    assert_eq!(graph.edges, [SpecEdge { from: 0, action: 0, to: 1 }, SpecEdge { from: 1, action: 1, to: 1 }]);
}

#[test]
fn a_dump_that_is_not_as_tlc_writes_it_is_an_error() {
    let error = |text: &str| SpecGraph::read(text.as_bytes()).expect_err(text).to_string();
    assert_eq!(error(&DUMP[..DUMP.len() - 4]), "it ends before the graph does");
    assert_eq!(error(""), "it ends before the graph does");
    let torn = DUMP.replace("-3 [label=\"/\\\\ n = 1\\n/\\\\ q = <<>>\"];", "");
    assert_eq!(error(&torn), "state -3 has an edge and no line of its own");
    assert_eq!(error(&DUMP.replace("7 -> -3 [label", "7 -> -3 [name")), "line 6 is an edge without a label");
    assert_eq!(error(&DUMP.replace("color=\"white\"", "what")), "line 4 is no statement that TLC writes");
    let twice = DUMP.replace("{rank = same; 7;}", "-3 [label=\"n = 2\"];");
    assert_eq!(error(&twice), "line 11 is a second state with the same fingerprint");
}

#[test]
fn a_digest_is_of_the_graph_and_not_of_its_order() {
    let digest = graph_digest(&["a", "b"], [0], [(0, "Up", 1), (1, "Down", 0)]);
    assert_eq!(digest.len(), 32);
    assert_eq!(graph_digest(&["b", "a", "b"], [1], [(0, "Down", 1), (1, "Up", 2), (2, "Down", 1)]), digest);
    let others = [
        graph_digest(&["a", "c"], [0], [(0, "Up", 1), (1, "Down", 0)]),
        graph_digest(&["a", "b"], [1], [(0, "Up", 1), (1, "Down", 0)]),
        graph_digest(&["a", "b"], [0], [(0, "Up", 1)]),
        graph_digest(&["a", "b"], [0], [(0, "Up", 1), (1, "Up", 0)]),
        graph_digest(&["a", "b", "c"], [0], [(0, "Up", 1), (1, "Down", 0)]),
    ];
    for other in others {
        assert_ne!(other, digest);
    }
}
