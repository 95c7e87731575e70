//! The journal's file: what is refused, and that it stays as it was then.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::id,
    time::Duration,
};

use lastword::delegation::{OpenError, TurnEnd, Work};
use proptest::prelude::*;
use rusqlite::Connection;

use crate::scene::{Folder, LEAD, LONG, send, worker};

/// A journal with something in it, closed.
async fn filled() -> Folder {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let ada = worker(&fleet, &stage).await;
    for number in 0..20 {
        send(&fleet, ada.id(), &format!("task {number}: {}", "word ".repeat(200))).await;
    }
    service.close().await;
    folder
}

/// Opening it fails, and leaves it as it was.
fn refused(folder: &Folder) -> OpenError {
    let files = || -> Vec<_> {
        ["fleet.journal", "fleet.journal-wal"].map(|name| fs::read(folder.journal().with_file_name(name)).ok()).into()
    };
    let before = files();
    let Err(error) = folder.try_open(Default::default()) else { panic!("it opened") };
    assert!(before == files(), "it was changed");
    let file = folder.journal().display().to_string();
    assert!(error.to_string().contains(&file), "{error} does not say which file");
    error
}

#[tokio::test]
async fn a_second_service_on_a_journal_is_refused_and_told_who_has_it() {
    let folder = Folder::new();
    let (service, _, _) = folder.open();
    let error = refused(&folder);
    assert!(matches!(error, OpenError::InUse { holder, .. } if holder.0 == Some(id())), "{error}");
    service.close().await;
    folder.open().0.close().await;
}

#[tokio::test]
async fn a_journal_is_readable_by_its_owner_alone() {
    let folder = Folder::new();
    let (service, _, _) = folder.open();
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let file = format!("{}{suffix}", folder.journal().display());
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    service.close().await;
}

#[tokio::test]
async fn a_file_that_is_something_else_is_refused() {
    let text = b"[fleet]\nport = 7777\n".to_vec();
    let contents = [Vec::new(), text, b"SQLite format 3\0".to_vec(), vec![0; 4096]];
    for content in contents {
        let folder = Folder::new();
        fs::write(folder.journal(), &content).unwrap();
        let error = refused(&folder);
        assert!(matches!(error, OpenError::NotAJournal { .. }), "{error}");
    }
    let folder = Folder::new();
    Connection::open(folder.journal()).unwrap().execute_batch("CREATE TABLE other (id INTEGER)").unwrap();
    assert!(matches!(refused(&folder), OpenError::NotAJournal { .. }));
}

#[tokio::test]
async fn a_journal_of_a_newer_version_is_refused() {
    let folder = filled().await;
    let journal = Connection::open(folder.journal()).unwrap();
    journal.pragma_update(None, "user_version", 4).unwrap();
    journal.close().unwrap();
    let error = refused(&folder);
    assert!(matches!(error, OpenError::Newer { found: 4, known: 3, .. }), "{error}");
}

#[tokio::test]
async fn a_journal_of_the_version_without_checksums_is_refused() {
    let folder = filled().await;
    let journal = Connection::open(folder.journal()).unwrap();
    journal.pragma_update(None, "user_version", 2).unwrap();
    journal.close().unwrap();
    let error = refused(&folder);
    assert!(matches!(error, OpenError::Older { found: 2, known: 3, .. }), "{error}");
}

#[tokio::test]
async fn a_journal_whose_pages_are_damaged_is_refused() {
    let folder = filled().await;
    let page: u64 = page_bytes(&folder.journal());
    let pages = fs::metadata(folder.journal()).unwrap().len() / page;
    assert!(pages > 3, "there is something to damage");
    let whole = fs::read(folder.journal()).unwrap();
    for damaged in 1..pages {
        let file = OpenOptions::new().write(true).open(folder.journal()).unwrap();
        // The head of a page, which says what is in it.
        file.write_all_at(&[0xff; 16], damaged * page).unwrap();
        let error = refused(&folder);
        assert!(matches!(error, OpenError::Damaged { .. }), "page {damaged}: {error}");
        file.write_all_at(&whole, 0).unwrap();
    }
    // The file is whole again.
    folder.open().0.close().await;
}

fn page_bytes(journal: &Path) -> u64 {
    let header = fs::read(journal).unwrap();
    u64::from(u16::from_be_bytes([header[16], header[17]]))
}

#[tokio::test]
async fn a_journal_that_was_cut_is_refused() {
    let folder = filled().await;
    let length = fs::metadata(folder.journal()).unwrap().len();
    OpenOptions::new().write(true).open(folder.journal()).unwrap().set_len(length / 2).unwrap();
    let error = refused(&folder);
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn a_row_that_was_changed_is_refused_by_its_name() {
    let changes = [
        ("UPDATE ticket SET row = '{}' WHERE id = 3", "table ticket, row 3: "),
        ("UPDATE ticket SET id = 99 WHERE id = 3", "table ticket, row 99: "),
        ("UPDATE worker SET sum = sum + 1", "table worker, row 1: "),
        ("UPDATE text SET body = 'another task' WHERE kind = 'task' AND id = 3", "table text, row task 3: "),
        ("UPDATE text SET kind = 'end' WHERE kind = 'task' AND id = 3", "table text, row end 3: "),
        ("UPDATE text SET kind = 'tas\u{1}' WHERE kind = 'task' AND id = 3", "table text, row tas\u{1} 3: "),
    ];
    for (change, place) in changes {
        let folder = filled().await;
        let journal = Connection::open(folder.journal()).unwrap();
        assert_eq!(journal.execute(change, []).unwrap(), 1, "{change}");
        journal.close().unwrap();
        let error = refused(&folder);
        assert!(matches!(&error, OpenError::Damaged { what, .. } if what.starts_with(place)), "{change}: {error}");
    }
}

#[tokio::test]
async fn a_text_that_changes_while_the_journal_is_open_is_not_shown() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    let sent = send(&fleet, ada.id(), "a task").await;
    ada.next().await;
    fleet.reply(ada.id(), Some(sent.ticket), "done").await.unwrap();
    let other = Connection::open(folder.journal()).unwrap();
    assert_eq!(other.execute("UPDATE text SET body = 'done?' WHERE kind = 'reply'", []).unwrap(), 1);
    let refused = fleet.poll(LEAD, sent.ticket, Duration::ZERO).await.unwrap_err().to_string();
    assert!(refused.contains("table text, row reply 1: its checksum is wrong"), "{refused}");
    drop(other);
    service.close().await;
}

/// Every row and every text of a journal, read without its checksums.
fn contents(journal: &Path) -> Vec<String> {
    let journal = Connection::open(journal).unwrap();
    let all = "SELECT 'worker', id, row FROM worker
        UNION ALL SELECT 'ticket', id, row || ' ' || seen || ' ' || at FROM ticket
        UNION ALL SELECT 'inbox', reply, lead || ' ' || worker FROM inbox UNION ALL SELECT 'read', lead, reply || '' FROM inbox_read
        UNION ALL SELECT kind, id, at || ' ' || body FROM text ORDER BY 1, 2";
    let mut select = journal.prepare(all).unwrap();
    let rows = select.query_map([], |row| {
        Ok(format!("{} {} {}", row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// A small journal with a row and a text of every kind, in which everything has ended: to open it changes nothing.
async fn one_of_each() -> Folder {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let mut ada = worker(&fleet, &stage).await;
    let asked = send(&fleet, ada.id(), "May it rain?").await.ticket;
    ada.next().await;
    let question = fleet.ask(ada.id(), asked, "Where?", Vec::new(), Duration::ZERO).await.unwrap().question;
    fleet.answer(LEAD, question, "In the garden.", Duration::ZERO).await.unwrap();
    for reply in ["It may.", "It did."] {
        fleet.reply(ada.id(), Some(asked), reply).await.unwrap();
    }
    ada.seat.ended(asked, TurnEnd::Ended, "I am done.".to_owned());
    let ended = send(&fleet, ada.id(), "Say something.").await.ticket;
    ada.next().await;
    ada.seat.ended(ended, TurnEnd::Ended, "Something.".to_owned());
    fleet.poll(LEAD, ended, LONG).await.unwrap();
    for letter in ["Hello.", "Hello again."] {
        fleet.reply(ada.id(), None, letter).await.unwrap();
    }
    let letters = fleet.inbox(LEAD, None).await.unwrap();
    fleet.inbox(LEAD, Some(letters[0].id)).await.unwrap();
    let id = worker(&fleet, &stage).await.id();
    fleet.stop(LEAD, id).await.unwrap();
    while fleet.list(LEAD).await.unwrap().iter().all(|seen| seen.worker != id || seen.death.is_none()) {
        tokio::task::yield_now().await;
    }
    service.close().await;
    folder
}

/// Bit by bit it would take minutes, so that most are of the bytes that say something: there are long rows of zeros.
#[test]
fn a_bit_that_flips_is_an_error_or_changes_nothing() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = runtime().block_on(one_of_each());
    // Whoever closes the file last moves all of it out of the write-ahead log.
    let content = contents(&folder.journal());
    assert!(!folder.journal().with_file_name("fleet.journal-wal").exists());
    let whole = fs::read(folder.journal()).unwrap();
    // Two workers and tickets, the letter that was not read and how far they were; then their texts.
    assert_eq!(content.len(), (2 + 2 + 1 + 1) + (2 + 1 + 2 + 1 + 1 + 1 + 3), "{content:#?}");
    let said: Vec<usize> = (0..whole.len()).filter(|byte| whole[*byte] != 0).collect();
    let byte = prop_oneof![4 => proptest::sample::select(said), 1 => 0..whole.len()];
    // What fails is a matter of one bit, which is named.
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(byte in byte, bit in 0..8_u8)| {
        let mut flipped = whole.clone();
        flipped[byte] ^= 1 << bit;
        let folder = Folder::new();
        fs::write(folder.journal(), &flipped).unwrap();
        let opened = runtime().block_on(async {
            let (service, fleet, _stage) = folder.try_open(Default::default())?;
            service.close().await;
            drop(fleet);
            Ok::<_, OpenError>(())
        });
        match opened {
            Ok(()) => assert_eq!(contents(&folder.journal()), content),
            Err(error) => {
                assert!(fs::read(folder.journal()).unwrap() == flipped, "it was changed: {error}");
                let file = folder.journal().display().to_string();
                assert!(error.to_string().contains(&file), "{error} does not say which file");
            }
        }
    });
}

#[tokio::test]
async fn a_write_ahead_log_without_its_journal_is_refused() {
    let folder = Folder::new();
    let log = folder.journal().with_file_name("fleet.journal-wal");
    fs::write(&log, b"what is left").unwrap();
    let error = refused(&folder);
    assert!(matches!(&error, OpenError::Torn { left, .. } if *left == log), "{error}");
    assert!(!folder.journal().exists());
}

#[tokio::test]
async fn what_a_crash_left_of_a_journal_that_was_being_made_is_no_hindrance() {
    let folder = Folder::new();
    fs::write(folder.journal().with_file_name("fleet.journal.new"), b"half of it").unwrap();
    folder.open().0.close().await;
}

/// Somebody else keeps the service from writing for longer than it waits.
#[tokio::test]
async fn nothing_is_acknowledged_once_the_journal_cannot_be_written() {
    let folder = Folder::new();
    let (service, fleet, stage) = folder.open();
    let ada = worker(&fleet, &stage).await;
    let sent = send(&fleet, ada.id(), "before").await;
    // Whoever holds the write lock keeps everybody else from writing.
    let other = Connection::open(folder.journal()).unwrap();
    other.busy_timeout(LONG).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = fleet.poll(LEAD, sent.ticket, LONG);
    let sending = fleet.send(LEAD, Work::new(ada.id(), "after"));
    let (sending, waiting, failed) = tokio::join!(sending, waiting, service.failed());
    let failed = failed.to_string();
    assert!(failed.contains(&folder.journal().display().to_string()) && failed.contains("locked"), "{failed}");
    assert_eq!(sending.unwrap_err().to_string(), failed);
    assert_eq!(waiting.unwrap_err().to_string(), failed);
    let refused = fleet.send(LEAD, Work::new(ada.id(), "later")).await.unwrap_err();
    assert_eq!(refused.to_string(), failed);
    drop(other);
    service.close().await;

    let (service, fleet, _stage) = folder.open();
    let seen = fleet.poll_all(LEAD, Duration::ZERO).await.unwrap();
    assert_eq!(seen.tickets.iter().map(|seen| seen.ticket).collect::<Vec<_>>(), [sent.ticket]);
    service.close().await;
}
