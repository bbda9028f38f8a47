//! What compiled profiles say, asked of an interpreter.

use super::super::default_profile;
use super::super::interpreter::{Asked, run};
use super::super::profile::Operator;
use super::*;

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;

fn number(name: &str, abi: Abi) -> u32 {
    calls().find(|c| c.name == name).and_then(|c| c.number(abi)).unwrap()
}

fn ask(profile: &Seccomp, name: &str, arguments: [u64; 6]) -> u32 {
    let asked = Asked { number: number(name, Abi::X86_64), architecture: X86_64, arguments };
    run(&compile(profile, Machine::X86_64).unwrap().instructions, &asked)
}

fn profile(default: Action, syscalls: Vec<Rule>) -> Seccomp {
    Seccomp { default_action: default, default_errno_ret: None, architectures: vec![], flags: None, syscalls }
}

fn rule(name: &str, action: Action, args: Vec<Argument>) -> Rule {
    Rule { names: vec![name.to_owned()], action, errno_ret: None, args }
}

fn argument(index: u32, op: Operator, value: u64, value_two: u64) -> Argument {
    Argument { index, value, value_two, op }
}

#[test]
fn each_operator_compares_all_64_bits_without_sign() {
    let values = [0, 1, 5, 0x8000_0000, 0xffff_ffff, 0x1_0000_0000, 0x1_0000_0005, 0x5_0000_0001, u64::MAX];
    for op in [
        Operator::NotEqual,
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Equal,
        Operator::GreaterOrEqual,
        Operator::Greater,
        Operator::MaskedEqual,
    ] {
        for wanted in values {
            for second in [0, 1, 0x1_0000_0000] {
                let condition = argument(3, op, wanted, second);
                let profile =
                    profile(Action::Allow, vec![rule("ioctl", Action::KillProcess, vec![condition])]);
                for given in values {
                    let holds = match op {
                        Operator::NotEqual => given != wanted,
                        Operator::Less => given < wanted,
                        Operator::LessOrEqual => given <= wanted,
                        Operator::Equal => given == wanted,
                        Operator::GreaterOrEqual => given >= wanted,
                        Operator::Greater => given > wanted,
                        Operator::MaskedEqual => given & wanted == second,
                    };
                    let said = ask(&profile, "ioctl", [9, 9, 9, given, 9, 9]);
                    let expected = if holds { KILL_PROCESS } else { ALLOW };
                    assert_eq!(said, expected, "{given:#x} {op:?} {wanted:#x} {second:#x}");
                }
            }
        }
    }
}

#[test]
fn all_conditions_of_a_rule_hold_together_unless_they_are_for_one_argument() {
    let equal = |index, value| argument(index, Operator::Equal, value, 0);
    let both = profile(Action::Errno, vec![rule("ioctl", Action::Allow, vec![equal(0, 1), equal(1, 2)])]);
    let denied = ERRNO | 1;
    assert_eq!(ask(&both, "ioctl", [1, 2, 0, 0, 0, 0]), ALLOW);
    assert_eq!(ask(&both, "ioctl", [1, 3, 0, 0, 0, 0]), denied);
    assert_eq!(ask(&both, "ioctl", [2, 2, 0, 0, 0, 0]), denied);
    let any = profile(Action::Errno, vec![rule("ioctl", Action::Allow, vec![equal(0, 1), equal(0, 2)])]);
    assert_eq!(ask(&any, "ioctl", [1, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(ask(&any, "ioctl", [2, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(ask(&any, "ioctl", [3, 0, 0, 0, 0, 0]), denied);
}

#[test]
fn actions_are_the_kernels_with_their_error() {
    let rows = [
        (Action::Errno, Some(38), ERRNO | 38),
        (Action::Errno, None, ERRNO | 1),
        (Action::KillThread, None, KILL_THREAD),
        (Action::KillProcess, None, KILL_PROCESS),
        (Action::Trap, None, TRAP),
        (Action::Trace, Some(3), TRACE | 3),
        (Action::Log, None, LOG),
    ];
    for (action, errno_ret, expected) in rows {
        let syscalls = vec![Rule { errno_ret, ..rule("mkdir", action, vec![]) }];
        let profile = profile(Action::Allow, syscalls);
        assert_eq!(ask(&profile, "mkdir", [0; 6]), expected, "{action:?}");
        assert_eq!(ask(&profile, "rmdir", [0; 6]), ALLOW);
    }
    let notify = profile(Action::Allow, vec![rule("mkdir", Action::Notify, vec![])]);
    assert!(matches!(compile(&notify, Machine::X86_64), Err(SeccompError::Unsupported(_))));
    let far =
        profile(Action::Allow, vec![rule("mkdir", Action::Log, vec![argument(6, Operator::Equal, 0, 0)])]);
    assert_eq!(compile(&far, Machine::X86_64), Err(SeccompError::Argument(6)));
}

#[test]
fn what_is_younger_than_an_allow_list_does_not_exist_and_what_a_list_forbids_is_forbidden() {
    let list = profile(
        Action::Errno,
        vec![rule("read", Action::Allow, vec![]), rule("statx", Action::Allow, vec![])],
    );
    let program = compile(&list, Machine::X86_64).unwrap().instructions;
    let ask = |number| run(&program, &Asked { number, architecture: X86_64, arguments: [0; 6] });
    assert_eq!(ask(number("mkdir", Abi::X86_64)), ERRNO | 1);
    assert_eq!(ask(number("statx", Abi::X86_64)), ALLOW);
    assert_eq!(ask(number("statx", Abi::X86_64) + 1), ERRNO | 38);
    assert_eq!(ask(u32::MAX), ERRNO | 38);
    let open = profile(Action::Allow, vec![rule("mkdir", Action::Errno, vec![])]);
    let program = compile(&open, Machine::X86_64).unwrap().instructions;
    let ask = |number| run(&program, &Asked { number, architecture: X86_64, arguments: [0; 6] });
    assert_eq!(ask(5000), ALLOW);
    assert_eq!(ask(X32 + 83), ERRNO | 38, "x32 is no way round the rules");
    let nothing = profile(Action::Errno, vec![]);
    assert_eq!(super::tests::ask(&nothing, "read", [0; 6]), ERRNO | 1);
}

#[test]
fn another_way_to_make_calls_is_ruled_if_the_profile_names_it_and_ends_the_thread_if_not() {
    let mut list = profile(Action::Errno, vec![rule("read", Action::Allow, vec![])]);
    let ask = |profile: &Seccomp, number, architecture| {
        let asked = Asked { number, architecture, arguments: [0; 6] };
        run(&compile(profile, Machine::X86_64).unwrap().instructions, &asked)
    };
    assert_eq!(ask(&list, 3, I386), KILL_THREAD);
    list.architectures = vec!["SCMP_ARCH_X86".to_owned()];
    assert_eq!(ask(&list, 3, I386), ALLOW, "read is 3 there");
    assert_eq!(ask(&list, 0, I386), ERRNO | 1);
    assert_eq!(ask(&list, 0, X86_64), ALLOW);
    let arm = Asked { number: 63, architecture: 0xc000_00b7, arguments: [0; 6] };
    assert_eq!(run(&compile(&list, Machine::Aarch64).unwrap().instructions, &arm), ALLOW);
}

#[test]
fn the_default_profile_lets_threads_start_and_no_namespaces_be_made() {
    let plain = default_profile(&["CAP_CHOWN".to_owned()]);
    let new_net = u64::from(libc::CLONE_NEWNET.cast_unsigned());
    let rows: [(&str, [u64; 6], u32); 11] = [
        ("read", [0; 6], ALLOW),
        ("clone", [u64::from(libc::CLONE_THREAD.cast_unsigned()), 0, 0, 0, 0, 0], ALLOW),
        ("clone", [new_net, 0, 0, 0, 0, 0], ERRNO | 1),
        ("clone3", [0; 6], ERRNO | 38),
        ("socket", [2, 0, 0, 0, 0, 0], ALLOW),
        ("socket", [40, 0, 0, 0, 0, 0], ERRNO | 1),
        ("socket", [38, 0, 0, 0, 0, 0], ERRNO | 1),
        ("socket", [39, 0, 0, 0, 0, 0], ALLOW),
        ("personality", [0xffff_ffff, 0, 0, 0, 0, 0], ALLOW),
        ("personality", [0x40_0000, 0, 0, 0, 0, 0], ERRNO | 1),
        ("sethostname", [0; 6], ERRNO | 1),
    ];
    for (name, arguments, expected) in rows {
        assert_eq!(ask(&plain, name, arguments), expected, "{name} {arguments:?}");
    }
    let admin = default_profile(&["CAP_SYS_ADMIN".to_owned()]);
    assert_eq!(ask(&admin, "clone", [new_net, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(ask(&admin, "sethostname", [0; 6]), ALLOW);
    for (machine, most) in [(Machine::X86_64, 800), (Machine::Aarch64, 800)] {
        let length = compile(&plain, machine).unwrap().instructions.len();
        assert!(length < most, "{machine:?}: {length} instructions");
    }
}
