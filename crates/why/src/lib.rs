//! Which plane holds this Pod up?
