//! The readers against inputs that are kept because they once were, or might be, trouble; and against mutations of them.
//!
//! A file named `ok-` is read, one named `bad-` refused; what a search found interesting (`found-`) may be either.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::time::Instant;

use trine_fuzz::{TARGETS, Target, target};

/// Mutations of all files of a target together.
const MUTATIONS: usize = 1600;

fn files(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let name = |p: &Path| p.file_name().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|p| (name(p), std::fs::read(p).unwrap())).collect()
}

/// Random numbers (xorshift) from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        match self.below(7) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] = self.below(256) as u8,
            2 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            3 => bytes.insert(at, self.below(256) as u8),
            4 => {
                let end = (at + self.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            5 => {
                let begin = self.below(other.len());
                let piece = other[begin..(begin + self.below(32)).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let end = (at + self.below(24)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}

fn replay(target: Target) {
    let Target { name: of, read } = target;
    let files = files(of);
    assert!(files.len() > 15, "{of}: {} files", files.len());
    let as_named = |(name, bytes): &&(String, Vec<u8>)| {
        let done = read(bytes);
        name.starts_with("found-") || done == name.starts_with("ok-")
    };
    let others: Vec<&str> = files.iter().filter(|f| !as_named(f)).map(|(name, _)| name.as_str()).collect();
    assert_eq!(others, [""; 0], "{of}: read where it is named bad, or refused where it is named ok");
    let begin = Instant::now();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..MUTATIONS {
        let (name, bytes) = &files[round % files.len()];
        let mut bytes = bytes.clone();
        for _ in 0..=random.below(4) {
            let other = random.below(files.len());
            random.mutate(&mut bytes, &files[other].1);
        }
        let shown = bytes.clone();
        let done = std::panic::catch_unwind(move || read(&bytes));
        assert!(done.is_ok(), "mutation of {of}/{name}: b\"{}\"", shown.escape_ascii());
    }
    println!("{of}: {} files, {MUTATIONS} mutations in {:?}", files.len(), begin.elapsed());
}

#[test]
fn strict_json_withstands_its_corpus() {
    replay(target("json").unwrap());
}

#[test]
fn yaml_withstands_its_corpus() {
    replay(target("yaml").unwrap());
}

#[test]
fn protobuf_withstands_its_corpus() {
    replay(target("protobuf").unwrap());
}

#[test]
fn server_side_apply_withstands_its_corpus() {
    replay(target("apply").unwrap());
}

#[test]
fn cel_withstands_its_corpus() {
    replay(target("cel").unwrap());
}

#[test]
fn selectors_withstand_their_corpus() {
    replay(target("selectors").unwrap());
}

#[test]
fn every_target_has_a_corpus_and_nothing_else_has() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut folders: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    folders.sort();
    let mut targets = TARGETS.map(|t| t.name.to_owned()).to_vec();
    targets.sort();
    assert_eq!(folders, targets);
}
