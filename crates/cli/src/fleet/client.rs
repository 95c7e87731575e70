//! Calls of tools over HTTP, one connection a call: what a person does now and then, and what the reference agent does.

use std::collections::HashMap;

use axum::http::{HeaderName, HeaderValue};
use rmcp::{
    ServiceExt as _,
    model::{CallToolRequestParams, CallToolResult, ContentBlock, JsonObject},
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};

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

    /// Calls a tool, and gives what it says in words and as data.
    pub(crate) async fn call(&self, tool: &'static str, arguments: JsonObject) -> Result<Said, String> {
        let what = |error: &dyn std::fmt::Display| format!("{tool} at {}: {error}", self.url);
        let config =
            StreamableHttpClientTransportConfig::with_uri(self.url.clone()).custom_headers(self.headers.clone());
        let transport = StreamableHttpClientTransport::with_client(http()?, config);
        let client = ().serve(transport).await.map_err(|error| what(&error))?;
        let called = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await;
        let _ = client.cancel().await;
        let CallToolResult { content, structured_content, is_error, .. } = called.map_err(|error| what(&error))?;
        let words = content.iter().filter_map(ContentBlock::as_text).map(|text| &*text.text).collect::<Vec<_>>();
        let words = words.join("\n");
        if is_error == Some(true) {
            return Err(words);
        }
        Ok(Said { data: structured_content.unwrap_or_default() })
    }
}

/// What a tool said.
pub(crate) struct Said {
    pub(crate) data: serde_json::Value,
}

/// A client that goes straight to where it is sent, whatever proxy the environment names.
pub(crate) fn http() -> Result<reqwest::Client, String> {
    reqwest::Client::builder().no_proxy().build().map_err(|error| format!("there is no HTTP client: {error}"))
}
