//! Several nodes: on one machine, and joined over the network.

mod apart;
mod joining;
mod policies;
mod several;
