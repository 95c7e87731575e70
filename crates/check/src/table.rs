//! The machine of delegation as a table, state by step, asked of the code: what becomes of a ticket, or why the step is
//! refused. It stands in specs/delegation/README.md between two markers, and a run says where it is stale.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use lastword_core::delegation::{
    Call, Delegation, LeadId, Limits, QuestionId, Refused, RequestKey, Step, TicketId, TurnEnd, WorkerId,
};

/// The page, from the root of the repository.
pub const PAGE: &str = "specs/delegation/README.md";

/// The command that writes it.
pub const COMMAND: &str = "cargo run --quiet --profile checker --package lastword-check -- table";

const BEGIN: &str = "<!-- The table is written by `lastword-check table`. -->\n";
const END: &str = "<!-- The end of the table. -->\n";

const LEAD: LeadId = LeadId(1);
const WORKER: WorkerId = WorkerId(1);

/// Whether the page has the table of this code.
///
/// # Errors
///
/// A sentence where it has another one, or none.
pub fn check(root: &Path) -> Result<(), String> {
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).map_err(|error| format!("{PAGE} could not be read: {error}"))?;
    if with_table(&page)? == page {
        Ok(())
    } else {
        Err(format!("the table in {PAGE} is stale; `{COMMAND}` writes it"))
    }
}

/// Writes the table into the page.
///
/// # Errors
///
/// A sentence where the page cannot be read or written, or lacks the markers.
pub fn write(root: &Path) -> Result<(), String> {
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).map_err(|error| format!("{PAGE} could not be read: {error}"))?;
    fs::write(&path, with_table(&page)?).map_err(|error| format!("{PAGE} could not be written: {error}"))
}

fn with_table(page: &str) -> Result<String, String> {
    let missing = || format!("{PAGE} lacks the markers of the table: {BEGIN}{END}");
    let (before, rest) = page.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", render()))
}

/// The table, and the sentence of each reason in it.
#[must_use]
pub fn render() -> String {
    let states = states();
    let mut out = String::from("| | state |\n| --: | --- |\n");
    for (number, (machine, ticket)) in (1..).zip(&states) {
        let _ = writeln!(out, "| {number} | {} |", label(machine, *ticket));
    }
    let numbers: Vec<String> = (1..=states.len()).map(|number| number.to_string()).collect();
    let _ = writeln!(out, "\n| step | {} |\n| --- |{}", numbers.join(" | "), " --- |".repeat(states.len()));
    let mut reasons = BTreeSet::new();
    for (name, step) in STEPS {
        let cells = states.iter().map(|(machine, ticket)| match after(machine, *ticket, step(*ticket)) {
            Ok(next) if next == label(machine, *ticket) => "same".to_owned(),
            Ok(next) => match states.iter().position(|(machine, ticket)| label(machine, *ticket) == next) {
                Some(at) => (at + 1).to_string(),
                None => next,
            },
            Err(refused) => {
                reasons.insert(refused);
                format!("*{refused:?}*")
            }
        });
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
    }
    out += "\n| reason | what the caller is told |\n| --- | --- |\n";
    for refused in reasons {
        let _ = writeln!(out, "| {refused:?} | {refused} |");
    }
    out
}

type Brings = fn(TicketId) -> Step;

/// What may happen to a ticket. Its question is its first one.
const STEPS: [(&str, Brings); 17] = [
    ("`Sent`, also again with its key", |ticket| sent(ticket, false)),
    ("`Sent`, a newer one with `replace`", |_| sent(TicketId(9), true)),
    ("`Delivered`", |ticket| Step::Delivered { ticket }),
    ("`Asked`", |ticket| Step::Asked { worker: WORKER, ticket }),
    ("`AnswerTaken`", |_| Step::AnswerTaken { question: QuestionId(1) }),
    ("`AskWindowClosed`", |_| Step::AskWindowClosed { question: QuestionId(1) }),
    ("`Answered`", |_| Step::Answered { lead: LEAD, question: QuestionId(1), watch: false }),
    ("`Replied` to it", |ticket| Step::Replied { worker: WORKER, ticket: Some(ticket) }),
    ("`Replied` to none", |_| Step::Replied { worker: WORKER, ticket: None }),
    ("`TurnEnded`", |ticket| Step::TurnEnded { ticket, end: TurnEnd::Ended }),
    ("`TurnEnded` with an error", |ticket| Step::TurnEnded { ticket, end: TurnEnd::Failed }),
    ("`Polled`, until `WindowClosed`", |ticket| Step::Polled { lead: LEAD, ticket }),
    ("`Seen`", |ticket| Step::Seen { lead: LEAD, ticket }),
    ("`Cancelled`", |ticket| Step::Cancelled { lead: LEAD, ticket }),
    ("`Stopped`, its worker", |_| Step::Stopped { lead: LEAD, worker: WORKER }),
    ("`WorkerDied`", |_| Step::WorkerDied { worker: WORKER }),
    ("`Restarted`, after a crash", |_| Step::Restarted),
];

fn sent(ticket: TicketId, replace: bool) -> Step {
    let key = Some(RequestKey::from(ticket.0.to_string().as_str()));
    Step::Sent { lead: LEAD, worker: WORKER, key, replace, watch: false }
}

/// The state of a ticket once the store has all that the step asked it for.
fn after(machine: &Delegation, ticket: TicketId, step: Step) -> Result<String, Refused> {
    let mut machine = machine.clone();
    if step == Step::Restarted {
        machine = Delegation::restore(*machine.limits(), machine.stored().clone());
    }
    machine.apply(step)?;
    store(&mut machine);
    Ok(label(&machine, ticket))
}

fn store(machine: &mut Delegation) {
    while machine.unstored().next().is_some() {
        machine.apply(Step::Persisted { entries: 1 }).expect("the store was asked for it");
    }
}

/// A state in words.
fn label(machine: &Delegation, ticket: TicketId) -> String {
    let Some(row) = machine.decided().tickets.get(&ticket) else { return "none".to_owned() };
    let stage = machine.stage(row.worker).filter(|_| machine.turn(row.worker) == Some(ticket));
    let (state, is_open) = (row.state(), row.is_open());
    let is_handed = row.questions.keys().any(|question| machine.call(*question) == Some(Call::Handed));
    let more = match stage {
        Some("running") if is_handed => ", and its call was handed the answer",
        Some("beginning") => ", and that its turn begins is being stored",
        Some("delivering") if is_open => ", and its prompt is being given",
        Some("paused") => ", and its prompt has ended",
        Some("running" | "delivering") if !is_open => ", and its turn goes on",
        _ => "",
    };
    format!("`{}`{more}", state.as_str())
}

/// One machine for each state that is told apart, with the ticket that is in it.
fn states() -> Vec<(Delegation, TicketId)> {
    let first = TicketId(1);
    let question = QuestionId(1);
    let asked = [Step::Delivered { ticket: first }, Step::Asked { worker: WORKER, ticket: first }];
    let replied = Step::Replied { worker: WORKER, ticket: Some(first) };
    let cancelled = Step::Cancelled { lead: LEAD, ticket: first };
    let ended = Step::TurnEnded { ticket: first, end: TurnEnd::Ended };
    let delivered = Step::Delivered { ticket: first };
    let begun = |steps: &[Step]| {
        let mut machine = spawned();
        for step in [&[sent(first, false)], steps].concat() {
            machine.apply(step).expect("the steps of a state are taken");
            store(&mut machine);
        }
        (machine, first)
    };
    let beginning = {
        let mut machine = spawned();
        machine.apply(sent(first, false)).expect("a worker that lives takes tickets");
        machine.apply(Step::Persisted { entries: 1 }).expect("the store was asked for it");
        (machine, first)
    };
    let queued = {
        let (mut machine, _) = begun(std::slice::from_ref(&delivered));
        machine.apply(sent(TicketId(2), false)).expect("a worker that lives takes tickets");
        store(&mut machine);
        (machine, TicketId(2))
    };
    let answered = Step::Answered { lead: LEAD, question, watch: false };
    vec![
        (spawned(), first),
        queued,
        beginning,
        begun(&[]),
        begun(std::slice::from_ref(&delivered)),
        begun(&asked),
        begun(&[&asked[..], std::slice::from_ref(&answered)].concat()),
        begun(&[&asked[..], std::slice::from_ref(&ended)].concat()),
        begun(&[&asked[..], &[answered, replied.clone()]].concat()),
        begun(&[delivered.clone(), replied, ended.clone()]),
        begun(&[&asked[..], &[Step::WorkerDied { worker: WORKER }]].concat()),
        begun(&[&asked[..], std::slice::from_ref(&cancelled)].concat()),
        begun(&[delivered, cancelled, ended]),
    ]
}

fn spawned() -> Delegation {
    let mut machine = Delegation::new(Limits::default());
    machine.apply(Step::Spawned { lead: LEAD }).expect("a new machine takes a worker");
    store(&mut machine);
    machine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_table_of_this_code_and_a_change_of_it_is_noticed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(check(&root), Ok(()));
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        let other = page.replacen("*NotRunning*", "same", 1);
        assert_ne!(other, page);
        assert_eq!(with_table(&other).unwrap(), page);
    }

    #[test]
    fn each_state_is_another_one() {
        let labels: BTreeSet<String> = states().iter().map(|(machine, ticket)| label(machine, *ticket)).collect();
        assert_eq!(labels.len(), states().len());
    }
}
