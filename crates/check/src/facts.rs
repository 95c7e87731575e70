//! The facts: which of the designs that were tried elsewhere the code is. Measured, not declared.
//!
//! Each probe takes the real tokio runtime through a tiny scenario, in one order of steps, and tells the fact from what the
//! handlers, workers and callers saw. A step that the design at hand does not owe at that point is skipped: the designs differ in
//! just that.

use std::{collections::BTreeMap, time::Duration};

use lastword_core::{Arrival, Effect, Limits, Outcome, Step};
use lastword_model::{ConnectionModel, Kind, Move, Value, World};

use crate::{
    replay::runtime,
    rig::{Rig, RigError},
};

mod barrier;
mod delegation;
mod turns;

/// The facts of each domain, by name.
pub type Facts = BTreeMap<&'static str, BTreeMap<String, Value>>;

/// A probe that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[error("the fact {fact} could not be measured: {source}")]
pub struct FactError {
    /// The fact.
    pub fact: &'static str,
    /// What went wrong.
    pub source: ProbeError,
}

/// What kept a probe from its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// A connection.
    #[error(transparent)]
    Rig(#[from] RigError),
    /// The ticket service.
    #[error(transparent)]
    Service(#[from] crate::rig::delegation::RigError),
}

/// The names of the facts of a domain, which are constants of its specification.
#[must_use]
pub fn of_domain(domain: &str) -> &'static [&'static str] {
    match domain {
        "turns" => &turns::FACTS,
        "barrier" => &barrier::FACTS,
        "guard" => &turns::FACTS_OF_GUARD,
        "delegation" => &delegation::FACTS,
        _ => &[],
    }
}

/// Measures one fact of a domain.
///
/// # Errors
///
/// [`FactError`] where the runtime does not come to the end of the scenario.
pub fn measure(domain: &str, fact: &'static str, limits: Limits) -> Result<Value, FactError> {
    let measured = match domain {
        "barrier" => runtime().block_on(barrier::measure(fact, limits)).map_err(ProbeError::from),
        "delegation" => delegation::measure(fact, limits.forced).map_err(ProbeError::from),
        _ => runtime().block_on(turns::measure(fact, limits)).map_err(ProbeError::from),
    };
    measured.map_err(|source| FactError { fact, source })
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// A scenario on the runtime. Messages are counted from 1, in the order of their arrival.
struct Probe {
    model: ConnectionModel,
    world: World,
    rig: Rig,
}

impl Probe {
    /// An agent and what its client sends.
    fn agent(kinds: &[Kind], limits: Limits) -> Self {
        Self::new(ConnectionModel::of_agent(kinds, limits))
    }

    /// A client, what its agent sends, and who calls it.
    fn client(kinds: &[Kind], limits: Limits) -> Self {
        Self::new(ConnectionModel::of_client(kinds, limits))
    }

    fn new(model: ConnectionModel) -> Self {
        Self { world: model.initial(), rig: Rig::new(&model), model }
    }

    async fn arrives(&mut self, message: u64) -> Result<(), RigError> {
        let beginning = self.model.messages[index(message)].beginning();
        self.try_take(beginning, message).await
    }

    async fn starts(&mut self, message: u64) -> Result<(), RigError> {
        self.try_take(Step::Started(Arrival(message)), message).await
    }

    async fn returns(&mut self, message: u64) -> Result<(), RigError> {
        self.try_take(Step::Returned(Arrival(message), Outcome::Succeeded), message).await
    }

    /// Whether a message's handler has been called.
    fn ran(&self, message: u64) -> bool {
        self.rig.seen(message).ran
    }

    /// Takes the step, if this design owes it now.
    async fn try_take(&mut self, step: Step, message: u64) -> Result<(), RigError> {
        if self.world.core.clone().apply(step.clone()).is_ok() {
            self.take(step, message).await?;
        }
        Ok(())
    }

    async fn take(&mut self, step: Step, message: u64) -> Result<Vec<Effect>, RigError> {
        let action = Move { step, message: index(message) };
        let (effects, core) = self.rig.take(&action).await?;
        self.world.core = core;
        self.world.observe(&self.model.messages, &action, &effects);
        // The clock is paused: it moves only once every task is idle, so that what the step made possible has happened.
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(effects)
    }

    fn may_come(&self, step: &Step) -> bool {
        self.world.core.may_come().contains(step)
    }

    fn is_cancelled(&self, message: u64) -> bool {
        self.rig.seen(message).is_cancelled()
    }

    fn lives(&self, message: u64) -> bool {
        self.rig.seen(message).lives()
    }
}

fn index(message: u64) -> usize {
    usize::try_from(message).expect("messages are few") - 1
}
