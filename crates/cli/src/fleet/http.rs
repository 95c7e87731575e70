//! HTTP with a bound on all that a client could hold open: how many connections there are, how long the next request of one may
//! take to come, and how long an answer may wait to be read. How long a call may wait for its answer is up to its tool.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

/// How many connections there may be beside one for each worker, which may wait in a call of its own: far more than leads have.
/// Whoever comes then waits until one is free.
const CONNECTIONS_OF_LEADS_MAX: usize = 256;

/// How long a connection may be open without the whole of its next headers: long enough for clients that keep one between two
/// calls, and nothing on this machine takes a part of it.
const HEADERS_MAX: Duration = Duration::from_secs(10);

/// How long the body may take after that.
const BODY_MAX: Duration = Duration::from_secs(10);

/// How long a client may read nothing at all of an answer that is there.
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// How long to wait where the system has no connection to give, as when too many files are open.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// Serves until it is to drain, and then what is in flight.
pub(super) async fn serve(listener: TcpListener, router: Router, workers_max: usize, drain: CancellationToken) {
    let free =
        Arc::new(Semaphore::new(workers_max.saturating_add(CONNECTIONS_OF_LEADS_MAX).min(Semaphore::MAX_PERMITS)));
    let connections = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS_MAX);
    loop {
        let next = async {
            let place = Arc::clone(&free).acquire_owned().await;
            (accept(&listener).await, place)
        };
        let (stream, place) = tokio::select! {
            next = next => next,
            () = drain.cancelled() => break,
        };
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(UNREAD_MAX));
        let service = TowerToHyperService::new(router.clone());
        let connection = connections.watch(http.serve_connection(TokioIo::new(Box::pin(stream)), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(place);
        });
    }
    drop(listener);
    connections.shutdown().await;
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // An answer goes out in several writes, none of which is to wait until the client has seen the one before.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!("a connection stays slow: {error}");
                }
                return stream;
            }
            // Whoever it was has left.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {
            }
            Err(error) => {
                tracing::error!("no connection can be accepted: {error}");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Takes in the whole body before anything is done with it.
pub(super) async fn take_body(State(bytes_max): State<usize>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match timeout(BODY_MAX, to_bytes(body, bytes_max)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(head, Body::from(bytes))).await,
        // One that broke off has nobody who reads this.
        Ok(Err(_)) => {
            let why = format!(
                "the body has more than {bytes_max} bytes; `body_bytes` in fleet.toml says how many it may have\n"
            );
            (StatusCode::PAYLOAD_TOO_LARGE, why).into_response()
        }
        Err(_) => {
            let why = format!("the body did not come within {} s; send the call again\n", BODY_MAX.as_secs());
            (StatusCode::REQUEST_TIMEOUT, why).into_response()
        }
    }
}
