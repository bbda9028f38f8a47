//! What is kept, and the effect of one write on it.

use super::record;
use crate::store::{Change, Entry, Op, Snapshot, StoreError, Write};
use bytes::Bytes;
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use std::sync::Arc;

/// Key -> revision and value.
const CURRENT: TableDefinition<&str, &[u8]> = TableDefinition::new("current");
/// Revision -> change.
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
/// (second of expiry, revision of the write) -> key.
const EXPIRY: TableDefinition<(u64, u64), &str> = TableDefinition::new("expiry");
/// Name -> number.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

const REVISION: &str = "revision";
const COMPACTED: &str = "compacted";
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
    /// The last revision given.
    pub revision: u64,
    /// Changes up to here are not all kept.
    pub compacted: u64,
}

/// Makes the tables if they are missing, and reads the marks.
pub fn open(db: &redb::Database) -> Result<Marks, StoreError> {
    let begin = || -> Result<Option<Marks>, redb::Error> {
        let txn = db.begin_read()?;
        let table = match txn.open_table(META) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let read = |name| table.get(name).map(|v| v.map_or(0, |v| v.value()));
        Ok(Some(Marks { revision: read(REVISION)?, compacted: read(COMPACTED)? }))
    };
    if let Some(marks) = begin().map_err(engine("read marks"))? {
        return Ok(marks);
    }
    let make = || -> Result<(), redb::Error> {
        let txn = db.begin_write()?;
        txn.open_table(CURRENT)?;
        txn.open_table(LOG)?;
        txn.open_table(EXPIRY)?;
        let mut meta = txn.open_table(META)?;
        meta.insert(REVISION, FIRST)?;
        meta.insert(COMPACTED, FIRST)?;
        drop(meta);
        txn.commit()?;
        Ok(())
    };
    make().map_err(engine("make tables"))?;
    Ok(Marks { revision: FIRST, compacted: FIRST })
}

/// The keys under a prefix.
pub fn snapshot(db: &redb::Database, prefix: &str) -> Result<Snapshot, StoreError> {
    let read = || -> Result<Option<Snapshot>, redb::Error> {
        let txn = db.begin_read()?;
        let meta = txn.open_table(META)?;
        let mark = |name| meta.get(name).map(|v| v.map_or(0, |v| v.value()));
        let mut found =
            Snapshot { entries: Vec::new(), revision: mark(REVISION)?, compacted: mark(COMPACTED)? };
        for row in txn.open_table(CURRENT)?.range(prefix..)? {
            let (key, row) = row?;
            if !key.value().starts_with(prefix) {
                break;
            }
            let Some((revision, value)) = record::decode_current(row.value()) else { return Ok(None) };
            let value = Bytes::copy_from_slice(value);
            found.entries.push(Entry { key: key.value().into(), revision, value });
        }
        Ok(Some(found))
    };
    read().map_err(engine("snapshot"))?.ok_or_else(|| corrupt("snapshot"))
}

/// The kept changes after a revision.
pub fn history(db: &redb::Database, after: u64) -> Result<Vec<Change>, StoreError> {
    let read = || -> Result<Vec<Option<Change>>, redb::Error> {
        let txn = db.begin_read()?;
        let mut changes = Vec::new();
        for row in txn.open_table(LOG)?.range(after + 1..)? {
            let (revision, row) = row?;
            changes.push(record::decode_change(revision.value(), row.value()));
        }
        Ok(changes)
    };
    let changes = read().map_err(engine("read log"))?;
    changes.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| corrupt("read log"))
}

/// The second at which the next key expires.
pub fn next_expiry(db: &redb::Database) -> Result<Option<u64>, StoreError> {
    let read = || -> Result<Option<u64>, redb::Error> {
        let txn = db.begin_read()?;
        let first = txn.open_table(EXPIRY)?.first()?.map(|(key, _)| key.value().0);
        Ok(first)
    };
    read().map_err(engine("read expiry"))
}

/// One transaction of the writer.
pub struct Batch<'t> {
    current: redb::Table<'t, &'static str, &'static [u8]>,
    log: redb::Table<'t, u64, &'static [u8]>,
    expiry: redb::Table<'t, (u64, u64), &'static str>,
    meta: redb::Table<'t, &'static str, u64>,
    marks: Marks,
    now: u64,
    /// Seconds; expiry is rounded up to a multiple.
    expiry_step: u64,
}

impl<'t> Batch<'t> {
    /// `now` in seconds since 1970, `expiry_step` in seconds.
    pub fn open(
        txn: &'t redb::WriteTransaction,
        marks: Marks,
        now: u64,
        expiry_step: u64,
    ) -> Result<Self, StoreError> {
        let open = || -> Result<Self, redb::Error> {
            Ok(Self {
                current: txn.open_table(CURRENT)?,
                log: txn.open_table(LOG)?,
                expiry: txn.open_table(EXPIRY)?,
                meta: txn.open_table(META)?,
                marks,
                now,
                expiry_step,
            })
        };
        open().map_err(engine("open tables"))
    }

    /// Applies a write whose expectation holds; otherwise nothing is changed.
    pub fn apply(&mut self, write: &Write) -> Result<Change, StoreError> {
        let existing = {
            let row = self.current.get(&*write.key).map_err(engine("read key"))?;
            match &row {
                None => None,
                Some(row) => {
                    let (revision, value) =
                        record::decode_current(row.value()).ok_or_else(|| corrupt("read key"))?;
                    Some((revision, Bytes::copy_from_slice(value)))
                }
            }
        };
        let actual = existing.as_ref().map_or(0, |(revision, _)| *revision);
        let expected = write.expect.revision();
        if actual != expected {
            let newest = self.marks.revision;
            return Err(StoreError::Conflict { key: write.key.clone(), expected, actual, newest });
        }
        let (deleted, value, ttl) = match (&write.op, existing) {
            (Op::Put { value, ttl }, _) => (false, value.clone(), *ttl),
            (Op::Delete { last: Some(last) }, Some(_)) => (true, last.clone(), None),
            (Op::Delete { last: None }, Some((_, value))) => (true, value, None),
            (Op::Delete { .. }, None) => {
                let newest = self.marks.revision;
                return Err(StoreError::Conflict { key: write.key.clone(), expected: 1, actual: 0, newest });
            }
        };
        let revision = self.marks.revision + 1;
        let change =
            Change { revision, key: write.key.clone(), previous: actual, deleted, value, at: self.now };
        self.record(&change, ttl).map_err(engine("write key"))?;
        self.marks.revision = revision;
        Ok(change)
    }

    fn record(&mut self, change: &Change, ttl: Option<u32>) -> Result<(), redb::Error> {
        let key = &*change.key;
        if change.deleted {
            self.current.remove(key)?;
        } else {
            let row = record::encode_current(change.revision, &change.value);
            self.current.insert(key, row.as_slice())?;
        }
        self.log.insert(change.revision, record::encode_change(change).as_slice())?;
        if let Some(ttl) = ttl {
            let at = (self.now + u64::from(ttl)).next_multiple_of(self.expiry_step);
            self.expiry.insert((at, change.revision), key)?;
        }
        Ok(())
    }

    /// Deletes what has expired by now.
    pub fn expire(&mut self) -> Result<Vec<Change>, StoreError> {
        let mut due = Vec::new();
        let mut collect = || -> Result<(), redb::Error> {
            let rows = self.expiry.extract_from_if(..=(self.now, u64::MAX), |_, _| true)?;
            for row in rows {
                let (at, key) = row?;
                due.push((at.value().1, Arc::<str>::from(key.value())));
            }
            Ok(())
        };
        collect().map_err(engine("read expiry"))?;
        let mut changes = Vec::new();
        for (revision, key) in due {
            let write =
                Write { key, expect: crate::store::Expect::At(revision), op: Op::Delete { last: None } };
            match self.apply(&write) {
                Ok(change) => changes.push(change),
                // It has been written again, or is gone.
                Err(StoreError::Conflict { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(changes)
    }

    /// Forgets the changes through a revision.
    pub fn compact(&mut self, through: u64) -> Result<(), StoreError> {
        let through = through.min(self.marks.revision);
        if through <= self.marks.compacted {
            return Ok(());
        }
        self.log.retain_in(..=through, |_, _| false).map_err(engine("compact"))?;
        self.marks.compacted = through;
        Ok(())
    }

    /// The newest revision that is older than `before` (seconds since 1970), among the first `most` kept ones.
    pub fn older_than(&self, before: u64, most: usize) -> Result<Option<u64>, StoreError> {
        let read = || -> Result<Option<u64>, redb::Error> {
            let mut newest = None;
            for row in self.log.iter()?.take(most) {
                let (revision, row) = row?;
                if record::change_time(row.value()).is_some_and(|at| at >= before) {
                    break;
                }
                newest = Some(revision.value());
            }
            Ok(newest)
        };
        read().map_err(engine("compact"))
    }

    /// Writes the marks; the transaction can be committed then.
    pub fn finish(mut self) -> Result<Marks, StoreError> {
        let marks = self.marks;
        let mut write = || -> Result<(), redb::Error> {
            self.meta.insert(REVISION, marks.revision)?;
            self.meta.insert(COMPACTED, marks.compacted)?;
            Ok(())
        };
        write().map_err(engine("write marks"))?;
        Ok(marks)
    }
}
