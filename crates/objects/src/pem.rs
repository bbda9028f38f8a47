//! Writing PEM (RFC 7468).

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Characters in a line of the encoded bytes.
const LINE: usize = 64;

/// One block.
#[must_use]
pub fn encode(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let mut block = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE));
        let _ = writeln!(block, "{line}");
        rest = after;
    }
    let _ = writeln!(block, "-----END {label}-----");
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_where_others_break_them_and_read_back() {
        for length in [1, 47, 48, 49, 96, 200] {
            let bytes: Vec<u8> = (0..length).collect();
            let block = encode("X", &bytes);
            assert!(block.lines().all(|line| !line.is_empty() && line.len() <= LINE), "{block}");
            let read = x509_parser::pem::Pem::iter_from_buffer(block.as_bytes()).next().unwrap().unwrap();
            assert_eq!((read.label.as_str(), read.contents), ("X", bytes));
        }
    }
}
