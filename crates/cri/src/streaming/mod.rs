//! Exec, attach and port-forward for whoever has the address: a token that is good for one use, then for exec and attach a
//! WebSocket with numbered channels (`v4.channel.k8s.io`, `v5.channel.k8s.io`), for port-forward SPDY/3.1
//! (or such a WebSocket).

mod channel;
mod forward;
mod server;
mod spdy;
mod tokens;

pub use server::serve;
pub use tokens::{Session, Tokens};
