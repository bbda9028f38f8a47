//! Is this node's share of it true?
