//! Drives an ACP agent through the client of the Rust SDK: `driver AGENT [ARG...]`.
//!
//! The client belongs to another team, so what it accepts is evidence that the agent speaks the protocol and not a
//! dialect that only its own tests understand. Each check prints one line; the first one that fails ends the program
//! with status 1. The names and the order of the checks are in the file `checks`, which is shared with the drivers in the
//! other languages.

use std::env;
use std::fmt::Debug;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, CloseSessionRequest, ContentBlock, InitializeRequest, NewSessionRequest, PromptRequest,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome,
    SessionId, SessionNotification, SessionUpdate, StopReason,
};
use agent_client_protocol::{
    Agent, ByteStreams, Client, Error, ErrorCode, on_receive_notification, on_receive_request,
};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

/// Far more than any check needs on a busy machine, and less than [`LONG_TURN`]: a turn that nobody ended is noticed.
const WAIT: Duration = Duration::from_secs(15);
const LONG_TURN: &str = "wait=60000";
const UPDATES: usize = 20;

/// What a check found instead of what it expected.
type Check = Result<(), String>;

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let Some(agent) = arguments.next() else {
        eprintln!("usage: driver AGENT [ARG...]");
        return ExitCode::FAILURE;
    };
    // A failure ends this program before the agent, which must not outlive it.
    let child =
        Command::new(&agent).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            eprintln!("driver: {} does not start: {error}", agent.display());
            return ExitCode::FAILURE;
        }
    };
    let held = drive(&mut child).await && check("exit", exit(&mut child)).await;
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Connects to the agent and runs every check but the last, for which its input must be closed.
async fn drive(child: &mut Child) -> bool {
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { unreachable!("both are piped") };
    let (say, said) = mpsc::unbounded_channel();
    let (offer, offered) = mpsc::unbounded_channel();
    let grant = Arc::new(AtomicBool::new(true));
    let grants = Arc::clone(&grant);
    let connected = Client
        .v1()
        .on_receive_notification(
            async move |update: SessionNotification, _| {
                if let SessionUpdate::AgentMessageChunk(chunk) = update.update
                    && let ContentBlock::Text(text) = chunk.content
                {
                    // The receiver is gone only when the checks have ended.
                    let _ = say.send(text.text);
                }
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _| {
                let Some(option) = request.options.last() else {
                    return responder.respond_with_internal_error("the agent offered no option");
                };
                let _ = offer.send(option.option_id.to_string());
                let outcome = if grants.load(Ordering::SeqCst) {
                    RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id.clone()))
                } else {
                    RequestPermissionOutcome::Cancelled
                };
                responder.respond(RequestPermissionResponse::new(outcome))
            },
            on_receive_request!(),
        )
        .connect_with(
            ByteStreams::new(input.compat_write(), output.compat()),
            async move |agent: ConnectionTo<Agent>| {
                let mut editor = Editor { agent, said, offered, grant, session: "".into(), other: "".into() };
                Ok(editor.run().await)
            },
        )
        .await;
    connected.unwrap_or_else(|error| {
        println!("FAILED connection: {error}");
        false
    })
}

/// Runs a check within its time, and prints its line.
async fn check(name: &str, body: impl Future<Output = Check>) -> bool {
    let verdict = timeout(WAIT, body).await.unwrap_or_else(|_| Err(format!("nothing within {WAIT:?}")));
    match &verdict {
        Ok(()) => println!("ok {name}"),
        Err(found) => println!("FAILED {name}: {found}"),
    }
    verdict.is_ok()
}

/// At the end of its input the agent ends as well.
async fn exit(child: &mut Child) -> Check {
    let status = child.wait().await.map_err(told)?;
    expect(status.success(), status)
}

/// The client's side of the conversation, as the checks see it.
struct Editor {
    agent: ConnectionTo<Agent>,
    /// The chunks that the agent said and that no check has taken yet.
    said: mpsc::UnboundedReceiver<String>,
    /// For each permission that the agent asked for, the option that would be selected.
    offered: mpsc::UnboundedReceiver<String>,
    /// Whether the next permission is granted; shared with the handler that answers it.
    grant: Arc<AtomicBool>,
    session: SessionId,
    /// A second session, which must not notice what happens to the first.
    other: SessionId,
}

impl Editor {
    async fn run(&mut self) -> bool {
        check("initialize", self.initialize()).await
            && check("new-session", self.new_session()).await
            && check("updates", self.updates()).await
            && check("permission", self.permission()).await
            && check("overlap-running", self.overlap_running()).await
            && check("overlap-at-once", self.overlap_at_once()).await
            && check("cancel", self.cancel()).await
            && check("cancel-at-once", self.cancel_at_once()).await
            && check("prompt-after-cancel", self.prompt_after_cancel()).await
            && check("close", self.close()).await
            && check("closed-session", self.closed_session()).await
    }

    async fn initialize(&mut self) -> Check {
        let request = InitializeRequest::new(ProtocolVersion::V1);
        let answer = self.agent.send_request(request).block_task().await.map_err(told)?;
        expect(answer.protocol_version == ProtocolVersion::V1, answer)
    }

    async fn new_session(&mut self) -> Check {
        let here = env::current_dir().map_err(told)?;
        for session in [&mut self.session, &mut self.other] {
            let answer = self.agent.send_request(NewSessionRequest::new(&here)).block_task().await.map_err(told)?;
            *session = answer.session_id;
        }
        expect(!self.session.0.is_empty() && self.session != self.other, (&self.session, &self.other))
    }

    async fn updates(&mut self) -> Check {
        let stop = self.prompt(&format!("updates={UPDATES} say=done")).await;
        let said = self.take();
        let expected = (1..=UPDATES).map(|number| number.to_string()).chain(["done".to_owned()]);
        expect(stop == Ok(StopReason::EndTurn) && said.iter().cloned().eq(expected), (stop, &said))
    }

    async fn permission(&mut self) -> Check {
        let stop = self.prompt("permission").await;
        let (said, offered) = (self.take(), self.offered.recv().await.unwrap_or_default());
        expect(
            stop == Ok(StopReason::EndTurn) && said.len() == 1 && said[0].contains(&offered),
            (stop, &said, &offered),
        )?;
        self.grant.store(false, Ordering::SeqCst);
        let stop = self.prompt("permission").await;
        let said = self.take();
        expect(stop == Ok(StopReason::EndTurn) && said.len() == 1 && said[0].contains("cancelled"), (stop, &said))
    }

    async fn overlap_running(&mut self) -> Check {
        let older = self.prompt(&format!("say=running {LONG_TURN}"));
        self.heard("running").await;
        let newer = self.prompt("say=newer");
        self.replaced(older, newer, "newer").await
    }

    async fn overlap_at_once(&mut self) -> Check {
        let older = self.prompt(LONG_TURN);
        let newer = self.prompt("say=newer");
        self.replaced(older, newer, "newer").await
    }

    async fn cancel(&mut self) -> Check {
        let turn = self.prompt(&format!("say=running {LONG_TURN}"));
        self.heard("running").await;
        self.send_cancel()?;
        ended(turn).await
    }

    async fn cancel_at_once(&mut self) -> Check {
        let turn = self.prompt(LONG_TURN);
        self.send_cancel()?;
        ended(turn).await
    }

    async fn prompt_after_cancel(&mut self) -> Check {
        let turn = self.prompt(LONG_TURN);
        self.send_cancel()?;
        let later = self.prompt("say=later");
        self.replaced(turn, later, "later").await
    }

    async fn close(&mut self) -> Check {
        let turn = self.prompt(&format!("say=running {LONG_TURN}"));
        self.heard("running").await;
        let request = CloseSessionRequest::new(self.session.clone());
        self.agent.send_request(request).block_task().await.map_err(told)?;
        ended(turn).await?;
        let stop = self.prompt_in(&self.other, "say=alive").await;
        let said = self.take();
        expect(stop == Ok(StopReason::EndTurn) && said == ["alive"], (stop, &said))
    }

    async fn closed_session(&mut self) -> Check {
        match self.prompt("say=ghost").await {
            Ok(stop) => Err(told(stop)),
            Err(error) => {
                let named = format!("{} {:?}", error.message, error.data).contains(&*self.session.0);
                expect(error.code == ErrorCode::INVALID_PARAMS && named, error)
            }
        }
    }

    /// Sends a prompt at once; what it returns is the turn's end.
    fn prompt(&self, script: &str) -> impl Future<Output = Result<StopReason, Error>> + use<> {
        self.prompt_in(&self.session, script)
    }

    fn prompt_in(&self, session: &SessionId, script: &str) -> impl Future<Output = Result<StopReason, Error>> + use<> {
        let request = PromptRequest::new(session.clone(), vec![script.into()]);
        let response = self.agent.send_request(request).block_task();
        async { Ok(response.await?.stop_reason) }
    }

    fn send_cancel(&self) -> Check {
        self.agent.send_notification(CancelNotification::new(self.session.clone())).map_err(told)
    }

    /// Waits until the agent says this.
    async fn heard(&mut self, text: &str) {
        while self.said.recv().await.is_some_and(|said| said != text) {}
    }

    /// What was said since the last call.
    fn take(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.said.try_recv().ok()).collect()
    }

    /// Of two turns the older one ends as cancelled, and only the newer one says something.
    async fn replaced(
        &mut self,
        older: impl Future<Output = Result<StopReason, Error>>,
        newer: impl Future<Output = Result<StopReason, Error>>,
        text: &str,
    ) -> Check {
        let stops = (older.await, newer.await);
        let said = self.take();
        expect(stops == (Ok(StopReason::Cancelled), Ok(StopReason::EndTurn)) && said == [text], (stops, &said))
    }
}

async fn ended(turn: impl Future<Output = Result<StopReason, Error>>) -> Check {
    let stop = turn.await;
    expect(stop == Ok(StopReason::Cancelled), stop)
}

fn expect(holds: bool, found: impl Debug) -> Check {
    if holds { Ok(()) } else { Err(told(found)) }
}

fn told(found: impl Debug) -> String {
    format!("the agent gave {found:?}")
}
