//! The graphs of the domain delegation: exact counts, every promise, and a second explorer that agrees.

use std::path::{Path, PathBuf};

use lastword_core::delegation::Limits;
use lastword_model::{Configuration, DelegationModel, Expectation, Graph, Model as _, liveness};
use stateright::{Checker, Model};

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs")
}

fn model(name: &str) -> DelegationModel {
    let configuration = Configuration::read(&specs().join(format!("delegation/{name}.cfg"))).unwrap();
    DelegationModel::new(&configuration, Limits::default()).unwrap()
}

/// Small enough for a build without optimisation; check.sh explores the rest.
const SMALL: [(&str, usize, usize); 4] = [
    ("issue-137", 865, 3126),
    ("reply-races-window", 202, 570),
    ("two-questions", 238, 664),
    ("crash-question", 3904, 14496),
];

#[test]
fn each_graph_has_exactly_its_states_and_edges_and_keeps_every_promise() {
    for (name, states, edges) in SMALL {
        let model = model(name);
        let graph = Graph::explore(&model, |_| {}).unwrap();
        assert_eq!((graph.states.len(), graph.edges.len()), (states, edges), "{name}");
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
fn every_configuration_is_read() {
    let all = Configuration::read_all(&specs(), "delegation").unwrap();
    let holding = all.iter().filter(|configuration| configuration.expectation == Expectation::Holds).count();
    assert_eq!((holding, all.len()), (11, 21));
}
