//! The handles by which each side calls the other.
//!
//! What is sent is turned into JSON before a call's future begins, so that the future keeps the bytes and not the value,
//! which may be ten times as large. It keeps a handle of its own, so it may go into a task.

use std::sync::Arc;

use lastword_core::Arrival;
use serde::{Serialize, de::DeserializeOwned};

use crate::{error::CallError, shell::Shell, wire};

/// Typed calls of the methods of the other side.
macro_rules! calls {
    ($handle:ident, $peer:literal, $names:ident: $($name:ident: $wire:ident($request:ty) -> $response:ty;)*) => {
        impl $handle {
            $(
                #[doc = concat!("Calls the method `", stringify!($wire), "` of the schema.")]
                ///
                /// # Errors
                ///
                #[doc = concat!("[`CallError`] where the ", $peer, " refuses, or is gone.")]
                pub fn $name(
                    &self,
                    request: $request,
                ) -> impl Future<Output = Result<$response, CallError>> + use<> {
                    let method = $names.$wire;
                    self.call(method, super::encode(method, &request))
                }
            )*
        }
    };
}

mod agent;
mod client;

pub use agent::AgentHandle;
pub(crate) use agent::Link;
pub use client::ClientHandle;

async fn call<R: DeserializeOwned>(
    shell: &Arc<Shell>,
    by: Option<Arrival>,
    method: &str,
    params: Vec<u8>,
) -> Result<R, CallError> {
    let result = shell.call(by, method, params).await?;
    serde_json::from_str(&result).map_err(|error| CallError::BadResult { method: method.into(), error })
}

fn line(method: &str, params: &impl Serialize) -> Result<Vec<u8>, CallError> {
    let mut line = Vec::new();
    wire::write_call(&mut line, None, method, Some(&encode(method, params)?));
    Ok(line)
}

fn encode(method: &str, params: &impl Serialize) -> Result<Vec<u8>, CallError> {
    wire::encode(params).map_err(|error| CallError::Unwritable { method: method.into(), error })
}
