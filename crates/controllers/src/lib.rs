//! What follows from what is desired? One folder per controller: `plan.rs` decides purely, `mod.rs` watches and acts.
//!
//! - [`namespace`] empties namespaces that are being deleted
//! - [`namespace_defaults`] the `default` ServiceAccount and `kube-root-ca.crt` of every namespace
//! - [`node_ipam`] a Pod range for every node
//! - [`node_lifecycle`] whether a node is there, and what its conditions keep away
//! - [`taint_eviction`] Pods leave nodes that drive them off
//! - [`device_taint_eviction`] and devices that drive them off
//! - [`endpoint_slice`] which Pods stand behind which Service
//! - [`endpoints`] the same in the older form
//! - [`endpoint_slice_mirroring`] what somebody wrote in the older form, in the newer one
//! - [`volume_binder`] which volume belongs to which claim
//! - [`volume_protection`] claims in use and bound volumes are not removed
//! - [`attach_detach`] which volume is attached to which node
//! - [`pod_gc`] Pods of vanished nodes
//! - [`certificates`] certificates that are asked for: approved and signed
//! - [`service_account_token`] Secrets that hold a token go with their account
//! - [`role_aggregation`] ClusterRoles that are the sum of others
//! - [`garbage`] what is owned goes with its owners
//! - [`ephemeral_volume`] claims that live as long as their Pod
//! - [`resource_claim`] claims of devices: made for Pods, given back by them
//! - [`resource_quota`] how much of its quotas a namespace uses
//! - [`replica_set`] a number of Pods alike: ReplicaSets and ReplicationControllers
//! - [`deployment`] from one template to the next, without a gap
//! - [`daemon_set`] a Pod on every node that is to have one
//! - [`stateful_set`] Pods with names and claims of their own
//! - [`job`] Pods that run to their end
//! - [`ttl_after_finished`] Jobs go some time after it
//! - [`cron_job`] Jobs at certain times
//! - [`autoscaler`] as many Pods as what is measured asks for
//! - [`disruption`] how many Pods of a budget may be evicted
//! - [`workload`] what the controllers of workloads share
//! - [`frame`] the loop that the others share
//! - [`events`] what they tell

pub mod attach_detach;
pub mod autoscaler;
pub mod certificates;
pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod device_taint_eviction;
pub mod disruption;
pub mod endpoint_slice;
pub mod endpoint_slice_mirroring;
pub mod endpoints;
pub mod ephemeral_volume;
pub mod events;
pub mod frame;
pub mod garbage;
pub mod job;
pub mod namespace;
pub mod namespace_defaults;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod pod_gc;
pub mod replica_set;
pub mod resource_claim;
pub mod resource_quota;
pub mod role_aggregation;
pub mod service_account_token;
pub mod stateful_set;
pub mod taint_eviction;
pub mod ttl_after_finished;
pub mod volume_binder;
pub mod volume_protection;
pub mod workload;

pub use frame::{Clients, Config, ControllerError, SigningKey, run};
