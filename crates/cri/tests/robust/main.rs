//! What a runtime has to stand: being killed at every step of every call, calls that are repeated, given up and raced, thousands of
//! Pods, and the bugs that others have had (`bugs.md` names the test of each).

#![allow(clippy::unwrap_used)]

mod apart;
mod bugs;
mod churn;
mod crash;
#[path = "../harness/mod.rs"]
mod harness;
mod network_bugs;
mod process_bugs;
mod registry;
mod repeated;
mod scenario;
mod world;
