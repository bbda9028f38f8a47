//! What does Linux say? The only crate with `unsafe`, netlink, mounts and other syscalls.
//!
//! - [`afterwards`] what is slow and may follow an answer
//! - `bpf` small programs that the kernel runs for us
//! - [`cgroup`] groups of processes with limits: v1, hybrid and v2
//! - [`container`] a child that mounts, pivots, drops privileges and becomes a container's process
//! - [`exec`] runs a program with input, output and a deadline
//! - [`filesystem`] making, recognising, measuring and growing file systems
//! - [`loopdev`] block devices made of files
//! - [`machine`] network, mount and UTS namespaces that make a machine within this one
//! - [`memory`] what the allocator keeps and nobody uses
//! - [`mountpoint`] single mounts of a storage driver, and what is mounted now
//! - [`netlink`] links, addresses, routes and neighbours
//! - [`netns`] network namespaces: made, pinned, opened, entered by one-shot threads
//! - [`nft`] nftables: transactions and reading back
//! - [`offload`] what a link leaves to its hardware
//! - [`overlay`] read-only layers under one writable folder
//! - [`proc`] processes: identity, signals, forking, own namespaces
//! - [`replace`] files that are replaced whole; [`discard`] folders that wait to be removed
//! - [`seccomp`] which system calls a container may make
//! - [`subpath`] parts of volumes, mounted without being led outside
//! - [`sysctl`] the files of `/proc/sys`
//! - [`terminal`] raw mode and size of the terminal of a command
//! - [`tun`] tap devices
//! - [`testing`] what tests that need root ask first

pub mod afterwards;
mod bpf;
pub mod cgroup;
pub mod container;
pub mod discard;
pub mod exec;
pub mod filesystem;
pub mod loopdev;
pub mod machine;
pub mod memory;
pub mod mountpoint;
pub mod netlink;
pub mod netns;
pub mod nft;
pub mod offload;
pub mod overlay;
pub mod proc;
mod replace;
pub mod seccomp;
pub mod subpath;
pub mod sysctl;
pub mod terminal;
pub mod testing;
pub mod tun;

pub use replace::replace;
