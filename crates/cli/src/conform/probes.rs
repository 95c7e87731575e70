//! The probes of the wire: what a peer does with what no peer should send, and with what is rare.
//!
//! Both sides of the protocol are asked the same, but for the probes that need a prompt. What must happen stands in the table of
//! bad input in DESIGN.md's section 5: a bad line is answered to nobody, which is the id null, and the connection goes on.

use super::scenario::{Claim, Holds, Need, Part, Role, Scenario, Template};

/// The method of a request that no peer has: whatever the answer is, it shows that the peer reads on.
const PING: &str = r#"{"jsonrpc":"2.0","id":$NEW,"method":"_lastword/nothing","params":{}}"#;

/// Far above what a line of a conversation has, and below what any SDK refuses.
const LONG_LINE_BYTES: usize = 12 << 20;

/// Deeper than any parser goes, so that one that recurses without a bound shows.
const NESTING: usize = 100_000;

/// How many updates come in one burst: more than any queue holds.
const BURST: usize = 50_000;

/// How many updates come before what must wait for them.
const UPDATES: usize = 50;

/// The codes for a line that is no message: it cannot be read, or it is no request.
const BAD_LINE: &[i64] = &[-32700, -32600];

/// The probes of one side.
pub(crate) fn scenarios(role: Role) -> Vec<Scenario> {
    let mut probes = vec![
        ids("id-null", "a request with the id null", &["null"]),
        ids("ids-fractional", "requests with the ids 1.5, 1.0 and 1e2", &["1.5", "1.0", "1e2"]),
        ids(
            "ids-huge",
            "requests with the ids 2^53+1, 2^64 and one of 40 digits",
            &["9007199254740993", "18446744073709551616", "1234567890123456789012345678901234567890"],
        ),
        ids("ids-text", r#"requests with the ids "", "1" and "\u00e9\/""#, &[r#""""#, r#""1""#, r#""\u00e9\/""#]),
        bad_line("garbage-line", "a line that is not JSON", b"hello, peer".to_vec()),
        bad_line("not-an-object", "a line that is JSON and no object", b"\"hello\"".to_vec()),
        bad_line("batch", "an array of messages", br#"[{"jsonrpc":"2.0","method":"_lastword/nothing"}]"#.to_vec()),
        bad_line("not-utf-8", "a line that is not UTF-8", b"{\"jsonrpc\":\"2.0\",\"method\":\"_\xff\"}".to_vec()),
        bad_line("deep-nesting", "a line that is nested 100,000 levels deep", {
            ["[".repeat(NESTING), "]".repeat(NESTING)].concat().into_bytes()
        }),
        long_line(),
        unknown_method(),
        quiet("unknown-notification", "a notification that nobody knows", {
            r#"{"jsonrpc":"2.0","method":"_lastword/nothing","params":{}}"#
        }),
        quiet("response-to-nothing", "a response to a request that was never made", {
            r#"{"jsonrpc":"2.0","id":"nobody","result":{}}"#
        }),
    ];
    match role {
        Role::Agent => probes.extend([bad_params(), id_in_use(), last_line()]),
        Role::Client => probes.extend([
            permission(),
            permission_and_its_cancel(),
            burst(),
            updates_in_order(),
            request_after_updates(),
            response_after_updates(),
            response_before_update(),
            cancel_in_a_turn(),
        ]),
    }
    probes
}

fn request(text: impl Into<String>) -> Part {
    Part { template: Template::Text(text.into()), is_request: true }
}

fn other(text: impl Into<String>) -> Part {
    Part { template: Template::Text(text.into()), is_request: false }
}

fn claim(promise: &'static str, what: Holds) -> Claim {
    Claim { promise, what }
}

/// A probe of the wire. Every probe shows whether each request in it is answered once.
fn probe(name: &str, title: &str, parts: Vec<Part>, more: Vec<Claim>) -> Scenario {
    let mut claims = vec![claim("AnsweredOnce", Holds::EachAnsweredOnce)];
    claims.extend(more);
    Scenario {
        name: name.to_owned(),
        title: title.to_owned(),
        sources: vec!["bad and rare input".to_owned()],
        parts,
        claims,
        heavy: false,
        needs: None,
    }
}

fn ids(name: &str, title: &str, ids: &[&str]) -> Scenario {
    probe(name, title, ids.iter().map(|id| request(PING.replace("$NEW", id))).collect(), Vec::new())
}

fn bad_line(name: &str, title: &str, line: Vec<u8>) -> Scenario {
    let bad = Part { template: Template::Bytes(line), is_request: false };
    let told = claim("NoSilentDrop", Holds::Complained { codes: BAD_LINE });
    probe(name, &format!("{title}, then a request"), vec![bad, request(PING)], vec![told])
}

fn quiet(name: &str, title: &str, line: &str) -> Scenario {
    probe(name, &format!("{title}, then a request"), vec![other(line), request(PING)], Vec::new())
}

fn long_line() -> Scenario {
    let long = PING.replace("{}}", &format!(r#"{{"text":"{}"}}}}"#, "x".repeat(LONG_LINE_BYTES)));
    let probe = probe("long-line", "a request of 12 MiB, then another one", vec![request(long), request(PING)], vec![]);
    Scenario { heavy: true, ..probe }
}

fn unknown_method() -> Scenario {
    let refused = claim("NoSilentDrop", Holds::Refused { part: 0, code: -32601 });
    probe("unknown-method", "a request that nobody knows", vec![request(PING)], vec![refused])
}

fn prompt(text: &str) -> Part {
    request(format!(
        r#"{{"jsonrpc":"2.0","id":$NEW,"method":"session/prompt","params":{{"sessionId":$A,"prompt":[{{"type":"text","text":{text}}}]}}}}"#
    ))
}

fn bad_params() -> Scenario {
    let bad = request(r#"{"jsonrpc":"2.0","id":$NEW,"method":"session/prompt","params":{"sessionId":$A,"prompt":7}}"#);
    probe(
        "bad-params",
        "a prompt, and one of the same session with bad parameters",
        vec![prompt("$SHORT"), bad],
        vec![
            claim("NoSilentDrop", Holds::Refused { part: 1, code: -32602 }),
            claim("NewerPromptSurvives", Holds::Lives { prompt: 0, despite: 1 }),
            claim("EveryPromptIsAnswered", Holds::IsAnswered { prompt: 0 }),
        ],
    )
}

fn id_in_use() -> Scenario {
    let again = request(PING.replace("$NEW", "$1"));
    let cancel = other(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":$A}}"#);
    probe(
        "id-in-use",
        "a prompt, a request with the same id, and a cancel",
        vec![prompt("$LONG"), again, cancel],
        vec![claim("NoSilentDrop", Holds::Refused { part: 1, code: -32600 })],
    )
}

fn last_line() -> Scenario {
    let unended = Part { template: Template::Unended(PING.to_owned()), is_request: true };
    let end = Part { template: Template::End, is_request: false };
    probe(
        "last-line-without-newline",
        "a request without a newline, then the end of the input",
        vec![unended, end],
        vec![],
    )
}

// What is asked of a client, while it waits for its prompt.

fn permission_request() -> Part {
    request(concat!(
        r#"{"jsonrpc":"2.0","id":$NEW,"method":"session/request_permission","params":{"sessionId":$A,"#,
        r#""toolCall":{"toolCallId":"call-1","title":"Look away"},"#,
        r#""options":[{"optionId":"allow","name":"Allow","kind":"allow_once"}]}}"#
    ))
}

/// `text` is a value of JSON.
fn update(text: &str) -> Part {
    other(format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":$A,"update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":{text}}}}}}}}}"#
    ))
}

fn updates(count: usize) -> Vec<Part> {
    (1..=count).map(|number| update(&format!("\"{number}\""))).collect()
}

/// The answer to the client's prompt; its id is known when the round begins.
fn answer_of_prompt() -> Part {
    other(r#"{"jsonrpc":"2.0","id":$PROMPT,"result":{"stopReason":"end_turn"}}"#)
}

fn permission() -> Scenario {
    probe("permission", "a request for permission", vec![permission_request()], Vec::new())
}

fn permission_and_its_cancel() -> Scenario {
    let cancel = other(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":$1}}"#);
    probe(
        "permission-abort-1",
        "a request for permission, and the $/cancel_request of it",
        vec![permission_request(), cancel, request(PING)],
        Vec::new(),
    )
}

fn burst() -> Scenario {
    let mut parts = updates(BURST);
    parts.push(permission_request());
    let waits = claim("FullQueueWaits", Holds::IsAnswered { prompt: BURST });
    Scenario { heavy: true, ..probe("burst", "50,000 updates in one write, then a request", parts, vec![waits]) }
}

fn echoed(mut scenario: Scenario, need: Need) -> Scenario {
    scenario.sources = vec!["the barrier".to_owned()];
    scenario.needs = Some(need);
    scenario
}

fn updates_in_order() -> Scenario {
    let order = claim("NotificationsInOrder", Holds::EchoedInOrder { updates: UPDATES });
    let all = claim("EveryNotificationIsHandled", Holds::AllEchoed { updates: UPDATES });
    let mut parts = updates(UPDATES);
    parts.push(request(PING));
    echoed(probe("updates", "50 updates in one write", parts, vec![order, all]), Need::Echo)
}

fn request_after_updates() -> Scenario {
    let mut parts = updates(UPDATES);
    parts.push(permission_request());
    let after = claim("RequestAfterEarlierNotifications", Holds::EchoedBefore { updates: UPDATES, part: UPDATES });
    echoed(
        probe("updates-permission", "50 updates and a request for permission in one write", parts, vec![after]),
        Need::Echo,
    )
}

fn response_after_updates() -> Scenario {
    let mut parts = updates(UPDATES);
    parts.push(answer_of_prompt());
    let after = claim("ResponseAfterEarlierNotifications", Holds::EchoedBeforeReturn { updates: UPDATES });
    let mut probe =
        probe("updates-response", "50 updates and the answer to the prompt in one write", parts, vec![after]);
    probe.claims.remove(0);
    echoed(probe, Need::Echo)
}

fn response_before_update() -> Scenario {
    let before = claim("ResponseBeforeLaterNotifications", Holds::ReturnedBefore { update: "later" });
    let mut probe = probe(
        "response-update",
        "the answer to the prompt and a later update in one write",
        vec![answer_of_prompt(), update("\"later\"")],
        vec![before],
    );
    probe.claims.remove(0);
    echoed(probe, Need::Echo)
}

fn cancel_in_a_turn() -> Scenario {
    let came = claim("AnsweredOnce", Holds::CancelCame);
    let probe = probe(
        "permission-and-cancel",
        "a request for permission, and an update that makes the client cancel its turn",
        vec![permission_request(), update("$CANCEL")],
        vec![came],
    );
    echoed(probe, Need::Cancel)
}
