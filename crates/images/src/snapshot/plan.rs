//! Which container ids can name a folder. Pure.

/// True if `id` is safe as the name of a folder.
pub(crate) fn is_container_id(id: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    !id.is_empty() && id.len() <= 200 && !id.starts_with('.') && id.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_could_leave_the_folder_are_refused() {
        for good in ["abc", "0123456789abcdef", "a-b_c.d"] {
            assert!(is_container_id(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "../x", "a\0", " ", &"x".repeat(201)] {
            assert!(!is_container_id(bad), "{bad:?}");
        }
    }
}
