//! A line for each search that runs, so that a long one does not look like a hang.
//!
//! It appears on stderr, only when that is a terminal, and only once a search has run for a second: most are over before
//! anyone could read it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How long a search runs unseen.
const HIDDEN_FOR: Duration = Duration::from_secs(1);

/// What a line shows: the states so far, those a second, and for how long it has run.
const TEMPLATE: &str = "{spinner} {msg}  {human_pos} states  {per_sec}  {elapsed}";

/// The lines of all searches that run at the same time.
#[derive(Debug)]
pub struct Progress {
    lines: MultiProgress,
    hidden_for: Duration,
}

impl Default for Progress {
    fn default() -> Self {
        Self::on(ProgressDrawTarget::stderr(), HIDDEN_FOR)
    }
}

impl Progress {
    fn on(target: ProgressDrawTarget, hidden_for: Duration) -> Self {
        Self { lines: MultiProgress::with_draw_target(target), hidden_for }
    }

    /// Starts the line of one search. It goes away when the bar is dropped.
    #[must_use]
    pub fn start(&self, label: impl Into<String>) -> Bar {
        let style = ProgressStyle::with_template(TEMPLATE).expect("the template is a constant that a test renders");
        let hidden = ProgressBar::hidden().with_style(style).with_message(label.into());
        Bar { hidden, lines: self.lines.clone(), shown: OnceLock::new(), due: Instant::now() + self.hidden_for }
    }
}

/// The line of one search. It may be shared between the threads of the search.
#[derive(Debug)]
pub struct Bar {
    hidden: ProgressBar,
    lines: MultiProgress,
    /// The same bar once it is among the lines that are drawn; whichever thread first finds it due puts it there.
    shown: OnceLock<ProgressBar>,
    due: Instant,
}

impl Bar {
    /// Says that so many more states were found. Call it for a batch of them, not for each.
    pub fn add(&self, states: u64) {
        self.hidden.inc(states);
        self.show_when_due();
    }

    /// Says how many states were found altogether, where the search itself keeps count.
    pub fn set(&self, states: u64) {
        self.hidden.set_position(states);
        self.show_when_due();
    }

    /// How many states were found so far.
    #[must_use]
    pub fn states(&self) -> u64 {
        self.hidden.position()
    }

    fn show_when_due(&self) {
        if self.shown.get().is_none() && Instant::now() >= self.due {
            self.shown.get_or_init(|| self.lines.add(self.hidden.clone())).tick();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.hidden.finish_and_clear();
        self.lines.remove(&self.hidden);
    }
}

#[cfg(test)]
mod tests {
    use indicatif::InMemoryTerm;

    use super::*;

    const UNREACHED: Duration = Duration::from_secs(3600);

    fn on_terminal(hidden_for: Duration) -> (InMemoryTerm, Progress) {
        let terminal = InMemoryTerm::new(10, 80);
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        (terminal, Progress::on(target, hidden_for))
    }

    #[test]
    fn a_search_that_runs_on_shows_its_label_and_its_states_until_it_is_over() {
        let (terminal, progress) = on_terminal(Duration::ZERO);
        let bar = progress.start("turns/two-sessions");
        bar.add(45_000);
        bar.add(805);
        assert_eq!(bar.states(), 45_805);
        bar.shown.get().expect("the bar was due at once").tick();
        let contents = terminal.contents();
        assert!(contents.contains("turns/two-sessions  45,805 states"), "{contents}");
        drop(bar);
        assert_eq!(terminal.contents(), "");
    }

    #[test]
    fn a_short_search_shows_nothing() {
        let (terminal, progress) = on_terminal(UNREACHED);
        let bar = progress.start("turns/one-prompt-at-a-time");
        bar.set(12);
        assert_eq!(bar.states(), 12);
        assert!(bar.shown.get().is_none());
        drop(bar);
        assert_eq!(terminal.contents(), "");
    }

    #[test]
    fn two_searches_have_a_line_each() {
        let (terminal, progress) = on_terminal(Duration::ZERO);
        let (first, second) = (progress.start("first"), progress.start("second"));
        first.set(1);
        second.set(2);
        for bar in [&first, &second] {
            bar.shown.get().expect("the bar was due at once").tick();
        }
        let contents = terminal.contents();
        assert_eq!(contents.lines().count(), 2, "{contents}");
    }
}
