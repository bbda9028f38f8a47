//! The kernel's classic machine (uapi/linux/filter.h): one accumulator, jumps forward only.

/// One instruction, as the kernel takes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub code: u16,
    pub if_true: u8,
    pub if_false: u8,
    pub value: u32,
}

pub(super) const LOAD: u16 = 0x20;
pub(super) const AND: u16 = 0x54;
pub(super) const JUMP: u16 = 0x05;
pub(super) const IF_EQUAL: u16 = 0x15;
pub(super) const IF_GREATER: u16 = 0x25;
pub(super) const IF_AT_LEAST: u16 = 0x35;
pub(super) const RETURN: u16 = 0x06;

/// Where the accumulator is loaded from: `struct seccomp_data`.
pub(super) const NUMBER: u32 = 0;
pub(super) const ARCHITECTURE: u32 = 4;

/// Lower and upper half of an argument, on a little-endian machine.
pub(super) fn halves(argument: u32) -> (u32, u32) {
    (16 + 8 * argument, 20 + 8 * argument)
}

pub(super) fn plain(code: u16, value: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, value }
}

pub(super) fn jump(code: u16, value: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code, if_true, if_false, value }
}

/// `code` with `value` over `yes`, then `no`: `yes` runs if it holds. Both end by returning.
pub(super) fn either(code: u16, value: u32, yes: Vec<Instruction>, no: Vec<Instruction>) -> Vec<Instruction> {
    let mut all = match u8::try_from(yes.len()) {
        Ok(over) => vec![jump(code, value, 0, over)],
        // The conditional jump reaches 255 instructions, the other one all.
        Err(_) => vec![jump(code, value, 1, 0), plain(JUMP, u32::try_from(yes.len()).unwrap_or(u32::MAX))],
    };
    all.extend(yes);
    all.extend(no);
    all
}
