//! A report as a job summary: Markdown with the verdict first, then the table, the counterexamples as Mermaid diagrams,
//! and the drift as diffs.

use std::fmt::Write as _;

use indicatif::HumanCount;

use super::{Breach, Drift, Report, Row, Status, diagram, terminal, text};

/// The whole report as GitHub Flavored Markdown.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = format!("## {} {}\n", sign(report.exit_code()), escape(&report.verdict()));
    if !report.rows.is_empty() {
        out.push_str("\n| | promise | layer | expected | found | states | edges | time |\n");
        out.push_str("| --- | --- | --- | --- | --- | --: | --: | --: |\n");
        for (place, rows) in report.places() {
            let _ = writeln!(out, "| | **{}** | | | | | | |", escape(&place));
            for row in rows {
                out.push_str(&table_row(row));
            }
        }
    }
    let sentences: String = report.rows.iter().filter_map(sentence).collect();
    if !sentences.is_empty() {
        let _ = write!(out, "\n### Not as expected\n\n{sentences}");
    }
    for breach in &report.breaches {
        out.push_str(&section(breach));
    }
    for drift in &report.drift {
        out.push_str(&drift_section(drift));
    }
    out
}

fn sign(status: Status) -> &'static str {
    match status {
        Status::Kept => "✅",
        Status::Broken => "❌",
        Status::Drift => "⚠️",
        Status::Unverified => "❓",
    }
}

fn table_row(row: &Row) -> String {
    let count = |count: Option<u64>| count.map(|count| HumanCount(count).to_string()).unwrap_or_default();
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
        sign(row.status()),
        escape(&row.promise),
        row.layer,
        row.expected,
        row.found,
        count(row.states),
        count(row.edges),
        row.time_words(),
    )
}

fn sentence(row: &Row) -> Option<String> {
    let sentence = row.sentence()?;
    let (sign, name) = (sign(row.status()), escape(&row.name()));
    Some(format!("- {sign} **{name}** ({}): {}\n", row.layer, escape(&sentence)))
}

fn section(breach: &Breach) -> String {
    let mut out = format!(
        "\n### {} {} broken in {}\n\n{}\n\n",
        sign(Status::Broken),
        escape(&breach.promise),
        escape(&breach.configuration),
        escape(&breach.statement)
    );
    if breach.diagram.lines.is_empty() {
        out.push_str("The first state breaks it already, so there is no step to show.\n");
    } else {
        match diagram::mermaid(&breach.diagram) {
            Ok(mermaid) => out.push_str(&fenced("mermaid", &mermaid)),
            // What Mermaid cannot draw, the text tells as a list.
            Err(_) => {
                let list = diagram::render(&breach.diagram, terminal::WIDTH_DEFAULT);
                out.push_str(&fenced("text", &list));
            }
        }
    }
    if let Some(file) = &breach.file {
        let _ = write!(out, "\nIt was saved to this file:\n\n{}", fenced("text", &text::clean(file)));
    }
    if let Some(command) = &breach.command {
        let _ = write!(out, "\nThis replays it:\n\n{}", fenced("sh", &text::clean(command)));
    }
    out
}

fn drift_section(drift: &Drift) -> String {
    let name = escape(&format!("{}{}", drift.name(), drift.relied_on_by()));
    format!("\n### {} DRIFT {name}\n\n{}\n\n{}", sign(Status::Drift), drift.kind, fenced("diff", &drift.change))
}

/// A text in one line in which no character is markup.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text::clean(text).trim().chars() {
        if r"\`*_[]<>|~&#!$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// A code block whose fence is longer than any run of backticks in it, so that nothing in it can end it.
fn fenced(language: &str, body: &str) -> String {
    let longest = body.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(longest + 1));
    format!("{fence}{language}\n{}\n{fence}\n", body.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_text_stays_text() {
        assert_eq!(escape("a|b `c` *d*\n<e>"), r"a\|b \`c\` \*d\* \<e\>");
    }

    #[test]
    fn nothing_in_a_code_block_can_end_it() {
        assert_eq!(fenced("diff", "+ ````\n"), "`````diff\n+ ````\n`````\n");
    }
}
