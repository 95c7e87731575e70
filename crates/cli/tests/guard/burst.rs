//! A client that reads slowly.

use std::{pin::pin, time::Duration};

use tokio::time::timeout;

use crate::scene::{END_TURN, Scene, update};

/// How much more than at the start the guard may hold at its peak, in KiB: far less than what the agent says here.
const GROWTH_KIB_MAX: u64 = 20 << 10;

/// How long the client reads nothing. What is checked after it is that something did not happen, which has no event.
const READS_NOTHING: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_burst_of_fifty_thousand_updates_holds_the_agent_up_and_loses_nothing() {
    const UPDATES: u64 = 50_000;
    let mut scene = Scene::untraced().await;
    let turn = scene.prompt(1, "s").await;
    let filler = format!(r#","text":"{}"}}}}"#, "x".repeat(1000));
    let mut lines: Vec<String> = (0..UPDATES).map(|n| update("s", n).replace("}}", &filler)).collect();
    lines.push(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{END_TURN}}}"#, turn.id()));
    let id = scene.id();
    let before = peak_kib(id);
    {
        let Scene { client, agent, .. } = &mut scene;
        let mut says = pin!(agent.says(&lines));
        assert!(timeout(READS_NOTHING, &mut says).await.is_err(), "all of it went to a client that does not read");
        tokio::join!(says, async {
            for n in 0..UPDATES {
                assert_eq!(client.hears_call("session/update").await.params()["n"], n);
            }
            assert_eq!(client.hears().await.id(), "1");
        });
    }
    let growth = peak_kib(id) - before;
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB");
    assert!(scene.end().await.0.success());
}

/// The most that a process has held in memory so far, in KiB, its program included.
fn peak_kib(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}
