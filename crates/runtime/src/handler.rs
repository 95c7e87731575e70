//! The task of one message: it may do what the core owes it and nothing else.

use std::{
    any::Any,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use agent_client_protocol_schema::v1::Error;
use lastword_core::{Arrival, Effect, NotOwed, Outcome, Step};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    shell::{Shell, Start, With},
    turn::Context,
    wire,
};

/// What a handler returned, its result or its error, as JSON.
pub(crate) type Answer = Result<Vec<u8>, Vec<u8>>;

/// What starts a handler, in a task of its own.
pub(crate) fn start<R, H>(handler: impl FnOnce(Context) -> H + Send + 'static) -> Start
where
    R: Serialize + 'static,
    H: Future<Output = Result<R, Error>> + Send + 'static,
{
    Box::new(move |context| {
        tokio::spawn(run(context, move |context| async move {
            let result = handler(context).await.map_err(|error| wire::encode_error(&error))?;
            wire::encode(&result).map_err(|error| wire::encode_error(&Error::into_internal_error(error)))
        }))
    })
}

/// What starts a handler that has its answer as JSON.
pub(crate) fn start_raw<H>(handler: impl FnOnce(Context) -> H + Send + 'static) -> Start
where
    H: Future<Output = Answer> + Send + 'static,
{
    Box::new(move |context| tokio::spawn(run(context, handler)))
}

/// A handler that knows its answer: what was asked cannot be done.
pub(crate) fn refuse(error: Error) -> Start {
    start_raw(move |_| std::future::ready(Err(wire::encode_error(&error))))
}

/// Nobody handles the method.
pub(crate) fn not_found(method: &str) -> Error {
    Error::new(-32601, format!("Method not found: {method}"))
}

/// What an extension's handler gets: parameters as they stand on the wire.
pub(crate) fn raw(params: Option<&str>) -> Arc<RawValue> {
    // What the wire has taken for JSON is JSON.
    let params = params.and_then(|params| RawValue::from_string(params.to_owned()).ok());
    Arc::from(params.unwrap_or_else(|| RawValue::NULL.to_owned()))
}

/// Starts, calls the handler if the core says so, and hands in what it returned or, once it has been told to end and the
/// grace period is over, that it was dropped. The handler is gone before the core learns of its end, so that the next
/// one of its session never runs beside it.
///
/// There is one such future for each message in flight, so it keeps little beside the handler.
async fn run<H: Future<Output = Answer>>(context: Context, handler: impl FnOnce(Context) -> H) {
    let (shell, arrival) = (context.shell(), context.arrival());
    shell.hold(&Step::Started(arrival)).await;
    if !may_run(shell, arrival) {
        return;
    }
    let mut grace = pin!(grace_over(&context));
    // The block ends the handler where it stands, and a panic while it is dropped is a panic of the handler.
    let returned = catch_panic(pin!(async {
        let mut handler = pin!(handler(context.clone()));
        tokio::select! {
            // A handler that is done is done, however late.
            biased;
            answer = &mut handler => Some(answer),
            // It was told to end, and went on.
            () = grace.as_mut() => None,
        }
    }))
    .await;
    #[cfg(feature = "check")]
    let returned = {
        let mut returned = returned;
        if let Ok(Some(answer)) = &returned {
            let step = Step::Returned(arrival, outcome(answer));
            tokio::select! {
                biased;
                () = shell.hold(&step) => {}
                // The checker lets the grace period end first.
                () = grace => returned = Ok(None),
            }
        }
        returned
    };
    over(shell, arrival, returned);
}

fn may_run(shell: &Arc<Shell>, arrival: Arrival) -> bool {
    match shell.apply(&mut shell.lock(), Step::Started(arrival), With::Nothing) {
        Ok(effects) => effects.contains(&Effect::Run(arrival)),
        Err(error) => not_owed(shell, &error),
    }
}

fn over(shell: &Arc<Shell>, arrival: Arrival, returned: Result<Option<Answer>, String>) {
    let answer = returned.unwrap_or_else(|panic| {
        tracing::error!(connection = shell.number, message = arrival.0, "a handler panicked: {panic}");
        Some(Err(wire::encode_error(&Error::new(-32603, "Internal error: the handler panicked"))))
    });
    let (step, with) = match &answer {
        Some(answer) => {
            let answer = answer.as_deref().map_err(Vec::as_slice);
            (Step::Returned(arrival, outcome(&answer)), With::Answer(answer))
        }
        None => (Step::GraceOver(arrival), With::Nothing),
    };
    if let Err(error) = shell.apply(&mut shell.lock(), step, with) {
        not_owed(shell, &error);
    }
}

pub(crate) fn outcome<T, E>(answer: &Result<T, E>) -> Outcome {
    if answer.is_ok() { Outcome::Succeeded } else { Outcome::Failed }
}

/// The core owes each task its steps, so this is a bug of this crate, or a guard that a checker forced.
fn not_owed(shell: &Shell, error: &NotOwed) -> bool {
    tracing::error!(connection = shell.number, "{error}");
    false
}

/// The handler's token has fired, and its grace period is over; with a checker, the checker says when.
async fn grace_over(context: &Context) {
    context.cancellation().cancelled().await;
    let shell = context.shell();
    if shell.is_gated() {
        shell.hold(&Step::GraceOver(context.arrival())).await;
    } else {
        // Few handlers come here, so the others do not make room for the timer.
        Box::pin(tokio::time::sleep(shell.options.grace)).await;
    }
}

/// What the future gives, or the text of the panic that ended it. By reference, since a future that is an argument of an
/// async function has its place in that function's own future twice.
async fn catch_panic<F: Future>(mut future: Pin<&mut F>) -> Result<F::Output, String> {
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(text(&*panic))),
    })
    .await
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)").to_owned()
}
