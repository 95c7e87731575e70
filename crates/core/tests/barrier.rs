//! The barrier, on random walks: whatever happens, in whatever order, each thing keeps its place among the notifications.

use std::collections::{BTreeMap, BTreeSet};

use lastword_core::{Arrival, CallId, Connection, Effect, Limits, Reason, RequestId, Stage, Step};
use proptest::prelude::*;

/// What an observer outside of the machine knows.
#[derive(Default)]
struct Observer {
    /// The notifications whose handlers have not returned, in arrival order.
    unhandled: BTreeSet<Arrival>,
    /// The last message that had arrived before each response whose caller has not resumed.
    responses: BTreeMap<CallId, Arrival>,
    last: Option<Arrival>,
}

impl Observer {
    /// Takes a step of the machine and asks for what its effects promise.
    fn take(&mut self, connection: &mut Connection, step: &Step) {
        let waited = connection.waits_for_peer();
        let own = |call: &CallId| {
            connection
                .calls()
                .any(|(open, by)| open == *call && by.is_some_and(|by| self.unhandled.first() == Some(&by)))
        };
        let own: BTreeSet<CallId> = match step {
            Step::ResponseArrived { call } if own(call) => [*call].into(),
            _ => BTreeSet::new(),
        };
        let effects = connection.apply(step.clone()).expect("only steps that may come are taken");
        match step {
            Step::NotificationArrived => {
                if let Some(Effect::Accept(arrival)) = effects.first() {
                    self.unhandled.insert(*arrival);
                }
            }
            Step::ResponseArrived { call } => {
                self.responses.insert(*call, self.last.unwrap_or(Arrival(0)));
            }
            Step::Returned(arrival, _) => {
                self.unhandled.remove(arrival);
            }
            Step::CallDropped { call } | Step::Resumed { call } | Step::ResumeOver { call } => {
                self.responses.remove(call);
            }
            _ => {}
        }
        let is_open = |arrival: Arrival| self.unhandled.first().is_none_or(|first| arrival < *first);
        let waits = waited || connection.waits_for_peer();
        for effect in &effects {
            match effect {
                Effect::Accept(arrival) => self.last = Some(*arrival),
                Effect::Start(arrival) if self.unhandled.contains(arrival) => {
                    assert_eq!(self.unhandled.first(), Some(arrival), "NotificationsInOrder");
                    let overtakes = self.responses.values().any(|after| after < arrival);
                    assert!(!overtakes, "ResponseBeforeLaterNotifications");
                }
                Effect::Start(request) => {
                    assert!(is_open(*request) || waits, "RequestAfterEarlierNotifications");
                }
                Effect::Resume(call) => {
                    let after = self.responses[call];
                    assert!(is_open(after) || waits || own.contains(call), "ResponseAfterEarlierNotifications");
                    if !connection.is_given(*call) {
                        self.responses.remove(call);
                    }
                }
                _ => {}
            }
        }
        let running = self.unhandled.iter().filter(|arrival| connection.is_running(**arrival)).count();
        assert!(running <= 1, "NotificationsInOrder");
    }
}

proptest! {
    #[test]
    fn requests_and_responses_keep_their_place_among_the_notifications(choices in prop::collection::vec(any::<u16>(), 1..120)) {
        let mut connection = Connection::new(Limits::default());
        let mut observer = Observer::default();
        for (number, choice) in (1..).zip(choices) {
            let mut steps = connection.may_come();
            steps.extend([
                Step::NotificationArrived,
                Step::RequestArrived { id: RequestId::from(number) },
                Step::Called { by: None },
            ]);
            let waiting = connection.calls().map(|(call, _)| call);
            steps.extend(waiting.filter(|call| connection.awaits_response(*call)).map(|call| Step::ResponseArrived { call }));
            let step = steps.swap_remove(usize::from(choice) % steps.len());
            observer.take(&mut connection, &step);
        }
        // What is owed is done: then nothing is left, so that nothing was dropped in silence.
        for _ in 0..10_000 {
            let is_owed = |step: &Step| matches!(step, Step::Started(_) | Step::Returned(..) | Step::Resumed { .. });
            let owed = connection.may_come().into_iter().find(is_owed);
            let waiting = connection.calls().map(|(call, _)| call).find(|call| connection.awaits_response(*call));
            match (owed, waiting) {
                (Some(step), _) => observer.take(&mut connection, &step),
                (None, Some(call)) => observer.take(&mut connection, &Step::ResponseArrived { call }),
                (None, None) => break,
            }
        }
        prop_assert!(connection.is_idle(), "{connection:?}");
    }
}

#[test]
fn a_response_waits_for_the_notification_before_it_and_not_for_the_one_after_it() {
    let mut connection = Connection::new(Limits::default());
    let effects = connection.apply(Step::Called { by: None }).unwrap();
    let [Effect::Call(call)] = effects[..] else { panic!("{effects:?}") };
    connection.apply(Step::NotificationArrived).unwrap();
    assert!(connection.apply(Step::ResponseArrived { call }).unwrap().is_empty());
    connection.apply(Step::NotificationArrived).unwrap();
    connection.apply(Step::Started(Arrival(1))).unwrap();
    let effects = connection.apply(Step::Returned(Arrival(1), lastword_core::Outcome::Succeeded)).unwrap();
    // The later notification waits in turn, until the caller has resumed.
    assert_eq!(effects[..], [Effect::Resume(call), Effect::AwaitCaller(call)]);
    assert!(connection.apply(Step::ResponseArrived { call }).is_err());
    assert_eq!(connection.stage(Arrival(2)), Some(Stage::Held));
    assert_eq!(connection.apply(Step::Resumed { call }).unwrap()[..], [Effect::Start(Arrival(2))]);
    assert!(connection.apply(Step::Resumed { call }).is_err());
    assert!(connection.apply(Step::ResumeOver { call }).is_err());
}

#[test]
fn a_caller_that_gave_up_is_owed_nothing_although_its_response_has_arrived() {
    let mut connection = Connection::new(Limits::default());
    connection.apply(Step::Called { by: None }).unwrap();
    connection.apply(Step::NotificationArrived).unwrap();
    connection.apply(Step::ResponseArrived { call: CallId(1) }).unwrap();
    assert!(connection.apply(Step::CallDropped { call: CallId(1) }).unwrap().is_empty());
    connection.apply(Step::Started(Arrival(1))).unwrap();
    assert!(connection.apply(Step::Returned(Arrival(1), lastword_core::Outcome::Failed)).unwrap().is_empty());
    assert!(connection.is_idle());
}

#[test]
fn a_caller_that_does_not_come_to_its_response_holds_the_next_notification_for_a_bounded_time_only() {
    let mut connection = Connection::new(Limits::default());
    connection.apply(Step::Called { by: None }).unwrap();
    let call = CallId(1);
    assert_eq!(connection.apply(Step::ResponseArrived { call }).unwrap()[..], [Effect::Resume(call)]);
    // As long as nothing waits for the caller, its time does not begin.
    assert!(connection.apply(Step::ResumeOver { call }).is_err());
    let effects = connection.apply(Step::NotificationArrived).unwrap();
    assert_eq!(effects[..], [Effect::Accept(Arrival(1)), Effect::AwaitCaller(call)]);
    // It begins once.
    assert_eq!(connection.apply(Step::NotificationArrived).unwrap()[..], [Effect::Accept(Arrival(2))]);
    assert_eq!(connection.apply(Step::ResumeOver { call }).unwrap()[..], [Effect::Start(Arrival(1))]);
    assert!(connection.apply(Step::Resumed { call }).is_err());
}

#[test]
fn a_full_queue_holds_the_reader_and_closes_only_where_the_handler_that_runs_waits_for_the_peer() {
    let mut limits = Limits::default();
    limits.notifications_queued_max = 1;
    limits.notifications_stuck_max = 2;
    let mut connection = Connection::new(limits);
    assert!(connection.has_room());
    connection.apply(Step::NotificationArrived).unwrap();
    connection.apply(Step::Started(Arrival(1))).unwrap();
    assert!(!connection.has_room());
    assert!(connection.apply(Step::NotificationArrived).is_err());
    connection.apply(Step::Called { by: Some(Arrival(1)) }).unwrap();
    // Only reading on can bring the response.
    assert!(connection.has_room());
    connection.apply(Step::NotificationArrived).unwrap();
    let effects = connection.apply(Step::NotificationArrived).unwrap();
    assert_eq!(effects[..], [Effect::Close(Reason::NotificationsStuck)]);
    assert!(connection.is_closed());
    assert_eq!(connection.notifications_queued(), 2);
    // Nothing more is taken in; what was taken in is still handled.
    assert!(connection.apply(Step::ResponseArrived { call: CallId(1) }).is_err());
    let effects = connection.apply(Step::InputEnded).unwrap();
    assert_eq!(effects[..], [Effect::Disconnect(CallId(1))]);
    let effects = connection.apply(Step::Returned(Arrival(1), lastword_core::Outcome::Failed)).unwrap();
    assert_eq!(effects[..], [Effect::Start(Arrival(2))]);
}
