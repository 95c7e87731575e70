//! A scenario: what is sent in one write, and what each promise says of the answers.
//!
//! It is judged from a transcript alone, so that a recorded round is judged like a live one.

use std::collections::BTreeMap;

use super::{
    message::{self, Answer, METHOD_NOT_FOUND, Message, Response},
    transcript::{Entry, Phase, Side, What},
};

/// The stop reason of a turn that was ended.
const CANCELLED: &str = "cancelled";

/// Which side is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Agent,
    Client,
}

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// One line that says what is sent.
    pub(crate) title: String,
    /// Where it comes from.
    pub(crate) sources: Vec<String>,
    pub(crate) parts: Vec<Part>,
    pub(crate) claims: Vec<Claim>,
    /// Whether a few rounds must do, since each one moves megabytes.
    pub(crate) heavy: bool,
    /// What the client must do for it to be shown, if not only what every client does.
    pub(crate) needs: Option<Need>,
}

/// What a client must do for some scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Echo,
    Cancel,
}

/// One thing that is sent.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) template: Template,
    /// Whether it is a request, which must be answered.
    pub(crate) is_request: bool,
}

/// What is sent, before ids and sessions are known. In a text, `$NEW` is a new request id, `$1` the id of the first part, `$A`
/// and `$B` are sessions, `$LONG` and `$SHORT` what a prompt says, `$PROMPT` is the id of the client's prompt and `$CANCEL` what
/// makes it cancel; all are values of JSON.
#[derive(Debug, Clone)]
pub(crate) enum Template {
    Text(String),
    Unended(String),
    Bytes(Vec<u8>),
    End,
}

/// What a promise says of the answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) promise: &'static str,
    pub(crate) what: Holds,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Each request has exactly one response with its id, and nothing else is answered.
    EachAnsweredOnce,
    /// The prompt ends, because of one of the other parts.
    Ends { prompt: usize, by: usize },
    /// If the prompt was answered, it was with `cancelled`.
    SaysCancelled { prompt: usize },
    /// If the prompt was answered, it was not ended, although the other part came before it or is about another one.
    Lives { prompt: usize, despite: usize },
    /// The request, mostly a prompt, is answered.
    IsAnswered { prompt: usize },
    /// The part is answered with this error.
    Refused { part: usize, code: i64 },
    /// Somebody is told that a line was bad: an error with the id null.
    Complained { codes: &'static [i64] },
    /// The updates are handled one at a time, in their order.
    EchoedInOrder { updates: usize },
    /// All updates are handled.
    AllEchoed { updates: usize },
    /// All updates were handled when the client answered the part.
    EchoedBefore { updates: usize, part: usize },
    /// All updates were handled when the prompt returned.
    EchoedBeforeReturn { updates: usize },
    /// The prompt returned before the update was handled.
    ReturnedBefore { update: &'static str },
    /// The client cancelled the turn, and the part was answered.
    CancelCame,
}

/// What came of a claim in one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Kept,
    Broken(String),
    /// The peer says that it does not support what this rests on.
    NotSupported(String),
    /// What would show it did not happen.
    NotShown(String),
}

/// What the sessions and the texts are in one round.
pub(crate) struct Values<'a> {
    pub(crate) sessions: &'a [String],
    pub(crate) long: &'a str,
    pub(crate) short: &'a str,
    /// What makes a client cancel its turn.
    pub(crate) cancel: &'a str,
    /// The id of the client's prompt, as it was written.
    pub(crate) prompt: &'a str,
}

impl Scenario {
    /// Whether the input ends in it, so that it needs a process of its own.
    pub(crate) fn ends_input(&self) -> bool {
        self.parts.iter().any(|part| matches!(part.template, Template::End))
    }

    /// How many sessions it needs.
    pub(crate) fn sessions(&self) -> usize {
        let names =
            |name: &str| self.parts.iter().any(|part| part.template.text().is_some_and(|text| text.contains(name)));
        usize::from(names("$A")) + usize::from(names("$B"))
    }

    /// What is sent in one round. `last_id` is the number of the last request so far.
    pub(crate) fn fill(&self, values: &Values<'_>, last_id: &mut u64) -> Vec<What> {
        let mut ids: Vec<String> = Vec::new();
        self.parts
            .iter()
            .map(|part| {
                let mut own = String::new();
                let mut fill = |text: &str| {
                    substitute(text, |name| match name {
                        "NEW" => {
                            *last_id += 1;
                            own = last_id.to_string();
                            Some(own.clone())
                        }
                        "A" => values.sessions.first().map(|name| json(name)),
                        "B" => values.sessions.get(1).map(|name| json(name)),
                        "LONG" => Some(json(values.long)),
                        "SHORT" => Some(json(values.short)),
                        "CANCEL" => Some(json(values.cancel)),
                        "PROMPT" => Some(values.prompt.to_owned()),
                        number => ids.get(number.parse::<usize>().ok()?.checked_sub(1)?).cloned(),
                    })
                };
                let what = match &part.template {
                    Template::Text(text) => What::Line(fill(text).into_bytes()),
                    Template::Unended(text) => What::Unended(fill(text).into_bytes()),
                    Template::Bytes(bytes) => What::Line(bytes.clone()),
                    Template::End => What::End,
                };
                ids.push(own);
                what
            })
            .collect()
    }

    /// Whether everything that the claims wait for has come.
    pub(crate) fn is_settled(&self, round: &Evidence) -> bool {
        // A prompt need not end because of a request that the peer does not know.
        let excused = |id: &str| {
            self.claims.iter().any(|claim| match claim.what {
                Holds::Ends { prompt, by } => round.id(prompt) == id && self.is_rejected(by, round),
                _ => false,
            })
        };
        let answered = round.requests.iter().all(|(id, sent)| round.answers_to(id).count() >= *sent || excused(id));
        let told = self.claims.iter().all(|claim| match &claim.what {
            Holds::Complained { .. } => round.complaints().next().is_some(),
            Holds::EchoedInOrder { updates } | Holds::AllEchoed { updates } | Holds::EchoedBefore { updates, .. } => {
                round.handled().count() >= *updates
            }
            Holds::EchoedBeforeReturn { updates } => round.handled().count() >= *updates && round.returned().is_some(),
            Holds::ReturnedBefore { update } => {
                round.returned().is_some() && round.place_of(&Echo::Handled((*update).to_owned())).is_some()
            }
            Holds::CancelCame => round.cancelled().is_some(),
            _ => true,
        });
        answered && told && (!self.ends_input() || round.ended)
    }

    /// What came of each claim.
    pub(crate) fn judge(&self, round: &Evidence) -> Vec<Verdict> {
        self.claims.iter().map(|claim| self.judge_claim(&claim.what, round)).collect()
    }

    fn judge_claim(&self, claim: &Holds, round: &Evidence) -> Verdict {
        let broken = |why: String| Verdict::Broken(why);
        let check = |holds: bool, why: &dyn Fn() -> String| if holds { Verdict::Kept } else { Verdict::Broken(why()) };
        let silence = if round.ended { "and its output ended" } else { "within the patience" };
        let rejected = |part: usize| {
            self.is_rejected(part, round)
                .then(|| Verdict::NotSupported(format!("it answers {} with -32601", round.method(part))))
        };
        match claim {
            Holds::EachAnsweredOnce => self.each_answered_once(round),
            Holds::Ends { prompt, by } => rejected(*by).unwrap_or_else(|| {
                check(round.answers(*prompt).next().is_some(), &|| {
                    format!("prompt {} did not end {silence}", prompt + 1)
                })
            }),
            Holds::SaysCancelled { prompt } => {
                let answers: Vec<&Answer> = round.answers(*prompt).collect();
                match answers.first() {
                    None => Verdict::NotShown(format!("prompt {} had no answer {silence}", prompt + 1)),
                    Some(first) => check(answers.iter().any(|answer| is_cancelled(answer)), &|| {
                        format!("prompt {} was ended and answered {}", prompt + 1, first.words())
                    }),
                }
            }
            Holds::Lives { prompt, despite } => {
                rejected(*despite).unwrap_or_else(|| match round.answers(*prompt).next() {
                    None => Verdict::NotShown(format!("prompt {} had no answer {silence}", prompt + 1)),
                    Some(answer) => {
                        let lives = answer.stop_reason().is_some() && !is_cancelled(answer);
                        check(lives, &|| format!("prompt {} was answered {}", prompt + 1, answer.words()))
                    }
                })
            }
            Holds::IsAnswered { prompt } => check(round.answers(*prompt).next().is_some(), &|| {
                let what = if self.is_prompt(*prompt) { "prompt" } else { "request" };
                format!("{what} {} had no answer {silence}", prompt + 1)
            }),
            Holds::Refused { part, code } => match round.answers(*part).next() {
                None => broken(format!("it was not answered {silence}")),
                Some(first) => check(round.answers(*part).any(|answer| answer.is_error(*code)), &|| {
                    format!("it was answered {}, not the error {code}", first.words())
                }),
            },
            Holds::Complained { codes } => match round.complaints().next() {
                None => broken(format!("nobody was told that the line is bad {silence}")),
                Some(answer) => check(codes.iter().any(|code| answer.is_error(*code)), &|| {
                    format!("nobody was told that the line is bad, but {}", answer.words())
                }),
            },
            Holds::EchoedInOrder { updates } => round.one_at_a_time(*updates),
            Holds::AllEchoed { updates } => {
                let handled = round.handled().count();
                check(handled >= *updates, &|| format!("{handled} of {updates} updates were handled {silence}"))
            }
            Holds::EchoedBefore { updates, part } => match round.place_of_answer(*part) {
                None => Verdict::NotShown(format!("the request was not answered {silence}")),
                Some(place) => {
                    let before = round.handled().filter(|(at, _)| *at < place).count();
                    check(before >= *updates, &|| {
                        format!("{before} of {updates} updates were handled before it was answered")
                    })
                }
            },
            Holds::EchoedBeforeReturn { updates } => match round.returned() {
                None => Verdict::NotShown(format!("the client did not say that its prompt returned {silence}")),
                Some(place) => {
                    let before = round.handled().filter(|(at, _)| *at < place).count();
                    check(before >= *updates, &|| {
                        format!("{before} of {updates} updates were handled when the prompt returned")
                    })
                }
            },
            Holds::ReturnedBefore { update } => {
                let begun = round.place_of(&Echo::Handling((*update).to_owned()));
                match (round.returned(), begun) {
                    (Some(returned), Some(begun)) => check(returned < begun, &|| {
                        "the handler of a later update began before the prompt had returned".to_owned()
                    }),
                    _ => Verdict::NotShown(format!("the client did not say both {silence}")),
                }
            }
            Holds::CancelCame => match round.cancelled() {
                None => Verdict::NotShown(format!("the client did not cancel its turn {silence}")),
                Some(_) => Verdict::Kept,
            },
        }
    }

    fn each_answered_once(&self, round: &Evidence) -> Verdict {
        for part in (0..self.parts.len()).filter(|part| self.parts[*part].is_request) {
            let id = round.id(part);
            let (wanted, found) = (round.requests.get(id).copied().unwrap_or(0), round.answers(part).count());
            if found > wanted {
                return Verdict::Broken(format!("the request {id} was answered {found} times"));
            }
            // That a prompt ends or is answered at all is what other promises say, also where something has its id.
            if found < wanted && !(0..self.parts.len()).any(|other| self.is_prompt(other) && round.id(other) == id) {
                return Verdict::Broken(format!("the request {id} was not answered"));
            }
        }
        match round.strays.iter().find(|id| !(*id == "null" && self.may_complain())) {
            Some(id) => Verdict::Broken(format!("a response came with the id {id}, which no request has")),
            None if round.answered == 0 => Verdict::NotShown("nothing was answered".to_owned()),
            None => Verdict::Kept,
        }
    }

    /// Whether the peer does not know a request, which then cannot have done anything.
    fn is_rejected(&self, part: usize, round: &Evidence) -> bool {
        self.parts[part].is_request && round.answers(part).any(|answer| answer.is_error(METHOD_NOT_FOUND))
    }

    fn is_prompt(&self, part: usize) -> bool {
        self.parts[part].template.text().is_some_and(|text| text.contains("\"session/prompt\""))
    }

    fn may_complain(&self) -> bool {
        self.claims.iter().any(|claim| matches!(claim.what, Holds::Complained { .. }))
    }
}

fn is_cancelled(answer: &Answer) -> bool {
    answer.stop_reason().as_deref() == Some(CANCELLED)
}

impl Template {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Unended(text) => Some(text),
            Self::Bytes(_) | Self::End => None,
        }
    }
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Replaces each `$NAME` that has a value.
fn substitute(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        let name = &rest[at + 1..];
        let length = name.bytes().take_while(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()).count();
        match value(&name[..length]) {
            Some(value) => filled.push_str(&value),
            None => filled.push_str(&rest[at..=at + length]),
        }
        rest = &name[length..];
    }
    filled.push_str(rest);
    filled
}

/// What a client says of its handlers, by the notification `_lastword/echo`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Echo {
    /// The handler of the update with this text begins.
    Handling(String),
    /// It is done.
    Handled(String),
    /// The call of the prompt returned, for this reason.
    Returned(String),
}

/// What a transcript shows of one round.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// What was sent, by part.
    sent: Vec<Message>,
    /// The ids of the parts that are requests, and how many have each.
    requests: BTreeMap<String, usize>,
    /// The ids of requests that are no part.
    asked: Vec<String>,
    /// How the ids of parts were answered, each with its place.
    answers: BTreeMap<String, Vec<(usize, Answer)>>,
    /// How many responses to parts there are.
    answered: usize,
    /// How many responses came only when the round was cleaned up, which is no evidence, by id.
    late: BTreeMap<String, usize>,
    /// The ids of responses to nothing that was sent.
    strays: Vec<String>,
    /// The responses with the id null, where no request has it.
    complaints: Vec<Answer>,
    echoes: Vec<(usize, Echo)>,
    /// Where the client's `session/cancel` stands.
    cancelled: Option<usize>,
    /// The peer will say nothing more.
    pub(crate) ended: bool,
    places: usize,
}

impl Evidence {
    /// Takes the next line in. What comes before the play and after the fence is no evidence.
    pub(crate) fn take(&mut self, entry: &Entry) {
        self.places += 1;
        match (entry.from, entry.phase) {
            (Side::Lastword, Phase::Play) => {
                let message = message::parse(entry.what.bytes());
                if let Message::Request { id, .. } = &message {
                    *self.requests.entry(id.clone()).or_default() += 1;
                }
                self.sent.push(message);
            }
            (Side::Lastword, _) => {
                if let Message::Request { id, .. } = message::parse(entry.what.bytes()) {
                    self.asked.push(id);
                }
            }
            (Side::Peer, Phase::Play | Phase::Fence) => match message::parse(entry.what.bytes()) {
                Message::Response(response) => self.take_response(response),
                Message::Notification { method, params } if method == "_lastword/echo" => {
                    self.echoes.extend(serde_json::from_str(&params).ok().map(|echo| (self.places, echo)));
                }
                Message::Notification { method, .. } if method == "session/cancel" => {
                    self.cancelled.get_or_insert(self.places);
                }
                _ => self.ended |= entry.what == What::End,
            },
            (Side::Peer, Phase::Cleanup) => match message::parse(entry.what.bytes()) {
                Message::Response(response) => {
                    *self.late.entry(response.id).or_default() += 1;
                }
                _ => self.ended |= entry.what == What::End,
            },
            (Side::Peer, _) => self.ended |= entry.what == What::End,
        }
    }

    fn take_response(&mut self, Response { id, answer }: Response) {
        if self.requests.contains_key(&id) {
            self.answered += 1;
            self.answers.entry(id).or_default().push((self.places, answer));
        } else if !self.asked.contains(&id) {
            if id == "null" {
                self.complaints.push(answer);
            }
            self.strays.push(id);
        }
    }

    fn id(&self, part: usize) -> &str {
        match self.sent.get(part) {
            Some(Message::Request { id, .. }) => id,
            _ => "",
        }
    }

    fn method(&self, part: usize) -> &str {
        match self.sent.get(part) {
            Some(Message::Request { method, .. } | Message::Notification { method, .. }) => method,
            _ => "the line",
        }
    }

    fn answers(&self, part: usize) -> impl Iterator<Item = &Answer> {
        self.answers_to(self.id(part))
    }

    fn answers_to(&self, id: &str) -> impl Iterator<Item = &Answer> {
        self.answers.get(id).into_iter().flatten().map(|(_, answer)| answer)
    }

    /// Whether a request of the scenario has no answer.
    pub(crate) fn lacks_an_answer(&self) -> bool {
        self.requests
            .iter()
            .any(|(id, sent)| self.answers_to(id).count() + self.late.get(id).copied().unwrap_or(0) < *sent)
    }

    fn place_of_answer(&self, part: usize) -> Option<usize> {
        self.answers.get(self.id(part))?.first().map(|(place, _)| *place)
    }

    fn complaints(&self) -> impl Iterator<Item = &Answer> {
        self.complaints.iter()
    }

    fn handled(&self) -> impl Iterator<Item = (usize, &str)> {
        self.echoes.iter().filter_map(|(place, echo)| match echo {
            Echo::Handled(text) => Some((*place, text.as_str())),
            _ => None,
        })
    }

    fn returned(&self) -> Option<usize> {
        self.echoes.iter().find(|(_, echo)| matches!(echo, Echo::Returned(_))).map(|(place, _)| *place)
    }

    fn place_of(&self, wanted: &Echo) -> Option<usize> {
        self.echoes.iter().find(|(_, echo)| echo == wanted).map(|(place, _)| *place)
    }

    fn cancelled(&self) -> Option<usize> {
        self.cancelled
    }

    fn one_at_a_time(&self, updates: usize) -> Verdict {
        let wanted =
            (1..=updates).flat_map(|number| [Echo::Handling(number.to_string()), Echo::Handled(number.to_string())]);
        let found = self.echoes.iter().map(|(_, echo)| echo).filter(|echo| !matches!(echo, Echo::Returned(_)));
        let mut handlers = found.take(2 * updates);
        for wanted in wanted {
            match handlers.next() {
                None => {
                    return Verdict::NotShown("the client did not say of every update that it was handled".to_owned());
                }
                Some(found) if *found != wanted => {
                    return Verdict::Broken(format!("where {wanted:?} was due, the client said {found:?}"));
                }
                Some(_) => {}
            }
        }
        Verdict::Kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(parts: &[&str], claims: Vec<Holds>) -> Scenario {
        let part =
            |text: &&str| Part { template: Template::Text((*text).to_owned()), is_request: text.contains("\"id\"") };
        Scenario {
            name: "test".to_owned(),
            title: String::new(),
            sources: Vec::new(),
            parts: parts.iter().map(part).collect(),
            claims: claims.into_iter().map(|what| Claim { promise: "AnsweredOnce", what }).collect(),
            heavy: false,
            needs: None,
        }
    }

    /// What is judged of a round in which these lines were sent and came.
    fn judged(scenario: &Scenario, sent: &[&str], came: &[&str]) -> Vec<Verdict> {
        let mut evidence = Evidence::default();
        for (from, lines) in [(Side::Lastword, sent), (Side::Peer, came)] {
            for line in lines {
                let what = What::text(*line);
                evidence.take(&Entry { scenario: String::new(), round: 1, phase: Phase::Play, ms: 0.0, from, what });
            }
        }
        scenario.judge(&evidence)
    }

    const PROMPT: &str = r#"{"id":$NEW,"method":"session/prompt","params":[$A,$LONG,$1]}"#;

    #[test]
    fn a_text_that_looks_like_a_name_is_not_replaced_again() {
        let values = Values { sessions: &["$LONG".to_owned()], long: "$1 $NEW", short: "", cancel: "", prompt: "" };
        let scenario = scenario(&[r#"{"id":$NEW,"method":"$/x"}"#, PROMPT], vec![]);
        let mut last = 6;
        let lines = scenario.fill(&values, &mut last);
        assert_eq!(lines[0], What::text(r#"{"id":7,"method":"$/x"}"#));
        assert_eq!(lines[1], What::text(r#"{"id":8,"method":"session/prompt","params":["$LONG","$1 $NEW",7]}"#));
        assert_eq!((last, scenario.sessions()), (8, 1));
    }

    #[test]
    fn an_id_is_compared_as_it_was_written() {
        let scenario = scenario(&[r#"{"id":1.0,"method":"m"}"#], vec![Holds::EachAnsweredOnce]);
        let sent = [r#"{"id":1.0,"method":"m"}"#];
        assert_eq!(judged(&scenario, &sent, &[r#"{"id":1.0,"result":0}"#]), [Verdict::Kept]);
        for wrong in [&[r#"{"id":1,"result":0}"#][..], &[r#"{"id":1.0,"result":0}"#; 2], &[]] {
            assert!(matches!(judged(&scenario, &sent, wrong)[..], [Verdict::Broken(_)]), "{wrong:?}");
        }
        let stray = [r#"{"id":1.0,"result":0}"#, r#"{"id":"other","result":0}"#];
        assert!(matches!(judged(&scenario, &sent, &stray)[..], [Verdict::Broken(_)]));
    }

    #[test]
    fn silence_does_not_show_that_a_prompt_lives_nor_that_it_was_ended() {
        let lives = Holds::Lives { prompt: 0, despite: 0 };
        let claims = vec![lives, Holds::SaysCancelled { prompt: 0 }, Holds::IsAnswered { prompt: 0 }];
        let scenario = scenario(&[PROMPT], claims);
        let sent = [r#"{"id":1,"method":"session/prompt"}"#];
        let verdicts = judged(&scenario, &sent, &[]);
        assert!(
            matches!(verdicts[..], [Verdict::NotShown(_), Verdict::NotShown(_), Verdict::Broken(_)]),
            "{verdicts:?}"
        );
        let verdicts = judged(&scenario, &sent, &[r#"{"id":1,"result":{"stopReason":"cancelled"}}"#]);
        assert!(matches!(verdicts[..], [Verdict::Broken(_), Verdict::Kept, Verdict::Kept]), "{verdicts:?}");
        let verdicts = judged(&scenario, &sent, &[r#"{"id":1,"error":{"code":-32603,"message":"busy"}}"#]);
        assert!(matches!(verdicts[..], [Verdict::Broken(_), Verdict::Broken(_), Verdict::Kept]), "{verdicts:?}");
    }
}
