//! Memory that the allocator keeps and nobody uses.
#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// How often is looked. What was freed less than a second ago may be wanted again, and stays.
const PAUSE: Duration = Duration::from_secs(2);

/// From now on gives freed memory back to the system while the process is idle, too: mimalloc does so only as part of other
/// work, so a daemon that has nothing to do would keep what its last burst of work took.
///
/// # Errors
/// If the thread cannot be started.
pub fn give_back() -> io::Result<()> {
    let look = || {
        loop {
            std::thread::sleep(PAUSE);
            // SAFETY: takes no pointer, and may be called by any thread at any time; where another allocator is the program's,
            // there is nothing to collect.
            unsafe { libmimalloc_sys::mi_collect(false) };
        }
    };
    std::thread::Builder::new().name("memory".to_owned()).spawn(look).map(drop)
}
