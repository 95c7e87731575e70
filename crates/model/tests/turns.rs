//! The graphs of the domain turns: exact counts, every promise, and a second explorer that agrees.

use std::path::{Path, PathBuf};

use lastword_core::Limits;
use lastword_model::{Configuration, Expectation, Graph, Turns, liveness, promises};
use stateright::{Checker, Model};

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs")
}

fn configuration(name: &str) -> Configuration {
    Configuration::read(&specs().join("turns").join(format!("{name}.cfg"))).unwrap()
}

fn turns(name: &str) -> Turns {
    Turns::new(&configuration(name), Limits::default()).unwrap()
}

/// Small enough for a build without optimisation; check.sh explores the rest.
const SMALL: [(&str, usize, usize); 5] = [
    ("cancel-waits-later-prompt", 459, 892),
    ("deaf-handler", 2381, 5664),
    ("one-prompt-at-a-time", 1266, 2495),
    ("overlapping-prompts", 1121, 2379),
    ("peer-wait-later-prompt", 2233, 4379),
];

#[test]
fn each_graph_has_exactly_the_states_and_edges_that_the_specification_has() {
    for (name, states, edges) in SMALL {
        let model = turns(name);
        let graph = Graph::explore(&model, |_| {}).unwrap();
        assert_eq!((graph.states.len(), graph.edges.len()), (states, edges), "{name}");
    }
}

#[test]
fn every_promise_holds_on_each_graph() {
    for (name, ..) in SMALL {
        let model = turns(name);
        let graph = Graph::explore(&model, |_| {}).unwrap();
        for promise in promises::TURNS {
            assert_eq!(graph.first_breach(&model, promise), None, "{} in {name}", promise.name);
            assert_eq!(liveness::first_breach(&graph, &model, promise), None, "{} in {name}", promise.name);
        }
    }
}

#[test]
fn stateright_finds_the_same_number_of_states() {
    for (name, states, _) in SMALL {
        let checker = turns(name).checker().spawn_bfs().join();
        assert!(checker.is_done());
        checker.assert_properties();
        assert_eq!(checker.unique_state_count(), states, "{name}");
    }
}

#[test]
fn every_configuration_of_the_domain_is_read() {
    let all = Configuration::read_all(&specs(), "turns").unwrap();
    let holding = all.iter().filter(|configuration| configuration.expectation == Expectation::Holds).count();
    assert_eq!((holding, all.len()), (12, 21));
}
