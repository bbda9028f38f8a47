//! Several nodes: on one machine, and joined over the network.

mod joining;
mod policies;
mod several;
