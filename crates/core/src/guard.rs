//! Named guards: the conditions that promises rest on.
//!
//! `guard!(limits, "name", condition)` is the bare condition in a normal build. In the check build a checker can force
//! it either way, for one connection, through [`crate::Limits`]: that is a mutant, and some promise must kill it.

macro_rules! guard {
    ($limits:expr, $name:literal, $condition:expr) => {{
        #[cfg(feature = "check")]
        {
            const { crate::guard::assert_known($name) };
            match $limits.forced {
                Some(forced) if forced.guard == $name => forced.to,
                _ => $condition,
            }
        }
        #[cfg(not(feature = "check"))]
        {
            let _ = &$limits;
            $condition
        }
    }};
}
pub(crate) use guard;

/// A guard that is forced one way.
#[cfg(feature = "check")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Forced {
    /// One of [`GUARDS`].
    pub guard: &'static str,
    /// What the condition is taken to be.
    pub to: bool,
}

/// The names of all guards. A name that stands here and in no `guard!` is found by the checker, the reverse by the compiler.
#[cfg(feature = "check")]
pub const GUARDS: [&str; 42] = [
    "acknowledged-once-stored",
    "answered-at-once-only-while-held",
    "busy-session-refuses",
    "callers-learn-of-close",
    "cancel-ends-earlier-prompts",
    "clean-up-own-entry-only",
    "ended-handler-is-dropped-in-the-end",
    "ended-is-to-be-seen",
    "ended-prompt-says-cancelled",
    "ended-request-never-runs",
    "ended-stays-ended",
    "ended-whatever-it-returned",
    "full-queue-holds-the-reader",
    "given-answer-is-given-once",
    "handed-is-not-taken",
    "idle-session-is-forgotten",
    "in-flight-bound",
    "late-answer-is-a-prompt",
    "late-caller-releases",
    "late-reply-is-kept",
    "late-reply-is-to-be-seen",
    "later-notification-waits-for-caller",
    "newer-prompt-waits",
    "next-ticket-begins",
    "next-turn-starts",
    "older-prompt-ends",
    "one-turn-at-a-time",
    "one-turn-of-a-worker",
    "peer-wait-releases",
    "question-is-shown",
    "queue-outlives-a-turn-that-is-over",
    "reply-comes-from-its-worker",
    "reply-completes-its-ticket",
    "reply-says-which-turn",
    "request-cancel-finds-its-request",
    "request-waits-for-earlier-notifications",
    "response-waits-for-earlier-notifications",
    "same-key-same-ticket",
    "stuck-queue-closes",
    "tickets-end-with-their-worker",
    "unanswered-turn-pauses",
    "working-ticket-ends-at-restart",
];

/// Fails the build where a guard is not listed.
#[cfg(feature = "check")]
pub(crate) const fn assert_known(name: &str) {
    let mut at = 0;
    while at < GUARDS.len() {
        if same(GUARDS[at].as_bytes(), name.as_bytes()) {
            return;
        }
        at += 1;
    }
    panic!("this guard is missing in GUARDS");
}

#[cfg(feature = "check")]
const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}
