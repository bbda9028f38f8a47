//! One small process per Pod that outlives the daemon: it holds the Pod's namespaces, starts its containers, owns
//! their streams and log files, reaps them, and remembers how they ended.
//!
//! - [`main`] the process itself: the same binary, run with the argument `keeper`
//! - [`Client`] how the daemon speaks with it: calls and events on one connection, a further one for each stream
//! - [`spawn`](spawn::spawn) how the daemon starts it: `nursery` forks it
//!
//! It has one thread and a poll loop, no async runtime: each container is a forked child of it.

mod calls;
mod client;
mod connection;
mod frame;
mod launcher;
mod log;
mod looping;
mod message;
mod nursery;
mod process;
pub mod spawn;
mod start;
mod task;
mod users;

pub use client::{Client, KeeperError, Stream, StreamEnd, StreamReader, StreamWriter};
pub use frame::Kind;
pub use launcher::{Launcher, Native};
pub use message::{ContainerState, Event, Exit, NewContainer, NewExec, Phase, Reply, Request, Size};
pub(crate) use nursery::Nursery;
pub use start::main;
