//! What is slow and may follow an answer: the end of a socket, the removal of a link. Whoever ends an nftables socket waits until all
//! that was just taken out of a table is nobody's any more, some 10 ms, in which nobody else in the network namespace can change a
//! table. A moment later there is nothing to wait for.
//!
//! In a process that goes on, a thread does it; in one that ends with its answer ([`program`]), a child that is forked then
//! ([`finish`]).

use std::os::fd::AsFd;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use netlink_sys::Socket;

use crate::proc;

/// Ends that wait at most; one more is waited for, so that descriptors do not run out.
const WAITING: usize = 512;
/// After it, what was taken out of a table before is nobody's any more.
const MOMENT: Duration = Duration::from_millis(100);

type Work = Box<dyn FnOnce() + Send>;

/// What a program that ends with its answer has put off.
#[derive(Default)]
struct PutOff {
    ends: Vec<Socket>,
    works: Vec<Work>,
}

static PROGRAM: Mutex<Option<PutOff>> = Mutex::new(None);
static THREAD: OnceLock<Option<SyncSender<Socket>>> = OnceLock::new();

fn in_program<T>(put: impl FnOnce(&mut PutOff) -> T) -> Option<T> {
    PROGRAM.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(put)
}

/// This process is a program that ends with its answer: what is put off from now on waits for [`finish`].
pub fn program() {
    *PROGRAM.lock().unwrap_or_else(PoisonError::into_inner) = Some(PutOff::default());
}

/// True in such a program.
#[must_use]
pub fn is_program() -> bool {
    in_program(|_| ()).is_some()
}

/// Puts `work` off until [`finish`]. False if this is no such program; then nothing is put off.
pub fn put_off(work: impl FnOnce() + Send + 'static) -> bool {
    in_program(|put| put.works.push(Box::new(work))).is_some()
}

/// Ends a socket whose end may take a while.
pub(crate) fn end(socket: Socket) {
    let mut socket = Some(socket);
    if in_program(|put| put.ends.extend(socket.take())).is_some() {
        return;
    }
    let thread = THREAD.get_or_init(|| {
        let (sender, ends) = sync_channel::<Socket>(WAITING);
        let end_all = move || {
            while let Ok(first) = ends.recv() {
                std::thread::sleep(MOMENT);
                std::iter::once(first).chain(ends.try_iter()).for_each(drop);
            }
        };
        let thread = std::thread::Builder::new().name("socket-end".to_owned()).stack_size(64 << 10);
        thread.spawn(end_all).ok().map(|_| sender)
    });
    if let (Some(thread), Some(socket)) = (thread, socket) {
        // Full: it is ended here, by the drop of the error.
        let _ = thread.try_send(socket);
    }
}

/// The answer has been given: what was put off is done by a child, and this process may end. Where none can be forked, it is
/// done here.
pub fn finish() {
    let put = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(PutOff { ends, works }) = put.filter(|put| !put.ends.is_empty() || !put.works.is_empty()) else {
        return;
    };
    let works = Mutex::new(Some(works));
    let work = || {
        works
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .into_iter()
            .flatten()
            .for_each(|work| work())
    };
    let keep: Vec<_> = ends.iter().map(AsFd::as_fd).collect();
    let forked = proc::fork(proc::NewNamespaces::default(), None, &keep, || {
        // Whoever reads the answer waits for its end.
        proc::silence();
        work();
        std::thread::sleep(MOMENT);
        proc::exit_now(0)
    });
    match forked {
        // The child has them, and ends them.
        Ok(child) => drop(child),
        Err(error) => {
            tracing::debug!(%error, "no child does what may follow");
            work();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use netlink_sys::{SocketAddr, protocols::NETLINK_ROUTE};

    use super::*;

    #[test]
    fn a_process_that_goes_on_has_a_thread_end_what_is_slow() {
        assert!(!is_program() && !put_off(|| panic!("never")));
        let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
        let port = socket.bind_auto().unwrap().port_number();
        end(socket);
        // Its number is free again.
        let start = Instant::now();
        let mut next = Socket::new(NETLINK_ROUTE).unwrap();
        while next.bind(&SocketAddr::new(port, 0)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(10), "it was not ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
