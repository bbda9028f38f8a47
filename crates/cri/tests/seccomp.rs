//! Which system calls a container may make, asked of the kernel.

#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Node, secured};
use tonic::Code;
use trine_contracts::cri::security_profile::ProfileType;
use trine_contracts::cri::*;

/// What a script says of itself: the kernel's word for "filtered", and whether it may mount.
const LOOK: &str = "grep ^Seccomp: /proc/self/status | grep -o '[0-9]'; mount -t tmpfs t /tmp 2>/dev/null && echo mounts || echo mounts not";

fn context(kind: ProfileType, file: &str, capabilities: &[&str]) -> LinuxContainerSecurityContext {
    LinuxContainerSecurityContext {
        seccomp: Some(SecurityProfile { profile_type: kind as i32, localhost_ref: file.to_owned() }),
        capabilities: Some(Capability {
            add_capabilities: capabilities.iter().map(|c| (*c).to_owned()).collect(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_holds_the_container_and_what_is_executed_in_it() {
    let Some(node) = Node::start("a_profile_holds_the_container_and_what_is_executed_in_it").await else {
        return;
    };
    let file = node.dir.path().join("profile.json");
    let profile = r#"{"defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mount", "fsopen"], "action": "SCMP_ACT_ERRNO"}]}"#;
    std::fs::write(&file, profile).unwrap();
    let file = file.to_string_lossy().into_owned();
    let user = |context: LinuxContainerSecurityContext| LinuxContainerSecurityContext {
        run_as_user: Some(Int64Value { value: 33 }),
        ..context
    };
    let unprivileged = |context| LinuxContainerSecurityContext { no_new_privs: true, ..user(context) };
    let admin = ["SYS_ADMIN"];
    let rows = [
        ("default", context(ProfileType::RuntimeDefault, "", &[]), "2 mounts not"),
        ("default-admin", context(ProfileType::RuntimeDefault, "", &admin), "2 mounts"),
        ("user", user(context(ProfileType::RuntimeDefault, "", &[])), "2 mounts not"),
        ("no-new", unprivileged(context(ProfileType::RuntimeDefault, "", &[])), "2 mounts not"),
        ("none", context(ProfileType::Unconfined, "", &admin), "0 mounts"),
        ("file", context(ProfileType::Localhost, &file, &admin), "2 mounts not"),
        (
            "privileged",
            LinuxContainerSecurityContext { privileged: true, ..context(ProfileType::Localhost, &file, &[]) },
            "0 mounts",
        ),
    ];
    let pod = node.run_pod(&node.pod("held")).await;
    for (name, security, expected) in rows {
        let command = format!("{LOOK}; exec sleep 1000");
        let id = node.run(&pod, secured(name, &command, security)).await;
        let said = node.stdout(&id, LOOK).await.replace('\n', " ");
        assert_eq!(said, expected, "executed in {name}");
        let expected: Vec<String> = expected.splitn(2, ' ').map(|word| format!("stdout F {word}")).collect();
        for _ in 0..500 {
            if node.log(&id).await.len() == 2 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(node.log(&id).await, expected, "{name}");
        let capabilities = node.stdout(&id, "grep ^CapEff: /proc/1/status | grep -o '[0-9a-f]*$'").await;
        let admin = u64::from_str_radix(&capabilities, 16).unwrap() >> 21 & 1 == 1;
        assert_eq!(admin, expected[1].ends_with(" mounts") || name == "file", "{name}: {capabilities}");
    }
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_cannot_be_had_is_refused_by_its_name() {
    let Some(node) = Node::start("a_profile_that_cannot_be_had_is_refused_by_its_name").await else { return };
    let pod = node.run_pod(&node.pod("refused")).await;
    let file = node.dir.path().join("broken.json");
    let path = file.to_string_lossy().into_owned();
    for (text, expected) in [
        (None, "No such file"),
        (Some("{"), "EOF"),
        (Some(r#"{"defaultAction": "SCMP_ACT_NOTIFY"}"#), "SCMP_ACT_NOTIFY"),
    ] {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let config = secured("c", "true", context(ProfileType::Localhost, &path, &[]));
        let error = node.create(&pod, config).await.unwrap_err();
        assert!(error.message().contains(expected), "{expected}: {error:?}");
        assert_ne!(error.code(), Code::NotFound, "{error:?}");
    }
    node.finish().await;
}
