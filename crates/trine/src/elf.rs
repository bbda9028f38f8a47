//! What a program needs before it can start, read from its own ELF header (64-bit, little-endian).

/// Needs of one ELF file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The program that maps it and its libraries.
    pub interpreter: Option<String>,
    /// Names of shared libraries.
    pub libraries: Vec<String>,
    /// Folders named in the file (RPATH, RUNPATH).
    pub search: Vec<String>,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

struct Segment {
    kind: u32,
    offset: usize,
    address: u64,
    size: usize,
}

/// The needs of `file`, or `None` if it is not a 64-bit little-endian ELF file or is cut short.
#[must_use]
pub fn needs(file: &[u8]) -> Option<Needs> {
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let segments = segments(file)?;
    let mut needs = Needs::default();
    for segment in &segments {
        let bytes = file.get(segment.offset..segment.offset.checked_add(segment.size)?)?;
        match segment.kind {
            PT_INTERP => needs.interpreter = text(bytes, 0),
            PT_DYNAMIC => dynamic(file, &segments, bytes, &mut needs)?,
            _ => {}
        }
    }
    Some(needs)
}

fn segments(file: &[u8]) -> Option<Vec<Segment>> {
    let table = usize::try_from(word(file, 32)?).ok()?;
    let entry = usize::from(half(file, 54)?);
    let count = usize::from(half(file, 56)?);
    let one = |index: usize| {
        let at = table.checked_add(entry.checked_mul(index)?)?;
        Some(Segment {
            kind: u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?),
            offset: usize::try_from(word(file, at + 8)?).ok()?,
            address: word(file, at + 16)?,
            size: usize::try_from(word(file, at + 32)?).ok()?,
        })
    };
    (0..count).map(one).collect()
}

fn dynamic(file: &[u8], segments: &[Segment], bytes: &[u8], needs: &mut Needs) -> Option<()> {
    let entries: Vec<(u64, u64)> = bytes
        .chunks_exact(16)
        .filter_map(|e| Some((word(e, 0)?, word(e, 8)?)))
        .take_while(|e| e.0 != 0)
        .collect();
    let strings = entries.iter().find(|e| e.0 == DT_STRTAB)?.1;
    let holds = |s: &&Segment| s.kind == PT_LOAD && (s.address..s.address + s.size as u64).contains(&strings);
    let segment = segments.iter().find(holds)?;
    let start = segment.offset + usize::try_from(strings - segment.address).ok()?;
    let strings = file.get(start..)?;
    let named = |wanted: &[u64]| -> Vec<String> {
        let of_kind = entries.iter().filter(|e| wanted.contains(&e.0));
        of_kind.filter_map(|e| text(strings, usize::try_from(e.1).ok()?)).collect()
    };
    needs.libraries = named(&[DT_NEEDED]);
    let folders = named(&[DT_RPATH, DT_RUNPATH]);
    needs.search = folders.iter().flat_map(|f| f.split(':')).map(str::to_owned).collect();
    Some(())
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn text(bytes: &[u8], at: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|b| *b == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_needs_an_interpreter_and_libc() {
        let needs = needs(&std::fs::read("/proc/self/exe").unwrap()).unwrap();
        assert!(needs.interpreter.unwrap().contains("ld-linux"));
        assert!(needs.libraries.iter().any(|l| l.starts_with("libc.so")), "{:?}", needs.libraries);
    }

    #[test]
    fn what_is_no_program_needs_nothing() {
        assert_eq!(needs(b"#!/bin/sh\n"), None);
        let mut cut = std::fs::read("/proc/self/exe").unwrap();
        cut.truncate(100);
        assert_eq!(needs(&cut), None);
    }
}
