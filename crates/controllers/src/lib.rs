//! What follows from what is desired?
