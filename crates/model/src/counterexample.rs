//! A counterexample as a file: a path that once broke a promise, kept for ever.
//!
//! The digests are those of the real code, so that a change of what it does on this path shows even where no promise
//! breaks. A step that the real code refuses, because it never comes to it, says so.

use std::{fs, io, path::Path};

use lastword_core::{Step, delegation};
use serde::{Deserialize, Serialize};

/// A recorded path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counterexample {
    /// The domain.
    pub domain: String,
    /// The configuration whose messages these are.
    pub configuration: String,
    /// The promise that the mutant breaks on this path, and the real code keeps.
    pub promise: String,
    /// The mutant, by its name in specs/DOMAIN/mutants.toml.
    pub mutant: String,
    /// What happened, in one sentence.
    pub story: String,
    /// The steps.
    pub steps: Vec<CounterexampleStep>,
}

/// A step of a recorded path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterexampleStep {
    /// The message that it is about, from 1.
    pub message: usize,
    /// The step.
    pub step: RecordedStep,
    /// The digest of the real machine's state after it; none where the real machine does not owe this step.
    pub digest: Option<String>,
}

/// A step of whichever machine. Their alphabets have no word in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RecordedStep {
    /// Of a connection.
    Connection(Step),
    /// Of the ticket service.
    Delegation(delegation::Step),
}

impl From<Step> for RecordedStep {
    fn from(step: Step) -> Self {
        Self::Connection(step)
    }
}

impl From<delegation::Step> for RecordedStep {
    fn from(step: delegation::Step) -> Self {
        Self::Delegation(step)
    }
}

impl TryFrom<RecordedStep> for Step {
    type Error = RecordedStep;

    fn try_from(step: RecordedStep) -> Result<Self, RecordedStep> {
        match step {
            RecordedStep::Connection(step) => Ok(step),
            RecordedStep::Delegation(_) => Err(step),
        }
    }
}

impl TryFrom<RecordedStep> for delegation::Step {
    type Error = RecordedStep;

    fn try_from(step: RecordedStep) -> Result<Self, RecordedStep> {
        match step {
            RecordedStep::Delegation(step) => Ok(step),
            RecordedStep::Connection(_) => Err(step),
        }
    }
}

/// Why a counterexample could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CounterexampleError {
    /// The file could not be read or written.
    #[error("{path} could not be read or written: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The file is no counterexample.
    #[error("{path} is no counterexample: {source}")]
    Parse {
        /// The file.
        path: String,
        /// Why.
        source: serde_json::Error,
    },
}

impl Counterexample {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`CounterexampleError`] where the file cannot be read or understood.
    pub fn read(path: &Path) -> Result<Self, CounterexampleError> {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path).map_err(|source| CounterexampleError::File { path: name(), source })?;
        serde_json::from_str(&text).map_err(|source| CounterexampleError::Parse { path: name(), source })
    }

    /// Writes the file, one step a line so that a reviewer can read a change of it.
    ///
    /// # Errors
    ///
    /// [`CounterexampleError::File`] where it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), CounterexampleError> {
        fs::write(path, self.to_text())
            .map_err(|source| CounterexampleError::File { path: path.display().to_string(), source })
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::from("{\n");
        for (name, value) in [
            ("domain", &self.domain),
            ("configuration", &self.configuration),
            ("promise", &self.promise),
            ("mutant", &self.mutant),
            ("story", &self.story),
        ] {
            text += &format!("  \"{name}\": {},\n", json(value));
        }
        text += "  \"steps\": [\n";
        for (at, step) in self.steps.iter().enumerate() {
            let comma = if at + 1 < self.steps.len() { "," } else { "" };
            text += &format!("    {}{comma}\n", json(step));
        }
        text += "  ]\n}\n";
        text
    }
}

/// These values are plain data with text keys, so that writing them as JSON cannot fail.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data is written as JSON")
}

#[cfg(test)]
mod tests {
    use lastword_core::{Arrival, RequestId, SessionId};

    use super::*;

    #[test]
    fn a_file_is_read_back_as_it_was_written() {
        let counterexample = Counterexample {
            domain: "turns".into(),
            configuration: "overlapping-prompts".into(),
            promise: "OlderPromptEnds".into(),
            mutant: "older-prompt-runs-on".into(),
            story: "Two prompts, and the \"older\" one runs on.".into(),
            steps: vec![
                CounterexampleStep {
                    message: 1,
                    step: Step::PromptArrived { id: RequestId::from(1), session: SessionId::from("A") }.into(),
                    digest: Some("0123456789abcdef".into()),
                },
                CounterexampleStep { message: 1, step: Step::Started(Arrival(1)).into(), digest: None },
            ],
        };
        let text = counterexample.to_text();
        assert_eq!(text.lines().count(), 11);
        assert_eq!(serde_json::from_str::<Counterexample>(&text).unwrap(), counterexample);
    }
}
