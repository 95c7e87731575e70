//! The task of one message: it may do what the core owes it and nothing else.

use std::{
    any::Any,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use agent_client_protocol_schema::v1::Error;
use lastword_core::{Arrival, Effect, Outcome, Step};
use tokio_util::sync::CancellationToken;

use crate::shell::{Shell, With};

/// Starts, calls the handler if the core says so, and hands in what it returned or, once it has been told to end and the
/// grace period is over, that it was dropped. The handler is gone before the core learns of its end, so that the next
/// one of its session never runs beside it.
pub(crate) async fn run<H: Future<Output = Result<Vec<u8>, Error>>>(
    shell: Arc<Shell>,
    arrival: Arrival,
    token: CancellationToken,
    handler: impl FnOnce() -> H,
) {
    let Ok(effects) = shell.step(Step::Started(arrival), With::Nothing).await else { return };
    if !effects.contains(&Effect::Run(arrival)) {
        return;
    }
    let mut grace = pin!(grace_over(&shell, arrival, &token));
    let returned = catch_panic(async {
        let mut handler = pin!(handler());
        tokio::select! {
            // A handler that is done is done, however late.
            biased;
            answer = &mut handler => Some(answer),
            // It was told to end, and went on.
            () = grace.as_mut() => None,
        }
    })
    .await;
    let answer = match returned {
        Ok(Some(answer)) => Some(answer),
        Ok(None) => None,
        Err(panic) => {
            tracing::error!(connection = shell.number, message = arrival.0, "a handler panicked: {panic}");
            Some(Err(Error::internal_error().data(serde_json::Value::String("the handler panicked".to_owned()))))
        }
    };
    let (mut step, mut with) = (Step::GraceOver(arrival), With::Nothing);
    if let Some(answer) = answer {
        let outcome = if answer.is_ok() { Outcome::Succeeded } else { Outcome::Failed };
        let returned = Step::Returned(arrival, outcome);
        tokio::select! {
            biased;
            // At once, but for a checker that holds it back.
            () = shell.hold(&returned) => (step, with) = (returned, With::Answer(answer)),
            () = grace => {}
        }
    }
    if let Err(error) = shell.apply(&mut shell.lock(), step, with) {
        tracing::error!(connection = shell.number, "{error}");
    }
}

/// The handler's token has fired, and its grace period is over; with a checker, the checker says when.
async fn grace_over(shell: &Shell, arrival: Arrival, token: &CancellationToken) {
    token.cancelled().await;
    if shell.is_gated() {
        shell.hold(&Step::GraceOver(arrival)).await;
    } else {
        tokio::time::sleep(shell.options.grace).await;
    }
}

/// What the future gives, or the text of the panic that ended it.
async fn catch_panic<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = pin!(future);
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
