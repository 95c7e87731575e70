//! Replays a recorded path: on the machine alone, on the model, and on the tokio runtime.
//!
//! On the real code every promise must hold on each step and the state after it must be the recorded one; what is still
//! owed after the last step is then let happen, so that a promise of what must come in the end is checked as well. Under
//! the mutant of the file, its promise must break.

use lastword_core::{Limits, Step};
use lastword_model::{
    ConnectionModel, Counterexample, Move, RecordedStep, Said, World,
    promises::{self, Check, View},
};

use crate::rig::Rig;

pub mod delegation;

/// How many steps may follow the recorded ones until nothing more is owed. Far more than any path leaves open.
const FINISH_STEPS_MAX: usize = 1000;

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every promise held, and every state was the recorded one.
    Kept,
    /// A promise broke.
    Broken {
        /// Its name.
        promise: &'static str,
        /// After this step, from 1.
        step: usize,
    },
    /// The code did something else than what is recorded; the sentence says what.
    Differs(String),
}

/// A step of a replay, as it happens.
#[derive(Debug)]
pub struct Happened<'a> {
    /// Its number, from 1.
    pub number: usize,
    /// The step.
    pub step: &'a RecordedStep,
    /// The same as text.
    pub text: String,
    /// Its effects as text; none where the machine did not owe the step.
    pub effects: Option<String>,
    /// The digest of the state after it.
    pub digest: String,
}

/// What a replay runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The machine alone; each of its steps must also be a move of the model.
    Model,
    /// The tokio runtime.
    Runtime,
}

/// Replays a path on the model or on the runtime. Where `forced` is a mutant's guard, the states may be others than the
/// recorded ones.
///
/// `tell` is called for each step as it happens.
pub fn replay(
    counterexample: &Counterexample,
    model: &ConnectionModel,
    limits: Limits,
    stage: Stage,
    mut tell: impl FnMut(&Happened<'_>),
) -> Verdict {
    let mutated = limits.forced.is_some() || crate::mutants::is_patched();
    let model = model.with_limits(limits);
    let run = async {
        let rig = (stage == Stage::Runtime).then(|| Rig::new(&model));
        let mut run =
            Run { model: &model, world: model.initial(), rig, mutated, promise: &counterexample.promise, taken: 0 };
        match run.all(counterexample, &mut tell).await {
            Ok(()) => Verdict::Kept,
            Err(verdict) => verdict,
        }
    };
    runtime().block_on(run)
}

/// A tokio runtime whose clock is paused: a wait is over as soon as every task is idle.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without IO needs nothing of the system")
}

struct Run<'a> {
    model: &'a ConnectionModel,
    world: World,
    rig: Option<Rig>,
    mutated: bool,
    /// The promise of the file.
    promise: &'a str,
    taken: usize,
}

impl Run<'_> {
    async fn all(&mut self, path: &Counterexample, tell: &mut impl FnMut(&Happened<'_>)) -> Result<(), Verdict> {
        for recorded in &path.steps {
            let message = recorded.message.checked_sub(1).filter(|message| *message < self.model.messages.len());
            let Some(message) = message else {
                return Err(Verdict::Differs(format!("the configuration has no message {}", recorded.message)));
            };
            let Ok(step) = Step::try_from(recorded.step.clone()) else {
                return Err(self.differs(&format!("{:?} is no step of a connection", recorded.step)));
            };
            let action = Move { step, message };
            let owed = self.model.owes(&self.world, &action);
            if !self.mutated && owed != recorded.digest.is_some() {
                let now = if owed { "takes" } else { "refuses" };
                return Err(self.differs(&format!("the machine now {now} the step {:?}", action.step)));
            }
            if !owed {
                // The real code never comes to a step that only its mutant takes.
                self.taken += 1;
                let digest = self.world.core.digest();
                let text = format!("{:?}", action.step);
                tell(&Happened { number: self.taken, step: &recorded.step, text, effects: None, digest });
                continue;
            }
            let is_move = action.step.is_arrival() || self.model.moves(&self.world).contains(&action);
            if !self.mutated && !is_move {
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
        self.wire().await
    }

    async fn take(&mut self, action: &Move, tell: &mut impl FnMut(&Happened<'_>)) -> Result<(), Verdict> {
        let messages = &self.model.messages;
        let effects = match &mut self.rig {
            // What stands behind a guard is the model's; its front is on the rig.
            Some(rig) if !self.world.is_of_back(&action.step) => {
                let (effects, core) = rig.take(action).await.map_err(|error| differs(self.taken, &error))?;
                self.world.core = core;
                self.world.observe(messages, action, &effects);
                effects
            }
            _ => self.world.take(messages, action).map_err(|error| differs(self.taken, &error))?,
        };
        self.taken += 1;
        let digest = self.world.core.digest();
        tell(&Happened {
            number: self.taken,
            step: &action.step.clone().into(),
            text: format!("{:?}", action.step),
            effects: Some(format!("{effects:?}")),
            digest,
        });
        let broken = |promise: &&promises::Promise| !promise.holds(messages, &self.world);
        match self.model.promises().iter().filter(|promise| self.asks_for(promise.name)).find(broken) {
            Some(broken) => Err(Verdict::Broken { promise: broken.name, step: self.taken }),
            None => Ok(()),
        }
    }

    /// Lets happen what is owed, and asks for what must have come by then.
    async fn finish(&mut self, tell: &mut impl FnMut(&Happened<'_>)) -> Result<(), Verdict> {
        for _ in 0..FINISH_STEPS_MAX {
            // The peer sends nothing more. But a machine that closed the connection ends the input itself.
            let is_owed = |action: &Move| {
                let is_sent = action.step == self.model.messages[action.message].beginning();
                let ends_itself = action.step == Step::InputEnded && self.world.core.is_closed();
                (!is_sent && self.model.is_fair(&action.step, action.message)) || ends_itself
            };
            let next = self.model.moves(&self.world).into_iter().find(is_owed);
            let Some(next) = next else { break };
            self.take(&next, tell).await?;
        }
        for promise in self.model.promises().iter().filter(|promise| self.asks_for(promise.name)) {
            let Check::Eventually { when, then } = promise.check else { continue };
            let view = View { messages: &self.model.messages, world: &self.world };
            if (0..self.model.messages.len()).any(|message| when(view, message) && !then(view, message)) {
                return Err(Verdict::Broken { promise: promise.name, step: self.taken });
            }
        }
        Ok(())
    }

    /// What a client reads must be what the machine wanted written.
    async fn wire(&mut self) -> Result<(), Verdict> {
        let taken = self.taken;
        let Some(rig) = &mut self.rig else { return Ok(()) };
        let responses = rig.responses().await.map_err(|error| differs(taken, &error))?;
        for (message, fate) in self.model.messages.iter().zip(&self.world.fates) {
            let Some(id) = &message.id else { continue };
            let read = responses.get(id.raw()).map_or(&[][..], Vec::as_slice);
            if read.len() != usize::from(fate.responses) {
                let problem = format!(
                    "request {} got {} responses on the wire, and {} by the machine",
                    id.raw(),
                    read.len(),
                    fate.responses
                );
                return Err(differs(taken, &problem));
            }
            let is_said = match fate.said {
                None => true,
                Some(Said::Cancelled) => read[0]["result"]["stopReason"] == "cancelled",
                Some(Said::Result) => read[0].get("result").is_some() && read[0]["result"]["stopReason"] != "cancelled",
                Some(Said::RequestCancelled) => read[0]["error"]["code"] == -32800,
                Some(Said::Error | Said::Refused) => read[0].get("error").is_some(),
            };
            if !is_said {
                return Err(differs(
                    taken,
                    &format!("request {} was answered {}, and {:?} by the machine", id.raw(), read[0], fate.said),
                ));
            }
        }
        Ok(())
    }

    /// The real code must keep every promise; a mutant is asked for the one that must kill it, whatever else it breaks.
    fn asks_for(&self, promise: &str) -> bool {
        !self.mutated || self.promise == promise
    }

    fn differs(&self, problem: &str) -> Verdict {
        differs(self.taken, &problem)
    }
}

fn differs(taken: usize, problem: &dyn std::fmt::Display) -> Verdict {
    Verdict::Differs(format!("after step {taken}: {problem}"))
}
