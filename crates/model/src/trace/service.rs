//! The ticket service in a trace: another machine beside the recorded one, from the rows that were stored when it began, and
//! what its tickets meet.

use std::collections::BTreeMap;

use lastword_core::delegation::{Effects, LeadId, Limits, Record, RequestKey, Step, Tables};
use serde::Deserialize;

use super::Problem;
use crate::{
    delegation::{DelegationModel, Fate, PROMISES, View, World},
    model::PromiseOf,
    promises::Check,
    world::Move,
};

/// A line of a service, as [`super::check`] reads it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    pub(super) service: u64,
    limits: Option<Limits>,
    stored: Option<Vec<Record>>,
    step: Option<Step>,
    effects: Option<Effects>,
    digest: Option<String>,
}

/// What a line says.
pub(super) enum Said {
    Opened(Limits, Tables),
    Step(Step, Effects, String),
}

impl Line {
    pub(super) fn said(self) -> Result<Said, Problem> {
        match (self.limits, self.stored, self.step, self.effects, self.digest) {
            (Some(limits), Some(rows), None, None, None) => {
                let mut stored = Tables::default();
                rows.into_iter().for_each(|row| stored.put(row));
                Ok(Said::Opened(limits, stored))
            }
            (None, None, Some(step), Some(effects), Some(digest)) => Ok(Said::Step(step, effects, digest)),
            _ => Err(Problem::Mixed),
        }
    }
}

/// One service of a trace: a machine of our own beside the recorded one, and what its tickets have met. It remembers each
/// ticket, as the machine does, and looks at each of them once a step, as the digest does.
pub(super) struct Witness {
    world: World,
    /// The tickets that were sent with a key, by their numbers in the world.
    keys: BTreeMap<(LeadId, RequestKey), usize>,
}

impl Witness {
    /// A service that begins with what was stored, which must keep the promises already.
    pub(super) fn new(limits: Limits, stored: Tables) -> Result<Self, Problem> {
        let keyed = (0..).zip(stored.tickets.values());
        let keys = keyed.filter_map(|(number, row)| Some(((row.lead, row.key.clone()?), number))).collect();
        let witness = Self { world: World::restored(limits, stored), keys };
        witness.judge()?;
        Ok(witness)
    }

    /// Takes a recorded step. What leads and workers say may always come; everything else must be owed.
    pub(super) fn take(&mut self, step: Step, recorded: &Effects, digest: &str) -> Result<(), Problem> {
        if !step.is_said() && !self.world.core.may_come().contains(&step) {
            return Err(Problem::NotOwed(Box::new(step)));
        }
        let message = self.ticket_of(&step);
        let action = Move { step, message };
        let computed = self.world.take(&action);
        let step = action.step;
        let computed = computed.map_err(|why| Problem::Refused(Box::new(step.clone()), why.to_string()))?;
        if computed != *recorded {
            return Err(Problem::OtherEffects {
                step: format!("{step:?}"),
                computed: format!("{computed:?}"),
                recorded: format!("{recorded:?}"),
            });
        }
        let state = self.world.core.digest();
        if state != digest {
            return Err(Problem::OtherState { computed: state, recorded: digest.to_owned() });
        }
        self.judge()
    }

    fn judge(&self) -> Result<(), Problem> {
        let view = View { world: &self.world };
        let is_broken = |promise: &&PromiseOf<DelegationModel>| match promise.check {
            Check::Always(always) => !always(view),
            Check::Eventually { .. } => false,
        };
        match PROMISES.iter().find(is_broken) {
            Some(broken) => Err(Problem::Broken(broken.name)),
            None => Ok(()),
        }
    }

    /// The number of the ticket that a step is about; a new one where it is sent for the first time.
    fn ticket_of(&mut self, step: &Step) -> usize {
        let ticket = match step {
            Step::Sent { lead, key, .. } => {
                let next = self.world.fates.len();
                let number = match key {
                    Some(key) => *self.keys.entry((*lead, key.clone())).or_insert(next),
                    None => next,
                };
                if number == next {
                    self.world.fates.push(Fate::default());
                }
                return number;
            }
            Step::Replied { ticket, .. } => *ticket,
            Step::Polled { ticket, .. } | Step::Seen { ticket, .. } => Some(*ticket),
            // Of no other step is it remembered whose it was.
            _ => None,
        };
        ticket.and_then(|ticket| self.world.number(ticket)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests;
