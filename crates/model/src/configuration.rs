//! A configuration: which messages the client sends and what must be found. It is a .cfg of TLC, and the only place where
//! this is said: the model of the code reads the same file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use lastword_core::Overlap;

/// A value of a constant, in the part of TLA+ that a .cfg may hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// `TRUE` or `FALSE`.
    Bool(bool),
    /// A natural number.
    Number(usize),
    /// `"text"`.
    Text(String),
    /// `{a, b}`.
    Set(BTreeSet<Value>),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(value) => f.write_str(if *value { "TRUE" } else { "FALSE" }),
            Self::Number(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "\"{value}\""),
            Self::Set(values) => {
                f.write_str("{")?;
                for (at, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
        }
    }
}

/// What must be found, as the first line of the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// `\* must hold`: every promise holds, and the graphs of code and specification are equal.
    Holds,
    /// `\* must fail: PROMISE in N steps`: this point of the design space breaks the promise.
    Fails {
        /// The promise that breaks.
        promise: String,
        /// The length of its shortest counterexample.
        steps: usize,
    },
}

/// A configuration, as its file says it.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// The domain: the folder's name.
    pub domain: String,
    /// The name: the file's name without `.cfg`.
    pub name: String,
    /// The whole text, for TLC.
    pub text: String,
    /// What must be found.
    pub expectation: Expectation,
    /// The comment lines after the first one: what it covers, what it leaves out, which temptation it stands for.
    pub about: Vec<String>,
    /// The constants.
    pub constants: BTreeMap<String, Value>,
    /// The invariants, in the order of the file.
    pub invariants: Vec<String>,
    /// The temporal properties, in the order of the file.
    pub properties: Vec<String>,
}

/// Why a configuration could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// The file or folder could not be read.
    #[error("{path} could not be read: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file says something that is not understood.
    #[error("{path}:{line}: {problem}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what is expected.
        problem: String,
    },
    /// A constant is missing, or has a value of another kind.
    #[error("{configuration}: the constant {name} must be {expected}")]
    Constant {
        /// `DOMAIN/NAME`.
        configuration: String,
        /// The constant.
        name: String,
        /// What it must be.
        expected: &'static str,
    },
    /// The folder holds no configuration: nothing would be checked.
    #[error("{path} holds no .cfg: nothing would be checked")]
    Empty {
        /// The folder.
        path: PathBuf,
    },
}

impl Configuration {
    /// Reads every configuration of a domain, in the order of their names. `specs` is the folder of that name.
    ///
    /// # Errors
    ///
    /// [`ConfigurationError`] where one cannot be read, or there is none.
    pub fn read_all(specs: &Path, domain: &str) -> Result<Vec<Self>, ConfigurationError> {
        let folder = specs.join(domain);
        let failed = |source| ConfigurationError::Read { path: folder.clone(), source };
        let mut paths = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "cfg") {
                paths.push(path);
            }
        }
        paths.sort();
        if paths.is_empty() {
            return Err(ConfigurationError::Empty { path: folder });
        }
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// Reads one configuration; its folder is its domain.
    ///
    /// # Errors
    ///
    /// [`ConfigurationError`] where it cannot be read or understood.
    pub fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let text =
            fs::read_to_string(path).map_err(|source| ConfigurationError::Read { path: path.to_owned(), source })?;
        let name = |path: Option<&std::ffi::OsStr>| path.unwrap_or_default().to_string_lossy().into_owned();
        Self::parse(name(path.parent().and_then(Path::file_name)), name(path.file_stem()), text)
            .map_err(|(line, problem)| ConfigurationError::Parse { path: path.to_owned(), line, problem })
    }

    /// `DOMAIN/NAME`, as `--only` takes it.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}", self.domain, self.name)
    }

    fn parse(domain: String, name: String, text: String) -> Result<Self, (usize, String)> {
        let mut expectation = None;
        let mut about = Vec::new();
        let mut constants = BTreeMap::new();
        let mut invariants = Vec::new();
        let mut properties = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |problem: &str| (number, problem.to_owned());
            if let Some(comment) = line.strip_prefix("\\*") {
                let comment = comment.trim();
                if number == 1 {
                    expectation = Some(parse_expectation(comment).ok_or_else(|| {
                        wrong("the first line must say `\\* must hold` or `\\* must fail: PROMISE in N steps`")
                    })?);
                } else {
                    about.push(comment.to_owned());
                }
                continue;
            }
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [] | ["CONSTANTS"] | ["SPECIFICATION", _] => {}
                ["INVARIANT", invariant] => invariants.push(invariant.to_owned()),
                ["PROPERTY", property] => properties.push(property.to_owned()),
                [constant, "=", ..] => {
                    let text = line.split_once('=').map_or("", |(_, value)| value);
                    let value = parse_value(text).ok_or_else(|| {
                        wrong("the value must be TRUE, FALSE, a number, a text in quotes, or a set of these")
                    })?;
                    if constants.insert(constant.to_owned(), value).is_some() {
                        return Err(wrong("this constant has a value already"));
                    }
                }
                _ => return Err(wrong("expected `NAME = VALUE`, `INVARIANT NAME` or `PROPERTY NAME`, one a line")),
            }
        }
        let expectation = expectation.ok_or((1, "the file is empty".to_owned()))?;
        Ok(Self { domain, name, text, expectation, about, constants, invariants, properties })
    }

    fn constant(&self, name: &str, expected: &'static str) -> Result<&Value, ConfigurationError> {
        self.constants.get(name).ok_or_else(|| self.wrong(name, expected))
    }

    fn wrong(&self, name: &str, expected: &'static str) -> ConfigurationError {
        ConfigurationError::Constant { configuration: self.id(), name: name.to_owned(), expected }
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, ConfigurationError> {
        match self.constant(name, "TRUE or FALSE")? {
            Value::Bool(value) => Ok(*value),
            _ => Err(self.wrong(name, "TRUE or FALSE")),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Result<usize, ConfigurationError> {
        match self.constant(name, "a number")? {
            Value::Number(value) => Ok(*value),
            _ => Err(self.wrong(name, "a number")),
        }
    }

    pub(crate) fn overlap(&self, name: &str) -> Result<Overlap, ConfigurationError> {
        let expected = "\"replace\", \"queue\" or \"refuse\"";
        match self.constant(name, expected)? {
            Value::Text(text) if text == "replace" => Ok(Overlap::Replace),
            Value::Text(text) if text == "queue" => Ok(Overlap::Queue),
            Value::Text(text) if text == "refuse" => Ok(Overlap::Refuse),
            _ => Err(self.wrong(name, expected)),
        }
    }

    /// A set that not every domain has: empty where there is none. TLC refuses one whose specification does not know it.
    pub(crate) fn set(&self, name: &str) -> Result<BTreeSet<usize>, ConfigurationError> {
        let expected = "a set of numbers";
        match self.constants.get(name).unwrap_or(&Value::Set(BTreeSet::new())) {
            Value::Set(values) => values
                .iter()
                .map(|value| match value {
                    Value::Number(number) => Ok(*number),
                    _ => Err(self.wrong(name, expected)),
                })
                .collect(),
            _ => Err(self.wrong(name, expected)),
        }
    }

    /// A set of sets, likewise.
    pub(crate) fn sets(&self, name: &str) -> Result<Vec<BTreeSet<usize>>, ConfigurationError> {
        let expected = "a set of sets of numbers";
        let wrong = || self.wrong(name, expected);
        let none = Value::Set(BTreeSet::new());
        let Value::Set(sets) = self.constants.get(name).unwrap_or(&none) else { return Err(wrong()) };
        sets.iter()
            .map(|set| match set {
                Value::Set(values) => values
                    .iter()
                    .map(|value| if let Value::Number(number) = value { Ok(*number) } else { Err(wrong()) })
                    .collect(),
                _ => Err(wrong()),
            })
            .collect()
    }
}

fn parse_expectation(comment: &str) -> Option<Expectation> {
    if comment == "must hold" {
        return Some(Expectation::Holds);
    }
    match comment.strip_prefix("must fail:")?.split_whitespace().collect::<Vec<_>>()[..] {
        [promise, "in", steps, "steps"] => {
            Some(Expectation::Fails { promise: promise.to_owned(), steps: steps.parse().ok()? })
        }
        _ => None,
    }
}

fn parse_value(text: &str) -> Option<Value> {
    let (value, rest) = parse_one(text)?;
    rest.trim().is_empty().then_some(value)
}

fn parse_one(text: &str) -> Option<(Value, &str)> {
    let text = text.trim_start();
    if let Some(rest) = text.strip_prefix('"') {
        let (value, rest) = rest.split_once('"')?;
        return Some((Value::Text(value.to_owned()), rest));
    }
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut values = BTreeSet::new();
        loop {
            rest = rest.trim_start();
            if let Some(rest) = rest.strip_prefix('}') {
                return Some((Value::Set(values), rest));
            }
            if !values.is_empty() {
                rest = rest.strip_prefix(',')?;
            }
            let (value, after) = parse_one(rest)?;
            values.insert(value);
            rest = after;
        }
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let value = match word {
        "TRUE" => Value::Bool(true),
        "FALSE" => Value::Bool(false),
        digits => Value::Number(digits.parse().ok()?),
    };
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Configuration, (usize, String)> {
        Configuration::parse("turns".into(), "x".into(), text.into())
    }

    #[test]
    fn a_file_says_what_must_be_found_and_what_is_sent() {
        let text = "\\* must fail: OlderPromptEnds in 5 steps\n\\* Temptation: none.\nSPECIFICATION Spec\nCONSTANTS\n    Waits = {{1, 2}, {3}}\n    OneAtATime = FALSE\n    InFlightMax = 9\nINVARIANT OlderPromptEnds\n";
        let configuration = parse(text).unwrap();
        assert_eq!(configuration.expectation, Expectation::Fails { promise: "OlderPromptEnds".into(), steps: 5 });
        assert_eq!(configuration.about, ["Temptation: none."]);
        assert_eq!(configuration.sets("Waits").unwrap(), [BTreeSet::from([1, 2]), BTreeSet::from([3])]);
        assert!(!configuration.flag("OneAtATime").unwrap());
        assert_eq!(configuration.number("InFlightMax").unwrap(), 9);
        assert_eq!(configuration.invariants, ["OlderPromptEnds"]);
        assert!(
            configuration
                .flag("Waits")
                .unwrap_err()
                .to_string()
                .contains("turns/x: the constant Waits must be TRUE or FALSE")
        );
    }

    #[test]
    fn a_file_that_is_not_understood_is_an_error_with_its_line() {
        for (text, line) in [
            ("", 1),
            ("SPECIFICATION Spec\n", 1),
            ("\\* must be fine\n", 1),
            ("\\* must hold\nX = {1\n", 2),
            ("\\* must hold\nX = 1 2\n", 2),
            ("\\* must hold\nINVARIANTS A B\n", 2),
            ("\\* must hold\nX = 1\nX = 2\n", 3),
        ] {
            assert_eq!(parse(text).unwrap_err().0, line, "{text:?}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            (0usize..100).prop_map(Value::Number),
            "[a-z-]{0,6}".prop_map(Value::Text)
        ];
        leaf.prop_recursive(2, 8, 4, |inner| prop::collection::btree_set(inner, 0..4).prop_map(Value::Set))
    }

    proptest! {
        #[test]
        fn a_value_is_read_back_as_it_was_written(value in values()) {
            prop_assert_eq!(parse_value(&value.to_string()), Some(value));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,60}") {
            let _ = parse(&text);
            let _ = parse(&format!("\\* must hold\n{text}"));
        }
    }
}
