//! What a machine remembers is counted, so that what lingers would show. Serves NothingLingers.

use lastword_core::{Arrival, CallId, Connection, Limits, Outcome, RequestId, SessionId, Step};

#[test]
fn the_size_counts_every_table_and_is_zero_once_all_is_answered() {
    let mut connection = Connection::new(Limits::default());
    let sizes: Vec<usize> = [
        // A request, its session.
        Step::PromptArrived { id: RequestId::from(1), session: SessionId::from("A") },
        Step::Started(Arrival(1)),
        Step::Called { by: Some(Arrival(1)) },
        // Behind the notification wait a request and a response.
        Step::NotificationArrived,
        Step::RequestArrived { id: RequestId::from(2) },
        Step::ResponseArrived { call: CallId(1) },
        Step::Started(Arrival(2)),
        Step::Returned(Arrival(2), Outcome::Succeeded),
        Step::Resumed { call: CallId(1) },
        Step::Returned(Arrival(1), Outcome::Succeeded),
        Step::Started(Arrival(3)),
        Step::Returned(Arrival(3), Outcome::Succeeded),
    ]
    .into_iter()
    .map(|step| {
        connection.apply(step).unwrap();
        connection.size()
    })
    .collect();
    assert_eq!(sizes, [2, 2, 3, 4, 6, 7, 7, 5, 3, 1, 1, 0]);
    assert!(connection.is_idle());
}
