//! An ACP agent on the Rust SDK: `agent [--late]`.
//!
//! It runs the text of a prompt as a script, with the words that `lastword agent` knows too: `wait=MS` waits and ends when
//! it is cancelled, `say=TEXT` says it, `updates=N` says N numbers, `permission` asks and says the outcome, and any other
//! word is echoed.
//!
//! The SDK keeps no books of prompts and cancels, so that is left to the agent's author. This is how one would write it
//! first: a prompt registers its turn first thing, which ends the older one of its session, and a cancel ends the turn
//! that is registered. With `--late` the turn's task registers it, after one await, as when a session is loaded first:
//! then a cancel that arrives at once finds no turn, and is lost.

use std::collections::{HashMap, HashSet};
use std::env;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, ContentChunk, InitializeRequest, InitializeResponse, NewSessionRequest,
    NewSessionResponse, PermissionOption, PermissionOptionKind, PromptRequest, PromptResponse,
    RequestPermissionOutcome, RequestPermissionRequest, SessionId, SessionNotification, SessionUpdate, StopReason,
    ToolCallUpdate, ToolCallUpdateFields,
};
use agent_client_protocol::{Agent, ByteStreams, Client, Error, on_receive_notification, on_receive_request};
use tokio::io::{stdin, stdout};
use tokio::time::sleep;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let late = arguments == ["--late"];
    if !late && !arguments.is_empty() {
        eprintln!("usage: agent [--late]");
        std::process::exit(2);
    }
    let books = Arc::new(Mutex::new(Books::default()));
    let (sessions, prompts, cancels) = (Arc::clone(&books), Arc::clone(&books), books);
    Agent
        .v1()
        .on_receive_request(
            async |_: InitializeRequest, responder, _| responder.respond(InitializeResponse::new(ProtocolVersion::V1)),
            on_receive_request!(),
        )
        .on_receive_request(
            async move |_: NewSessionRequest, responder, _| {
                responder.respond(NewSessionResponse::new(lock(&sessions).new_session()))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, client: ConnectionTo<Client>| {
                let books = Arc::clone(&prompts);
                let withdrawn = responder.cancellation();
                let registered = (!late).then(|| lock(&books).register(&request.session_id));
                let again = client.clone();
                // A handler that waited would hold up every message after it.
                client.spawn(async move {
                    let registered = match registered {
                        Some(registered) => registered,
                        None => {
                            tokio::task::yield_now().await;
                            lock(&books).register(&request.session_id)
                        }
                    };
                    let ended = match registered {
                        Ok(ended) => ended,
                        Err(error) => return responder.respond_with_error(error),
                    };
                    let turn = Turn { client: again, session: request.session_id };
                    let stopped = tokio::select! {
                        () = ended.cancelled() => Ok(StopReason::Cancelled),
                        () = withdrawn.cancelled() => Ok(StopReason::Cancelled),
                        stopped = turn.run(&request.prompt) => stopped,
                    };
                    match stopped {
                        Ok(reason) => responder.respond(PromptResponse::new(reason)),
                        Err(error) => responder.respond_with_error(error),
                    }
                })
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |cancel: CancelNotification, _| {
                lock(&cancels).end(&cancel.session_id);
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(ByteStreams::new(stdout().compat_write(), stdin().compat()))
        .await
}

/// What the agent must remember.
#[derive(Default)]
struct Books {
    sessions: HashSet<SessionId>,
    /// What ends the last turn of each session.
    turns: HashMap<SessionId, CancellationToken>,
}

impl Books {
    fn new_session(&mut self) -> SessionId {
        let session: SessionId = format!("session-{}", self.sessions.len() + 1).into();
        self.sessions.insert(session.clone());
        session
    }

    fn register(&mut self, session: &SessionId) -> Result<CancellationToken, Error> {
        if !self.sessions.contains(session) {
            return Err(Error::invalid_params().data(format!("sessionId: there is no {}", session.0)));
        }
        self.end(session);
        let turn = CancellationToken::new();
        self.turns.insert(session.clone(), turn.clone());
        Ok(turn)
    }

    fn end(&self, session: &SessionId) {
        if let Some(turn) = self.turns.get(session) {
            turn.cancel();
        }
    }
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A prompt that is being handled.
struct Turn {
    client: ConnectionTo<Client>,
    session: SessionId,
}

impl Turn {
    async fn run(&self, prompt: &[ContentBlock]) -> Result<StopReason, Error> {
        for block in prompt {
            let ContentBlock::Text(text) = block else { continue };
            for word in text.text.split_whitespace() {
                self.step(word).await?;
            }
        }
        Ok(StopReason::EndTurn)
    }

    async fn step(&self, word: &str) -> Result<(), Error> {
        let number = |text: &str| text.parse().map_err(|_| Error::invalid_params().data(word));
        match word.split_once('=') {
            Some(("wait", ms)) => sleep(Duration::from_millis(number(ms)?)).await,
            Some(("say", text)) => self.say(text)?,
            Some(("updates", count)) => (1..=number(count)?).try_for_each(|number| self.say(&number.to_string()))?,
            None if word == "permission" => {
                let outcome = self.ask().await?;
                self.say(&outcome)?;
            }
            _ => self.say(word)?,
        }
        Ok(())
    }

    fn say(&self, text: &str) -> Result<(), Error> {
        let update = SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()));
        self.client.send_notification(SessionNotification::new(self.session.clone(), update))
    }

    async fn ask(&self) -> Result<String, Error> {
        let fields = ToolCallUpdateFields::new().title("Do what the prompt says".to_owned());
        let options = vec![
            PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce),
            PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
        ];
        let request =
            RequestPermissionRequest::new(self.session.clone(), ToolCallUpdate::new("permission", fields), options);
        Ok(match self.client.send_request(request).block_task().await?.outcome {
            RequestPermissionOutcome::Selected(selected) => selected.option_id.to_string(),
            _ => "cancelled".to_owned(),
        })
    }
}
