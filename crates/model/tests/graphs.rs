//! The graphs of the domains: exact counts, every promise, and a second explorer that agrees.

use std::path::{Path, PathBuf};

use lastword_core::{Limits, delegation};
use lastword_model::{Configuration, ConnectionModel, DelegationModel, Expectation, Graph, Model, liveness};
use stateright::Checker;

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs")
}

fn configuration(id: &str) -> Configuration {
    let configuration = Configuration::read(&specs().join(format!("{id}.cfg"))).unwrap();
    assert_eq!(configuration.id(), id);
    configuration
}

fn connection(id: &str) -> ConnectionModel {
    ConnectionModel::new(&configuration(id), Limits::default()).unwrap()
}

fn tickets(id: &str) -> DelegationModel {
    DelegationModel::new(&configuration(id), delegation::Limits::default()).unwrap()
}

/// Small enough for a build without optimisation; check.sh explores the rest.
const CONNECTION: [(&str, usize, usize); 10] = [
    ("turns/cancel-waits-later-prompt", 459, 892),
    ("turns/deaf-handler", 2381, 5664),
    ("turns/one-prompt-at-a-time", 1266, 2495),
    ("turns/overlap-queue", 3085, 6189),
    ("turns/overlapping-prompts", 1121, 2379),
    ("turns/peer-wait-later-prompt", 2233, 4379),
    ("barrier/disconnect-drain", 2533, 7037),
    ("barrier/peer-wait", 3163, 7201),
    ("barrier/queue-bound", 797, 1693),
    ("barrier/response-before-later-notifications", 600, 1551),
];

/// The same.
const DELEGATION: [(&str, usize, usize); 4] = [
    ("delegation/issue-137", 865, 3126),
    ("delegation/reply-races-window", 202, 570),
    ("delegation/two-questions", 238, 664),
    ("delegation/crash-question", 3904, 14496),
];

fn has_exactly(name: &str, model: &impl Model, states: usize, edges: usize) {
    let graph = Graph::explore(model, |_| {}).unwrap();
    assert_eq!((graph.states.len(), graph.edges.len()), (states, edges), "{name}");
}

fn keeps_every_promise(name: &str, model: &impl Model) {
    let graph = Graph::explore(model, |_| {}).unwrap();
    for promise in model.promises() {
        assert_eq!(graph.first_breach(model, promise), None, "{} in {name}", promise.name);
        assert_eq!(liveness::first_breach(&graph, model, promise), None, "{} in {name}", promise.name);
    }
}

fn stateright_finds(name: &str, model: impl Model, states: usize) {
    let checker = model.checker().spawn_bfs().join();
    assert!(checker.is_done());
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), states, "{name}");
}

#[test]
fn each_graph_has_exactly_its_states_and_edges() {
    for (name, states, edges) in CONNECTION {
        has_exactly(name, &connection(name), states, edges);
    }
    for (name, states, edges) in DELEGATION {
        has_exactly(name, &tickets(name), states, edges);
    }
}

#[test]
fn every_promise_holds_on_each_graph() {
    for (name, ..) in CONNECTION {
        keeps_every_promise(name, &connection(name));
    }
    for (name, ..) in DELEGATION {
        keeps_every_promise(name, &tickets(name));
    }
}

#[test]
fn stateright_finds_the_same_number_of_states() {
    for (name, states, _) in CONNECTION {
        stateright_finds(name, connection(name), states);
    }
    for (name, states, _) in DELEGATION {
        stateright_finds(name, tickets(name), states);
    }
}

#[test]
fn every_configuration_of_each_domain_is_read() {
    for (domain, counts) in [("turns", (14, 23)), ("barrier", (8, 18)), ("delegation", (11, 21))] {
        let all = Configuration::read_all(&specs(), domain).unwrap();
        let holding = all.iter().filter(|configuration| configuration.expectation == Expectation::Holds).count();
        assert_eq!((holding, all.len()), counts, "{domain}");
    }
}
