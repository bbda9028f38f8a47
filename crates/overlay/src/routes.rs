//! The executor: the plan's routes, set and removed in the kernel. Its calls block.

use trine_kernel::netlink::{NetlinkError, Route};

use crate::plan::{self, Me, Peer};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The routes to other nodes could not be read, set or removed.
    #[error("overlay: cannot {call} the routes to other nodes")]
    Routes {
        /// What was tried.
        call: &'static str,
        /// What the kernel said.
        source: NetlinkError,
    },
    /// The executor's thread died.
    #[error("overlay: the executor failed: {message}")]
    Executor {
        /// The panic's message.
        message: String,
    },
}

fn error(call: &'static str) -> impl Fn(NetlinkError) -> OverlayError {
    move |source| OverlayError::Routes { call, source }
}

/// Makes the routes true to `peers`; gives how many were changed. Goes on after an error and gives the first.
pub(crate) fn sync(me: &Me, peers: &[Peer]) -> Result<usize, OverlayError> {
    let mut socket = Route::open().map_err(error("read"))?;
    let links = socket.addresses(None).map_err(error("read"))?;
    let there = socket.routes(false).map_err(error("read"))?;
    let wanted = plan::wanted(me, peers, &links);
    change(&mut socket, &plan::changes(&me.instance, &there, &wanted))
}

fn change(socket: &mut Route, changes: &plan::Changes) -> Result<usize, OverlayError> {
    let mut first = Ok(());
    for route in &changes.remove {
        first = first.and(socket.del_route(route).map_err(error("remove")));
    }
    for route in &changes.set {
        first = first.and(socket.replace_route(route).map_err(error("set")));
    }
    first.map(|()| changes.remove.len() + changes.set.len())
}

/// Removes the routes of an instance from the calling thread's network namespace. Absent is success.
///
/// # Errors
/// [`OverlayError`].
pub fn cleanup(instance: &str) -> Result<(), OverlayError> {
    let mut socket = Route::open().map_err(error("read"))?;
    let there = socket.routes(false).map_err(error("read"))?;
    change(&mut socket, &plan::changes(instance, &there, &[])).map(drop)
}
