//! The trace of a service is enough to do all of it again, and everything in it may come where it came.

use std::{fs, time::Duration};

use lastword_core::delegation::{Delegation, Effects, Limits, Record, Step, Tables};
use serde_json::Value;

use crate::{crash::killed_after, trials};

trials! {
    the_steps_of_daemons_give_the_same_effects_and_states_again_and_each_may_come,
}

const DAEMONS: u64 = 3;
const LIFE: Duration = Duration::from_millis(300);

fn the_steps_of_daemons_give_the_same_effects_and_states_again_and_each_may_come() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = folder.path().join("fleet.journal");
    let (mut steps, mut asks, mut grouped) = (0, 0, 0);
    for daemon in 0..DAEMONS {
        let trace = folder.path().join(format!("trace-{daemon}"));
        killed_after(LIFE, &journal, daemon, Some(&trace));
        let trace = fs::read_to_string(trace).expect("a trace");
        // The last line may have been cut by the kill.
        let whole = &trace[..=trace.rfind('\n').expect("a line")];
        let mut lines = whole.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let header = lines.next().expect("a first line");
        assert_eq!(header["limits"]["workers_max"], 256);
        let mut stored = Tables::default();
        let rows: Vec<Record> = serde_json::from_value(header["stored"].clone()).expect("rows");
        assert_eq!(rows.is_empty(), daemon == 0, "only the first journal is new");
        rows.into_iter().for_each(|row| stored.put(row));
        let mut core = Delegation::restore(Limits::default(), stored);
        for line in lines {
            let step: Step = serde_json::from_value(line["step"].clone()).expect("a step");
            let effects: Effects = serde_json::from_value(line["effects"].clone()).expect("effects");
            if !step.is_said() {
                assert!(core.may_come().contains(&step), "nothing owes {step:?}");
            }
            asks += usize::from(matches!(step, Step::Asked { .. }));
            grouped += usize::from(matches!(step, Step::Persisted { entries: 2.. }));
            assert_eq!(core.apply(step).expect("it was applied"), effects);
            assert_eq!(core.digest(), line["digest"]);
            steps += 1;
        }
    }
    assert!(steps > 100 && asks > 0 && grouped > 0, "{steps} steps, {asks} questions, {grouped} group commits");
}
