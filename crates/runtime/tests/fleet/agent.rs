//! An agent that is a worker. It runs the text of its prompts as a script, word by word, with `_` for a space:
//!
//! ```text
//! say=TEXT          says it
//! think             something that is no message comes between
//! ask=MS:TEXT       asks, waits so long, and says the answer, or "no answer"
//! reply=TEXT        replies to the ticket of the turn
//! reply_to=N:TEXT   replies to the ticket N
//! letter=TEXT       replies to nobody
//! permission        asks for permission, and says the outcome
//! permission=TITLE  asks for that of a tool of no known kind
//! command=TITLE     asks for that of a command
//! wait              until the turn is cancelled
//! deaf              for ever
//! noise             a line on standard output that is none of the protocol
//! exit=N            says so on standard error, and exits
//! fail              answers with an error
//! orphan=FILE       starts a process that does not end by itself, and writes its number into the file
//! ```
//!
//! Any other word is none of its business. It calls its tools at the server of its session over TCP, with a line of JSON each
//! way, since what a worker's tools do is under test here, and not how they are reached. Its arguments change how it
//! begins: `mute` never answers, `homeless` refuses a session.

use std::{
    env, fs,
    io::Write as _,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use lastword::{
    Agent, Context, Options, Turn,
    schema::v1::{
        AgentCapabilities, ContentBlock, ContentChunk, Error, InitializeRequest, InitializeResponse, McpCapabilities,
        McpServer, NewSessionRequest, NewSessionResponse, PermissionOption, PermissionOptionKind, PromptRequest,
        PromptResponse, RequestPermissionOutcome, RequestPermissionRequest, SessionUpdate, StopReason, ToolCall,
        ToolCallContent, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
    },
    serve_agent,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

pub(crate) const ARGUMENT: &str = "--as-agent";

pub(crate) fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let agent = Scripted { beginning: env::args().nth(2), tools: Arc::default() };
    // What goes wrong, the other side sees.
    let _ = runtime.block_on(serve_agent(agent, tokio::io::stdin(), tokio::io::stdout(), Options::default()));
    runtime.shutdown_background();
}

struct Scripted {
    beginning: Option<String>,
    /// The address of the tools of the one session.
    tools: Arc<Mutex<String>>,
}

impl Agent for Scripted {
    async fn initialize(&self, request: InitializeRequest, _: Context) -> Result<InitializeResponse, Error> {
        if self.beginning.as_deref() == Some("mute") {
            std::future::pending::<()>().await;
        }
        let capabilities = AgentCapabilities::new().mcp_capabilities(McpCapabilities::new().http(true));
        Ok(InitializeResponse::new(request.protocol_version).agent_capabilities(capabilities))
    }

    async fn new_session(&self, request: NewSessionRequest, _: Context) -> Result<NewSessionResponse, Error> {
        if self.beginning.as_deref() == Some("homeless") {
            return Err(Error::new(-32000, "Authentication required"));
        }
        if let [McpServer::Http(server)] = &request.mcp_servers[..] {
            self.tools.lock().expect("nothing panics").clone_from(&server.url);
        }
        Ok(NewSessionResponse::new("the-session"))
    }

    async fn prompt(&self, request: PromptRequest, turn: Turn) -> Result<PromptResponse, Error> {
        let ContentBlock::Text(text) = &request.prompt[0] else { return Err(Error::invalid_params()) };
        let tools = self.tools.lock().expect("nothing panics").clone();
        let ticket = ticket(&text.text);
        for word in text.text.split_whitespace() {
            let (verb, rest) = word.split_once('=').unwrap_or((word, ""));
            let spoken = rest.replace('_', " ");
            let (number, after) = spoken.split_once(':').unwrap_or(("", ""));
            match verb {
                "say" => say(&turn, &spoken).await?,
                "think" => {
                    turn.update(SessionUpdate::ToolCall(ToolCall::new("think", "Think"))).await?;
                }
                "ask" => {
                    let ms: u64 = number.parse().map_err(|_| Error::invalid_params())?;
                    let asked = json!({"ask": after, "ticket": ticket, "ms": ms});
                    // The tools of an agent end with its turn.
                    let answer = tokio::select! {
                        answer = call(&tools, asked) => answer,
                        () = turn.cancellation().cancelled() => return Ok(PromptResponse::new(StopReason::Cancelled)),
                    };
                    say(&turn, answer["answer"].as_str().unwrap_or("no answer")).await?;
                }
                "reply" => drop(call(&tools, json!({"reply": spoken, "ticket": ticket})).await),
                "reply_to" => {
                    let ticket: u64 = number.parse().map_err(|_| Error::invalid_params())?;
                    call(&tools, json!({"reply": after, "ticket": ticket})).await;
                }
                "letter" => drop(call(&tools, json!({"reply": spoken})).await),
                "permission" | "command" => {
                    let title = if rest.is_empty() { "delete everything" } else { &spoken };
                    let kind = if verb == "command" { ToolKind::Execute } else { ToolKind::Other };
                    let outcome = permission(&request, &turn, title, kind).await?;
                    say(&turn, &outcome).await?;
                }
                "wait" => {
                    turn.cancellation().cancelled().await;
                    return Ok(PromptResponse::new(StopReason::Cancelled));
                }
                "deaf" => loop {
                    // Blocks its only thread, so that no cancel is even read.
                    std::thread::sleep(Duration::from_secs(60));
                },
                "noise" => std::io::stdout().write_all(b"Warning: this is no JSON\n").expect("it is read"),
                "exit" => {
                    eprintln!("giving up: {rest}");
                    std::process::exit(rest.parse().unwrap_or(1));
                }
                "fail" => return Err(Error::new(-32603, "the model is gone")),
                "orphan" => {
                    let child = Command::new("sleep").arg("600").spawn().map_err(Error::into_internal_error)?;
                    fs::write(rest, child.id().to_string()).map_err(Error::into_internal_error)?;
                }
                _ => {}
            }
        }
        Ok(PromptResponse::new(StopReason::EndTurn))
    }
}

/// The ticket that a prompt says it is about.
fn ticket(prompt: &str) -> Option<u64> {
    let (_, after) = prompt.rsplit_once("call fleet_reply with ticket ")?;
    after.split_whitespace().next()?.parse().ok()
}

async fn say(turn: &Turn, text: &str) -> Result<(), Error> {
    Ok(turn.update(SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()))).await?)
}

async fn permission(request: &PromptRequest, turn: &Turn, title: &str, kind: ToolKind) -> Result<String, Error> {
    let shown = ToolCallContent::from("all of it");
    let fields = ToolCallUpdateFields::new().title(title.to_owned()).kind(kind).content(vec![shown]);
    let options = vec![
        PermissionOption::new("yes", "Do it", PermissionOptionKind::AllowOnce),
        PermissionOption::new("no", "Leave it", PermissionOptionKind::RejectOnce),
    ];
    let ask = RequestPermissionRequest::new(request.session_id.clone(), ToolCallUpdate::new("tool", fields), options);
    Ok(match turn.client().request_permission(ask).await?.outcome {
        RequestPermissionOutcome::Selected(selected) => format!("selected {}", selected.option_id.0),
        _ => "cancelled".to_owned(),
    })
}

async fn call(tools: &str, call: Value) -> Value {
    let mut stream = TcpStream::connect(tools).await.expect("the tools are there");
    stream.write_all(format!("{call}\n").as_bytes()).await.expect("they read");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await.expect("they answer");
    serde_json::from_str(&answer).unwrap_or_default()
}
