//! What came of all rounds: a row a promise and scenario, as a table, JSON, JUnit and Markdown.

use std::fmt::Write as _;

use comfy_table::{Attribute, Cell, Color, ContentArrangement, LineStyle, Table, TableStyle};
use lastword_model::promises;
use quick_junit::{NonSuccessKind, SerializeError, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Value, json};

use super::{
    path::Untold,
    play::Round,
    scenario::{self, Scenario},
    transcript::{self, Entry},
};

/// The rows of the promises. That each promise of a scenario has one is held by a test.
const PROMISES: &str = include_str!("../../../../specs/promises.toml");

/// The width where there is no terminal to ask.
const WIDTH_DEFAULT: u16 = 120;

/// The least width that is laid out; on a narrower terminal lines run over its edge.
const WIDTH_MIN: u16 = 80;

const RULES: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// What one scenario shows of one promise.
pub(crate) struct Row {
    pub(crate) promise: &'static str,
    pub(crate) scenario: String,
    title: String,
    rounds: u32,
    kept: u32,
    broken: u32,
    not_supported: Option<String>,
    not_shown: Option<String>,
    first_broken: Option<Breach>,
}

/// The first round in which a promise was broken.
struct Breach {
    round: u32,
    why: String,
    transcript: Vec<Entry>,
}

/// How a row is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Kept,
    Broken,
    NotSupported,
    NotShown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Kept,
    Broken,
    NothingShown,
}

impl Row {
    /// A row for each promise that a scenario can show.
    pub(crate) fn of(scenario: &Scenario) -> Vec<Self> {
        let mut rows: Vec<Self> = Vec::new();
        for claim in &scenario.claims {
            if rows.iter().all(|row| row.promise != claim.promise) {
                rows.push(Self {
                    promise: claim.promise,
                    scenario: scenario.name.clone(),
                    title: scenario.title.clone(),
                    rounds: 0,
                    kept: 0,
                    broken: 0,
                    not_supported: None,
                    not_shown: None,
                    first_broken: None,
                });
            }
        }
        rows
    }

    pub(crate) fn not_supported(&mut self, why: &str) {
        self.not_supported.get_or_insert(why.to_owned());
    }

    fn told(&self) -> Told {
        match self {
            Self { broken: 1.., .. } => Told::Broken,
            Self { kept: 1.., .. } => Told::Kept,
            Self { not_supported: Some(_), .. } => Told::NotSupported,
            _ => Told::NotShown,
        }
    }

    fn verdict(&self) -> String {
        let because = |why: &Option<String>| why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        match self.told() {
            Told::Kept if self.kept == self.rounds => format!("kept, {} rounds", self.rounds),
            Told::Kept => format!("kept, {} of {} rounds; else not shown", self.kept, self.rounds),
            Told::Broken => format!("broken, {} of {}", self.broken, self.rounds),
            Told::NotSupported => format!("not supported{}", because(&self.not_supported)),
            Told::NotShown => format!("not shown{}", because(&self.not_shown)),
        }
    }

    fn sign(&self) -> &'static str {
        match self.told() {
            Told::Kept => "✓",
            Told::Broken => "✗",
            Told::NotSupported | Told::NotShown => "–",
        }
    }

    fn word(&self) -> &'static str {
        match self.told() {
            Told::Kept => "kept",
            Told::Broken => "broken",
            Told::NotSupported => "not supported",
            Told::NotShown => "not shown",
        }
    }
}

/// Counts a round. A promise that several claims of a scenario stand for is kept if all of them hold.
pub(crate) fn count(rows: &mut [Row], scenario: &Scenario, round: &Round) {
    for row in rows {
        let mine: Vec<&scenario::Verdict> = scenario
            .claims
            .iter()
            .zip(&round.verdicts)
            .filter(|(claim, _)| claim.promise == row.promise)
            .map(|(_, verdict)| verdict)
            .collect();
        row.rounds += 1;
        let broken = mine.iter().find_map(|verdict| match verdict {
            scenario::Verdict::Broken(why) => Some(why),
            _ => None,
        });
        if let Some(why) = broken {
            row.broken += 1;
            row.first_broken.get_or_insert_with(|| Breach {
                round: round.transcript.first().map_or(0, |entry| entry.round),
                why: why.clone(),
                transcript: round.transcript.clone(),
            });
            continue;
        }
        let mut is_kept = true;
        for verdict in mine {
            let (place, why) = match verdict {
                scenario::Verdict::NotSupported(why) => (&mut row.not_supported, why),
                scenario::Verdict::NotShown(why) => (&mut row.not_shown, why),
                _ => continue,
            };
            is_kept = false;
            place.get_or_insert_with(|| why.clone());
        }
        row.kept += u32::from(is_kept);
    }
}

pub(crate) struct Report {
    command: String,
    /// In the order of the promises.
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(command: &[String], mut rows: Vec<Row>) -> Self {
        let order: Vec<String> = statements().into_iter().map(|(name, _)| name).collect();
        rows.sort_by_key(|row| order.iter().position(|name| name == row.promise));
        Self { command: command.join(" "), rows }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let has = |told| self.rows.iter().any(|row| row.told() == told);
        if has(Told::Broken) {
            Verdict::Broken
        } else if has(Told::Kept) {
            Verdict::Kept
        } else {
            Verdict::NothingShown
        }
    }

    /// The verdict in a sentence, with its counts.
    fn sentence(&self) -> String {
        let count = |told| self.rows.iter().filter(|row| row.told() == told).count();
        let (kept, broken) = (count(Told::Kept), count(Told::Broken));
        let rest = [(Told::NotSupported, "not supported"), (Told::NotShown, "not shown")];
        let rest: String = rest
            .map(|(told, words)| (count(told), words))
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, words)| format!(", {count} {words}"))
            .collect();
        format!("{kept} kept, {broken} broken{rest}: {}", self.command)
    }

    /// For people at a terminal. It carries ANSI styles.
    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        let width = table.width().unwrap_or(WIDTH_DEFAULT).max(WIDTH_MIN);
        table
            .load_style(RULES)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width)
            .enforce_styling()
            .set_header(["promise", "scenario", "verdict"].map(|head| Cell::new(head).add_attribute(Attribute::Bold)));
        let mut promise = "";
        for row in &self.rows {
            let verdict = Cell::new(format!("{} {}", row.sign(), row.verdict()));
            let name = if std::mem::replace(&mut promise, row.promise) == row.promise { "" } else { row.promise };
            table.add_row([
                Cell::new(name),
                Cell::new(&row.scenario),
                match row.told() {
                    Told::Kept => verdict.fg(Color::DarkGreen),
                    Told::Broken => verdict.fg(Color::DarkRed).add_attribute(Attribute::Bold),
                    Told::NotSupported | Told::NotShown => verdict.fg(Color::DarkYellow),
                },
            ]);
        }
        table.style_text_only();
        let mut out: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        for (row, breach) in self.breaches() {
            let _ = write!(out, "\n{}", picture(row, breach));
        }
        let _ = writeln!(out, "\n{}", self.sentence());
        out
    }

    fn breaches(&self) -> impl Iterator<Item = (&Row, &Breach)> {
        self.rows.iter().filter_map(|row| row.first_broken.as_ref().map(|breach| (row, breach)))
    }

    pub(crate) fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let reason = match row.told() {
                    Told::Broken => row.first_broken.as_ref().map(|breach| &breach.why),
                    Told::NotSupported => row.not_supported.as_ref(),
                    Told::NotShown => row.not_shown.as_ref(),
                    Told::Kept => None,
                };
                json!({
                    "promise": row.promise,
                    "scenario": row.scenario,
                    "title": row.title,
                    "verdict": row.word(),
                    "rounds": row.rounds,
                    "kept": row.kept,
                    "broken": row.broken,
                    "reason": reason,
                    "first_broken": row.first_broken.as_ref().map(|breach| json!({
                        "round": breach.round,
                        "transcript": transcript::show(&breach.transcript),
                    })),
                })
            })
            .collect();
        let verdict = match self.verdict() {
            Verdict::Kept => "kept",
            Verdict::Broken => "broken",
            Verdict::NothingShown => "nothing shown",
        };
        json!({"command": self.command, "verdict": verdict, "rows": rows})
    }

    pub(crate) fn junit(&self) -> Result<String, SerializeError> {
        let mut document = quick_junit::Report::new("lastword conform");
        for rows in self.rows.chunk_by(|one, next| one.promise == next.promise) {
            let mut suite = TestSuite::new(rows[0].promise);
            suite.add_test_cases(rows.iter().map(|row| {
                let mut status = match row.told() {
                    Told::Kept => TestCaseStatus::success(),
                    Told::Broken => TestCaseStatus::non_success(NonSuccessKind::Failure),
                    Told::NotSupported | Told::NotShown => TestCaseStatus::skipped(),
                };
                if row.told() != Told::Kept {
                    status.set_type(row.word()).set_message(row.verdict());
                }
                if let Some(breach) = &row.first_broken {
                    status.set_description(picture(row, breach));
                }
                let mut case = TestCase::new(row.scenario.clone(), status);
                case.set_classname(row.promise);
                case
            }));
            document.add_test_suite(suite);
        }
        document.to_string()
    }

    pub(crate) fn markdown(&self) -> String {
        let mut out =
            format!("## {}\n\n| promise | scenario | verdict |\n| --- | --- | --- |\n", escape(&self.sentence()));
        for row in &self.rows {
            let verdict = escape(&row.verdict());
            let _ = writeln!(out, "| {} | {} | {} {verdict} |", row.promise, row.scenario, row.sign());
        }
        for (row, breach) in self.breaches() {
            // No line of a transcript can hold a fence at its start.
            let _ = write!(
                out,
                "\n### {} broken in {}\n\n```text\n{}```\n",
                row.promise,
                row.scenario,
                picture(row, breach)
            );
        }
        out
    }
}

/// A broken promise: its statement, what is wrong, and the first broken round.
fn picture(row: &Row, breach: &Breach) -> String {
    let statement = statements()
        .into_iter()
        .find(|(name, _)| name == row.promise)
        .map_or(String::new(), |(_, statement)| statement);
    let mut out = format!("✗ {} broken in {} ({})\n{statement}\n", row.promise, row.scenario, row.title);
    let _ = writeln!(out, "round {}: {}\n", breach.round, breach.why);
    for line in transcript::show(&breach.transcript) {
        let _ = writeln!(out, "{line}");
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// Every promise with its statement, in the order in which they are told.
fn statements() -> Vec<(String, String)> {
    let rows = promises::rows(PROMISES).unwrap_or_default();
    rows.into_iter().map(|row| (row.name, row.statement)).collect()
}

/// The scenarios, what each one shows, and what cannot be shown.
pub(crate) fn list(scenarios: &[Scenario], untold: &[Untold]) -> String {
    let mut out = String::new();
    for scenario in scenarios {
        let promises: Vec<&str> = Row::of(scenario).iter().map(|row| row.promise).collect();
        let _ = writeln!(out, "{}\n    {}\n    shows {}", scenario.name, scenario.title, promises.join(", "));
        let _ = writeln!(out, "    from {}", scenario.sources.join(", "));
    }
    if !untold.is_empty() {
        out += "\nNot told at the wire:\n";
    }
    for untold in untold {
        let _ = writeln!(out, "{}\n    {}", untold.name, untold.why);
    }
    let _ = writeln!(out, "\n{} scenarios", scenarios.len());
    out
}

#[cfg(test)]
mod tests {
    use super::{super::scenario::Role, *};

    #[test]
    fn every_promise_of_every_scenario_has_a_statement() {
        let known = statements();
        for role in [Role::Agent, Role::Client] {
            for row in super::super::all(role).0.iter().flat_map(Row::of) {
                assert!(known.iter().any(|(name, _)| name == row.promise), "{}", row.promise);
            }
        }
    }

    #[test]
    fn no_two_scenarios_have_one_name() {
        for role in [Role::Agent, Role::Client] {
            let mut names: Vec<String> = super::super::all(role).0.into_iter().map(|scenario| scenario.name).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
