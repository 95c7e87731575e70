//! Bad input, row by row, on the client's side: raw bytes of a child process that plays the agent. The client says what is
//! wrong, to whom it can, and goes on.

use std::{
    io::Write as _,
    process::Command,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use lastword::{
    AgentProcess, CallError, Client, ClientContext, Ended, ProcessOptions, ServeError,
    schema::{
        ProtocolVersion,
        v1::{
            ContentBlock, ContentChunk, Error, ExtRequest, ExtResponse, InitializeRequest, NewSessionRequest, RawValue,
            RequestPermissionRequest, RequestPermissionResponse, SessionNotification, SessionUpdate,
        },
    },
};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::fmt::MakeWriter;

use crate::soon;

/// Repeats on standard error what it is told. The first call is answered after the raw bytes of the file `$0`, each later
/// one with its number; where there is no `$1`, the first call is not answered.
const AGENT: &str = r#"
    n=0
    while IFS= read -r line; do
        printf '%s\n' "$line" >&2
        case $line in *'"method":"_go"'*|*'"method":"_again"'*) ;; *) continue;; esac
        n=$((n+1))
        [ $n -gt 1 ] || cat "$0"
        [ $n -eq 1 ] && [ -z "$1" ] || echo "{\"jsonrpc\":\"2.0\",\"id\":$n,\"result\":$n}"
    done"#;

/// More than any test makes the client say.
const LINES_MAX: usize = 1000;

/// The client: it keeps the updates, and runs what a request asks for.
#[derive(Clone, Default)]
struct Editor {
    updates: Arc<Mutex<Vec<String>>>,
}

impl Client for Editor {
    async fn session_update(&self, notification: SessionNotification, _: ClientContext) {
        if let SessionUpdate::AgentMessageChunk(ContentChunk { content: ContentBlock::Text(text), .. }) =
            notification.update
        {
            match &*text.text {
                "panic" => panic!("as the update says"),
                _ => self.updates.lock().unwrap().push(text.text),
            }
        }
    }

    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        panic!("as the agent asked");
    }

    async fn ext_method(&self, request: ExtRequest, context: ClientContext) -> Result<ExtResponse, Error> {
        match &*request.method {
            "_echo" => Ok(ExtResponse::new(request.params)),
            "_wait" => {
                context.cancellation().cancelled().await;
                Ok(ExtResponse::new(RawValue::NULL.to_owned().into()))
            }
            other => Err(Error::new(-32601, format!("Method not found: {other}"))),
        }
    }
}

/// What is logged on this thread, where everything of a test runs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn keep(&self) -> DefaultGuard {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .without_time()
            .with_writer(self.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// The lines of a level, without what the agent said on standard error.
    fn lines(&self, level: &str) -> Vec<String> {
        let log = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
        let lines = log.lines().filter(|line| line.trim_start().starts_with(level) && line.contains("connection="));
        lines.map(str::to_owned).collect()
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = LogWriter<'a>;

    fn make_writer(&'a self) -> LogWriter<'a> {
        LogWriter(self.0.lock().unwrap())
    }
}

struct LogWriter<'a>(MutexGuard<'a, Vec<u8>>);

impl std::io::Write for LogWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A client, and an agent that says these bytes once it is asked to go.
struct Scene {
    process: AgentProcess,
    editor: Editor,
    log: Log,
    _keeping: DefaultGuard,
    /// The agent reads it.
    _bytes: NamedTempFile,
}

/// What was left when the agent had exited.
struct Left {
    ended: Ended,
    /// The responses that the client gave, as they stood on the wire.
    responses: Vec<String>,
    updates: Vec<String>,
    log: Log,
}

impl Scene {
    fn with(bytes: &[u8], answers: bool, change: impl FnOnce(&mut ProcessOptions)) -> Self {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let (editor, log) = (Editor::default(), Log::default());
        let keeping = log.keep();
        let mut command = Command::new("sh");
        command.args(["-c", AGENT]).arg(file.path()).args(answers.then_some("answers"));
        let mut options = ProcessOptions::default();
        options.stderr_lines_max = LINES_MAX;
        change(&mut options);
        let process = AgentProcess::spawn(command, editor.clone(), options).unwrap();
        Self { process, editor, log, _keeping: keeping, _bytes: file }
    }

    fn call(&self, method: &str) -> impl Future<Output = Result<String, CallError>> + use<> {
        let call = self.process.agent().ext_method(ExtRequest::new(method, RawValue::NULL.to_owned().into()));
        async { Ok(call.await?.0.get().to_owned()) }
    }

    /// The agent exits when it is asked to.
    async fn end(self) -> Left {
        let ended = soon(self.process.close()).await;
        let said = ended.exit.stderr.iter().filter(|line| !line.contains(r#""method":"#));
        let responses = said.cloned().collect();
        let updates = self.editor.updates.lock().unwrap().clone();
        Left { ended, responses, updates, log: self.log }
    }
}

/// The agent says this and answers. The client has taken all of it in, and goes on: the next call is answered as well.
async fn said_with(bytes: impl AsRef<[u8]>, change: impl FnOnce(&mut ProcessOptions)) -> Left {
    let scene = Scene::with(bytes.as_ref(), true, change);
    assert_eq!(soon(scene.call("_go")).await.unwrap(), "1");
    assert_eq!(soon(scene.call("_again")).await.unwrap(), "2");
    let left = scene.end().await;
    assert!(left.ended.exit.status.unwrap().success(), "{}", left.ended.exit);
    left.ended.connection.as_ref().unwrap();
    left
}

async fn said(lines: &[impl AsRef<[u8]>]) -> Left {
    let lines: Vec<&[u8]> = lines.iter().map(AsRef::as_ref).collect();
    said_with([&lines.join(&b'\n')[..], b"\n"].concat(), |_| {}).await
}

fn update(text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
    )
}

fn request(id: impl std::fmt::Display, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn parsed(response: &str) -> Value {
    serde_json::from_str(response).unwrap()
}

/// The line is answered to nobody with this code, and logged with its start.
async fn answered_to_nobody(line: &[u8], code: i64) {
    let left = said(&[line]).await;
    let [response] = &left.responses[..] else { panic!("{:?}", left.responses) };
    assert!(response.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"#)), "{response}");
    let warnings = left.log.lines("WARN");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let start = String::from_utf8_lossy(&line[..line.len().min(20)]).into_owned();
    assert!(warnings[0].contains(&start), "{warnings:?}");
}

#[tokio::test]
async fn a_line_that_is_not_json_is_answered_to_nobody() {
    answered_to_nobody(b"Welcome to the agent!", -32700).await;
    answered_to_nobody(br#"{"jsonrpc":"2.0","id":1"#, -32700).await;
}

#[tokio::test]
async fn a_line_that_is_not_utf8_is_answered_to_nobody() {
    answered_to_nobody(b"{\"id\":1,\"method\":\"\xff\"}", -32700).await;
}

#[tokio::test]
async fn a_line_that_is_no_object_or_a_batch_is_answered_to_nobody() {
    answered_to_nobody(b"\"hello\"", -32600).await;
    answered_to_nobody(br#"[{"jsonrpc":"2.0","id":1,"method":"_echo"}]"#, -32600).await;
}

#[tokio::test]
async fn only_the_start_of_a_bad_line_is_logged() {
    let left = said(&["x".repeat(10_000)]).await;
    let warnings = left.log.lines("WARN").join("\n");
    assert!(warnings.contains(&"x".repeat(200)) && !warnings.contains(&"x".repeat(201)), "{warnings}");
}

#[tokio::test]
async fn an_unknown_request_is_answered_and_an_unknown_notification_is_not() {
    let left = said(&[
        request(1, "terminal/explode", "{}"),
        request(2, "_other", "{}"),
        r#"{"jsonrpc":"2.0","method":"session/explode"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"_other"}"#.to_owned(),
    ])
    .await;
    let mut responses: Vec<Value> = left.responses.iter().map(|line| parsed(line)).collect();
    responses.sort_by_key(|response| response["id"].as_u64());
    assert_eq!(responses.len(), 2);
    for (response, method) in responses.iter().zip(["terminal/explode", "_other"]) {
        assert_eq!(response["error"], json!({"code": -32601, "message": format!("Method not found: {method}")}));
    }
    let debug = left.log.lines("DEBUG");
    assert_eq!(debug.len(), 1, "{debug:?}");
    assert!(debug[0].contains("session/explode"), "{debug:?}");
    assert_eq!(left.log.lines("WARN").len(), 0);
}

#[tokio::test]
async fn bad_parameters_name_the_field_and_change_nothing_else() {
    let left = said(&[
        request(1, "session/request_permission", r#"{"sessionId":"s"}"#),
        request(2, "fs/read_text_file", r#"{"sessionId":"s","path":5}"#),
        request(3, "terminal/create", "[]"),
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":5}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"session/update"}"#.to_owned(),
        update("goes on"),
    ])
    .await;
    let mut responses: Vec<Value> = left.responses.iter().map(|line| parsed(line)).collect();
    responses.sort_by_key(|response| response["id"].as_u64());
    assert_eq!(responses.len(), 3);
    for (response, field) in responses.iter().zip(["`toolCall`", "`path`", "`params`"]) {
        assert_eq!(response["error"]["code"], -32602, "{response}");
        assert!(response["error"]["message"].as_str().unwrap().contains(field), "{response}");
    }
    let warnings = left.log.lines("WARN");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("session/update") && warnings[0].contains("`sessionId`"), "{warnings:?}");
    assert_eq!(left.updates, ["goes on"]);
}

#[tokio::test]
async fn a_request_with_an_id_in_use_is_refused_and_the_first_one_goes_on() {
    let cancel = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}"#;
    let left = said(&[request(7, "_wait", "{}"), request("7.0", "_echo", "{}"), cancel.to_owned()]).await;
    assert_eq!(left.responses.len(), 2);
    assert!(
        left.responses[0].starts_with(r#"{"jsonrpc":"2.0","id":7.0,"error":{"code":-32600,"#),
        "{:?}",
        left.responses
    );
    assert!(
        left.responses[1].starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32800,"#),
        "{:?}",
        left.responses
    );
    assert_eq!(left.log.lines("WARN").len(), 1);
}

#[tokio::test]
async fn a_response_to_no_call_is_a_warning() {
    let left = said(&[
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what you said is no JSON"}}"#,
        r#"{"jsonrpc":"2.0","result":{}}"#,
        // The second response to a call.
        r#"{"jsonrpc":"2.0","id":1,"result":1}"#,
        r#"{"jsonrpc":"2.0","id":1.0,"result":5}"#,
    ])
    .await;
    assert_eq!(left.responses.len(), 0, "{:?}", left.responses);
    let warnings = left.log.lines("WARN");
    // The agent's own answer to the first call comes third.
    assert_eq!(warnings.len(), 6, "{warnings:?}");
    assert!(warnings.iter().all(|warning| warning.contains("a response to no call")), "{warnings:?}");
}

#[tokio::test]
async fn a_response_may_write_the_number_of_the_call_in_another_way() {
    for id in ["1", "1.0", "1e0", "10e-1"] {
        let scene = Scene::with(format!("{{\"id\": {id} ,\"result\":5}}\n").as_bytes(), false, |_| {});
        assert_eq!(soon(scene.call("_go")).await.unwrap(), "5");
        scene.end().await.ended.connection.unwrap();
    }
}

#[tokio::test]
async fn an_error_or_a_result_that_is_none_of_the_protocol_is_given_to_the_caller() {
    let error = |line: &'static str| async move {
        let scene = Scene::with(format!("{line}\n").as_bytes(), false, |_| {});
        let error = soon(scene.call("_go")).await.unwrap_err().to_string();
        scene.end().await.ended.connection.unwrap();
        error
    };
    let told = error(r#"{"id":1,"error":"no"}"#).await;
    assert!(told.starts_with("the peer answered `_go` with the error -32603: the peer's error is none"), "{told}");
    let told = error(r#"{"id":1,"error":{"code":5,"message":"m","data":[1]}}"#).await;
    assert!(told.starts_with("the peer answered `_go` with the error 5: m"), "{told}");
    // The agent answers the first two calls with a number.
    let scene =
        Scene::with(b"{\"id\":1,\"result\":{\"protocolVersion\":\"one\"}}\n{\"id\":2,\"result\":[]}\n", false, |_| {});
    let agent = scene.process.agent();
    let (initialized, session, _) = tokio::join!(
        soon(agent.initialize(InitializeRequest::new(ProtocolVersion::V1))),
        soon(agent.new_session(NewSessionRequest::new("/"))),
        async { drop(tokio::time::timeout(Duration::ZERO, scene.call("_go")).await) },
    );
    for (error, method) in [(initialized.unwrap_err(), "initialize"), (session.unwrap_err(), "session/new")] {
        assert!(matches!(error, CallError::BadResult { .. }), "{error}");
        assert!(error.to_string().contains(&format!("`{method}`")), "{error}");
    }
    scene.end().await.ended.connection.unwrap();
}

#[tokio::test]
async fn an_id_is_echoed_byte_for_byte() {
    let ids = ["1", "2.0", "3e0", "1.5", "-7", "9007199254740993", "18446744073709551616", "null", r#""\u00e9\ud800""#];
    let lines: Vec<_> = ids.iter().map(|id| request(id, "_echo", "0")).collect();
    let mut left = said(&lines).await;
    let mut expected: Vec<_> = ids.iter().map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":0}}"#)).collect();
    left.responses.sort_unstable();
    expected.sort_unstable();
    assert_eq!(left.responses, expected);
}

#[tokio::test]
async fn what_is_no_id_and_an_id_that_is_too_long_are_refused() {
    for id in ["true", "[]", "{}"] {
        answered_to_nobody(request(id, "_echo", "0").as_bytes(), -32600).await;
    }
    answered_to_nobody(request(format!("\"{}\"", "x".repeat(4095)), "_echo", "0").as_bytes(), -32600).await;
    let left = said(&[request(format!("\"{}\"", "x".repeat(4094)), "_echo", "0")]).await;
    assert_eq!(left.responses.len(), 1);
    assert!(left.responses[0].contains("xxxx"), "{:?}", left.responses);
}

#[tokio::test]
async fn a_line_over_the_limit_is_skipped() {
    const LIMIT: usize = 1000;
    let line = |length: usize| {
        let frame = update("").len();
        update(&"x".repeat(length - frame))
    };
    for long in [LIMIT + 1, 10_000_000] {
        let bytes = format!("{}\n{}\n", line(long), line(LIMIT));
        let left = said_with(bytes, |options| options.connection.line_bytes_max = LIMIT).await;
        let [response] = &left.responses[..] else { panic!("{:?}", left.responses) };
        let response = parsed(response);
        assert_eq!((&response["id"], &response["error"]["code"]), (&Value::Null, &json!(-32600)));
        assert_eq!(left.updates.iter().map(String::len).collect::<Vec<_>>(), [LIMIT - update("").len()]);
        assert_eq!(left.log.lines("WARN").len(), 1);
    }
}

#[tokio::test]
async fn a_last_line_without_a_newline_is_handled_where_it_is_complete() {
    for (line, handled) in [(update("last"), 1), (update("last")[..50].to_owned(), 0)] {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(line.as_bytes()).unwrap();
        let (editor, log) = (Editor::default(), Log::default());
        let _keeping = log.keep();
        let mut command = Command::new("cat");
        command.arg(file.path());
        let process = AgentProcess::spawn(command, editor.clone(), ProcessOptions::default()).unwrap();
        soon(process.exited()).await;
        soon(process.close()).await.connection.unwrap();
        assert_eq!(editor.updates.lock().unwrap().len(), handled);
        let errors = log.lines("ERROR");
        assert_eq!(errors.len(), 1 - handled, "{errors:?}");
        assert!(errors.iter().all(|error| error.contains("the input ended within a line")), "{errors:?}");
    }
}

#[tokio::test]
async fn an_agent_that_never_reads_is_ended_in_bounded_time_and_every_caller_learns_of_it() {
    let asked: String = (0..100_000).map(|id| request(id, "_echo", r#""0123456789""#) + "\n").collect();
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(asked.as_bytes()).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", r#"cat "$0"; exec sleep 600"#]).arg(file.path());
    let mut options = ProcessOptions::default();
    options.exit_max = Duration::from_millis(50);
    options.term_max = Duration::from_millis(50);
    options.connection.drain_max = Duration::from_millis(50);
    let process = AgentProcess::spawn(command, Editor::default(), options).unwrap();
    let params: Arc<RawValue> = RawValue::from_string(format!("\"{}\"", "x".repeat(10_000))).unwrap().into();
    let calls: Vec<_> = (0..100)
        .map(|_| tokio::spawn(process.agent().ext_method(ExtRequest::new("_call", Arc::clone(&params)))))
        .collect();
    // Each of them is made now; the pipe and the output of the client hold a third of them.
    tokio::task::yield_now().await;
    let ended = soon(process.close()).await;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.exit.status.unwrap()), Some(15));
    // Which bound is met first depends on how much of its output the client had taken in.
    let is_bounded = matches!(
        ended.connection,
        Err(ServeError::Write(_) | ServeError::OutputKeptOpen | ServeError::Unfinished { .. })
    );
    assert!(is_bounded, "{:?}", ended.connection);
    for call in calls {
        let error = soon(call).await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::AgentExited(_) | CallError::Disconnected), "{error}");
    }
}

#[tokio::test]
async fn more_notifications_than_the_queue_holds_are_all_handled() {
    let updates: Vec<_> = (0..20_000).map(|number| number.to_string()).collect();
    let lines: Vec<_> = updates.iter().map(|number| update(number)).collect();
    let left = said(&lines).await;
    assert_eq!(left.updates, updates);
    assert_eq!(left.log.lines("").len(), 0);
}

#[tokio::test]
async fn deep_nesting_and_duplicate_keys_are_refused_and_what_passes_through_is_not_changed() {
    let deep = request(1, "_echo", &format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    answered_to_nobody(deep.as_bytes(), -32700).await;
    answered_to_nobody(br#"{"id":1,"id":2,"method":"_echo"}"#, -32700).await;
    for params in [r#"{"a":1,"a":2}"#, r#"["\ud800"]"#, "1.0e5", "[ 1 ,2 ]", "9007199254740993"] {
        let left = said(&[request(1, "_echo", params)]).await;
        assert_eq!(left.responses, [format!(r#"{{"jsonrpc":"2.0","id":1,"result":{params}}}"#)]);
        let scene = Scene::with(format!("{{\"id\":1,\"result\":{params}}}\n").as_bytes(), false, |_| {});
        assert_eq!(soon(scene.call("_go")).await.unwrap(), params);
        scene.end().await.ended.connection.unwrap();
    }
    let left = said(&[update(r"\ud800"), update("next")]).await;
    assert_eq!(left.updates, ["next"]);
    assert_eq!(left.log.lines("WARN").len(), 1);
}

#[tokio::test]
async fn a_handler_that_panics_is_an_error_of_its_request_and_disturbs_nobody() {
    let permission = r#"{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[]}"#;
    let left = said(&[request(1, "session/request_permission", permission), update("panic"), update("next")]).await;
    let [response] = &left.responses[..] else { panic!("{:?}", left.responses) };
    assert!(response.starts_with(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"#), "{response}");
    assert_eq!(left.updates, ["next"]);
    let errors = left.log.lines("ERROR");
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors.iter().any(|error| error.contains("as the agent asked")), "{errors:?}");
    assert!(errors.iter().any(|error| error.contains("as the update says")), "{errors:?}");
}

#[tokio::test]
async fn at_the_bound_a_request_is_refused_and_a_cancel_gets_through() {
    let cancel = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}"#;
    let bytes = format!("{}\n{}\n{cancel}\n", request(1, "_wait", "{}"), request(2, "_echo", "{}"));
    let left = said_with(bytes, |options| options.connection.requests_in_flight_max = 1).await;
    let codes: Vec<_> = left.responses.iter().map(|line| parsed(line)["error"]["code"].clone()).collect();
    assert_eq!(codes, [-32005, -32800]);
}
