//! Agents that are child processes: shell scripts that speak just enough. A process is dead when its pipes are closed, so
//! whoever sees the end of the connection has seen the end of every process that could write to it.

use std::{path::Path, process::Command, time::Duration};

use lastword::{AgentProcess, CallError, ProcessOptions, ServeError, schema::v1::ExtResponse};
use tokio::task::JoinHandle;

use crate::scene::{Handlers, Played, ask, soon, update};

/// Short, for an agent that will not exit by itself.
const SHORT: Duration = Duration::from_millis(20);

/// Answers each line with its own process's number.
const ANSWER: &str = r#"n=0; while read -r line; do n=$((n+1)); echo "{\"id\":$n,\"result\":$$}"; done"#;

fn start_with(script: &str, options: ProcessOptions) -> (AgentProcess, Handlers) {
    let (client, handlers) = Played::new();
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    (AgentProcess::spawn(command, client, options).unwrap(), handlers)
}

fn start(script: &str) -> (AgentProcess, Handlers) {
    start_with(script, ProcessOptions::default())
}

fn impatient() -> ProcessOptions {
    let mut options = ProcessOptions::default();
    options.exit_max = SHORT;
    options.term_max = SHORT;
    options
}

fn question(process: &AgentProcess) -> JoinHandle<Result<ExtResponse, CallError>> {
    tokio::spawn(process.agent().ext_method(ask("_question")))
}

/// A process that answered is there; gives its number.
async fn number(process: &AgentProcess) -> u32 {
    soon(question(process)).await.unwrap().unwrap().0.get().parse().unwrap()
}

/// Whether neither the process nor a zombie of it is there.
fn is_reaped(process: u32) -> bool {
    !Path::new(&format!("/proc/{process}")).exists()
}

/// The process is dead; a zombie is its new parent's business.
async fn dead(process: u32) {
    soon(async {
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
            if matches!(state, None | Some("Z" | "X")) {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The process is dead and was reaped, by nobody that could be waited for.
async fn reaped(process: u32) {
    soon(async {
        while !is_reaped(process) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn kill(process: u32) {
    assert!(Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap().success());
}

fn exit_of(result: Result<ExtResponse, CallError>) -> lastword::Exit {
    match result {
        Err(CallError::AgentExited(exit)) => exit,
        other => panic!("{other:?}"),
    }
}

fn signal_of(exit: &lastword::Exit) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&exit.status.unwrap())
}

#[tokio::test]
async fn an_agent_is_started_answers_and_exits_when_it_is_asked_to() {
    let (process, _) = start(ANSWER);
    let id = process.id();
    assert_eq!(number(&process).await, id);
    assert!(!is_reaped(id));
    let ended = soon(process.close()).await;
    assert!(ended.exit.status.unwrap().success(), "{}", ended.exit);
    ended.connection.unwrap();
    assert!(is_reaped(id));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let error =
        AgentProcess::spawn(Command::new("/not/there"), Played::new().0, ProcessOptions::default()).err().unwrap();
    assert!(error.to_string().starts_with("the agent `/not/there` could not be started: No such file"), "{error}");
}

#[tokio::test]
async fn every_waiting_call_learns_how_the_agent_exited_and_what_it_said_last() {
    let (process, _) = start("read -r a; read -r b; echo first words >&2; echo last words >&2; exit 3");
    let asking = [question(&process), question(&process)];
    for asking in asking {
        let exit = exit_of(soon(asking).await.unwrap());
        assert_eq!(
            (exit.status.unwrap().code(), exit.stderr),
            (Some(3), vec!["first words".into(), "last words".into()])
        );
    }
    // So do later ones.
    let error = soon(question(&process)).await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the agent is gone: exit status: 3; its last lines on standard error:\n  first words\n  last words"
    );
    assert!(is_reaped(process.id()));
    assert_eq!(soon(process.exited()).await.status.unwrap().code(), Some(3));
    soon(process.close()).await;
}

#[tokio::test]
async fn an_agent_that_is_killed_while_a_call_waits_is_said_to_be_killed() {
    let (process, _) = start("read -r a; kill -KILL $$");
    let exit = exit_of(soon(question(&process)).await.unwrap());
    assert_eq!((signal_of(&exit), exit.stderr.len()), (Some(9), 0));
    assert_eq!(exit.to_string(), "signal: 9 (SIGKILL), and it wrote nothing on standard error");
}

#[tokio::test]
async fn what_was_said_before_the_death_is_still_handled() {
    let script = format!("echo '{}'; echo '{}'; exit 1", update(1), update(2));
    let (process, mut handlers) = start(&script);
    soon(process.exited()).await;
    handlers.updates(1..=2).await;
    soon(process.close()).await.connection.unwrap();
}

#[tokio::test]
async fn last_words_after_the_end_of_its_input_are_still_handled() {
    let (process, mut handlers) = start(&format!("cat >/dev/null; echo '{}'", update("goodbye")));
    let closing = tokio::spawn(process.close());
    handlers.updates(["goodbye"]).await;
    let ended = soon(closing).await.unwrap();
    ended.connection.unwrap();
    assert!(ended.exit.status.unwrap().success());
}

#[tokio::test]
async fn noise_on_its_output_disturbs_nobody() {
    let script = format!("echo 'Welcome!'; printf '\\377\\n[]\\n'; {}", {
        r#"while read -r line; do case $line in *_question*) echo 'DEBUG {'; echo '{"id":1,"result":8}';; esac; done"#
    });
    let (process, _) = start(&script);
    assert_eq!(soon(question(&process)).await.unwrap().unwrap().0.get(), "8");
    soon(process.close()).await.connection.unwrap();
}

#[tokio::test]
async fn only_the_last_lines_of_standard_error_are_kept_and_only_their_starts() {
    let script = r#"read -r a; i=0; while [ $i -lt 1000 ]; do echo "line $i" >&2; i=$((i+1)); done;
        head -c 100000 /dev/zero | tr '\0' x >&2; exit 1"#;
    let (process, _) = start(script);
    let exit = exit_of(soon(question(&process)).await.unwrap());
    assert_eq!(exit.stderr.len(), 20);
    assert_eq!((&*exit.stderr[0], &*exit.stderr[18]), ("line 981", "line 999"));
    assert_eq!(exit.stderr[19], "x".repeat(500));
}

#[tokio::test]
async fn an_agent_that_does_not_exit_is_terminated() {
    let (process, _) = start_with("exec sleep 600", impatient());
    let ended = soon(process.close()).await;
    assert_eq!(signal_of(&ended.exit), Some(15));
    ended.connection.unwrap();
}

#[tokio::test]
async fn an_agent_that_ignores_that_is_killed_with_its_whole_group() {
    let (process, _) = start_with(&format!("trap '' TERM; sleep 600 & {ANSWER}; wait"), impatient());
    let id = number(&process).await;
    let ended = soon(process.close()).await;
    assert_eq!(signal_of(&ended.exit), Some(9));
    // The other process of the group had the output open as well.
    ended.connection.unwrap();
    assert!(is_reaped(id));
}

#[tokio::test]
async fn a_launcher_that_dies_leaves_no_agent_behind() {
    // A shell gives what it starts in the background no input, unless it is told to.
    let (process, _) = start(&format!("exec 3<&0; sh -c '{ANSWER}' <&3 & wait"));
    let agent = number(&process).await;
    assert_ne!(agent, process.id());
    let asking = question(&process);
    soon(asking).await.unwrap().unwrap();
    kill(process.id());
    let exit = soon(process.exited()).await;
    assert_eq!(signal_of(&exit), Some(9));
    dead(agent).await;
    let handle = process.agent().clone();
    soon(process.close()).await.connection.unwrap();
    exit_of(soon(handle.ext_method(ask("_question"))).await);
}

#[tokio::test]
async fn a_launcher_and_its_agent_exit_when_they_are_asked_to() {
    let (process, _) = start(&format!("exec 3<&0; sh -c '{ANSWER}' <&3 & exec 3<&-; wait $!"));
    let agent = number(&process).await;
    let ended = soon(process.close()).await;
    assert!(ended.exit.status.unwrap().success(), "{}", ended.exit);
    dead(agent).await;
}

#[tokio::test]
async fn dropping_it_kills_the_group_and_disconnects_every_caller() {
    let (process, _) = start(&format!("trap '' TERM; exec 3<&0; sh -c '{ANSWER}; sleep 600' <&3 & wait"));
    let (launcher, agent) = (process.id(), number(&process).await);
    let handle = process.agent().clone();
    drop(process);
    assert!(matches!(soon(handle.ext_method(ask("_question"))).await, Err(CallError::Disconnected)));
    reaped(launcher).await;
    dead(agent).await;
}

#[test]
fn it_is_killed_and_reaped_also_where_its_runtime_is_gone() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (process, id) = first.block_on(async {
        // The end of its input, which comes with the end of the runtime, does not end it.
        let (process, _) = start(&format!("{ANSWER}; exec sleep 600"));
        let id = number(&process).await;
        (process, id)
    });
    drop(first);
    drop(process);
    runtime().block_on(reaped(id));
}

#[tokio::test]
async fn an_agent_that_closes_its_output_and_lives_on_is_ended() {
    let (process, _) = start_with("read -r a; exec >&-; exec sleep 600", impatient());
    exit_of(soon(question(&process)).await.unwrap());
    let ended = soon(process.close()).await;
    assert_eq!(signal_of(&ended.exit), Some(15));
    ended.connection.unwrap();
}

#[tokio::test]
async fn an_output_that_a_process_outside_of_the_group_keeps_open_ends_too() {
    let mut options = impatient();
    options.connection.drain_max = SHORT;
    let script = format!("exec 3<&0; setsid sh -c '{ANSWER}; exec sleep 600' <&3 & wait");
    let (process, _) = start_with(&script, options);
    let outside = number(&process).await;
    kill(process.id());
    assert_eq!(signal_of(&soon(process.exited()).await), Some(9));
    let ended = soon(process.close()).await;
    assert!(matches!(ended.connection, Err(ServeError::OutputKeptOpen)), "{:?}", ended.connection);
    kill(outside);
    dead(outside).await;
}
