//! The seat of a worker: what the service and whatever plays the worker have to do with each other.

use std::{fmt::Write as _, future::Future, pin::Pin, sync::Arc};

use lastword_core::delegation::{Prompt, QuestionId, Step, TicketId, TurnEnd, WorkerId};
use tokio::{sync::mpsc as channel, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    Profile,
    error::Error,
    journal::Of,
    shell::{Given, Shell, With},
    view,
};

/// The life of a worker, which ends with a sentence that says how: its exit status, say.
pub type Life = Pin<Box<dyn Future<Output = String> + Send>>;

/// What starts workers: [`super::acp::AcpWorkers`] in a daemon, something simpler in a test.
pub trait Launch: Send + Sync + 'static {
    /// The kinds of workers that there are.
    fn kinds(&self) -> Vec<String>;

    /// Lives the life of a worker: takes its prompts from the seat until there are no more, and returns when nothing is left
    /// of it. A life that is dropped must leave nothing behind either.
    ///
    /// A worker's kind may be one that was known before a restart and is not any more.
    fn launch(&self, seat: Seat) -> Life;
}

/// A worker's place at the service.
pub struct Seat {
    shell: Arc<Shell>,
    worker: WorkerId,
    prompts: channel::UnboundedReceiver<Given>,
    stop: CancellationToken,
}

/// A prompt that a worker was given.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Assignment {
    /// Whose turn it is. The worker must say it with whatever it asks and replies.
    pub ticket: TicketId,
    /// The task, or the answer.
    pub text: String,
    /// The question, where this is the answer to one whose call did not wait for it.
    pub question: Option<Asked>,
    /// Fires when the turn is to end. It must still be brought to its end.
    pub cancelled: CancellationToken,
}

/// A question to which an answer came later.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Asked {
    /// Its id.
    pub id: QuestionId,
    /// What was asked.
    pub text: String,
}

impl Assignment {
    /// The prompt in the words that a worker's model understands without being told more.
    #[must_use]
    pub fn brief(&self) -> String {
        let Self { ticket: TicketId(ticket), text, question, .. } = self;
        let mut brief = String::new();
        // Writing to a string cannot fail.
        let _ = match question {
            Some(Asked { id: QuestionId(id), text: question }) => write!(
                brief,
                "The answer to your question {id} has come. You asked:\n\n{question}\n\nThe answer is:\n\n{text}\n\nGo on with ticket {ticket}."
            ),
            None => write!(brief, "{text}\n\nThis is ticket {ticket}."),
        };
        let _ = write!(
            brief,
            " When it is done, call fleet_reply with ticket {ticket} and what you found or did: only that reaches the one who \
             sent it. Where you cannot go on without an answer, call fleet_ask with ticket {ticket}."
        );
        brief
    }
}

impl Seat {
    pub(super) fn new(
        shell: Arc<Shell>,
        worker: WorkerId,
        prompts: channel::UnboundedReceiver<Given>,
        stop: CancellationToken,
    ) -> Self {
        Self { shell, worker, prompts, stop }
    }

    /// Which worker it is for.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// The kind and the name with which the worker was spawned.
    ///
    /// # Errors
    ///
    /// [`Error::Journal`] where it cannot be read.
    pub fn profile(&self) -> Result<Profile, Error> {
        view::profile(&self.shell.reader, self.worker)
    }

    /// Calls of the worker.
    #[must_use]
    pub fn handle(&self) -> super::Handle {
        super::Handle { shell: Arc::clone(&self.shell) }
    }

    /// Waits for the next prompt; there is none once the worker is to stop. From the moment that this returns, the worker is
    /// at it, and [`Seat::ended`] must follow. Nothing is lost where the future is dropped.
    pub async fn next(&mut self) -> Option<Assignment> {
        loop {
            let given = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                given = self.prompts.recv() => given?,
            };
            let Given { ticket, prompt, cancelled } = given;
            // What a prompt says is stored before the prompt is asked for.
            let read = self.read(ticket, prompt);
            if let Err(error) = self.shell.apply(&mut self.shell.lock(), Step::Delivered { ticket }, With::default()) {
                tracing::error!(worker = self.worker.0, ticket = ticket.0, "a prompt was not given: {error}");
                return None;
            }
            match read {
                Ok((text, question)) => return Some(Assignment { ticket, text, question, cancelled }),
                Err(error) => self.ended(ticket, TurnEnd::Failed, error.to_string()),
            }
        }
    }

    /// Waits until the worker is to stop, which it should at any time.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// What fires when the worker is to stop.
    #[must_use]
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// The worker's turn is over. The text is its last message, or what it failed of.
    pub fn ended(&self, ticket: TicketId, end: TurnEnd, text: String) {
        let with = With { text: Some((Of::End(ticket), text)), ..With::default() };
        match self.shell.apply(&mut self.shell.lock(), Step::TurnEnded { ticket, end }, with) {
            Ok(_) | Err(Error::Closed | Error::Journal(_)) => {}
            Err(error) => {
                tracing::error!(worker = self.worker.0, ticket = ticket.0, "the end of a turn was refused: {error}");
            }
        }
    }

    fn read(&self, ticket: TicketId, prompt: Prompt) -> Result<(String, Option<Asked>), Error> {
        let reader = &self.shell.reader;
        let text = |of| Ok::<_, Error>(reader.text(of)?.unwrap_or_default());
        match prompt {
            Prompt::Task => Ok((text(Of::Task(ticket))?, None)),
            Prompt::Answer(id) => {
                let question = view::question(reader, id)?;
                Ok((text(Of::Answer(id))?, Some(Asked { id, text: question.text })))
            }
        }
    }
}

/// The task of a worker: its life, and then its death, however it came.
pub(super) async fn live(seat: Seat) {
    let (shell, worker) = (Arc::clone(&seat.shell), seat.worker);
    // A task of its own, so that a panic of it is a death as any other; in a set, so that it ends with this one.
    let mut life = JoinSet::new();
    life.spawn(shell.config.launch.launch(seat));
    let how = match life.join_next().await {
        Some(Ok(how)) => how,
        Some(Err(error)) => format!("what drives the worker failed: {error}"),
        None => unreachable!("one was spawned"),
    };
    shell.died(worker, how);
}
