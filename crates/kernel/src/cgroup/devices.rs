//! Which devices a group's processes may use: version 1 has files for it, version 2 a small program that the kernel asks.

use std::path::Path;

use super::{CgroupError, Group};
use crate::bpf;

/// What may be done with which devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    /// 1 for block devices, 2 for character devices, as the kernel numbers them here; none for both.
    kind: Option<i32>,
    /// Major and minor number; none for all.
    major: Option<i32>,
    minor: Option<i32>,
    /// Bits: 1 to make, 2 to read, 4 to write.
    access: i32,
}

const ALL_ACCESS: i32 = 7;

impl Group {
    /// Lets its processes use only the devices of `rules`, in version 1's words (`c 1:3 rwm`, `b *:* m`, `a`).
    ///
    /// # Errors
    /// [`CgroupError`].
    pub fn allow_devices(&self, rules: &[String]) -> Result<(), CgroupError> {
        if let Some((_, groups)) = self.places().find(|(h, _)| h.controllers.iter().any(|c| c == "devices")) {
            return by_files(&groups.folder, rules);
        }
        let Some((_, groups)) = self.places().find(|(h, _)| h.unified) else { return Ok(()) };
        let Some(program) = program(rules) else { return Ok(()) };
        bpf::guard_devices(&groups.folder, &program)
            .map_err(CgroupError::at("let only some devices be used in", &groups.folder))
    }
}

fn by_files(folder: &Path, rules: &[String]) -> Result<(), CgroupError> {
    let deny = folder.join("devices.deny");
    std::fs::write(&deny, "a").map_err(CgroupError::at("write to", &deny))?;
    let allow = folder.join("devices.allow");
    for rule in rules {
        std::fs::write(&allow, rule).map_err(CgroupError::at(format!("write {rule:?} to"), &allow))?;
    }
    Ok(())
}

/// The program for `rules`; none if they allow everything. A rule that cannot be read allows nothing.
fn program(rules: &[String]) -> Option<Vec<u64>> {
    let rules: Vec<Rule> = rules.iter().filter_map(|rule| parse(rule)).collect();
    let all = Rule { kind: None, major: None, minor: None, access: ALL_ACCESS };
    if rules.contains(&all) {
        return None;
    }
    // r1 points to what is asked: 32 bits each of access and kind (upper and lower half), major and minor number.
    let mut program = vec![
        instruction(LOAD_32, 2, 1, 0, 0),
        instruction(MOVE, 3, 2, 0, 0),
        instruction(AND_NUMBER, 2, 0, 0, 0xffff),
        instruction(SHIFT_RIGHT_NUMBER, 3, 0, 0, 16),
        instruction(LOAD_32, 4, 1, 4, 0),
        instruction(LOAD_32, 5, 1, 8, 0),
    ];
    for rule in rules {
        let mut checks: Vec<(u8, u8, i32)> = Vec::new();
        checks.extend(rule.kind.map(|kind| (UNLESS_EQUAL_NUMBER, 2, kind)));
        checks.extend(rule.major.map(|major| (UNLESS_EQUAL_NUMBER, 4, major)));
        checks.extend(rule.minor.map(|minor| (UNLESS_EQUAL_NUMBER, 5, minor)));
        if rule.access != ALL_ACCESS {
            // Anything asked beyond what the rule allows.
            checks.push((IF_ANY_BIT_NUMBER, 3, ALL_ACCESS & !rule.access));
        }
        // Over the checks that follow and the two instructions that say yes.
        let mut over = i16::try_from(checks.len()).unwrap_or(0) + 2;
        for (code, register, number) in checks {
            over -= 1;
            program.push(instruction(code, register, 0, over, number));
        }
        program.push(instruction(MOVE_NUMBER, 0, 0, 0, 1));
        program.push(instruction(EXIT, 0, 0, 0, 0));
    }
    program.push(instruction(MOVE_NUMBER, 0, 0, 0, 0));
    program.push(instruction(EXIT, 0, 0, 0, 0));
    Some(program)
}

fn parse(rule: &str) -> Option<Rule> {
    let mut words = rule.split_ascii_whitespace();
    let kind = match words.next()? {
        "a" => None,
        "b" => Some(1),
        "c" => Some(2),
        _ => return None,
    };
    let number = |word: &str| if word == "*" { Some(None) } else { word.parse().ok().map(Some) };
    let (major, minor) = words.next().unwrap_or("*:*").split_once(':')?;
    let bit = |letter: char| match letter {
        'm' => 1,
        'r' => 2,
        'w' => 4,
        _ => 0,
    };
    let access = words.next().unwrap_or("rwm").chars().map(bit).fold(0, |all, bit| all | bit);
    Some(Rule { kind, major: number(major)?, minor: number(minor)?, access })
}

// Codes of the kernel's virtual machine (uapi/linux/bpf.h, bpf_common.h); `NUMBER` is the instruction's own.
const LOAD_32: u8 = 0x61;
const MOVE: u8 = 0xbf;
const MOVE_NUMBER: u8 = 0xb7;
const AND_NUMBER: u8 = 0x57;
const SHIFT_RIGHT_NUMBER: u8 = 0x77;
const UNLESS_EQUAL_NUMBER: u8 = 0x55;
const IF_ANY_BIT_NUMBER: u8 = 0x45;
const EXIT: u8 = 0x95;

/// One instruction: code, destination and source register, offset, number.
fn instruction(code: u8, destination: u8, source: u8, offset: i16, number: i32) -> u64 {
    let [low, high] = offset.to_ne_bytes();
    let [a, b, c, d] = number.to_ne_bytes();
    let registers =
        if cfg!(target_endian = "little") { source << 4 | destination } else { destination << 4 | source };
    u64::from_ne_bytes([code, registers, low, high, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would.
    fn allows(program: &[u64], kind: u64, access: u64, major: u64, minor: u64) -> bool {
        let context = [access << 16 | kind, major, minor];
        let mut registers = [0u64; 11];
        let mut at = 0;
        loop {
            let [code, both, low, high, a, b, c, d] = program[at].to_ne_bytes();
            let (to, from) = (usize::from(both & 15), usize::from(both >> 4));
            let offset = i16::from_ne_bytes([low, high]);
            let number = u64::from(u32::from_ne_bytes([a, b, c, d]));
            let jump = match code {
                LOAD_32 => {
                    registers[to] = context[usize::try_from(offset / 4).unwrap()];
                    false
                }
                MOVE => {
                    registers[to] = registers[from];
                    false
                }
                MOVE_NUMBER => {
                    registers[to] = number;
                    false
                }
                AND_NUMBER => {
                    registers[to] &= number;
                    false
                }
                SHIFT_RIGHT_NUMBER => {
                    registers[to] >>= number;
                    false
                }
                UNLESS_EQUAL_NUMBER => registers[to] != number,
                IF_ANY_BIT_NUMBER => registers[to] & number != 0,
                EXIT => return registers[0] == 1,
                other => panic!("unknown code {other:#x}"),
            };
            at += 1 + if jump { usize::try_from(offset).unwrap() } else { 0 };
        }
    }

    #[test]
    fn a_program_answers_as_the_rules_say() {
        let rules = ["c *:* m", "b *:* m", "c 1:3 rwm", "c 136:* rw", "b 8:0 r"].map(str::to_owned);
        let program = program(&rules).unwrap();
        let (block, char) = (1, 2);
        let (make, read, write) = (1, 2, 4);
        for (name, kind, access, major, minor, expected) in [
            ("null, read and write", char, read | write, 1, 3, true),
            ("null as a block device", block, read, 1, 3, false),
            ("kmsg", char, read, 1, 11, false),
            ("making kmsg", char, make, 1, 11, true),
            ("making and reading kmsg", char, make | read, 1, 11, false),
            ("any terminal", char, read | write, 136, 7, true),
            ("making any terminal", char, make, 136, 7, true),
            ("the disk, read", block, read, 8, 0, true),
            ("the disk, write", block, write, 8, 0, false),
            ("another disk", block, read, 8, 1, false),
        ] {
            assert_eq!(allows(&program, kind, access, major, minor), expected, "{name}");
        }
    }

    #[test]
    fn everything_allowed_needs_no_program_and_nothing_allowed_is_one() {
        assert_eq!(program(&["a".to_owned()]), None);
        assert!(!allows(&program(&[]).unwrap(), 2, 2, 1, 3));
        assert!(!allows(&program(&["nonsense".to_owned(), "c x:3 rwm".to_owned()]).unwrap(), 2, 2, 1, 3));
    }
}
