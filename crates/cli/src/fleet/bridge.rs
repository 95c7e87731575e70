//! `lastword fleet mcp`: an MCP server on standard input and output that passes each message on to the daemon.
//!
//! It keeps nothing but the requests that wait for a response. A lead that ends it loses nothing; a daemon that ends is started
//! again with the next request.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::http::{HeaderName, HeaderValue};
use futures_util::StreamExt as _;
use rmcp::{
    ErrorData, RoleServer,
    model::{
        CancelledNotification, ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage, ServerResult,
    },
    transport::{
        Transport as _,
        async_rw::AsyncRwTransport,
        streamable_http_client::{StreamableHttpClient as _, StreamableHttpError, StreamableHttpPostResponse},
    },
};
use serde_json::Value;
use tokio::{
    sync::{Mutex, mpsc},
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use super::{Failure, client, config::Config, find};
use crate::stdio;

/// Where a worker's bridge finds its tools, and who it is. An agent that does not speak HTTP starts such a bridge.
pub(super) const URL_VARIABLE: &str = "LASTWORD_FLEET_URL";
pub(super) const TOKEN_VARIABLE: &str = "LASTWORD_FLEET_TOKEN";

/// How many messages may wait for standard output before the daemon's responses wait too.
const OUTGOING_MAX: usize = 64;

/// How long requests that are in flight at the end of the input may take: as long as MCP clients wait for a server to exit.
const AFTER_INPUT_MAX: Duration = Duration::from_secs(2);

/// Runs until the input ends.
pub(super) async fn run(config: impl FnOnce() -> Result<Config, String>) -> Result<(), Failure> {
    let bridge = Arc::new(Bridge::new(config).await?);
    let mut lead = AsyncRwTransport::<RoleServer, _, _>::new_server(stdio::input()?, stdio::output()?);
    let (outgoing, mut outcoming) = mpsc::channel(OUTGOING_MAX);
    let mut relays = JoinSet::new();
    let mut in_flight: HashMap<RequestId, AbortHandle> = HashMap::new();
    loop {
        tokio::select! {
            // The lead says something.
            message = lead.receive() => match message {
                None => break,
                Some(message) => {
                    if let Some(relay) = cancelled(&message).and_then(|id| in_flight.remove(id)) {
                        // The daemon notices that nobody listens any more.
                        relay.abort();
                        continue;
                    }
                    let id =
                        if let ClientJsonRpcMessage::Request(request) = &message { Some(request.id.clone()) } else { None };
                    let relay = relays.spawn(relay(Arc::clone(&bridge), message, id.clone(), outgoing.clone()));
                    if let Some(id) = id {
                        in_flight.insert(id, relay);
                    }
                }
            },
            // The daemon says something.
            Some(message) = outcoming.recv() => lead.send(message).await?,
            // A message has been dealt with.
            Some(done) = relays.join_next() => {
                if let Ok(Some(id)) = done {
                    in_flight.remove(&id);
                }
            }
        }
    }
    // Somebody who pipes requests in wants their answers; a call that waits only watches.
    drop(outgoing);
    let answer = async {
        while let Some(message) = outcoming.recv().await {
            lead.send(message).await?;
        }
        Ok(())
    };
    timeout(AFTER_INPUT_MAX, answer).await.unwrap_or(Ok(()))
}

/// Which request the lead no longer waits for.
fn cancelled(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    let ClientJsonRpcMessage::Notification(notification) = message else { return None };
    let ClientNotification::CancelledNotification(CancelledNotification { params, .. }) = &notification.notification
    else {
        return None;
    };
    params.request_id.as_ref()
}

struct Bridge {
    http: reqwest::Client,
    /// Held while the daemon is looked for, so that it is started once.
    daemon: Mutex<Daemon>,
    /// None where we were told where it is.
    config: Option<Config>,
    /// The revision that the lead and the daemon agreed on, where they did so once for all requests.
    revision: OnceLock<String>,
}

#[derive(Clone, PartialEq)]
struct Daemon {
    url: Arc<str>,
    token: String,
}

impl Bridge {
    async fn new(config: impl FnOnce() -> Result<Config, String>) -> Result<Self, String> {
        let given = (std::env::var(URL_VARIABLE), std::env::var(TOKEN_VARIABLE));
        let (daemon, config) = if let (Ok(url), Ok(token)) = given {
            (Daemon { url: url.into(), token }, None)
        } else {
            let config = config()?;
            (find(&config).await?, Some(config))
        };
        Ok(Self { http: client::http()?, daemon: Mutex::new(daemon), config, revision: OnceLock::new() })
    }

    /// Posts a message. Where the daemon is gone, which it was before it saw the message, it is started again.
    async fn post(&self, message: &ClientJsonRpcMessage) -> Result<StreamableHttpPostResponse, String> {
        let headers = self.headers(message);
        let mut daemon = self.daemon.lock().await.clone();
        loop {
            let Daemon { url, token } = daemon.clone();
            let posted = self.http.post_message(url, message.clone(), None, Some(token), headers.clone()).await;
            let (error, config) = match (posted, &self.config) {
                (Ok(response), _) => return Ok(response),
                (Err(StreamableHttpError::Client(error)), Some(config)) if error.is_connect() => (error, config),
                (Err(error), _) => return Err(format!("the daemon of the fleet did not answer: {error}")),
            };
            let mut known = self.daemon.lock().await;
            if *known == daemon {
                *known = find(config).await?;
                if *known == daemon && find::running(config).is_none() {
                    return Err(format!("the daemon of the fleet is gone: {error}"));
                }
            }
            daemon = known.clone();
        }
    }

    /// What the daemon wants to know of a message before it reads it.
    fn headers(&self, message: &ClientJsonRpcMessage) -> HashMap<HeaderName, HeaderValue> {
        let message = serde_json::to_value(message).unwrap_or_default();
        let params = &message["params"];
        // Since the revision of 2026-07-28 each request says its own, and its headers say what it calls.
        let own = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
        let revision = own.or(self.revision.get().map(String::as_str));
        let text = |value: &Value| value.as_str().filter(|_| own.is_some()).map(str::to_owned);
        let headers = [
            ("mcp-protocol-version", revision.map(str::to_owned)),
            ("mcp-method", text(&message["method"])),
            // What names a tool's request is its tool, and what names a task's is its task.
            ("mcp-name", text(&params["name"]).or_else(|| text(&params["taskId"]))),
        ];
        let headers = headers
            .into_iter()
            .filter_map(|(name, value)| Some((HeaderName::from_static(name), HeaderValue::try_from(value?).ok()?)));
        headers.collect()
    }

    /// Looks at what passes for what the lead and the daemon agree on.
    fn notice(&self, message: &ServerJsonRpcMessage) {
        if let ServerJsonRpcMessage::Response(response) = message
            && let ServerResult::InitializeResult(result) = &response.result
        {
            let _ = self.revision.set(result.protocol_version.to_string());
        }
    }
}

async fn find(config: &Config) -> Result<Daemon, String> {
    let url = find::find_or_start(config).await?.url().into();
    Ok(Daemon { url, token: config.place.token()?.as_str().to_owned() })
}

/// Passes a message on, and all that is said to it back. Gives the id of the request that it was.
async fn relay(
    bridge: Arc<Bridge>,
    message: ClientJsonRpcMessage,
    id: Option<RequestId>,
    outgoing: mpsc::Sender<ServerJsonRpcMessage>,
) -> Option<RequestId> {
    let is_answer = |message: &ServerJsonRpcMessage| {
        matches!(message, ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_))
    };
    let mut problem = "the daemon of the fleet ended before it answered".to_owned();
    match bridge.post(&message).await {
        Ok(StreamableHttpPostResponse::Json(message, _)) => {
            bridge.notice(&message);
            let _ = outgoing.send(message).await;
            return id;
        }
        Ok(StreamableHttpPostResponse::Sse(mut events, _)) => {
            while let Some(event) = events.next().await {
                let data = match event {
                    Ok(event) => event.data.unwrap_or_default(),
                    Err(error) => {
                        problem = format!("{problem}: {error}");
                        break;
                    }
                };
                // An event without data only keeps the connection alive.
                let Ok(message) = serde_json::from_str::<ServerJsonRpcMessage>(&data) else { continue };
                bridge.notice(&message);
                let is_last = is_answer(&message);
                if outgoing.send(message).await.is_err() || is_last {
                    return id;
                }
            }
        }
        Ok(_) => problem = "the daemon of the fleet gave no answer".to_owned(),
        Err(error) => problem = error,
    }
    if id.is_some() {
        let error = ErrorData::internal_error(problem + "; what it has acknowledged is kept: poll the tickets", None);
        let _ = outgoing.send(ServerJsonRpcMessage::error(error, id.clone())).await;
    }
    id
}
