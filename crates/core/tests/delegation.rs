//! The tickets of a delegation: the full path on which another service lost a reply, refusals, the store, and restarts.

use lastword_core::delegation::{
    Call, Delegation, Effect, Ending, LeadId, Life, Limits, Marks, Progress, Prompt, QuestionId, Receipt, Record,
    Refused, ReplyId, RequestKey, State, Step, Tables, TicketId, TurnEnd, WatchId, Worker, WorkerId,
};
use proptest::prelude::*;

const LEAD: LeadId = LeadId(1);
const WORKER: WorkerId = WorkerId(1);
const TICKET: TicketId = TicketId(1);
const QUESTION: QuestionId = QuestionId(1);

/// A service whose store is at once done.
struct Service {
    machine: Delegation,
    store: Tables,
}

impl Service {
    fn new(limits: Limits) -> Self {
        let mut service = Self { machine: Delegation::new(limits), store: Tables::default() };
        service.take(Step::Spawned { lead: LEAD });
        service
    }

    /// Takes a step, and lets the store do what it was asked for.
    fn take(&mut self, step: Step) -> Vec<Effect> {
        let mut effects = self.machine.apply(step).expect("only steps that may come are taken");
        loop {
            let entries: Vec<Vec<Record>> = self.machine.unstored().map(<[Record]>::to_vec).collect();
            if entries.is_empty() {
                break effects;
            }
            let count = entries.len();
            entries.into_iter().flatten().for_each(|record| self.store.put(record));
            effects.extend(self.machine.apply(Step::Persisted { entries: count }).unwrap());
            assert_eq!(*self.machine.stored(), self.store);
        }
    }

    fn send(&mut self) -> Vec<Effect> {
        self.take(Step::Sent { lead: LEAD, worker: WORKER, key: None, replace: false, watch: false })
    }

    fn state(&self, ticket: TicketId) -> State {
        self.machine.ticket(ticket).unwrap().state
    }

    fn restart(&mut self) -> Vec<Effect> {
        self.machine = Delegation::restore(*self.machine.limits(), self.store.clone());
        assert_eq!(self.machine.apply(Step::Spawned { lead: LEAD }), Err(Refused::RestartFirst));
        self.take(Step::Restarted)
    }
}

fn begun() -> Service {
    let mut service = Service::new(Limits::default());
    service.send();
    service.take(Step::Delivered { ticket: TICKET });
    service
}

#[test]
fn a_reply_long_after_the_window_of_the_answer_completes_its_ticket_and_a_stop_does_not_undo_that() {
    let mut service = begun();
    service.take(Step::Asked { worker: WORKER, ticket: TICKET });
    assert_eq!(service.state(TICKET), State::InputRequired);
    let effects = service.take(Step::Answered { lead: LEAD, question: QUESTION, watch: true });
    assert!(effects.contains(&Effect::Answer(QUESTION)));
    service.take(Step::WindowClosed { watch: WatchId(1) });
    service.take(Step::Replied { worker: WORKER, ticket: Some(TICKET) });
    assert_eq!(service.state(TICKET), State::Completed);
    service.take(Step::Stopped { lead: LEAD, worker: WORKER });
    let view = service.machine.ticket(TICKET).unwrap();
    assert_eq!((view.state, view.ticket.reply()), (State::Completed, Some(ReplyId(1))));
    assert_eq!(service.machine.inbox(LEAD), None);
}

#[test]
fn nobody_is_told_of_anything_that_is_not_stored() {
    let mut machine = Delegation::new(Limits::default());
    let persists_only = |effects: &[Effect]| {
        effects.iter().all(|effect| matches!(effect, Effect::Accept(_) | Effect::Persist(_) | Effect::Watch(_)))
    };
    assert!(persists_only(&machine.apply(Step::Spawned { lead: LEAD }).unwrap()));
    let sent = Step::Sent { lead: LEAD, worker: WORKER, key: None, replace: false, watch: true };
    assert!(persists_only(&machine.apply(sent).unwrap()));
    assert_eq!(machine.ticket(TICKET), None);
    // One commit stores both.
    let effects = machine.apply(Step::Persisted { entries: 2 }).unwrap();
    assert_eq!(
        effects[..3],
        [
            Effect::Acknowledge(Receipt::Worker(WORKER)),
            Effect::Acknowledge(Receipt::Ticket(TICKET)),
            Effect::Launch(WORKER)
        ]
    );
    assert_eq!(machine.stage(WORKER), Some("beginning"));
    // That the turn begins is stored before the task is given: a crash cannot have it given twice.
    assert_eq!(
        machine.apply(Step::Persisted { entries: 1 }).unwrap()[..],
        [Effect::Deliver { ticket: TICKET, prompt: Prompt::Task }]
    );
    assert_eq!(machine.apply(Step::Persisted { entries: 1 }), Err(Refused::NotWritten));
}

#[test]
fn an_answer_whose_ask_has_given_up_is_the_next_prompt_of_that_turn_and_is_given_once() {
    let mut service = begun();
    service.take(Step::Asked { worker: WORKER, ticket: TICKET });
    service.take(Step::AskWindowClosed { question: QUESTION });
    service.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended });
    assert_eq!(service.state(TICKET), State::InputRequired);
    let effects = service.take(Step::Answered { lead: LEAD, question: QUESTION, watch: false });
    assert!(effects.contains(&Effect::Deliver { ticket: TICKET, prompt: Prompt::Answer(QUESTION) }));
    let answered = Step::Answered { lead: LEAD, question: QUESTION, watch: false };
    assert_eq!(service.machine.apply(answered), Err(Refused::AlreadyAnswered));
    service.take(Step::Delivered { ticket: TICKET });
    let effects = service.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended });
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Deliver { .. } | Effect::Answer(_))));
    assert_eq!(service.machine.ticket(TICKET).unwrap().ticket.ending(), Some(Ending::LastMessage));
}

#[test]
fn an_answer_that_was_handed_to_a_call_that_left_before_it_took_it_is_the_next_prompt() {
    let mut service = begun();
    service.take(Step::Asked { worker: WORKER, ticket: TICKET });
    let taken = Step::AnswerTaken { question: QUESTION };
    assert_eq!(service.machine.apply(taken.clone()), Err(Refused::NotHanded));
    let effects = service.take(Step::Answered { lead: LEAD, question: QUESTION, watch: false });
    assert!(effects.contains(&Effect::Answer(QUESTION)));
    assert_eq!(service.machine.call(QUESTION), Some(Call::Handed));
    service.take(Step::AskWindowClosed { question: QUESTION });
    assert_eq!(service.machine.apply(taken.clone()), Err(Refused::NotHanded));
    let effects = service.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended });
    assert_eq!(effects, [Effect::Deliver { ticket: TICKET, prompt: Prompt::Answer(QUESTION) }]);

    // One that is taken is given, and never comes again.
    let mut service = begun();
    service.take(Step::Asked { worker: WORKER, ticket: TICKET });
    service.take(Step::Answered { lead: LEAD, question: QUESTION, watch: false });
    service.take(taken.clone());
    assert_eq!((service.machine.call(QUESTION), service.machine.apply(taken)), (None, Err(Refused::NotHanded)));
    let effects = service.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended });
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Deliver { .. })));
}

#[test]
fn two_questions_of_one_turn_have_ids_of_their_own_and_each_gets_its_answer() {
    let mut service = begun();
    service.take(Step::Asked { worker: WORKER, ticket: TICKET });
    service.take(Step::Asked { worker: WORKER, ticket: TICKET });
    assert_eq!(service.machine.ticket(TICKET).unwrap().questions, [QuestionId(1), QuestionId(2)]);
    let effects = service.take(Step::Answered { lead: LEAD, question: QuestionId(2), watch: false });
    assert!(effects.contains(&Effect::Answer(QuestionId(2))) && !effects.contains(&Effect::Answer(QuestionId(1))));
    assert_eq!(service.machine.ticket(TICKET).unwrap().questions, [QuestionId(1)]);
    assert_eq!(service.machine.call(QuestionId(1)), Some(Call::Waiting));
}

#[test]
fn a_late_reply_is_kept_beside_its_ticket_and_one_without_a_ticket_in_the_inbox() {
    let mut service = begun();
    let stray = Step::Replied { worker: WORKER, ticket: None };
    assert_eq!(service.machine.apply(stray.clone()), Err(Refused::WhichTicket));
    service.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended });
    service.take(Step::Replied { worker: WORKER, ticket: Some(TICKET) });
    let view = service.machine.ticket(TICKET).unwrap();
    assert_eq!((view.ticket.ending(), &view.ticket.late_replies[..]), (Some(Ending::LastMessage), &[ReplyId(1)][..]));
    service.take(stray.clone());
    service.take(stray);
    assert_eq!(service.machine.inbox(LEAD).unwrap().replies.len(), 2);
    service.take(Step::InboxRead { lead: LEAD, through: ReplyId(2) });
    service.restart();
    let inbox = service.machine.inbox(LEAD).unwrap();
    assert_eq!((inbox.read, inbox.replies.keys().collect::<Vec<_>>()), (Some(ReplyId(2)), vec![&ReplyId(3)]));
    let again = Step::InboxRead { lead: LEAD, through: ReplyId(2) };
    assert_eq!(service.machine.apply(again), Err(Refused::NothingToRead));
}

#[test]
fn a_worker_has_one_turn_at_a_time_and_its_tickets_keep_their_order_through_a_restart() {
    let mut service = begun();
    service.send();
    service.send();
    let positions = |service: &Service| [2, 3].map(|ticket| service.machine.ticket(TicketId(ticket)).unwrap().position);
    assert_eq!(positions(&service), [Some(0), Some(1)]);
    let effects = service.restart();
    // What was given fails, since a part of it may be done; what was not keeps its place and is given to the worker anew.
    assert_eq!(service.machine.ticket(TICKET).unwrap().ticket.ending(), Some(Ending::Restarted));
    assert!(effects.contains(&Effect::Launch(WORKER)));
    assert!(effects.contains(&Effect::Deliver { ticket: TicketId(2), prompt: Prompt::Task }));
    assert_eq!(positions(&service), [None, Some(0)]);
}

#[test]
fn a_newer_ticket_that_replaces_ends_the_older_ones_and_begins_when_the_running_turn_has_ended() {
    let mut service = begun();
    service.send();
    let effects = service.take(Step::Sent { lead: LEAD, worker: WORKER, key: None, replace: true, watch: false });
    assert!(effects.contains(&Effect::CancelTurn(TICKET)));
    assert_eq!(
        [1, 2, 3].map(|ticket| service.state(TicketId(ticket))),
        [State::Cancelled, State::Cancelled, State::Queued]
    );
    let effects = service.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended });
    assert!(effects.contains(&Effect::Deliver { ticket: TicketId(3), prompt: Prompt::Task }));
}

#[test]
fn a_worker_that_must_be_killed_because_it_does_not_let_go_of_a_replaced_ticket_is_started_again_for_the_newer_one() {
    let mut service = begun();
    service.take(Step::Sent { lead: LEAD, worker: WORKER, key: None, replace: true, watch: false });
    assert!(service.machine.outlives_its_process(WORKER));
    let effects = service.take(Step::WorkerDied { worker: WORKER });
    assert_eq!(effects[0], Effect::Launch(WORKER));
    assert!(effects.contains(&Effect::Deliver { ticket: TicketId(2), prompt: Prompt::Task }));
    assert_eq!([1, 2].map(|ticket| service.state(TicketId(ticket))), [State::Cancelled, State::Working]);
    // It dies in the turn of a ticket that is open: that is its own fault.
    service.take(Step::WorkerDied { worker: WORKER });
    assert_eq!(service.state(TicketId(2)), State::Failed);
    assert_eq!(service.machine.apply(Step::WorkerDied { worker: WORKER }), Err(Refused::WorkerGone));
}

#[test]
fn where_tickets_are_full_a_new_one_takes_the_place_of_the_oldest_that_its_lead_has_seen_the_end_of() {
    let mut limits = Limits::default();
    limits.tickets_max = 2;
    let mut service = Service::new(limits);
    let key = Some(RequestKey::from("k"));
    let send = |key| Step::Sent { lead: LEAD, worker: WORKER, key, replace: false, watch: false };
    service.take(send(key.clone()));
    service.take(Step::Delivered { ticket: TICKET });
    service.take(Step::Asked { worker: WORKER, ticket: TICKET });
    let seen = Step::Seen { lead: LEAD, ticket: TICKET };
    assert_eq!(service.machine.apply(seen.clone()), Err(Refused::NothingToSee));
    service.take(Step::Replied { worker: WORKER, ticket: Some(TICKET) });
    service.send();
    // Nobody was shown the reply.
    assert_eq!(service.machine.apply(send(None)), Err(Refused::TooManyTickets));
    service.take(seen.clone());
    assert_eq!(service.machine.apply(seen.clone()), Err(Refused::NothingToSee));
    // Its turn goes on.
    assert_eq!(service.machine.apply(send(None)), Err(Refused::TooManyTickets));
    service.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended });
    // A late reply is to be seen as well.
    service.take(Step::Replied { worker: WORKER, ticket: Some(TICKET) });
    assert_eq!(service.machine.apply(send(None)), Err(Refused::TooManyTickets));
    service.take(seen);
    service.restart();
    let row = service.machine.ticket(TICKET).unwrap().ticket.clone();
    let effects = service.send();
    assert!(effects.iter().any(
        |effect| matches!(effect, Effect::Persist(records) if records.contains(&Record::Forgotten(TICKET, row.clone())))
    ));
    assert_eq!(service.machine.ticket(TICKET), None);
    // No id comes again, neither now nor after a restart; and its key is free.
    service.restart();
    service.take(Step::Seen { lead: LEAD, ticket: TicketId(2) });
    let effects = service.take(send(key));
    assert!(effects.contains(&Effect::Acknowledge(Receipt::Ticket(TicketId(4)))), "{effects:?}");
    service.take(Step::Spawned { lead: LEAD });
    let stray = Step::Replied { worker: WorkerId(2), ticket: None };
    assert!(service.take(stray).contains(&Effect::Acknowledge(Receipt::Reply(ReplyId(3)))));
    assert_eq!(service.machine.stored().marks, Marks { question: 1, reply: 2 });
    let mut again = Tables::default();
    service.machine.stored().records().for_each(|record| again.put(record));
    assert_eq!(again, *service.machine.stored());
}

#[test]
fn where_workers_are_full_a_new_one_takes_the_place_of_the_oldest_that_is_gone_and_has_no_ticket() {
    let mut limits = Limits::default();
    limits.workers_kept_max = 3;
    let mut service = Service::new(limits);
    service.send();
    service.take(Step::Spawned { lead: LEAD });
    service.take(Step::Spawned { lead: LEAD });
    let spawn = Step::Spawned { lead: LEAD };
    assert_eq!(service.machine.apply(spawn.clone()), Err(Refused::TooManyWorkers));
    service.take(Step::WorkerDied { worker: WORKER });
    // It has a ticket, whose lead may still ask who had it.
    assert_eq!(service.machine.apply(spawn.clone()), Err(Refused::TooManyWorkers));
    service.take(Step::WorkerDied { worker: WorkerId(3) });
    service.take(spawn);
    let workers = |service: &Service| service.machine.stored().workers.keys().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(workers(&service), [1, 2, 4]);
    service.restart();
    assert_eq!(workers(&service), [1, 2, 4]);
}

#[test]
fn a_send_that_is_repeated_with_its_key_gives_the_same_ticket_also_after_a_restart() {
    let mut service = Service::new(Limits::default());
    let key = Some(RequestKey::from("k"));
    let send = Step::Sent { lead: LEAD, worker: WORKER, key, replace: false, watch: false };
    service.take(send.clone());
    assert!(service.take(send.clone()).contains(&Effect::Acknowledge(Receipt::Ticket(TICKET))));
    service.take(Step::WorkerDied { worker: WORKER });
    service.restart();
    assert!(service.take(send).contains(&Effect::Acknowledge(Receipt::Ticket(TICKET))));
    assert_eq!(service.machine.tickets(LEAD).count(), 1);
}

#[test]
fn a_worker_that_dies_fails_its_open_tickets_and_no_other() {
    let mut service = begun();
    service.take(Step::Replied { worker: WORKER, ticket: Some(TICKET) });
    service.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended });
    service.send();
    service.send();
    service.take(Step::WorkerDied { worker: WORKER });
    assert_eq!(
        [1, 2, 3].map(|ticket| service.state(TicketId(ticket))),
        [State::Completed, State::Failed, State::Failed]
    );
    let send = Step::Sent { lead: LEAD, worker: WORKER, key: None, replace: false, watch: false };
    assert_eq!(service.machine.apply(send), Err(Refused::WorkerGone));
}

#[test]
fn a_worker_may_die_once_it_was_launched_or_is_to_stop_and_not_before() {
    let mut machine = Delegation::new(Limits::default());
    machine.apply(Step::Spawned { lead: LEAD }).unwrap();
    let died = Step::WorkerDied { worker: WORKER };
    // The store does not have it, so that nobody has started it.
    assert_eq!((machine.worker(WORKER), machine.may_come().contains(&died)), (None, false));
    machine.apply(Step::Stopped { lead: LEAD, worker: WORKER }).unwrap();
    assert!(machine.may_come().contains(&died));
    let effects = machine.apply(Step::Persisted { entries: 2 }).unwrap();
    assert!(!effects.contains(&Effect::Launch(WORKER)), "{effects:?}");

    let mut service = Service::new(Limits::default());
    assert!(service.machine.may_come().contains(&died));
    assert_eq!(service.machine.worker(WORKER), Some(&Worker { lead: LEAD, life: Life::Alive }));
    service.take(died.clone());
    assert!(!service.machine.may_come().contains(&died));
    assert_eq!(service.machine.apply(Step::Restarted), Err(Refused::NotRestored));
}

#[test]
fn a_cancel_ends_what_runs_at_once_and_what_is_being_given_as_soon_as_it_is() {
    let cancel = Step::Cancelled { lead: LEAD, ticket: TICKET };
    let mut service = begun();
    assert!(service.take(cancel.clone()).contains(&Effect::CancelTurn(TICKET)));
    assert_eq!(service.machine.apply(cancel.clone()), Err(Refused::TicketEnded));

    let mut service = Service::new(Limits::default());
    service.send();
    assert!(!service.take(cancel).contains(&Effect::CancelTurn(TICKET)));
    assert_eq!(service.take(Step::Delivered { ticket: TICKET }), [Effect::CancelTurn(TICKET)]);

    let mut service = Service::new(Limits::default());
    service.send();
    assert_eq!(service.take(Step::Delivered { ticket: TICKET }), []);
}

#[test]
fn what_happens_to_a_ticket_that_waits_is_nothing_to_the_turn_of_another_one() {
    let cancels = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::CancelTurn(_)));
    let (second, third) = (TicketId(2), TicketId(3));
    let mut service = Service::new(Limits::default());
    (0..3).for_each(|_| drop(service.send()));
    assert_eq!(service.machine.apply(Step::Delivered { ticket: second }), Err(Refused::NotRunning));
    service.take(Step::Delivered { ticket: TICKET });
    assert!(!cancels(&service.take(Step::Cancelled { lead: LEAD, ticket: second })));
    service.take(Step::Asked { worker: WORKER, ticket: TICKET });
    service.take(Step::TurnEnded { ticket: TICKET, end: TurnEnd::Ended });
    // The turn waits for its answer.
    assert!(!cancels(&service.take(Step::Cancelled { lead: LEAD, ticket: third })));
    assert_eq!((service.machine.turn(WORKER), service.machine.stage(WORKER)), (Some(TICKET), Some("paused")));
    // A reply is no cancel.
    assert!(!cancels(&begun().take(Step::Replied { worker: WORKER, ticket: Some(TICKET) })));
}

#[test]
fn states_have_the_words_of_mcp_tasks_and_the_last_three_are_terminal() {
    let words = [
        (State::Queued, "queued", false),
        (State::Working, "working", false),
        (State::InputRequired, "input_required", false),
        (State::Completed, "completed", true),
        (State::Failed, "failed", true),
        (State::Cancelled, "cancelled", true),
    ];
    for (state, word, is_terminal) in words {
        assert_eq!((state.as_str(), state.is_terminal()), (word, is_terminal));
    }
    assert_eq!(RequestKey::from("build-7").as_str(), "build-7");
}

#[test]
fn a_digest_is_sixteen_digits_that_tell_states_apart() {
    let (one, two) = (Service::new(Limits::default()).machine.digest(), begun().machine.digest());
    assert!(one.len() == 16 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
    assert_eq!(one, Service::new(Limits::default()).machine.digest());
    assert_ne!(one, two);
}

#[test]
fn what_is_somebody_elses_is_refused() {
    let mut service = begun();
    service.take(Step::Asked { worker: WORKER, ticket: TICKET });
    let other = LeadId(2);
    service.take(Step::Spawned { lead: other });
    for step in [
        Step::Sent { lead: other, worker: WORKER, key: None, replace: false, watch: false },
        Step::Answered { lead: other, question: QUESTION, watch: false },
        Step::Polled { lead: other, ticket: TICKET },
        Step::Seen { lead: other, ticket: TICKET },
        Step::Cancelled { lead: other, ticket: TICKET },
        Step::Stopped { lead: other, worker: WORKER },
        Step::Asked { worker: WorkerId(2), ticket: TICKET },
        Step::Replied { worker: WorkerId(2), ticket: Some(TICKET) },
    ] {
        assert_eq!(service.machine.apply(step.clone()), Err(Refused::NotYours), "{step:?}");
    }
}

#[test]
fn each_bound_refuses_and_says_so() {
    let mut limits = Limits::default();
    limits.workers_max = 1;
    limits.tickets_queued_max = 1;
    limits.tickets_max = 2;
    limits.questions_open_max = 1;
    limits.watches_max = 1;
    limits.replies_kept_max = 1;
    let mut service = Service::new(limits);
    assert_eq!(service.machine.apply(Step::Spawned { lead: LEAD }), Err(Refused::TooManyWorkers));
    service.send();
    service.take(Step::Delivered { ticket: TICKET });
    service.take(Step::Polled { lead: LEAD, ticket: TICKET });
    assert_eq!(service.machine.apply(Step::Polled { lead: LEAD, ticket: TICKET }), Err(Refused::TooManyWatches));
    let ask = Step::Asked { worker: WORKER, ticket: TICKET };
    service.take(ask.clone());
    assert_eq!(service.machine.apply(ask), Err(Refused::TooManyQuestions));
    service.send();
    let send = |replace| Step::Sent { lead: LEAD, worker: WORKER, key: None, replace, watch: false };
    assert_eq!(service.machine.apply(send(false)), Err(Refused::TooManyTickets));
    let reply = Step::Replied { worker: WORKER, ticket: Some(TICKET) };
    service.take(reply.clone());
    service.take(reply.clone());
    assert_eq!(service.machine.apply(reply), Err(Refused::TooManyReplies));

    let mut service = Service::new({
        let mut limits = Limits::default();
        limits.tickets_queued_max = 1;
        limits
    });
    service.send();
    service.send();
    assert_eq!(service.machine.apply(send(false)), Err(Refused::QueueFull));
    // One in the place of those that wait has room.
    service.take(send(true));
    assert_eq!(service.machine.queue(WORKER).count(), 1);
}

fn steps() -> impl Strategy<Value = Step> {
    let (worker, ticket, question) = (1u64..3, 1u64..9, 1u64..6);
    let lead = || (1u64..3).prop_map(LeadId);
    prop_oneof![
        lead().prop_map(|lead| Step::Spawned { lead }),
        (lead(), worker.clone(), prop::option::of("[ab]"), any::<bool>(), any::<bool>()).prop_map(
            |(lead, worker, key, replace, watch)| Step::Sent {
                lead,
                worker: WorkerId(worker),
                key: key.map(|key| RequestKey::from(key.as_str())),
                replace,
                watch
            }
        ),
        (worker.clone(), ticket.clone())
            .prop_map(|(worker, ticket)| Step::Asked { worker: WorkerId(worker), ticket: TicketId(ticket) }),
        (lead(), question, any::<bool>()).prop_map(|(lead, question, watch)| Step::Answered {
            lead,
            question: QuestionId(question),
            watch
        }),
        (worker.clone(), prop::option::of(ticket.clone()))
            .prop_map(|(worker, ticket)| Step::Replied { worker: WorkerId(worker), ticket: ticket.map(TicketId) }),
        (lead(), ticket.clone()).prop_map(|(lead, ticket)| Step::Polled { lead, ticket: TicketId(ticket) }),
        (lead(), ticket.clone()).prop_map(|(lead, ticket)| Step::Seen { lead, ticket: TicketId(ticket) }),
        (lead(), ticket.clone()).prop_map(|(lead, ticket)| Step::Cancelled { lead, ticket: TicketId(ticket) }),
        (lead(), worker).prop_map(|(lead, worker)| Step::Stopped { lead, worker: WorkerId(worker) }),
        ticket.clone().prop_map(|ticket| Step::Delivered { ticket: TicketId(ticket) }),
        ticket.prop_map(|ticket| Step::TurnEnded { ticket: TicketId(ticket), end: TurnEnd::Ended }),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_a_refusal_changes_nothing_an_ended_ticket_stays_and_every_owed_step_is_taken(
        choices in prop::collection::vec((steps(), any::<u16>(), 0u8..8), 1..150)
    ) {
        let mut limits = Limits::default();
        limits.tickets_max = 3;
        let mut machine = Delegation::new(limits);
        let mut store = Tables::default();
        let (mut newest, mut shown) = (TicketId(0), Vec::new());
        for (step, choice, kind) in choices {
            let owed = machine.may_come();
            for step in &owed {
                prop_assert!(machine.clone().apply(step.clone()).is_ok(), "{step:?}");
            }
            let step = match kind {
                0 if choice % 7 == 0 => {
                    machine = Delegation::restore(*machine.limits(), store.clone());
                    Step::Restarted
                }
                1..5 if !owed.is_empty() => owed[usize::from(choice) % owed.len()].clone(),
                _ => step,
            };
            let before = machine.clone();
            if let Step::Persisted { entries } = step {
                let records: Vec<Record> = machine.unstored().take(entries).flatten().cloned().collect();
                records.into_iter().for_each(|record| store.put(record));
            }
            match machine.apply(step.clone()) {
                Err(_) => prop_assert_eq!(&machine, &before),
                Ok(_) if step == Step::Restarted => {}
                Ok(effects) => {
                    if let Step::Seen { ticket, .. } = step {
                        shown.push((ticket, before.stored().tickets[&ticket].clone()));
                    }
                    for effect in effects {
                        match effect {
                            // Nothing is forgotten but what its lead was shown as it is.
                            Effect::Persist(records) => for record in records {
                                if let Record::Forgotten(ticket, row) = record {
                                    prop_assert!(shown.contains(&(ticket, row)));
                                }
                            },
                            // An id that anybody was told of is never given again.
                            Effect::Acknowledge(Receipt::Ticket(ticket)) => newest = newest.max(ticket),
                            Effect::Accept(Receipt::Ticket(ticket)) => {
                                let is_known = before.decided().tickets.contains_key(&ticket);
                                prop_assert!(is_known || ticket > newest, "{ticket:?} after {newest:?}");
                            }
                            _ => {}
                        }
                    }
                }
            }
            prop_assert_eq!(machine.stored(), &store);
            prop_assert!(machine.decided().tickets.len() <= 3);
            for (id, ticket) in before.stored().tickets.iter().filter(|(_, ticket)| !ticket.is_open()) {
                let now = machine.stored().tickets.get(id);
                prop_assert!(now.is_none_or(|now| now.progress == ticket.progress));
            }
            // A queued ticket stands in its queue, and nothing else does.
            for (id, ticket) in &machine.decided().tickets {
                let is_queued = machine.queue(ticket.worker).any(|queued| queued == *id);
                prop_assert_eq!(is_queued, ticket.progress == Progress::Queued);
            }
        }
    }
}
