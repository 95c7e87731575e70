use std::path::Path;

use lastword_core::delegation::{
    Asked, Delegation, Ending, Progress, QuestionId, ReplyId, TicketId, TurnEnd, WorkerId,
};
use proptest::{prelude::*, sample::Index};

use super::*;
use crate::{
    Configuration, Expectation, Model as _,
    trace::{Summary, TraceError, check},
};

const LEAD: LeadId = LeadId(1);

/// A machine, and the trace that its service would record.
struct Run {
    core: Delegation,
    lines: Vec<String>,
}

impl Run {
    /// A service that begins with these rows, and has restarted.
    fn new(limits: Limits, stored: Tables) -> Self {
        let mut run = Self { lines: vec![opening(&limits, &stored)], core: Delegation::restore(limits, stored) };
        run.take(Step::Restarted);
        run
    }

    /// Takes a step, and lets the store do at once what it was asked for.
    fn take(&mut self, step: Step) {
        self.take_alone(step);
        while self.core.unstored().next().is_some() {
            self.take_alone(Step::Persisted { entries: 1 });
        }
    }

    fn take_alone(&mut self, step: Step) {
        let said = json(&step);
        let effects = json(&self.core.apply(step).expect("it may come"));
        let digest = self.core.digest();
        self.lines.push(format!(r#"{{"service":1,"step":{said},"effects":{effects},"digest":"{digest}"}}"#));
    }

    fn sends(&mut self, worker: u64) {
        let worker = WorkerId(worker);
        self.take(Step::Sent { lead: LEAD, worker, key: None, replace: false, watch: false });
    }

    /// One worker, which is given a task, asks, hears the answer, and replies: to its ticket, and then to none.
    fn delegation() -> Self {
        let mut run = Self::new(Limits::default(), Tables::default());
        let (worker, ticket, question) = (WorkerId(1), TicketId(1), QuestionId(1));
        run.take(Step::Spawned { lead: LEAD });
        run.sends(1);
        run.take(Step::Delivered { ticket });
        run.take(Step::Asked { worker, ticket });
        run.take(Step::Answered { lead: LEAD, question, watch: true });
        run.take(Step::AnswerTaken { question });
        run.take(Step::Replied { worker, ticket: Some(ticket) });
        run.take(Step::TurnEnded { ticket, end: TurnEnd::Ended });
        run.take(Step::Replied { worker, ticket: None });
        run
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("it has a form in JSON")
}

fn opening(limits: &Limits, stored: &Tables) -> String {
    let limits = json(limits);
    let stored = json(&stored.records().collect::<Vec<_>>());
    format!(r#"{{"service":1,"limits":{limits},"stored":{stored}}}"#)
}

fn check_lines(lines: &[String]) -> Result<Summary, TraceError> {
    check(lines.join("\n").as_bytes())
}

fn wrong(lines: &[String]) -> (usize, Problem) {
    let TraceError { line, problem } = check_lines(lines).expect_err("it is not right");
    (line, problem)
}

#[test]
fn a_right_trace_of_a_service_is_counted() {
    let run = Run::delegation();
    let steps = run.lines.len() - 1;
    assert_eq!(check_lines(&run.lines).unwrap(), Summary { connections: 0, services: 1, steps });
    let next = Run::new(Limits::default(), run.core.stored().clone());
    assert_eq!(check_lines(&next.lines).unwrap(), Summary { connections: 0, services: 1, steps: 1 });
}

#[test]
fn a_line_that_was_edited_by_hand_is_wrong_and_says_why() {
    let lines = Run::delegation().lines;
    let edited = |at: usize, from: &str, to: &str| {
        let mut lines = lines.clone();
        assert!(lines[at - 1].contains(from), "{}", lines[at - 1]);
        lines[at - 1] = lines[at - 1].replacen(from, to, 1);
        let (line, problem) = wrong(&lines);
        assert_eq!(line, at, "{problem}");
        problem
    };
    assert!(matches!(edited(3, "\"Spawned\":{\"lead\":1}", "\"WorkerDied\":{\"worker\":1}"), Problem::NotOwed(_)));
    assert!(matches!(edited(5, "\"worker\":1", "\"worker\":2"), Problem::Refused(..)));
    assert!(matches!(edited(4, "\"Launch\":1", "\"Launch\":2"), Problem::OtherEffects { .. }));
    assert!(matches!(edited(3, "\"digest\":\"", "\"digest\":\"0"), Problem::OtherState { .. }));
}

#[test]
fn rows_that_were_edited_by_hand_break_a_promise_at_the_first_line_by_its_name() {
    let stored = Run::delegation().core.stored().clone();
    assert_eq!(stored.tickets[&TicketId(1)].reply(), Some(ReplyId(1)));
    let broken = |edit: fn(&mut Tables)| {
        let mut stored = stored.clone();
        edit(&mut stored);
        match wrong(&Run::new(Limits::default(), stored).lines) {
            (1, Problem::Broken(promise)) => promise,
            (line, problem) => panic!("line {line}: {problem}"),
        }
    };
    let twice = broken(|tables| {
        tables.inboxes.get_mut(&LEAD).expect("it has a stray").replies.insert(ReplyId(1), WorkerId(1));
    });
    assert_eq!(twice, "ReplyExactlyOnce");
    let unseen = broken(|tables| {
        let row = tables.tickets.get_mut(&TicketId(1)).expect("it is stored");
        row.progress = Progress::Ended(Ending::LastMessage);
        row.questions.insert(QuestionId(1), Asked::Open);
    });
    assert_eq!(unseen, "QuestionReachesLead");
}

#[test]
fn a_long_trace_of_many_workers_is_right_on_every_line() {
    const WORKERS: u64 = 20;
    const TICKETS: u64 = 200;
    let mut run = Run::new(Limits::default(), Tables::default());
    for _ in 0..WORKERS {
        run.take(Step::Spawned { lead: LEAD });
    }
    for number in 0..TICKETS {
        run.sends(number % WORKERS + 1);
    }
    for number in 0..TICKETS {
        let (worker, ticket) = (WorkerId(number % WORKERS + 1), TicketId(number + 1));
        run.take(Step::Delivered { ticket });
        if number % 10 == 0 {
            let question = QuestionId(number / 10 + 1);
            run.take(Step::Asked { worker, ticket });
            run.take(Step::Answered { lead: LEAD, question, watch: true });
            run.take(Step::AnswerTaken { question });
        }
        run.take(Step::Replied { worker, ticket: Some(ticket) });
        run.take(Step::TurnEnded { ticket, end: TurnEnd::Ended });
        run.take(Step::Seen { lead: LEAD, ticket });
    }
    let steps = run.lines.len() - 1;
    assert_eq!(steps, 1_941);
    assert_eq!(check_lines(&run.lines).unwrap(), Summary { connections: 0, services: 1, steps });
}

// Paths of the model, but for crashes: with another daemon, another trace begins.

fn walk(model: &DelegationModel, choices: &[(Index, Index)], mut visit: impl FnMut(&World, &Step, &Effects) -> bool) {
    let mut world = model.first();
    for (word, which) in choices {
        // By name first: else nearly all of a path would be what the store does.
        let mut moves: BTreeMap<&str, Vec<Move<Step>>> = BTreeMap::new();
        for action in model.moves(&world).into_iter().filter(|action| action.step != Step::Restarted) {
            moves.entry(action.step.name()).or_default().push(action);
        }
        let names: Vec<&str> = moves.keys().copied().collect();
        if names.is_empty() {
            return;
        }
        let action = which.get(&moves[word.get(&names)]);
        let effects = world.take(action).expect("it is a move");
        if !visit(&world, &action.step, &effects) {
            return;
        }
    }
}

fn holding() -> Vec<Configuration> {
    let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs");
    let mut all = Configuration::read_all(&specs, "delegation").expect("configurations");
    all.retain(|configuration| configuration.expectation == Expectation::Holds);
    all
}

/// A witness of a service in which the workers of a model live.
fn witness(model: &DelegationModel) -> Witness {
    let mut world = model.first();
    world.fates.clear();
    Witness { world, keys: BTreeMap::new() }
}

proptest! {
    #[test]
    fn every_path_of_the_model_is_accepted(which: Index, choices in prop::collection::vec(any::<(Index, Index)>(), 1..40)) {
        let model = DelegationModel::new(which.get(&holding()), Limits::default()).unwrap();
        let mut witness = witness(&model);
        walk(&model, &choices, |world, step, effects| {
            witness.take(step.clone(), effects, &world.core.digest()).unwrap();
            true
        });
    }
}

/// A witness and a model's world see a promise break at the same step, and a mutant breaks the one that its row names.
#[cfg(feature = "check")]
#[test]
fn a_witness_sees_what_the_model_sees() {
    use lastword_core::{Forced, GUARDS};
    use proptest::strategy::ValueTree as _;

    /// Far more than any promise takes to break on some path.
    const PATHS_MAX: usize = 20_000;

    #[derive(Deserialize)]
    struct Rows {
        mutant: Vec<Row>,
    }

    #[derive(Deserialize)]
    struct Row {
        guard: String,
        forced: bool,
        kills: String,
        configuration: String,
    }

    let Rows { mutant: rows } =
        toml::from_str(include_str!("../../../../../specs/delegation/mutants.toml")).expect("rows of mutants");
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let configurations = holding();
    for Row { guard, forced, kills, configuration } in rows {
        let is_seen = PROMISES.iter().any(|row| row.name == kills && matches!(row.check, Check::Always(_)));
        let guard = GUARDS.into_iter().find(|known| *known == guard).expect("a guard of the core");
        let mut limits = Limits::default();
        limits.forced = Some(Forced { guard, to: forced });
        let configuration = configurations.iter().find(|known| known.name == configuration).expect("it is there");
        let model = DelegationModel::new(configuration, limits).unwrap();
        let mut found = None;
        for _ in 0..if is_seen { PATHS_MAX } else { 20 } {
            let choices = prop::collection::vec(any::<(Index, Index)>(), 40).new_tree(&mut runner).unwrap().current();
            let mut witness = witness(&model);
            walk(&model, &choices, |world, step, effects| {
                let is_broken = |promise: &&PromiseOf<DelegationModel>| match promise.check {
                    Check::Always(always) => !model.holds(always, world),
                    Check::Eventually { .. } => false,
                };
                let broken: Vec<&str> = PROMISES.iter().filter(is_broken).map(|promise| promise.name).collect();
                match witness.take(step.clone(), effects, &world.core.digest()) {
                    Ok(()) => assert!(broken.is_empty(), "{guard}: after {step:?} {broken:?} are broken"),
                    Err(Problem::Broken(name)) => assert_eq!(broken.first(), Some(&name), "{guard}: after {step:?}"),
                    Err(other) => panic!("{guard}: after {step:?}: {other}"),
                }
                found = found.or(broken.iter().find(|name| **name == kills).copied());
                broken.is_empty()
            });
            if found.is_some() {
                break;
            }
        }
        assert_eq!(found, is_seen.then_some(kills.as_str()), "{guard}");
    }
}
