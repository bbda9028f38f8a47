//! Does its Service find it?
