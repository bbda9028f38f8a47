//! Each plugin on the real kernel: what it makes, that CHECK finds it and misses it, that DEL takes it away twice and without the
//! namespace, and that GC finds what DEL was not called for.

#![allow(clippy::unwrap_used)]

mod addresses;
mod bridged;
mod chained;
mod faults;
mod linked;
mod world;
