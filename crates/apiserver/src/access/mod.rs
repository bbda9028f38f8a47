//! Who may do what.
//!
//! - [`gate`] what every request passes: who is it, and may he
//! - [`attributes`] what a request wants, [`decision`] what is said to it
//! - [`authorizer`] those who decide, one after the other
//! - [`token`] what a bearer shows, [`impersonate`] asking as somebody else
//! - [`rbac`] roles, and who has them
//! - [`node`] what nodes may do
//! - [`review`] questions about access
//! - [`admission`] what depends on the object that is written
//! - [`certificates`] certificates that clients ask for
//! - [`audit`] who did what
//! - [`follow`] keeps what is derived from objects fresh

pub mod admission;
pub mod attributes;
pub mod audit;
pub mod authorizer;
pub mod certificates;
pub mod decision;
pub mod follow;
pub mod gate;
pub mod impersonate;
pub mod node;
pub mod rbac;
pub mod review;
pub mod token;

pub use authorizer::Authorizer;
