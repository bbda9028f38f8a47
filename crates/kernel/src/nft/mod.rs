//! nftables through netlink: what a ruleset is made of, one atomic transaction, and reading it back.
//!
//! - [`Batch`] a list of operations, applied whole or not at all by [`Nft::commit`]
//! - [`Chain`], [`Set`], [`Element`], [`Rule`], [`Expr`] what the operations carry
//! - [`matches`] what rules of several tables say alike
//! - [`held`] links that pass nothing before somebody lets them go
//! - [`Nft`] the socket, bound to the network namespace of the thread that opened it
//! - [`Flow`] a connection that the kernel tracks: listed and forgotten by [`Nft`], too
//! - [`NftError`] which operation was refused, and why
//!
//! There is no text form and no `nft` process: the kernel's own messages are encoded and decoded here.

mod attr;
mod batch;
mod conntrack;
mod encode;
mod error;
mod expr;
pub mod held;
mod list;
pub mod matches;
mod object;
mod socket;
#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use conntrack::{Flow, Side};
pub use error::NftError;
pub use expr::{
    CmpOp, CtDirection, CtKey, Expr, FibResult, MetaKey, NatKind, PayloadBase, Reg, RejectKind, Rule, Verdict,
};
pub use list::{ChainInfo, SetInfo};
pub use object::{
    Chain, ChainKind, Data, Element, Family, Field, Hook, Set, SetData, SetFlags, concat, octets, type_id,
    type_len,
};
pub use socket::Nft;
