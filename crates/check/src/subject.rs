//! What the checker needs of a model besides its graph: to read it with a guard forced, and to draw its paths.

use lastword_core::{Forced, Limits, delegation};
use lastword_model::{Configuration, ConfigurationError, ConnectionModel, DelegationModel, Model, Move};

use crate::{draw, report::Diagram};

/// A model that can be checked.
pub trait Subject: Model {
    /// Reads a configuration. A mutant forces a guard.
    ///
    /// # Errors
    ///
    /// [`ConfigurationError`] where the configuration is none of this domain.
    fn read(configuration: &Configuration, forced: Option<Forced>) -> Result<Self, ConfigurationError>;

    /// Draws moves from the initial state. `breaks` says at which of them, from 0, a promise is broken.
    fn draw(&self, moves: &[Move<Self::Step>], breaks: Option<usize>) -> Diagram;
}

impl Subject for ConnectionModel {
    fn read(configuration: &Configuration, forced: Option<Forced>) -> Result<Self, ConfigurationError> {
        let mut limits = Limits::default();
        limits.forced = forced;
        Self::new(configuration, limits)
    }

    fn draw(&self, moves: &[Move], breaks: Option<usize>) -> Diagram {
        draw::draw(self, moves, breaks)
    }
}

impl Subject for DelegationModel {
    fn read(configuration: &Configuration, forced: Option<Forced>) -> Result<Self, ConfigurationError> {
        let mut limits = delegation::Limits::default();
        limits.forced = forced;
        Self::new(configuration, limits)
    }

    fn draw(&self, moves: &[Move<delegation::Step>], breaks: Option<usize>) -> Diagram {
        draw::delegation::draw(self, moves, breaks)
    }
}

/// Whether a domain is of the ticket service, and not of a connection.
#[must_use]
pub fn is_of_delegation(domain: &str) -> bool {
    domain == "delegation"
}
