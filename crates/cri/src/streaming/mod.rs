//! Exec, attach and port-forward for whoever has the address: a token that is good for one use, then a WebSocket with
//! numbered channels (`v4.channel.k8s.io`, `v5.channel.k8s.io`) or SPDY/3.1.

mod channel;
mod forward;
mod server;
mod spdy;
mod standard;
mod tokens;

pub use server::serve;
pub use tokens::{Session, Tokens};
