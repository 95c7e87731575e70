//! A caller and the updates that arrived after its response: the caller resumes first.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lastword::{
    Client, ClientContext, Options, connect,
    schema::v1::{Error, RequestPermissionRequest, RequestPermissionResponse, SessionNotification},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, split},
    sync::Notify,
};

use crate::scene::{Scene, ask, result, soon, update};

/// How often the race is run. Where the promise was not kept, nearly every run showed it.
const ROUNDS: usize = 300;

/// What came first.
#[derive(Clone, Default)]
struct Log {
    lines: Arc<Mutex<Vec<&'static str>>>,
    added: Arc<Notify>,
}

impl Log {
    fn add(&self, line: &'static str) {
        self.lines.lock().unwrap().push(line);
        self.added.notify_one();
    }
}

impl Client for Log {
    async fn session_update(&self, _: SessionNotification, _: ClientContext) {
        self.add("update");
    }

    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        Err(Error::method_not_found())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_caller_resumes_before_the_update_that_came_in_one_write_with_its_response() {
    for round in 0..ROUNDS {
        let log = Log::default();
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (reader, writer) = split(ours);
        let (agent, connection) = connect(log.clone(), reader, writer, Options::default());
        let connection = tokio::spawn(connection);
        let caller = tokio::spawn({
            let log = log.clone();
            async move {
                agent.ext_method(ask("_why")).await.unwrap();
                log.add("caller");
            }
        });
        let (reader, mut writer) = split(theirs);
        let mut lines = BufReader::new(reader).lines();
        let call: serde_json::Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        writer.write_all(format!("{}\n{}\n", result(&call["id"], "9"), update(1)).as_bytes()).await.unwrap();
        while log.lines.lock().unwrap().len() < 2 {
            log.added.notified().await;
        }
        assert_eq!(*log.lines.lock().unwrap(), ["caller", "update"], "round {round}");
        caller.await.unwrap();
        writer.shutdown().await.unwrap();
        connection.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_future_nobody_polls_holds_updates_back_for_a_second_and_no_longer() {
    let (mut scene, mut agent) = Scene::raw();
    let mut asking = Box::pin(scene.agent.ext_method(ask("_why")));
    // It is polled once, which sends the call, and then the task does something else.
    assert!(poll_once(&mut asking).await.is_none());
    let why = agent.call("_why").await;
    let begun = tokio::time::Instant::now();
    agent.send(&[result(&why, "9"), update(1), update(2)]).await;
    scene.handlers.next("update 1").await.answer(Ok(String::new()));
    assert_eq!(begun.elapsed().as_secs(), Options::default().resume_max.as_secs());
    // The second one waits for nobody any more.
    scene.handlers.next("update 2").await.answer(Ok(String::new()));
    assert_eq!(begun.elapsed().as_secs(), Duration::from_secs(1).as_secs());
    assert_eq!(soon(asking).await.unwrap().0.get(), "9");
    agent.end();
    soon(scene.served).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_without_looking_holds_no_update_back() {
    let (mut scene, mut agent) = Scene::raw();
    let mut asking = Box::pin(scene.agent.ext_method(ask("_why")));
    assert!(poll_once(&mut asking).await.is_none());
    let why = agent.call("_why").await;
    let begun = tokio::time::Instant::now();
    agent.send(&[result(&why, "9"), update(1)]).await;
    tokio::task::yield_now().await;
    drop(asking);
    scene.handlers.next("update 1").await.answer(Ok(String::new()));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    agent.end();
    soon(scene.served).await.unwrap().unwrap();
}

/// Polls a future once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
