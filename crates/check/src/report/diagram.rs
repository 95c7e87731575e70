//! A counterexample as a sequence diagram: text for a terminal, and Mermaid for Markdown.
//!
//! In the text, time goes downwards and a step is a line. A label stands on its arrow where it fits there, else beside
//! it, where it may run across lifelines; only what still has no room goes on further lines without a number. So every
//! word of every label is shown, in 100 columns too.

use std::fmt::Write as _;

use anstyle::Style;
use thiserror::Error;

use super::text::{self, BROKEN, FAINT, PLAIN, STRONG};
use super::{Breach, Diagram, Line};

/// The most columns of a diagram: more than that nobody takes in at a glance, and eight of them fit 100 columns.
pub const COLUMNS_MAX: usize = 8;

/// The least distance between two lifelines: an arrow of that length still looks like one.
const GAP_MIN: usize = 6;

/// The most columns that a heading takes before it is wrapped.
const HEADING_WIDTH_MAX: usize = 16;

/// What an arrow needs besides its label, so that it is seen to be an arrow: `──label──▶` and one lifeline.
const ARROW_WIDTH: usize = 6;

/// The least of it that must be left for the label to stand on the arrow: `─label─▶`.
const ARROW_WIDTH_MIN: usize = 3;

/// What a text beside a lifeline needs besides itself: the lifeline, a space before and a space after.
const BESIDE_WIDTH: usize = 3;

/// Why a diagram cannot be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// There are more columns than [`COLUMNS_MAX`].
    #[error("the diagram has {0} columns, and at most {COLUMNS_MAX} can be read; leave out those that do nothing")]
    TooManyColumns(usize),
    /// A step is at a column that does not exist.
    #[error("step {step} is at column {column}, and the diagram has {columns}, counted from 0")]
    NoSuchColumn {
        /// The step, counted from 1.
        step: usize,
        /// The column that it names, counted from 0.
        column: usize,
        /// How many columns there are.
        columns: usize,
    },
}

impl Diagram {
    /// Whether the diagram can be drawn: at most eight columns, and every step at one of them.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with it.
    pub fn check(&self) -> Result<(), Malformed> {
        let columns = self.columns.len();
        if columns > COLUMNS_MAX {
            return Err(Malformed::TooManyColumns(columns));
        }
        for (index, line) in self.lines.iter().enumerate() {
            let noted = line.notes.iter().map(|(column, _)| *column);
            if let Some(column) = [line.from].into_iter().chain(line.to).chain(noted).find(|c| *c >= columns) {
                return Err(Malformed::NoSuchColumn { step: index + 1, column, columns });
            }
        }
        Ok(())
    }
}

/// A broken promise as a person reads it on a terminal of `width` columns: its name, its statement, the configuration,
/// the shortest counterexample, the file that it was saved to and the command that replays it.
#[must_use]
pub fn breach(breach: &Breach, width: usize) -> String {
    let name = text::clean(&breach.promise);
    let configuration = text::clean(&breach.configuration);
    let mut out = format!("{} broken in {configuration}\n", text::styled(BROKEN, format_args!("✗ {name}")));
    for line in text::wrap(&breach.statement, width) {
        let _ = writeln!(out, "{line}");
    }
    out.push('\n');
    if breach.diagram.lines.is_empty() {
        out.push_str("The first state breaks it already, so there is no step to show.\n");
    } else {
        out.push_str(&render(&breach.diagram, width));
    }
    // Neither is wrapped, so that both can be copied.
    if breach.file.is_some() || breach.command.is_some() {
        out.push('\n');
    }
    if let Some(file) = &breach.file {
        let _ = writeln!(out, "{} {}", text::styled(FAINT, "saved to "), text::clean(file));
    }
    if let Some(command) = &breach.command {
        let _ = writeln!(out, "{} {}", text::styled(FAINT, "replay it"), text::styled(STRONG, text::clean(command)));
    }
    out
}

/// The diagram as text of at most `width` columns, or of the least width at which its lifelines can be told apart. One
/// that cannot be drawn is told as a list, with the reason above it.
#[must_use]
pub fn render(diagram: &Diagram, width: usize) -> String {
    match diagram.check() {
        Ok(()) => draw(diagram, &Layout::new(diagram, width)),
        Err(malformed) => list(diagram, &malformed),
    }
}

/// The diagram as the text of a Mermaid `sequenceDiagram`.
///
/// # Errors
///
/// What is wrong with a diagram that cannot be drawn.
pub fn mermaid(diagram: &Diagram) -> Result<String, Malformed> {
    diagram.check()?;
    // Every step is exactly one arrow, so that Mermaid's numbers are the numbers of the steps.
    let mut out = String::from("sequenceDiagram\n    autonumber\n");
    for (index, name) in diagram.columns.iter().enumerate() {
        let _ = writeln!(out, "    participant c{index} as {}", mermaid_text(name));
    }
    for line in &diagram.lines {
        if line.breaks {
            out.push_str("    rect rgba(255, 0, 0, 0.15)\n");
        }
        let _ = writeln!(out, "    c{}->>c{}: {}", line.from, line.to.unwrap_or(line.from), mermaid_text(&line.label));
        for (column, note) in &line.notes {
            let _ = writeln!(out, "    Note over c{column}: {}", mermaid_text(note));
        }
        if line.breaks {
            let _ = writeln!(out, "    Note over c{}: ✗ broken here\n    end", line.from);
        }
    }
    Ok(out)
}

/// A text that Mermaid takes literally: all but plain characters as their numbers.
fn mermaid_text(text: &str) -> String {
    let clean = text::clean(text);
    let text = clean.trim();
    if text.is_empty() {
        return "#160;".into(); // Mermaid insists on a text; a space that does not break is the least.
    }
    let mut out = String::new();
    for c in text.chars() {
        if c.is_alphanumeric() || " -/.,_()".contains(c) {
            out.push(c);
        } else {
            let _ = write!(out, "#{};", u32::from(c));
        }
    }
    out
}

/// The steps one below the other, in words, for a diagram that cannot be drawn.
fn list(diagram: &Diagram, malformed: &Malformed) -> String {
    let name = |column: usize| match diagram.columns.get(column) {
        Some(name) => text::clean(name),
        None => format!("column {column}"),
    };
    let mut out = format!("{malformed}\n");
    for (index, line) in diagram.lines.iter().enumerate() {
        let sign = if line.breaks { '✗' } else { ' ' };
        let to = line.to.map(|to| format!(" ▶ {}", name(to))).unwrap_or_default();
        let _ = writeln!(out, "{sign} {}  {}{to}: {}", index + 1, name(line.from), text::clean(&line.label));
        for (column, note) in &line.notes {
            let _ = writeln!(out, "       {}: {}", name(*column), text::clean(note));
        }
    }
    out
}

/// Where everything stands, in columns of the terminal counted from 0.
#[derive(Debug)]
struct Layout {
    /// Where the first cell after the numbers of the steps is.
    gutter: usize,
    /// Where each lifeline is.
    lifelines: Vec<usize>,
    /// The lines of each heading, already narrow enough for the room around its lifeline.
    headings: Vec<Vec<String>>,
    /// The width that no line exceeds.
    width: usize,
}

impl Layout {
    fn new(diagram: &Diagram, width: usize) -> Self {
        let digits = diagram.lines.len().to_string().len();
        let gutter = 2 + digits + 2;
        let columns = diagram.columns.len();
        let widest = |lines: &[String]| lines.iter().map(|line| text::width(line)).max().unwrap_or(0);

        let wished: Vec<usize> =
            diagram.columns.iter().map(|name| widest(&text::wrap(name, HEADING_WIDTH_MAX))).collect();
        let first = gutter + wished.first().map_or(0, |heading| heading / 2);
        let rooms = share(wishes(diagram, &wished), width.saturating_sub(first + 1));

        let mut lifelines = Vec::with_capacity(columns);
        let mut at = first;
        for room in &rooms {
            lifelines.push(at);
            at += room;
        }
        let headings = diagram.columns.iter().enumerate().map(|(index, name)| {
            let left = if index == 0 { HEADING_WIDTH_MAX + 2 } else { rooms[index - 1] };
            text::wrap(name, HEADING_WIDTH_MAX.min(left - 2).min(rooms[index] - 2))
        });
        Self { gutter, headings: headings.collect(), width: at + 1, lifelines }
    }
}

/// The room that each column wishes for to the right of its lifeline; that of the last one is the right margin.
fn wishes(diagram: &Diagram, headings: &[usize]) -> Vec<usize> {
    let mut rooms: Vec<usize> = headings
        .iter()
        .enumerate()
        .map(|(index, heading)| (heading.max(headings.get(index + 1).unwrap_or(&0)) + 2).max(GAP_MIN))
        .collect();
    let mut wish = |from: usize, to: usize, needed: usize| {
        let missing = needed.saturating_sub(rooms[from..to].iter().sum());
        let each = missing.div_ceil(to - from);
        for room in &mut rooms[from..to] {
            *room += each;
        }
    };
    for line in &diagram.lines {
        let beside = line.notes.iter().map(|(column, note)| (*column, note));
        let own = arrow_end(line).is_none().then_some((line.from, &line.label));
        for (column, words) in own.into_iter().chain(beside) {
            wish(column, column + 1, text::width(&text::clean(words)) + BESIDE_WIDTH);
        }
    }
    // Short arrows first: what they widen may be all that the longer ones need.
    let mut arrows: Vec<(usize, usize, &Line)> = diagram
        .lines
        .iter()
        .filter_map(|line| arrow_end(line).map(|to| (line.from.min(to), line.from.max(to), line)))
        .collect();
    arrows.sort_by_key(|(low, high, _)| high - low);
    for (low, high, line) in arrows {
        wish(low, high, text::width(&text::clean(&line.label)) + ARROW_WIDTH);
    }
    rooms
}

/// Cuts the largest wishes down to one size at which all fit in `available`; none is cut to less than [`GAP_MIN`].
fn share(mut rooms: Vec<usize>, available: usize) -> Vec<usize> {
    let total = |size: usize| rooms.iter().map(|room| size.min(*room)).sum::<usize>();
    let largest = rooms.iter().copied().max().unwrap_or(0);
    if total(largest) > available {
        // The smallest size at which it does not fit any more is found by halving: `total` grows with the size.
        let (mut fits, mut too_large) = (GAP_MIN, largest);
        while fits + 1 < too_large {
            let size = fits.midpoint(too_large);
            if total(size) <= available { fits = size } else { too_large = size }
        }
        for room in &mut rooms {
            *room = fits.min(*room);
        }
    }
    rooms
}

/// Where the arrow of a step goes; a message to oneself is something that one does by oneself.
fn arrow_end(line: &Line) -> Option<usize> {
    line.to.filter(|to| *to != line.from)
}

fn draw(diagram: &Diagram, layout: &Layout) -> String {
    let mut out = String::new();
    let tallest = layout.headings.iter().map(Vec::len).max().unwrap_or(0);
    for row in 0..tallest {
        let mut cells = Cells::blank(layout.width);
        for (lifeline, heading) in layout.lifelines.iter().zip(&layout.headings) {
            // The last line of each heading is right above its lifeline.
            if let Some(line) = (row + heading.len()).checked_sub(tallest).map(|index| &heading[index]) {
                cells.write(lifeline.saturating_sub((text::width(line).saturating_sub(1)) / 2), line, STRONG);
            }
        }
        cells.print(&mut out);
    }
    if tallest > 0 {
        Cells::lifelines(layout).print(&mut out);
    }
    for (index, line) in diagram.lines.iter().enumerate() {
        let mut step = Step::new(layout, if line.breaks { BROKEN } else { PLAIN });
        step.draw(line);
        let sign = if line.breaks { "✗" } else { " " };
        let digits = layout.gutter - 4;
        let style = if line.breaks { BROKEN } else { FAINT };
        step.rows[0].write(0, &format!("{sign} {:>digits$}", index + 1), style);
        for row in &step.rows {
            row.print(&mut out);
        }
    }
    out
}

/// The rows that one step takes; nearly always it is one.
struct Step<'a> {
    layout: &'a Layout,
    style: Style,
    rows: Vec<Cells>,
}

impl<'a> Step<'a> {
    fn new(layout: &'a Layout, style: Style) -> Self {
        Self { layout, style, rows: vec![Cells::lifelines(layout)] }
    }

    fn draw(&mut self, line: &Line) {
        let label = text::clean(&line.label);
        match arrow_end(line) {
            None => self.beside(line.from, Some('●'), &label),
            Some(to) => {
                if !self.arrow(line.from, to, &label) {
                    self.beside(line.from.max(to), None, &label);
                }
            }
        }
        for (column, note) in &line.notes {
            self.beside(*column, Some('○'), &text::clean(note));
        }
    }

    /// Draws an arrow, with its label on it if it fits, and says whether it did.
    fn arrow(&mut self, from: usize, to: usize, label: &str) -> bool {
        let (start, end) = (self.layout.lifelines[from], self.layout.lifelines[to]);
        let (low, high) = (start.min(end), start.max(end));
        let row = &mut self.rows[0];
        for at in low + 1..high {
            let shaft = if self.layout.lifelines.contains(&at) { '┼' } else { '─' };
            row.put(at, shaft, self.style);
        }
        if start < end {
            row.put(high - 1, '▶', self.style);
        } else {
            row.put(low + 1, '◀', self.style);
        }
        let inside = high - low - 1;
        let width = text::width(label);
        let fits = width + ARROW_WIDTH_MIN <= inside;
        if fits {
            // The head takes a cell of the side that it is on.
            let shaft = if start < end { low + 1 } else { low + 2 };
            row.write(shaft + (inside - 1 - width) / 2, label, self.style);
        }
        fits
    }

    /// Writes a text beside a lifeline, with a mark on it: in the first row that has room for all of it to the right,
    /// else in a row of its own on whichever side has the room, wrapped if neither has.
    fn beside(&mut self, column: usize, mark: Option<char>, text: &str) {
        let at = self.layout.lifelines[column];
        let width = text::width(text);
        let right = at + 2;
        let fits_right = right + width <= self.layout.width;
        let free = |row: &Cells| row.is_free(at + usize::from(mark.is_none()), (right + width).max(at + 1));
        let found = if fits_right { self.rows.iter().position(free) } else { None };
        let index = found.unwrap_or_else(|| {
            if !self.rows.last().is_some_and(Cells::is_untouched) {
                self.rows.push(Cells::lifelines(self.layout));
            }
            self.rows.len() - 1
        });
        if let Some(mark) = mark {
            self.rows[index].put(at, mark, self.style);
        }

        let (room_right, room_left) =
            (self.layout.width.saturating_sub(right), at.saturating_sub(1 + self.layout.gutter));
        let to_the_left = !fits_right && (width <= room_left || room_left > room_right);
        let room = if to_the_left { room_left } else { room_right };
        let lines = if width <= room { vec![text.to_string()] } else { text::wrap(text, room) };
        for (offset, line) in lines.iter().enumerate() {
            if index + offset == self.rows.len() {
                self.rows.push(Cells::lifelines(self.layout));
            }
            let start = if to_the_left { at - 1 - text::width(line) } else { right };
            self.rows[index + offset].write(start, line, self.style);
        }
    }
}

/// One row of the picture. A cell is a column of the terminal; the second cell of a wide character is empty.
#[derive(Clone)]
struct Cells {
    cells: Vec<Cell>,
}

#[derive(Clone, Copy)]
struct Cell {
    char: Option<char>,
    style: Style,
    /// Whether something stands here that must not be written over. A lifeline may be.
    taken: bool,
}

impl Cells {
    fn blank(width: usize) -> Self {
        Self { cells: vec![Cell { char: Some(' '), style: PLAIN, taken: false }; width] }
    }

    fn lifelines(layout: &Layout) -> Self {
        let mut row = Self::blank(layout.width);
        for at in &layout.lifelines {
            row.cells[*at] = Cell { char: Some('│'), style: FAINT, taken: false };
        }
        row
    }

    fn put(&mut self, at: usize, char: char, style: Style) {
        self.cells[at] = Cell { char: Some(char), style, taken: true };
    }

    fn write(&mut self, start: usize, text: &str, style: Style) {
        let mut at = start;
        for char in text.chars() {
            self.put(at, char, style);
            let width = text::width(char.encode_utf8(&mut [0; 4]));
            for second in at + 1..at + width {
                self.cells[second] = Cell { char: None, style, taken: true };
            }
            at += width;
        }
    }

    fn is_free(&self, start: usize, end: usize) -> bool {
        self.cells[start..end].iter().all(|cell| !cell.taken)
    }

    fn is_untouched(&self) -> bool {
        self.is_free(0, self.cells.len())
    }

    /// Appends the row to `out`, with an escape only where the style changes and without blanks at its end.
    fn print(&self, out: &mut String) {
        let end = self.cells.iter().rposition(|cell| cell.char != Some(' ')).map_or(0, |last| last + 1);
        for same in self.cells[..end].chunk_by(|a, b| a.style == b.style) {
            let run: String = same.iter().filter_map(|cell| cell.char).collect();
            out.push_str(&text::styled(same[0].style, run));
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use proptest::prelude::*;

    use super::*;

    fn line(from: usize, to: Option<usize>, label: &str) -> Line {
        Line { from, to, label: label.into(), notes: Vec::new(), breaks: false }
    }

    fn plain(diagram: &Diagram, width: usize) -> String {
        strip_str(&render(diagram, width)).to_string()
    }

    #[test]
    fn a_ninth_column_is_refused_and_the_steps_are_told_as_a_list() {
        let diagram = Diagram { columns: vec!["p".into(); 9], lines: vec![line(0, Some(8), "ping")] };
        assert_eq!(diagram.check(), Err(Malformed::TooManyColumns(9)));
        assert!(plain(&diagram, 100).ends_with("\n  1  p ▶ p: ping\n"));
        assert_eq!(mermaid(&diagram), Err(Malformed::TooManyColumns(9)));
    }

    #[test]
    fn a_column_that_does_not_exist_is_named_wherever_a_step_names_it() {
        let mut noted = line(0, None, "starts");
        noted.notes.push((7, "ends".into()));
        for (step, column) in [(line(4, None, "x"), 4), (line(0, Some(2), "x"), 2), (noted, 7)] {
            let diagram = Diagram { columns: vec!["a".into(), "b".into()], lines: vec![line(1, None, "x"), step] };
            assert_eq!(diagram.check(), Err(Malformed::NoSuchColumn { step: 2, column, columns: 2 }));
            assert!(plain(&diagram, 100).contains(&format!("column {column}")));
        }
    }

    #[test]
    fn a_label_that_does_not_fit_on_its_arrow_stands_beside_it() {
        let diagram = Diagram {
            columns: (0..8).map(|column| format!("column {column}")).collect(),
            lines: vec![line(0, Some(1), "session/request_permission"), line(7, Some(6), "session/request_permission")],
        };
        let text = plain(&diagram, 80);
        assert!(text.contains("▶│ session/request_permission"), "{text}");
        assert_eq!(text.matches("session/request_permission").count(), 2, "{text}");
        assert!(text.lines().all(|line| text::width(line) <= 80), "{text}");
    }

    #[test]
    fn what_mermaid_would_read_as_its_own_syntax_is_escaped() {
        let diagram = Diagram {
            columns: vec!["end; x".into()],
            lines: vec![line(0, None, "wrap: a#b <br/>\nc->>c: d %% $$"), line(0, None, "")],
        };
        let expected = "sequenceDiagram\n    autonumber\n    participant c0 as end#59; x\n    \
                        c0->>c0: wrap#58; a#35;b #60;br/#62; c-#62;#62;c#58; d #37;#37; #36;#36;\n    c0->>c0: #160;\n";
        assert_eq!(mermaid(&diagram), Ok(expected.into()));
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => "[a-z/ ]{0,24}",
            1 => "[a-z]{60,130}",
            1 => "\\PC{0,20}",
            1 => any::<String>(),
            1 => "[\u{4e00}-\u{4e20}😀\u{200d}\u{fe0f}▶é\u{301}\t\u{1b}]{0,16}",
        ]
    }

    fn any_line(columns: usize) -> impl Strategy<Value = Line> {
        let column = move || 0..columns;
        let notes = prop::collection::vec((column(), any_text()), 0..4);
        (column(), prop::option::of(column()), any_text(), notes, any::<bool>())
            .prop_map(|(from, to, label, notes, breaks)| Line { from, to, label, notes, breaks })
    }

    /// Diagrams of which each step is at a column that exists if there are no more columns than `columns` says.
    fn any_diagram() -> impl Strategy<Value = Diagram> {
        (0..10usize, 0..10usize).prop_flat_map(|(columns, used)| {
            let names = prop::collection::vec(any_text(), columns);
            let lines = prop::collection::vec(any_line(used.max(1)), 0..6);
            (names, lines).prop_map(|(columns, lines)| Diagram { columns, lines })
        })
    }

    fn drawable_diagram() -> impl Strategy<Value = Diagram> {
        (1..=COLUMNS_MAX).prop_flat_map(|columns| {
            let names = prop::collection::vec(any_text(), columns);
            let lines = prop::collection::vec(any_line(columns), 0..6);
            (names, lines).prop_map(|(columns, lines)| Diagram { columns, lines })
        })
    }

    /// Every character of a text that a person sees, in order.
    fn visible(text: &str) -> String {
        text::clean(text).chars().filter(|c| *c != ' ').collect()
    }

    proptest! {
        #[test]
        fn no_diagram_makes_a_face_panic(diagram in any_diagram(), width in 0..200usize) {
            let drawn = render(&diagram, width);
            prop_assert_eq!(mermaid(&diagram).is_ok(), diagram.check().is_ok());
            let escapes = strip_str(&drawn).to_string().contains('\u{1b}');
            prop_assert!(!escapes);
        }

        #[test]
        fn no_line_is_wider_than_the_layout_says(diagram in drawable_diagram(), width in 0..200usize) {
            let layout = Layout::new(&diagram, width);
            for line in plain(&diagram, width).lines() {
                prop_assert!(text::width(line) <= layout.width, "{line}");
            }
            // The least is the number of the step, half of the first heading, and the least gap for each lifeline.
            let least = layout.gutter + HEADING_WIDTH_MAX / 2 + diagram.columns.len() * GAP_MIN + 1;
            prop_assert!(layout.width <= width.max(least));
        }

        #[test]
        fn every_step_has_its_number_on_one_line(diagram in drawable_diagram(), width in 0..200usize) {
            let digits = diagram.lines.len().to_string().len();
            let drawn = plain(&diagram, width);
            let numbers: Vec<String> = drawn
                .lines()
                .map(|line| line.chars().take(2 + digits).collect::<String>())
                .filter(|number| number.trim_start_matches('✗').trim().parse::<usize>().is_ok())
                .collect();
            let expected: Vec<String> = diagram
                .lines
                .iter()
                .enumerate()
                .map(|(index, line)| format!("{} {:>digits$}", if line.breaks { '✗' } else { ' ' }, index + 1))
                .collect();
            prop_assert_eq!(numbers, expected);
        }

        #[test]
        fn nothing_that_a_step_says_is_left_out(
            label in any_text(), note in any_text(), to in prop::option::of(0..3usize), at in 0..3usize, width in 0..200usize,
        ) {
            let notes = vec![(at, note.clone())];
            let diagram = Diagram {
                columns: vec![String::new(); 3],
                lines: vec![Line { from: 1, to, label: label.clone(), notes, breaks: false }],
            };
            let mut said: Vec<char> = visible(&label).chars().chain(visible(&note).chars()).collect();
            let drawn = plain(&diagram, width);
            for c in drawn.chars() {
                if let Some(index) = said.iter().position(|s| *s == c) {
                    said.swap_remove(index);
                }
            }
            prop_assert!(said.is_empty(), "{said:?} is missing in\n{drawn}");
        }
    }
}
