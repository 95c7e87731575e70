//! Plays scenarios: starts what is measured, opens sessions, sends, listens, and cleans up.
//!
//! Every wait has an end, and a round that left something behind costs the process that it ran in, so that it cannot spoil the
//! next one.

use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{
    message::{self, Answer, Message},
    scenario::{Evidence, Role, Scenario, Values, Verdict},
    transcript::{Entry, Phase, Side, What, shorten},
    wire::Wire,
};

/// A round that moves megabytes may take so many times longer.
const HEAVY_FACTOR: u32 = 10;

/// How many lines of one round are kept. The longest one has 150,000: a burst of updates, and two echoes of each.
const LINES_MAX: usize = 400_000;

/// Our own ids stay below what a peer that reads numbers as floating point keeps exact.
const EXACT_ID_MAX: u64 = 1 << 53;

/// How the peer is started and spoken to.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) role: Role,
    pub(crate) command: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) authenticate: Option<String>,
    pub(crate) long: String,
    pub(crate) short: String,
    /// What makes a client cancel.
    pub(crate) cancel: String,
    /// How long a round waits for what is due.
    pub(crate) patience: Duration,
    /// How long the peer may take to start, and to open a session.
    pub(crate) start: Duration,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CannotRun {
    #[error("`{program}` could not be started: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("{what}{}", shown(said, log))]
    Silent {
        what: String,
        /// What it said in the place of it.
        said: Vec<String>,
        log: Vec<String>,
    },
    #[error("{0}")]
    Refused(String),
}

fn shown(said: &[String], log: &[String]) -> String {
    let lines = |title: &str, lines: &[String]| {
        let lines: String = lines.iter().map(|line| format!("\n    {line}")).collect();
        if lines.is_empty() { lines } else { format!("\n  {title}:{lines}") }
    };
    lines("it said", said) + &lines("on standard error", log)
}

/// One round, judged.
pub(crate) struct Round {
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) transcript: Vec<Entry>,
}

pub(crate) struct Player {
    manner: Manner,
    peer: Option<Peer>,
}

impl Player {
    pub(crate) fn new(manner: Manner) -> Self {
        Self { manner, peer: None }
    }

    /// Starts the peer, if it does not run.
    pub(crate) fn start(&mut self) -> Result<(), CannotRun> {
        self.peer(false).map(|_| ())
    }

    /// Plays a round. A peer that refuses a session that the scenario needs does not support it: the error says why.
    pub(crate) fn round(&mut self, scenario: &Scenario, number: u32) -> Result<Result<Round, String>, CannotRun> {
        let manner = self.manner.clone();
        let peer = self.peer(scenario.ends_input())?;
        peer.begin(scenario, number);
        let mut sessions = Vec::new();
        for _ in 0..scenario.sessions() {
            match peer.session(&manner, None)? {
                Ok(session) => sessions.push(session),
                Err(why) => return Ok(Err(why)),
            }
        }
        let values = Values {
            sessions: &sessions,
            long: &manner.long,
            short: &manner.short,
            cancel: &manner.cancel,
            prompt: &peer.prompt.as_ref().map_or_else(String::new, |prompt| prompt.id.clone()),
        };
        let play = scenario.fill(&values, &mut peer.last_id);
        peer.send(Phase::Play, play);
        Ok(Ok(self.finish(scenario)))
    }

    /// Plays what lastword sent in a recorded round once more: a line goes out when all that came before it has come.
    pub(crate) fn replay(
        &mut self,
        scenario: &Scenario,
        recorded: &[Entry],
    ) -> Result<Result<Round, String>, CannotRun> {
        let manner = self.manner.clone();
        let peer = self.peer(true)?;
        peer.begin(scenario, recorded.first().map_or(0, |entry| entry.round));
        // No request of our own may have the id of a recorded one.
        let ids = recorded.iter().filter_map(|entry| match message::parse(entry.what.bytes()) {
            Message::Request { id, .. } if entry.from == Side::Lastword => id.parse().ok(),
            _ => None,
        });
        let ids = ids.filter(|id| *id < EXACT_ID_MAX);
        peer.last_id = ids.fold(peer.last_id, u64::max);
        // The sessions, and a client's prompt, have other names now.
        let mut names: Vec<(String, String)> = Vec::new();
        if let (Some(prompt), Some(old)) = (&peer.prompt, recorded_prompt(recorded)) {
            names.push((old.session, prompt.session.clone()));
        }
        let mut setup = recorded.iter().filter(|entry| entry.phase == Phase::Setup).peekable();
        while let Some(entry) = setup.next() {
            let Message::Request { id, method, .. } = message::parse(entry.what.bytes()) else { continue };
            if entry.from != Side::Lastword || method != "session/new" {
                continue;
            }
            let session = match peer.session(&manner, Some(id))? {
                Ok(session) => session,
                Err(why) => return Ok(Err(why)),
            };
            let old = setup.peek().and_then(|entry| match message::parse(entry.what.bytes()) {
                Message::Response(response) => session_id(&response.answer),
                _ => None,
            });
            names.extend(old.map(|old| (old, session)));
        }
        let prompt = peer.prompt.as_ref().map(|prompt| prompt.id.clone());
        let mut write = Vec::new();
        let mut play: Vec<&Entry> = recorded.iter().filter(|entry| entry.phase == Phase::Play).collect();
        // What comes after everything was sent is judged below.
        play.truncate(play.iter().rposition(|entry| entry.from == Side::Lastword).map_or(0, |last| last + 1));
        for entry in play {
            match entry.from {
                Side::Lastword => write.push(renamed(&entry.what, &names, prompt.as_deref())),
                Side::Peer => {
                    if !write.is_empty() {
                        peer.send(Phase::Play, std::mem::take(&mut write));
                    }
                    peer.await_like(entry, manner.patience);
                }
            }
        }
        peer.send(Phase::Play, write);
        Ok(Ok(self.finish(scenario)))
    }

    fn finish(&mut self, scenario: &Scenario) -> Round {
        let patience = self.manner.patience * if scenario.heavy { HEAVY_FACTOR } else { 1 };
        let Some(peer) = &mut self.peer else { unreachable!("the round ran in it") };
        let settled = peer.listen(Phase::Play, patience, |evidence| scenario.is_settled(evidence));
        // What came too much came before the answer to one more request.
        let fenced = settled && !scenario.ends_input() && peer.fence(patience);
        let verdicts = scenario.judge(&peer.evidence);
        let is_clean = match self.manner.role {
            Role::Agent => fenced || peer.cancel_all(patience),
            Role::Client => {
                peer.answer_prompt();
                fenced
            }
        };
        let transcript = std::mem::take(&mut peer.entries);
        if !is_clean || peer.evidence.ended {
            self.peer = None;
        }
        Round { verdicts, transcript }
    }

    /// The peer, started anew where it has to be.
    fn peer(&mut self, fresh: bool) -> Result<&mut Peer, CannotRun> {
        if fresh {
            self.peer = None;
        }
        let running = match self.peer.take() {
            // A client that does not prompt again, or is gone, is started again.
            Some(mut peer) if self.manner.role == Role::Client => {
                peer.await_prompt(self.manner.patience).then_some(peer)
            }
            running => running,
        };
        let peer = match running {
            Some(peer) => peer,
            None => Peer::start(&self.manner)?,
        };
        Ok(self.peer.insert(peer))
    }
}

/// A prompt of a client, which waits for its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Prompt {
    /// As it was written.
    id: String,
    session: String,
}

/// The process that is measured, and the round that it is in.
struct Peer {
    wire: Wire,
    role: Role,
    last_id: u64,
    sessions: Vec<String>,
    /// The prompt of a client that we have not answered.
    prompt: Option<Prompt>,
    scenario: String,
    round: u32,
    entries: Vec<Entry>,
    evidence: Evidence,
}

impl Peer {
    fn start(manner: &Manner) -> Result<Self, CannotRun> {
        let program = manner.command.first().cloned().unwrap_or_default();
        let wire = Wire::start(&manner.command).map_err(|source| CannotRun::Start { program, source })?;
        let mut peer = Self {
            wire,
            role: manner.role,
            last_id: 0,
            sessions: Vec::new(),
            prompt: None,
            scenario: String::new(),
            round: 0,
            entries: Vec::new(),
            evidence: Evidence::default(),
        };
        match manner.role {
            Role::Agent => {
                let params = serde_json::json!({
                    "protocolVersion": 1,
                    "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false},
                    "clientInfo": {"name": "lastword conform", "version": env!("CARGO_PKG_VERSION")},
                });
                peer.must_call("initialize", &params, manner.start)?;
                if let Some(method) = &manner.authenticate {
                    peer.must_call("authenticate", &serde_json::json!({"methodId": method}), manner.start)?;
                }
            }
            Role::Client => {
                if !peer.await_prompt(manner.start) {
                    return Err(peer.silent("the client sent no session/prompt", manner.start));
                }
            }
        }
        Ok(peer)
    }

    /// Forgets the round before.
    fn begin(&mut self, scenario: &Scenario, round: u32) {
        self.scenario.clone_from(&scenario.name);
        self.round = round;
        self.evidence = Evidence::default();
        // What a client said to open its session belongs to the round that it is for.
        if self.role == Role::Agent {
            self.entries.clear();
            self.sessions.clear();
        }
        for entry in &mut self.entries {
            entry.scenario.clone_from(&self.scenario);
            entry.round = round;
        }
    }

    /// Opens a session, or says why the agent does not; a client has one.
    fn session(&mut self, manner: &Manner, id: Option<String>) -> Result<Result<String, String>, CannotRun> {
        if self.role == Role::Client {
            return Ok(self.prompt.as_ref().map(|prompt| prompt.session.clone()).ok_or("it has no session".to_owned()));
        }
        let params = serde_json::json!({"cwd": manner.cwd, "mcpServers": []});
        let answer = self.call("session/new", &params, id, manner.start)?;
        match session_id(&answer) {
            Some(session) => {
                self.sessions.push(session.clone());
                Ok(Ok(session))
            }
            None if self.sessions.is_empty() => {
                Err(CannotRun::Refused(format!("the agent answers session/new with {}", answer.words())))
            }
            None => Ok(Err(format!("it answers a second session/new with {}", answer.words()))),
        }
    }

    fn must_call(&mut self, method: &str, params: &serde_json::Value, patience: Duration) -> Result<(), CannotRun> {
        match self.call(method, params, None, patience)? {
            Answer::Result(_) => Ok(()),
            answer => Err(CannotRun::Refused(format!("the agent answers {method} with {}", answer.words()))),
        }
    }

    fn call(
        &mut self,
        method: &str,
        params: &serde_json::Value,
        id: Option<String>,
        patience: Duration,
    ) -> Result<Answer, CannotRun> {
        let id = id.unwrap_or_else(|| self.new_id());
        self.send(
            Phase::Setup,
            vec![What::text(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#))],
        );
        let until = Instant::now() + patience;
        while let Some(message) = self.next(Phase::Setup, until) {
            match message {
                Message::Response(response) if response.id == id => return Ok(response.answer),
                _ if self.evidence.ended => break,
                _ => {}
            }
        }
        Err(self.silent(&format!("the agent did not answer {method}"), patience))
    }

    fn silent(&self, what: &str, patience: Duration) -> CannotRun {
        let why = if self.evidence.ended {
            "before its output ended".to_owned()
        } else {
            format!("within {} ms", patience.as_millis())
        };
        let from_peer = self.entries.iter().filter(|entry| entry.from == Side::Peer && entry.what != What::End);
        let mut said: Vec<String> = from_peer.rev().take(5).map(|entry| shorten(entry.what.bytes())).collect();
        said.reverse();
        CannotRun::Silent { what: format!("{what} {why}"), said, log: self.wire.log() }
    }

    fn new_id(&mut self) -> String {
        self.last_id += 1;
        self.last_id.to_string()
    }

    /// Sends all of it in one write.
    fn send(&mut self, phase: Phase, all: Vec<What>) {
        let mut bytes = Vec::new();
        for what in all {
            what.append_to(&mut bytes);
            let ends = what == What::End;
            let answered = self.prompt.as_ref().is_some_and(|prompt| answers(&what, &prompt.id));
            self.record(phase, Side::Lastword, Instant::now(), what);
            if answered {
                self.prompt = None;
            }
            if ends {
                self.wire.send(std::mem::take(&mut bytes));
                self.wire.end_input();
            }
        }
        if !bytes.is_empty() {
            self.wire.send(bytes);
        }
    }

    fn record(&mut self, phase: Phase, from: Side, at: Instant, what: What) {
        let us = at.saturating_duration_since(self.wire.started).as_micros();
        let ms = us as f64 / 1000.0;
        let entry = Entry { scenario: self.scenario.clone(), round: self.round, phase, ms, from, what };
        self.evidence.take(&entry);
        self.entries.push(entry);
    }

    /// The next message of the peer; none when the time is over. Its requests are answered.
    fn next(&mut self, phase: Phase, until: Instant) -> Option<Message> {
        if self.entries.len() >= LINES_MAX {
            return None;
        }
        let (at, what) = self.wire.receive(until)?;
        let message = message::parse(what.bytes());
        self.record(phase, Side::Peer, at, what);
        if let Message::Request { id, method, params } = &message {
            self.answer(id, method, params);
        }
        Some(message)
    }

    /// Listens until the round is settled, the peer says nothing more, or the time is over. Says whether it was settled.
    fn listen(&mut self, phase: Phase, patience: Duration, settled: impl Fn(&Evidence) -> bool) -> bool {
        let until = Instant::now() + patience;
        while !settled(&self.evidence) {
            if self.evidence.ended || self.next(phase, until).is_none() {
                return false;
            }
        }
        true
    }

    /// Asks once more, and waits for the answer.
    fn fence(&mut self, patience: Duration) -> bool {
        let id = self.new_id();
        self.send(
            Phase::Fence,
            vec![What::text(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"_lastword/fence","params":{{}}}}"#))],
        );
        let until = Instant::now() + patience;
        while !self.evidence.ended {
            match self.next(Phase::Fence, until) {
                Some(Message::Response(response)) if response.id == id => return true,
                Some(_) => {}
                None => return false,
            }
        }
        false
    }

    /// Cancels what still runs, and waits for its end.
    fn cancel_all(&mut self, patience: Duration) -> bool {
        let cancels = self.sessions.iter().map(|session| {
            let params = serde_json::json!({"sessionId": session});
            What::text(format!(r#"{{"jsonrpc":"2.0","method":"session/cancel","params":{params}}}"#))
        });
        let cancels: Vec<What> = cancels.collect();
        self.send(Phase::Cleanup, cancels);
        self.listen(Phase::Cleanup, patience, |evidence| !evidence.lacks_an_answer())
    }

    /// Ends the client's turn.
    fn answer_prompt(&mut self) {
        if let Some(Prompt { id, .. }) = self.prompt.clone() {
            self.send(
                Phase::Cleanup,
                vec![What::text(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"stopReason":"end_turn"}}}}"#))],
            );
        }
    }

    /// Waits for the client's next prompt.
    fn await_prompt(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while self.prompt.is_none() && !self.evidence.ended {
            if self.next(Phase::Setup, until).is_none() {
                return false;
            }
        }
        self.prompt.is_some()
    }

    /// Waits for what a recorded line was: the response to that request, or a message of that method.
    fn await_like(&mut self, recorded: &Entry, patience: Duration) {
        let wanted = message::parse(recorded.what.bytes());
        let until = Instant::now() + patience;
        while !self.evidence.ended {
            let Some(message) = self.next(Phase::Play, until) else { return };
            if is_like(&message, &wanted) {
                return;
            }
        }
    }

    fn answer(&mut self, id: &str, method: &str, params: &str) {
        let result = match (self.role, method) {
            (Role::Agent, "session/request_permission") => first_option(params)
                .map(|option| serde_json::json!({"outcome": {"outcome": "selected", "optionId": option}})),
            (Role::Client, "initialize") => Some(serde_json::json!({
                "protocolVersion": 1,
                "agentCapabilities": {},
                "agentInfo": {"name": "lastword conform", "version": env!("CARGO_PKG_VERSION")},
            })),
            (Role::Client, "authenticate") => Some(serde_json::json!({})),
            (Role::Client, "session/new") => {
                self.sessions.push(format!("session-{}", self.sessions.len() + 1));
                self.sessions.last().map(|session| serde_json::json!({"sessionId": session}))
            }
            (Role::Client, "session/prompt") if self.prompt.is_none() => {
                self.prompt = prompt_session(params).map(|session| Prompt { id: id.to_owned(), session });
                if self.prompt.is_some() {
                    return;
                }
                None
            }
            _ => None,
        };
        let answer = match result {
            Some(result) => format!(r#""result":{result}"#),
            None => r#""error":{"code":-32601,"message":"Method not found"}"#.to_owned(),
        };
        self.send(Phase::Answer, vec![What::text(format!(r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#))]);
    }
}

fn answers(what: &What, id: &str) -> bool {
    matches!(message::parse(what.bytes()), Message::Response(response) if response.id == id)
}

fn is_like(message: &Message, wanted: &Message) -> bool {
    match (message, wanted) {
        (Message::Response(found), Message::Response(wanted)) => found.id == wanted.id,
        (
            Message::Request { method: found, .. } | Message::Notification { method: found, .. },
            Message::Request { method, .. } | Message::Notification { method, .. },
        ) => found == method,
        (found, wanted) => found == wanted,
    }
}

fn session_id(answer: &Answer) -> Option<String> {
    let Answer::Result(result) = answer else { return None };
    prompt_session(result)
}

/// The member `sessionId` of an object.
fn prompt_session(object: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named {
        session_id: String,
    }
    serde_json::from_str(object).ok().map(|Named { session_id }| session_id)
}

fn first_option(params: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Permission {
        options: Vec<Choice>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Choice {
        option_id: String,
    }
    let Permission { options } = serde_json::from_str(params).ok()?;
    options.into_iter().next().map(|Choice { option_id }| option_id)
}

/// The prompt that a client had sent in a recorded round.
fn recorded_prompt(recorded: &[Entry]) -> Option<Prompt> {
    recorded.iter().filter(|entry| entry.from == Side::Peer).find_map(|entry| {
        match message::parse(entry.what.bytes()) {
            Message::Request { id, method, params } if method == "session/prompt" => {
                prompt_session(&params).map(|session| Prompt { id, session })
            }
            _ => None,
        }
    })
}

/// A line with the sessions, and the id of a client's prompt, of another process.
fn renamed(what: &What, names: &[(String, String)], prompt: Option<&str>) -> What {
    let rename = |line: &[u8]| {
        let Ok(text) = std::str::from_utf8(line) else { return line.to_vec() };
        if let (Message::Response(response), Some(prompt)) = (message::parse(line), prompt)
            && response.answer.stop_reason().is_some()
        {
            return text.replacen(&format!("\"id\":{}", response.id), &format!("\"id\":{prompt}"), 1).into_bytes();
        }
        // All at once: the new name of one session may be the old name of another.
        let mut renamed = text.to_owned();
        for (at, (old, _)) in names.iter().enumerate() {
            renamed = renamed.replace(&quoted(old), &format!("\"\u{0}{at}\u{0}\""));
        }
        for (at, (_, new)) in names.iter().enumerate() {
            renamed = renamed.replace(&format!("\"\u{0}{at}\u{0}\""), &quoted(new));
        }
        renamed.into_bytes()
    };
    match what {
        What::Line(line) => What::Line(rename(line)),
        What::Unended(line) => What::Unended(rename(line)),
        What::End => What::End,
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
