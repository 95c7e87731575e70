//! Tokens: who calls is who knows one.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::{Mutex, MutexGuard, PoisonError},
};

use lastword::delegation::WorkerId;
use subtle::ConstantTimeEq as _;

/// How long a token is, before it is written in hexadecimal: nobody guesses 256 bits.
const TOKEN_BYTES: usize = 32;

/// A bearer token.
#[derive(Clone)]
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    pub(crate) fn mint() -> Result<Self, String> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| format!("the system has no random numbers: {error}"))?;
        let mut text = String::with_capacity(2 * TOKEN_BYTES);
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    /// What is a token in form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_one = text.len() == 2 * TOKEN_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_one.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is this one. The time that it takes tells nothing but the length.
    fn is(&self, said: &str) -> bool {
        self.0.as_bytes().ct_eq(said.as_bytes()).into()
    }
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Lead,
    Worker(WorkerId),
}

/// Every token that opens the door. Those of workers are in memory alone: whoever starts the worker again mints another one.
#[derive(Debug)]
pub(crate) struct Tokens {
    lead: Token,
    /// Held for a look-up or a change, never across an await.
    workers: Mutex<BTreeMap<WorkerId, Token>>,
}

impl Tokens {
    pub(crate) fn new(lead: Token) -> Self {
        Self { lead, workers: Mutex::default() }
    }

    pub(crate) fn mint(&self, worker: WorkerId) -> Result<Token, String> {
        let token = Token::mint()?;
        self.workers().insert(worker, token.clone());
        Ok(token)
    }

    pub(crate) fn revoke(&self, worker: WorkerId) {
        self.workers().remove(&worker);
    }

    /// Whose token it is.
    pub(crate) fn caller(&self, said: &str) -> Option<Caller> {
        if self.lead.is(said) {
            return Some(Caller::Lead);
        }
        self.workers().iter().find(|(_, token)| token.is(said)).map(|(worker, _)| Caller::Worker(*worker))
    }

    fn workers(&self) -> MutexGuard<'_, BTreeMap<WorkerId, Token>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_the_door_for_one_and_no_longer_once_it_is_revoked() {
        let lead = Token::mint().unwrap();
        let tokens = Tokens::new(lead.clone());
        let (one, two) = (tokens.mint(WorkerId(1)).unwrap(), tokens.mint(WorkerId(2)).unwrap());
        assert_eq!(tokens.caller(lead.as_str()), Some(Caller::Lead));
        assert_eq!(tokens.caller(one.as_str()), Some(Caller::Worker(WorkerId(1))));
        assert_eq!(tokens.caller(two.as_str()), Some(Caller::Worker(WorkerId(2))));
        for wrong in ["", "0", &lead.as_str()[1..], &"0".repeat(64)] {
            assert_eq!(tokens.caller(wrong), None);
        }
        tokens.revoke(WorkerId(1));
        assert_eq!(tokens.caller(one.as_str()), None);
        assert!(Token::parse(two.as_str()).is_some() && Token::parse("").is_none());
    }
}
