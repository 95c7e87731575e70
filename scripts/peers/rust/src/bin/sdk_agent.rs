//! A minimal agent on the Rust SDK, for the benchmark: what an author gets who writes as little as possible.
//!
//! It has the fastest transport that the SDK offers, its `ByteStreams` over non-blocking pipes, and every handler answers
//! inline. It keeps no books of prompts and cancels, so it does less than the agent that it is measured against.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{error, io};

use agent_client_protocol::v1::schema::{
    InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
    SetSessionModeRequest, SetSessionModeResponse, StopReason,
};
use agent_client_protocol::{Agent, ByteStreams, JsonRpcRequest, on_receive_request};
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

/// Any params, answered as they came.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "_lastword/echo", response = serde_json::Value)]
struct Echo(serde_json::Value);

#[tokio::main]
async fn main() -> Result<(), Box<dyn error::Error>> {
    let input = pipe::Receiver::from_file(file(io::stdin())?)?;
    let output = pipe::Sender::from_file(file(io::stdout())?)?;
    let sessions = AtomicU64::new(0);
    Agent
        .v1()
        .on_receive_request(async |Echo(params), responder, _| responder.respond(params), on_receive_request!())
        .on_receive_request(
            async |_: SetSessionModeRequest, responder, _| responder.respond(SetSessionModeResponse::new()),
            on_receive_request!(),
        )
        .on_receive_request(
            async |_: PromptRequest, responder, _| responder.respond(PromptResponse::new(StopReason::EndTurn)),
            on_receive_request!(),
        )
        .on_receive_request(
            async move |_: NewSessionRequest, responder, _| {
                let session = format!("session-{}", sessions.fetch_add(1, Ordering::Relaxed));
                responder.respond(NewSessionResponse::new(session))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async |request: InitializeRequest, responder, _| {
                responder.respond(InitializeResponse::new(request.protocol_version))
            },
            on_receive_request!(),
        )
        .connect_to(ByteStreams::new(output.compat_write(), input.compat()))
        .await?;
    Ok(())
}

fn file(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(|fd: OwnedFd| fd.into())
}
