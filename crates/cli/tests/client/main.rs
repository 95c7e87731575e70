//! This crate's client with `lastword agent` as its child process. The agent's script decides how far a turn goes, and
//! every wait has an end.

mod bad_input;

use std::{path::Path, process::Command, time::Duration};

use lastword::{
    AgentProcess, CallError, Client, ClientContext, ProcessOptions,
    schema::{
        ProtocolVersion,
        v1::{
            CancelNotification, CloseSessionRequest, ContentBlock, ContentChunk, Error, ExtRequest, InitializeRequest,
            ListSessionsRequest, NewSessionRequest, PromptRequest, RawValue, RequestPermissionOutcome,
            RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome, SessionId,
            SessionNotification, SessionUpdate, StopReason,
        },
    },
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// Longer than anything in a test takes, also on a machine that does ten other things.
const EVER: Duration = Duration::from_secs(60);

async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(EVER, what).await.expect("nothing happened for a minute")
}

/// What an editor sees of its agent.
enum Seen {
    Said(String),
    /// The agent asks for permission; the answer is the option that the user selects.
    Asked(ClientContext, oneshot::Sender<&'static str>),
}

struct Editor {
    seen: mpsc::UnboundedSender<Seen>,
    /// Whether each update's handler first asks the agent something, and waits for the answer.
    asks_back: bool,
}

impl Client for Editor {
    async fn session_update(&self, notification: SessionNotification, context: ClientContext) {
        let SessionUpdate::AgentMessageChunk(ContentChunk { content: ContentBlock::Text(text), .. }) =
            notification.update
        else {
            panic!("the agent says nothing but text")
        };
        if self.asks_back {
            let echo = ExtRequest::new("_lastword/echo", RawValue::from_string("7".to_owned()).unwrap().into());
            assert_eq!(context.agent().ext_method(echo).await.unwrap().0.get(), "7");
        }
        let _ = self.seen.send(Seen::Said(text.text));
    }

    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        context: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let (answer, answered) = oneshot::channel();
        let _ = self.seen.send(Seen::Asked(context, answer));
        let outcome = match answered.await {
            Ok(option) => RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option)),
            Err(_) => RequestPermissionOutcome::Cancelled,
        };
        Ok(RequestPermissionResponse::new(outcome))
    }
}

/// An editor and its agent, with a session.
struct Desk {
    process: AgentProcess,
    session: SessionId,
    seen: mpsc::UnboundedReceiver<Seen>,
}

impl Desk {
    async fn with(command: Command, asks_back: bool) -> Self {
        let (seen_in, seen) = mpsc::unbounded_channel();
        let editor = Editor { seen: seen_in, asks_back };
        let process = AgentProcess::spawn(command, editor, ProcessOptions::default()).unwrap();
        let agent = process.agent();
        let initialized = soon(agent.initialize(InitializeRequest::new(ProtocolVersion::V1))).await.unwrap();
        assert_eq!(initialized.agent_info.unwrap().name, "lastword");
        let session = soon(agent.new_session(NewSessionRequest::new("/"))).await.unwrap().session_id;
        Self { process, session, seen }
    }

    async fn start() -> Self {
        Self::with(agent(), false).await
    }

    fn prompt(&self, script: &str) -> JoinHandle<Result<StopReason, CallError>> {
        let call = self.process.agent().prompt(PromptRequest::new(self.session.clone(), vec![script.into()]));
        tokio::spawn(async move { call.await.map(|response| response.stop_reason) })
    }

    async fn says(&mut self, text: &str) {
        match soon(self.seen.recv()).await.unwrap() {
            Seen::Said(said) => assert_eq!(said, text),
            Seen::Asked(..) => panic!("the agent asks for permission and does not say {text}"),
        }
    }

    async fn asks(&mut self) -> (ClientContext, oneshot::Sender<&'static str>) {
        match soon(self.seen.recv()).await.unwrap() {
            Seen::Asked(context, answer) => (context, answer),
            Seen::Said(said) => panic!("the agent says {said} and does not ask for permission"),
        }
    }

    /// Asks the agent to exit, which it does.
    async fn end(self) {
        let id = self.process.id();
        let ended = soon(self.process.close()).await;
        assert!(ended.exit.status.unwrap().success(), "{}", ended.exit);
        ended.connection.unwrap();
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }
}

fn agent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
    command.arg("agent").env_remove("RUST_LOG");
    command
}

async fn ends_with(prompt: JoinHandle<Result<StopReason, CallError>>, reason: StopReason) {
    assert_eq!(soon(prompt).await.unwrap().unwrap(), reason);
}

#[tokio::test]
async fn a_turn_says_its_updates_in_order_and_ends() {
    let mut desk = Desk::start().await;
    let turn = desk.prompt("hello updates=1000 goodbye");
    desk.says("hello").await;
    for number in 1..=1000 {
        desk.says(&number.to_string()).await;
    }
    desk.says("goodbye").await;
    ends_with(turn, StopReason::EndTurn).await;
    desk.end().await;
}

#[tokio::test]
async fn handlers_that_ask_the_agent_back_do_not_hang() {
    let mut desk = Desk::with(agent(), true).await;
    let turn = desk.prompt("updates=100");
    for number in 1..=100 {
        desk.says(&number.to_string()).await;
    }
    ends_with(turn, StopReason::EndTurn).await;
    desk.end().await;
}

#[tokio::test]
async fn the_agent_asks_for_permission_and_goes_on_with_what_was_selected() {
    let mut desk = Desk::start().await;
    let turn = desk.prompt("permission permission");
    for option in ["allow", "reject"] {
        desk.asks().await.1.send(option).unwrap();
        desk.says(option).await;
    }
    ends_with(turn, StopReason::EndTurn).await;
    desk.end().await;
}

#[tokio::test]
async fn a_cancel_ends_the_turn_and_takes_its_question_back() {
    let mut desk = Desk::start().await;
    let turn = desk.prompt("permission never");
    let (question, answer) = desk.asks().await;
    soon(desk.process.agent().cancel(CancelNotification::new(desk.session.clone()))).await.unwrap();
    ends_with(turn, StopReason::Cancelled).await;
    soon(question.cancellation().cancelled()).await;
    drop(answer);
    desk.end().await;
}

#[tokio::test]
async fn of_two_overlapping_prompts_the_newer_one_has_the_last_word() {
    let mut desk = Desk::start().await;
    let older = desk.prompt("started wait=600000 never");
    desk.says("started").await;
    let newer = desk.prompt("newer");
    desk.says("newer").await;
    ends_with(older, StopReason::Cancelled).await;
    ends_with(newer, StopReason::EndTurn).await;
    desk.end().await;
}

#[tokio::test]
async fn dropping_a_prompt_ends_its_turn_only() {
    let mut desk = Desk::start().await;
    let dropped = desk.prompt("started permission never");
    desk.says("started").await;
    let (question, _answer) = desk.asks().await;
    dropped.abort();
    // The turn ends, and takes its question back.
    soon(question.cancellation().cancelled()).await;
    let next = desk.prompt("next");
    desk.says("next").await;
    ends_with(next, StopReason::EndTurn).await;
    desk.end().await;
}

#[tokio::test]
async fn a_turn_that_fails_gives_the_agents_error() {
    let desk = Desk::start().await;
    let error = soon(desk.prompt("fail")).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the peer answered `session/prompt` with the error -32603: the prompt said `fail`");
    desk.end().await;
}

#[tokio::test]
async fn a_session_is_listed_and_closed_which_ends_its_turn() {
    let mut desk = Desk::start().await;
    let agent = desk.process.agent().clone();
    let sessions = soon(agent.list_sessions(ListSessionsRequest::new())).await.unwrap().sessions;
    assert_eq!(sessions.iter().map(|session| &session.session_id).collect::<Vec<_>>(), [&desk.session]);
    let turn = desk.prompt("started wait=600000 never");
    desk.says("started").await;
    soon(agent.close_session(CloseSessionRequest::new(desk.session.clone()))).await.unwrap();
    ends_with(turn, StopReason::Cancelled).await;
    desk.end().await;
}

#[tokio::test]
async fn closing_while_a_turn_runs_ends_it_and_the_agent_exits() {
    let mut desk = Desk::start().await;
    let turn = desk.prompt("started wait=600000 never");
    desk.says("started").await;
    desk.end().await;
    ends_with(turn, StopReason::Cancelled).await;
}

#[tokio::test]
async fn an_agent_that_is_killed_tells_every_waiting_call() {
    let mut desk = Desk::start().await;
    let turns = [desk.prompt("started wait=600000 never"), {
        desk.says("started").await;
        let other = soon(desk.process.agent().new_session(NewSessionRequest::new("/"))).await.unwrap().session_id;
        desk.session = other;
        desk.prompt("started deaf=600000 never")
    }];
    desk.says("started").await;
    assert!(Command::new("kill").args(["-KILL", &desk.process.id().to_string()]).status().unwrap().success());
    for turn in turns {
        let error = soon(turn).await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the agent is gone: signal: 9 (SIGKILL), and it wrote nothing on standard error");
    }
    soon(desk.process.close()).await.connection.unwrap();
}

#[tokio::test]
async fn an_agent_behind_a_launcher_ends_with_it() {
    let mut command = Command::new("sh");
    // A shell gives what it starts in the background no input, unless it is told to.
    command.args(["-c", r#"exec 3<&0; "$0" agent <&3 & echo $! >&2; wait"#, env!("CARGO_BIN_EXE_lastword")]);
    let mut desk = Desk::with(command, false).await;
    let turn = desk.prompt("started wait=600000 never");
    desk.says("started").await;
    assert!(Command::new("kill").args(["-KILL", &desk.process.id().to_string()]).status().unwrap().success());
    let Err(CallError::AgentExited(exit)) = soon(turn).await.unwrap() else { panic!("the call came back") };
    let [agent] = &exit.stderr[..] else { panic!("{exit}") };
    // The end of the connection is the end of every process that could write to it.
    soon(desk.process.close()).await.connection.unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{agent}/cmdline")).unwrap_or_default();
    assert_eq!(stat, "", "a process that is dead has no command line");
}
