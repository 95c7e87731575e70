//! A report for people at a terminal: one table, what is not as expected in full sentences, the counterexamples, the
//! drift, and the verdict as the last line, where it is read first.
//!
//! The text carries ANSI styles: write it to `anstream::stdout()`, which takes them out where nobody wants them.

use std::fmt::Write as _;

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle, Width,
};
use indicatif::HumanCount;

use super::text::{self, ADDED, FAINT, HUNK, PLAIN, REMOVED, STRONG};
use super::{Drift, Report, Row, Status, diagram};

/// The width where there is no terminal to ask: wide enough for every table, narrow enough for a log in a browser.
pub const WIDTH_DEFAULT: usize = 120;

/// The least width that is laid out; on a narrower terminal lines run over its edge.
const WIDTH_MIN: usize = 40;

/// Rules above, below and under the heading, and none between columns, where right-aligned numbers are rule enough.
pub(crate) const RULES: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

const HEADINGS: [&str; 7] = ["promise", "layer", "expected", "found", "states", "edges", "time"];

/// The first column of the numbers, which are aligned to the right.
const NUMBERS_FROM: usize = 4;

/// The columns that a narrow terminal does without.
const COUNTS: std::ops::Range<usize> = 4..6;

/// The blanks after each column, of which the table itself draws the last.
const GAP: u16 = 2;

/// The least width of the names, which are hard to read in more than two lines.
const NAME_WIDTH_MIN: u16 = 24;

/// The width that names keep before the counts go: the name of every promise stands in one line.
const NAME_WIDTH_KEPT: u16 = 36;

/// The width of the terminal that stdout is, or [`WIDTH_DEFAULT`].
#[must_use]
pub fn width() -> usize {
    Table::new().width().map_or(WIDTH_DEFAULT, usize::from)
}

/// The whole report for a terminal of `width` columns.
#[must_use]
pub fn render(report: &Report, width: usize) -> String {
    let width = width.max(WIDTH_MIN);
    let mut sections = Vec::new();
    if !report.rows.is_empty() {
        sections.push(table(report, width));
    }
    let sentences: String = report.rows.iter().filter_map(|row| sentence(row, width)).collect();
    if !sentences.is_empty() {
        sections.push(sentences);
    }
    sections.extend(report.breaches.iter().map(|breach| diagram::breach(breach, width)));
    sections.extend(report.drift.iter().map(drift));
    sections.push(text::paragraph(report.exit_code(), &report.verdict(), width));
    sections.join("\n")
}

fn table(report: &Report, width: usize) -> String {
    let mut table = Table::new();
    table
        .load_style(RULES)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(width).unwrap_or(u16::MAX))
        .enforce_styling()
        .set_header(HEADINGS.map(|heading| Cell::new(heading).add_attribute(Attribute::Bold)));
    for (place, rows) in report.places() {
        table.add_row([Cell::new(text::clean(&place)).add_attribute(Attribute::Bold)]);
        for row in rows {
            table.add_row(cells(row));
        }
    }
    table.style_text_only();
    let hidden = arrange(&mut table, width);
    let mut out = String::new();
    for line in table.lines() {
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if !hidden.is_empty() {
        let note = format!("{width} columns leave no room for {}; JSON and Markdown have all.", hidden.join(" and "));
        for line in text::wrap(&note, width) {
            let _ = writeln!(out, "{}", text::styled(FAINT, line));
        }
    }
    out
}

/// Fits the table to the width, and names the columns that there was no room for: the counts go before the names get
/// narrow, and neither a number nor a verdict is ever cut in two.
fn arrange(table: &mut Table, width: usize) -> Vec<&'static str> {
    let widths = table.column_max_content_widths();
    let names = usize::from(NAME_WIDTH_KEPT.min(widths[0] + GAP));
    let others: usize = widths.iter().skip(1).map(|width| usize::from(width + GAP)).sum();
    let mut missing = (names + others).saturating_sub(width);
    let mut hidden = Vec::new();
    for (index, column) in table.column_iter_mut().enumerate().rev() {
        column.set_padding((0, GAP - 1));
        if index >= NUMBERS_FROM {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_constraint(if index == 0 {
            ColumnConstraint::LowerBoundary(Width::Fixed(NAME_WIDTH_MIN.min(widths[index] + GAP)))
        } else if COUNTS.contains(&index) && missing > 0 {
            missing = missing.saturating_sub(usize::from(widths[index] + GAP));
            hidden.insert(0, HEADINGS[index]);
            ColumnConstraint::Hidden
        } else {
            ColumnConstraint::ContentWidth
        });
    }
    hidden
}

fn cells(row: &Row) -> [Cell; 7] {
    let count = |count: Option<u64>| count.map(|count| HumanCount(count).to_string()).unwrap_or_default();
    let (sign, _) = text::sign(row.status());
    let found = Cell::new(format_args!("{sign} {}", row.found));
    [
        Cell::new(format_args!("  {}", text::clean(&row.promise))),
        Cell::new(row.layer),
        Cell::new(&row.expected),
        match row.status() {
            Status::Kept => found.fg(Color::DarkGreen),
            Status::Broken => found.fg(Color::DarkRed).add_attribute(Attribute::Bold),
            Status::Drift => found.fg(Color::DarkYellow),
            Status::Unverified => found.fg(Color::DarkMagenta),
        },
        Cell::new(count(row.states)),
        Cell::new(count(row.edges)),
        Cell::new(row.time_words()),
    ]
}

/// What is not as expected about a row, in a paragraph of its own.
fn sentence(row: &Row, width: usize) -> Option<String> {
    let sentence = row.sentence()?;
    Some(text::paragraph(row.status(), &format!("{} ({}): {sentence}", row.name(), row.layer), width))
}

fn drift(drift: &Drift) -> String {
    let name = text::styled(STRONG, text::clean(&drift.name()));
    let kind = text::styled(FAINT, drift.kind);
    let mut out =
        format!("{} {name}{}: {kind}\n", text::styled(text::DRIFT.bold(), "DRIFT"), text::clean(&drift.relied_on_by()));
    for line in drift.change.lines() {
        let style = match line.as_bytes().first() {
            Some(b'+') => ADDED,
            Some(b'-') => REMOVED,
            Some(b'@') => HUNK,
            _ => PLAIN,
        };
        let line = text::clean(&line.replace('\t', "    "));
        let _ = writeln!(out, "  {}", text::styled(style, line));
    }
    out
}
