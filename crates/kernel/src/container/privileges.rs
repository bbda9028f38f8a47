//! Limits, user, groups and capabilities of the process to be.

use std::path::Path;

use rustix::fs::{Gid, Uid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_gid, set_thread_groups, set_thread_uid,
};

use super::SetupError;
use super::oci::{Process, Rlimit as Limit};
use super::owners::Owners;
use crate::seccomp::profile::Seccomp;
use crate::seccomp::{Machine, Program, SeccompError, compile};

/// Capabilities by number (capability.h).
const NAMES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// The names of all capabilities (`CAP_CHOWN`), in the order of their numbers.
pub fn capability_names() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter()
}

/// The set of the named capabilities; `ALL` is each of them, an unknown name none.
fn set_of(names: &[String]) -> CapabilitySet {
    names
        .iter()
        .map(|name| {
            if name == "ALL" {
                return CapabilitySet::from_bits_retain((1 << NAMES.len()) - 1);
            }
            let number = NAMES.iter().position(|known| *known == name);
            number.map_or(CapabilitySet::empty(), |number| CapabilitySet::from_bits_retain(1 << number))
        })
        .fold(CapabilitySet::empty(), |all, one| all | one)
}

/// Sets the out-of-memory score; lowering it needs CAP_SYS_RESOURCE. What could not be had is returned as a note.
pub(super) fn set_oom_score(process: &Process) -> Option<String> {
    let wanted = process.oom_score_adj?;
    let error = std::fs::write("/proc/self/oom_score_adj", wanted.to_string()).err()?;
    Some(format!("oom_score_adj stays as it is, not {wanted}: {}", super::words(&error)))
}

pub(super) fn set_limits(limits: &[Limit]) -> Result<(), SetupError> {
    for limit in limits {
        let Some(resource) = resource(&limit.kind) else {
            return Err(SetupError { step: format!("set {}", limit.kind), cause: "no such limit".into() });
        };
        let value = |n: u64| if n == u64::MAX { None } else { Some(n) };
        let wanted = Rlimit { current: value(limit.soft), maximum: value(limit.hard) };
        if setrlimit(resource, wanted).is_ok() {
            continue;
        }
        // Without CAP_SYS_RESOURCE the ceiling cannot rise; the most that is allowed then.
        let ceiling = getrlimit(resource).maximum;
        let capped = |n: Option<u64>| match (n, ceiling) {
            (Some(n), Some(max)) => Some(n.min(max)),
            (None, max) => max,
            (n, None) => n,
        };
        let allowed = Rlimit { current: capped(wanted.current), maximum: capped(wanted.maximum) };
        setrlimit(resource, allowed).map_err(SetupError::at(format!("set {}", limit.kind)))?;
    }
    Ok(())
}

fn resource(kind: &str) -> Option<Resource> {
    Some(match kind.strip_prefix("RLIMIT_")? {
        "AS" => Resource::As,
        "CORE" => Resource::Core,
        "CPU" => Resource::Cpu,
        "DATA" => Resource::Data,
        "FSIZE" => Resource::Fsize,
        "LOCKS" => Resource::Locks,
        "MEMLOCK" => Resource::Memlock,
        "MSGQUEUE" => Resource::Msgqueue,
        "NICE" => Resource::Nice,
        "NOFILE" => Resource::Nofile,
        "NPROC" => Resource::Nproc,
        "RSS" => Resource::Rss,
        "RTPRIO" => Resource::Rtprio,
        "RTTIME" => Resource::Rttime,
        "SIGPENDING" => Resource::Sigpending,
        "STACK" => Resource::Stack,
        _ => return None,
    })
}

/// Gives the standard streams to the user, so that `/dev/stdout` can be opened again by name.
pub(super) fn own_streams(process: &Process, owners: &Owners) {
    let uid = owners.uid(process.user.uid);
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let Ok(stat) = rustix::fs::fstat(stream) else { continue };
        let null = rustix::fs::major(stat.st_rdev) == 1;
        if !null && stat.st_uid != uid {
            let _ = rustix::fs::fchown(stream, Some(Uid::from_raw(uid)), None);
        }
    }
}

/// The last steps: they would forbid those before them.
#[derive(Debug, Default)]
pub(super) struct Rest {
    filter: Option<Program>,
    /// What it is to have once the filter is installed, if it still has more.
    capabilities: Option<CapabilitySets>,
}

impl Rest {
    /// Takes them. The profile must let `capset` pass, as with other runtimes, unless new privileges are forbidden.
    pub(super) fn take(&self) -> Result<(), SetupError> {
        if let Some(filter) = &self.filter {
            filter.install().map_err(SetupError::at("install the seccomp profile"))?;
        }
        if let Some(sets) = self.capabilities {
            set_capabilities(None, sets)
                .map_err(SetupError::at("set the capabilities under the seccomp profile"))?;
        }
        Ok(())
    }
}

fn program(seccomp: &Seccomp) -> Result<Program, SetupError> {
    let compiled = Machine::here().ok_or(SeccompError::Machine).and_then(|here| compile(seccomp, here));
    compiled.map_err(|error| SetupError { step: "prepare for its start".into(), cause: error.to_string() })
}

/// Changes to `cwd`, the user, the groups and the capabilities of `process`, for good but for what is left to be done.
pub(super) fn drop_to(process: &Process, seccomp: Option<&Seccomp>) -> Result<Rest, SetupError> {
    let filter = seccomp.map(program).transpose()?;
    let cwd = if process.cwd.as_os_str().is_empty() { Path::new("/") } else { &process.cwd };
    let into_cwd = || rustix::process::chdir(cwd);
    // As root, which may enter what the user may not; or as the user, where even root may not (a network disk).
    let entered = into_cwd();
    let held = capabilities(None).map_err(SetupError::at("read the capabilities"))?.permitted;
    let sets = &process.capabilities;
    let bounding = set_of(&sets.bounding);
    for (number, name) in NAMES.iter().enumerate() {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !bounding.contains(one) && held.contains(one) {
            remove_capability_from_bounding_set(one).map_err(SetupError::at(format!("drop {name}")))?;
        }
    }
    become_user(process)?;
    let permitted = set_of(&sets.permitted) & held;
    let wanted = CapabilitySets {
        effective: set_of(&sets.effective) & permitted,
        permitted,
        inheritable: set_of(&sets.inheritable) & permitted,
    };
    // A filter is taken from those who cannot gain privileges, or from an administrator.
    let needed = if filter.is_some() && !process.no_new_privileges {
        CapabilitySet::SYS_ADMIN & held
    } else {
        CapabilitySet::empty()
    };
    let for_now = CapabilitySets {
        effective: wanted.effective | needed,
        permitted: wanted.permitted | needed,
        ..wanted
    };
    set_capabilities(None, for_now).map_err(SetupError::at("set the capabilities"))?;
    for (number, name) in NAMES.iter().enumerate() {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if set_of(&sets.ambient).contains(one) && wanted.inheritable.contains(one) {
            configure_capability_in_ambient_set(one, true).map_err(SetupError::at(format!("keep {name}")))?;
        }
    }
    if process.no_new_privileges {
        set_no_new_privs(true).map_err(SetupError::at("forbid new privileges"))?;
    }
    entered
        .or_else(|_| into_cwd())
        .map_err(SetupError::at(format!("chdir to cwd {:?}", cwd.display().to_string())))?;
    Ok(Rest { filter, capabilities: (for_now != wanted).then_some(wanted) })
}

fn become_user(process: &Process) -> Result<(), SetupError> {
    let user = &process.user;
    let groups: Vec<Gid> = user.additional_gids.iter().map(|gid| Gid::from_raw(*gid)).collect();
    set_keep_capabilities(true).map_err(SetupError::at("keep capabilities over the change of user"))?;
    set_thread_groups(&groups).map_err(SetupError::at("set the groups"))?;
    set_thread_gid(Gid::from_raw(user.gid)).map_err(SetupError::at(format!("become group {}", user.gid)))?;
    set_thread_uid(Uid::from_raw(user.uid)).map_err(SetupError::at(format!("become user {}", user.uid)))?;
    set_keep_capabilities(false).map_err(SetupError::at("keep capabilities over the change of user"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_found_by_name_and_all_is_all() {
        let set = |names: &[&str]| set_of(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(set(&["CAP_CHOWN", "CAP_KILL"]).bits(), 0b10_0001);
        assert_eq!(set(&["CAP_CHECKPOINT_RESTORE"]).bits(), 1 << 40);
        assert_eq!(set(&["ALL"]).bits().count_ones(), 41);
        assert_eq!(set(&["CAP_NOPE"]).bits(), 0);
    }
}
