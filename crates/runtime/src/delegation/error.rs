//! What can go wrong with the ticket service, and what to do about it.

use std::{
    io,
    path::{Path, PathBuf},
};

use lastword_core::delegation::Refused;

use super::journal::Holder;

/// Why a service could not be opened. Whatever it was, the journal is as it was before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another service has it open.
    #[error("the journal {file} is in use by {holder}; stop that one, or take another file", file = file.display())]
    InUse {
        /// The journal.
        file: PathBuf,
        /// Who has it.
        holder: Holder,
    },
    /// The file is something else.
    #[error(
        "{file} is not a journal of this program, or its beginning is damaged; it was left as it is: take another file, or put \
         a copy of the journal there",
        file = file.display()
    )]
    NotAJournal {
        /// The file.
        file: PathBuf,
    },
    /// It was written by a newer version of this program.
    #[error(
        "the journal {file} has version {found}, and this program knows version {known}; it was left as it is: use the newer \
         program, or take another file",
        file = file.display()
    )]
    Newer {
        /// The journal.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// It was written by an older version of this program, which kept no checksums.
    #[error(
        "the journal {file} has version {found}, and this program reads only version {known}; it was left as it is: let the \
         older program finish its tickets, or take another file",
        file = file.display()
    )]
    Older {
        /// The journal.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// It is damaged.
    #[error(
        "the journal {file} is damaged: {what}; it was left as it is: put a copy of it there, or move it away together with \
         the files whose names begin as its own",
        file = file.display()
    )]
    Damaged {
        /// The journal.
        file: PathBuf,
        /// Where, and how.
        what: String,
    },
    /// A part of it is there and the journal itself is not.
    #[error(
        "the journal {file} is missing, but {left}, which is a part of it, is there; put them together again, or move that \
         file away as well",
        file = file.display(),
        left = left.display()
    )]
    Torn {
        /// The journal.
        file: PathBuf,
        /// What is left of it.
        left: PathBuf,
    },
    /// SQLite cannot use it.
    #[error("the journal {file} cannot be opened: {source}", file = file.display())]
    Sqlite {
        /// The file.
        file: PathBuf,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// It cannot be read or made.
    #[error("{file} cannot be opened: {source}", file = file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        #[source]
        source: io::Error,
    },
}

/// The journal could not be read or written. Nothing of what it did not store was acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "the journal {file} failed: {what}; what was not acknowledged was not stored: see to the disk, and start again",
    file = file.display()
)]
#[non_exhaustive]
pub struct JournalError {
    /// The journal.
    pub file: PathBuf,
    /// What SQLite says.
    pub what: String,
}

impl JournalError {
    pub(super) fn new(file: &Path, what: String) -> Self {
        Self { file: file.to_owned(), what }
    }
}

/// Why something that a lead or a worker asked for was not done. Each is a sentence for whoever asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine refused it, and nothing changed.
    #[error("{0}")]
    Refused(Refused),
    /// There is no such kind of worker.
    #[error("there is no kind of worker {kind:?}; there are: {}", known.join(", "))]
    NoSuchKind {
        /// What was asked for.
        kind: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The text is empty.
    #[error("the text is empty; say something")]
    EmptyText,
    /// The text is too long.
    #[error("the text has {bytes} bytes, and may have {bytes_max}; put the long part into a file and name that")]
    TextTooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        bytes_max: usize,
    },
    /// The question takes one of its options as an answer, and nothing else.
    #[error("this question takes one of its options as its answer: {}", options.join(", "))]
    NotAnOption {
        /// The options.
        options: Vec<String>,
    },
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The service is closing.
    #[error("the service is closing; try again once it has started")]
    Closed,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}
