//! The graphs of both domains: exact counts, every promise, and a second explorer that agrees.

use std::path::{Path, PathBuf};

use lastword_core::Limits;
use lastword_model::{Configuration, ConnectionModel, Expectation, Graph, liveness};
use stateright::{Checker, Model};

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs")
}

fn model(id: &str) -> ConnectionModel {
    let configuration = Configuration::read(&specs().join(format!("{id}.cfg"))).unwrap();
    assert_eq!(configuration.id(), id);
    ConnectionModel::new(&configuration, Limits::default()).unwrap()
}

/// Small enough for a build without optimisation; check.sh explores the rest.
const SMALL: [(&str, usize, usize); 10] = [
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

#[test]
fn each_graph_has_exactly_its_states_and_edges() {
    for (name, states, edges) in SMALL {
        let model = model(name);
        let graph = Graph::explore(&model, |_| {}).unwrap();
        assert_eq!((graph.states.len(), graph.edges.len()), (states, edges), "{name}");
    }
}

#[test]
fn every_promise_holds_on_each_graph() {
    for (name, ..) in SMALL {
        let model = model(name);
        let graph = Graph::explore(&model, |_| {}).unwrap();
        for promise in model.promises() {
            assert_eq!(graph.first_breach(&model, promise), None, "{} in {name}", promise.name);
            assert_eq!(liveness::first_breach(&graph, &model, promise), None, "{} in {name}", promise.name);
        }
    }
}

#[test]
fn stateright_finds_the_same_number_of_states() {
    for (name, states, _) in SMALL {
        let checker = model(name).checker().spawn_bfs().join();
        assert!(checker.is_done());
        checker.assert_properties();
        assert_eq!(checker.unique_state_count(), states, "{name}");
    }
}

#[test]
fn every_configuration_of_each_domain_is_read() {
    for (domain, counts) in [("turns", (14, 23)), ("barrier", (8, 18))] {
        let all = Configuration::read_all(&specs(), domain).unwrap();
        let holding = all.iter().filter(|configuration| configuration.expectation == Expectation::Holds).count();
        assert_eq!((holding, all.len()), counts, "{domain}");
    }
}
