//! Many messages at once, on several threads: every request is answered exactly once, in whatever order things happen.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::peer::{Peer, cancel, cancel_as_request, cancel_request, notification, prompt, request};

#[derive(Debug, Clone)]
enum Message {
    Prompt(bool),
    Cancel(bool),
    CancelAsRequest(bool),
    CancelRequest(u64),
    Echo,
    Notification,
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        4 => any::<bool>().prop_map(Message::Prompt),
        1 => any::<bool>().prop_map(Message::Cancel),
        1 => any::<bool>().prop_map(Message::CancelAsRequest),
        1 => (0..60_u64).prop_map(Message::CancelRequest),
        1 => Just(Message::Echo),
        1 => Just(Message::Notification),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_request_is_answered_exactly_once(messages in proptest::collection::vec(message(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let answers = runtime.block_on(async {
            let mut peer = Peer::start();
            let session = |first: &bool| if *first { "a" } else { "b" };
            let lines: Vec<String> = (0..).zip(&messages).map(|(id, message)| match message {
                Message::Prompt(first) => prompt(id, session(first), "at once"),
                Message::Cancel(first) => cancel(session(first)),
                Message::CancelAsRequest(first) => cancel_as_request(id, session(first)),
                Message::CancelRequest(id) => cancel_request(*id),
                Message::Echo => request(id, "_echo"),
                Message::Notification => notification("_note"),
            }).collect();
            peer.lines(&lines).await;
            peer.answer_methods();
            peer.rest().await
        });
        let mut counts = BTreeMap::new();
        for answer in answers {
            let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
            *counts.entry(answer["id"].as_u64().unwrap()).or_insert(0) += 1;
        }
        let asked = (0..).zip(&messages).filter(|(_, message)| {
            matches!(message, Message::Prompt(_) | Message::CancelAsRequest(_) | Message::Echo)
        });
        prop_assert_eq!(counts, asked.map(|(id, _)| (id, 1)).collect::<BTreeMap<u64, i32>>());
    }
}
