//! Workers that are agents of the Agent Client Protocol, each a child process that leads a process group of its own.
//!
//! A worker's life is one connection with one session: `initialize`, `session/new` with the fleet's tools, and then a prompt
//! for each task and each answer that comes late, one at a time. Whatever ends it, the process and all that it started
//! are gone before its life is over, and what is told of its end is how the process exited and what it said last.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_client_protocol_schema::{
    ProtocolVersion,
    v1::{
        CancelNotification, ContentBlock, ContentChunk, Error as AcpError, Implementation, InitializeRequest,
        McpServer, NewSessionRequest, PermissionOption, PermissionOptionKind, PromptRequest, RequestPermissionOutcome,
        RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome, SessionId, SessionNotification,
        SessionUpdate, StopReason, ToolKind,
    },
};
use lastword_core::delegation::{TicketId, TurnEnd, WorkerId};
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Assignment, Handle, Launch, Life, Seat, WAIT_MAX, view::QuestionText};
use crate::{AgentProcess, CallError, Client, ClientContext, ProcessOptions, ServeError};

/// How much of the last message of a turn is kept: 64 KiB, of which a reader of a reply that was none sees enough.
const LAST_MESSAGE_BYTES_MAX: usize = 64 << 10;

/// How much of the parameters of a tool is shown with a request for permission: 4 KiB, more than anybody reads.
const TOOL_INPUT_BYTES_MAX: usize = 4 << 10;

/// A kind of worker: how its process is started, and what it may do. Take [`WorkerKind::new`] and change what you need.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerKind {
    /// The program.
    pub command: PathBuf,
    /// Its arguments: none.
    pub args: Vec<String>,
    /// What it finds in its environment, beside what we have in ours: nothing.
    pub env: BTreeMap<String, String>,
    /// The folder that it works in, an absolute path.
    pub cwd: PathBuf,
    /// What becomes of its requests for permission: they are denied.
    pub permissions: Permissions,
    /// How long it may take until it has a session: 60 s, in which even one that is downloaded first comes up.
    pub start_max: Duration,
    /// How long it may take to end a turn that was cancelled, before it is ended itself: 10 s. The next ticket waits for that.
    pub cancel_max: Duration,
    /// How long it may say nothing in a turn, before it is ended: 30 minutes, longer than builds and tests take.
    pub silence_max: Duration,
    /// The bounds of its process and of the connection.
    pub process: ProcessOptions,
}

impl WorkerKind {
    /// A kind with the defaults.
    pub fn new(command: impl Into<PathBuf>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: cwd.into(),
            permissions: Permissions::Deny,
            start_max: Duration::from_secs(60),
            cancel_max: Duration::from_secs(10),
            silence_max: Duration::from_secs(30 * 60),
            process: ProcessOptions::default(),
        }
    }
}

/// What becomes of a worker's requests for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permissions {
    /// Whatever it asks for is allowed, each time anew where it offers that.
    Allow,
    /// It is denied.
    Deny,
    /// The lead is asked; the answer must be one of the options.
    Ask,
}

/// The fleet's tools, as workers get them.
pub trait Tools: Send + Sync + 'static {
    /// The MCP servers of a worker's session. Over them it calls [`Handle::ask`] and [`Handle::reply`], so they must know
    /// which worker it is. Every agent takes a server on standard input and output; whether this one takes one over HTTP is
    /// what it said.
    fn servers(&self, worker: WorkerId, takes_http: bool) -> Vec<McpServer>;

    /// The text of a prompt.
    fn brief(&self, assignment: &Assignment) -> String {
        assignment.brief()
    }

    /// Whether a request for permission with this title is for one of these tools. Many agents ask before they use a tool that
    /// they do not know, and a worker that must ask its lead whether it may ask its lead, or that may not reply, is of no use:
    /// such a request is allowed, whatever becomes of others.
    fn is_own(&self, _title: &str) -> bool {
        false
    }

    /// The worker is gone; what was made for it has no more use.
    fn gone(&self, _worker: WorkerId) {}
}

/// Workers that are agents of the Agent Client Protocol.
pub struct AcpWorkers {
    kinds: BTreeMap<String, WorkerKind>,
    tools: Arc<dyn Tools>,
}

impl AcpWorkers {
    /// Workers of these kinds, which have no tools: the last message of a turn stands for its reply.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = (String, WorkerKind)>) -> Self {
        Self { kinds: kinds.into_iter().collect(), tools: Arc::new(NoTools) }
    }

    /// Gives them tools.
    #[must_use]
    pub fn tools(self, tools: Arc<dyn Tools>) -> Self {
        Self { tools, ..self }
    }
}

struct NoTools;

impl Tools for NoTools {
    fn servers(&self, _: WorkerId, _: bool) -> Vec<McpServer> {
        Vec::new()
    }

    fn brief(&self, assignment: &Assignment) -> String {
        assignment.text.clone()
    }
}

impl Launch for AcpWorkers {
    fn kinds(&self) -> Vec<String> {
        self.kinds.keys().cloned().collect()
    }

    fn launch(&self, seat: Seat) -> Life {
        let (worker, tools) = (seat.worker(), Arc::clone(&self.tools));
        let kind = match seat.profile() {
            Ok(profile) => self.kinds.get(&profile.kind).cloned().ok_or_else(|| {
                format!("there is no kind of worker {:?} any more; spawn one of a kind that there is", profile.kind)
            }),
            Err(error) => Err(error.to_string()),
        };
        Box::pin(async move {
            let how = match kind {
                Ok(kind) => live(kind, Arc::clone(&tools), seat).await,
                Err(how) => how,
            };
            tools.gone(worker);
            how
        })
    }
}

/// From the start of the process to its end.
async fn live(kind: WorkerKind, tools: Arc<dyn Tools>, mut seat: Seat) -> String {
    let mut command = Command::new(&kind.command);
    command.args(&kind.args).envs(&kind.env).current_dir(&kind.cwd);
    let ear = Arc::new(Mutex::new(Ear::new()));
    let listener = Listener {
        ear: Arc::clone(&ear),
        fleet: seat.handle(),
        worker: seat.worker(),
        permissions: kind.permissions,
        tools: Arc::clone(&tools),
        stop: seat.stop().clone(),
    };
    let process = match AgentProcess::spawn(command, listener, kind.process.clone()) {
        Ok(process) => process,
        Err(error) => return format!("{error}; see its `command`, and `cwd` where it is to run"),
    };
    let stop = seat.stop().clone();
    let working = work(&kind, &*tools, &mut seat, &process, &ear);
    let why = tokio::select! {
        biased;
        () = stop.cancelled() => Some("it was stopped".to_owned()),
        why = working => why,
    };
    let ended = process.close().await;
    let how = match (why, ended.connection) {
        (Some(why), _) => why + ": ",
        // One that does not read because it is gone: how it went says more.
        (None, Ok(()) | Err(ServeError::Write(_))) => String::new(),
        (None, Err(error)) => format!("{error}: "),
    };
    how + &ended.exit.to_string()
}

/// Gives the worker its prompts. Says why it must go, unless it went by itself.
async fn work(
    kind: &WorkerKind,
    tools: &dyn Tools,
    seat: &mut Seat,
    process: &AgentProcess,
    ear: &Mutex<Ear>,
) -> Option<String> {
    let mut asked = "initialize";
    let started = timeout(kind.start_max, start(kind, tools, seat.worker(), process, &mut asked)).await;
    let session = match started {
        Ok(Ok(session)) => session,
        Ok(Err(NotStarted::Call(error))) => return gone_or(error, "it has no session"),
        Ok(Err(NotStarted::Version(version))) => {
            return Some(format!(
                "it speaks version {version} of ACP, and the fleet version {}; take a version of it that does too",
                ProtocolVersion::V1
            ));
        }
        Err(_) => {
            return Some(format!(
                "it did not answer `{asked}` within {:?}; its command must speak ACP on standard input and output",
                kind.start_max
            ));
        }
    };
    loop {
        let assignment = tokio::select! {
            assignment = seat.next() => assignment?,
            _ = process.exited() => return None,
        };
        let ticket = assignment.ticket;
        lock(ear).begin(ticket, assignment.cancelled.clone());
        let answered = turn(kind, &session, process, ear, tools.brief(&assignment), &assignment.cancelled).await;
        let said = lock(ear).end();
        match answered {
            Ok(Ok(StopReason::EndTurn)) if !said.is_empty() => seat.ended(ticket, TurnEnd::Ended, said),
            Ok(Ok(reason)) => {
                seat.ended(ticket, TurnEnd::Ended, format!("{said}\n(the turn ended: {reason:?})").trim().to_owned());
            }
            Ok(Err(error @ (CallError::Disconnected | CallError::AgentExited(_)))) => return gone_or(error, "it left"),
            Ok(Err(error)) => seat.ended(ticket, TurnEnd::Failed, error.to_string()),
            Err(why) => return Some(why),
        }
    }
}

/// Nothing where it is gone, which the end of its process says better.
fn gone_or(error: CallError, what: &str) -> Option<String> {
    match error {
        CallError::AgentExited(_) => None,
        error => Some(format!("{what}: {error}")),
    }
}

/// Why there is no session.
enum NotStarted {
    Call(CallError),
    Version(ProtocolVersion),
}

impl From<CallError> for NotStarted {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Opens the session, and says which request it waits for.
async fn start(
    kind: &WorkerKind,
    tools: &dyn Tools,
    worker: WorkerId,
    process: &AgentProcess,
    asked: &mut &'static str,
) -> Result<SessionId, NotStarted> {
    let us = Implementation::new("lastword", env!("CARGO_PKG_VERSION"));
    let initialized = process.agent().initialize(InitializeRequest::new(ProtocolVersion::V1).client_info(us)).await?;
    if initialized.protocol_version != ProtocolVersion::V1 {
        return Err(NotStarted::Version(initialized.protocol_version));
    }
    *asked = "session/new";
    let takes_http = initialized.agent_capabilities.mcp_capabilities.http;
    let request = NewSessionRequest::new(&kind.cwd).mcp_servers(tools.servers(worker, takes_http));
    Ok(process.agent().new_session(request).await?.session_id)
}

/// One prompt, to its answer; or why the worker must go.
async fn turn(
    kind: &WorkerKind,
    session: &SessionId,
    process: &AgentProcess,
    ear: &Mutex<Ear>,
    brief: String,
    cancelled: &CancellationToken,
) -> Result<Result<StopReason, CallError>, String> {
    let prompt = process.agent().prompt(PromptRequest::new(session.clone(), vec![brief.into()]));
    let mut prompt = std::pin::pin!(prompt);
    let mut cancelled_at = None;
    loop {
        let (deadline, why) = match cancelled_at {
            Some(at) => (at + kind.cancel_max, format!("it did not end a cancelled turn within {:?}", kind.cancel_max)),
            None => {
                (lock(ear).silent_since() + kind.silence_max, format!("it said nothing for {:?}", kind.silence_max))
            }
        };
        tokio::select! {
            // The prompt first, so that it is written before its cancel.
            biased;
            answered = &mut prompt => return Ok(answered.map(|response| response.stop_reason)),
            () = cancelled.cancelled(), if cancelled_at.is_none() => {
                cancelled_at = Some(Instant::now());
                // An agent that does not read must not hold up the time that it has.
                tokio::spawn(process.agent().cancel(CancelNotification::new(session.clone())));
            }
            () = sleep_until(deadline) => {
                if cancelled_at.is_some() || lock(ear).silent_since() + kind.silence_max <= Instant::now() {
                    return Err(why);
                }
            }
        }
    }
}

/// What is heard of a worker. Shared by its life and by the handlers of its messages; held for a look or a change.
struct Ear {
    /// The message that the agent is at, or was at last.
    message: String,
    /// Something else came after it, so that more text is a new message.
    is_over: bool,
    heard_at: Instant,
    /// How many requests for permission the lead has before it: meanwhile nothing is to be heard.
    requests: usize,
    turn: Option<(TicketId, CancellationToken)>,
}

impl Ear {
    fn new() -> Self {
        Self { message: String::new(), is_over: false, heard_at: Instant::now(), requests: 0, turn: None }
    }

    fn begin(&mut self, ticket: TicketId, cancelled: CancellationToken) {
        *self = Self { turn: Some((ticket, cancelled)), requests: self.requests, ..Self::new() };
    }

    /// The last message of the turn.
    fn end(&mut self) -> String {
        self.turn = None;
        std::mem::take(&mut self.message)
    }

    fn hear(&mut self, update: SessionUpdate) {
        self.heard_at = Instant::now();
        match update {
            SessionUpdate::AgentMessageChunk(ContentChunk { content, .. }) => {
                if std::mem::take(&mut self.is_over) {
                    self.message.clear();
                }
                if let ContentBlock::Text(text) = content {
                    push(&mut self.message, &text.text, LAST_MESSAGE_BYTES_MAX);
                }
            }
            // These may come at any time, and end no message.
            SessionUpdate::UsageUpdate(_) | SessionUpdate::SessionInfoUpdate(_) => {}
            _ => self.is_over = true,
        }
    }

    fn silent_since(&self) -> Instant {
        if self.requests > 0 { Instant::now() } else { self.heard_at }
    }
}

/// Appends as much as there is room for.
fn push(text: &mut String, more: &str, bytes_max: usize) {
    let room = bytes_max.saturating_sub(text.len());
    text.push_str(&more[..more.floor_char_boundary(room)]);
}

/// The client that a worker's agent talks to.
struct Listener {
    ear: Arc<Mutex<Ear>>,
    fleet: Handle,
    worker: WorkerId,
    permissions: Permissions,
    tools: Arc<dyn Tools>,
    stop: CancellationToken,
}

impl Client for Listener {
    async fn session_update(&self, notification: SessionNotification, _: ClientContext) {
        lock(&self.ear).hear(notification.update);
    }

    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        context: ClientContext,
    ) -> Result<RequestPermissionResponse, AcpError> {
        use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
        let of_kind = |kinds: [PermissionOptionKind; 2]| {
            kinds.iter().find_map(|kind| request.options.iter().find(|option| option.kind == *kind))
        };
        let chosen = match self.permissions {
            _ if self.is_own(&request) => of_kind([AllowOnce, AllowAlways]),
            Permissions::Allow => of_kind([AllowOnce, AllowAlways]),
            Permissions::Deny => of_kind([RejectOnce, RejectAlways]),
            Permissions::Ask => self.ask_lead(&request, &context).await,
        };
        let outcome = match chosen {
            Some(option) => {
                RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id.clone()))
            }
            None => RequestPermissionOutcome::Cancelled,
        };
        Ok(RequestPermissionResponse::new(outcome))
    }
}

impl Listener {
    /// Whether it is for a tool of the fleet. What runs a command or reads a file is none, and its title may be the model's own.
    fn is_own(&self, request: &RequestPermissionRequest) -> bool {
        let fields = &request.tool_call.fields;
        let may_be = fields.kind.is_none_or(|kind| kind == ToolKind::Other);
        may_be && fields.title.as_deref().is_some_and(|title| self.tools.is_own(title))
    }

    /// The option that the lead chose; none where the turn ended before.
    async fn ask_lead<'a>(
        &self,
        request: &'a RequestPermissionRequest,
        context: &ClientContext,
    ) -> Option<&'a PermissionOption> {
        let (ticket, cancelled) = lock(&self.ear).turn.clone()?;
        let names = names(&request.options);
        let question = QuestionText { text: describe(request), options: names.clone(), only_options: true };
        let asked = {
            lock(&self.ear).requests += 1;
            let _waiting = Waiting(&self.ear);
            tokio::select! {
                asked = self.fleet.ask_for(self.worker, ticket, question, WAIT_MAX) => asked,
                // Whoever cancels a turn must say so to the permissions that it waits for.
                () = cancelled.cancelled() => return None,
                () = context.cancellation().cancelled() => return None,
                () = self.stop.cancelled() => return None,
            }
        };
        match asked {
            Ok(heard) => {
                let answer = heard.answer?;
                names.iter().position(|name| *name == answer).map(|place| &request.options[place])
            }
            Err(error) => {
                tracing::warn!(
                    worker = self.worker.0,
                    "a request for permission could not be put to the lead: {error}"
                );
                None
            }
        }
    }
}

/// A request for permission that the lead has before it.
struct Waiting<'a>(&'a Mutex<Ear>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut ear = lock(self.0);
        ear.requests -= 1;
        ear.heard_at = Instant::now();
    }
}

/// The names of the options, by which they are answered; where two have the same one, with their ids.
fn names(options: &[PermissionOption]) -> Vec<String> {
    let is_twin = |name: &str| options.iter().filter(|option| option.name.eq_ignore_ascii_case(name)).count() > 1;
    options
        .iter()
        .map(|option| match is_twin(&option.name) {
            true => format!("{} ({})", option.name, option.option_id.0),
            false => option.name.clone(),
        })
        .collect()
}

fn describe(request: &RequestPermissionRequest) -> String {
    let fields = &request.tool_call.fields;
    let mut text = format!("The worker asks for permission: {}", fields.title.as_deref().unwrap_or("to use a tool"));
    // Some agents show what they are about to do in the place of the parameters.
    let shown = || fields.content.as_ref().filter(|content| !content.is_empty()).map(|content| json!(content));
    if let Some(input) = fields.raw_input.clone().or_else(shown) {
        text.push_str("\n\n");
        let bytes_max = text.len() + TOOL_INPUT_BYTES_MAX;
        push(&mut text, &input.to_string(), bytes_max);
    }
    text
}

/// Nothing panics while it holds the lock, and if something did, what it holds would still be whole.
fn lock(ear: &Mutex<Ear>) -> MutexGuard<'_, Ear> {
    ear.lock().unwrap_or_else(PoisonError::into_inner)
}
