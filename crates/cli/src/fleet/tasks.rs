//! Tickets as tasks of the MCP extension `io.modelcontextprotocol/tasks`, for clients that declare it.
//!
//! A task is a ticket seen through other words: whatever is promised of a ticket holds for its task, and both faces may be used
//! on the same one. Nothing is kept here. (What rmcp has for tasks keeps them in memory and ends them with the process.)

use std::{collections::BTreeMap, time::Duration};

use lastword::delegation::{Error, Question, QuestionId, Refused, Seen, State, TicketId};
use rmcp::{
    ErrorData,
    model::{
        CreateTaskResult, DetailedTask, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
        ElicitationSchema, EnumSchema, ErrorCode, GetTaskResult, InputRequest, InputRequests, InputResponses,
        JsonObject, PrimitiveSchemaDefinition, StringSchema, Task, TaskPayload, TaskStatus,
    },
};
use serde::{Deserialize as _, Serialize};
use serde_json::{Value, json};

use super::{
    tools::{Context, Fleet, LEAD},
    words::{Answer as _, TicketView},
};

/// How often a client should look: soon enough for a person who waits, and a look costs a fraction of a millisecond.
const POLL_INTERVAL_MS: u64 = 1000;

/// What a task's id and a question's key are before their number.
const TASK: &str = "ticket-";
const KEY: &str = "question-";

/// The field of the form that a question is asked with.
const ANSWER: &str = "answer";

/// Whether this request takes a task for its answer. Its client must also take forms: whom nobody can ask through a task is
/// better off with the ticket, whose questions its model sees.
pub(super) fn are_taken(context: &Context) -> bool {
    context.client_capabilities().is_some_and(|client| {
        // Whoever does not say which kinds of elicitation it takes, takes forms.
        let takes_forms = client.elicitation.as_ref().is_some_and(|kinds| kinds.form.is_some() || kinds.url.is_none());
        client.supports_tasks() && takes_forms
    })
}

impl Fleet {
    /// What stands in for the result of the call that has sent this ticket.
    pub(super) async fn created(&self, seen: Seen) -> Result<CreateTaskResult, Error> {
        Ok(CreateTaskResult::new(self.detailed(seen).await?.task))
    }

    pub(super) async fn task(&self, id: &str) -> Result<GetTaskResult, ErrorData> {
        let seen = self.handle.poll(LEAD, ticket(id)?, Duration::ZERO).await.map_err(|error| said(&error))?;
        self.handle.saw(LEAD, &seen);
        Ok(GetTaskResult::new(self.detailed(seen).await.map_err(|error| said(&error))?))
    }

    /// Answers questions. What is not taken for an answer is refused: an acknowledgement says that it reaches the worker. So
    /// does that of an answer which was given before, to whoever has not heard it and sends it again.
    pub(super) async fn respond(&self, id: &str, responses: InputResponses) -> Result<(), ErrorData> {
        let ticket = ticket(id)?;
        // Whoever knows no such ticket learns nothing of its questions.
        self.handle.times(LEAD, ticket).await.map_err(|error| said(&error))?;
        let mut answers = BTreeMap::new();
        for (key, response) in responses {
            let question =
                QuestionId(numbered(KEY, &key).ok_or_else(|| invalid(format!("there is no request {key:?}")))?);
            let seen = self.handle.question(LEAD, question).await.map_err(|error| of_key(&key, &error))?;
            if seen.ticket != ticket {
                return Err(invalid(format!("{key} was not asked by the task {id}, but by {TASK}{}", seen.ticket.0)));
            }
            let answer = answer(&key, &response)?;
            if seen.answer.as_ref() != Some(&answer) {
                answers.insert(question, answer);
            }
        }
        // Each on its own, so that one that came before, or too late, keeps no other from its worker.
        let mut refused = None;
        for (question, answer) in answers {
            if let Err(error) = self.handle.answer(LEAD, question, answer, Duration::ZERO).await {
                refused = refused.or(Some(of_key(&format!("{KEY}{}", question.0), &error)));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Cancels the ticket; its worker lives on.
    pub(super) async fn cancel_task(&self, id: &str) -> Result<(), ErrorData> {
        match self.handle.cancel(LEAD, ticket(id)?).await {
            // To cancel is to say what is wanted, and a task may end otherwise before.
            Ok(_) | Err(Error::Refused(Refused::TicketEnded)) => Ok(()),
            Err(error) => Err(said(&error)),
        }
    }

    async fn detailed(&self, seen: Seen) -> Result<DetailedTask, Error> {
        let times = self.handle.times(LEAD, seen.ticket).await?;
        // Its status is that of the payload. No time ends it, so that it has no ttl.
        let mut task =
            Task::new(format!("{TASK}{}", seen.ticket.0), TaskStatus::default(), times.created, times.updated)
                .with_poll_interval_ms(POLL_INTERVAL_MS);
        task.status_message = message(&seen);
        let payload = match seen.state {
            State::Queued | State::Working => TaskPayload::Working,
            State::InputRequired => TaskPayload::InputRequired { input_requests: requests(&seen.questions) },
            State::Completed => TaskPayload::Completed { result: object(&self.answer(&TicketView::from(seen))) },
            State::Failed => {
                let view = TicketView::from(seen);
                let words = view.words(self.wait_max);
                let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, words, serde_json::to_value(&view).ok());
                TaskPayload::Failed { error: object(&error) }
            }
            State::Cancelled => TaskPayload::Cancelled,
        };
        Ok(DetailedTask::new(task, payload))
    }
}

/// What the word for the state does not say.
fn message(seen: &Seen) -> Option<String> {
    let worker = seen.worker.0;
    match seen.state {
        State::Queued => Some(format!("queued for worker {worker}, behind {} others", seen.position.unwrap_or(0))),
        State::Working => Some(format!("worker {worker} is at it")),
        State::InputRequired => Some(format!("worker {worker} needs an answer")),
        State::Completed | State::Failed | State::Cancelled => seen.reason.clone(),
    }
}

/// Each question as a form. Its key is the id of the question, which no other one ever has.
fn requests(questions: &[Question]) -> InputRequests {
    let request = |question: &Question| {
        let Question { text, options, only_options, .. } = question;
        let answer = if *only_options {
            PrimitiveSchemaDefinition::Enum(EnumSchema::builder(options.clone()).build())
        } else {
            let schema = StringSchema::new().min_length(1);
            PrimitiveSchemaDefinition::String(match &options[..] {
                [] => schema,
                options => schema.description(format!("One of these, or something else: {}.", options.join(" | "))),
            })
        };
        let form = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: text.clone(),
            requested_schema: ElicitationSchema::new(BTreeMap::from([(ANSWER.to_owned(), answer)]))
                .with_required(vec![ANSWER.to_owned()]),
        };
        InputRequest::Elicitation(ElicitRequest::new(form))
    };
    questions.iter().map(|question| (format!("{KEY}{}", question.id.0), request(question))).collect()
}

/// The answer that a form came back with.
fn answer(key: &str, response: &Value) -> Result<String, ErrorData> {
    let ElicitResult { action, content, .. } = ElicitResult::deserialize(response)
        .map_err(|error| invalid(format!("the response to {key} is wrong: {error}")))?;
    if action != ElicitationAction::Accept {
        // Many clients say so without having asked anybody. The worker waits for its lead, who has not spoken.
        return Err(invalid(format!(
            "{key} still waits for an answer: accept it, answer it with fleet_send, or cancel the task"
        )));
    }
    let answer = content.as_ref().and_then(|content| content[ANSWER].as_str());
    answer.map(str::to_owned).ok_or_else(|| invalid(format!("the response to {key} has no text in content.{ANSWER}")))
}

fn ticket(id: &str) -> Result<TicketId, ErrorData> {
    numbered(TASK, id).map(TicketId).ok_or_else(|| said(&Refused::NoSuchTicket.into()))
}

/// The number in an id as it is written here, and in no other way.
fn numbered(name: &str, id: &str) -> Option<u64> {
    let number = id.strip_prefix(name)?;
    number.parse().ok().filter(|parsed: &u64| parsed.to_string() == number)
}

/// Why it was not done. The client's own mistakes are told from ours.
fn said(error: &Error) -> ErrorData {
    match error {
        Error::Journal(_) | Error::Closed => ErrorData::internal_error(error.to_string(), None),
        _ => invalid(error.to_string()),
    }
}

fn of_key(key: &str, error: &Error) -> ErrorData {
    let mut error = said(error);
    error.message = format!("{key}: {}", error.message).into();
    error
}

fn invalid(why: String) -> ErrorData {
    ErrorData::invalid_params(why, None)
}

fn object(data: &impl Serialize) -> JsonObject {
    match json!(data) {
        Value::Object(object) => object,
        other => unreachable!("a result and an error are objects, not {other}"),
    }
}
