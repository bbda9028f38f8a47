//! The controllers against a real API server in this process; where Pods have to run, the test plays kubelet and scheduler.

#![allow(clippy::unwrap_used)]

mod autoscalers;
mod budgets;
mod cluster;
mod daemon_sets;
mod deployments;
mod jobs;
mod namespaces;
mod node;
mod nodes_lost;
mod promises;
mod replica_sets;
mod resource_claims;
mod stateful_sets;
