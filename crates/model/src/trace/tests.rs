use std::path::Path;

use lastword_core::{Arrival, CallId, Effects, Outcome, RequestId, SessionId};
use proptest::{prelude::*, sample::Index};
use serde_json::json;

use super::*;
use crate::{Configuration, ConnectionModel, Expectation, promises::Check};

/// A run of the machine, and the trace that it would record.
#[derive(Debug)]
struct Run {
    core: Connection,
    steps: Vec<Recorded>,
}

#[derive(Debug)]
struct Recorded {
    step: Step,
    effects: Effects,
    /// The machine before the step.
    before: Connection,
}

impl Run {
    fn new(limits: Limits) -> Self {
        Self { core: Connection::new(limits), steps: Vec::new() }
    }

    fn take(&mut self, step: Step) -> &mut Self {
        let before = self.core.clone();
        let effects = self.core.apply(step.clone()).unwrap();
        self.steps.push(Recorded { step, effects, before });
        self
    }

    /// The digest after the first steps, so many of them.
    fn digest(&self, steps: usize) -> String {
        self.steps.get(steps).map_or(&self.core, |next| &next.before).digest()
    }

    fn changed_nothing(&self, step: usize) -> bool {
        self.digest(step) == self.digest(step + 1)
    }

    /// The lines of a trace; the first one is that of the limits.
    fn lines(&self, connection: u64) -> Vec<String> {
        let steps = (1..).zip(&self.steps).map(|(number, recorded)| {
            let (step, effects, digest) = (&recorded.step, &recorded.effects, self.digest(number));
            json!({"connection": connection, "step": step, "effects": effects, "digest": digest}).to_string()
        });
        std::iter::once(opening(connection, self.core.limits())).chain(steps).collect()
    }
}

fn opening(connection: u64, limits: &Limits) -> String {
    let limits = json!({
        "requests_in_flight_max": limits.requests_in_flight_max,
        "notifications_queued_max": limits.notifications_queued_max,
        "notifications_stuck_max": limits.notifications_stuck_max,
        "overlap": limits.overlap,
    });
    json!({"connection": connection, "limits": limits}).to_string()
}

fn check_lines(lines: &[String]) -> Result<Summary, TraceError> {
    check(lines.join("\n").as_bytes())
}

fn id(raw: &str) -> RequestId {
    RequestId::parse(raw).unwrap()
}

fn prompt(raw: &str, session: &str) -> Step {
    Step::PromptArrived { id: id(raw), session: SessionId::from(session) }
}

fn cancel(raw: Option<&str>, session: &str) -> Step {
    Step::CancelArrived { id: raw.map(id), session: SessionId::from(session) }
}

/// Two prompts of a session: the first one runs when the second one arrives.
fn overlap() -> Run {
    let mut run = Run::new(Limits::default());
    run.take(prompt("1", "a")).take(Step::Started(Arrival(1))).take(prompt("2", "a"));
    run.take(Step::Returned(Arrival(1), Outcome::Failed)).take(Step::Started(Arrival(2)));
    run.take(Step::Returned(Arrival(2), Outcome::Succeeded)).take(Step::InputEnded);
    run
}

/// The first wrong line of a trace whose line `at` was edited.
fn edited(at: usize, from: &str, to: &str) -> TraceError {
    let mut lines = overlap().lines(1);
    let line = lines[at - 1].replace(from, to);
    assert_ne!(lines[at - 1], line);
    lines[at - 1] = line;
    check_lines(&lines).unwrap_err()
}

#[test]
fn a_right_trace_is_counted() {
    assert_eq!(check_lines(&overlap().lines(1)).unwrap(), Summary { connections: 1, services: 0, steps: 7 });
}

#[test]
fn the_lines_of_two_connections_may_be_mixed() {
    let (one, other) = (overlap().lines(1), overlap().lines(7));
    let mixed: Vec<String> = other.into_iter().zip(one).flat_map(|(other, one)| [other, one]).collect();
    assert_eq!(check_lines(&mixed).unwrap(), Summary { connections: 2, services: 0, steps: 14 });
}

#[test]
fn a_trace_that_cannot_be_read_is_an_error_with_its_line() {
    struct Torn(bool);
    impl std::io::Read for Torn {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(std::io::Error::other("torn"));
            }
            let line = opening(1, &Limits::default()) + "\n";
            buffer[..line.len()].copy_from_slice(line.as_bytes());
            Ok(line.len())
        }
    }
    let error = check(std::io::BufReader::new(Torn(false))).unwrap_err();
    assert_eq!(error.to_string(), "line 2: it could not be read: torn");
}

#[test]
fn what_is_no_line_is_an_error() {
    for line in ["", "{", "[]", "\u{0}", "{\"connection\":1,\"step\":{\"Slept\":1}}", "{\"connection\":1,\"limit\":{}}"]
    {
        let error = check_lines(&[opening(1, &Limits::default()), line.to_owned(), String::new()]).unwrap_err();
        assert!(matches!(error, TraceError { line: 2, problem: Problem::Parse(_) }), "{line:?}: {error}");
    }
    let error = check(&b"\xff\n"[..]).unwrap_err();
    assert!(matches!(error, TraceError { line: 1, problem: Problem::Parse(_) }), "{error}");
}

#[test]
fn a_line_says_one_thing_and_all_of_it() {
    for missing in ["step", "effects", "digest"] {
        let error = edited(3, &format!("\"{missing}\":"), &format!("\"{missing}\":null,\"connection\":"));
        // A name that stands twice is no line.
        assert!(matches!(error, TraceError { line: 3, problem: Problem::Parse(_) }), "{error}");
        let mut lines = overlap().lines(1);
        let mut line: serde_json::Value = serde_json::from_str(&lines[2]).unwrap();
        line.as_object_mut().unwrap().remove(missing);
        lines[2] = line.to_string();
        let error = check_lines(&lines).unwrap_err();
        assert!(matches!(error, TraceError { line: 3, problem: Problem::Mixed }), "{missing}: {error}");
    }
    let error = edited(1, "}}", "},\"step\":\"InputEnded\"}");
    assert!(matches!(error, TraceError { line: 1, problem: Problem::Mixed }), "{error}");
}

#[test]
fn a_connection_opens_before_its_first_step_and_only_once() {
    let lines = overlap().lines(1);
    let error = check_lines(&lines[1..]).unwrap_err();
    assert!(matches!(error, TraceError { line: 1, problem: Problem::UnknownConnection(1) }), "{error}");
    let error = check_lines(&[&lines[..], &lines[..1]].concat()).unwrap_err();
    assert!(matches!(error, TraceError { line: 9, problem: Problem::OpenedTwice(1) }), "{error}");
}

#[test]
fn a_step_that_nothing_owes_is_an_error() {
    let error = edited(3, "{\"Started\":1}", "{\"Started\":2}");
    assert!(matches!(error, TraceError { line: 3, problem: Problem::NotAllowed(_) }), "{error}");
}

#[test]
fn other_effects_are_an_error() {
    let error = edited(4, "\"NewerPrompt\"", "\"Cancel\"");
    assert!(matches!(error, TraceError { line: 4, problem: Problem::OtherEffects { .. } }), "{error}");
    // The ids are equal, and still not written as they came.
    let error = edited(5, "\"id\":\"1\"", "\"id\":\"1.0\"");
    assert!(matches!(error, TraceError { line: 5, problem: Problem::OtherEffects { .. } }), "{error}");
}

#[test]
fn another_state_is_an_error() {
    let error = edited(2, "\"session\":\"a\"", "\"session\":\"b\"");
    assert!(matches!(error, TraceError { line: 2, problem: Problem::OtherState { .. } }), "{error}");
}

#[test]
fn a_broken_promise_is_an_error_that_names_it() {
    const NEVER: Promise =
        Promise { name: "NothingEverEnds", check: Check::Always(|view| view.world.fates[0].ended_by == 0) };
    let mut witness = Witness { promises: vec![&NEVER], ..Witness::new(Limits::default()) };
    let run = overlap();
    for (number, recorded) in (1..).zip(&run.steps) {
        match witness.take(recorded.step.clone(), &recorded.effects, &run.digest(number)) {
            Ok(()) => assert!(number < 3),
            Err(problem) => {
                assert!(matches!(problem, Problem::Broken("NothingEverEnds")), "{problem}");
                return assert_eq!(number, 3);
            }
        }
    }
    panic!("nothing was broken");
}

#[test]
fn a_trace_without_a_step_is_an_error() {
    for (lines, line) in [(vec![], 0), (vec![opening(1, &Limits::default())], 1)] {
        let error = check_lines(&lines).unwrap_err();
        assert_eq!(error.line, line);
        assert!(matches!(error.problem, Problem::Empty), "{error}");
    }
}

#[test]
fn a_cancel_whose_id_is_taken_ends_nothing_and_breaks_nothing() {
    let mut run = Run::new(Limits::default());
    run.take(prompt("1", "a")).take(Step::Started(Arrival(1))).take(cancel(Some("1"), "a")).take(prompt("1", "a"));
    run.take(Step::Returned(Arrival(1), Outcome::Succeeded)).take(Step::InputEnded);
    assert_eq!(check_lines(&run.lines(1)).unwrap().steps, 6);
}

#[test]
fn a_witness_of_a_long_trace_remembers_only_what_is_in_flight() {
    const STEPS: usize = 100_000;
    let mut core = Connection::new(Limits::default());
    let mut witness = Witness::new(Limits::default());
    let (mut steps, mut remembered_max) = (0, 0);
    let mut take = |step: Step| {
        let effects = core.apply(step.clone()).unwrap();
        witness.take(step, &effects, &core.digest()).unwrap();
        steps += 1;
        remembered_max = remembered_max.max(witness.messages.len());
        assert!(witness.messages.len() <= 2 * (core.requests_in_flight() + core.notifications_queued()));
        let accepted = effects.iter().find_map(|effect| match effect {
            Effect::Accept(arrival) => Some(*arrival),
            _ => None,
        });
        (steps, accepted)
    };
    // One turn lives all the time; another one was ended and never returns, while each newer one of its session ends the
    // one before.
    for (raw, session) in [("\"lives\"", "a"), ("\"deaf\"", "b")] {
        let (_, arrival) = take(prompt(raw, session));
        take(Step::Started(arrival.unwrap()));
    }
    take(cancel(None, "b"));
    take(Step::Started(Arrival(3)));
    take(Step::Returned(Arrival(3), Outcome::Succeeded));
    for number in 0.. {
        let raw = number.to_string();
        take(prompt(&format!("\"held {raw}\""), "b"));
        let (_, turn) = take(prompt(&raw, "c"));
        take(Step::Started(turn.unwrap()));
        let (_, notification) = take(cancel(None, "c"));
        take(Step::RequestCancelArrived { id: id("\"nothing\"") });
        take(Step::Started(notification.unwrap()));
        take(Step::Returned(notification.unwrap(), Outcome::Succeeded));
        let (steps, _) = take(Step::Returned(turn.unwrap(), Outcome::Failed));
        if steps >= STEPS {
            break;
        }
    }
    // The two turns, what ended the deaf one, the held one, the turn of the third session and the cancel that ended it.
    assert_eq!(remembered_max, 6);
}

// Any run.

/// Chooses a step of a run: the first number among what tasks may do, or else the second among all arrivals.
type Choice = (Option<Index>, Index);

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    prop::collection::vec((prop::option::weighted(0.6, any::<Index>()), any::<Index>()), 3..60)
}

/// Few ids and few sessions, so that they meet.
fn arrivals() -> Vec<Step> {
    let ids = ["1", "1.0", "2", "\"x\""];
    let mut steps = vec![Step::NotificationArrived, Step::Called { by: None }];
    for session in ["a", "b"] {
        steps.push(cancel(None, session));
        for raw in ids {
            // Prompts are what it is about.
            steps.extend([prompt(raw, session), prompt(raw, session), cancel(Some(raw), session)]);
        }
    }
    for raw in ids {
        steps.extend([Step::RequestArrived { id: id(raw) }, Step::RequestCancelArrived { id: id(raw) }]);
    }
    steps
}

/// A run of the machine with everything that a peer and handlers may do, ids used twice and calls given up included.
fn any_run(bound: usize, choices: &[Choice], ends: bool) -> Run {
    let mut limits = Limits::default();
    limits.requests_in_flight_max = bound;
    limits.notifications_queued_max = bound;
    limits.notifications_stuck_max = 2 * bound;
    let mut run = Run::new(limits);
    let arrivals = arrivals();
    for (task, arrival) in choices {
        let mut may_come = run.core.may_come();
        let unanswered = run.core.calls().map(|(call, _)| call).filter(|call| run.core.awaits_response(*call));
        may_come.extend(unanswered.map(|call| Step::ResponseArrived { call }));
        let step = match task {
            Some(task) if !may_come.is_empty() => task.get(&may_come),
            _ => arrival.get(&arrivals),
        };
        // A notification for which there is no room stays with the peer, as does everything once the connection was closed.
        if run.core.clone().apply(step.clone()).is_ok() {
            run.take(step.clone());
        }
    }
    if ends {
        run.take(Step::InputEnded);
        let is_owed = |step: &Step| matches!(step, Step::Started(_) | Step::Returned(..) | Step::Resumed { .. });
        while let Some(step) = run.core.may_come().into_iter().find(is_owed) {
            run.take(step);
        }
        assert!(run.core.is_idle());
    }
    run
}

fn any_runs() -> impl Strategy<Value = Run> {
    (1usize..6, choices(), any::<bool>()).prop_map(|(bound, choices, ends)| any_run(bound, &choices, ends))
}

/// A random walk through a model, to its end.
fn walk(model: &ConnectionModel, choices: &[Index], mut visit: impl FnMut(&World, &Move, &[Effect]) -> bool) {
    let mut world = model.initial();
    let mut choices = choices.iter().cycle();
    loop {
        let moves = model.moves(&world);
        let Some(action) = (!moves.is_empty()).then(|| choices.next()).flatten().map(|choice| choice.get(&moves))
        else {
            return;
        };
        let effects = world.take(&model.messages, action).unwrap();
        if !visit(&world, action, &effects) {
            return;
        }
    }
}

fn holding() -> Vec<Configuration> {
    let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs");
    let mut all: Vec<Configuration> =
        ["turns", "barrier"].iter().flat_map(|domain| Configuration::read_all(&specs, domain).unwrap()).collect();
    all.retain(|configuration| configuration.expectation == Expectation::Holds);
    assert!(!all.is_empty());
    all
}

fn other_steps(run: &Run) -> Vec<Step> {
    let mut steps = arrivals();
    steps.push(Step::InputEnded);
    for number in 1..=run.steps.len() as u64 {
        let arrival = Arrival(number);
        steps.extend([Step::Started(arrival), Step::GraceOver(arrival), Step::Called { by: Some(arrival) }]);
        steps.extend([Outcome::Succeeded, Outcome::Failed].map(|outcome| Step::Returned(arrival, outcome)));
        let call = CallId(number);
        steps.extend([Step::ResponseArrived { call }, Step::CallDropped { call }]);
        steps.extend([Step::Resumed { call }, Step::ResumeOver { call }]);
    }
    steps
}

fn other_effects(effects: &Effects, at: Index, how: u8) -> Vec<Effect> {
    let mut effects = effects.to_vec();
    if effects.is_empty() {
        return vec![Effect::Run(Arrival(1))];
    }
    let at = at.index(effects.len());
    match how % 3 {
        0 => drop(effects.remove(at)),
        1 => effects.insert(at, effects[at].clone()),
        _ => {
            effects[at] = match effects[at].clone() {
                Effect::Accept(arrival) => Effect::Start(arrival),
                Effect::Start(arrival) => Effect::Start(Arrival(arrival.0 + 1)),
                Effect::Run(arrival) => Effect::Fire(arrival, lastword_core::Cause::Cancel),
                Effect::Fire(arrival, _) => Effect::Run(arrival),
                Effect::Respond { id, arrival: Some(_), answer } => Effect::Respond { id, arrival: None, answer },
                Effect::Respond { arrival: None, answer, .. } => {
                    Effect::Respond { id: id("77"), arrival: None, answer }
                }
                Effect::Call(call) | Effect::CancelCall(call) => Effect::Resume(call),
                Effect::Resume(call) | Effect::Disconnect(call) | Effect::AwaitCaller(call) => Effect::CancelCall(call),
                Effect::Close(_) => Effect::Run(Arrival(1)),
                other => panic!("no other effect for {other:?}"),
            }
        }
    }
    effects
}

/// The line on which a trace is found to be wrong.
fn wrong_line(lines: &[String]) -> Option<usize> {
    check_lines(lines).err().map(|error| error.line)
}

/// The lines of a trace count from 1, and the first one is that of the limits.
const FIRST_STEP_LINE: usize = 2;

proptest! {
    #[test]
    fn every_schedule_of_the_model_is_accepted(choices in prop::collection::vec(any::<Index>(), 1..40)) {
        for configuration in holding() {
            let model = ConnectionModel::new(&configuration, Limits::default()).unwrap();
            let mut run = Run::new(model.limits());
            walk(&model, &choices, |_, action, _| { run.take(action.step.clone()); true });
            let steps = run.steps.len();
            prop_assert_eq!(check_lines(&run.lines(1)).unwrap(), Summary { connections: 1, services: 0, steps }, "{}", configuration.id());
        }
    }

    #[test]
    fn every_run_of_the_machine_is_accepted(run in any_runs()) {
        let steps = run.steps.len();
        prop_assert_eq!(check_lines(&run.lines(1)).unwrap(), Summary { connections: 1, services: 0, steps });
    }

    /// No edit at all is a step with the same effects that leads to the same state: a `$/cancel_request` that finds no
    /// request under another name, say, or another outcome of a turn that was ended.
    #[test]
    fn an_edited_step_is_rejected_unless_it_does_the_same(run in any_runs(), at: Index, other: Index) {
        let at = at.index(run.steps.len());
        let others = other_steps(&run);
        let other = other.get(&others);
        let mut state = run.steps[at].before.clone();
        let same = state.apply(other.clone()).is_ok_and(|effects| {
            json!(effects) == json!(run.steps[at].effects) && state.digest() == run.digest(at + 1)
        });
        let mut lines = run.lines(1);
        let mut line: serde_json::Value = serde_json::from_str(&lines[at + 1]).unwrap();
        line["step"] = json!(other);
        lines[at + 1] = line.to_string();
        prop_assert_eq!(wrong_line(&lines), (!same).then_some(at + FIRST_STEP_LINE));
    }

    #[test]
    fn an_edited_effect_is_rejected(run in any_runs(), at: Index, effect: Index, how: u8) {
        let at = at.index(run.steps.len());
        let mut lines = run.lines(1);
        let mut line: serde_json::Value = serde_json::from_str(&lines[at + 1]).unwrap();
        line["effects"] = json!(other_effects(&run.steps[at].effects, effect, how));
        lines[at + 1] = line.to_string();
        prop_assert_eq!(wrong_line(&lines), Some(at + FIRST_STEP_LINE));
    }

    #[test]
    fn an_edited_digest_is_rejected(run in any_runs(), at: Index, digit in 0usize..16, by in 1u32..16) {
        let at = at.index(run.steps.len());
        let mut lines = run.lines(1);
        let mut line: serde_json::Value = serde_json::from_str(&lines[at + 1]).unwrap();
        let mut digest: Vec<char> = line["digest"].as_str().unwrap().chars().collect();
        digest[digit] = char::from_digit((digest[digit].to_digit(16).unwrap() + by) % 16, 16).unwrap();
        line["digest"] = json!(String::from_iter(digest));
        lines[at + 1] = line.to_string();
        prop_assert_eq!(wrong_line(&lines), Some(at + FIRST_STEP_LINE));
    }

    /// The last line may go, since a trace may end anywhere, the line of a step that changed nothing, and one of two steps
    /// of which the second does alone what both did: a cancel that is refused as a request, say, and another cancel.
    #[test]
    fn a_dropped_line_is_rejected_unless_its_step_changed_nothing(run in any_runs(), at: Index) {
        let at = at.index(run.steps.len());
        let mut lines = run.lines(1);
        lines.remove(at + 1);
        let is_covered_by = |next: &Recorded| {
            let mut core = run.steps[at].before.clone();
            core.apply(next.step.clone()).is_ok_and(|effects| effects == next.effects) && core.digest() == run.digest(at + 2)
        };
        let free = run.changed_nothing(at) || run.steps.get(at + 1).is_none_or(is_covered_by);
        // The line after it has taken its place.
        prop_assert_eq!(wrong_line(&lines), (!free).then_some(at + FIRST_STEP_LINE));
    }

    /// Two lines may change places where nothing changed from the first to the last of them. Where nothing changed before
    /// the second one, it fits in the place of the first, and what follows does not.
    #[test]
    fn a_swapped_pair_of_lines_is_rejected_unless_nothing_changed_between(run in any_runs(), one: Index, other: Index) {
        let (one, other) = (one.index(run.steps.len()), other.index(run.steps.len()));
        let (first, second) = (one.min(other), one.max(other));
        let mut lines = run.lines(1);
        lines.swap(first + 1, second + 1);
        let free = first == second || run.digest(first) == run.digest(second + 1);
        let fits = run.digest(first) == run.digest(second);
        prop_assert_eq!(wrong_line(&lines), (!free).then_some(first + usize::from(fits) + FIRST_STEP_LINE));
    }
}

/// In the check build a guard can be forced, so that promises break: a witness, which forgets, must see each breach at the
/// step at which a world that remembers everything sees it. Where a step breaks several promises, it may name another one.
#[cfg(feature = "check")]
mod mutants {
    use lastword_core::{Forced, GUARDS};
    use proptest::strategy::ValueTree as _;

    use super::*;

    /// At the first step that breaks a promise: every promise that it breaks.
    fn broken_in_all_memory(model: &ConnectionModel, choices: &[Index]) -> (usize, Vec<&'static str>) {
        let (mut steps, mut broken) = (0, Vec::new());
        walk(model, choices, |world, _, _| {
            steps += 1;
            let found = promises::all().filter(|promise| !promise.holds(&model.messages, world));
            broken.extend(found.map(|promise| promise.name));
            broken.is_empty()
        });
        (steps, broken)
    }

    fn broken_for_a_witness(model: &ConnectionModel, choices: &[Index]) -> (usize, Option<&'static str>) {
        let (mut steps, mut broken) = (0, None);
        let mut witness = Witness::new(model.limits());
        walk(model, choices, |world, action, effects| {
            steps += 1;
            match witness.take(action.step.clone(), effects, &world.core.digest()) {
                Ok(()) => {}
                Err(Problem::Broken(name)) => broken = Some(name),
                Err(other) => panic!("{other}"),
            }
            broken.is_none()
        });
        (steps, broken)
    }

    #[test]
    fn a_witness_sees_what_a_world_sees_that_forgets_nothing() {
        let mut broken = std::collections::BTreeSet::new();
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for configuration in holding() {
            for guard in GUARDS {
                for to in [false, true] {
                    let mut limits = Limits::default();
                    limits.forced = Some(Forced { guard, to });
                    let model = ConnectionModel::new(&configuration, limits).unwrap();
                    for _ in 0..25 {
                        let choices =
                            prop::collection::vec(any::<Index>(), 40).new_tree(&mut runner).unwrap().current();
                        let case = format!("{guard} {to} {}", configuration.id());
                        let (step, all) = broken_in_all_memory(&model, &choices);
                        let (seen_at, seen) = broken_for_a_witness(&model, &choices);
                        assert_eq!((seen_at, seen.is_some()), (step, !all.is_empty()), "{case}");
                        assert!(seen.is_none_or(|seen| all.contains(&seen)), "{case}: {seen:?}, not {all:?}");
                        broken.extend(seen);
                    }
                }
            }
        }
        let whole = promises::all()
            .filter(|promise| matches!(promise.check, Check::Always(_)) && !broken.contains(promise.name));
        // No single guard stands between these and a breach; patches of core break them.
        let patched = ["CancelSparesLaterPrompts", "NotificationsInOrder", "NoSilentDrop"];
        assert!(whole.map(|promise| promise.name).eq(patched), "{broken:?}");
    }
}
