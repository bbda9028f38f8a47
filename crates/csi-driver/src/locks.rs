//! One call per volume or snapshot at a time, unless all of them only read it: another one is told to come again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Cause;

/// What has a call under way, with the number of those that only read it; 0 is one that may change it.
#[derive(Debug, Clone, Default)]
pub struct Locks(Arc<Mutex<BTreeMap<String, usize>>>);

/// Held while a call works on a volume; let go of when dropped, also by a panic.
#[derive(Debug)]
pub struct Guard {
    locks: Locks,
    id: String,
}

impl Locks {
    /// Takes the lock of volume `id`.
    ///
    /// # Errors
    /// `ABORTED` if another call has it.
    pub fn take(&self, id: &str) -> Result<Guard, Cause> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if locks.contains_key(id) {
            return Err(Cause::Busy(id.to_owned()));
        }
        locks.insert(id.to_owned(), 0);
        Ok(Guard { locks: self.clone(), id: id.to_owned() })
    }

    /// Takes the lock of `id` beside others that only read it, too.
    ///
    /// # Errors
    /// `ABORTED` if a call has it that may change it.
    pub fn share(&self, id: &str) -> Result<Guard, Cause> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match locks.get_mut(id) {
            Some(0) => return Err(Cause::Busy(id.to_owned())),
            Some(readers) => *readers += 1,
            None => drop(locks.insert(id.to_owned(), 1)),
        }
        Ok(Guard { locks: self.clone(), id: id.to_owned() })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut locks = self.locks.0.lock().unwrap_or_else(PoisonError::into_inner);
        match locks.get_mut(&self.id) {
            Some(readers) if *readers > 1 => *readers -= 1,
            _ => drop(locks.remove(&self.id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_only_read_share() {
        let locks = Locks::default();
        let first = locks.share("s").unwrap();
        let second = locks.share("s").unwrap();
        drop(first);
        assert!(matches!(locks.take("s"), Err(Cause::Busy(_))));
        drop(second);
        let _alone = locks.take("s").unwrap();
        assert!(matches!(locks.share("s"), Err(Cause::Busy(_))));
    }

    #[test]
    fn a_volume_is_worked_on_by_one_call_even_after_a_panic() {
        let locks = Locks::default();
        let held = locks.take("v").unwrap();
        assert!(matches!(locks.take("v"), Err(Cause::Busy(_))));
        locks.take("w").unwrap();
        let _ = std::thread::spawn(move || {
            let _held = held;
            panic!("on purpose");
        })
        .join();
        locks.take("v").unwrap();
    }
}
