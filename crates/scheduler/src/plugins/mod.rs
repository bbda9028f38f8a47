//! The plugins, one file each, named as upstream's.

pub mod node_affinity;
pub mod node_ports;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod node_volume_limits;
pub mod taint_toleration;
pub mod volume_binding;
