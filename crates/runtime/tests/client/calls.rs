//! Calls in both directions.

use std::sync::{Arc, Mutex};

use lastword::{
    Agent, CallError, Context, Turn,
    schema::{
        ProtocolVersion,
        v1::{
            AGENT_METHOD_NAMES, AuthenticateRequest, AuthenticateResponse, CancelNotification, CloseSessionRequest,
            CloseSessionResponse, CompleteElicitationNotification, CreateTerminalRequest, DeleteSessionRequest,
            DeleteSessionResponse, Error, ExtNotification, ExtRequest, ExtResponse, InitializeRequest,
            InitializeResponse, KillTerminalRequest, ListSessionsRequest, ListSessionsResponse, LoadSessionRequest,
            LoadSessionResponse, LogoutRequest, LogoutResponse, NewSessionRequest, NewSessionResponse, PromptRequest,
            PromptResponse, RawValue, ReadTextFileRequest, ReleaseTerminalRequest, ResumeSessionRequest,
            ResumeSessionResponse, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
            SetSessionModeRequest, SetSessionModeResponse, StopReason, TerminalOutputRequest,
            WaitForTerminalExitRequest, WriteTextFileRequest,
        },
    },
};
use serde_json::json;

use crate::scene::{Scene, ask, request, result, soon};

/// Implements every method, and records which ones were called.
#[derive(Clone, Default)]
struct Complete(Arc<Mutex<Vec<String>>>);

impl Complete {
    fn called<T>(&self, method: &str, response: T) -> Result<T, Error> {
        self.0.lock().unwrap().push(method.to_owned());
        Ok(response)
    }
}

macro_rules! record {
    ($($name:ident($request:ty) -> $response:ty = $value:expr;)*) => {
        $(async fn $name(&self, _: $request, _: Context) -> Result<$response, Error> {
            self.called(stringify!($name), $value)
        })*
    };
}

impl Agent for Complete {
    record! {
        initialize(InitializeRequest) -> InitializeResponse = InitializeResponse::new(ProtocolVersion::V1);
        authenticate(AuthenticateRequest) -> AuthenticateResponse = AuthenticateResponse::new();
        logout(LogoutRequest) -> LogoutResponse = LogoutResponse::new();
        new_session(NewSessionRequest) -> NewSessionResponse = NewSessionResponse::new("new");
        load_session(LoadSessionRequest) -> LoadSessionResponse = LoadSessionResponse::new();
        list_sessions(ListSessionsRequest) -> ListSessionsResponse = ListSessionsResponse::new(Vec::new());
        delete_session(DeleteSessionRequest) -> DeleteSessionResponse = DeleteSessionResponse::new();
        resume_session(ResumeSessionRequest) -> ResumeSessionResponse = ResumeSessionResponse::new();
        close_session(CloseSessionRequest) -> CloseSessionResponse = CloseSessionResponse::new();
        set_session_mode(SetSessionModeRequest) -> SetSessionModeResponse = SetSessionModeResponse::new();
        set_session_config_option(SetSessionConfigOptionRequest) -> SetSessionConfigOptionResponse
            = SetSessionConfigOptionResponse::new(Vec::new());
        ext_method(ExtRequest) -> ExtResponse = ExtResponse::new(RawValue::TRUE.to_owned().into());
    }

    async fn prompt(&self, _: PromptRequest, _: Turn) -> Result<PromptResponse, Error> {
        self.called("prompt", PromptResponse::new(StopReason::Refusal))
    }

    async fn cancel(&self, _: CancelNotification, _: Context) {
        let _ = self.called("cancel", ());
    }

    async fn ext_notification(&self, _: ExtNotification, _: Context) {
        let _ = self.called("ext_notification", ());
    }
}

#[tokio::test(start_paused = true)]
async fn each_of_the_13_methods_reaches_the_agents_handler_and_its_answer_comes_back() {
    let complete = Complete::default();
    let scene = Scene::with_agent(complete.clone());
    let agent = scene.agent.clone();
    soon(async move {
        assert_eq!(
            agent.initialize(InitializeRequest::new(ProtocolVersion::V1)).await.unwrap().protocol_version,
            ProtocolVersion::V1
        );
        agent.authenticate(AuthenticateRequest::new("method")).await.unwrap();
        assert_eq!(&*agent.new_session(NewSessionRequest::new("/")).await.unwrap().session_id.0, "new");
        agent.load_session(LoadSessionRequest::new("s", "/")).await.unwrap();
        assert!(agent.list_sessions(ListSessionsRequest::new()).await.unwrap().sessions.is_empty());
        agent.resume_session(ResumeSessionRequest::new("s", "/")).await.unwrap();
        agent.set_session_mode(SetSessionModeRequest::new("s", "mode")).await.unwrap();
        agent.set_session_config_option(SetSessionConfigOptionRequest::new("s", "option", "value")).await.unwrap();
        let response = agent.prompt(PromptRequest::new("s", vec![])).await.unwrap();
        assert_eq!(response.stop_reason, StopReason::Refusal);
        agent.cancel(CancelNotification::new("s")).await.unwrap();
        agent.close_session(CloseSessionRequest::new("s")).await.unwrap();
        agent.delete_session(DeleteSessionRequest::new("s")).await.unwrap();
        agent.logout(LogoutRequest::new()).await.unwrap();
        agent.ext_notification(ExtNotification::new("_note", RawValue::NULL.to_owned().into())).await.unwrap();
        assert_eq!(agent.ext_method(ask("_question")).await.unwrap().0.get(), "true");
    })
    .await;
    scene.end().await;
    let called = complete.0.lock().unwrap().join(" ");
    assert_eq!(
        called,
        "initialize authenticate new_session load_session list_sessions resume_session set_session_mode \
         set_session_config_option prompt cancel close_session delete_session logout ext_notification ext_method"
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_client_does_not_implement_is_answered_method_not_found() {
    let (mut scene, mut prompts) = Scene::with_prompts();
    let prompting = scene.prompt("s", "1");
    let turn = prompts.next("1").await;
    let client = turn.context.client();
    let code = |error: CallError| match error {
        CallError::Refused { error, .. } => i32::from(error.code),
        other => panic!("{other}"),
    };
    soon(async {
        assert_eq!(code(client.create_terminal(CreateTerminalRequest::new("s", "ls")).await.unwrap_err()), -32601);
        assert_eq!(code(client.terminal_output(TerminalOutputRequest::new("s", "t")).await.unwrap_err()), -32601);
        let wait = WaitForTerminalExitRequest::new("s", "t");
        assert_eq!(code(client.wait_for_terminal_exit(wait).await.unwrap_err()), -32601);
        assert_eq!(code(client.kill_terminal(KillTerminalRequest::new("s", "t")).await.unwrap_err()), -32601);
        assert_eq!(code(client.release_terminal(ReleaseTerminalRequest::new("s", "t")).await.unwrap_err()), -32601);
        let write = WriteTextFileRequest::new("s", "/file", "text");
        assert_eq!(code(client.write_text_file(write).await.unwrap_err()), -32601);
    })
    .await;
    // What it does implement reaches its handlers, notifications too.
    let reading = tokio::spawn(client.read_text_file(ReadTextFileRequest::new("s", "/file")));
    scene.handlers.next("read /file").await.answer(Ok("text".to_owned()));
    assert_eq!(soon(reading).await.unwrap().unwrap().content, "text");
    soon(client.complete_elicitation(CompleteElicitationNotification::new("e"))).await.unwrap();
    scene.handlers.next("complete e").await.answer(Ok(String::new()));
    soon(client.ext_notification(ExtNotification::new("_note", RawValue::NULL.to_owned().into()))).await.unwrap();
    scene.handlers.next("_note").await.answer(Ok(String::new()));
    let asking = tokio::spawn(client.ext_method(ask("_question")));
    scene.handlers.next("_question").await.answer(Err(Error::new(-32050, "no")));
    assert_eq!(code(soon(asking).await.unwrap().unwrap_err()), -32050);
    turn.answer(Ok(StopReason::EndTurn));
    assert_eq!(soon(prompting).await.unwrap().unwrap(), StopReason::EndTurn);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_method_and_bad_parameters_of_the_agent_are_answered_and_an_agents_method_is_unknown_here() {
    let (scene, mut agent) = Scene::raw();
    agent
        .send(&[request(1, "terminal/explode"), request(2, "session/request_permission"), request(3, "initialize")])
        .await;
    for (id, code) in [(1, -32601), (2, -32602), (3, -32601)] {
        let message = agent.message().await.unwrap();
        assert_eq!((&message["id"], &message["error"]["code"]), (&json!(id), &json!(code)), "{message}");
    }
    agent.end();
    soon(scene.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_agents_error_comes_back_as_it_is_and_names_the_method() {
    let (scene, _prompts) = Scene::with_prompts();
    let error = soon(scene.agent.logout(LogoutRequest::new())).await.unwrap_err();
    let CallError::Refused { method, error } = error else { panic!("{error}") };
    assert_eq!((&*method, i32::from(error.code)), (AGENT_METHOD_NAMES.logout, -32601));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_cancelled_at_the_agent_and_its_late_response_disturbs_nobody() {
    let (scene, mut agent) = Scene::raw();
    let prompting = scene.prompt("s", "1");
    let id = agent.call("session/prompt").await;
    prompting.abort();
    let cancelled = agent.message().await.unwrap();
    assert_eq!((&cancelled["method"], &cancelled["params"]), (&json!("$/cancel_request"), &json!({"requestId": id})));
    let asking = tokio::spawn(scene.agent.ext_method(ask("_question")));
    let question = agent.call("_question").await;
    agent.send(&[result(&id, r#"{"stopReason":"cancelled"}"#), result(&question, "8")]).await;
    assert_eq!(soon(asking).await.unwrap().unwrap().0.get(), "8");
    scene.agent.close();
    assert_eq!(agent.message().await, None);
    agent.end();
    soon(scene.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_is_dropped_ends_its_turn_at_the_agent() {
    let (scene, mut prompts) = Scene::with_prompts();
    let prompting = scene.prompt("s", "1");
    let turn = prompts.next("1").await;
    prompting.abort();
    soon(turn.context.cancellation().cancelled()).await;
    turn.answer(Ok(StopReason::Cancelled));
    scene.end().await;
}
