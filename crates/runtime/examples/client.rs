//! A client on standard input and output that says what its handlers do, as `lastword conform --client --echoes --cancels`
//! expects it. It prompts again whenever its prompt was answered, until the agent is gone.

use lastword::{
    AgentHandle, CallError, Client, ClientContext, Options, connect,
    schema::{ProtocolVersion, v1::*},
};
use serde_json::{json, value::to_raw_value};

struct Echoing;

impl Client for Echoing {
    async fn session_update(&self, notification: SessionNotification, context: ClientContext) {
        let SessionNotification { session_id, update, .. } = notification;
        let SessionUpdate::AgentMessageChunk(ContentChunk { content: ContentBlock::Text(text), .. }) = update else {
            return;
        };
        let told = async {
            echo(context.agent(), "handling", &text.text).await?;
            if text.text == "cancel" {
                context.agent().cancel(CancelNotification::new(session_id)).await?;
            }
            echo(context.agent(), "handled", &text.text).await
        };
        // An agent that is gone needs no echo.
        let _ = told.await;
    }

    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let outcome = request.options.first().map_or(RequestPermissionOutcome::Cancelled, |option| {
            RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id.clone()))
        });
        Ok(RequestPermissionResponse::new(outcome))
    }
}

async fn echo(agent: &AgentHandle, what: &str, text: &str) -> Result<(), CallError> {
    let params = to_raw_value(&json!({ what: text })).expect("an object of text is written as JSON");
    agent.ext_notification(ExtNotification::new("_lastword/echo", params.into())).await
}

async fn prompt_for_ever(agent: &AgentHandle) -> Result<(), CallError> {
    agent.initialize(InitializeRequest::new(ProtocolVersion::V1)).await?;
    let session = agent.new_session(NewSessionRequest::new("/")).await?.session_id;
    loop {
        agent.prompt(PromptRequest::new(session.clone(), vec!["go".into()])).await?;
        echo(agent, "returned", "").await?;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (agent, connection) = connect(Echoing, tokio::io::stdin(), tokio::io::stdout(), Options::default());
    let connection = tokio::spawn(connection);
    match prompt_for_ever(&agent).await {
        Err(error @ CallError::Refused { .. }) => Err(error.into()),
        // The agent is gone, as it may be at any time.
        _ => Ok(connection.await??),
    }
}
