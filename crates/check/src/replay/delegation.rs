//! Replays a recorded path of the ticket service: on the machine, of which each step must be a move of the model, or on the
//! real service, with its journal, its calls and its crashes.

use lastword_core::delegation::Step;
use lastword_model::{
    Counterexample, DelegationModel, Model as _, Move, PromiseOf, delegation::World, promises::Check,
};

use super::{FINISH_STEPS_MAX, Happened, Stage, Verdict};
use crate::rig::delegation::{Rig, runtime};

/// Replays a path on the model or on the service. Where `mutated`, the states may be others than the recorded ones, and only
/// the promise of the file is asked for.
///
/// `tell` is called for each step as it happens.
pub fn replay(
    counterexample: &Counterexample,
    model: &DelegationModel,
    mutated: bool,
    stage: Stage,
    mut tell: impl FnMut(&Happened<'_>),
) -> Verdict {
    let world = model.first();
    let limits = *world.core.limits();
    let mut run = Run { model, world, rig: None, mutated, promise: &counterexample.promise, taken: 0 };
    let replayed = runtime().map_err(|error| run.differs(&error)).and_then(|runtime| {
        runtime.block_on(async {
            if stage == Stage::Runtime {
                run.rig = Some(Rig::new(model.workers(), limits).await.map_err(|error| run.differs(&error))?);
            }
            run.all(counterexample, &mut tell).await
        })
    });
    match replayed {
        Ok(()) => Verdict::Kept,
        Err(verdict) => verdict,
    }
}

struct Run<'a> {
    model: &'a DelegationModel,
    world: World,
    rig: Option<Rig>,
    mutated: bool,
    promise: &'a str,
    taken: usize,
}

impl Run<'_> {
    async fn all(&mut self, path: &Counterexample, tell: &mut impl FnMut(&Happened<'_>)) -> Result<(), Verdict> {
        for recorded in &path.steps {
            let Ok(step) = Step::try_from(recorded.step.clone()) else {
                return Err(self.differs(&format!("{:?} is no step of the ticket service", recorded.step)));
            };
            let action = Move { step, message: recorded.message.saturating_sub(1) };
            let mut next = self.world.clone();
            let refused = next.take(&action).err();
            if !self.mutated && refused.is_none() != recorded.digest.is_some() {
                let now = refused.map_or("takes".to_owned(), |refused| format!("refuses ({refused})"));
                return Err(self.differs(&format!("the machine now {now} the step {:?}", action.step)));
            }
            if refused.is_some() {
                // The real code never takes a step that only its mutant takes.
                self.taken += 1;
                let digest = self.world.core.digest();
                let step = format!("{:?}", action.step);
                tell(&Happened { number: self.taken, step: &recorded.step, text: step, effects: None, digest });
                continue;
            }
            if !self.mutated && !self.model.moves(&self.world).contains(&action) {
                return Err(self.differs(&format!("the model does not have the move {:?}", action.step)));
            }
            self.take(&action, tell).await?;
            let digest = self.world.core.digest();
            if let (false, Some(recorded)) = (self.mutated, &recorded.digest)
                && *recorded != digest
            {
                return Err(self.differs(&format!("the state has the digest {digest}, and {recorded} is recorded")));
            }
        }
        self.finish(tell).await?;
        self.journal().await
    }

    async fn take(&mut self, action: &Move<Step>, tell: &mut impl FnMut(&Happened<'_>)) -> Result<(), Verdict> {
        let effects = match &mut self.rig {
            Some(rig) => {
                let (effects, machine) = rig.take(&action.step).await.map_err(|error| self.differs(&error))?;
                self.world.follow(action, &effects, machine);
                effects
            }
            None => self.world.take(action).map_err(|refused| self.differs(&refused))?,
        };
        self.taken += 1;
        tell(&Happened {
            number: self.taken,
            step: &action.step.clone().into(),
            text: format!("{:?}", action.step),
            effects: Some(format!("{effects:?}")),
            digest: self.world.core.digest(),
        });
        let is_broken = |promise: &&PromiseOf<DelegationModel>| match promise.check {
            Check::Always(always) => !self.model.holds(always, &self.world),
            Check::Eventually { .. } => false,
        };
        match self.model.promises().iter().filter(|promise| self.asks_for(promise.name)).find(is_broken) {
            Some(broken) => Err(Verdict::Broken { promise: broken.name, step: self.taken }),
            None => self.callers().await,
        }
    }

    /// What leads and workers are told must be what the machine wants them told.
    async fn callers(&mut self) -> Result<(), Verdict> {
        let Some(rig) = &mut self.rig else { return Ok(()) };
        rig.callers().await.map_err(|error| self.differs(&error))
    }

    /// Lets happen what is owed, and asks for what must have come by then.
    async fn finish(&mut self, tell: &mut impl FnMut(&Happened<'_>)) -> Result<(), Verdict> {
        for _ in 0..FINISH_STEPS_MAX {
            let is_owed = |action: &Move<Step>| {
                let comes = self.rig.as_ref().is_none_or(|rig| rig.comes_to(&action.step));
                comes && self.model.is_fair(&action.step, action.message)
            };
            let next = self.model.moves(&self.world).into_iter().find(is_owed);
            let Some(next) = next else { break };
            self.take(&next, tell).await?;
        }
        for promise in self.model.promises().iter().filter(|promise| self.asks_for(promise.name)) {
            let Check::Eventually { when, then } = promise.check else { continue };
            let is_owed = |ticket| {
                self.model.holds_for(when, &self.world, ticket) && !self.model.holds_for(then, &self.world, ticket)
            };
            if (0..self.model.count()).any(is_owed) {
                return Err(Verdict::Broken { promise: promise.name, step: self.taken });
            }
        }
        Ok(())
    }

    /// The journal must hold what the store was asked for and said to have, no more and no less: what a daemon begins with
    /// that is killed now.
    async fn journal(&mut self) -> Result<(), Verdict> {
        let Some(rig) = &mut self.rig else { return Ok(()) };
        let (_, restarted) = rig.take(&Step::Restarted).await.map_err(|error| self.differs(&error))?;
        if *restarted.stored() == self.world.store {
            return Ok(());
        }
        let problem = format!("the journal holds {:?}, and the store has {:?}", restarted.stored(), self.world.store);
        Err(self.differs(&problem))
    }

    /// The real code must keep every promise; a mutant is asked for the one that must kill it, whatever else it breaks.
    fn asks_for(&self, promise: &str) -> bool {
        !self.mutated || self.promise == promise
    }

    fn differs(&self, problem: &dyn std::fmt::Display) -> Verdict {
        super::differs(self.taken, problem)
    }
}
