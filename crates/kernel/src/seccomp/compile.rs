//! A profile as a program: which machine's calls they are, then a search for the call's number, then its arguments.

use std::collections::{BTreeMap, BTreeSet};

use super::arguments::guarded;
use super::assemble::{
    ARCHITECTURE, IF_AT_LEAST, IF_EQUAL, Instruction, LOAD, NUMBER, RETURN, either, plain,
};
use super::install::Program;
use super::profile::{Action, Argument, Rule, Seccomp};
use super::table::{Abi, Call, calls};

/// The most instructions that the kernel takes (BPF_MAXINSNS).
const MOST: usize = 4096;
/// Calls from here on are of a way of making them that nearly no kernel has (x32), and would evade the rules for others.
const X32: u32 = 0x4000_0000;
/// The highest argument's index.
const LAST_ARGUMENT: u32 = 5;

/// A kind of processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// AMD64.
    X86_64,
    /// ARM64.
    Aarch64,
}

impl Machine {
    /// The one that this program runs on; none if it has no table.
    #[must_use]
    pub fn here() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Its ways to make calls with their numbers (uapi/linux/audit.h): its own, and the older one that a profile has to name.
    fn abis(self) -> [(Abi, u32, Option<&'static str>); 2] {
        match self {
            Self::X86_64 => {
                [(Abi::X86_64, 0xc000_003e, None), (Abi::I386, 0x4000_0003, Some("SCMP_ARCH_X86"))]
            }
            Self::Aarch64 => {
                [(Abi::Aarch64, 0xc000_00b7, None), (Abi::Arm, 0x4000_0028, Some("SCMP_ARCH_ARM"))]
            }
        }
    }
}

/// A profile that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeccompError {
    /// It asks for what is not supported.
    #[error("the seccomp profile asks for {0}, which is not supported")]
    Unsupported(String),
    /// An argument that no call has.
    #[error("the seccomp profile has a rule for argument {0}; the last one is {LAST_ARGUMENT}")]
    Argument(u32),
    /// More than the kernel takes.
    #[error("the seccomp profile needs {0} instructions; the kernel takes {MOST}")]
    TooLong(usize),
    /// No table for this processor.
    #[error("seccomp profiles are not supported on this processor")]
    Machine,
}

/// What becomes of a call: the first of the conditions that holds says it, else the last value does.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    conditions: Vec<(Vec<Argument>, u32)>,
    otherwise: u32,
}

/// The program for `profile` on `machine`.
///
/// # Errors
/// [`SeccompError`].
pub fn compile(profile: &Seccomp, machine: Machine) -> Result<Program, SeccompError> {
    let flags = flags(profile)?;
    check(profile)?;
    // What libseccomp does to a call that is made in a way that the profile does not name.
    let mut program = vec![plain(RETURN, KILL_THREAD)];
    let table: Vec<Call> = calls().collect();
    for (abi, number, name) in machine.abis() {
        if name.is_none_or(|name| profile.architectures.iter().any(|a| a == name)) {
            let mut own = vec![plain(LOAD, NUMBER)];
            own.extend(search(&segments(profile, &table, abi)));
            program = either(IF_EQUAL, number, own, program);
        }
    }
    program.insert(0, plain(LOAD, ARCHITECTURE));
    if program.len() > MOST {
        return Err(SeccompError::TooLong(program.len()));
    }
    Ok(Program { instructions: program, flags })
}

fn flags(profile: &Seccomp) -> Result<u32, SeccompError> {
    let Some(flags) = &profile.flags else { return Ok(SPEC_ALLOW) };
    let mut all = 0;
    for flag in flags {
        all |= match flag.as_str() {
            // There is one thread when the program is installed.
            "SECCOMP_FILTER_FLAG_TSYNC" => 0,
            "SECCOMP_FILTER_FLAG_LOG" => LOG_FLAG,
            "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => SPEC_ALLOW,
            other => return Err(SeccompError::Unsupported(format!("the flag {other}"))),
        };
    }
    Ok(all)
}

fn check(profile: &Seccomp) -> Result<(), SeccompError> {
    let mut actions = profile.syscalls.iter().map(|rule| rule.action).chain([profile.default_action]);
    if actions.any(|action| action == Action::Notify) {
        return Err(SeccompError::Unsupported("SCMP_ACT_NOTIFY".to_owned()));
    }
    let mut arguments = profile.syscalls.iter().flat_map(|rule| &rule.args);
    arguments.find(|a| a.index > LAST_ARGUMENT).map_or(Ok(()), |a| Err(SeccompError::Argument(a.index)))
}

// What a program returns, and how it is installed (uapi/linux/seccomp.h).
pub(super) const KILL_THREAD: u32 = 0;
pub(super) const KILL_PROCESS: u32 = 0x8000_0000;
pub(super) const TRAP: u32 = 0x0003_0000;
pub(super) const ERRNO: u32 = 0x0005_0000;
pub(super) const TRACE: u32 = 0x7ff0_0000;
pub(super) const LOG: u32 = 0x7ffc_0000;
pub(super) const ALLOW: u32 = 0x7fff_0000;
const LOG_FLAG: u32 = 2;
const SPEC_ALLOW: u32 = 4;

fn verdict(action: Action, errno: Option<u32>) -> u32 {
    let errno = errno.unwrap_or(libc::EPERM.unsigned_abs()) & 0xffff;
    match action {
        Action::Allow => ALLOW,
        Action::Errno => ERRNO | errno,
        Action::Trap => TRAP,
        Action::Trace => TRACE | errno,
        Action::Log => LOG,
        Action::KillProcess => KILL_PROCESS,
        Action::KillThread | Action::Notify => KILL_THREAD,
    }
}

/// The first number of each stretch of calls that fare alike, in order, from 0 on.
fn segments(profile: &Seccomp, table: &[Call], abi: Abi) -> Vec<(u32, Outcome)> {
    let default = verdict(profile.default_action, profile.default_errno_ret);
    let outcome = |otherwise| Outcome { conditions: Vec::new(), otherwise };
    let numbers: BTreeMap<&str, u32> =
        table.iter().filter_map(|call| call.number(abi).map(|number| (call.name, number))).collect();
    let mut outcomes: BTreeMap<u32, Outcome> = BTreeMap::new();
    let mut settled = BTreeSet::new();
    for rule in &profile.syscalls {
        let said = verdict(rule.action, rule.errno_ret);
        // As runc has it: such a rule says nothing.
        if said == default {
            continue;
        }
        for number in rule.names.iter().filter_map(|name| numbers.get(name.as_str())) {
            let entry = outcomes.entry(*number).or_insert_with(|| outcome(default));
            if !rule.args.is_empty() {
                entry.conditions.extend(alternatives(rule).into_iter().map(|args| (args, said)));
            } else if settled.insert(*number) {
                entry.otherwise = said;
            }
        }
    }
    // Where each begins; of two that begin at the same number the later one counts.
    let mut all = BTreeMap::from([(0, outcome(default))]);
    let mut next = 0;
    for (number, found) in outcomes {
        if number > next {
            all.insert(next, outcome(default));
        }
        next = number + 1;
        all.insert(number, found);
    }
    // A call that is younger than the profile: programs know what to do without it, but not if it is forbidden.
    let lets = matches!(profile.default_action, Action::Allow | Action::Log | Action::Trace);
    let unknown = ERRNO | libc::ENOSYS.unsigned_abs();
    all.insert(next, outcome(if lets || next == 0 { default } else { unknown }));
    if abi == Abi::X86_64 {
        all.insert(X32, outcome(unknown));
    }
    let mut all: Vec<(u32, Outcome)> = all.into_iter().collect();
    all.dedup_by(|later, earlier| later.1 == earlier.1);
    all
}

/// A rule's conditions as lists of which each has one condition an argument at most.
fn alternatives(rule: &Rule) -> Vec<Vec<Argument>> {
    let twice = |a: &Argument| rule.args.iter().filter(|b| b.index == a.index).count() > 1;
    if rule.args.iter().any(twice) {
        // As runc has it: then any of them is enough.
        return rule.args.iter().map(|argument| vec![*argument]).collect();
    }
    vec![rule.args.clone()]
}

/// Halves the stretches until one is left.
fn search(segments: &[(u32, Outcome)]) -> Vec<Instruction> {
    match segments {
        [] => Vec::new(),
        [(_, outcome)] => leaf(outcome),
        _ => {
            let (lower, upper) = segments.split_at(segments.len() / 2);
            either(IF_AT_LEAST, upper[0].0, search(upper), search(lower))
        }
    }
}

fn leaf(outcome: &Outcome) -> Vec<Instruction> {
    let mut program = Vec::new();
    for (arguments, said) in &outcome.conditions {
        program.extend(guarded(arguments, &[plain(RETURN, *said)]));
    }
    program.push(plain(RETURN, outcome.otherwise));
    program
}

#[cfg(test)]
#[path = "compile_tests.rs"]
mod tests;
