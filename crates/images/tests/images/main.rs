//! The image store from outside: archives, layers and roots on a real file system, a real registry, several processes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it should do")]

mod build;
mod files;
mod foreign;
mod hostile;
mod made;
mod mirrors;
mod processes;
mod registry;
mod roots;
mod serving;
