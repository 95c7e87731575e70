//! What every model has in common, whichever machine it drives: then one search, one check of liveness, and one checker do
//! for all of them.

use std::{fmt, hash::Hash};

use crate::{counterexample::RecordedStep, promises::Promise, world::Move};

/// A machine of core, and the world around it that a configuration describes.
pub trait Model:
    Clone + Send + Sync + 'static + stateright::Model<State = Self::World, Action = Move<Self::Step>>
{
    /// The alphabet of the machine.
    type Step: Clone + PartialEq + fmt::Debug + 'static + Into<RecordedStep> + TryFrom<RecordedStep>;
    /// A state: the machine itself, and what has happened.
    type World: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static;
    /// A predicate of a state.
    type Always: Copy + 'static;
    /// A predicate of a state and one of its messages.
    type Eventually: Copy + 'static;

    /// The state in which nothing has happened.
    fn first(&self) -> Self::World;
    /// Everything that may happen next.
    fn moves(&self, world: &Self::World) -> Vec<Move<Self::Step>>;
    /// Whether the machine takes a step in this state.
    fn owes(&self, world: &Self::World, action: &Move<Self::Step>) -> bool {
        self.take(&mut world.clone(), action).is_ok()
    }
    /// Lets the machine take a step, and gives its effects as text.
    ///
    /// # Errors
    ///
    /// A sentence where the machine refuses the step; nothing has changed then.
    fn take(&self, world: &mut Self::World, action: &Move<Self::Step>) -> Result<String, String>;
    /// The name of a step, which is the name of the action in the specification.
    fn name(step: &Self::Step) -> &'static str;
    /// Whether a move must come in the end if it stays possible.
    fn is_fair(&self, step: &Self::Step, message: usize) -> bool;
    /// How many messages there are: to each of them a promise may be owed.
    fn count(&self) -> usize;
    /// Whether a predicate holds in a state.
    fn holds(&self, always: Self::Always, world: &Self::World) -> bool;
    /// Whether a predicate holds for a message in a state.
    fn holds_for(&self, eventually: Self::Eventually, world: &Self::World, message: usize) -> bool;
    /// The promises of its domain.
    fn promises(&self) -> &'static [PromiseOf<Self>];
    /// The state in the variables of the specification, as TLC prints it, without white space.
    fn project(&self, world: &Self::World) -> String;
    /// The digest of the machine's state.
    fn digest(world: &Self::World) -> String;
}

/// A promise of a model's domain.
pub type PromiseOf<M> = Promise<<M as Model>::Always, <M as Model>::Eventually>;
