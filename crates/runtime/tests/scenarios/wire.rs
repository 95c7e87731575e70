//! What stands on the wire: ids, bad lines, limits. The program's tests go through the same rows on a real process.

use lastword::{Options, TOO_MANY_IN_FLIGHT};
use proptest::prelude::*;
use serde_json::json;

use crate::peer::{Peer, cancel, prompt, request, soon};

/// The answer to one line.
async fn answer_to(line: impl AsRef<[u8]>) -> serde_json::Value {
    let mut peer = Peer::start();
    peer.send(line.as_ref()).await;
    peer.send("\n").await;
    peer.message().await
}

#[tokio::test(start_paused = true)]
async fn an_id_comes_back_byte_for_byte() {
    let mut peer = Peer::start();
    for id in ["1", "1.0", "1e0", "-0", "18446744073709551616", "\"a\\u0031\"", "\"\\ud800\"", "null", "\"\""] {
        peer.lines(&[format!(r#"{{"id": {id} ,"method":"_echo","params":[1.50]}}"#)]).await;
        assert_eq!(peer.line().await.unwrap(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":[1.50]}}"#));
    }
}

#[tokio::test(start_paused = true)]
async fn what_passes_through_is_not_changed() {
    let mut peer = Peer::start();
    for params in [r#"{"a":1,"a":2}"#, r#""\ud800""#, "1.0e5", "[ 1 ,2 ]", "9007199254740993", "null"] {
        peer.lines(&[format!(r#"{{"id":1,"method":"_echo","params":{params}}}"#)]).await;
        assert_eq!(peer.line().await.unwrap(), format!(r#"{{"jsonrpc":"2.0","id":1,"result":{params}}}"#));
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_line_is_answered_to_nobody() {
    let deep = format!(r#"{{"id":1,"method":"_echo","params":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let long = format!(r#"{{"id":"{}","method":"_echo"}}"#, "x".repeat(4096));
    let rows: [(&[u8], i64); 12] = [
        (b"hello", -32700),
        (b"{\"id\":1", -32700),
        (b"{\"id\":1,\"id\":2,\"method\":\"_echo\"}", -32700),
        (b"\xff\xfe", -32700),
        (b"[1,", -32700),
        (deep.as_bytes(), -32700),
        (b"[]", -32600),
        (b"5", -32600),
        (b"{}", -32600),
        (b"{\"id\":true,\"method\":\"_echo\"}", -32600),
        (b"{\"id\":{},\"method\":\"_echo\"}", -32600),
        (long.as_bytes(), -32600),
    ];
    for (line, code) in rows {
        let answer = answer_to(line).await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(null), &json!(code)), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_understood_is_answered_under_its_id() {
    for (line, code, named) in [
        (r#"{"id":1,"method":"session/fly"}"#, -32601, "session/fly"),
        (r#"{"id":1,"method":"authenticate","params":{"methodId":"x"}}"#, -32601, "authenticate"),
        (r#"{"id":1,"method":5}"#, -32600, "`method`"),
        (r#"{"id":1}"#, -32600, "`method`"),
        (r#"{"id":1,"method":"session/prompt","params":{"sessionId":5,"prompt":[]}}"#, -32602, "`sessionId`"),
        (r#"{"id":1,"method":"session/prompt","params":{"prompt":[]}}"#, -32602, "`sessionId`"),
        (r#"{"id":1,"method":"session/prompt","params":["s",[]]}"#, -32602, "`params`"),
        (r#"{"id":1,"method":"session/cancel","params":{"sessionId":"\ud800"}}"#, -32602, "`sessionId`"),
        (r#"{"id":1,"method":"session/new"}"#, -32602, "params"),
    ] {
        let answer = answer_to(line).await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(code)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(named), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn notifications_that_nobody_handles_and_blank_lines_are_ignored() {
    let mut peer = Peer::start();
    peer.lines(&[
        r#"{"method":"unknown"}"#.into(),
        r#"{"method":"session/cancel","params":{}}"#.into(),
        r#"{"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#.into(),
        r#"{"method":"$/cancel_request"}"#.into(),
        r#"{"id":99,"result":null}"#.into(),
        r#"{"id":"x","error":{"code":1,"message":""}}"#.into(),
        " \r".into(),
        prompt(1, "s", "at once"),
    ])
    .await;
    assert_eq!(peer.answer(1).await, "end_turn");
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_second_request_with_an_id_is_refused_and_the_first_goes_on() {
    let mut peer = Peer::start();
    peer.lines(&[prompt(1, "s", "1")]).await;
    let turn = peer.prompt("1").await;
    peer.lines(&[prompt(1, "s", "2")]).await;
    assert_eq!(peer.answer(1).await, -32600);
    assert!(!turn.context.cancellation().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn at_the_bound_a_request_is_refused_while_a_cancel_gets_through() {
    let mut options = Options::default();
    options.requests_in_flight_max = 2;
    let mut peer = Peer::with(options);
    peer.lines(&[prompt(1, "a", "1"), prompt(2, "b", "2")]).await;
    let (a, b) = (peer.prompt("1").await, peer.prompt("2").await);
    peer.lines(&[request(3, "_echo"), prompt(4, "a", "4")]).await;
    assert_eq!(peer.answer(3).await, TOO_MANY_IN_FLIGHT);
    assert_eq!(peer.answer(4).await, TOO_MANY_IN_FLIGHT);
    assert!(!a.context.cancellation().is_cancelled());
    peer.lines(&[cancel("a")]).await;
    soon(a.context.cancellation().cancelled()).await;
    assert!(!b.context.cancellation().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_line_over_the_limit_is_skipped() {
    let mut options = Options::default();
    options.line_bytes_max = 200;
    let mut peer = Peer::with(options);
    let line = |length: usize| {
        let (start, end) = (r#"{"id":1,"method":"_echo","params":""#, "\"}");
        format!("{start}{}{end}", "x".repeat(length - start.len() - end.len()))
    };
    for long in [201, 300_000] {
        peer.lines(&[line(long), line(200)]).await;
        assert_eq!(peer.answer(serde_json::Value::Null).await, -32600);
        assert_eq!(peer.message().await["id"], 1);
    }
    assert_eq!(peer.rest().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_last_line_without_a_newline_is_handled_where_it_is_complete() {
    let mut peer = Peer::start();
    peer.send(request(1, "_echo")).await;
    assert_eq!(peer.rest().await, [r#"{"jsonrpc":"2.0","id":1,"result":{}}"#]);
    let mut peer = Peer::start();
    peer.send(r#"{"id":1,"method":"_ec"#).await;
    assert_eq!(peer.rest().await.len(), 0);
}

proptest! {
    #[test]
    fn whatever_stands_on_a_line_the_connection_goes_on(
        lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..20),
        cut in 1usize..40,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut bytes = lines.join(&b'\n');
            bytes.extend_from_slice(b"\n{\"id\":\"last\",\"method\":\"_echo\",\"params\":7}\n");
            let mut peer = Peer::start();
            for piece in bytes.chunks(cut) {
                peer.send(piece).await;
            }
            let rest = peer.rest().await;
            assert_eq!(rest.last().unwrap(), r#"{"jsonrpc":"2.0","id":"last","result":7}"#);
        });
    }
}
