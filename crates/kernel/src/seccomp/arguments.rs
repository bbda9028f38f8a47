//! Conditions on the arguments of a call.

use super::assemble::{AND, IF_AT_LEAST, IF_EQUAL, IF_GREATER, Instruction, LOAD, halves, jump, plain};
use super::profile::{Argument, Operator};

/// Where a step of a comparison leads.
#[derive(Clone, Copy)]
enum To {
    Next,
    Pass,
    Fail,
}

/// The steps of a comparison: the machine has 32 bits, so the upper half is looked at first.
struct Steps(Vec<(Instruction, To, To)>);

impl Steps {
    fn load(&mut self, offset: u32) {
        self.0.push((plain(LOAD, offset), To::Next, To::Next));
    }

    fn and(&mut self, mask: u32) {
        self.0.push((plain(AND, mask), To::Next, To::Next));
    }

    fn jump(&mut self, code: u16, value: u32, if_true: To, if_false: To) {
        self.0.push((jump(code, value, 0, 0), if_true, if_false));
    }
}

fn split(value: u64) -> (u32, u32) {
    let low = u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default();
    (low, u32::try_from(value >> 32).unwrap_or_default())
}

fn steps(argument: &Argument) -> Vec<(Instruction, To, To)> {
    let mut steps = Steps(Vec::new());
    let (low_at, high_at) = halves(argument.index);
    let (low, high) = split(argument.value);
    steps.load(high_at);
    match argument.op {
        Operator::Equal => {
            steps.jump(IF_EQUAL, high, To::Next, To::Fail);
            steps.load(low_at);
            steps.jump(IF_EQUAL, low, To::Pass, To::Fail);
        }
        Operator::NotEqual => {
            steps.jump(IF_EQUAL, high, To::Next, To::Pass);
            steps.load(low_at);
            steps.jump(IF_EQUAL, low, To::Fail, To::Pass);
        }
        Operator::MaskedEqual => {
            let (wanted_low, wanted_high) = split(argument.value_two);
            steps.and(high);
            steps.jump(IF_EQUAL, wanted_high, To::Next, To::Fail);
            steps.load(low_at);
            steps.and(low);
            steps.jump(IF_EQUAL, wanted_low, To::Pass, To::Fail);
        }
        Operator::Greater | Operator::GreaterOrEqual => {
            let code = if argument.op == Operator::Greater { IF_GREATER } else { IF_AT_LEAST };
            steps.jump(IF_GREATER, high, To::Pass, To::Next);
            steps.jump(IF_EQUAL, high, To::Next, To::Fail);
            steps.load(low_at);
            steps.jump(code, low, To::Pass, To::Fail);
        }
        Operator::Less | Operator::LessOrEqual => {
            let beyond = if argument.op == Operator::Less { IF_AT_LEAST } else { IF_GREATER };
            steps.jump(IF_GREATER, high, To::Fail, To::Next);
            steps.jump(IF_EQUAL, high, To::Next, To::Pass);
            steps.load(low_at);
            steps.jump(beyond, low, To::Fail, To::Pass);
        }
    }
    steps.0
}

/// Runs `then` if all of `arguments` hold, else what comes after it. `arguments` are six at most.
pub(super) fn guarded(arguments: &[Argument], then: &[Instruction]) -> Vec<Instruction> {
    let all: Vec<Vec<_>> = arguments.iter().map(steps).collect();
    let total: usize = all.iter().map(Vec::len).sum();
    let mut program = Vec::new();
    for steps in all {
        let pass = program.len() + steps.len();
        for (instruction, if_true, if_false) in steps {
            // Jumps count from the next instruction. Six comparisons are 36 instructions, so they always reach.
            let here = program.len() + 1;
            let over = |to: To| match to {
                To::Next => 0,
                To::Pass => u8::try_from(pass - here).unwrap_or(u8::MAX),
                To::Fail => u8::try_from(total + then.len() - here).unwrap_or(u8::MAX),
            };
            program.push(Instruction { if_true: over(if_true), if_false: over(if_false), ..instruction });
        }
    }
    program.extend(then);
    program
}
