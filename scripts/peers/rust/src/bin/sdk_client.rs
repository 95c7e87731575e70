//! A minimal client on the Rust SDK, for the benchmark: it opens a session, prompts, counts the updates, and says how many
//! it has handled when the prompt is answered. `sdk_client [--threads]`
//!
//! It has the fastest transport that the SDK offers, its `ByteStreams` over non-blocking pipes, and the handler of an
//! update awaits nothing. With `--threads` it runs on as many threads as there are processors, else on one.

use std::env;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{error, io};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ContentBlock, InitializeRequest, NewSessionRequest, PromptRequest, SessionNotification, SessionUpdate,
};
use agent_client_protocol::{Agent, ByteStreams, Client, JsonRpcNotification, on_receive_notification};
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe;
use tokio::runtime::Builder;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

/// How many updates were handled, and how much text they brought.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcNotification)]
#[notification(method = "_lastword/done")]
struct Done {
    updates: usize,
    bytes: usize,
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let threads = env::args().nth(1).as_deref() == Some("--threads");
    let mut builder = if threads { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().build()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn error::Error>> {
    let input = pipe::Receiver::from_file(file(io::stdin())?)?;
    let output = pipe::Sender::from_file(file(io::stdout())?)?;
    let (updates, bytes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, sum) = (Arc::clone(&updates), Arc::clone(&bytes));
    Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _| {
                if let SessionUpdate::AgentMessageChunk(chunk) = notification.update
                    && let ContentBlock::Text(text) = chunk.content
                {
                    count.fetch_add(1, Ordering::Relaxed);
                    sum.fetch_add(text.text.len(), Ordering::Relaxed);
                }
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_with(
            ByteStreams::new(output.compat_write(), input.compat()),
            async move |agent: ConnectionTo<Agent>| {
                agent.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await?;
                let session = agent.send_request(NewSessionRequest::new("/")).block_task().await?.session_id;
                agent.send_request(PromptRequest::new(session, vec!["go".into()])).block_task().await?;
                let (updates, bytes) = (updates.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
                agent.send_notification(Done { updates, bytes })?;
                // The driver ends the connection once it has read this.
                std::future::pending().await
            },
        )
        .await?;
    Ok(())
}

fn file(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(|fd: OwnedFd| fd.into())
}
