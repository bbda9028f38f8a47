//! Libraries and programs that people build on Kubernetes with, unmodified, against Trine.
//!
//! - `informer` client-go: protobuf, watches instead of lists, a past that is forgotten
//! - `operator` controller-runtime: a kind of its own, finalizers, owners, a lease
//! - `helm` a chart with hooks and a kind of its own
//! - `python` the Python client
//! - `kube` kube-rs
//! - `talking` a program that is spoken with by lines

mod helm;
mod informer;
mod kube;
mod operator;
mod python;
mod talking;

use trine_tests::until;
