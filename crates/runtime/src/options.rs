//! What can be set about a connection. Every bound of it stands here, with the reason for its default.

use std::time::Duration;

use lastword_core::Overlap;

/// The bounds and times of a connection. Take the default and change what you need:
///
/// ```
/// let mut options = lastword::Options::default();
/// options.grace = std::time::Duration::from_secs(30);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// How many requests of the peer may be in flight: 65,536, far above what an editor sends. A further one is refused
    /// with [`TOO_MANY_IN_FLIGHT`]; responses, cancels and notifications still get through.
    pub requests_in_flight_max: usize,
    /// How many notifications may wait for their handlers: 1,024. Then the reader waits, and so in the end does the peer.
    pub notifications_queued_max: usize,
    /// How many may wait while the handler that runs waits for the peer: 65,536. Then the reader cannot wait, since only
    /// reading on brings the response; a further notification closes the connection with
    /// [`crate::ServeError::NotificationsStuck`].
    pub notifications_stuck_max: usize,
    /// How long a notification waits for a caller whose response came before it to look at that response: 1 s. A caller whose
    /// future is polled needs none of it; one that is not polled, say while its task waits for that very notification, must
    /// not hold it back for ever.
    pub resume_max: Duration,
    /// What becomes of a prompt that arrives while an older one of its session is in flight: it replaces the older one, which
    /// ends. It may also wait for its turn, or be refused with [`SESSION_BUSY`].
    pub overlap: Overlap,
    /// How long the handler of an ended request may go on before it is dropped: 3 s. Long enough to stop a child process,
    /// short enough that the next turn of the session is not held up for long, and shorter than [`Options::drain_max`], so
    /// that at end of input a deaf handler's request is still answered.
    pub grace: Duration,
    /// How long one line may be: 64 MiB, enough for a few images in base64. A longer one is answered with an error and
    /// skipped without being kept.
    pub line_bytes_max: usize,
    /// How much may wait to be written: 256 KiB, some times what a pipe holds. Above it, updates and calls wait and no
    /// further line is taken in.
    pub out_bytes_max: usize,
    /// How much is read ahead while no line may be taken in: 256 KiB. Reading on is how the end of input is noticed.
    pub read_ahead_bytes_max: usize,
    /// How long the connection goes on after the end of input, to finish handlers and to write what it owes: 5 s.
    pub drain_max: Duration,
    /// The guard of the core that a checker forces, if any.
    #[cfg(feature = "check")]
    pub forced: Option<lastword_core::Forced>,
    #[cfg(feature = "check")]
    pub(crate) gate: Option<crate::gate::Gate>,
}

/// The error code of a request that is refused because [`Options::requests_in_flight_max`] are in flight. JSON-RPC leaves
/// the range to implementations; other protocols use this one for a limit that was exceeded, and ACP uses it for nothing.
pub const TOO_MANY_IN_FLIGHT: i32 = -32005;

/// The error code of a prompt that is refused because one of its session is in flight, see [`Options::overlap`]. It is in the
/// range that JSON-RPC leaves to implementations, and ACP uses it for nothing.
pub const SESSION_BUSY: i32 = -32006;

impl Default for Options {
    fn default() -> Self {
        let limits = lastword_core::Limits::default();
        Self {
            requests_in_flight_max: limits.requests_in_flight_max,
            notifications_queued_max: limits.notifications_queued_max,
            notifications_stuck_max: limits.notifications_stuck_max,
            resume_max: Duration::from_secs(1),
            overlap: limits.overlap,
            grace: Duration::from_secs(3),
            line_bytes_max: 64 << 20,
            out_bytes_max: 256 << 10,
            read_ahead_bytes_max: 256 << 10,
            drain_max: Duration::from_secs(5),
            #[cfg(feature = "check")]
            forced: None,
            #[cfg(feature = "check")]
            gate: None,
        }
    }
}

impl Options {
    pub(crate) fn limits(&self) -> lastword_core::Limits {
        let mut limits = lastword_core::Limits::default();
        limits.requests_in_flight_max = self.requests_in_flight_max;
        limits.notifications_queued_max = self.notifications_queued_max;
        limits.notifications_stuck_max = self.notifications_stuck_max;
        limits.overlap = self.overlap;
        #[cfg(feature = "check")]
        {
            limits.forced = self.forced;
        }
        limits
    }

    /// Holds every step of the connections that are served with these options until the returned conductor lets it pass.
    #[cfg(feature = "check")]
    pub fn gated(&mut self) -> crate::gate::Conductor {
        let (gate, conductor) = crate::gate::Gate::closed();
        self.gate = Some(gate);
        conductor
    }
}
