//! What a client may hold open, and for how long. Each of these takes as long as the daemon lets it: some ten seconds.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::scene::{EVER, Fleet, bearer, begin, call, finish, post, tool, until};

/// Between two bytes of a client that is slow and not silent.
const SLOWLY: Duration = Duration::from_millis(200);

/// Beside one for each worker.
const CONNECTIONS_OF_LEADS_MAX: usize = 256;

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(EVER)).unwrap();
    stream
}

/// All that the daemon says on a connection until it closes it, while nothing is sent.
fn heard_in_silence(mut stream: TcpStream) -> String {
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("it is still open: {error}"),
        _ => String::from_utf8(heard).unwrap(),
    }
}

/// The same, while a byte is sent again and again.
fn heard_while_slow(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(SLOWLY)).unwrap();
    let began = Instant::now();
    let mut heard = Vec::new();
    loop {
        assert!(began.elapsed() < EVER, "it is still open");
        let mut some = [0; 1024];
        match stream.read(&mut some) {
            Ok(0) => break,
            Ok(bytes) => heard.extend_from_slice(&some[..bytes]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                // What was closed meanwhile is heard of in the next round.
                let _ = stream.write_all(b"x");
            }
            Err(_) => break,
        }
    }
    String::from_utf8(heard).unwrap()
}

#[test]
fn a_client_whose_headers_come_slowly_or_never_is_not_waited_for() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let said = ["", "POST /mcp HTTP/1.1\r\nHost: ", "POST /mcp HTTP/1.1\r\nX-Slow: "].map(|beginning| {
        let mut stream = connect(&daemon.address);
        stream.write_all(beginning.as_bytes()).unwrap();
        stream
    });
    let [silent, half, slow] = said;
    std::thread::scope(|scope| {
        let heard = [
            scope.spawn(|| heard_in_silence(silent)),
            scope.spawn(|| heard_in_silence(half)),
            scope.spawn(|| heard_while_slow(slow)),
        ];
        for heard in heard {
            let heard = heard.join().unwrap();
            assert!(!heard.contains(" 200 "), "{heard}");
        }
    });
    assert!(daemon.ends_on("-TERM").success());
}

#[test]
fn a_client_whose_body_comes_slowly_or_never_is_told_and_not_waited_for() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let token = bearer(&fleet.token());
    let [half, slow] = [(); 2].map(|()| {
        let mut stream = connect(&daemon.address);
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             Content-Length: 1000\r\n{token}\r\n{{",
            daemon.address
        )
        .unwrap();
        stream
    });
    std::thread::scope(|scope| {
        for heard in [scope.spawn(|| heard_in_silence(half)), scope.spawn(|| heard_while_slow(slow))] {
            let heard = heard.join().unwrap();
            assert!(heard.starts_with("HTTP/1.1 408 ") && heard.contains("the body did not come within"), "{heard}");
        }
    });
    assert!(daemon.ends_on("-TERM").success());
}

#[test]
fn whoever_comes_when_all_connections_are_taken_is_served_once_one_is_free() {
    let fleet = Fleet::new("workers = 2");
    let daemon = fleet.serve();
    let token = bearer(&fleet.token());
    let idle: Vec<_> = (0..2 + CONNECTIONS_OF_LEADS_MAX).map(|_| connect(&daemon.address)).collect();
    let list = tool("fleet_list", &json!({})).to_string();
    assert_eq!(post(&daemon.address, "/mcp", &token, &list).status, 200);
    let closed = idle.iter().filter(|stream| {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.peek(&mut [0]), Ok(0))
    });
    assert!(closed.count() > 0, "it was served while all the others were open");
    assert!(daemon.ends_on("-TERM").success());
}

/// In the kernel's table: whether the daemon's end of a connection is open.
fn is_open(daemon: &str, client: SocketAddr) -> bool {
    let daemon: SocketAddr = daemon.parse().unwrap();
    let ends = [daemon, client].map(|end| format!(":{:04X}", end.port()));
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().any(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        // 01 is established.
        columns[1].ends_with(&ends[0]) && columns[2].ends_with(&ends[1]) && columns[3] == "01"
    })
}

#[test]
fn a_client_that_does_not_read_its_answer_is_not_waited_for() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let token = fleet.token();
    let worker = call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "scripted"}))["worker"].clone();
    // More than the system keeps for a client that does not read.
    for _ in 0..12 {
        let work = json!({"worker": worker, "content": format!("reply={}", "x".repeat(1_000_000)), "wait": 25});
        let sent = begin(&daemon.address, "/mcp", &bearer(&token), &tool("fleet_send", &work).to_string());
        assert_eq!(finish(sent).result()["structuredContent"]["state"], "completed");
    }
    let unread = begin(&daemon.address, "/mcp", &bearer(&token), &tool("fleet_poll", &json!({})).to_string());
    let client = unread.local_addr().unwrap();
    until(|| unread.peek(&mut [0]).unwrap() > 0);
    assert!(is_open(&daemon.address, client));
    until(|| !is_open(&daemon.address, client));
    // Nobody else noticed.
    let read = begin(&daemon.address, "/mcp", &bearer(&token), &tool("fleet_poll", &json!({})).to_string());
    assert_eq!(finish(read).result()["structuredContent"]["tickets"].as_array().map(Vec::len), Some(12));
    assert!(daemon.ends_on("-TERM").success());
}
