//! What tests that need root, a program or a kernel feature ask first. A skipped test is named and counted.
//!
//! - [`deaths`] processes that die where a test says
//! - [`sctp`] sockets of a protocol that the standard library has none of

pub mod deaths;
pub mod sctp;

use std::io::Write;

/// The file that collects skipped tests, one `name<TAB>reason` line each; set by `cargo xtask test`.
pub const SKIP_FILE: &str = "TRINE_SKIPPED_TESTS";

/// Says that `test` could not run, and why. The caller returns right after.
pub fn skip(test: &str, reason: &str) {
    eprintln!("SKIPPED {test}: {reason}");
    if let Some(path) = std::env::var_os(SKIP_FILE)
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
    {
        let _ = writeln!(file, "{test}\t{reason}");
    }
}

/// True if the test may go on: it runs as root.
#[must_use]
pub fn root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(test, "needs root");
    }
    root
}

/// True if the test may go on: `program` is on PATH (or in a sbin folder).
#[must_use]
pub fn program(test: &str, program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let found = path
        .split(':')
        .chain(["/usr/sbin", "/sbin"])
        .any(|dir| std::path::Path::new(dir).join(program).is_file());
    if !found {
        skip(test, &format!("needs the program {program}"));
    }
    found
}

/// Set where the machine is emulated, by `cargo xtask vm`: how long something takes says nothing there.
pub const EMULATED: &str = "TRINE_EMULATED";

/// True if how long something takes may be judged.
#[must_use]
pub fn time_counts() -> bool {
    std::env::var_os(EMULATED).is_none()
}

/// True if the test may go on: cgroup version 2 is alone on this machine.
#[must_use]
pub fn cgroup_2(test: &str) -> bool {
    let alone = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    if !alone {
        skip(test, "needs cgroup version 2 alone");
    }
    alone
}

/// What a test does where a [`failpoint`] is reached: dies, waits, or writes down that it was there.
#[cfg(debug_assertions)]
static REACHED: std::sync::OnceLock<fn(&'static str)> = std::sync::OnceLock::new();

/// A place at which a test may end this process or hold it up: between two effects that a crash could part. It does nothing
/// unless the program that runs has said [`on_failpoint`], and is not even compiled into a release.
#[inline]
pub fn failpoint(name: &'static str) {
    #[cfg(debug_assertions)]
    if let Some(reached) = REACHED.get() {
        reached(name);
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// From now on `reached` is called at every [`failpoint`] of this process, on whatever thread that is. The first call counts.
#[cfg(debug_assertions)]
pub fn on_failpoint(reached: fn(&'static str)) {
    let _ = REACHED.set(reached);
}

thread_local! {
    static CHANCE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// What is random on this thread begins anew with `seed`, in a program with [`fixed_chance`](crate::fixed_chance).
pub fn seed_chance(seed: u64) {
    CHANCE.set(seed);
}

/// The next bytes of this thread (SplitMix64).
#[must_use]
pub fn next_chance() -> [u8; 8] {
    let state = CHANCE.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    CHANCE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)).to_le_bytes()
}

/// In the test program that says this, what the system gives as random follows from [`seed_chance`] on each thread, so that a run
/// can be repeated: UIDs, names, the order of maps. The standard library asks a weak symbol for that purpose.
#[macro_export]
macro_rules! fixed_chance {
    () => {
        #[allow(unsafe_code)]
        mod fixed_chance {
            #[unsafe(no_mangle)]
            extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
                // SAFETY: the caller of getrandom(2) gives `length` bytes to write to.
                let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
                for piece in buffer.chunks_mut(8) {
                    piece.copy_from_slice(&$crate::testing::next_chance()[..piece.len()]);
                }
                length.cast_signed()
            }
        }
    };
}
