//! Workers that are agents, each a child process.

use std::{
    collections::BTreeMap,
    env, fs,
    net::{SocketAddr, TcpListener as StdListener},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use lastword::{
    delegation::{
        AcpWorkers, Config, Handle, Launch, LeadId, Life, Permissions, QuestionId, Seat, Seen, Service, State,
        TicketId, Tools, Work, WorkerId, WorkerKind, WorkerLife,
    },
    schema::v1::{McpServer, McpServerHttp},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::{agent, trials};

trials! {
    a_question_is_answered_after_its_window_and_the_reply_reaches_the_ticket,
    an_answer_within_the_window_goes_to_the_call_and_not_into_a_prompt,
    a_turn_without_a_reply_completes_the_ticket_with_its_last_message,
    a_reply_after_the_end_of_its_ticket_is_kept_beside_it,
    a_reply_to_nobody_is_in_the_inbox_until_it_is_read,
    a_newer_ticket_that_replaces_ends_the_older_turn_and_then_runs,
    a_worker_that_ignores_its_cancel_is_ended_with_all_it_started_and_one_in_its_place_takes_the_newer_ticket,
    stopping_a_worker_ends_all_that_it_started,
    a_worker_that_dies_fails_its_tickets_with_its_status_and_its_last_lines,
    a_worker_that_dies_after_its_reply_leaves_the_reply_and_one_in_its_place_takes_the_next_ticket,
    noise_on_standard_output_changes_nothing,
    an_error_of_a_turn_fails_its_ticket_and_the_worker_goes_on,
    a_worker_that_never_answers_initialize_is_given_up,
    a_worker_that_refuses_a_session_fails_its_tickets_with_what_it_said,
    a_program_that_is_not_there_fails_its_tickets,
    a_worker_that_says_nothing_for_too_long_is_ended,
    permission_is_denied_or_allowed_as_the_kind_says,
    permission_for_the_tools_of_the_fleet_is_allowed_whatever_the_kind_says,
    permission_is_asked_of_the_lead_who_must_choose_an_option,
    a_restart_starts_the_workers_again_and_keeps_the_queue,
}

const LEAD: LeadId = LeadId(1);

/// Far longer than anything takes on a busy machine: a call that waits so long waits for an event.
const LONG: Duration = Duration::from_secs(60);

/// A time that is over before it matters.
const SHORT: Duration = Duration::from_millis(50);

/// Workers that never do anything.
pub(crate) fn none() -> Arc<dyn Launch> {
    struct Idle;

    impl Launch for Idle {
        fn kinds(&self) -> Vec<String> {
            Vec::new()
        }

        fn launch(&self, seat: Seat) -> Life {
            Box::pin(async move {
                seat.stopped().await;
                "it was stopped".to_owned()
            })
        }
    }

    Arc::new(Idle)
}

/// A service with agents as workers, and the tools that they call.
struct Fleet {
    folder: TempDir,
    service: Service,
    fleet: Handle,
}

/// The tools of all workers: each has an address of its own, by which it is known.
#[derive(Default)]
struct Sockets {
    /// There once the service is open.
    fleet: Mutex<Option<Handle>>,
    gone: Mutex<Vec<WorkerId>>,
}

/// Hands the tools to the library, which owns what it is given.
struct Shared(Arc<Sockets>);

impl Tools for Shared {
    fn servers(&self, worker: WorkerId, takes_http: bool) -> Vec<McpServer> {
        assert!(takes_http, "the agent said so");
        let listener = StdListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address: SocketAddr = listener.local_addr().expect("a port");
        let listener = TcpListener::from_std(listener).expect("a socket");
        let sockets = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let fleet = sockets.fleet.lock().expect("nothing panics").clone().expect("the service is open");
                tokio::spawn(serve(fleet, worker, stream));
            }
        });
        vec![McpServer::Http(McpServerHttp::new("fleet", address.to_string()))]
    }

    fn is_own(&self, title: &str) -> bool {
        title == "my own tool"
    }

    fn gone(&self, worker: WorkerId) {
        self.0.gone.lock().expect("nothing panics").push(worker);
    }
}

/// One call of a worker. Where the worker leaves, the call is dropped.
async fn serve(fleet: Handle, worker: WorkerId, mut stream: TcpStream) {
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    let mut line = String::new();
    reader.read_line(&mut line).await.expect("a line");
    let call: Value = serde_json::from_str(&line).expect("a call");
    let ticket = call["ticket"].as_u64().map(TicketId);
    let done = async {
        if let Some(question) = call["ask"].as_str() {
            let wait = Duration::from_millis(call["ms"].as_u64().expect("a time"));
            match fleet.ask(worker, ticket.expect("a ticket"), question, Vec::new(), wait).await {
                Ok(heard) => json!({"answer": heard.answer}),
                Err(error) => json!({"error": error.to_string()}),
            }
        } else {
            match fleet.reply(worker, ticket, call["reply"].as_str().expect("a reply")).await {
                Ok(placed) => json!(placed),
                Err(error) => json!({"error": error.to_string()}),
            }
        }
    };
    let mut rest = String::new();
    let answer = tokio::select! {
        answer = done => answer,
        _ = reader.read_line(&mut rest) => return,
    };
    // It may be gone meanwhile.
    let _ = writer.write_all(format!("{answer}\n").as_bytes()).await;
}

fn kind(beginning: &[&str]) -> WorkerKind {
    let mut kind = WorkerKind::new(env::current_exe().expect("this program"), "/");
    kind.args = [agent::ARGUMENT].iter().chain(beginning).map(|&arg| arg.to_owned()).collect();
    kind.process.exit_max = SHORT;
    kind.process.term_max = SHORT;
    kind
}

impl Fleet {
    fn open(kind: WorkerKind) -> Self {
        Self::open_in(tempfile::tempdir().expect("a folder"), kind)
    }

    fn open_in(folder: TempDir, kind: WorkerKind) -> Self {
        let sockets = Arc::new(Sockets::default());
        let workers = AcpWorkers::new([("agent".to_owned(), kind)]).tools(Arc::new(Shared(Arc::clone(&sockets))));
        let service =
            Service::open(&folder.path().join("fleet.journal"), Config::new(Arc::new(workers))).expect("it opens");
        let fleet = service.handle();
        *sockets.fleet.lock().expect("nothing panics") = Some(fleet.clone());
        Self { folder, service, fleet }
    }

    async fn spawn(&self) -> WorkerId {
        self.fleet.spawn(LEAD, "agent", "Ada").await.expect("a worker")
    }

    async fn send(&self, worker: WorkerId, text: &str) -> TicketId {
        self.fleet.send(LEAD, Work::new(worker, text)).await.expect("a ticket").ticket
    }

    /// Sends, and waits for the end or a question.
    async fn run(&self, worker: WorkerId, text: &str) -> Seen {
        let ticket = self.send(worker, text).await;
        self.shown(ticket).await
    }

    async fn shown(&self, ticket: TicketId) -> Seen {
        let seen = self.fleet.poll(LEAD, ticket, LONG).await.expect("it is there");
        assert!(!seen.timed_out, "nothing happened: {seen:?}");
        seen
    }

    async fn answer(&self, question: QuestionId, text: &str) -> Seen {
        self.fleet.answer(LEAD, question, text, LONG).await.expect("it may be answered")
    }

    /// How the process of a worker ended, once it has.
    async fn death(&self, worker: WorkerId) -> String {
        let died = async {
            loop {
                let workers = self.fleet.list(LEAD).await.expect("the service lives");
                if let Some(death) = workers.into_iter().find(|seen| seen.worker == worker).and_then(|seen| seen.death)
                {
                    return death;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, died).await.expect("it dies in time")
    }

    async fn close(self) -> TempDir {
        self.service.close().await;
        self.folder
    }
}

/// Runs a test on a runtime of its own.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

fn is_alive(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
    !matches!(state, None | Some("Z" | "X"))
}

async fn number_in(file: &Path) -> String {
    let written = async {
        loop {
            match fs::read_to_string(file) {
                Ok(number) if !number.is_empty() => return number,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(LONG, written).await.expect("it is written in time")
}

fn a_question_is_answered_after_its_window_and_the_reply_reaches_the_ticket() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        let seen = fleet.run(worker, "ask=0:Which_one?").await;
        assert_eq!((seen.state, seen.questions[0].text.as_str()), (State::InputRequired, "Which one?"));
        // The worker has ended its turn by now or will: nothing waits for the answer, which is its next prompt.
        let seen = fleet.answer(seen.questions[0].id, "say=going_on reply=The_first.").await;
        assert_eq!(
            (seen.state, seen.reply.as_deref(), seen.is_last_message),
            (State::Completed, Some("The first."), false)
        );
        fleet.fleet.stop(LEAD, worker).await.unwrap();
        let death = fleet.death(worker).await;
        assert!(death.starts_with("it was stopped: "), "{death}");
        let seen = fleet.shown(seen.ticket).await;
        assert_eq!((seen.state, seen.reply.as_deref()), (State::Completed, Some("The first.")));
        fleet.close().await;
    });
}

fn an_answer_within_the_window_goes_to_the_call_and_not_into_a_prompt() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        let seen = fleet.run(worker, "ask=60000:Which_one?").await;
        let seen = fleet.answer(seen.questions[0].id, "the second").await;
        assert_eq!(
            (seen.state, seen.reply.as_deref(), seen.is_last_message),
            (State::Completed, Some("the second"), true)
        );
        fleet.close().await;
    });
}

fn a_turn_without_a_reply_completes_the_ticket_with_its_last_message() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        let seen = fleet.run(worker, "say=Let_me_see. think say=It_ say=works.").await;
        assert_eq!(
            (seen.state, seen.reply.as_deref(), seen.is_last_message),
            (State::Completed, Some("It works."), true)
        );
        let seen = fleet.run(worker, "think").await;
        assert_eq!((seen.state, seen.reply.as_deref()), (State::Completed, Some("(the turn ended: EndTurn)")));
        fleet.close().await;
    });
}

fn a_reply_after_the_end_of_its_ticket_is_kept_beside_it() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        let first = fleet.run(worker, "say=done").await;
        fleet.run(worker, &format!("reply_to={}:Wait,_there_is_more. reply=second", first.ticket.0)).await;
        let seen = fleet.shown(first.ticket).await;
        assert_eq!((seen.state, seen.reply.as_deref()), (State::Completed, Some("done")));
        assert_eq!(seen.late_replies, ["Wait, there is more."]);
        fleet.close().await;
    });
}

fn a_reply_to_nobody_is_in_the_inbox_until_it_is_read() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        fleet.run(worker, "reply=done letter=By_the_way. ask=0:x").await;
        // The first turn is over when the next one is at work.
        fleet.run(worker, "reply=next").await;
        let letters = fleet.fleet.inbox(LEAD, None).await.unwrap();
        assert_eq!((letters.len(), letters[0].from, letters[0].text.as_str()), (1, worker, "By the way."));
        let folder = fleet.close().await;
        let fleet = Fleet::open_in(folder, kind(&[]));
        assert_eq!(fleet.fleet.inbox(LEAD, None).await.unwrap(), letters);
        assert_eq!(fleet.fleet.inbox(LEAD, Some(letters[0].id)).await.unwrap(), []);
        let folder = fleet.close().await;
        let fleet = Fleet::open_in(folder, kind(&[]));
        assert_eq!(fleet.fleet.inbox(LEAD, None).await.unwrap(), []);
        fleet.close().await;
    });
}

fn a_newer_ticket_that_replaces_ends_the_older_turn_and_then_runs() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        let older = fleet.send(worker, "ask=60000:Am_I_at_it? wait").await;
        assert_eq!(fleet.shown(older).await.state, State::InputRequired);
        let queued = fleet.send(worker, "say=never").await;
        let mut work = Work::new(worker, "reply=newest");
        (work.replace, work.wait) = (true, LONG);
        let seen = fleet.fleet.send(LEAD, work).await.unwrap();
        assert_eq!((seen.state, seen.reply.as_deref()), (State::Completed, Some("newest")));
        for ticket in [older, queued] {
            let seen = fleet.shown(ticket).await;
            assert_eq!((seen.state, seen.reason.as_deref()), (State::Cancelled, Some("a newer ticket took its place")));
        }
        fleet.close().await;
    });
}

fn a_worker_that_ignores_its_cancel_is_ended_with_all_it_started_and_one_in_its_place_takes_the_newer_ticket() {
    run(async {
        let mut kind = kind(&[]);
        kind.cancel_max = SHORT;
        let fleet = Fleet::open(kind);
        let worker = fleet.spawn().await;
        let orphan = fleet.folder.path().join("orphan");
        let ticket = fleet.send(worker, &format!("orphan={} deaf", orphan.display())).await;
        let orphan = number_in(&orphan).await;
        let mut work = Work::new(worker, "reply=newer");
        (work.replace, work.wait) = (true, LONG);
        let seen = fleet.fleet.send(LEAD, work).await.unwrap();
        assert_eq!((seen.state, seen.reply.as_deref()), (State::Completed, Some("newer")));
        assert!(!is_alive(&orphan));
        let seen = fleet.shown(ticket).await;
        assert_eq!((seen.state, seen.reason.as_deref()), (State::Cancelled, Some("a newer ticket took its place")));
        let workers = fleet.fleet.list(LEAD).await.unwrap();
        assert_eq!((workers.len(), workers[0].life, workers[0].death.as_deref()), (1, WorkerLife::Alive, None));
        fleet.close().await;
    });
}

fn stopping_a_worker_ends_all_that_it_started() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        let orphan = fleet.folder.path().join("orphan");
        let ticket = fleet.send(worker, &format!("orphan={} deaf", orphan.display())).await;
        let orphan = number_in(&orphan).await;
        assert!(is_alive(&orphan));
        fleet.fleet.stop(LEAD, worker).await.unwrap();
        let seen = fleet.shown(ticket).await;
        assert_eq!((seen.state, seen.reason.as_deref()), (State::Cancelled, Some("the worker was stopped")));
        fleet.death(worker).await;
        assert!(!is_alive(&orphan));
        fleet.close().await;
    });
}

fn a_worker_that_dies_fails_its_tickets_with_its_status_and_its_last_lines() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        let ticket = fleet.send(worker, "ask=60000:Am_I_at_it? exit=3").await;
        let question = fleet.shown(ticket).await.questions[0].id;
        let queued = fleet.send(worker, "say=never").await;
        fleet.answer(question, "You are.").await;
        for ticket in [ticket, queued] {
            let seen = fleet.shown(ticket).await;
            assert_eq!(seen.state, State::Failed);
            assert_eq!(
                seen.reason.as_deref(),
                Some("the worker is gone: exit status: 3; its last lines on standard error:\n  giving up: 3")
            );
        }
        let error = fleet.fleet.send(LEAD, Work::new(worker, "say=never")).await.unwrap_err();
        assert_eq!(error.to_string(), "the worker was stopped, or its process ended; spawn another one");
        fleet.close().await;
    });
}

fn a_worker_that_dies_after_its_reply_leaves_the_reply_and_one_in_its_place_takes_the_next_ticket() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        let seen = fleet.run(worker, "reply=done exit=3").await;
        assert_eq!((seen.state, seen.reply.as_deref()), (State::Completed, Some("done")));
        let next = fleet.run(worker, "reply=next").await;
        assert_eq!((next.state, next.reply.as_deref()), (State::Completed, Some("next")));
        let seen = fleet.shown(seen.ticket).await;
        assert_eq!((seen.state, seen.reply.as_deref(), seen.reason), (State::Completed, Some("done"), None));
        fleet.close().await;
    });
}

fn noise_on_standard_output_changes_nothing() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        let seen = fleet.run(worker, "noise reply=done").await;
        assert_eq!((seen.state, seen.reply.as_deref()), (State::Completed, Some("done")));
        fleet.close().await;
    });
}

fn an_error_of_a_turn_fails_its_ticket_and_the_worker_goes_on() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        let seen = fleet.run(worker, "fail").await;
        assert_eq!(seen.state, State::Failed);
        let reason = seen.reason.unwrap();
        assert!(reason.contains("the model is gone"), "{reason}");
        assert_eq!(fleet.run(worker, "reply=on").await.reply.as_deref(), Some("on"));
        fleet.close().await;
    });
}

fn a_worker_that_never_answers_initialize_is_given_up() {
    run(async {
        let mut kind = kind(&["mute"]);
        kind.start_max = SHORT;
        let fleet = Fleet::open(kind);
        let worker = fleet.spawn().await;
        let death = fleet.death(worker).await;
        assert!(death.starts_with("it did not answer `initialize` within 50ms; its command must speak ACP"), "{death}");
        fleet.close().await;
    });
}

fn a_worker_that_refuses_a_session_fails_its_tickets_with_what_it_said() {
    run(async {
        let fleet = Fleet::open(kind(&["homeless"]));
        let worker = fleet.spawn().await;
        let death = fleet.death(worker).await;
        assert!(
            death.starts_with("it has no session: the peer answered `session/new` with the error -32000"),
            "{death}"
        );
        fleet.close().await;
    });
}

fn a_program_that_is_not_there_fails_its_tickets() {
    run(async {
        let mut kind = kind(&[]);
        kind.command = PathBuf::from("/nowhere/agent");
        let fleet = Fleet::open(kind);
        let worker = fleet.spawn().await;
        let death = fleet.death(worker).await;
        assert!(death.starts_with("the agent `/nowhere/agent` could not be started: "), "{death}");
        fleet.close().await;
    });
}

fn a_worker_that_says_nothing_for_too_long_is_ended() {
    run(async {
        let mut kind = kind(&[]);
        kind.silence_max = SHORT;
        let fleet = Fleet::open(kind);
        let worker = fleet.spawn().await;
        let seen = fleet.run(worker, "deaf").await;
        assert_eq!(seen.state, State::Failed);
        let reason = seen.reason.unwrap();
        assert!(reason.starts_with("the worker is gone: it said nothing for 50ms: "), "{reason}");
        fleet.close().await;
    });
}

fn permission_is_denied_or_allowed_as_the_kind_says() {
    run(async {
        let said = BTreeMap::from([("selected no", Permissions::Deny), ("selected yes", Permissions::Allow)]);
        for (said, permissions) in said {
            let mut kind = kind(&[]);
            kind.permissions = permissions;
            let fleet = Fleet::open(kind);
            let worker = fleet.spawn().await;
            assert_eq!(fleet.run(worker, "permission").await.reply.as_deref(), Some(said));
            fleet.close().await;
        }
    });
}

fn permission_for_the_tools_of_the_fleet_is_allowed_whatever_the_kind_says() {
    run(async {
        for permissions in [Permissions::Deny, Permissions::Ask] {
            let mut kind = kind(&[]);
            kind.permissions = permissions;
            let fleet = Fleet::open(kind);
            let worker = fleet.spawn().await;
            let seen = fleet.run(worker, "permission=my_own_tool").await;
            assert_eq!((seen.state, seen.reply.as_deref()), (State::Completed, Some("selected yes")), "{seen:?}");
            // A command of that name is a command.
            let seen = fleet.run(worker, "command=my_own_tool").await;
            match permissions {
                Permissions::Deny => assert_eq!(seen.reply.as_deref(), Some("selected no"), "{seen:?}"),
                _ => assert_eq!(seen.state, State::InputRequired, "{seen:?}"),
            }
            fleet.close().await;
        }
    });
}

fn permission_is_asked_of_the_lead_who_must_choose_an_option() {
    run(async {
        let mut kind = kind(&[]);
        (kind.permissions, kind.silence_max) = (Permissions::Ask, Duration::from_secs(1));
        let fleet = Fleet::open(kind);
        let worker = fleet.spawn().await;
        let seen = fleet.run(worker, "permission").await;
        let question = &seen.questions[0];
        // What it shows of the call is in there, where it gives no parameters.
        assert!(question.text.starts_with("The worker asks for permission: delete everything\n\n[{"), "{question:?}");
        assert!(question.text.contains("all of it"), "{question:?}");
        assert_eq!(
            (&question.options[..], question.only_options),
            (&["Do it".to_owned(), "Leave it".to_owned()][..], true)
        );
        let error = fleet.fleet.answer(LEAD, question.id, "Whatever.", SHORT).await.unwrap_err();
        assert_eq!(error.to_string(), "this question takes one of its options as its answer: Do it, Leave it");
        assert_eq!(fleet.answer(question.id, "do it").await.reply.as_deref(), Some("selected yes"));

        // A turn that is cancelled takes its question with it.
        let seen = fleet.run(worker, "permission").await;
        fleet.fleet.cancel(LEAD, seen.ticket).await.unwrap();
        assert_eq!(fleet.run(worker, "reply=on").await.reply.as_deref(), Some("on"));
        fleet.close().await;
    });
}

fn a_restart_starts_the_workers_again_and_keeps_the_queue() {
    run(async {
        let fleet = Fleet::open(kind(&[]));
        let worker = fleet.spawn().await;
        let at = fleet.send(worker, "ask=60000:Am_I_at_it?").await;
        fleet.shown(at).await;
        let (first, second) = (fleet.send(worker, "reply=first").await, fleet.send(worker, "reply=second").await);
        assert_eq!(fleet.fleet.poll(LEAD, second, Duration::ZERO).await.unwrap().position, Some(1));
        let fleet = Fleet::open_in(fleet.close().await, kind(&[]));
        let seen = fleet.shown(at).await;
        assert_eq!(seen.state, State::Failed);
        assert!(seen.reason.unwrap().starts_with("the service ended while the worker was at it"));
        assert_eq!(fleet.shown(first).await.reply.as_deref(), Some("first"));
        assert_eq!(fleet.shown(second).await.reply.as_deref(), Some("second"));
        fleet.close().await;
    });
}
