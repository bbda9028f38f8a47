//! Where do its files come from?
