//! The recorded paths, as replay.sh takes them: each of them is green on the real code and, under its mutant, red. And
//! paths that the model of delegation has, on the real service.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use lastword_check::{
    mutants::Change,
    report::{Row, Status},
    rig::delegation::{Rig, runtime},
    run::replay_file,
    specs::{DOMAINS, Specs},
    subject::Subject as _,
};
use lastword_core::delegation::Step;
use lastword_model::{Configuration, DelegationModel, Expectation, Graph, Model as _, Move, delegation::World};
use proptest::{prelude::*, sample::Index};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_recorded_path_is_green_on_the_real_code_and_red_under_its_mutant() {
    let specs = Specs::read(&root()).expect("specs are read");
    for domain in DOMAINS {
        let files: Vec<_> = specs.counterexamples.iter().filter(|(_, file)| file.domain == domain).collect();
        assert!(!files.is_empty(), "nothing of {domain} is recorded");
        for (name, file) in files {
            let rows = replay_file(&specs, name, file);
            for row in &rows {
                assert_eq!(row.status(), Status::Kept, "{name}: {:?}", row.sentence());
            }
            let mutant = specs.mutants.iter().find(|mutant| mutant.name == file.mutant).expect("its mutant has a row");
            // A mutant that is a patch needs a build of its own.
            let expected = if matches!(mutant.change, Change::Guard(_)) { 2 } else { 1 };
            assert_eq!(
                rows.len(),
                expected,
                "{name}: {:?}",
                rows.iter().map(|row: &Row| &row.promise).collect::<Vec<_>>()
            );
        }
    }
}

/// A model and the service, which take the same steps.
struct Both<'a> {
    model: &'a DelegationModel,
    world: World,
    /// As the steps of the service make it.
    real: World,
    rig: Rig,
}

impl<'a> Both<'a> {
    async fn new(model: &'a DelegationModel) -> Self {
        let world = model.first();
        let rig = Rig::new(model.workers(), *world.core.limits()).await.expect("a service");
        Self { model, real: world.clone(), world, rig }
    }

    /// The moves that the service comes to.
    fn moves(&self) -> Vec<Move<Step>> {
        let mut moves = self.model.moves(&self.world);
        moves.retain(|action| self.rig.comes_to(&action.step));
        moves
    }

    /// The same effects, the same state, and callers that are told just that.
    async fn take(&mut self, action: &Move<Step>) {
        let effects = self.world.take(action).expect("it is a move");
        let taken = self.rig.take(&action.step).await;
        let (of_service, machine) = taken.unwrap_or_else(|error| panic!("{:?}: {error}", action.step));
        self.real.follow(action, &of_service, machine);
        assert_eq!((&effects, &self.world), (&of_service, &self.real), "after {:?}", action.step);
        self.rig.callers().await.unwrap_or_else(|error| panic!("{:?}: {error}", action.step));
    }

    /// The journal holds what the store has.
    async fn end(mut self) {
        let (_, restarted) = self.rig.take(&Step::Restarted).await.expect("another daemon begins");
        assert_eq!(*restarted.stored(), self.world.store);
    }
}

fn holding() -> Vec<Configuration> {
    let mut all = Configuration::read_all(&root().join("specs"), "delegation").expect("configurations");
    all.retain(|configuration| configuration.expectation == Expectation::Holds);
    all
}

fn model(configuration: &Configuration) -> DelegationModel {
    DelegationModel::read(configuration, None).expect("a model")
}

#[test]
fn the_service_takes_every_edge_of_small_graphs() {
    for (name, edges) in [("reply-races-window", 570), ("two-questions", 664)] {
        let model = model(holding().iter().find(|configuration| configuration.name == name).expect("it is there"));
        let graph = Graph::explore(&model, |_| {}).expect("it is small");
        // What no walk has taken, of each state.
        let mut open: Vec<Vec<(Move<Step>, usize)>> = vec![Vec::new(); graph.states.len()];
        for edge in &graph.edges {
            open[edge.from as usize].push((graph.action(&model, edge), edge.to as usize));
        }
        let mut taken = 0;
        while let Some(from) = open.iter().position(|edges| !edges.is_empty()) {
            runtime().expect("a runtime").block_on(async {
                let mut both = Both::new(&model).await;
                for action in graph.path_to(&model, u32::try_from(from).expect("it is small")) {
                    both.take(&action).await;
                }
                let mut at = from;
                while let Some((action, to)) = open[at].pop() {
                    both.take(&action).await;
                    assert_eq!(graph.states.get_index_of(&both.real), Some(to), "after {:?}", action.step);
                    (at, taken) = (to, taken + 1);
                }
                both.end().await;
            });
        }
        assert_eq!(taken, edges, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_service_takes_any_path_of_the_model(
        which: Index,
        choices in prop::collection::vec(any::<(Index, Index)>(), 1..40),
    ) {
        let model = model(which.get(&holding()));
        runtime().expect("a runtime").block_on(async {
            let mut both = Both::new(&model).await;
            for (word, which) in choices {
                // By name first: else nearly all of a walk would be what the store does.
                let mut moves: BTreeMap<&str, Vec<Move<Step>>> = BTreeMap::new();
                for action in both.moves() {
                    moves.entry(action.step.name()).or_default().push(action);
                }
                let names: Vec<&str> = moves.keys().copied().collect();
                if names.is_empty() {
                    break;
                }
                both.take(which.get(&moves[word.get(&names)])).await;
            }
            both.end().await;
        });
    }
}
