//! Plays the scenarios in which agents of other teams fail, directly and through `lastword guard`:
//! guard_peers LASTWORD [--rounds N] [--json] -- NAME COMMAND... [-- NAME COMMAND...]...
//!
//! All lines of a round are written at once, in a session of its own. An agent must know the words of `lastword agent`: a
//! prompt `wait=MS` ends when it is cancelled, and not before its time otherwise. A round is broken where a prompt that must
//! end does not say `cancelled`, or one that must live does. Prints a table in Markdown: broken rounds, before and after.
//!
//! Exit status: 0 nothing was broken through the guard, 1 something was, 2 the usage is wrong or an agent did not answer.

use std::{collections::BTreeMap, env, error::Error, process::ExitCode, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// Rounds that are played at the same time, each in a session of its own.
const ROUNDS_AT_ONCE: usize = 50;

/// How long a prompt takes that must live: some times as long as a cancel takes that hits it by mistake.
const LIVES_MS: u64 = 300;

/// How long a prompt takes that must end, where it does not.
const ENDS_MS: u64 = 2000;

/// Far longer than any answer takes.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);

/// What the client says. A prompt is followed by its session, of two.
#[derive(Clone, Copy)]
enum Said {
    Ends(usize),
    Lives(usize),
    Cancel,
    CancelAsRequest,
    /// `$/cancel_request` of the first line.
    CancelRequest,
}

use Said::{Cancel, CancelAsRequest, CancelRequest, Ends, Lives};

const SCENARIOS: [(&str, &[Said]); 10] = [
    ("prompt 1, prompt 2: 1 ends, 2 lives", &[Ends(0), Lives(0)]),
    ("prompt, cancel notification: it ends", &[Ends(0), Cancel]),
    ("prompt, cancel as a request: it ends", &[Ends(0), CancelAsRequest]),
    ("cancel notification, prompt: the prompt lives", &[Cancel, Lives(0)]),
    ("cancel request, prompt: the prompt lives", &[CancelAsRequest, Lives(0)]),
    ("prompt 1, cancel, prompt 2: 1 ends, 2 lives", &[Ends(0), Cancel, Lives(0)]),
    ("prompt 1, prompt 2, cancel: both end", &[Ends(0), Ends(0), Cancel]),
    ("prompt, `$/cancel_request`: it ends", &[Ends(0), CancelRequest]),
    ("prompts of A and B, cancel A: A ends, B lives", &[Ends(0), Lives(1), Cancel]),
    ("two prompts of A and of B: the newer ones live", &[Ends(0), Ends(1), Lives(0), Lives(1)]),
];

type Failure = Box<dyn Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("guard_peers: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run() -> Result<bool, Failure> {
    let words: Vec<String> = env::args().skip(1).collect();
    let mut parts = words.split(|word| word == "--");
    let (mut lastword, mut rounds, mut as_json) = (None, 300, false);
    let mut options = parts.next().unwrap_or_default().iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--rounds" => rounds = options.next().ok_or("--rounds needs a number")?.parse()?,
            "--json" => as_json = true,
            program => lastword = Some(program),
        }
    }
    let lastword = lastword.ok_or("usage: guard_peers LASTWORD [--rounds N] [--json] -- NAME COMMAND...")?;
    let mut broken: Vec<(&str, [Vec<usize>; 2])> = Vec::new();
    for part in parts {
        let [name, command @ ..] = part else { return Err("an agent needs a name and a command".into()) };
        let mut both = [Vec::new(), Vec::new()];
        for (through_guard, counts) in both.iter_mut().enumerate() {
            let guard = [lastword, "guard", "--"].map(str::to_owned);
            let before: &[String] = if through_guard == 1 { &guard } else { &[] };
            for (scenario, said) in SCENARIOS {
                let count = play(&[before, command].concat(), said, rounds).await;
                counts.push(count.map_err(|error| format!("{name}, {scenario}: {error}"))?);
            }
        }
        broken.push((name, both));
    }
    if broken.is_empty() {
        return Err("no agent was named, so nothing was played".into());
    }
    if as_json {
        let agents: BTreeMap<_, _> = broken
            .iter()
            .map(|(name, [direct, guarded])| (name, json!({"direct": direct, "guarded": guarded})))
            .collect();
        println!("{}", json!({"rounds": rounds, "scenarios": SCENARIOS.map(|(name, _)| name), "broken": agents}));
    } else {
        println!("{}", as_table(&broken));
    }
    Ok(broken.iter().all(|(_, [_, guarded])| guarded.iter().all(|count| *count == 0)))
}

fn as_table(broken: &[(&str, [Vec<usize>; 2])]) -> String {
    let mut lines = vec![String::from("| scenario and what must happen |"), String::from("| --- |")];
    for (name, _) in broken {
        lines[0] += &format!(" {name} | behind the guard |");
        lines[1] += " --: | --: |";
    }
    for (at, (scenario, _)) in SCENARIOS.iter().enumerate() {
        let counts = broken.iter().map(|(_, [direct, guarded])| format!(" {} | {} |", direct[at], guarded[at]));
        lines.push(format!("| {scenario} |") + &counts.collect::<String>());
    }
    lines.join("\n")
}

/// Plays all rounds of a scenario on one agent, and gives how many were broken.
async fn play(command: &[String], said: &[Said], rounds: usize) -> Result<usize, Failure> {
    let mut agent = Agent::start(command)?;
    agent.call("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}})).await?;
    let mut broken = 0;
    let mut left = rounds;
    while left > 0 {
        let at_once = left.min(ROUNDS_AT_ONCE);
        left -= at_once;
        let mut expected = BTreeMap::new();
        let mut all = Vec::new();
        for round in 0..at_once {
            let mut sessions = Vec::new();
            for _ in 0..2 {
                let opened = agent.call("session/new", &json!({"cwd": "/", "mcpServers": []})).await?;
                sessions.push(opened["sessionId"].as_str().ok_or("session/new gave no sessionId")?.to_owned());
            }
            all.push((round, sessions));
        }
        for (round, sessions) in &all {
            let lines = agent.lines(said, sessions, |id, ends| {
                expected.insert(id, (*round, ends));
            });
            agent.say(&lines).await?;
        }
        let mut kept = vec![true; at_once];
        while !expected.is_empty() {
            let answer = agent.hear().await?;
            let Some((round, ends)) = answer["id"].as_u64().and_then(|id| expected.remove(&id)) else { continue };
            kept[round] &= (answer["result"]["stopReason"] == "cancelled") == ends && answer["error"].is_null();
        }
        broken += kept.iter().filter(|kept| !**kept).count();
    }
    Ok(broken)
}

struct Agent {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    last: u64,
    /// Killed when it is dropped.
    _child: Child,
}

impl Agent {
    fn start(command: &[String]) -> Result<Self, Failure> {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the pipes are gone".into());
        };
        Ok(Self { input, output: BufReader::new(output).lines(), last: 0, _child: child })
    }

    /// The lines of a round. `prompted` is told the id of each prompt, and whether it must end.
    fn lines(&mut self, said: &[Said], sessions: &[String], mut prompted: impl FnMut(u64, bool)) -> String {
        let first = self.last + 1;
        let mut lines = String::new();
        for said in said {
            self.last += 1;
            let id = self.last;
            let prompt = |session: usize, ms: u64| {
                let prompt = [json!({"type": "text", "text": format!("wait={ms}")})];
                json!({"id": id, "method": "session/prompt", "params": {"sessionId": sessions[session], "prompt": prompt}})
            };
            let cancel = json!({"sessionId": sessions[0]});
            let mut line = match said {
                Ends(session) => prompt(*session, ENDS_MS),
                Lives(session) => prompt(*session, LIVES_MS),
                Cancel => json!({"method": "session/cancel", "params": cancel}),
                CancelAsRequest => json!({"id": id, "method": "session/cancel", "params": cancel}),
                CancelRequest => json!({"method": "$/cancel_request", "params": {"requestId": first}}),
            };
            if matches!(said, Ends(_) | Lives(_)) {
                prompted(id, matches!(said, Ends(_)));
            }
            line["jsonrpc"] = "2.0".into();
            lines += &format!("{line}\n");
        }
        lines
    }

    async fn say(&mut self, lines: &str) -> Result<(), Failure> {
        Ok(self.input.write_all(lines.as_bytes()).await?)
    }

    async fn hear(&mut self) -> Result<Value, Failure> {
        let line = timeout(ANSWER_WAIT_MAX, self.output.next_line()).await.map_err(|_| "no answer came")??;
        Ok(serde_json::from_str(&line.ok_or("the agent ended")?)?)
    }

    async fn call(&mut self, method: &str, params: &Value) -> Result<Value, Failure> {
        self.last += 1;
        let id = self.last;
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.say(&format!("{line}\n")).await?;
        loop {
            let answer = self.hear().await?;
            if answer["id"] == id {
                return Ok(answer["result"].clone());
            }
        }
    }
}
