//! The journal: what was acknowledged is in it, whatever happens to the process.
//!
//! It is one SQLite file in WAL mode with `synchronous=FULL`. A single thread writes. Whatever is ready when it comes back
//! from a commit goes into its next one, so that the price of a commit, which is that of the disk, is shared by all who
//! wait. Everybody else reads, through a connection that never writes.
//!
//! A file that is not a journal, a damaged one, and one of a newer version are refused before anything is written: the
//! file stays as it was, byte for byte. A journal is made beside its place and then renamed into it, so that a crash
//! leaves a whole one or none, and its version stands in the file itself and never only in the write-ahead log.
//!
//! SQLite would give back a text in which the disk has changed a bit, so that each row has a checksum, which is compared
//! when the journal is opened and whenever something is read. In the write-ahead log, which a crash leaves and the next start
//! takes in, SQLite has checksums of its own: it takes what comes after the first wrong one for what never was committed.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, SystemTime},
};

use lastword_core::delegation::{LeadId, QuestionId, Record, ReplyId, Tables, TicketId, WorkerId};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, Transaction, params, params_from_iter,
    types::{ToSqlOutput, ValueRef},
};

use super::{
    error::{JournalError, OpenError},
    view::Times,
};

/// The version of the tables, in the file's `user_version`.
const VERSION: u32 = 3;

/// "lwdl", in the file's `application_id`: what tells a journal from any other SQLite file.
const APPLICATION_ID: u32 = 0x6c77_646c;

/// How many entries one transaction takes: far more than callers ever wait at once, so that it bounds nothing but the memory.
const BATCH_ENTRIES_MAX: usize = 4096;

/// How long a statement waits for somebody who looks into the file with a tool of SQLite.
const BUSY_MAX: Duration = Duration::from_secs(5);

/// The fixed part at the beginning of each SQLite file.
const HEADER_BYTES: usize = 100;

/// A row is JSON in the words of the core. Texts are by what they belong to. The last column of each is its [`checksum`]. The one
/// row of marks is there once a ticket was forgotten. `at` is when a row was written, in milliseconds since 1970: the core knows
/// no clock, and that is for people and programs that look.
const SCHEMA: &str = "
    CREATE TABLE worker (id INTEGER PRIMARY KEY, row TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
    CREATE TABLE ticket (
        id INTEGER PRIMARY KEY,
        row TEXT NOT NULL,
        seen INTEGER NOT NULL,
        at INTEGER NOT NULL,
        sum INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE marks (id INTEGER PRIMARY KEY, row TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
    CREATE TABLE inbox (reply INTEGER PRIMARY KEY, lead INTEGER NOT NULL, worker INTEGER NOT NULL, sum INTEGER NOT NULL)
        STRICT;
    CREATE TABLE inbox_read (lead INTEGER PRIMARY KEY, reply INTEGER NOT NULL, sum INTEGER NOT NULL) STRICT;
    CREATE TABLE text (
        kind TEXT NOT NULL,
        id INTEGER NOT NULL,
        body TEXT NOT NULL,
        at INTEGER NOT NULL,
        sum INTEGER NOT NULL,
        PRIMARY KEY (kind, id)
    ) STRICT, WITHOUT ROWID;
";

/// What a text belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// The kind and the name of a worker.
    Worker(WorkerId),
    /// How the process of a worker ended.
    Death(WorkerId),
    Task(TicketId),
    /// What the worker said last in the turn of a ticket, or the error that it answered.
    End(TicketId),
    Question(QuestionId),
    Answer(QuestionId),
    Reply(ReplyId),
}

impl Of {
    fn key(self) -> (&'static str, i64) {
        let (kind, id) = match self {
            Self::Worker(id) => ("worker", id.0),
            Self::Death(id) => ("death", id.0),
            Self::Task(id) => ("task", id.0),
            Self::End(id) => ("end", id.0),
            Self::Question(id) => ("question", id.0),
            Self::Answer(id) => ("answer", id.0),
            Self::Reply(id) => ("reply", id.0),
        };
        (kind, sql(id))
    }
}

/// What one step wants stored: all of it or nothing.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) records: Vec<Record>,
    pub(super) texts: Vec<(Of, String)>,
}

/// A journal that was opened, before anything is written to it.
pub(super) struct Journal {
    pub(super) tables: Tables,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
}

impl Journal {
    /// Opens the journal, or makes one where there is no file.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let lock = Lock::take(path)?;
        if !path.try_exists().map_err(|source| OpenError::Io { file: path.to_owned(), source })? {
            make(path)?;
        }
        let tables = check(path)?;
        let sql_error = |source| OpenError::Sqlite { file: path.to_owned(), source };
        let writer = connect_writer(path).map_err(sql_error)?;
        let reader = connect_reader(path).map_err(sql_error)?;
        Ok(Self {
            tables,
            reader: Reader { file: path.to_owned(), connection: Mutex::new(reader) },
            writer: Writer { file: path.to_owned(), connection: writer, _lock: lock },
        })
    }
}

/// Reads texts that are stored.
pub(super) struct Reader {
    file: PathBuf,
    /// Held for the length of one look-up, which finds its page in memory or reads it.
    connection: Mutex<Connection>,
}

impl Reader {
    /// The text; none where there is none.
    pub(super) fn text(&self, of: Of) -> Result<Option<String>, JournalError> {
        self.text_row(of, |row| row.get(2))
    }

    fn text_row<T>(
        &self,
        of: Of,
        says: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, JournalError> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let (kind, id) = of.key();
        let select = "SELECT kind, id, body, at, sum FROM text WHERE kind = ?1 AND id = ?2";
        let text = one(&connection, "text", select, (kind, id), says);
        text.map_err(|error| JournalError::new(&self.file, error.said("text", &format!("{kind} {id}"))))
    }

    /// When a ticket was stored and last changed; none where there is no such ticket.
    pub(super) fn times(&self, ticket: TicketId) -> Result<Option<Times>, JournalError> {
        // Its task was stored with it, and never changes.
        let created = self.text_row(Of::Task(ticket), |row| row.get::<_, i64>(3))?;
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let updated = one(&connection, "ticket", TICKET, [sql(ticket.0)], |row| row.get::<_, i64>(3))
            .map_err(|error| JournalError::new(&self.file, error.said("ticket", &ticket.0.to_string())))?;
        let Some((created, updated)) = created.zip(updated) else { return Ok(None) };
        let times = connection.query_row(
            "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', ?1 / 1000.0, 'unixepoch'),
                strftime('%Y-%m-%dT%H:%M:%fZ', ?2 / 1000.0, 'unixepoch')",
            [created, updated],
            |row| Ok(Times { created: row.get(0)?, updated: row.get(1)? }),
        );
        times.map(Some).map_err(|error| JournalError::new(&self.file, error.to_string()))
    }
}

/// Why a row is not to be had.
enum Unread {
    Changed,
    Sqlite(rusqlite::Error),
}

impl Unread {
    fn said(&self, table: &str, row: &str) -> String {
        match self {
            Self::Changed => changed(table, row),
            Self::Sqlite(error) => error.to_string(),
        }
    }
}

/// What one row says, if it is there and as it was written.
fn one<T>(
    connection: &Connection,
    table: &str,
    select: &str,
    key: impl rusqlite::Params,
    says: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, Unread> {
    let read = || {
        let whole = |row: &Row<'_>| if is_whole(table, row)? { says(row).map(Some) } else { Ok(None) };
        connection.prepare_cached(select)?.query_row(key, whole).optional()
    };
    match read().map_err(Unread::Sqlite)? {
        Some(None) => Err(Unread::Changed),
        found => Ok(found.flatten()),
    }
}

/// The one that writes.
pub(super) struct Writer {
    file: PathBuf,
    // Dropped before the lock, so that the next one who opens the file finds it closed.
    connection: Connection,
    _lock: Lock,
}

impl Writer {
    /// Where it writes.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Starts the thread that writes. It says how many entries were committed, in their order, or why no more will be. It
    /// ends once every sender is gone and all entries are stored.
    pub(super) fn start(
        self,
        mut committed: impl FnMut(Result<usize, JournalError>) + Send + 'static,
        #[cfg(feature = "check")] permits: Option<mpsc::Receiver<usize>>,
    ) -> io::Result<(mpsc::Sender<Entry>, thread::JoinHandle<()>)> {
        let (sender, entries) = mpsc::channel::<Entry>();
        let mut writer = self;
        let thread = thread::Builder::new().name("lastword-journal".to_owned()).spawn(move || {
            loop {
                #[cfg(feature = "check")]
                let batch = match &permits {
                    Some(permits) => permitted(permits, &entries),
                    None => ready(&entries),
                };
                #[cfg(not(feature = "check"))]
                let batch = ready(&entries);
                if batch.is_empty() {
                    return;
                }
                match writer.commit(&batch) {
                    Ok(()) => committed(Ok(batch.len())),
                    // What could not be stored once is not tried again: nobody knows what the disk has of it.
                    Err(source) => return committed(Err(JournalError::new(&writer.file, source.to_string()))),
                }
            }
        })?;
        Ok((sender, thread))
    }

    fn commit(&mut self, batch: &[Entry]) -> rusqlite::Result<()> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX);
        let transaction = self.connection.transaction()?;
        for entry in batch {
            entry.records.iter().try_for_each(|record| put(&transaction, record, at))?;
            for (of, body) in &entry.texts {
                let (kind, id) = of.key();
                // A text is written once: what was acknowledged never changes.
                let insert = "INSERT OR IGNORE INTO text (kind, id, body, at, sum) VALUES (?1, ?2, ?3, ?4, ?5)";
                let [id, at] = [id, at].map(ValueRef::Integer);
                write(&transaction, "text", insert, &[kind.into(), id, body.as_str().into(), at])?;
            }
        }
        transaction.commit()
    }
}

/// Waits for an entry, and takes what else is there. Nothing once every sender is gone.
fn ready(entries: &mpsc::Receiver<Entry>) -> Vec<Entry> {
    let Ok(first) = entries.recv() else { return Vec::new() };
    let more = entries.try_iter().take(BATCH_ENTRIES_MAX - 1);
    std::iter::once(first).chain(more).collect()
}

/// As many entries as a checker lets pass.
#[cfg(feature = "check")]
fn permitted(permits: &mpsc::Receiver<usize>, entries: &mpsc::Receiver<Entry>) -> Vec<Entry> {
    permits.recv().map_or_else(|_| Vec::new(), |count| entries.iter().take(count).collect())
}

fn put(transaction: &Transaction<'_>, record: &Record, at: i64) -> rusqlite::Result<()> {
    let id = |id: u64| ValueRef::Integer(sql(id));
    match record {
        Record::Worker(worker, row) => {
            let insert = "INSERT OR REPLACE INTO worker (id, row, sum) VALUES (?1, ?2, ?3)";
            write(transaction, "worker", insert, &[id(worker.0), json(row)?.as_str().into()])
        }
        Record::WorkerForgotten(worker) => {
            [Of::Worker(*worker), Of::Death(*worker)].into_iter().try_for_each(|of| forget(transaction, of))?;
            transaction.prepare_cached("DELETE FROM worker WHERE id = ?1")?.execute(params![sql(worker.0)]).map(drop)
        }
        Record::Ticket(ticket, row) => {
            let insert = "INSERT OR REPLACE INTO ticket (id, row, seen, at, sum) VALUES (?1, ?2, ?3, ?4, ?5)";
            let [unseen, at] = [0, at].map(ValueRef::Integer);
            write(transaction, "ticket", insert, &[id(ticket.0), json(row)?.as_str().into(), unseen, at])
        }
        Record::Seen(ticket) => {
            transaction
                .prepare_cached("UPDATE ticket SET seen = TRUE WHERE id = ?1")?
                .execute(params![sql(ticket.0)])?;
            seal(transaction, *ticket)
        }
        Record::Forgotten(ticket, row) => {
            let of_ticket = [Of::Task(*ticket), Of::End(*ticket)].into_iter();
            let of_questions = row.questions.keys().flat_map(|id| [Of::Question(*id), Of::Answer(*id)]);
            for of in of_ticket.chain(of_questions).chain(row.replies().map(Of::Reply)) {
                forget(transaction, of)?;
            }
            transaction.prepare_cached("DELETE FROM ticket WHERE id = ?1")?.execute(params![sql(ticket.0)]).map(drop)
        }
        Record::Marks(marks) => {
            let insert = "INSERT OR REPLACE INTO marks (id, row, sum) VALUES (?1, ?2, ?3)";
            write(transaction, "marks", insert, &[id(1), json(marks)?.as_str().into()])
        }
        Record::Inbox(lead, reply, worker) => {
            let insert = "INSERT OR REPLACE INTO inbox (reply, lead, worker, sum) VALUES (?1, ?2, ?3, ?4)";
            write(transaction, "inbox", insert, &[id(reply.0), id(lead.0), id(worker.0)])
        }
        Record::InboxRead(lead, through) => {
            let read: Vec<i64> = transaction
                .prepare_cached("DELETE FROM inbox WHERE lead = ?1 AND reply <= ?2 RETURNING reply")?
                .query_map(params![sql(lead.0), sql(through.0)], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            read.into_iter().try_for_each(|reply| forget(transaction, Of::Reply(ReplyId(unsql(reply)))))?;
            let insert = "INSERT OR REPLACE INTO inbox_read (lead, reply, sum) VALUES (?1, ?2, ?3)";
            write(transaction, "inbox_read", insert, &[id(lead.0), id(through.0)])
        }
        other => unreachable!("the core of this version knows no record {other:?}"),
    }
}

/// Writes a row: its columns in the order of the table, and the checksum after them.
fn write(transaction: &Transaction<'_>, table: &str, insert: &str, columns: &[ValueRef<'_>]) -> rusqlite::Result<()> {
    let sum = ValueRef::Integer(checksum(table, columns));
    let values = columns.iter().chain([&sum]).map(|value| ToSqlOutput::Borrowed(*value));
    transaction.prepare_cached(insert)?.execute(params_from_iter(values)).map(drop)
}

/// Gives the row of a ticket that was changed in place its checksum.
fn seal(transaction: &Transaction<'_>, ticket: TicketId) -> rusqlite::Result<()> {
    let id = sql(ticket.0);
    let sum = transaction.prepare_cached(TICKET)?.query_row([id], |row| checksum_of("ticket", row)).optional()?;
    transaction.prepare_cached("UPDATE ticket SET sum = ?2 WHERE id = ?1")?.execute(params![id, sum]).map(drop)
}

/// The CRC-32 of a row: of its table, and of each column with its kind and its length, so that no two rows give the same bytes.
fn checksum(table: &str, columns: &[ValueRef<'_>]) -> i64 {
    let mut sum = crc32fast::Hasher::new();
    let mut take = |kind: u8, bytes: &[u8]| {
        sum.update(&[kind]);
        sum.update(&(bytes.len() as u64).to_be_bytes());
        sum.update(bytes);
    };
    take(b't', table.as_bytes());
    for column in columns {
        match column {
            ValueRef::Integer(number) => take(b'i', &number.to_be_bytes()),
            ValueRef::Text(text) => take(b't', text),
            // Our tables are strict and have no other columns.
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => take(b'?', &[]),
        }
    }
    sum.finalize().into()
}

/// The checksum of a row with all columns of its table, the last of which says what it should be.
fn checksum_of(table: &str, row: &Row<'_>) -> rusqlite::Result<i64> {
    let last = row.as_ref().column_count() - 1;
    let columns = (0..last).map(|column| row.get_ref(column)).collect::<Result<Vec<_>, _>>()?;
    Ok(checksum(table, &columns))
}

/// Whether such a row is as it was written.
fn is_whole(table: &str, row: &Row<'_>) -> rusqlite::Result<bool> {
    let last = row.as_ref().column_count() - 1;
    Ok(row.get_ref(last)? == ValueRef::Integer(checksum_of(table, row)?))
}

/// What is said of one that is not.
fn changed(table: &str, row: &str) -> String {
    format!("table {table}, row {row}: its checksum is wrong, so that something has changed it since it was written")
}

fn forget(transaction: &Transaction<'_>, of: Of) -> rusqlite::Result<()> {
    transaction.prepare_cached("DELETE FROM text WHERE kind = ?1 AND id = ?2")?.execute(of.key()).map(drop)
}

/// Ids count up from one, so that they never come to where the two kinds of integers differ.
fn sql(id: u64) -> i64 {
    id.cast_signed()
}

fn json(row: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(row).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn connect_writer(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_MAX)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

fn connect_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_MAX)?;
    Ok(connection)
}

/// For a look at a file that may be none of ours: without so much as a new file beside it. A write-ahead log is a part of
/// the journal, and to read that, SQLite needs its index of it; where there is none, nothing is needed.
fn connect_inspector(path: &Path) -> rusqlite::Result<Connection> {
    if fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0) {
        return connect_reader(path);
    }
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri, flags)
}

/// Makes an empty journal beside its place, and moves it there once it is whole and on the disk.
fn make(path: &Path) -> Result<(), OpenError> {
    let io_error = |source| OpenError::Io { file: path.to_owned(), source };
    // Without its file, what these say belongs to nothing; SQLite would delete it or, worse, apply it.
    for suffix in ["-wal", "-journal"] {
        let left = beside(path, suffix);
        if left.exists() {
            return Err(OpenError::Torn { file: path.to_owned(), left });
        }
    }
    let new = beside(path, ".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(error)),
        _ => {}
    }
    // Tasks and replies are nobody else's business; SQLite gives its other files the same mode.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(io_error)?;
    let fill = || -> rusqlite::Result<()> {
        let connection = Connection::open(&new)?;
        connection.execute_batch(SCHEMA)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", VERSION)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.close().map_err(|(_, error)| error)
    };
    fill().map_err(|source| OpenError::Sqlite { file: new.clone(), source })?;
    let settle = || {
        File::open(&new)?.sync_all()?;
        fs::rename(&new, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    };
    settle().map_err(io_error)
}

/// Looks at the whole file without a change to it, and reads the rows.
fn check(path: &Path) -> Result<Tables, OpenError> {
    check_header(path)?;
    let damaged = |what: String| OpenError::Damaged { file: path.to_owned(), what };
    let sql_error = |error: rusqlite::Error| match error.sqlite_error_code() {
        // Not the file's fault, as far as anybody knows.
        Some(
            ErrorCode::CannotOpen
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::PermissionDenied
            | ErrorCode::SystemIoFailure,
        ) => OpenError::Sqlite { file: path.to_owned(), source: error },
        // We wrote this file, so that a table or a column that is not there any more was there.
        _ => damaged(error.to_string()),
    };
    let connection = connect_inspector(path).map_err(sql_error)?;
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(sql_error)?;
    if found != "ok" {
        return Err(damaged(found.replace('\n', " ")));
    }
    let mut tables = Tables::default();
    for Source { table, select, record } in SOURCES {
        let mut statement = connection.prepare(select).map_err(sql_error)?;
        let mut rows = statement.query([]).map_err(sql_error)?;
        while let Some(row) = rows.next().map_err(sql_error)? {
            let id = row.get(0).map(unsql).map_err(sql_error)?;
            if !is_whole(table, row).map_err(sql_error)? {
                return Err(damaged(changed(table, &id.to_string())));
            }
            let record = record(id, row).map_err(|error| damaged(format!("table {table}, row {id}: {error}")))?;
            tables.put(record);
        }
    }
    // They are read when they are asked for, which would be late to learn that one is not what it was.
    let mut statement = connection.prepare("SELECT kind, id, body, at, sum FROM text").map_err(sql_error)?;
    let mut rows = statement.query([]).map_err(sql_error)?;
    while let Some(row) = rows.next().map_err(sql_error)? {
        if !is_whole("text", row).map_err(sql_error)? {
            let kind = row.get_ref(0).and_then(|kind| Ok(kind.as_bytes()?.to_vec())).map_err(sql_error)?;
            let id: i64 = row.get(1).map_err(sql_error)?;
            return Err(damaged(changed("text", &format!("{} {id}", String::from_utf8_lossy(&kind)))));
        }
    }
    Ok(tables)
}

/// The row of one ticket.
const TICKET: &str = "SELECT id, row, seen, at, sum FROM ticket WHERE id = ?1";

/// Where the rows are. The first column is their id, and they come with all of them, since the checksum is that of all.
struct Source {
    table: &'static str,
    select: &'static str,
    record: fn(u64, &Row<'_>) -> rusqlite::Result<Record>,
}

const SOURCES: &[Source] = &[
    Source {
        table: "worker",
        select: "SELECT id, row, sum FROM worker",
        record: |id, row| Ok(Record::Worker(WorkerId(id), parse(row)?)),
    },
    Source {
        table: "ticket",
        select: "SELECT id, row, seen, at, sum FROM ticket",
        record: |id, row| Ok(Record::Ticket(TicketId(id), parse(row)?)),
    },
    Source {
        table: "ticket",
        select: "SELECT id, row, seen, at, sum FROM ticket WHERE seen",
        record: |id, _| Ok(Record::Seen(TicketId(id))),
    },
    Source {
        table: "marks",
        select: "SELECT id, row, sum FROM marks",
        record: |_, row| Ok(Record::Marks(parse(row)?)),
    },
    Source {
        table: "inbox",
        select: "SELECT reply, lead, worker, sum FROM inbox",
        record: |reply, row| {
            Ok(Record::Inbox(LeadId(unsql(row.get(1)?)), ReplyId(reply), WorkerId(unsql(row.get(2)?))))
        },
    },
    Source {
        table: "inbox_read",
        select: "SELECT lead, reply, sum FROM inbox_read",
        record: |lead, row| Ok(Record::InboxRead(LeadId(lead), ReplyId(unsql(row.get(1)?)))),
    },
];

fn parse<T: serde::de::DeserializeOwned>(row: &Row<'_>) -> rusqlite::Result<T> {
    serde_json::from_str(&row.get::<_, String>(1)?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, error.into()))
}

fn unsql(id: i64) -> u64 {
    id.cast_unsigned()
}

/// Whether this is a journal of a version that we know, from its first bytes alone.
fn check_header(path: &Path) -> Result<(), OpenError> {
    let file = || path.to_owned();
    let mut header = Vec::new();
    let opened = File::open(path).map_err(|source| OpenError::Io { file: file(), source })?;
    opened
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut header)
        .map_err(|source| OpenError::Io { file: file(), source })?;
    let number = |at: usize| header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    if !header.starts_with(b"SQLite format 3\0") || header.len() < HEADER_BYTES || number(68) != Some(APPLICATION_ID) {
        return Err(OpenError::NotAJournal { file: file() });
    }
    match number(60) {
        Some(VERSION) => Ok(()),
        Some(found) if found > VERSION => Err(OpenError::Newer { file: file(), found, known: VERSION }),
        Some(found) if found > 0 => Err(OpenError::Older { file: file(), found, known: VERSION }),
        _ => Err(OpenError::NotAJournal { file: file() }),
    }
}

/// A file beside the journal that one process holds locked. It stays when it is let go: to remove it could take it away
/// from the next one.
struct Lock {
    _file: File,
}

impl Lock {
    fn take(journal: &Path) -> Result<Self, OpenError> {
        let path = beside(journal, ".lock");
        let io_error = |source| OpenError::Io { file: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io_error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Whoever has just locked it may not have said who it is.
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim().parse().ok();
                return Err(OpenError::InUse { file: journal.to_owned(), holder: Holder(holder) });
            }
            Err(TryLockError::Error(error)) => return Err(io_error(error)),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(io_error)?;
        Ok(Self { _file: file })
    }
}

/// The process that has a journal open, where it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder(pub Option<u32>);

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(process) => write!(f, "process {process}"),
            None => f.write_str("another process"),
        }
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
