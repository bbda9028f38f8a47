//! Is it on the network?
