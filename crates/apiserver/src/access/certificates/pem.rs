//! Blocks of PEM (RFC 7468), with what stands between their first line and their content.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// `CERTIFICATE`.
    pub label: String,
    /// Whether it has headers, which certificates do not.
    pub headers: bool,
    /// What it holds.
    pub content: Vec<u8>,
}

/// All blocks of a text. What lies between them is passed over, and blocks without an end or of no base64, too.
#[must_use]
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|l| l.strip_suffix("-----")) else {
            continue;
        };
        let end = format!("-----END {label}-----");
        let within: Vec<&str> = lines.by_ref().take_while(|line| *line != end).collect();
        let (headers, content): (Vec<&str>, Vec<&str>) =
            within.into_iter().partition(|line| line.contains(':'));
        if let Ok(content) = STANDARD.decode(content.concat()) {
            blocks.push(Block { label: label.to_owned(), headers: !headers.is_empty(), content });
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_between_other_lines() {
        let text = "words\n-----BEGIN A-----\nAQI=\n-----END A-----\nmore\n-----BEGIN B-----\nName: x\n\nAw==\n-----END B-----\n\
                    -----BEGIN C-----\n!\n-----END C-----\n";
        let found: Vec<(String, bool, Vec<u8>)> =
            blocks(text).into_iter().map(|b| (b.label, b.headers, b.content)).collect();
        assert_eq!(found, [("A".to_owned(), false, vec![1, 2]), ("B".to_owned(), true, vec![3])]);
    }
}
