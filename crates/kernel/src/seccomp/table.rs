//! The calls of the machines that Trine runs on: names, numbers, and who may make them under the default profile.

/// A way to make calls, as a column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Abi {
    X86_64,
    I386,
    Aarch64,
    Arm,
}

/// A call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub name: &'static str,
    numbers: [Option<u32>; 4],
    /// `all`, `none`, `args`, or capabilities without their prefix, between commas.
    pub who: &'static str,
}

impl Call {
    pub(super) fn number(&self, abi: Abi) -> Option<u32> {
        self.numbers[abi as usize]
    }
}

pub(super) fn calls() -> impl Iterator<Item = Call> {
    include_str!("syscalls.txt").lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split(' ');
        let name = words.next()?;
        let numbers = std::array::from_fn(|_| words.next().and_then(|word| word.parse().ok()));
        Some(Call { name, numbers, who: words.next()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_numbers_that_this_machines_library_has() {
        let here = if cfg!(target_arch = "x86_64") { Abi::X86_64 } else { Abi::Aarch64 };
        let number = |name| calls().find(|c| c.name == name).and_then(|c| c.number(here)).map(i64::from);
        for (name, expected) in [
            ("read", libc::SYS_read),
            ("clone", libc::SYS_clone),
            ("sethostname", libc::SYS_sethostname),
            ("seccomp", libc::SYS_seccomp),
            ("io_uring_setup", libc::SYS_io_uring_setup),
            ("openat2", libc::SYS_openat2),
            ("mount_setattr", libc::SYS_mount_setattr),
        ] {
            assert_eq!(number(name), Some(expected), "{name}");
        }
        let i386 = |name| calls().find(|c| c.name == name).and_then(|c| c.number(Abi::I386));
        assert_eq!((i386("read"), i386("socketcall"), i386("clone3")), (Some(3), Some(102), Some(435)));
    }

    #[test]
    fn every_line_says_who_may() {
        assert!(calls().count() > 480);
        for call in calls() {
            let capability = |name: &str| {
                let full = format!("CAP_{name}");
                crate::container::capability_names().any(|known| known == full)
            };
            let known = matches!(call.who, "all" | "none" | "args") || call.who.split(',').all(capability);
            assert!(known, "{}: {}", call.name, call.who);
            assert!(call.numbers.iter().any(Option::is_some), "{} has no number", call.name);
        }
    }
}
