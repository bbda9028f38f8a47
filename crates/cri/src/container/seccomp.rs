//! Which seccomp profile a container gets. Pure, but for [`profile`], which reads the file that the Pod names.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use trine_contracts::cri::LinuxContainerSecurityContext;
use trine_contracts::cri::security_profile::ProfileType;
use trine_kernel::seccomp::default_profile;
use trine_kernel::seccomp::profile::{Action, Argument, Rule, Seccomp};

/// Prefix of a file in the older field of the contract.
const LOCALHOST: &str = "localhost/";

/// What a container asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Unconfined,
    Default,
    File(PathBuf),
}

/// The profile of a container with these capabilities; none if it may make every call.
///
/// # Errors
/// A sentence that names the profile and what is wrong with it.
pub(super) fn profile(
    security: &LinuxContainerSecurityContext,
    capabilities: &[String],
) -> Result<Option<Seccomp>, String> {
    let file = match wanted(security)? {
        Wanted::Unconfined => return Ok(None),
        Wanted::Default => return Ok(Some(default_profile(capabilities))),
        Wanted::File(file) => file,
    };
    let failed = |why: String| format!("seccomp profile {}: {why}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|e| failed(e.to_string()))?;
    let uname = rustix::system::uname();
    resolve(&text, capabilities, &uname.release().to_string_lossy()).map(Some).map_err(failed)
}

fn wanted(security: &LinuxContainerSecurityContext) -> Result<Wanted, String> {
    // Whoever may do everything is not held back by a list.
    if security.privileged {
        return Ok(Wanted::Unconfined);
    }
    let file = |path: &str| match Path::new(path) {
        path if path.is_absolute() => Ok(Wanted::File(path.to_owned())),
        path => {
            Err(format!("the path of the seccomp profile {:?} is not absolute", path.display().to_string()))
        }
    };
    match (&security.seccomp, security.seccomp_profile_path.as_str()) {
        (Some(asked), _) => match asked.profile_type() {
            ProfileType::RuntimeDefault => Ok(Wanted::Default),
            ProfileType::Unconfined => Ok(Wanted::Unconfined),
            ProfileType::Localhost => file(&asked.localhost_ref),
        },
        (None, "" | "unconfined") => Ok(Wanted::Unconfined),
        (None, "runtime/default" | "docker/default") => Ok(Wanted::Default),
        (None, path) => match path.strip_prefix(LOCALHOST) {
            Some(path) => file(path),
            None => Err(format!("there is no seccomp profile {path:?}")),
        },
    }
}

/// A profile as people write it: OCI's form, with what Docker's has more.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    default_action: Action,
    default_errno_ret: Option<u32>,
    architectures: Option<Vec<String>>,
    arch_map: Option<Vec<Family>>,
    flags: Option<Vec<String>>,
    syscalls: Option<Vec<WrittenRule>>,
}

/// One of Docker's processors, with the older ways to make calls on it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Family {
    architecture: String,
    sub_architectures: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenRule {
    name: Option<String>,
    names: Option<Vec<String>>,
    action: Action,
    errno_ret: Option<u32>,
    args: Option<Vec<Argument>>,
    #[serde(default)]
    includes: Filter,
    #[serde(default)]
    excludes: Filter,
}

/// When a rule counts.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Filter {
    caps: Option<Vec<String>>,
    arches: Option<Vec<String>>,
    min_kernel: Option<String>,
}

/// Reads `text` for a container with `capabilities` on this kind of processor and the kernel `release` (`6.1.0-18`).
fn resolve(text: &str, capabilities: &[String], release: &str) -> Result<Seccomp, String> {
    let document: Document = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let mut architectures = document.architectures.unwrap_or_default();
    for family in document.arch_map.unwrap_or_default() {
        if family.architecture == here().0 {
            architectures.push(family.architecture);
            architectures.extend(family.sub_architectures.unwrap_or_default());
        }
    }
    let holds = |cap: &String| capabilities.contains(cap);
    let is_here = |arch: &String| arch == here().1;
    let rules = document.syscalls.unwrap_or_default().into_iter().filter(|rule| {
        let (includes, excludes) = (&rule.includes, &rule.excludes);
        includes.caps.iter().flatten().all(holds)
            && includes.arches.as_ref().is_none_or(|all| all.is_empty() || all.iter().any(is_here))
            && includes.min_kernel.as_deref().is_none_or(|least| at_least(release, least))
            && !excludes.caps.iter().flatten().any(holds)
            && !excludes.arches.iter().flatten().any(is_here)
            && !excludes.min_kernel.as_deref().is_some_and(|least| at_least(release, least))
    });
    Ok(Seccomp {
        default_action: document.default_action,
        default_errno_ret: document.default_errno_ret,
        architectures,
        flags: document.flags,
        syscalls: rules
            .map(|rule| Rule {
                names: rule.name.into_iter().chain(rule.names.unwrap_or_default()).collect(),
                action: rule.action,
                errno_ret: rule.errno_ret,
                args: rule.args.unwrap_or_default(),
            })
            .collect(),
    })
}

/// This machine's processor in the words of libseccomp and of Go.
fn here() -> (&'static str, &'static str) {
    if cfg!(target_arch = "aarch64") { ("SCMP_ARCH_AARCH64", "arm64") } else { ("SCMP_ARCH_X86_64", "amd64") }
}

fn at_least(release: &str, least: &str) -> bool {
    let numbers = |text: &str| {
        let mut parts =
            text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    };
    numbers(release) >= numbers(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_contracts::cri::SecurityProfile;

    fn asks(kind: ProfileType, file: &str) -> LinuxContainerSecurityContext {
        let profile = SecurityProfile { profile_type: kind as i32, localhost_ref: file.to_owned() };
        LinuxContainerSecurityContext { seccomp: Some(profile), ..Default::default() }
    }

    #[test]
    fn both_fields_of_the_contract_are_understood_and_a_privileged_container_is_never_confined() {
        let old = |path: &str| LinuxContainerSecurityContext {
            seccomp_profile_path: path.to_owned(),
            ..Default::default()
        };
        let rows = [
            (LinuxContainerSecurityContext::default(), Ok(Wanted::Unconfined)),
            (asks(ProfileType::RuntimeDefault, ""), Ok(Wanted::Default)),
            (asks(ProfileType::Unconfined, ""), Ok(Wanted::Unconfined)),
            (asks(ProfileType::Localhost, "/p.json"), Ok(Wanted::File("/p.json".into()))),
            (old("runtime/default"), Ok(Wanted::Default)),
            (old("unconfined"), Ok(Wanted::Unconfined)),
            (old("localhost//p.json"), Ok(Wanted::File("/p.json".into()))),
        ];
        for (security, expected) in rows {
            let privileged = LinuxContainerSecurityContext { privileged: true, ..security.clone() };
            assert_eq!(wanted(&privileged), Ok(Wanted::Unconfined));
            assert_eq!(wanted(&security), expected, "{security:?}");
        }
        assert!(wanted(&asks(ProfileType::Localhost, "p.json")).unwrap_err().contains("not absolute"));
        assert!(wanted(&old("nosuch")).unwrap_err().contains("nosuch"));
    }

    #[test]
    fn a_file_that_is_absent_or_broken_is_named() {
        let absent = profile(&asks(ProfileType::Localhost, "/nosuch.json"), &[]).unwrap_err();
        assert!(absent.contains("/nosuch.json"), "{absent}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.json");
        std::fs::write(&file, r#"{"defaultAction": "SCMP_ACT_WHATEVER"}"#).unwrap();
        let broken = profile(&asks(ProfileType::Localhost, &file.to_string_lossy()), &[]).unwrap_err();
        assert!(broken.contains("SCMP_ACT_WHATEVER"), "{broken}");
    }

    #[test]
    fn dockers_form_is_narrowed_to_this_container_and_machine() {
        let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "archMap": [
                {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
                {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]}],
            "syscalls": [
                {"names": ["read", "write"], "action": "SCMP_ACT_ALLOW", "args": null, "comment": "", "includes": {}},
                {"name": "old", "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}]},
                {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
                {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
                {"names": ["s390"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["s390x"]}},
                {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "4.8"}}]}"#;
        let names = |capabilities: &[&str], release: &str| -> Vec<String> {
            let own: Vec<String> = capabilities.iter().map(|c| (*c).to_owned()).collect();
            resolve(text, &own, release).unwrap().syscalls.into_iter().flat_map(|rule| rule.names).collect()
        };
        assert_eq!(names(&["CAP_SYS_ADMIN"], "6.1.0-18-amd64"), ["read", "write", "old", "mount", "ptrace"]);
        assert_eq!(names(&[], "4.4.0"), ["read", "write", "old", "clone"]);
        let resolved = resolve(text, &[], "6.1").unwrap();
        assert_eq!(resolved.architectures.len(), 2);
        assert_eq!(resolved.syscalls[1].args[0].value, 8);
    }
}
