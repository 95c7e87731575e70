//! One configuration, checked by every layer: the exact graph of the code, liveness on it, the specification by TLC, and the
//! two graphs against each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

use lastword_model::{
    Configuration, ConnectionModel, Counterexample, CounterexampleStep, DelegationModel, Expectation, Graph, Move,
    Value, liveness, promises,
};
use stateright::Checker as _;

use crate::{
    facts::Facts,
    fingerprint::{Fingerprint, GraphFact, TlcFact},
    report::{Breach, Expected, Found, Layer, Row, progress::Progress},
    specs::{Specs, module_name},
    subject::{Subject, is_of_delegation},
    tlc::{self, Job, Outcome, SpecGraph, Tlc, TlcError, Verdict, graph_digest, normalise_state},
};

/// How many edges that only one side has are printed.
const EDGES_SHOWN_MAX: usize = 5;

/// Where the paths of broken promises are saved, under the root of the repository.
const SAVED_FOLDER: &str = "target/counterexamples";

/// What every configuration is checked with.
pub struct Setting<'a> {
    /// Everything under specs.
    pub specs: &'a Specs,
    /// The facts that were measured, by domain; of a domain where that failed, none.
    pub facts: &'a Facts,
    /// TLC, or why there is none.
    pub tlc: &'a Result<Tlc, TlcError>,
    /// What fingerprint.txt records.
    pub recorded: &'a Fingerprint,
    /// Run TLC also where its result is recorded.
    pub no_cache: bool,
    /// TLC must be there.
    pub require_tlc: bool,
    /// Shows each search.
    pub progress: &'a Progress,
}

/// What was found out about one configuration.
#[derive(Default)]
pub struct Checked {
    /// The rows of the table.
    pub rows: Vec<Row>,
    /// The promises that broke.
    pub breaches: Vec<Breach>,
    /// The graph of the code, to be recorded.
    pub graph: Option<GraphFact>,
    /// What TLC found, to be recorded.
    pub tlc: Option<TlcFact>,
}

/// The digest of a graph of the code, projected to the variables of its specification.
#[must_use]
pub fn code_digest<M: Subject>(model: &M, graph: &Graph<M>) -> String {
    let states = projected(model, graph);
    graph_digest(&states, [0], graph.edges.iter().map(|edge| (edge.from, edge.name, edge.to)))
}

fn projected<M: Subject>(model: &M, graph: &Graph<M>) -> Vec<String> {
    graph.states.iter().map(|world| normalise_state(&model.project(world))).collect()
}

/// Checks one configuration by every layer.
#[must_use]
pub fn check(setting: &Setting<'_>, configuration: &Configuration) -> Checked {
    let mut check = Check { setting, configuration, checked: Checked::default() };
    match &configuration.expectation {
        Expectation::Holds if is_of_delegation(&configuration.domain) => check.of::<DelegationModel>(),
        Expectation::Holds => check.of::<ConnectionModel>(),
        Expectation::Fails { promise, steps } => check.other_design(promise, *steps),
    }
    check.checked
}

struct Check<'a> {
    setting: &'a Setting<'a>,
    configuration: &'a Configuration,
    checked: Checked,
}

impl Check<'_> {
    fn row(
        &mut self,
        layer: Layer,
        promise: &str,
        expected: Expected,
        found: Found,
        size: Option<(u64, u64)>,
        time: Duration,
    ) {
        self.checked.rows.push(Row {
            domain: self.configuration.domain.clone(),
            configuration: self.configuration.name.clone(),
            layer,
            promise: promise.to_owned(),
            expected,
            found,
            states: size.map(|(states, _)| states),
            edges: size.map(|(_, edges)| edges),
            time,
        });
    }

    fn unverified(&mut self, layer: Layer, promise: &str, why: String) {
        self.row(layer, promise, Expected::Holds, Found::NotVerified(why), None, Duration::ZERO);
    }

    fn of<M: Subject>(&mut self) {
        match M::read(self.configuration, None) {
            Ok(model) => self.code_and_specification(&model),
            Err(error) => self.unverified(Layer::Graph, "the graph of the code", error.to_string()),
        }
    }

    fn code_and_specification<M: Subject>(&mut self, model: &M) {
        let started = Instant::now();
        let bar = self.setting.progress.start(format!("exploring {}", self.configuration.id()));
        let explored = Graph::explore(model, |states| bar.set(states as u64));
        drop(bar);
        let graph = match explored {
            Ok(graph) => graph,
            Err(error) => return self.unverified(Layer::Graph, "the graph of the code", error.to_string()),
        };
        let size = (graph.states.len() as u64, graph.edges.len() as u64);
        self.row(Layer::Graph, "explored to the end", Expected::Holds, Found::Holds, Some(size), started.elapsed());
        self.promises(model, &graph);
        self.second_explorer(model, size);
        let states = projected(model, &graph);
        let digest = graph_digest(&states, [0], graph.edges.iter().map(|edge| (edge.from, edge.name, edge.to)));
        let steps = graph.edges_per_step().into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        self.specification(&graph, &states, &digest);
        self.checked.graph = Some(GraphFact { states: size.0, edges: size.1, digest, steps });
    }

    /// stateright explores the same model by its own means. Both must come to the same numbers of states and edges or, where a
    /// promise of states breaks, both must find that; the exact graph then tells which one and how.
    fn second_explorer<M: Subject>(&mut self, model: &M, size: (u64, u64)) {
        let started = Instant::now();
        let checker = model.clone().checker().spawn_bfs().join();
        let states = checker.unique_state_count() as u64;
        // It counts each state that it generates: the initial one, and one for each edge.
        let edges = (checker.state_count() as u64).saturating_sub(1);
        let is_broken =
            self.checked.rows.iter().any(|row| row.layer == Layer::Graph && matches!(row.found, Found::Breaks { .. }));
        let found = match (checker.discoveries().is_empty(), is_broken) {
            (true, false) if !checker.is_done() => Found::NotVerified("stateright stopped before the end".to_owned()),
            (true, false) if (states, edges) == size => Found::Holds,
            (true, false) => Found::Differs(format!(
                "stateright found {states} states and {edges} edges, the exact search {} and {}",
                size.0, size.1
            )),
            (false, true) => Found::Holds,
            (true, true) => Found::Differs("stateright finds no broken promise, the exact search does".to_owned()),
            (false, false) => Found::Differs("stateright finds a broken promise, the exact search does not".to_owned()),
        };
        let size = Some((states, edges));
        self.row(Layer::Graph, "explored by stateright as well", Expected::Holds, found, size, started.elapsed());
    }

    fn promises<M: Subject>(&mut self, model: &M, graph: &Graph<M>) {
        for promise in model.promises() {
            let started = Instant::now();
            let (layer, breach) = match promise.check {
                promises::Check::Always(_) => (Layer::Graph, graph.first_breach(model, promise)),
                promises::Check::Eventually { .. } => {
                    (Layer::Liveness, liveness::first_breach(graph, model, promise).map(|stuck| stuck.state))
                }
            };
            let found = match breach {
                None => Found::Holds,
                Some(state) => {
                    let moves = graph.path_to(model, state);
                    let steps = moves.len();
                    self.breach(model, promise.name, &moves);
                    Found::Breaks { steps }
                }
            };
            self.row(layer, promise.name, Expected::Holds, found, None, started.elapsed());
        }
    }

    /// Tells a broken promise: its shortest counterexample as a diagram, saved to a file that can be replayed.
    fn breach<M: Subject>(&mut self, model: &M, promise: &str, moves: &[Move<M::Step>]) {
        let file = format!("{SAVED_FOLDER}/{}-{promise}-{}.json", self.configuration.domain, self.configuration.name);
        let counterexample = record(model, self.configuration, promise, moves);
        let saved = save(&self.setting.specs.root, &file, &counterexample);
        self.checked.breaches.push(Breach {
            promise: promise.to_owned(),
            statement: self.setting.specs.statement(promise).to_owned(),
            configuration: self.configuration.id(),
            diagram: model.draw(moves, moves.len().checked_sub(1)),
            command: saved.is_ok().then(|| format!("./replay.sh {file}")),
            file: saved.is_ok().then_some(file),
        });
    }

    /// TLC reads the specification with the measured facts; then the two graphs must be equal.
    fn specification<M: Subject>(&mut self, graph: &Graph<M>, states: &[String], digest: &str) {
        let Some(facts) = self.facts() else {
            return self.unverified(Layer::Spec, "every promise", "the facts could not be measured".to_owned());
        };
        let job = self.job(with_facts(self.configuration, facts), true);
        let started = Instant::now();
        let (fact, outcome) = match self.ask(&job) {
            Ok(answer) => answer,
            Err(why) => return self.unverified(Layer::Spec, "every promise", why),
        };
        let found = match (&outcome, fact.verdict.as_str()) {
            (None, HOLDS) => Found::Recorded,
            (Some(_), HOLDS) => Found::Holds,
            (_, broken) => match broken.rsplit(':').next().and_then(|steps| steps.parse().ok()) {
                Some(steps) => Found::Breaks { steps },
                None => Found::NotVerified(format!("TLC said {broken}")),
            },
        };
        let promise = match fact.verdict.split(':').nth(1) {
            Some(broken) => broken.to_owned(),
            None => "every promise".to_owned(),
        };
        let size = Some((fact.states, fact.edges));
        let holds = fact.verdict == HOLDS;
        self.row(Layer::Spec, &promise, Expected::Holds, found, size, started.elapsed());
        let started = Instant::now();
        if holds {
            let found = match (&fact.graph, outcome.as_ref().and_then(|outcome| outcome.graph.as_ref())) {
                (Some(recorded), None) if recorded == digest => Found::Recorded,
                (Some(_), Some(_)) if fact.graph.as_deref() == Some(digest) => Found::Holds,
                (_, Some(spec)) => Found::Differs(difference(graph, states, spec)),
                (Some(_), None) => Found::Differs(
                    "the graph of the code is not the recorded graph of the specification; run it with Java to see the edges"
                        .to_owned(),
                ),
                (None, None) => Found::NotVerified("TLC dumped no graph".to_owned()),
            };
            self.row(
                Layer::Difference,
                "code and specification are one graph",
                Expected::Holds,
                found,
                size,
                started.elapsed(),
            );
        }
        self.checked.tlc = Some(fact);
    }

    /// Another point of the design space: it must break its promise.
    fn other_design(&mut self, promise: &str, steps: usize) {
        let expected = Expected::Breaks { steps };
        if let Some(facts) = self.facts()
            && facts.iter().all(|(name, value)| self.configuration.constants.get(name) == Some(value))
        {
            let why = "its facts are those of the code, so that it is no other design; change one of them";
            return self.row(Layer::Spec, promise, expected, Found::Differs(why.to_owned()), None, Duration::ZERO);
        }
        let job = self.job(self.configuration.text.clone(), false);
        let started = Instant::now();
        let found = match self.ask(&job) {
            Err(why) => Found::NotVerified(why),
            Ok((fact, outcome)) => {
                let found = match fact.verdict.split(':').collect::<Vec<_>>()[..] {
                    [BREAKS, broken, steps] if broken == promise => match (steps.parse(), &outcome) {
                        (Ok(steps), Some(_)) => Found::Breaks { steps },
                        (Ok(steps), None) => Found::RecordedBreaks { steps },
                        (Err(_), _) => Found::NotVerified(format!("the record says {}", fact.verdict)),
                    },
                    [HOLDS] => Found::Holds,
                    _ => Found::Differs(format!("TLC found {}", fact.verdict)),
                };
                self.checked.tlc = Some(fact);
                found
            }
        };
        self.row(Layer::Spec, promise, expected, found, None, started.elapsed());
    }

    fn facts(&self) -> Option<&BTreeMap<String, Value>> {
        self.setting.facts.get(self.configuration.domain.as_str())
    }

    fn job(&self, cfg: String, dump: bool) -> Job {
        let folder = self.setting.specs.root.join("specs").join(&self.configuration.domain);
        Job {
            module: folder.join(format!("{}.tla", module_name(&self.configuration.domain))),
            cfg,
            liveness: !self.configuration.properties.is_empty(),
            dump,
            timeout: tlc::TIMEOUT,
        }
    }

    /// TLC's answer, by its record where the input is unchanged; without Java, only by its record.
    fn ask(&self, job: &Job) -> Result<(TlcFact, Option<Outcome>), String> {
        let input = job.input_hash().map_err(|error| error.to_string())?;
        let recorded = self.setting.recorded.tlc.get(&self.configuration.id()).filter(|fact| fact.input == input);
        let may_recall = !self.setting.no_cache || (self.setting.tlc.is_err() && !self.setting.require_tlc);
        if let (Some(fact), true) = (recorded, may_recall && !(self.setting.require_tlc && self.setting.tlc.is_err())) {
            return Ok((fact.clone(), None));
        }
        let tlc = self.setting.tlc.as_ref().map_err(ToString::to_string)?;
        let bar = self.setting.progress.start(format!("TLC on {}", self.configuration.id()));
        bar.set(0);
        let outcome = tlc.run(job).map_err(|error| error.to_string());
        drop(bar);
        let outcome = outcome?;
        let broken = match &outcome.verdict {
            Verdict::Holds => None,
            Verdict::Deadlock => return Err("TLC found a deadlock, although that check is off".to_owned()),
            Verdict::Invariant { name } => Some(name.clone()),
            Verdict::Property { name } => name.clone().or_else(|| match &self.configuration.properties[..] {
                [only] => Some(only.clone()),
                _ => None,
            }),
        };
        let verdict = match (&outcome.verdict, broken) {
            (Verdict::Holds, _) => HOLDS.to_owned(),
            (_, Some(name)) => format!("{BREAKS}:{name}:{}", outcome.trace.len().saturating_sub(1)),
            (_, None) => return Err("TLC does not say which of several properties is violated".to_owned()),
        };
        let graph = outcome.graph.as_ref();
        let fact = TlcFact {
            verdict,
            states: outcome.distinct_states,
            edges: graph.map_or(0, |graph| graph.edges.len() as u64),
            graph: graph.map(SpecGraph::digest),
            input,
        };
        Ok((fact, Some(outcome)))
    }
}

/// The words of a recorded verdict.
const HOLDS: &str = "holds";
const BREAKS: &str = "breaks";

/// The text of a configuration with the measured facts in the place of its own.
fn with_facts(configuration: &Configuration, facts: &BTreeMap<String, Value>) -> String {
    let line = |line: &str| match line.split_once('=') {
        Some((name, _)) if !line.starts_with("\\*") => match facts.get(name.trim()) {
            Some(value) => format!("{name}= {value}\n"),
            None => format!("{line}\n"),
        },
        _ => format!("{line}\n"),
    };
    configuration.text.lines().map(line).collect()
}

/// The first edges that only one side has, each as a step.
fn difference<M: Subject>(graph: &Graph<M>, states: &[String], spec: &SpecGraph) -> String {
    type Step<'a> = (&'a str, &'a str, &'a str);
    let code: BTreeSet<Step<'_>> = graph
        .edges
        .iter()
        .map(|edge| (states[edge.from as usize].as_str(), edge.name, states[edge.to as usize].as_str()))
        .collect();
    let specified: BTreeSet<Step<'_>> = spec
        .edges
        .iter()
        .map(|edge| {
            let action = spec.actions[edge.action as usize].as_str();
            (spec.states[edge.from as usize].as_str(), action, spec.states[edge.to as usize].as_str())
        })
        .collect();
    let mut text = format!(
        "the code has {} edges and the specification {}; {} are only in the code, {} only in the specification",
        code.len(),
        specified.len(),
        code.difference(&specified).count(),
        specified.difference(&code).count()
    );
    // The nearest difference explains the most: the farther ones follow from it.
    let place: BTreeMap<&str, usize> =
        states.iter().enumerate().rev().map(|(at, state)| (state.as_str(), at)).collect();
    let mut only: Vec<(usize, &str, Step<'_>)> = code
        .difference(&specified)
        .map(|step| ("the code", *step))
        .chain(specified.difference(&code).map(|step| ("the specification", *step)))
        .map(|(side, step)| (place.get(step.0).copied().unwrap_or(usize::MAX), side, step))
        .collect();
    only.sort_unstable();
    for (_, side, (from, action, to)) in only.into_iter().take(EDGES_SHOWN_MAX) {
        text += &format!("\nonly {side}: {action} from {from} to {}", changes(from, to));
    }
    text
}

/// The variables of a state that are others than in the state before.
fn changes(from: &str, to: &str) -> String {
    let before: BTreeSet<&str> = from.split("/\\").collect();
    let changed: Vec<&str> = to.split("/\\").filter(|conjunct| !before.contains(conjunct)).collect();
    if changed.is_empty() { "itself".to_owned() } else { changed.join(", ") }
}

/// A path as a counterexample, with the states of the code of `model`.
#[must_use]
pub fn record<M: Subject>(
    model: &M,
    configuration: &Configuration,
    promise: &str,
    moves: &[Move<M::Step>],
) -> Counterexample {
    let mut world = model.first();
    let steps = moves
        .iter()
        .map(|action| CounterexampleStep {
            message: action.message + 1,
            step: action.step.clone().into(),
            digest: (model.owes(&world, action) && model.take(&mut world, action).is_ok()).then(|| M::digest(&world)),
        })
        .collect();
    Counterexample {
        domain: configuration.domain.clone(),
        configuration: configuration.name.clone(),
        promise: promise.to_owned(),
        mutant: String::new(),
        story: format!("The shortest way in {} to a state that breaks {promise}.", configuration.id()),
        steps,
    }
}

fn save(root: &Path, file: &str, counterexample: &Counterexample) -> Result<(), String> {
    let path = root.join(file);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    }
    counterexample.write(&path).map_err(|error| error.to_string())
}
