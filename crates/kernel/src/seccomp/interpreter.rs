//! The kernel's machine once more, to see what a program says without the kernel.

use super::assemble::{AND, IF_AT_LEAST, IF_EQUAL, IF_GREATER, Instruction, JUMP, LOAD, RETURN};

/// What a program is asked about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub number: u32,
    pub architecture: u32,
    pub arguments: [u64; 6],
}

impl Asked {
    fn word(&self, offset: u32) -> u32 {
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap();
        match offset {
            0 => self.number,
            4 => self.architecture,
            _ => {
                let argument = self.arguments[usize::try_from((offset - 16) / 8).unwrap()];
                if offset.is_multiple_of(8) { low(argument) } else { low(argument >> 32) }
            }
        }
    }
}

/// What `program` returns. Jumps out of it, and its end without a return, are panics.
pub(super) fn run(program: &[Instruction], asked: &Asked) -> u32 {
    let (mut at, mut accumulator) = (0_usize, 0_u32);
    loop {
        let Instruction { code, if_true, if_false, value } = program[at];
        at += 1;
        let holds = match code {
            LOAD => {
                accumulator = asked.word(value);
                continue;
            }
            AND => {
                accumulator &= value;
                continue;
            }
            JUMP => {
                at += usize::try_from(value).unwrap();
                continue;
            }
            RETURN => return value,
            IF_EQUAL => accumulator == value,
            IF_GREATER => accumulator > value,
            IF_AT_LEAST => accumulator >= value,
            other => panic!("no such instruction: {other:#x}"),
        };
        at += usize::from(if holds { if_true } else { if_false });
    }
}
