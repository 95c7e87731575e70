//! The tools of leads and workers, over the ticket service.
//!
//! A call that waits only watches: what it sent is stored before the wait begins, the wait is capped, and whoever leaves or
//! cancels it ends nothing but the wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use axum::http::request::Parts;
use lastword::delegation::{
    Error, Handle, LeadId, QuestionId, ReplyId, RequestKey, Seen, TicketId, Work, WorkerId, WorkerLife,
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::tool::{schema_for_input, schema_for_output},
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock, GetTaskParams,
        GetTaskResult, Implementation, InitializeRequestParams, InitializeResult, ListToolsResult, MetaObject,
        PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
        UpdateTaskParams,
    },
    service::RequestContext,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    config::Offer,
    tasks,
    token::Caller,
    words::{
        Answer, Answered, Ask, Inbox, KindView, Letters, Listed, Nothing, Poll, Replied, Reply, Send, Spawn, Spawned,
        Stop, Stopped, TicketView, Tickets, WorkerView,
    },
};

/// Who has the token of leads. There is one such token, so there is one lead: its sessions come and go.
pub(super) const LEAD: LeadId = LeadId(1);

/// What a lead's model is told about all of it.
const LEAD_INSTRUCTIONS: &str = "\
Delegate work to other agents. fleet_list shows the kinds of workers; fleet_spawn starts one; fleet_send gives it work and \
returns a ticket at once, or waits a while for what comes of it. A ticket is kept whatever happens to this session: poll it \
with fleet_poll until it is completed, failed or cancelled. Where a worker asks a question, answer it with fleet_send.";

/// What a worker's model is told.
const WORKER_INSTRUCTIONS: &str = "\
You work for a lead. Each prompt says its ticket. When you are done, call fleet_reply with that ticket: only that reaches the \
lead. Where you cannot go on without an answer, call fleet_ask with that ticket.";

/// What the tools work on.
pub(crate) struct Fleet {
    pub(crate) handle: Handle,
    pub(crate) offers: BTreeMap<String, Offer>,
    pub(crate) wait_max: Duration,
    pub(crate) progress_every: Duration,
    /// Fires when the daemon is to end: whoever waits is told how things stand.
    pub(crate) drain: CancellationToken,
    /// Held while workers are counted and one more is spawned.
    pub(crate) spawning: Mutex<()>,
}

impl Fleet {
    /// What a tool says, as data and in words.
    pub(super) fn answer<T: Answer>(&self, answer: &T) -> CallToolResult {
        let mut result = CallToolResult::success(vec![ContentBlock::text(answer.words(self.wait_max))]);
        // Strings, numbers and flags always have a form in JSON.
        result.structured_content = serde_json::to_value(answer).ok();
        result
    }
}

/// The tools of leads, or those of workers.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) role: Role,
}

/// Whose tools they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Lead,
    Worker,
}

pub(super) type Context = RequestContext<RoleServer>;

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools();
        let capabilities = match self.role {
            Role::Lead => capabilities.enable_tasks().build(),
            Role::Worker => capabilities.build(),
        };
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("lastword-fleet", env!("CARGO_PKG_VERSION")))
            .with_instructions(match self.role {
                Role::Lead => LEAD_INSTRUCTIONS,
                Role::Worker => WORKER_INSTRUCTIONS,
            })
    }

    async fn initialize(&self, request: InitializeRequestParams, _: Context) -> Result<InitializeResult, ErrorData> {
        let mut agreed = self.negotiate_initialize(&request)?;
        // Whoever shakes hands says what it takes only once, and each request is one of its own here: it has no tasks.
        agreed.capabilities.extensions = None;
        Ok(agreed)
    }

    async fn list_tools(&self, _: Option<PaginatedRequestParams>, _: Context) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools().to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: Context) -> Result<CallToolResponse, ErrorData> {
        let caller = caller(&context)?;
        let call = Call { fleet: &self.fleet, context, arguments: request.arguments.unwrap_or_default().into() };
        let done = match (caller, &*request.name) {
            (Caller::Lead, "fleet_spawn") => call.spawn().await,
            (Caller::Lead, "fleet_list") => call.list().await,
            (Caller::Lead, "fleet_send") => call.send().await,
            (Caller::Lead, "fleet_poll") => call.poll().await,
            (Caller::Lead, "fleet_inbox") => call.inbox().await,
            (Caller::Lead, "fleet_stop") => call.stop().await,
            (Caller::Worker(worker), "fleet_ask") => call.ask(worker).await,
            (Caller::Worker(worker), "fleet_reply") => call.reply(worker).await,
            (_, name) => return Err(ErrorData::invalid_params(format!("there is no tool {name:?} for you"), None)),
        };
        // An error of a tool is for the model, which an error of the protocol never reaches.
        Ok(done.unwrap_or_else(|Said(error)| CallToolResult::error(vec![ContentBlock::text(error)]).into()))
    }

    // Only leads have tasks, and only on requests that declare them: rmcp refuses the others before they come here.

    async fn get_task(&self, request: GetTaskParams, _: Context) -> Result<GetTaskResult, ErrorData> {
        self.fleet.task(&request.task_id).await
    }

    async fn update_task(&self, request: UpdateTaskParams, _: Context) -> Result<(), ErrorData> {
        self.fleet.respond(&request.task_id, request.input_responses).await
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: Context) -> Result<(), ErrorData> {
        self.fleet.cancel_task(&request.task_id).await
    }
}

impl Tools {
    fn tools(&self) -> &'static [Tool] {
        match self.role {
            Role::Lead => &LEAD_TOOLS,
            Role::Worker => &WORKER_TOOLS,
        }
    }
}

/// What went wrong, in words for the model.
struct Said(String);

impl From<Error> for Said {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

impl From<String> for Said {
    fn from(error: String) -> Self {
        Self(error)
    }
}

type Done = Result<CallToolResponse, Said>;

/// One call of a tool.
struct Call<'a> {
    fleet: &'a Fleet,
    context: Context,
    arguments: serde_json::Value,
}

/// What leads call.
impl Call<'_> {
    async fn spawn(self) -> Done {
        let Spawn { kind, name } = self.arguments()?;
        let fleet = self.fleet;
        let _one_at_a_time = fleet.spawning.lock().await;
        if let Some(offer) = fleet.offers.get(&kind) {
            let workers = fleet.handle.list(LEAD).await?;
            let alive = workers.iter().filter(|seen| seen.profile.kind == kind && seen.life != WorkerLife::Gone);
            if alive.count() >= offer.count_max {
                let count_max = offer.count_max;
                return Err(format!(
                    "{count_max} workers of kind {kind:?} live, which is as many as may; stop one first"
                )
                .into());
            }
        }
        let worker = fleet.handle.spawn(LEAD, &kind, name.as_deref().unwrap_or(&kind)).await?;
        Ok(self.answer(&Spawned { worker: worker.0 }))
    }

    async fn list(self) -> Done {
        let Nothing {} = self.arguments()?;
        let workers = self.fleet.handle.list(LEAD).await?.into_iter().map(WorkerView::from).collect();
        let kinds = self.fleet.offers.iter().map(|(kind, offer)| KindView {
            kind: kind.clone(),
            description: offer.description.clone(),
            count_max: offer.count_max,
        });
        Ok(self.answer(&Listed { workers, kinds: kinds.collect() }))
    }

    async fn send(self) -> Done {
        let Send { content, worker, question, ticket, wait, request_key, replace } = self.arguments()?;
        let handle = &self.fleet.handle;
        if worker.is_none() && (request_key.is_some() || replace) {
            return Err("request_key and replace are for new work, which goes to a worker".to_owned().into());
        }
        // Stored without a wait, so that whoever leaves now leaves a whole ticket.
        let sent = match (worker, question, ticket) {
            (Some(worker), None, None) => {
                let mut work = Work::new(WorkerId(worker), content);
                work.key = request_key.as_deref().map(RequestKey::from);
                work.replace = replace;
                match handle.send(LEAD, work).await {
                    Ok(sent) => sent,
                    Err(error) => return Err(self.with_end_of(WorkerId(worker), &error).await),
                }
            }
            (None, Some(question), _) => handle.answer(LEAD, QuestionId(question), content, Duration::ZERO).await?,
            (None, None, Some(ticket)) => {
                let seen = handle.poll(LEAD, TicketId(ticket), Duration::ZERO).await?;
                let [question] = &seen.questions[..] else {
                    let questions = seen.questions.len();
                    return Err(format!(
                        "ticket {ticket} has {questions} open questions; say the id of the question that you answer, or of the \
                         worker for new work"
                    )
                    .into());
                };
                handle.answer(LEAD, question.id, content, Duration::ZERO).await?
            }
            _ => {
                return Err("say the worker for new work, or the question for an answer, and not both"
                    .to_owned()
                    .into());
            }
        };
        if worker.is_some() && !sent.state.is_terminal() && tasks::are_taken(&self.context) {
            // The client looks after it from now on, for as long as it takes: there is nothing to wait for here. (One that has
            // ended, which was sent again with its key, is shown as it is.)
            return Ok(self.fleet.created(sent).await?.into());
        }
        let seen = self.watch(sent.ticket, wait.0).await?;
        Ok(self.answer(&TicketView::from(seen)))
    }

    /// An error about a worker, with how that one ended, where it has: to spawn another one may end the same way.
    async fn with_end_of(&self, worker: WorkerId, error: &Error) -> Said {
        let workers = self.fleet.handle.list(LEAD).await.unwrap_or_default();
        match workers.into_iter().find(|seen| seen.worker == worker).and_then(|seen| seen.death) {
            Some(death) => Said(format!("{error}. Worker {} is gone: {death}", worker.0)),
            None => Said(error.to_string()),
        }
    }

    async fn poll(self) -> Done {
        let Poll { ticket, wait } = self.arguments()?;
        if let Some(ticket) = ticket {
            let seen = self.watch(TicketId(ticket), wait.0).await?;
            let timed_out = seen.timed_out;
            return Ok(self.answer(&Tickets { tickets: vec![seen.into()], left_out: 0, timed_out }));
        }
        let handle = &self.fleet.handle;
        let waited = self.waits("your tickets", wait.0, |wait| handle.poll_all(LEAD, wait)).await;
        let seen = match waited {
            Some(seen) => seen?,
            None => handle.poll_all(LEAD, Duration::ZERO).await?,
        };
        seen.tickets.iter().for_each(|seen| handle.saw(LEAD, seen));
        Ok(self.answer(&Tickets::from(seen)))
    }

    /// Waits for a ticket, and shows it.
    async fn watch(&self, ticket: TicketId, wait: Duration) -> Result<Seen, Said> {
        let handle = &self.fleet.handle;
        let waited = self.waits(&format!("ticket {}", ticket.0), wait, |wait| handle.poll(LEAD, ticket, wait)).await;
        let seen = match waited {
            Some(seen) => seen?,
            None => handle.poll(LEAD, ticket, Duration::ZERO).await?,
        };
        handle.saw(LEAD, &seen);
        Ok(seen)
    }

    async fn inbox(self) -> Done {
        let Inbox { read_through } = self.arguments()?;
        let letters = self.fleet.handle.inbox(LEAD, read_through.map(ReplyId)).await?;
        Ok(self.answer(&Letters::from(letters)))
    }

    async fn stop(self) -> Done {
        let Stop { worker, ticket } = self.arguments()?;
        let handle = &self.fleet.handle;
        let stopped = match (worker, ticket) {
            (Some(worker), None) => {
                handle.stop(LEAD, WorkerId(worker)).await?;
                Stopped { worker: Some(worker), ticket: None }
            }
            (None, Some(ticket)) => {
                let seen = handle.cancel(LEAD, TicketId(ticket)).await?;
                handle.saw(LEAD, &seen);
                Stopped { worker: None, ticket: Some(seen.into()) }
            }
            _ => return Err("say the worker that is to end, or the ticket that is to be cancelled".to_owned().into()),
        };
        Ok(self.answer(&stopped))
    }
}

/// What workers call.
impl Call<'_> {
    async fn ask(self, worker: WorkerId) -> Done {
        let Ask { ticket, question, options, wait } = self.arguments()?;
        let wait = wait.map_or(self.fleet.wait_max, |wait| wait.0);
        let handle = &self.fleet.handle;
        let ask = |wait| handle.ask(worker, TicketId(ticket), question, options, wait);
        match self.waits(&format!("an answer for ticket {ticket}"), wait, ask).await {
            Some(heard) => Ok(self.answer(&Answered::new(ticket, heard?))),
            None => Err(Error::Closed.into()),
        }
    }

    async fn reply(self, worker: WorkerId) -> Done {
        let Reply { content, ticket } = self.arguments()?;
        let placed = self.fleet.handle.reply(worker, ticket.map(TicketId), content).await?;
        Ok(self.answer(&Replied::new(ticket, placed)))
    }
}

impl Call<'_> {
    fn arguments<T: DeserializeOwned>(&self) -> Result<T, Said> {
        T::deserialize(&self.arguments).map_err(|error| Said(format!("the arguments are wrong: {error}")))
    }

    fn answer<T: Answer>(&self, answer: &T) -> CallToolResponse {
        self.fleet.answer(answer).into()
    }

    /// Does something that waits, and says all the while that it does. None where the client or the daemon left meanwhile.
    async fn waits<F: Future>(
        &self,
        what: &str,
        wait: Duration,
        begin: impl FnOnce(Duration) -> F,
    ) -> Option<F::Output> {
        let wait = wait.min(self.fleet.wait_max);
        let waiting = begin(wait);
        if wait.is_zero() {
            return Some(waiting.await);
        }
        tokio::select! {
            done = waiting => Some(done),
            // The client cancelled the call, or is gone.
            () = self.context.ct.cancelled() => None,
            // The daemon ends.
            () = self.fleet.drain.cancelled() => None,
            // It never ends: it only keeps the client listening.
            () = self.progress(what) => None,
        }
    }

    async fn progress(&self, what: &str) {
        let Some(token) = self.context.meta.get_progress_token() else { return std::future::pending().await };
        let began = tokio::time::Instant::now();
        let mut beats = tokio::time::interval(self.fleet.progress_every);
        loop {
            beats.tick().await;
            let waited = began.elapsed();
            let message = format!("waiting for {what}, {} s so far", waited.as_secs());
            // Each must say more than the one before.
            let mut progress = ProgressNotificationParam::new(token.clone(), waited.as_secs_f64());
            progress.message = Some(message);
            // A client that does not listen any more cancels the call, or not.
            let _ = self.context.peer.notify_progress(progress).await;
        }
    }
}

/// Who calls, as the door found out.
fn caller(context: &Context) -> Result<Caller, ErrorData> {
    let parts = context.extensions.get::<Parts>();
    parts
        .and_then(|parts| parts.extensions.get::<Caller>().copied())
        .ok_or_else(|| ErrorData::internal_error("the call did not come through the door", None))
}

static LEAD_TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![
        tool::<Spawn, Spawned>(
            "fleet_spawn",
            "Start a worker: another agent, with a session of its own, that takes work through fleet_send. It lives until \
             fleet_stop.",
            ToolAnnotations::new().destructive(false).idempotent(false),
        ),
        tool::<Nothing, Listed>(
            "fleet_list",
            "Show your workers, what each of them is at, and the kinds of workers that you can spawn.",
            ToolAnnotations::new().read_only(true),
        ),
        tool::<Send, TicketView>(
            "fleet_send",
            "Send work to a worker (worker, content), which makes a ticket, or answer a question of a worker (question, \
             content). The ticket is kept before this returns. With wait, it also waits for the end of the ticket or for a \
             question; a wait that runs out ends nothing: poll the ticket. A busy worker queues new work, unless replace is \
             true.",
            ToolAnnotations::new().destructive(false).idempotent(false),
        ),
        tool::<Poll, Tickets>(
            "fleet_poll",
            "Show a ticket, or all of them: state, questions that wait for an answer, reply. With wait, it waits until the \
             ticket has ended or a question waits.",
            ToolAnnotations::new().read_only(true),
        ),
        tool::<Inbox, Letters>(
            "fleet_inbox",
            "Read what workers sent you outside of any ticket. Letters are shown until you say that you have read them.",
            ToolAnnotations::new().destructive(false).idempotent(true),
        ),
        tool::<Stop, Stopped>(
            "fleet_stop",
            "Stop a worker, with all that it started, or cancel a ticket. What was completed before stays completed.",
            ToolAnnotations::new().destructive(true).idempotent(true),
        ),
    ]
});

pub(super) static WORKER_TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    // An agent that hides tools behind a search is told not to hide these two: every turn needs one of them.
    let meta = MetaObject([("anthropic/alwaysLoad".to_owned(), true.into())].into_iter().collect());
    let tools = [
        tool::<Ask, Answered>(
            "fleet_ask",
            "Ask the one who sent the ticket, and wait for the answer. Where none comes in time, end your turn: the answer \
             comes as your next prompt.",
            ToolAnnotations::new().destructive(false).idempotent(false),
        ),
        tool::<Reply, Replied>(
            "fleet_reply",
            "Reply to the ticket that you work on with what you found or did. It completes the ticket; only this reaches the \
             one who sent it.",
            ToolAnnotations::new().destructive(false).idempotent(false),
        ),
    ];
    tools.into_iter().map(|tool| tool.with_meta(meta.clone())).collect()
});

fn tool<In: JsonSchema + 'static, Out: JsonSchema + 'static>(
    name: &'static str,
    description: &'static str,
    annotations: ToolAnnotations,
) -> Tool {
    let input = schema_for_input::<In>().expect("the arguments of a tool are an object");
    // None of them leaves this machine's fleet.
    Tool::new(name, description, input)
        .with_raw_output_schema(schema_for_output::<Out>())
        .with_annotations(annotations.open_world(false))
}
