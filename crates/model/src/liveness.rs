//! What must happen in the end, on the exact graph.
//!
//! A promise of this kind breaks where a run can stay for ever without what it promises, although every step that stays
//! possible comes in the end. Such a run ends in a set of states that are reachable from each other (or in a single one,
//! where nothing more happens), so it is enough to look at the strongly connected components of the part of the graph in
//! which the promise is owed and not yet kept. What is owed stays owed until it is kept, so a run never leaves that part
//! and comes back.

use std::collections::BTreeSet;

use petgraph::{algo::tarjan_scc, graph::DiGraph};

use crate::{
    graph::{Graph, NodeIndex},
    model::{Model, PromiseOf},
    promises::Check,
};

/// A run that never keeps a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The message to which the promise is owed.
    pub message: usize,
    /// The nearest state from which the run goes on without keeping it, for ever.
    pub state: NodeIndex,
}

/// Finds a run that breaks the promise; the one whose last stretch begins nearest to the initial state.
#[must_use]
pub fn first_breach<M: Model>(graph: &Graph<M>, model: &M, promise: &PromiseOf<M>) -> Option<Stuck> {
    let Check::Eventually { when, then } = promise.check else { return None };
    (0..model.count())
        .filter_map(|message| {
            let owed: Vec<bool> = graph
                .states
                .iter()
                .map(|world| model.holds_for(when, world, message) && !model.holds_for(then, world, message))
                .collect();
            stuck_in(graph, &owed).map(|state| Stuck { message, state })
        })
        .min_by_key(|stuck| (stuck.state, stuck.message))
}

/// The nearest state of a fair component of the marked part.
fn stuck_in<M: Model>(graph: &Graph<M>, owed: &[bool]) -> Option<NodeIndex> {
    if !owed.contains(&true) {
        return None;
    }
    let mut part = DiGraph::<NodeIndex, ()>::new();
    let mut node_of = vec![None; owed.len()];
    for (state, _) in owed.iter().enumerate().filter(|(_, owed)| **owed) {
        node_of[state] = Some(part.add_node(u32::try_from(state).expect("states are fewer than 2^32")));
    }
    for edge in &graph.edges {
        if let (Some(from), Some(to)) = (node_of[edge.from as usize], node_of[edge.to as usize]) {
            part.add_edge(from, to, ());
        }
    }
    let mut component_of = vec![usize::MAX; owed.len()];
    let components = tarjan_scc(&part);
    for (number, component) in components.iter().enumerate() {
        for node in component {
            component_of[part[*node] as usize] = number;
        }
    }
    // A step that must come, and is possible in every state of the component, has to be taken inside it; where it leads
    // out of each, the run cannot stay.
    let mut possible = vec![BTreeSet::new(); owed.len()];
    let mut taken = vec![BTreeSet::new(); components.len()];
    for edge in graph.edges.iter().filter(|edge| edge.fair && owed[edge.from as usize]) {
        let step = (edge.name, edge.message);
        possible[edge.from as usize].insert(step);
        if component_of[edge.from as usize] == component_of[edge.to as usize] {
            taken[component_of[edge.from as usize]].insert(step);
        }
    }
    components
        .iter()
        .enumerate()
        .filter(|(number, component)| {
            let mut always = possible[part[component[0]] as usize].clone();
            for node in *component {
                always.retain(|step| possible[part[*node] as usize].contains(step));
            }
            always.is_subset(&taken[*number])
        })
        .flat_map(|(_, component)| component.iter().map(|node| part[*node]))
        .min()
}
