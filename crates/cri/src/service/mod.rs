//! The RPCs, one file per family. [`Service`] and [`Images`] are the tables from call to deed.

mod containers;
mod events;
mod image;
mod metrics;
mod node;
mod sandboxes;
mod stats;
mod streams;
mod table;

use crate::runtime::Runtime;

/// `runtime.v1.RuntimeService`.
#[derive(Clone)]
pub struct Service(pub Runtime);

/// `runtime.v1.ImageService`.
#[derive(Clone)]
pub struct Images(pub Runtime);
