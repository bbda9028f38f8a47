//! What was said, in which order?
