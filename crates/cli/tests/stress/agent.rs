//! An agent whose handlers do as they are told, and begin late.

use std::{
    collections::BTreeSet,
    panic::resume_unwind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use lastword::{
    Agent, Context, Turn,
    schema::v1::{
        CancelNotification, ContentBlock, Error, ExtNotification, ExtRequest, ExtResponse, InitializeRequest,
        InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse, StopReason,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::watch;

/// What a handler does.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Script {
    /// How often it lets others go first, before it looks at anything: an author who registers a turn late.
    pub(crate) yields: u8,
    /// It does the rest in a task of its own.
    pub(crate) spawns: bool,
    pub(crate) then: Then,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Then {
    Return,
    Fail,
    Panic,
    /// Waits until it is cancelled or released.
    Wait,
    /// Waits until it is released, whoever cancels it.
    IgnoreCancels,
    /// Asks the client, and waits until it is answered or cancelled.
    Ask,
    /// Asks the client, and waits until it is answered, whoever cancels it.
    AskAndIgnoreCancels,
}

impl Script {
    const DEFAULT: Self = Self { yields: 1, spawns: false, then: Then::Return };

    /// A prompt's text is a script, or one of the words that `lastword agent` knows too.
    fn of_prompt(text: &str, number: u64) -> Self {
        let late = |then| Self { yields: (number % 5) as u8, spawns: number.is_multiple_of(3), then };
        match text {
            "permission" => late(Then::Ask),
            text if text.starts_with("wait=") => late(Then::Wait),
            script => serde_json::from_str(script).unwrap(),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Unruly(Arc<Inner>);

struct Inner {
    released: watch::Sender<bool>,
    /// The number of the last session that was opened.
    sessions: AtomicU64,
    /// The sessions with a prompt whose handler is there.
    running: Mutex<BTreeSet<String>>,
    /// Two prompts of one session have been there at once.
    overlapped: AtomicBool,
}

impl Unruly {
    pub(crate) fn new() -> Self {
        let (released, _) = watch::channel(false);
        Self(Arc::new(Inner {
            released,
            sessions: AtomicU64::new(1),
            running: Mutex::default(),
            overlapped: AtomicBool::new(false),
        }))
    }

    /// Lets every handler go that waits to be released.
    pub(crate) fn release(&self) {
        self.0.released.send_replace(true);
    }

    async fn run_in(&self, script: Script, context: Context) -> Result<(), Error> {
        let client = context.client();
        let asked = async move { client.ext_method(question()).await.map(drop).map_err(Error::from) };
        self.run(script, asked, async move { context.cancellation().cancelled().await }).await
    }

    async fn run(
        &self,
        script: Script,
        asked: impl Task<Result<(), Error>>,
        cancelled: impl Task<()>,
    ) -> Result<(), Error> {
        for _ in 0..script.yields {
            tokio::task::yield_now().await;
        }
        let then = self.clone().then(script.then, asked, cancelled);
        if !script.spawns {
            return then.await;
        }
        match tokio::spawn(then).await {
            Ok(returned) => returned,
            Err(error) => resume_unwind(error.into_panic()),
        }
    }

    async fn then(
        self,
        then: Then,
        asked: impl Task<Result<(), Error>>,
        cancelled: impl Task<()>,
    ) -> Result<(), Error> {
        let mut releases = self.0.released.subscribe();
        let released =
            async { releases.wait_for(|released| *released).await.map(drop).map_err(Error::into_internal_error) };
        match then {
            Then::Return => Ok(()),
            Then::Fail => Err(Error::new(-32000, "told to fail")),
            // Not `panic!`, so that no hook prints it among the results of the tests.
            Then::Panic => resume_unwind(Box::new("told to panic")),
            Then::Wait => tokio::select! { () = cancelled => Ok(()), released = released => released },
            Then::IgnoreCancels => released.await,
            Then::Ask => tokio::select! { () = cancelled => Ok(()), asked = asked => asked },
            Then::AskAndIgnoreCancels => asked.await,
        }
    }

    /// Sees where two prompts of a session run at once, whatever the machine believes.
    fn begin(&self, session: &str) -> Running {
        if !self.0.running.lock().unwrap().insert(session.to_owned()) {
            self.0.overlapped.store(true, Ordering::Relaxed);
        }
        Running { agent: self.clone(), session: session.to_owned() }
    }

    /// Whether two prompts of one session never ran at once.
    pub(crate) fn kept_turns_apart(&self) -> bool {
        !self.0.overlapped.load(Ordering::Relaxed)
    }
}

/// A future that may go on in a task of its own.
trait Task<T>: Future<Output = T> + Send + 'static {}
impl<T, F: Future<Output = T> + Send + 'static> Task<T> for F {}

fn question() -> ExtRequest {
    ExtRequest::new("_stress/ask", null())
}

fn null() -> Arc<RawValue> {
    RawValue::NULL.to_owned().into()
}

/// There while the handler of a prompt is there.
struct Running {
    agent: Unruly,
    session: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.agent.0.running.lock().unwrap().remove(&self.session);
    }
}

impl Agent for Unruly {
    async fn initialize(&self, request: InitializeRequest, _: Context) -> Result<InitializeResponse, Error> {
        Ok(InitializeResponse::new(request.protocol_version))
    }

    async fn new_session(&self, _: NewSessionRequest, _: Context) -> Result<NewSessionResponse, Error> {
        let number = self.0.sessions.fetch_add(1, Ordering::Relaxed);
        Ok(NewSessionResponse::new(format!("session-{number}")))
    }

    async fn prompt(&self, request: PromptRequest, turn: Turn) -> Result<PromptResponse, Error> {
        let _running = self.begin(&request.session_id.0);
        let [ContentBlock::Text(text)] = &request.prompt[..] else { return Err(Error::invalid_params()) };
        let script = Script::of_prompt(&text.text, turn.number());
        let client = turn.client();
        let asked = async move { client.ext_method(question()).await.map(drop).map_err(Error::from) };
        self.run(script, asked, async move { turn.cancellation().cancelled().await }).await?;
        Ok(PromptResponse::new(StopReason::EndTurn))
    }

    async fn cancel(&self, notification: CancelNotification, context: Context) {
        let script = notification.meta.map_or(Script::DEFAULT, |meta| serde_json::from_value(meta.into()).unwrap());
        // A cancel has nobody to tell what became of it.
        let _ = self.run_in(script, context).await;
    }

    async fn ext_method(&self, request: ExtRequest, context: Context) -> Result<ExtResponse, Error> {
        if &*request.method == "_lastword/echo" {
            return Ok(ExtResponse::new(request.params));
        }
        let script = serde_json::from_str(request.params.get()).map_err(Error::into_internal_error)?;
        self.run_in(script, context).await?;
        Ok(ExtResponse::new(null()))
    }

    async fn ext_notification(&self, notification: ExtNotification, context: Context) {
        let script = serde_json::from_str(notification.params.get()).unwrap();
        let _ = self.run_in(script, context).await;
    }
}
