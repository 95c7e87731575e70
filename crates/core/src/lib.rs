//! The decisions of lastword, as pure state machines.
//!
//! There are two: [`Connection`], everything that one connection must remember, and [`delegation::Delegation`], everything
//! that the ticket service must, with an alphabet of its own. A machine has one way in, [`Connection::apply`]: a [`Step`] is everything that can happen to it, an [`Effect`] is
//! everything that it wants done. It knows no clock, no task, no lock and no IO; `no_std` lets the compiler keep it so.
//! That is why the model can drive this very code, and why what is checked there is what runs.
//!
//! **The one law for whoever drives it:** carry out the effects of a step, in their order, before you apply the next
//! step. [`Connection::may_come`] says which steps the machine waits for; a step that nothing owes is an error
//! that changed nothing.
//!
//! ```
//! use lastword_core::{Connection, Effect, Limits, RequestId, SessionId, Step};
//!
//! let mut connection = Connection::new(Limits::default());
//! let prompt = |id: &str| Step::PromptArrived { id: RequestId::parse(id).unwrap(), session: SessionId::from("s") };
//!
//! let effects = connection.apply(prompt("1")).unwrap();
//! let [Effect::Accept(first), Effect::Start(_)] = effects[..] else { panic!() };
//! connection.apply(Step::Started(first)).unwrap();
//!
//! // The newer prompt has the last word: the older one's token fires at the door.
//! let effects = connection.apply(prompt("2")).unwrap();
//! assert!(effects.iter().any(|effect| matches!(effect, Effect::Fire(turn, _) if *turn == first)));
//! ```
//!
//! Read [`Step`] and [`Effect`] next, then the module `connection`.
#![no_std]

extern crate alloc;

mod barrier;
mod calls;
mod connection;
pub mod delegation;
mod digest;
mod guard;
mod id;
mod requests;
mod rising;
mod step;
mod turns;

pub use connection::{Connection, Limits};
#[cfg(feature = "check")]
pub use guard::{Forced, GUARDS};
pub use id::{Arrival, CallId, IdError, REQUEST_ID_BYTES_MAX, RequestId, SessionId};
pub use requests::Stage;
pub use rising::Rising;
pub use step::{Answer, Cause, Effect, Effects, NotOwed, Outcome, Reason, Refusal, Step};
pub use turns::Overlap;
