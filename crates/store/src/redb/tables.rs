//! The checkpoint: every key as it was at one revision.

use super::record::{Batch, Current};
use crate::store::{Change, Entry, Snapshot, StoreError};
use bytes::Bytes;
use redb::{ReadableDatabase, TableDefinition};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Key -> revision, expiry and value.
const CURRENT: TableDefinition<&str, &[u8]> = TableDefinition::new("current");
/// Name -> number.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

const REVISION: &str = "revision";
const COMPACTED: &str = "compacted";
const FORMAT: &str = "format";
/// Rows with an expiry, and the past in the journal.
const FORMAT_NOW: u64 = 2;
/// The revision of an empty store. Nothing happened at it, so there is nothing to recall: it counts as compacted.
const FIRST: u64 = 1;

pub(super) fn engine<E: Into<redb::Error>>(call: &'static str) -> impl FnOnce(E) -> StoreError {
    move |e| StoreError::Engine { call, source: Arc::new(e.into()) }
}

fn corrupt(call: &'static str) -> StoreError {
    let source = Arc::new(std::io::Error::from(std::io::ErrorKind::InvalidData));
    StoreError::Engine { call, source }
}

/// Where the numbers stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// The last revision that is in the checkpoint.
    pub revision: u64,
    /// Changes up to here are not all kept.
    pub compacted: u64,
}

/// Makes the tables if they are missing, and reads the marks.
pub fn open(db: &redb::Database) -> Result<Marks, StoreError> {
    let read = || -> Result<Option<(u64, Marks)>, redb::Error> {
        let txn = db.begin_read()?;
        let table = match txn.open_table(META) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let read = |name| table.get(name).map(|v| v.map_or(0, |v| v.value()));
        let marks = Marks { revision: read(REVISION)?, compacted: read(COMPACTED)? };
        Ok(Some((read(FORMAT)?, marks)))
    };
    match read().map_err(engine("read marks"))? {
        Some((FORMAT_NOW, marks)) => Ok(marks),
        Some((format, _)) => {
            let why = format!("it has format {format}, this program reads {FORMAT_NOW}");
            Err(StoreError::Engine {
                call: "open the database file",
                source: Arc::new(std::io::Error::other(why)),
            })
        }
        None => {
            let marks = Marks { revision: FIRST, compacted: FIRST };
            write(db, std::iter::empty(), marks)?;
            Ok(marks)
        }
    }
}

/// Puts the newest state of each key of the batches into the checkpoint, in one durable transaction.
pub fn checkpoint(db: &redb::Database, batches: &[Batch], marks: Marks) -> Result<(), StoreError> {
    let mut newest: BTreeMap<&str, (&Change, u64)> = BTreeMap::new();
    for batch in batches {
        for (change, expires) in batch.changes.iter().zip(&batch.expires) {
            newest.insert(&change.key, (change, *expires));
        }
    }
    let rows = newest.into_values().map(|(change, expires)| {
        let value = (!change.deleted)
            .then(|| Current { revision: change.revision, expires, value: &change.value }.encode());
        (&*change.key, value)
    });
    write(db, rows, marks)
}

/// Fills an empty checkpoint with the entries of a snapshot, as of a revision.
pub fn fill(db: &redb::Database, snapshot: &Snapshot, revision: u64) -> Result<(), StoreError> {
    let rows = snapshot.entries.iter().map(|entry| {
        let row = Current { revision: entry.revision, expires: entry.expires, value: &entry.value };
        (&*entry.key, Some(row.encode()))
    });
    // Nothing of the past comes along.
    write(db, rows, Marks { revision, compacted: revision })
}

fn write<'a>(
    db: &redb::Database,
    rows: impl Iterator<Item = (&'a str, Option<Vec<u8>>)>,
    marks: Marks,
) -> Result<(), StoreError> {
    let write = || -> Result<(), redb::Error> {
        let mut txn = db.begin_write()?;
        txn.set_durability(redb::Durability::Immediate)?;
        // A killed process leaves a file that opens at once. The second fsync that it costs holds up no writer: theirs is
        // the journal's.
        txn.set_quick_repair(true);
        {
            let mut current = txn.open_table(CURRENT)?;
            for (key, row) in rows {
                match row {
                    Some(row) => drop(current.insert(key, row.as_slice())?),
                    None => drop(current.remove(key)?),
                }
            }
            let mut meta = txn.open_table(META)?;
            meta.insert(REVISION, marks.revision)?;
            meta.insert(COMPACTED, marks.compacted)?;
            meta.insert(FORMAT, FORMAT_NOW)?;
        }
        txn.commit()?;
        Ok(())
    };
    write().map_err(engine("checkpoint"))
}

/// The keys under a prefix.
pub fn snapshot(db: &redb::Database, prefix: &str) -> Result<Snapshot, StoreError> {
    let mut found = Snapshot::default();
    let marks = each(db, prefix, |key, row| {
        let (key, value) = (Arc::from(key), Bytes::copy_from_slice(row.value));
        found.entries.push(Entry { key, revision: row.revision, expires: row.expires, value });
    })?;
    found.revision = marks.revision;
    found.compacted = marks.compacted;
    Ok(found)
}

/// Shows all keys under a prefix at one revision, in order.
pub fn each(
    db: &redb::Database,
    prefix: &str,
    mut show: impl FnMut(&str, Current<'_>),
) -> Result<Marks, StoreError> {
    let mut read = || -> Result<Option<Marks>, redb::Error> {
        let txn = db.begin_read()?;
        let meta = txn.open_table(META)?;
        let mark = |name| meta.get(name).map(|v| v.map_or(0, |v| v.value()));
        let marks = Marks { revision: mark(REVISION)?, compacted: mark(COMPACTED)? };
        for row in txn.open_table(CURRENT)?.range(prefix..)? {
            let (key, row) = row?;
            if !key.value().starts_with(prefix) {
                break;
            }
            let Some(row) = Current::decode(row.value()) else { return Ok(None) };
            show(key.value(), row);
        }
        Ok(Some(marks))
    };
    read().map_err(engine("snapshot"))?.ok_or_else(|| corrupt("snapshot"))
}

/// The value of a key.
pub fn value(db: &redb::Database, key: &str) -> Result<Option<Bytes>, StoreError> {
    let read = || -> Result<Option<Bytes>, redb::Error> {
        let row = db.begin_read()?.open_table(CURRENT)?.get(key)?;
        Ok(row.and_then(|r| Current::decode(r.value()).map(|c| Bytes::copy_from_slice(c.value))))
    };
    read().map_err(engine("read key"))
}
