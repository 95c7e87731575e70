//! The daemon: one process that has the journal open, runs the workers, and serves their tools and those of leads.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use lastword::{
    delegation::{self, AcpWorkers, OpenError, Service, WorkerId},
    schema::v1::{EnvVariable, HttpHeader, McpServer, McpServerHttp, McpServerStdio},
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::Mutex,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    Failure,
    bridge::{TOKEN_VARIABLE, URL_VARIABLE},
    config::Config,
    http,
    place::Whereabouts,
    token::{Caller, Tokens},
    tools::{Fleet, Role, Tools, WORKER_TOOLS},
};

/// Where leads find their tools, and workers theirs.
pub(super) const LEAD_PATH: &str = "/mcp";
const WORKER_PATH: &str = "/worker/mcp";

/// What the tools are called in the configuration of an agent.
const SERVER_NAME: &str = "fleet";

/// How long the answers of calls that were in flight may take to be written, once the daemon is to end: they are ready.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Runs until a signal comes or the journal fails.
pub(crate) async fn serve(config: Config) -> Result<(), Failure> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let place = config.place.clone();
    // It is bound before the workers start, which must be told where it is.
    let bound = TcpListener::bind(config.listen).await;
    let listener = bound.map_err(|error| in_use(&config, &error))?;
    let address = listener.local_addr()?;
    let tokens = Arc::new(Tokens::new(place.token().map_err(Failure::other)?));

    let kinds = config.offers.iter().map(|(name, offer)| (name.clone(), offer.kind.clone()));
    let minted = WorkerTools { tokens: Arc::clone(&tokens), address };
    let mut service_config = delegation::Config::new(Arc::new(AcpWorkers::new(kinds).tools(Arc::new(minted))));
    service_config.limits.workers_max = config.workers_max;
    service_config.limits.tickets_queued_max = config.tickets_queued_max;
    service_config.limits.tickets_max = config.tickets_max;
    service_config.text_bytes_max = config.text_bytes_max;
    // So that every worker that lives is counted.
    service_config.shown_max = service_config.shown_max.max(config.workers_max);
    let service = Service::open(place.journal(), service_config).map_err(|error| match error {
        OpenError::InUse { .. } => Failure::InUse(format!("{error}: `lastword fleet stop` stops it")),
        error => Failure::other(error),
    })?;

    let drain = CancellationToken::new();
    let fleet = Arc::new(Fleet {
        handle: service.handle(),
        offers: config.offers,
        wait_max: config.wait_max,
        progress_every: config.progress_every,
        drain: drain.clone(),
        spawning: Mutex::new(()),
    });
    let router = router(&fleet, &tokens, address, config.body_bytes_max);
    let mut served = tokio::spawn(http::serve(listener, router, config.workers_max, drain.clone()));

    let whereabouts = Whereabouts { pid: std::process::id(), address };
    place.say(&whereabouts)?;
    let url = whereabouts.url();
    // Whoever started it may read this line, and may be gone.
    let _ = writeln!(io::stdout(), "the fleet is at {url}");
    tracing::info!("the fleet is at {url}");

    let why = tokio::select! {
        _ = terminated.recv() => Ok(()),
        _ = interrupted.recv() => Ok(()),
        error = service.failed() => Err(Failure::other(error)),
        // It serves until it is told to end.
        _ = &mut served => Err(Failure::other("the web server ended")),
    };
    // Calls that wait are told how things stand, then the workers go, and what was taken in is stored.
    drain.cancel();
    if timeout(DRAIN_MAX, &mut served).await.is_err() {
        served.abort();
    }
    service.close().await;
    place.unsay();
    why
}

/// A port that is taken is most often taken by the very daemon that is wanted.
fn in_use(config: &Config, error: &io::Error) -> Failure {
    let listen = config.listen;
    match config.place.whereabouts() {
        Some(daemon) if error.kind() == io::ErrorKind::AddrInUse && daemon.address == listen && daemon.is_there() => {
            Failure::InUse(format!(
                "{listen} is in use by process {}, which serves the journal {}: `lastword fleet stop` stops it",
                daemon.pid,
                config.place.journal().display()
            ))
        }
        _ => Failure::other(format!("{listen}: {error}; take another port as `listen` in {}", config.file.display())),
    }
}

fn router(fleet: &Arc<Fleet>, tokens: &Arc<Tokens>, address: SocketAddr, body_bytes_max: usize) -> Router {
    let door = |role| {
        let tools = Tools { fleet: Arc::clone(fleet), role };
        // Without sessions: nothing is lost with one, none of them ends a call that waits, and a client that comes back after
        // a restart of the daemon finds everything as it was.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_allowed_hosts([address.to_string(), format!("localhost:{}", address.port())])
            // No page in a browser has any business here.
            .enforce_origin_validation()
            .with_max_request_body_bytes(body_bytes_max);
        let sessions = Arc::new(NeverSessionManager::default());
        let service = StreamableHttpService::new(move || Ok(tools.clone()), sessions, config);
        Router::<()>::new()
            .fallback_service(service)
            .layer(middleware::from_fn_with_state(body_bytes_max, http::take_body))
            // The outermost: it reads nothing of whoever has no token.
            .layer(middleware::from_fn_with_state((Arc::clone(tokens), role), check_token))
    };
    Router::new().nest_service(LEAD_PATH, door(Role::Lead)).nest_service(WORKER_PATH, door(Role::Worker))
}

/// Lets in whoever knows a token for this door, and says who it is.
async fn check_token(State((tokens, role)): State<(Arc<Tokens>, Role)>, mut request: Request, next: Next) -> Response {
    let caller = bearer(request.headers()).and_then(|token| tokens.caller(token));
    let Some(caller) = caller else {
        let why =
            "this fleet wants a token: `lastword fleet token` shows it, for the header `Authorization: Bearer TOKEN`\n";
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], why).into_response();
    };
    match (caller, role) {
        (Caller::Lead, Role::Lead) | (Caller::Worker(_), Role::Worker) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        _ => (StatusCode::FORBIDDEN, "this token is for another door\n").into_response(),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Mints a token for each worker, and says where its tools are.
struct WorkerTools {
    tokens: Arc<Tokens>,
    address: SocketAddr,
}

impl delegation::Tools for WorkerTools {
    fn servers(&self, worker: WorkerId, takes_http: bool) -> Vec<McpServer> {
        let token = match self.tokens.mint(worker) {
            Ok(token) => token,
            Err(error) => {
                tracing::error!(worker = worker.0, "the worker has no tools: {error}");
                return Vec::new();
            }
        };
        let url = format!("http://{}{WORKER_PATH}", self.address);
        if takes_http {
            let authorization = HttpHeader::new("Authorization", format!("Bearer {}", token.as_str()));
            return vec![McpServer::Http(McpServerHttp::new(SERVER_NAME, url).headers(vec![authorization]))];
        }
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => {
                tracing::error!(worker = worker.0, "the worker has no tools: this program is not to be found: {error}");
                return Vec::new();
            }
        };
        let env = vec![EnvVariable::new(URL_VARIABLE, url), EnvVariable::new(TOKEN_VARIABLE, token.as_str())];
        let bridge = McpServerStdio::new(SERVER_NAME, program).args(vec!["fleet".into(), "mcp".into()]).env(env);
        vec![McpServer::Stdio(bridge)]
    }

    fn is_own(&self, title: &str) -> bool {
        names_own_tool(title)
    }

    fn gone(&self, worker: WorkerId) {
        self.tokens.revoke(worker);
    }
}

/// Whether a title is the name of a tool of workers and of its server, in either order, and nothing more. There is no common
/// form: it is `mcp__fleet__fleet_ask` in one agent and `fleet_ask (fleet MCP Server)` in another.
fn names_own_tool(title: &str) -> bool {
    let words = title.split(|char: char| !char.is_ascii_alphanumeric()).map(str::to_ascii_lowercase);
    let names: Vec<_> = words.filter(|word| !["", "mcp", "server", "tool"].contains(&word.as_str())).collect();
    WORKER_TOOLS.iter().any(|tool| {
        let tool: Vec<_> = tool.name.split('_').collect();
        names == [&[SERVER_NAME], &tool[..]].concat() || names == [&tool[..], &[SERVER_NAME]].concat()
    })
}

#[cfg(test)]
mod tests {
    use super::names_own_tool;

    #[test]
    fn the_titles_under_which_agents_ask_for_the_tools_of_the_fleet_are_known_and_no_others() {
        for title in [
            // Gemini CLI and Qwen Code, Claude, opencode, Codex, goose.
            "fleet_ask (fleet MCP Server)",
            "mcp__fleet__fleet_reply",
            "fleet_fleet_ask",
            "Tool: fleet/fleet_reply",
            "fleet: fleet_ask",
        ] {
            assert!(names_own_tool(title), "{title}");
        }
        for title in [
            "",
            "fleet",
            "fleet_ask",
            "mcp__fleet__fleet_stop",
            "fleet_ask (other MCP Server)",
            "fleet_ask (fleet MCP Server); rm -r .",
            "rm fleet_fleet_ask",
            "fleet fleet fleet ask",
        ] {
            assert!(!names_own_tool(title), "{title}");
        }
    }
}
