//! `lastword agent`: the reference agent. A prompt's text says what its turn does, so that tests of any team can drive it.

use std::{
    collections::{BTreeMap, HashMap},
    error::Error as StdError,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::{HeaderName, HeaderValue};
use clap::Args;
use lastword::{
    Agent, Context, Turn,
    schema::ProtocolVersion,
    schema::v1::{
        AgentCapabilities, CloseSessionRequest, CloseSessionResponse, ContentBlock, Error, ExtRequest, ExtResponse,
        HttpHeader, Implementation, InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse,
        LoadSessionRequest, LoadSessionResponse, McpCapabilities, McpServer, McpServerHttp, NewSessionRequest,
        NewSessionResponse, PermissionOption, PermissionOptionKind, PromptRequest, PromptResponse,
        RequestPermissionOutcome, RequestPermissionRequest, SessionCapabilities, SessionCloseCapabilities, SessionId,
        SessionInfo, SessionListCapabilities, SetSessionModeRequest, SetSessionModeResponse, StopReason,
        ToolCallUpdate, ToolCallUpdateFields,
    },
};

use crate::{fleet::client::Server, stdio};

/// Serve the reference agent on standard input and output.
///
/// It runs the text of a prompt as a script, word by word:
///
///     wait=MS          waits, and ends at once when the turn is cancelled
///     say=TEXT         says TEXT, in one chunk
///     updates=N        says the numbers 1 to N, in N chunks
///     permission       asks for permission, and says the outcome
///     deaf=MS          waits, and ignores every cancel
///     ask=TEXT         asks the lead of a fleet, and says the answer; ends the turn where none comes in time
///     reply=TEXT       replies to the lead of a fleet
///     fail, panic      answers with an error, panics
///     any other word   is echoed, in one chunk
///
/// `ask` and `reply` call the tools fleet_ask and fleet_reply of the first MCP server over HTTP that session/new names,
/// with the ticket that the prompt speaks of last. The method `_lastword/echo` answers its parameters.
///
/// By hand, one message a line:
///
///     $ lastword agent
///     {"id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}
///     {"id":2,"method":"session/prompt","params":{"sessionId":"session-1","prompt":[{"type":"text","text":"hello"}]}}
///
/// In an editor that starts agents, with a trace to look at afterwards:
///
///     {"command": "lastword", "args": ["agent"], "env": {"LASTWORD_TRACE": "trace.ndjson"}}
///
/// Exit status: 0 the input ended and all of it was answered; 1 the connection ended in another way, which standard error
/// says; 2 the arguments are wrong.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Options {
    /// How many requests may be in flight before a further one is refused
    #[arg(long, value_name = "N")]
    requests_in_flight_max: Option<usize>,
    /// How long a turn that ignores its cancellation may go on, in milliseconds
    #[arg(long, value_name = "MS")]
    grace_ms: Option<u64>,
    /// How long one line of input may be, in bytes
    #[arg(long, value_name = "BYTES")]
    line_bytes_max: Option<usize>,
}

pub(crate) fn run(options: &Options) -> Result<(), Box<dyn StdError>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let options = options.resolve();
    let served = runtime.block_on(async {
        let (input, output) = (stdio::input()?, stdio::output()?);
        // A task, so that it takes its turn with those of the handlers; what is blocked on is polled before them all.
        tokio::spawn(lastword::serve_agent(Scripted::default(), input, output, options)).await??;
        Ok(())
    });
    // A blocking read of a terminal may never return; nobody waits for it.
    runtime.shutdown_background();
    served
}

impl Options {
    fn resolve(&self) -> lastword::Options {
        let mut options = lastword::Options::default();
        if let Some(requests) = self.requests_in_flight_max {
            options.requests_in_flight_max = requests;
        }
        if let Some(ms) = self.grace_ms {
            options.grace = Duration::from_millis(ms);
        }
        if let Some(bytes) = self.line_bytes_max {
            options.line_bytes_max = bytes;
        }
        options
    }
}

#[derive(Default)]
struct Scripted {
    /// Held for a look-up or a change, never across an await.
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    /// The number of the last session, so that no name comes twice.
    last: u64,
    open: BTreeMap<SessionName, Session>,
}

struct Session {
    cwd: PathBuf,
    /// Where the tools of a fleet are, if it is one's worker.
    fleet: Option<Server>,
}

/// The name of a session, as text, which has an order.
type SessionName = String;

impl Scripted {
    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, session: &SessionId) -> Result<(), Error> {
        if self.sessions().open.contains_key(&*session.0) { Ok(()) } else { Err(unknown(session)) }
    }
}

fn unknown(session: &SessionId) -> Error {
    Error::new(-32602, format!("Invalid params: `sessionId`: there is no session {:?}", &*session.0))
}

impl Agent for Scripted {
    async fn initialize(&self, _: InitializeRequest, _: Context) -> Result<InitializeResponse, Error> {
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::default())
            .close(SessionCloseCapabilities::default());
        Ok(InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(
                AgentCapabilities::new()
                    .load_session(true)
                    .mcp_capabilities(McpCapabilities::new().http(true))
                    .session_capabilities(sessions),
            )
            .agent_info(Implementation::new("lastword", env!("CARGO_PKG_VERSION"))))
    }

    async fn new_session(&self, request: NewSessionRequest, _: Context) -> Result<NewSessionResponse, Error> {
        let fleet = request.mcp_servers.iter().find_map(|server| match server {
            McpServer::Http(server) => Some(server),
            _ => None,
        });
        let fleet = fleet.map(server).transpose()?;
        let mut sessions = self.sessions();
        sessions.last += 1;
        let name = format!("session-{}", sessions.last);
        sessions.open.insert(name.clone(), Session { cwd: request.cwd, fleet });
        Ok(NewSessionResponse::new(name))
    }

    async fn load_session(&self, request: LoadSessionRequest, _: Context) -> Result<LoadSessionResponse, Error> {
        self.known(&request.session_id)?;
        Ok(LoadSessionResponse::new())
    }

    async fn list_sessions(&self, request: ListSessionsRequest, _: Context) -> Result<ListSessionsResponse, Error> {
        let sessions = self.sessions();
        let is_asked_for = |session: &Session| request.cwd.as_ref().is_none_or(|cwd| *cwd == session.cwd);
        let listed = sessions.open.iter().filter(|(_, session)| is_asked_for(session));
        Ok(ListSessionsResponse::new(
            listed.map(|(name, session)| SessionInfo::new(name.clone(), &session.cwd)).collect(),
        ))
    }

    async fn close_session(&self, request: CloseSessionRequest, _: Context) -> Result<CloseSessionResponse, Error> {
        let closed = self.sessions().open.remove(&*request.session_id.0);
        closed.map(|_| CloseSessionResponse::new()).ok_or_else(|| unknown(&request.session_id))
    }

    async fn set_session_mode(
        &self,
        request: SetSessionModeRequest,
        _: Context,
    ) -> Result<SetSessionModeResponse, Error> {
        self.known(&request.session_id)?;
        Ok(SetSessionModeResponse::new())
    }

    async fn prompt(&self, request: PromptRequest, turn: Turn) -> Result<PromptResponse, Error> {
        let lead = {
            let sessions = self.sessions();
            let session = sessions.open.get(&*request.session_id.0).ok_or_else(|| unknown(&request.session_id))?;
            session.fleet.clone().map(|server| Lead { server, ticket: ticket(&request.prompt) })
        };
        for block in &request.prompt {
            let ContentBlock::Text(text) = block else { continue };
            for word in text.text.split_whitespace() {
                let Some(step) = ScriptStep::parse(word)? else {
                    Box::pin(turn.say(word)).await?;
                    continue;
                };
                // Boxed, so that the task of a prompt is small: most prompts have few steps.
                if let Some(reason) = Box::pin(step.run(&turn, lead.as_ref())).await? {
                    return Ok(PromptResponse::new(reason));
                }
            }
        }
        Ok(PromptResponse::new(StopReason::EndTurn))
    }

    async fn ext_method(&self, request: ExtRequest, _: Context) -> Result<ExtResponse, Error> {
        if &*request.method == "_lastword/echo" {
            Ok(ExtResponse::new(request.params))
        } else {
            Err(Error::new(-32601, format!("Method not found: {}", request.method)))
        }
    }
}

/// One word of a script that is not merely echoed.
enum ScriptStep<'a> {
    Wait(Duration),
    Say(&'a str),
    Updates(u64),
    Permission,
    Deaf(Duration),
    Ask(&'a str),
    Reply(&'a str),
    Fail,
    Panic,
}

impl<'a> ScriptStep<'a> {
    fn parse(word: &'a str) -> Result<Option<Self>, Error> {
        let number = |text: &str| {
            text.parse().map_err(|error| Error::new(-32602, format!("Invalid params: `prompt`: {word:?}: {error}")))
        };
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        Ok(Some(match (name, value) {
            ("wait", Some(ms)) => Self::Wait(Duration::from_millis(number(ms)?)),
            ("say", Some(text)) => Self::Say(text),
            ("updates", Some(count)) => Self::Updates(number(count)?),
            ("permission", None) => Self::Permission,
            ("deaf", Some(ms)) => Self::Deaf(Duration::from_millis(number(ms)?)),
            ("ask", Some(text)) => Self::Ask(text),
            ("reply", Some(text)) => Self::Reply(text),
            ("fail", None) => Self::Fail,
            ("panic", None) => Self::Panic,
            _ => return Ok(None),
        }))
    }

    /// Does it, and says why the turn ends, if it does.
    async fn run(self, turn: &Turn, lead: Option<&Lead>) -> Result<Option<StopReason>, Error> {
        match self {
            Self::Wait(time) => tokio::select! {
                biased;
                // The turn was ended.
                () = turn.cancellation().cancelled() => return Ok(Some(StopReason::Cancelled)),
                // The time is over.
                () = tokio::time::sleep(time) => {}
            },
            Self::Say(text) => turn.say(text).await?,
            Self::Updates(count) => {
                for number in 1..=count {
                    turn.say(number.to_string()).await?;
                }
            }
            Self::Permission => tokio::select! {
                biased;
                // The turn was ended; dropping the call tells the client that nobody waits for its answer.
                () = turn.cancellation().cancelled() => return Ok(Some(StopReason::Cancelled)),
                // The user decided.
                outcome = ask(turn) => turn.say(outcome?).await?,
            },
            Self::Deaf(time) => tokio::time::sleep(time).await,
            Self::Ask(text) => tokio::select! {
                biased;
                // The turn was ended; the fleet keeps the question.
                () = turn.cancellation().cancelled() => return Ok(Some(StopReason::Cancelled)),
                // The lead answered, or the fleet says that its answer comes later.
                answer = known(lead)?.ask(text) => match answer? {
                    Some(answer) => turn.say(answer).await?,
                    None => return Ok(Some(StopReason::EndTurn)),
                },
            },
            Self::Reply(text) => known(lead)?.reply(text).await?,
            Self::Fail => return Err(Error::new(-32603, "the prompt said `fail`")),
            Self::Panic => panic!("the prompt said `panic`"),
        }
        Ok(None)
    }
}

/// The lead of a fleet, from where its worker stands.
struct Lead {
    server: Server,
    /// The ticket that the turn is about.
    ticket: Option<u64>,
}

impl Lead {
    /// The answer, if it has come in time.
    async fn ask(&self, question: &str) -> Result<Option<String>, Error> {
        let heard = self.call("fleet_ask", "question", question).await?;
        Ok(heard["answer"].as_str().map(str::to_owned))
    }

    async fn reply(&self, content: &str) -> Result<(), Error> {
        self.call("fleet_reply", "content", content).await.map(drop)
    }

    async fn call(&self, tool: &'static str, argument: &str, text: &str) -> Result<serde_json::Value, Error> {
        let ticket = self.ticket.map(|ticket| ("ticket".to_owned(), ticket.into()));
        let arguments = [(argument.to_owned(), text.into())].into_iter().chain(ticket).collect();
        self.server.call(tool, arguments).await.map_err(|error| Error::new(-32603, error))
    }
}

fn known(lead: Option<&Lead>) -> Result<&Lead, Error> {
    lead.ok_or_else(|| Error::new(-32602, "Invalid params: `prompt`: this session has no MCP server over HTTP to call"))
}

/// What session/new says of an MCP server, for its calls.
fn server(said: &McpServerHttp) -> Result<Server, Error> {
    let mut server = Server { url: said.url.clone(), headers: HashMap::new() };
    for HttpHeader { name, value, .. } in &said.headers {
        let invalid = |error: String| Error::new(-32602, format!("Invalid params: `mcpServers`: {name:?}: {error}"));
        let header = HeaderName::try_from(name).map_err(|error| invalid(error.to_string()))?;
        let value = HeaderValue::try_from(value).map_err(|error| invalid(error.to_string()))?;
        server.headers.insert(header, value);
    }
    Ok(server)
}

/// The ticket that a prompt speaks of last, which is its own.
fn ticket(prompt: &[ContentBlock]) -> Option<u64> {
    let texts =
        prompt.iter().filter_map(|block| if let ContentBlock::Text(text) = block { Some(&text.text) } else { None });
    let words: Vec<&str> = texts.flat_map(|text| text.split_whitespace()).collect();
    let named = words.windows(2).filter(|words| words[0] == "ticket");
    named.filter_map(|words| words[1].trim_matches(|c: char| !c.is_ascii_digit()).parse().ok()).next_back()
}

/// Asks for permission, and says what came of it in one word.
async fn ask(turn: &Turn) -> Result<String, Error> {
    let tool_call = ToolCallUpdate::new(
        format!("permission-{}", turn.number()),
        ToolCallUpdateFields::new().title("Do what the prompt says".to_owned()),
    );
    let options = vec![
        PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce),
        PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
    ];
    let request = RequestPermissionRequest::new(turn.session().clone(), tool_call, options);
    Ok(match turn.client().request_permission(request).await?.outcome {
        RequestPermissionOutcome::Selected(selected) => selected.option_id.0.to_string(),
        _ => "cancelled".to_owned(),
    })
}
