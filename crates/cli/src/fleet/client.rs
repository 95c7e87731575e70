//! Calls of tools over HTTP, one connection a call: what a person does now and then, and what the reference agent does.

use std::collections::HashMap;

use axum::http::{HeaderName, HeaderValue};
use rmcp::{
    ServiceExt as _,
    model::{CallToolRequestParams, CallToolResult, ContentBlock, JsonObject},
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use serde_json::Value;

/// A server of tools, and who we are to it.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) headers: HashMap<HeaderName, HeaderValue>,
}

impl Server {
    pub(crate) fn with_token(url: String, token: &str) -> Self {
        // A token is hexadecimal, which every header takes.
        let bearer = HeaderValue::try_from(format!("Bearer {token}"));
        let headers = bearer.into_iter().map(|bearer| (axum::http::header::AUTHORIZATION, bearer)).collect();
        Self { url, headers }
    }

    /// Calls a tool, and gives what it says as data.
    pub(crate) async fn call(&self, tool: &'static str, arguments: JsonObject) -> Result<Value, String> {
        let what = |error: &dyn std::fmt::Display| format!("{tool} at {}: {error}", self.url);
        let config =
            StreamableHttpClientTransportConfig::with_uri(self.url.clone()).custom_headers(self.headers.clone());
        let transport = StreamableHttpClientTransport::with_client(http()?, config);
        let client = ().serve(transport).await.map_err(|error| what(&error))?;
        let called = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await;
        let _ = client.cancel().await;
        let CallToolResult { content, structured_content, is_error, .. } = called.map_err(|error| what(&error))?;
        if is_error == Some(true) {
            let words: Vec<_> = content.iter().filter_map(ContentBlock::as_text).map(|text| &*text.text).collect();
            return Err(words.join("\n"));
        }
        Ok(structured_content.unwrap_or_default())
    }
}

/// A client that goes straight to where it is sent, whatever proxy the environment names. Each request has a connection of its
/// own, so that one to a server that is gone fails before anything is sent, and can be made again.
pub(crate) fn http() -> Result<reqwest::Client, String> {
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build();
    client.map_err(|error| format!("there is no HTTP client: {error}"))
}
