//! The ticket service in a trace: another machine beside the recorded one, from the rows that were stored when it began.

use lastword_core::delegation::{Delegation, Effects, Limits, Record, Step, Tables};
use serde::Deserialize;

use super::Problem;

/// A line of a service, as [`super::check`] reads it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    pub(super) service: u64,
    limits: Option<RecordedLimits>,
    stored: Option<Vec<Record>>,
    step: Option<Step>,
    effects: Option<Effects>,
    digest: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedLimits {
    workers_max: usize,
    workers_kept_max: usize,
    tickets_queued_max: usize,
    tickets_max: usize,
    questions_open_max: usize,
    watches_max: usize,
    replies_kept_max: usize,
}

/// What a line says.
pub(super) enum Said {
    Opened(Box<Delegation>),
    Step(Step, Effects, String),
}

impl Line {
    pub(super) fn said(self) -> Result<Said, Problem> {
        match (self.limits, self.stored, self.step, self.effects, self.digest) {
            (Some(recorded), Some(rows), None, None, None) => {
                let mut limits = Limits::default();
                limits.workers_max = recorded.workers_max;
                limits.workers_kept_max = recorded.workers_kept_max;
                limits.tickets_queued_max = recorded.tickets_queued_max;
                limits.tickets_max = recorded.tickets_max;
                limits.questions_open_max = recorded.questions_open_max;
                limits.watches_max = recorded.watches_max;
                limits.replies_kept_max = recorded.replies_kept_max;
                let mut stored = Tables::default();
                rows.into_iter().for_each(|row| stored.put(row));
                Ok(Said::Opened(Box::new(Delegation::restore(limits, stored))))
            }
            (None, None, Some(step), Some(effects), Some(digest)) => Ok(Said::Step(step, effects, digest)),
            _ => Err(Problem::Mixed),
        }
    }
}

/// Takes a recorded step.
pub(super) fn take(machine: &mut Delegation, step: Step, recorded: &Effects, digest: &str) -> Result<(), Problem> {
    if !step.is_said() && !machine.may_come().contains(&step) {
        return Err(Problem::NotOwed(Box::new(step)));
    }
    let computed =
        machine.apply(step.clone()).map_err(|why| Problem::Refused(Box::new(step.clone()), why.to_string()))?;
    if computed != *recorded {
        return Err(Problem::OtherEffects {
            step: format!("{step:?}"),
            computed: format!("{computed:?}"),
            recorded: format!("{recorded:?}"),
        });
    }
    let state = machine.digest();
    if state != digest {
        return Err(Problem::OtherState { computed: state, recorded: digest.to_owned() });
    }
    Ok(())
}
