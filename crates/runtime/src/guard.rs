//! The guard: the promises of this runtime, put in front of an agent that may not keep them.
//!
//! It is two connections in one process. The front one faces the client and is an agent's; the back one faces the agent, a
//! child process, and is a client's. What is decided about a message is decided by the core of the connection on which it
//! arrives, when it arrives. The guard itself decides nothing: it passes on what starts, as one raw call or one notification
//! on the other side, and what passes through stays as it was written. Only what needs more than that has a handler: a prompt
//! and what ends prompts.
//!
//! The order holds together like this. A message is taken in only while the other side has room, so it is passed on, or its
//! handler forwards it in its first poll, without waiting to do so. The tasks of handlers run in the order in which the core
//! started them, on one thread, and those that were started or woken run before the next message is taken in. And a
//! notification of the agent starts only after the callers of the responses before it have resumed, which includes that they
//! have answered the client.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_client_protocol_schema::v1::{AGENT_METHOD_NAMES as METHODS, Error};
use lastword_core::{Cause, SessionId};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::{Handle, RuntimeFlavor},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{CallError, ServeError},
    handle::{AgentHandle, Link},
    handler::{Answer, not_found, start_raw},
    options::Options,
    process::{AgentProcess, Ended, ProcessOptions, SpawnError},
    relay::{NOTHING, Relay},
    serve::{End, Notification, Request, Role, serve},
    shell::{Asked, Shell, State},
    turn::Context,
    wire,
};

/// How long the agent has to end a turn before it is told to again. Many agents register a turn only after they have waited
/// for something, and lose a cancel that comes before that.
const CANCEL_AGAIN_FIRST: Duration = Duration::from_millis(20);

/// The pause doubles each time up to this: an agent that is busy with ending a turn is not flooded.
const CANCEL_AGAIN_MAX: Duration = Duration::from_millis(500);

/// How often it is looked for late answers in the time that an answer may take: one is given up by so small a part of that time
/// too late.
const LOOKS: u32 = 16;

/// What can be set about a guard. Take the default and change what you need.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GuardOptions {
    /// Of the connection to the client. [`Options::overlap`] says what becomes of prompts that overlap, and
    /// [`Options::grace`] how long the agent may take to answer a prompt that was ended.
    pub client: Options,
    /// Of the agent's process, and of the connection to it.
    pub agent: ProcessOptions,
    /// How long the agent may take to answer a request that is no prompt, while it asks nothing of the client: 5 minutes. The
    /// client then gets an error, and a later answer is dropped.
    pub answer_max: Duration,
    /// How long the agent may say nothing at all during a prompt, while it asks nothing of the client: 1 hour, since a tool that
    /// it runs may be silent for long. The agent is then told to end the turn, and the client gets an error.
    pub silence_max: Duration,
    /// Ends the guard when it fires: the agent is closed, and what the client has open is given up.
    pub stop: CancellationToken,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self {
            client: Options::default(),
            agent: ProcessOptions { stderr_passes: true, ..ProcessOptions::default() },
            answer_max: Duration::from_secs(5 * 60),
            silence_max: Duration::from_secs(60 * 60),
            stop: CancellationToken::new(),
        }
    }
}

/// How a guard ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum GuardEnded {
    /// The client ended its side, or the guard was told to stop; then the agent was closed.
    Client {
        /// How the connection to the client ended.
        connection: Result<(), ServeError>,
        /// How the agent did.
        agent: Ended,
    },
    /// The agent ended first. Each request that was in flight was answered with an error that says how.
    Agent(Ended),
}

/// Starts an agent and stands between it and the client at the other end of `reader` and `writer`, until one of them ends.
///
/// The client sees the promises of this runtime kept, whatever the agent does. The agent sees at most one prompt of a session
/// at a time, a cancel only as a notification and only while a prompt of its session is with it, and everything else in the
/// order in which the client said it. What passes through, extensions and unknown fields included, is not changed.
///
/// It runs inside a tokio runtime of the flavor `current_thread` with IO and time enabled.
///
/// ```no_run
/// use lastword::{GuardOptions, guard};
/// use std::process::Command;
///
/// # async fn example() -> Result<(), lastword::SpawnError> {
/// let mut command = Command::new("my-agent");
/// command.arg("--acp");
/// let ended = guard(command, tokio::io::stdin(), tokio::io::stdout(), GuardOptions::default()).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`SpawnError`] where the agent cannot be started.
///
/// # Panics
///
/// Where the runtime has several threads: there, the tasks that forward could overtake each other.
pub async fn guard<R, W>(
    command: Command,
    reader: R,
    writer: W,
    options: GuardOptions,
) -> Result<GuardEnded, SpawnError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let flavor = Handle::current().runtime_flavor();
    assert!(matches!(flavor, RuntimeFlavor::CurrentThread), "a guard runs on a runtime of the flavor current_thread");
    let client = Arc::new(Shell::new(options.client));
    let end = End(Arc::clone(&client));
    let heard = Arc::new(Mutex::new(Instant::now()));
    let back = |agent: AgentHandle| {
        let agent = Arc::clone(&agent.link().shell);
        let relay = Relay::new(agent, Arc::clone(&client), || std::future::ready(client_gone()));
        Back { relay, heard: Arc::clone(&heard) }
    };
    let mut process = AgentProcess::spawn_role(command, back, options.agent)?;
    let agent = Arc::clone(process.agent().link());
    let relay = {
        let (client, shell) = (Arc::clone(&client), Arc::clone(&agent.shell));
        Relay::new(client, shell, move || gone(Arc::clone(&agent)))
    };
    let front = Front(Arc::new(Forward {
        agent: Arc::clone(process.agent().link()),
        relay,
        client: Arc::clone(&client),
        turns: Mutex::default(),
        heard,
        answer_max: options.answer_max,
        silence_max: options.silence_max,
    }));
    let drain_max = client.options.drain_max;
    let overdue = Arc::clone(&front.0);
    let mut serving = Box::pin(serve(&front, end, reader, writer, CancellationToken::new()));
    let connection = tokio::select! {
        biased;
        // The client ended its side, or is gone.
        connection = &mut serving => connection,
        // Somebody wants the guard to end.
        () = options.stop.cancelled() => Ok(()),
        // It gives up what the agent does not answer, as long as the guard lasts.
        never = overdue.give_up() => match never {},
        // The agent is gone. What the client waits for is answered first.
        ended = process.ended() => {
            let is_answered = |state: &State| state.core.requests_in_flight() + state.unwritten() == 0;
            tokio::select! {
                biased;
                // All is answered and written.
                () = client.until(is_answered) => {}
                // The client ended its side just now.
                _ = &mut serving => {}
                // The client does not read.
                () = sleep(drain_max) => {}
            }
            return Ok(GuardEnded::Agent(ended));
        }
    };
    drop(serving);
    Ok(GuardEnded::Client { connection, agent: process.close().await })
}

/// What both sides look at of parameters.
#[derive(Deserialize)]
struct OfSession {
    #[serde(rename = "sessionId")]
    session: SessionId,
}

/// What of a prompt must be right for it to be one. What its parts are is the agent's business.
#[derive(Deserialize)]
struct OfPrompt {
    #[serde(rename = "sessionId")]
    session: SessionId,
    #[serde(rename = "prompt")]
    _parts: Vec<IgnoredAny>,
}

fn session(params: Option<&str>) -> Result<SessionId, Error> {
    Ok(wire::params::<OfSession>(params)?.session)
}

/// The side of the client: what it says goes to the agent.
struct Front(Arc<Forward>);

/// What the handlers of the front side share.
struct Forward {
    agent: Arc<Link>,
    client: Arc<Shell>,
    /// What needs no handler goes this way.
    relay: Arc<Relay>,
    /// The sessions of which the agent has a prompt, each with the parameters of the cancel that ended it, once one did. Held
    /// for a look-up or a change, never across an await.
    turns: Mutex<BTreeMap<SessionId, Option<Box<str>>>>,
    /// When the agent said something last.
    heard: Arc<Mutex<Instant>>,
    answer_max: Duration,
    silence_max: Duration,
}

impl Role for Front {
    const HEARS_OUT: bool = false;

    fn request(&self, method: &str, params: Option<&str>) -> Request<'_> {
        self.decode(method, params).unwrap_or_else(|error| Request::Other(crate::handler::refuse(error)))
    }

    fn notification(&self, method: &str, params: Option<&str>) -> Result<Notification<'_>, Error> {
        if method == METHODS.session_cancel {
            let session = self.cancel(params)?;
            // The turn that it ends tells the agent.
            return Ok(Notification::EndsPrompts(session, start_raw(|_| std::future::ready(done()))));
        }
        Ok(Notification::PassedOn(&self.0.relay))
    }

    fn relay(&self) -> Option<&Arc<Relay>> {
        Some(&self.0.relay)
    }
}

impl Front {
    fn decode(&self, method: &str, raw: Option<&str>) -> Result<Request<'_>, Error> {
        let start = || (Arc::clone(&self.0), raw.map(Box::from));
        if method == wire::CANCEL_REQUEST {
            // It is a notification. The id in it is the client's, and would be another request's at the agent.
            return Err(not_found(method));
        }
        Ok(if method == METHODS.session_prompt {
            // One with bad parameters ends nothing, so it must not be taken for a prompt.
            let session = wire::params::<OfPrompt>(raw)?.session;
            let ((forward, params), turn) = (start(), session.clone());
            Request::Prompt(session, start_raw(move |context| forward.prompt(turn, params, context)))
        } else if method == METHODS.session_cancel {
            Request::EndsPrompts(self.cancel(raw)?, start_raw(|_| std::future::ready(done())))
        } else if method == METHODS.session_close {
            let session = session(raw)?;
            let ((forward, params), closed) = (start(), session.clone());
            let start = start_raw(move |context| async move {
                // The prompts that it ends come first: each of them is answered or, after its grace period, given up.
                let arrival = context.arrival();
                let older_runs = |state: &State| state.core.turn(&closed).is_some_and(|turn| turn < arrival);
                forward.client.until(|state| !older_runs(state)).await;
                forward.close(params, context).await
            });
            Request::EndsPrompts(session, start)
        } else {
            Request::PassedOn(&self.0.relay)
        })
    }

    /// Keeps what a cancel says for the turn that it ends.
    fn cancel(&self, params: Option<&str>) -> Result<SessionId, Error> {
        let session = session(params)?;
        if let Some(turn) = lock(&self.0.turns).get_mut(&session) {
            *turn = params.map(Box::from);
        }
        Ok(session)
    }
}

impl Forward {
    /// Asks the agent to close a session.
    async fn close(&self, params: Option<Box<str>>, context: Context) -> Answer {
        let Ok(mut asked) = self.agent.shell.ask(METHODS.session_close, params.as_deref()) else {
            return gone(Arc::clone(&self.agent)).await;
        };
        tokio::select! {
            biased;
            // The agent answered, or is gone.
            answer = asked.answer() => self.answered(answer).await,
            // The client does not want to know any more. The call is dropped, which tells the agent.
            () = context.cancellation().cancelled() => done(),
            // It does not answer.
            () = self.overdue(self.answer_max, |_, asked| asked) => Err(self.late(METHODS.session_close)),
        }
    }

    fn late(&self, method: &str) -> Vec<u8> {
        no_answer(&format!("`{method}`"), &format!("within {:?}", self.answer_max))
    }

    /// Gives up each request that was passed on and is not answered in time. One timer for all: each time it is looked whether
    /// the agent owes something at all, and if so, what for too long.
    async fn give_up(&self) -> Infallible {
        loop {
            sleep(self.answer_max / LOOKS).await;
            let (now, owes_nothing) = (Instant::now(), self.owes_nothing());
            let mut late = Vec::new();
            let mut agent = self.agent.shell.lock();
            for (call, passed) in agent.relayed() {
                if owes_nothing {
                    passed.since = now;
                } else if now - passed.since >= self.answer_max {
                    late.push((passed.arrival, call, self.late(&passed.method)));
                }
            }
            drop(agent);
            for (arrival, call, answer) in late {
                self.relay.give_up(arrival, call, Err(&answer));
            }
        }
    }

    /// Puts a prompt to the agent and, once it has been ended, tells the agent so until it has answered. The grace period is
    /// the front's: when it is over, this future is dropped, and with it the call.
    async fn prompt(self: Arc<Self>, session: SessionId, params: Option<Box<str>>, context: Context) -> Answer {
        let Ok(mut asked) = self.agent.shell.ask(METHODS.session_prompt, params.as_deref()) else {
            return gone(Arc::clone(&self.agent)).await;
        };
        let turn = TurnAtAgent::new(&self, session);
        tokio::select! {
            biased;
            // The agent answered, or is gone.
            answer = asked.answer() => return self.answered(answer).await,
            // The turn was ended.
            () = context.cancellation().cancelled() => return turn.cancel(&mut asked, &context).await,
            // The agent is silent.
            () = self.overdue(self.silence_max, Instant::max) => {}
        }
        let grace = self.client.options.grace;
        match timeout(grace, turn.cancel(&mut asked, &context)).await {
            Ok(answer) => answer,
            Err(_) => Err(no_answer("the prompt", &format!("and said nothing at all for {:?}", self.silence_max))),
        }
    }

    async fn answered(&self, answer: Result<Result<Box<str>, Box<str>>, CallError>) -> Answer {
        match answer {
            Ok(answer) => answer.map(bytes).map_err(bytes),
            Err(_) => gone(Arc::clone(&self.agent)).await,
        }
    }

    /// Whether the agent owes nothing: the client owes it something, or does not read what it says.
    fn owes_nothing(&self) -> bool {
        let client = self.client.lock();
        client.core.calls().next().is_some() || !self.client.may_write(&client)
    }

    /// Waits until the agent owes something for so long. `since` tells from when on, by what it said last and by when it was
    /// asked.
    async fn overdue(&self, max: Duration, since: impl Fn(Instant, Instant) -> Instant) {
        let mut asked = Instant::now();
        loop {
            let due = since(*lock(&self.heard), asked) + max;
            if due > Instant::now() {
                sleep_until(due).await;
            } else if self.owes_nothing() {
                asked = Instant::now();
                sleep(max).await;
            } else {
                return;
            }
        }
    }
}

/// What the client learns of an agent that is gone.
async fn gone(agent: Arc<Link>) -> Answer {
    let why = match agent.gone().await {
        CallError::AgentExited(exit) => {
            json!({"what": "the agent exited", "how": exit.status.map(|status| status.to_string()), "stderr": exit.stderr})
        }
        _ => json!({"what": "the agent ended its side"}),
    };
    Err(error("the agent is gone", why, "start the agent again, and load the session"))
}

/// A prompt that is with the agent. While it is there, a cancel may be said.
struct TurnAtAgent<'a> {
    forward: &'a Forward,
    session: SessionId,
}

impl<'a> TurnAtAgent<'a> {
    fn new(forward: &'a Forward, session: SessionId) -> Self {
        lock(&forward.turns).insert(session.clone(), None);
        Self { forward, session }
    }

    /// Tells the agent that the turn has ended, and waits for its answer. Nothing else can be hit: no other prompt of the
    /// session is with the agent.
    async fn cancel(&self, asked: &mut Asked, context: &Context) -> Answer {
        let ended_by = context.shell().lock().core.ended(context.arrival());
        let said = lock(&self.forward.turns).get_mut(&self.session).and_then(Option::take);
        let params = match said.filter(|_| ended_by == Some(Cause::Cancel)) {
            Some(params) => params,
            None => json!({"sessionId": self.session}).to_string().into(),
        };
        let agent = &self.forward.agent.shell;
        let mut pause = CANCEL_AGAIN_FIRST;
        let mut may_say = true;
        loop {
            if may_say {
                // An agent that is gone needs no telling.
                let _ = agent.tell(METHODS.session_cancel, Some(&params));
            }
            tokio::select! {
                biased;
                // The agent answered, or is gone.
                answer = asked.answer() => return self.forward.answered(answer).await,
                // It may have missed it.
                () = sleep(pause) => {}
            }
            pause = (pause * 2).min(CANCEL_AGAIN_MAX);
            // Where it does not read, what was said once need not pile up.
            may_say = agent.may_write(&agent.lock());
        }
    }
}

impl Drop for TurnAtAgent<'_> {
    fn drop(&mut self) {
        lock(&self.forward.turns).remove(&self.session);
    }
}

/// The side of the agent: what it says goes to the client.
struct Back {
    relay: Arc<Relay>,
    heard: Arc<Mutex<Instant>>,
}

impl Role for Back {
    const HEARS_OUT: bool = true;

    fn request(&self, _: &str, _: Option<&str>) -> Request<'_> {
        Request::PassedOn(&self.relay)
    }

    fn notification(&self, _: &str, _: Option<&str>) -> Result<Notification<'_>, Error> {
        Ok(Notification::PassedOn(&self.relay))
    }

    fn heard(&self) {
        *lock(&self.heard) = Instant::now();
    }

    fn relay(&self) -> Option<&Arc<Relay>> {
        Some(&self.relay)
    }
}

/// What a handler returns that has nothing to say.
fn done() -> Answer {
    Ok(NOTHING.to_vec())
}

/// A value off the wire stands on one line already.
fn bytes(raw: Box<str>) -> Vec<u8> {
    String::from(raw).into_bytes()
}

fn no_answer(what: &str, how: &str) -> Vec<u8> {
    let why = json!({"what": format!("the agent did not answer {what} {how}")});
    error(
        "the agent does not answer",
        why,
        "its answer is dropped if it still comes; ask again, or start the agent again",
    )
}

fn client_gone() -> Answer {
    Err(error("the client is gone", json!({"what": "the client ended its side"}), "end the turn"))
}

fn error(message: &str, mut data: serde_json::Value, next: &str) -> Vec<u8> {
    data["next"] = next.into();
    wire::encode_error(&Error::new(-32603, format!("Internal error: {message}")).data(data))
}

/// Nothing panics while it holds one of these locks, and if something did, what they hold would still be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
