//! Drives an ACP agent through this crate's client: `drive [--handshake] AGENT [ARG...]`
//!
//! `scripts/peers/agents` runs it against agents on the SDKs of other teams, which run the text of a prompt as a script.
//! With `--handshake` it only says hello, asks for a session and ends the agent; any agent can do that, also one that wants
//! a key before it does more. Each check prints one line; the first one that fails ends the program with status 1.

use std::{
    env,
    fmt::Debug,
    fs,
    path::Path,
    pin::pin,
    process::{Command, ExitCode},
    time::Duration,
};

use lastword::{
    AgentHandle, AgentProcess, CallError, Client, ClientContext, ProcessOptions,
    schema::{
        ProtocolVersion,
        v1::{
            CancelNotification, ContentBlock, ContentChunk, Error, ExtRequest, InitializeRequest, NewSessionRequest,
            PromptRequest, RawValue, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
            SelectedPermissionOutcome, SessionId, SessionNotification, SessionUpdate, StopReason,
        },
    },
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

/// Far more than any check needs on a busy machine, and less than [`LONG_TURN`]: a turn that nobody ended is noticed.
const WAIT: Duration = Duration::from_secs(30);
const LONG_TURN: &str = "say=running wait=120000";
const UPDATES: usize = 200;
/// How long the handler of an update takes. The response of a turn arrives long before its handlers are done.
const HANDLER_TIME: Duration = Duration::from_millis(1);
const METHOD_NOT_FOUND: i32 = -32601;
const AUTHENTICATION_REQUIRED: i32 = -32000;

/// What a check found instead of what it expected.
type Check = Result<(), String>;

/// One thread: what a check starts first goes out first.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1).peekable();
    let handshake = arguments.next_if(|argument| argument == "--handshake").is_some();
    let Some(program) = arguments.next() else {
        eprintln!("usage: drive [--handshake] AGENT [ARG...]");
        return ExitCode::from(2);
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let (say, said) = mpsc::unbounded_channel();
    let process = match AgentProcess::spawn(command, Editor { say }, ProcessOptions::default()) {
        Ok(process) => process,
        Err(error) => {
            eprintln!("drive: {error}");
            return ExitCode::from(2);
        }
    };
    let agent = process.agent().clone();
    let mut desk = Desk { agent, said, session: "".into(), other: "".into() };
    let held = if handshake { desk.shake_hands().await } else { desk.drive().await };
    // An agent that failed a check is killed when it is dropped.
    if held && check("close", desk.close(process, handshake)).await { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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

/// The client: it tells what it handled, in the order in which it was done with it.
struct Editor {
    say: mpsc::UnboundedSender<String>,
}

impl Client for Editor {
    async fn session_update(&self, notification: SessionNotification, context: ClientContext) {
        if let SessionUpdate::AgentMessageChunk(ContentChunk { content: ContentBlock::Text(text), .. }) =
            notification.update
        {
            let handled = if text.text == "ask" {
                // What the agent says meanwhile is taken in, or its answer could never come.
                format!("{:?}", refused_with(context.agent()).await)
            } else {
                sleep(HANDLER_TIME).await;
                text.text
            };
            // The checks may be over.
            let _ = self.say.send(handled);
        }
    }

    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let last = request.options.last().ok_or_else(|| Error::new(-32602, "the agent offers no option"))?;
        let _ = self.say.send(format!("selected {}", last.option_id.0));
        let outcome = RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(last.option_id.clone()));
        Ok(RequestPermissionResponse::new(outcome))
    }
}

/// The code of the error with which the agent refuses a method that nobody has.
async fn refused_with(agent: &AgentHandle) -> Option<i32> {
    let request = ExtRequest::new("_lastword/no_such_method", RawValue::NULL.to_owned().into());
    match agent.ext_method(request).await {
        Err(CallError::Refused { error, .. }) => Some(error.code.into()),
        _ => None,
    }
}

/// The agent, and what the editor tells of it.
struct Desk {
    agent: AgentHandle,
    said: mpsc::UnboundedReceiver<String>,
    session: SessionId,
    other: SessionId,
}

impl Desk {
    async fn shake_hands(&mut self) -> bool {
        check("initialize", self.initialize()).await && check("new-session", self.new_session_or_key()).await
    }

    async fn drive(&mut self) -> bool {
        check("initialize", self.initialize()).await
            && check("new-session", self.new_session()).await
            && check("updates", self.updates()).await
            && check("permission", self.permission()).await
            && check("ask-back", self.ask_back()).await
            && check("unknown-method", self.unknown_method()).await
            && check("cancel", self.cancel()).await
            && check("cancel-at-once", self.cancel_at_once()).await
            && check("overlap", self.overlap()).await
            && check("two-sessions", self.two_sessions()).await
            && check("dropped-call", self.dropped_call()).await
    }

    async fn initialize(&mut self) -> Check {
        let initialized = self.agent.initialize(InitializeRequest::new(ProtocolVersion::V1)).await.map_err(told)?;
        expect(initialized.protocol_version == ProtocolVersion::V1, initialized)
    }

    async fn new_session(&mut self) -> Check {
        for session in [&mut self.session, &mut self.other] {
            *session = self.agent.new_session(here()?).await.map_err(told)?.session_id;
        }
        expect(self.session != self.other, &self.session)
    }

    /// A session or, from an agent that wants a key first, the error that says so.
    async fn new_session_or_key(&mut self) -> Check {
        match self.agent.new_session(here()?).await {
            Ok(_) => Ok(()),
            Err(CallError::Refused { error, .. }) => expect(i32::from(error.code) == AUTHENTICATION_REQUIRED, error),
            Err(error) => Err(told(error)),
        }
    }

    /// Each handler was done when the response was given, one after the other in order.
    async fn updates(&mut self) -> Check {
        let stop = self.prompt(&format!("updates={UPDATES}")).await;
        let numbers: Vec<_> = (1..=UPDATES).map(|number| number.to_string()).collect();
        self.ended_with(stop, StopReason::EndTurn, &numbers)
    }

    /// The agent asks from within its turn, and says what was selected.
    async fn permission(&mut self) -> Check {
        let stop = self.prompt("permission").await;
        self.ended_with(stop, StopReason::EndTurn, &["selected reject", "reject"])
    }

    /// The handler of an update asks the agent, and waits for what it says. Meanwhile responses are given out, the turn's
    /// too, since the agent might wait for what they lead to.
    async fn ask_back(&mut self) -> Check {
        let stop = self.prompt("ask ask").await;
        let said = [self.said.recv().await, self.said.recv().await];
        let refused = Some(format!("{:?}", Some(METHOD_NOT_FOUND)));
        expect(said == [refused.clone(), refused], said)?;
        self.ended_with(stop, StopReason::EndTurn, &[] as &[&str])
    }

    async fn unknown_method(&mut self) -> Check {
        let refused = refused_with(&self.agent).await;
        expect(refused == Some(METHOD_NOT_FOUND), refused)
    }

    async fn cancel(&mut self) -> Check {
        let mut turn = pin!(self.prompt(LONG_TURN));
        self.runs(turn.as_mut()).await?;
        self.cancel_turn().await?;
        let stop = turn.await;
        self.ended_with(stop, StopReason::Cancelled, &[] as &[&str])
    }

    /// The cancel follows the prompt without a pause.
    async fn cancel_at_once(&mut self) -> Check {
        let (stop, cancelled) = tokio::join!(self.prompt("wait=120000"), self.cancel_turn());
        cancelled?;
        self.ended_with(stop, StopReason::Cancelled, &[] as &[&str])
    }

    async fn overlap(&mut self) -> Check {
        let (older, newer) = tokio::join!(self.prompt("wait=120000"), self.prompt("newer"));
        expect(matches!(older, Ok(StopReason::Cancelled)), older)?;
        self.ended_with(newer, StopReason::EndTurn, &["newer"])
    }

    /// A cancel of one session spares the turn of the other.
    async fn two_sessions(&mut self) -> Check {
        let mut turn = pin!(self.prompt(LONG_TURN));
        self.runs(turn.as_mut()).await?;
        let other = self.prompt_in(&self.other, "permission updates=3");
        let (cancelled, stop, other) = tokio::join!(self.cancel_turn(), turn, other);
        cancelled?;
        expect(matches!(stop, Ok(StopReason::Cancelled)), stop)?;
        self.ended_with(other, StopReason::EndTurn, &["selected reject", "reject", "1", "2", "3"])
    }

    /// Nobody waits for a turn any more. What comes of it disturbs nobody.
    async fn dropped_call(&mut self) -> Check {
        {
            let mut turn = pin!(self.prompt(LONG_TURN));
            self.runs(turn.as_mut()).await?;
        }
        let stop = self.prompt("next").await;
        self.ended_with(stop, StopReason::EndTurn, &["next"])
    }

    /// The agent exits, though a turn runs, and whoever waits learns of it. No process is left, and no zombie.
    async fn close(mut self, process: AgentProcess, handshake: bool) -> Check {
        let id = process.id();
        let ended = if handshake {
            process.close().await
        } else {
            let mut turn = pin!(self.prompt(LONG_TURN));
            self.runs(turn.as_mut()).await?;
            let (ended, turn) = tokio::join!(process.close(), turn);
            let gone =
                matches!(turn, Ok(StopReason::Cancelled) | Err(CallError::AgentExited(_) | CallError::Disconnected));
            expect(gone, turn)?;
            expect(ended.exit.status.is_some_and(|status| status.success()), &ended.exit)?;
            ended
        };
        ended.connection.map_err(|error| error.to_string())?;
        expect(!Path::new(&format!("/proc/{id}")).exists(), "a zombie")?;
        // They were killed before the agent was reaped; how soon they are gone is the system's business.
        while let Some(left) = left_of_group(id) {
            eprintln!("drive: waiting for {left}");
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// A turn; its prompt goes out when this is first polled.
    fn prompt(&self, script: &str) -> impl Future<Output = Result<StopReason, CallError>> + use<> {
        self.prompt_in(&self.session, script)
    }

    fn prompt_in(
        &self,
        session: &SessionId,
        script: &str,
    ) -> impl Future<Output = Result<StopReason, CallError>> + use<> {
        let response = self.agent.prompt(PromptRequest::new(session.clone(), vec![script.into()]));
        async { Ok(response.await?.stop_reason) }
    }

    /// Waits until the turn says that it runs.
    async fn runs(&mut self, turn: impl Future<Output = Result<StopReason, CallError>>) -> Check {
        tokio::select! {
            stop = turn => Err(told(stop)),
            said = self.said.recv() => expect(said.as_deref() == Some("running"), said),
        }
    }

    fn cancel_turn(&self) -> impl Future<Output = Check> + use<> {
        let cancelled = self.agent.cancel(CancelNotification::new(self.session.clone()));
        async { cancelled.await.map_err(told) }
    }

    /// A turn ended for this reason, and nothing else was said since the last one.
    fn ended_with(
        &mut self,
        stop: Result<StopReason, CallError>,
        reason: StopReason,
        text: &[impl AsRef<str>],
    ) -> Check {
        let said: Vec<_> = std::iter::from_fn(|| self.said.try_recv().ok()).collect();
        let expected = said.iter().map(String::as_str).eq(text.iter().map(AsRef::as_ref));
        expect(matches!(&stop, Ok(stop) if *stop == reason) && expected, (stop, said))
    }
}

fn here() -> Result<NewSessionRequest, String> {
    env::current_dir().map(NewSessionRequest::new).map_err(|error| error.to_string())
}

fn expect(holds: bool, found: impl Debug) -> Check {
    if holds { Ok(()) } else { Err(told(found)) }
}

fn told(found: impl Debug) -> String {
    format!("the agent gave {found:?}")
}

/// A process of this group that lives, by the line that Linux keeps of it.
fn left_of_group(group: u32) -> Option<String> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        // After the name, which ends with the last parenthesis: state, parent, group.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let (state, member) = (fields.next()?, fields.nth(1)? == group.to_string());
        (member && !matches!(state, "Z" | "X")).then_some(stat)
    })
}
