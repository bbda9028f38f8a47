//! What keeps the server from being asked for more than it can do: requests are sorted by FlowSchemas, get seats of a
//! priority level, wait in fair queues or are refused; and no request lasts for ever. Source: KEP-1040.
//!
//! - [`Protection`] what each request passes
//! - `schema` which schema a request falls under
//! - `shares` how many seats each level has; `seats` who sits, who waits, who is next; `shuffle` in which queue
//! - `config` schemas and levels as the objects of the moment say
//! - [`follow`] keeps in each schema's status whether its level is there
//! - `width` how many seats a request takes
//! - [`time`] which requests may last, and how long the others may
//! - `counts` what is counted

mod config;
mod counts;
mod dangling;
mod enter;
mod schema;
mod seats;
mod shares;
mod shuffle;
pub mod time;
mod width;

pub use dangling::follow;
pub use enter::{Pass, Protection, Refused};
