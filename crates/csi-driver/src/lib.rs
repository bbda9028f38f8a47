//! Where do its bytes lie?
