//! Groups and versions that other servers serve: APIServices, and the way to these servers. Source: `kube-aggregator`.
//!
//! - [`Aggregation`] which servers there are at this moment; [`Remote`] one of them, and how it is asked
//! - [`order`] which group and which version comes first
//! - [`register`] keeps an APIService for each group and version that this server serves
//! - `available` whether a server can be asked, as its APIService says it; `learn` what it serves
//! - `pass` a request on its way there and back
//! - `trust` whom a connection believes

mod available;
mod learn;
pub mod order;
mod pass;
pub mod register;
mod remote;
mod table;
mod trust;

pub use available::follow;
pub use learn::Learned;
pub use pass::Foreign;
pub use remote::Remote;
pub use table::Aggregation;

/// The group of APIServices.
pub const GROUP: &str = "apiregistration.k8s.io";
/// Their name in URLs.
pub const PLURAL: &str = "apiservices";
