//! A gate before every step, so that a checker can drive the real runtime through one exact order of steps.
//!
//! Only in the check build. Each task stops at the gate before its step; the [`Conductor`] lets one through and sees what
//! came of it. Steps of the reader come in the order of the lines; so a harness writes lines, then conducts:
//!
//! ```
//! # use lastword::{Agent, Context, Options, Turn, schema::v1::*, serve_agent};
//! # struct Idle;
//! # impl Agent for Idle {
//! #     async fn initialize(&self, request: InitializeRequest, _: Context) -> Result<InitializeResponse, Error> {
//! #         Ok(InitializeResponse::new(request.protocol_version))
//! #     }
//! #     async fn new_session(&self, _: NewSessionRequest, _: Context) -> Result<NewSessionResponse, Error> {
//! #         Ok(NewSessionResponse::new("s"))
//! #     }
//! #     async fn prompt(&self, _: PromptRequest, _: Turn) -> Result<PromptResponse, Error> {
//! #         Ok(PromptResponse::new(StopReason::EndTurn))
//! #     }
//! # }
//! use lastword_core::{Arrival, Outcome, RequestId, SessionId, Step};
//! use tokio::io::AsyncWriteExt as _;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let mut options = Options::default();
//! let mut conductor = options.gated();
//! let (ours, mut theirs) = tokio::io::duplex(4096);
//! let (reader, writer) = tokio::io::split(ours);
//! tokio::spawn(serve_agent(Idle, reader, writer, options));
//!
//! theirs.write_all(br#"{"id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#).await.unwrap();
//! theirs.write_all(b"\n").await.unwrap();
//! let arrived = Step::PromptArrived { id: RequestId::from(1), session: SessionId::from("s") };
//! conductor.pass(&arrived).await.unwrap();
//! conductor.pass(&Step::Started(Arrival(1))).await.unwrap();
//! let passed = conductor.pass(&Step::Returned(Arrival(1), Outcome::Succeeded)).await.unwrap();
//! assert!(passed.after.is_idle());
//! # }
//! ```

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lastword_core::{Connection, Effects, NotOwed, Step};
use tokio::sync::{Notify, oneshot};

/// How long a conductor waits for a task to come to the gate with a step. Far longer than any task of a healthy runtime
/// takes; under tokio's paused clock it is over as soon as every task is idle.
pub const COMING_MAX: Duration = Duration::from_secs(5);

/// What came of a step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Passed {
    /// What the core said; by now the effects have been carried out.
    pub effects: Result<Effects, NotOwed>,
    /// The core after the step.
    pub after: Connection,
}

/// Nobody came to the gate with the step, or whoever came did not apply it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("nobody took the step {step:?} within {COMING_MAX:?}; at the gate wait {waiting:?}")]
#[non_exhaustive]
pub struct NobodyCame {
    /// The step that was to come.
    pub step: Step,
    /// The steps that wait at the gate, in the order in which they came.
    pub waiting: Vec<Step>,
}

/// Decides which step comes next. Dropped, it opens the gate for good.
#[derive(Debug)]
pub struct Conductor {
    gate: Gate,
}

impl Conductor {
    /// Lets one step pass, as soon as a task comes with it, and waits until it was applied and its effects were carried out.
    ///
    /// # Errors
    ///
    /// [`NobodyCame`] within [`COMING_MAX`].
    pub async fn pass(&mut self, step: &Step) -> Result<Passed, NobodyCame> {
        let passed = tokio::time::timeout(COMING_MAX, self.let_pass(step)).await;
        self.gate.lock().expected = None;
        passed.map_err(|_| NobodyCame { step: step.clone(), waiting: self.waiting() })
    }

    async fn let_pass(&self, step: &Step) -> Passed {
        let (report, mut applied) = oneshot::channel();
        self.gate.lock().expected = Some((step.clone(), report));
        loop {
            let came = self.gate.0.came.notified();
            {
                let mut state = self.gate.lock();
                // Whoever was let through and thought better of it may come again, so this looks each time anew.
                if let Some(place) = state.waiting.iter().position(|waiting| waiting.step == *step) {
                    // Somebody who left meanwhile has taken this place away.
                    let _ = state.waiting.remove(place).pass.send(());
                }
            }
            tokio::select! {
                biased;
                Ok(passed) = &mut applied => return passed,
                () = came => {}
            }
        }
    }

    /// The steps that wait at the gate, in the order in which they came.
    #[must_use]
    pub fn waiting(&self) -> Vec<Step> {
        self.gate.lock().waiting.iter().map(|waiting| waiting.step.clone()).collect()
    }
}

impl Drop for Conductor {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.open = true;
        // Those who wait pass when the other end of their channel goes.
        state.waiting.clear();
    }
}

/// What the tasks of a connection stop at.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A task came.
    came: Notify,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    /// The number of the last one that came.
    last: u64,
    waiting: Vec<Waiting>,
    /// The step that was let through, and where to say what came of it.
    expected: Option<(Step, oneshot::Sender<Passed>)>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    step: Step,
    pass: oneshot::Sender<()>,
}

impl Gate {
    pub(crate) fn closed() -> (Self, Conductor) {
        let gate = Self(Arc::new(Shared { state: Mutex::default(), came: Notify::new() }));
        (gate.clone(), Conductor { gate })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn pass(&self, step: &Step) {
        let (pass, passed) = oneshot::channel();
        let _place = {
            let mut state = self.lock();
            if state.open {
                return;
            }
            state.last += 1;
            let number = state.last;
            state.waiting.push(Waiting { number, step: step.clone(), pass });
            Place { gate: self, number }
        };
        self.0.came.notify_waiters();
        // An error means that the gate was opened for good.
        let _ = passed.await;
    }

    pub(crate) fn report(&self, step: &Step, effects: &Result<Effects, NotOwed>, after: &Connection) {
        let mut state = self.lock();
        if let Some((_, report)) = state.expected.take_if(|(expected, _)| expected == step) {
            let _ = report.send(Passed { effects: effects.clone(), after: after.clone() });
        }
    }
}

/// A place at the gate, given up by whoever leaves.
struct Place<'a> {
    gate: &'a Gate,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.gate.lock().waiting.retain(|waiting| waiting.number != self.number);
    }
}
