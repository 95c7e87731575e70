//! The exact graph of a model: breadth first, every state kept whole, none hashed away.

use indexmap::IndexSet;

use crate::{
    connection::ConnectionModel,
    model::{Model, PromiseOf},
    promises::Check,
    world::Move,
};

/// The place of a state in the order of discovery; the initial state is 0.
pub type NodeIndex = u32;

/// More states than any configuration should have. A search that comes here could not verify anything.
const STATES_MAX: usize = 5_000_000;

/// How often the progress of a search is told, in states.
const TELL_EVERY: usize = 1000;

/// A labelled edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// From this state.
    pub from: NodeIndex,
    /// To this state.
    pub to: NodeIndex,
    /// The name of the step.
    pub name: &'static str,
    /// The message that it is about.
    pub message: u16,
    /// It must come in the end, if it stays possible.
    pub fair: bool,
}

/// All states that a model can reach, and all its edges.
#[derive(Debug)]
pub struct Graph<M: Model = ConnectionModel> {
    /// The states, in the order of discovery: none is farther from the initial state than a later one.
    pub states: IndexSet<M::World>,
    /// The edges, in the order of their first state.
    pub edges: Vec<Edge>,
    /// For each state but the first: the edge that discovered it.
    discovered_by: Vec<u32>,
}

/// A search that found no end, or a machine that refused a step that it had itself named.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The bound was hit.
    #[error("more than {STATES_MAX} states: the configuration is too large to be explored to the end")]
    TooLarge,
    /// `may_come` and `apply` disagree.
    #[error("the machine names a step as possible and then refuses it: {0}")]
    Refused(String),
}

impl<M: Model> Graph<M> {
    /// Explores a model to the end. `progress` is told the number of states from time to time.
    ///
    /// # Errors
    ///
    /// [`GraphError`] where the search has no end within its bound, or the machine contradicts itself.
    pub fn explore(model: &M, mut progress: impl FnMut(usize)) -> Result<Self, GraphError> {
        let mut graph = Self { states: IndexSet::new(), edges: Vec::new(), discovered_by: vec![u32::MAX] };
        graph.states.insert(model.first());
        let mut at = 0;
        while at < graph.states.len() {
            if at % TELL_EVERY == 0 {
                progress(graph.states.len());
            }
            for action in model.moves(&graph.states[at]) {
                let mut next = graph.states[at].clone();
                model.take(&mut next, &action).map_err(GraphError::Refused)?;
                let (to, is_new) = graph.states.insert_full(next);
                if is_new {
                    graph.discovered_by.push(u32::try_from(graph.edges.len()).expect("edges are fewer than 2^32"));
                }
                graph.edges.push(Edge {
                    from: index(at),
                    to: index(to),
                    name: M::name(&action.step),
                    message: u16::try_from(action.message).expect("messages are few"),
                    fair: model.is_fair(&action.step, action.message),
                });
            }
            if graph.states.len() > STATES_MAX {
                return Err(GraphError::TooLarge);
            }
            at += 1;
        }
        Ok(graph)
    }

    /// The first state, in breadth-first order, that breaks the promise: no other one is nearer.
    #[must_use]
    pub fn first_breach(&self, model: &M, promise: &PromiseOf<M>) -> Option<NodeIndex> {
        let Check::Always(holds) = promise.check else { return None };
        self.states.iter().position(|world| !model.holds(holds, world)).map(index)
    }

    /// The shortest way from the initial state to a state.
    #[must_use]
    pub fn path_to(&self, model: &M, state: NodeIndex) -> Vec<Move<M::Step>> {
        let mut moves = Vec::new();
        let mut at = state;
        while at != 0 {
            let edge = self.edges[self.discovered_by[at as usize] as usize];
            moves.push(self.action(model, &edge));
            at = edge.from;
        }
        moves.reverse();
        moves
    }

    /// The move of an edge, found again among the moves of its first state.
    #[must_use]
    pub fn action(&self, model: &M, edge: &Edge) -> Move<M::Step> {
        let from = &self.states[edge.from as usize];
        let leads_there = |action: &Move<M::Step>| {
            let mut next = from.clone();
            M::name(&action.step) == edge.name
                && action.message == usize::from(edge.message)
                && model.take(&mut next, action).is_ok()
                && next == self.states[edge.to as usize]
        };
        model.moves(from).into_iter().find(leads_there).expect("the edge came from one of these moves")
    }

    /// How many edges each step has, by name.
    #[must_use]
    pub fn edges_per_step(&self) -> std::collections::BTreeMap<&'static str, u64> {
        let mut counts = std::collections::BTreeMap::new();
        for edge in &self.edges {
            *counts.entry(edge.name).or_default() += 1;
        }
        counts
    }
}

fn index(at: usize) -> NodeIndex {
    u32::try_from(at).expect("states are fewer than 2^32")
}
