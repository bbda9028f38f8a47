//! Exec and attach for whoever has the address: a token that is good for one use, then a WebSocket with numbered
//! channels (`v4.channel.k8s.io`, `v5.channel.k8s.io`).

mod channel;
mod server;
mod tokens;

pub use server::serve;
pub use tokens::{Session, Tokens};
