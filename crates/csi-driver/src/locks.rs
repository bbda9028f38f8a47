//! One call per volume at a time: a second one is told to come again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Cause;

/// The volumes with a call under way.
#[derive(Debug, Clone, Default)]
pub struct Locks(Arc<Mutex<BTreeSet<String>>>);

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
        let fresh = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
        if !fresh {
            return Err(Cause::Busy(id.to_owned()));
        }
        Ok(Guard { locks: self.clone(), id: id.to_owned() })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.locks.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
