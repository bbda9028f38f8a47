//! The runtime's own profile (`RuntimeDefault`): what containerd and Docker let a container do, by its capabilities.

use super::profile::{Action, Argument, Operator, Rule, Seccomp};
use super::table::calls;

/// The flags of `clone` that make namespaces, but for the time namespace, which shares its bit with the signal.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// Address families (socket.h) that reach past the container: the kernel's cryptography, and the hypervisor.
const AF_ALG: u64 = 38;
const AF_VSOCK: u64 = 40;
/// Domains of `personality`: Linux, with or without a 32-bit uname and 2.6 version numbers, and the question for the present one.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

fn allow(names: Vec<String>, args: Vec<Argument>) -> Rule {
    Rule { names, action: Action::Allow, errno_ret: None, args }
}

fn first(op: Operator, value: u64) -> Vec<Argument> {
    vec![Argument { index: 0, value, value_two: 0, op }]
}

/// This machine's own way to make calls, and the one of its 32-bit programs.
fn architectures() -> [&'static str; 2] {
    if cfg!(target_arch = "aarch64") {
        ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"]
    } else {
        ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]
    }
}

/// The profile for a container whose bounding set is `capabilities` (`CAP_CHOWN`).
#[must_use]
pub fn default_profile(capabilities: &[String]) -> Seccomp {
    let holds = |name: &str| capabilities.iter().any(|c| c.strip_prefix("CAP_") == Some(name));
    let may = |who: &str| who == "all" || who.split(',').any(holds);
    let plain = calls().filter(|call| may(call.who)).map(|call| call.name.to_owned()).collect();
    let one = |name: &str| vec![name.to_owned()];
    let mut syscalls = vec![
        allow(plain, Vec::new()),
        allow(one("socket"), first(Operator::Less, AF_ALG)),
        allow(one("socket"), first(Operator::Equal, AF_ALG + 1)),
        allow(one("socket"), first(Operator::Greater, AF_VSOCK)),
    ];
    syscalls.extend(PERSONALITIES.map(|value| allow(one("personality"), first(Operator::Equal, value))));
    if holds("SYS_ADMIN") {
        syscalls.push(allow(vec!["clone".to_owned(), "clone3".to_owned()], Vec::new()));
    } else {
        syscalls.push(allow(one("clone"), first(Operator::MaskedEqual, NEW_NAMESPACES)));
        // Its flags are behind a pointer. With this error the C library falls back to `clone`.
        syscalls.push(Rule {
            errno_ret: Some(libc::ENOSYS.unsigned_abs()),
            action: Action::Errno,
            ..allow(one("clone3"), Vec::new())
        });
    }
    Seccomp {
        default_action: Action::Errno,
        default_errno_ret: Some(libc::EPERM.unsigned_abs()),
        architectures: architectures().map(str::to_owned).into(),
        flags: None,
        syscalls,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_brings_the_calls_that_it_is_for() {
        let names = |capabilities: &[&str]| {
            let own: Vec<String> = capabilities.iter().map(|c| (*c).to_owned()).collect();
            default_profile(&own).syscalls[0].names.clone()
        };
        let has = |names: &[String], name: &str| names.iter().any(|n| n == name);
        let plain = names(&["CAP_CHOWN"]);
        for name in ["read", "execve", "ptrace", "capset", "landlock_create_ruleset"] {
            assert!(has(&plain, name), "{name}");
        }
        let rows = [
            ("mount", "CAP_SYS_ADMIN"),
            ("setns", "CAP_SYS_ADMIN"),
            ("bpf", "CAP_BPF"),
            ("bpf", "CAP_SYS_ADMIN"),
            ("kcmp", "CAP_SYS_PTRACE"),
            ("clock_settime", "CAP_SYS_TIME"),
            ("syslog", "CAP_SYSLOG"),
            ("perf_event_open", "CAP_PERFMON"),
            ("chroot", "CAP_SYS_CHROOT"),
        ];
        for (name, capability) in rows {
            assert!(!has(&plain, name), "{name} without {capability}");
            assert!(has(&names(&[capability]), name), "{name} with {capability}");
        }
        for name in ["keyctl", "io_uring_setup", "kexec_load", "userfaultfd", "pivot_root"] {
            assert!(!has(&names(&["CAP_SYS_ADMIN", "CAP_SYS_BOOT"]), name), "{name}");
        }
    }
}
