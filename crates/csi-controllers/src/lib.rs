//! Does the volume exist, attached, in the right size?
