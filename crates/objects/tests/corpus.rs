//! The decoders against inputs that are kept because they once were, or might be, trouble; and against mutations of them.
//!
//! A file named `ok-` is read, one named `bad-` refused. `TRINE_FUZZ_SECONDS=600 cargo test -p trine-objects --test corpus`
//! goes on for so long with another seed; what makes it fail is printed as a literal, to become a file.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trine_objects::{json, protobuf, schema};

/// Mutations of each file in an ordinary run.
const MUTATIONS: usize = 40;

fn files(decoder: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(decoder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let name = |p: &Path| p.file_name().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|p| (name(p), std::fs::read(p).unwrap())).collect()
}

/// Reads a document strictly, and brings what was read to the form in which it is stored. True if it could be read.
fn read_json(bytes: &[u8]) -> bool {
    let Ok((value, _)) = json::parse_reporting_duplicates(bytes) else { return false };
    for (group, kind) in [("", "Pod"), ("apiextensions.k8s.io", "CustomResourceDefinition"), ("", "Status")] {
        let ty = schema::of(group, "v1", kind).unwrap();
        let problems = schema::check(ty, &value);
        assert!(problems.iter().all(|p| !p.to_string().is_empty()));
        let mut stored = value.clone();
        schema::prune(ty, &mut stored);
        let once = stored.clone();
        schema::prune(ty, &mut stored);
        assert_eq!(stored, once, "pruned is pruned");
        assert!(
            schema::check(ty, &stored).iter().all(schema::FieldError::is_fatal),
            "nothing unknown is left"
        );
    }
    true
}

/// Reads an object; what was written of it is read as the same. True if it could be read.
fn read_protobuf(bytes: &[u8]) -> bool {
    let Ok(object) = protobuf::decode(bytes) else { return false };
    // A text that is no quantity is found by the check of fields, which is another step.
    if let Ok(written) = protobuf::encode(&object) {
        let again = protobuf::decode(&written).expect("what was written can be read");
        let twice = protobuf::encode(&again).expect("and written again");
        assert_eq!(twice, written, "in the same bytes");
    }
    true
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

fn replay(decoder: &str, read: fn(&[u8]) -> bool) {
    let files = files(decoder);
    assert!(files.len() > 15, "{} files", files.len());
    for (name, bytes) in &files {
        assert_eq!(read(bytes), name.starts_with("ok-"), "{decoder}/{name}");
    }
    let seconds =
        std::env::var("TRINE_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).map(Duration::from_secs);
    let begin = Instant::now();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
    let mut random = Random(if seconds.is_some() { now } else { 0x9e37_79b9_7f4a_7c15 });
    let mut round = 0_u64;
    while round == 0 || seconds.is_some_and(|s| begin.elapsed() < s) {
        for (name, bytes) in &files {
            for _ in 0..MUTATIONS {
                let mut bytes = bytes.clone();
                for _ in 0..=random.below(4) {
                    let other = random.below(files.len());
                    random.mutate(&mut bytes, &files[other].1);
                }
                let shown = bytes.clone();
                let read = std::panic::catch_unwind(move || read(&bytes));
                assert!(read.is_ok(), "mutation of {decoder}/{name}: b\"{}\"", shown.escape_ascii());
            }
        }
        round += 1;
    }
    println!("{decoder}: {} inputs in {:?}", round as usize * files.len() * MUTATIONS, begin.elapsed());
}

#[test]
fn strict_json_withstands_its_corpus() {
    replay("json", read_json);
}

#[test]
fn protobuf_withstands_its_corpus() {
    replay("protobuf", read_protobuf);
}
