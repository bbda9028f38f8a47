//! The table of others' bugs names tests that are there.

use std::path::Path;

const TABLE: &str = include_str!("bugs.md");
/// Kinds of bugs that were found.
const KINDS: usize = 23;

#[test]
fn every_bug_of_others_has_a_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let rows: Vec<Vec<&str>> = TABLE
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|line| line.split(" | ").collect())
        .filter(|row: &Vec<&str>| row[0].parse::<usize>().is_ok())
        .collect();
    assert_eq!(rows.len(), KINDS);
    for (row, number) in rows.iter().zip(1..) {
        assert_eq!(row[0], number.to_string());
        let words: Vec<&str> = row[2].split('`').skip(1).step_by(2).collect();
        assert!(!words.is_empty(), "{row:?}");
        for pair in words.chunks(2) {
            let [file, test] = pair else { panic!("{row:?}") };
            let text = std::fs::read_to_string(crates.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            assert!(text.contains(&format!("fn {test}(")), "{test} is not in {file}");
        }
    }
}
