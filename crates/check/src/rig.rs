//! The real tokio runtime on a rig: every task waits at the gate, every handler does as it is told.
//!
//! A replay and a probe both take one exact order of steps. The rig writes the messages as bytes, holds each task until
//! its step has come, tells the handlers when to call and to return, and sees what a client sees.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lastword::{
    Agent, AgentHandle, CallError, Client, ClientContext, Context, Options, ServeError, Turn, connect,
    gate::{Conductor, NobodyCame},
    schema::v1::{
        CancelNotification, Error, ExtNotification, ExtRequest, ExtResponse, InitializeRequest, InitializeResponse,
        NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse, RequestPermissionRequest,
        RequestPermissionResponse, SessionNotification, StopReason,
    },
    serve_agent,
};
use lastword_core::{Arrival, Connection, Effect, NotOwed, Outcome, Step};
use lastword_model::{ConnectionModel, Kind, Message, Move};
use serde_json::{Value, json, value::RawValue};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    sync::{Mutex as AsyncMutex, mpsc},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

pub mod delegation;

/// How long the rig waits for a line of the runtime. The clock is paused, so that this is over once every task is idle.
const LINE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The pipe between the rig and the runtime: more than any replay writes.
const PIPE_BYTES: usize = 1 << 16;

/// What a handler is told to do.
#[derive(Debug, Clone, Copy)]
enum Order {
    Call,
    Return(Outcome),
}

/// What is known of a handler.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// It was called.
    pub ran: bool,
    /// Its cancellation token.
    token: Option<CancellationToken>,
}

impl Seen {
    /// It was called and nothing has told it to end.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.ran && !self.is_cancelled()
    }

    /// Its token has fired.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.token.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}

/// An agent or a client whose handlers do nothing of their own.
#[derive(Debug, Clone, Default)]
struct Puppet {
    /// The orders of each handler, by arrival: made by whoever comes first, the rig or the handler.
    orders: Arc<Mutex<BTreeMap<u64, Orders>>>,
    seen: Arc<Mutex<BTreeMap<u64, Seen>>>,
}

#[derive(Debug, Clone)]
struct Orders {
    give: mpsc::UnboundedSender<Order>,
    take: Arc<AsyncMutex<mpsc::UnboundedReceiver<Order>>>,
}

impl Puppet {
    fn orders(&self, arrival: u64) -> Orders {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders
            .entry(arrival)
            .or_insert_with(|| {
                let (give, take) = mpsc::unbounded_channel();
                Orders { give, take: Arc::new(AsyncMutex::new(take)) }
            })
            .clone()
    }

    /// `ask` calls the peer.
    async fn obey<A: Future<Output = Result<ExtResponse, CallError>>>(
        &self,
        arrival: u64,
        token: CancellationToken,
        ask: impl Fn(ExtRequest) -> A,
    ) -> Result<(), Error> {
        let seen = Seen { ran: true, token: Some(token) };
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(arrival, seen);
        let orders = self.orders(arrival);
        let mut orders = orders.take.lock().await;
        loop {
            match orders.recv().await {
                // The peer's answer carries nothing, and its absence at the end of input is no concern of a puppet.
                Some(Order::Call) => drop(ask(question()).await),
                Some(Order::Return(Outcome::Succeeded)) => return Ok(()),
                Some(Order::Return(Outcome::Failed)) => return Err(Error::new(-32000, "told to fail")),
                None => std::future::pending().await,
            }
        }
    }

    async fn obey_as_agent(&self, context: &Context) -> Result<(), Error> {
        let client = context.client();
        self.obey(context.number(), context.cancellation().clone(), |question| client.ext_method(question)).await
    }

    async fn obey_as_client(&self, context: &ClientContext) -> Result<(), Error> {
        let agent = context.agent();
        self.obey(context.number(), context.cancellation().clone(), |question| agent.ext_method(question)).await
    }
}

/// What a puppet asks the peer.
fn question() -> ExtRequest {
    ExtRequest::new("_rig/ask", RawValue::from_string("{}".to_owned()).expect("this is JSON").into())
}

fn null() -> ExtResponse {
    ExtResponse::new(RawValue::NULL.to_owned().into())
}

impl Client for Puppet {
    async fn session_update(&self, _: SessionNotification, _: ClientContext) {}

    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        Err(Error::method_not_found())
    }

    async fn ext_method(&self, _: ExtRequest, context: ClientContext) -> Result<ExtResponse, Error> {
        self.obey_as_client(&context).await?;
        Ok(null())
    }

    async fn ext_notification(&self, _: ExtNotification, context: ClientContext) {
        let _ = self.obey_as_client(&context).await;
    }
}

impl Agent for Puppet {
    async fn initialize(&self, request: InitializeRequest, _: Context) -> Result<InitializeResponse, Error> {
        Ok(InitializeResponse::new(request.protocol_version))
    }

    async fn new_session(&self, _: NewSessionRequest, _: Context) -> Result<NewSessionResponse, Error> {
        Err(Error::method_not_found())
    }

    async fn prompt(&self, _: PromptRequest, turn: Turn) -> Result<PromptResponse, Error> {
        let client = turn.client();
        self.obey(turn.number(), turn.cancellation().clone(), |question| client.ext_method(question)).await?;
        Ok(PromptResponse::new(StopReason::EndTurn))
    }

    async fn cancel(&self, _: CancelNotification, context: Context) {
        let _ = self.obey_as_agent(&context).await;
    }

    async fn ext_method(&self, _: ExtRequest, context: Context) -> Result<ExtResponse, Error> {
        self.obey_as_agent(&context).await?;
        Ok(null())
    }

    async fn ext_notification(&self, _: ExtNotification, context: Context) {
        let _ = self.obey_as_agent(&context).await;
    }
}

/// The runtime did not do what was asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RigError {
    /// No task came with the step.
    #[error(transparent)]
    NobodyCame(#[from] NobodyCame),
    /// The machine of the runtime refused the step.
    #[error("the runtime's own machine refused a step that one of its tasks came with: {0}")]
    NotOwed(#[from] NotOwed),
    /// The pipe broke.
    #[error("the runtime closed the connection: {0}")]
    Pipe(#[from] std::io::Error),
    /// A response is missing, or is another one.
    #[error("{0}")]
    Wire(String),
    /// The path has a step that the rig cannot bring about.
    #[error("the rig has nobody who could take the step {0:?}")]
    NoSuchCaller(Step),
}

/// A connection of the real runtime, held at every step.
pub struct Rig {
    messages: Vec<Message>,
    puppet: Puppet,
    conductor: Conductor,
    /// None once the end of input was sent.
    write: Option<WriteHalf<DuplexStream>>,
    read: Lines<BufReader<ReadHalf<DuplexStream>>>,
    serve: JoinHandle<Result<(), ServeError>>,
    /// By which somebody outside of handlers calls, where the rig is a client.
    agent: Option<AgentHandle>,
    /// Those who do, by message.
    callers: BTreeMap<usize, JoinHandle<()>>,
    /// The responses that came over the wire, by raw id.
    responses: BTreeMap<String, Vec<Value>>,
    /// The responses that the machine wanted written so far.
    responses_due: usize,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.serve.abort();
        for caller in self.callers.values() {
            caller.abort();
        }
    }
}

impl Rig {
    /// Starts a connection of the side and with the limits of a model. Must be called within a tokio runtime whose clock is
    /// paused.
    #[must_use]
    pub fn new(model: &ConnectionModel) -> Self {
        let limits = model.limits();
        let mut options = Options::default();
        options.requests_in_flight_max = limits.requests_in_flight_max;
        options.notifications_queued_max = limits.notifications_queued_max;
        options.notifications_stuck_max = limits.notifications_stuck_max;
        options.overlap = limits.overlap;
        options.forced = limits.forced;
        let conductor = options.gated();
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (read, write) = tokio::io::split(theirs);
        let puppet = Puppet::default();
        let (agent, serve) = if model.is_client() {
            let (agent, serve) = connect(puppet.clone(), read, write, options);
            (Some(agent), tokio::spawn(serve))
        } else {
            (None, tokio::spawn(serve_agent(puppet.clone(), read, write, options)))
        };
        let (read, write) = tokio::io::split(ours);
        Self {
            messages: model.messages.clone(),
            puppet,
            conductor,
            write: Some(write),
            read: BufReader::new(read).lines(),
            serve,
            agent,
            callers: BTreeMap::new(),
            responses: BTreeMap::new(),
            responses_due: 0,
        }
    }

    /// Lets the runtime take one step.
    ///
    /// # Errors
    ///
    /// [`RigError`] where no task of the runtime comes with it.
    pub async fn take(&mut self, action: &Move) -> Result<(Vec<Effect>, Connection), RigError> {
        match &action.step {
            Step::InputEnded => {
                if let Some(mut write) = self.write.take() {
                    write.shutdown().await?;
                }
            }
            Step::ResponseArrived { call } => {
                self.send(&json!({"jsonrpc": "2.0", "id": call.0, "result": null}).to_string()).await?;
            }
            Step::Called { by: Some(by) } => self.order(*by, Order::Call),
            Step::Called { by: None } => {
                let agent = self.agent.clone().ok_or_else(|| RigError::NoSuchCaller(action.step.clone()))?;
                let asking = async move { drop(agent.ext_method(question()).await) };
                self.callers.insert(action.message, tokio::spawn(asking));
            }
            Step::CallDropped { .. } => match self.callers.get(&action.message) {
                Some(caller) => caller.abort(),
                None => return Err(RigError::NoSuchCaller(action.step.clone())),
            },
            Step::Returned(arrival, outcome) => self.order(*arrival, Order::Return(*outcome)),
            step if step.is_arrival() => {
                let line = line_of(&self.messages[action.message]);
                self.send(&line).await?;
            }
            _ => {}
        }
        let passed = self.conductor.pass(&action.step).await?;
        let effects = passed.effects?.into_vec();
        self.responses_due += effects.iter().filter(|effect| matches!(effect, Effect::Respond { .. })).count();
        Ok((effects, passed.after))
    }

    fn order(&self, arrival: Arrival, order: Order) {
        // The handler may be gone; then nobody comes to the gate, which is what is reported.
        let _ = self.puppet.orders(arrival.0).give.send(order);
    }

    async fn send(&mut self, line: &str) -> Result<(), RigError> {
        if let Some(write) = &mut self.write {
            write.write_all(format!("{line}\n").as_bytes()).await?;
        }
        Ok(())
    }

    /// What is known of the handler of a message that arrived under this number.
    #[must_use]
    pub fn seen(&self, arrival: u64) -> Seen {
        self.puppet.seen.lock().unwrap_or_else(PoisonError::into_inner).get(&arrival).cloned().unwrap_or_default()
    }

    /// Whether the call of a message, from 1, has come back to whoever made it outside of handlers.
    #[must_use]
    pub fn has_returned(&self, message: usize) -> bool {
        self.callers.get(&(message - 1)).is_some_and(JoinHandle::is_finished)
    }

    /// Waits for every response that the machine wanted written, and gives them by raw id.
    ///
    /// # Errors
    ///
    /// [`RigError::Wire`] where one is missing, or there are more.
    pub async fn responses(&mut self) -> Result<&BTreeMap<String, Vec<Value>>, RigError> {
        loop {
            let read = self.responses.values().map(Vec::len).sum::<usize>();
            let line = match timeout(LINE_WAIT_MAX, self.read.next_line()).await {
                Ok(line) => line?,
                Err(_) => None,
            };
            let Some(line) = line else {
                if read == self.responses_due {
                    return Ok(&self.responses);
                }
                return Err(RigError::Wire(format!(
                    "the machine wanted {} responses written, and {read} came over the wire",
                    self.responses_due
                )));
            };
            #[derive(serde::Deserialize)]
            struct Envelope<'a> {
                #[serde(borrow)]
                id: Option<&'a RawValue>,
                method: Option<&'a str>,
            }
            let envelope: Envelope<'_> = serde_json::from_str(&line)
                .map_err(|error| RigError::Wire(format!("no JSON on the wire: {error}: {line}")))?;
            if let (Some(id), None) = (envelope.id, envelope.method) {
                let body = serde_json::from_str(&line).unwrap_or_default();
                self.responses.entry(id.get().to_owned()).or_default().push(body);
            }
        }
    }
}

/// A message as it stands on the wire.
fn line_of(message: &Message) -> String {
    let id = message.id.as_ref().map_or(String::new(), |id| format!("\"id\":{},", id.raw()));
    let session = message.session.as_ref().map_or("", |session| session.as_str());
    let (method, params) = match message.kind {
        Kind::Prompt => ("session/prompt", json!({"sessionId": session, "prompt": []})),
        Kind::CancelNotification | Kind::CancelRequest => ("session/cancel", json!({"sessionId": session})),
        Kind::Request => ("_rig/request", json!({})),
        Kind::Notification => ("_rig/notification", json!({})),
        Kind::RequestCancel => {
            let target = message.target.as_ref().map_or("0", |target| target.raw());
            let target: Value = serde_json::from_str(target).unwrap_or_default();
            ("$/cancel_request", json!({"requestId": target}))
        }
        // These are no lines.
        Kind::InputEnd | Kind::Call => ("", Value::Null),
    };
    format!("{{\"jsonrpc\":\"2.0\",{id}\"method\":\"{method}\",\"params\":{params}}}")
}
