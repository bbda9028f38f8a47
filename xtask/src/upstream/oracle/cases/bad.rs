//! Requests that are wrong as such.

use super::{Case, NEWEST, Step, TRIED, step, with};

macro_rules! bad {
    ($name:literal, $config:literal, $steps:expr) => {
        Case {
            name: concat!("bad, ", $name),
            plugin: "bridge",
            config: $config,
            versions: NEWEST,
            steps: $steps,
            below: None,
        }
    };
}

macro_rules! asked {
    ($name:literal, $steps:expr) => {
        bad!(
            $name,
            r#"{"cniVersion": "VERSION", "name": "net", "type": "bridge", "bridge": "br7",
                "ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}}"#,
            $steps
        )
    };
}

pub const CASES: &[Case] = &[
    bad!("no name", r#"{"cniVersion": "VERSION", "type": "bridge", "ipam": {}}"#, TRIED),
    bad!(
        "a name with odd letters",
        r#"{"cniVersion": "VERSION", "name": "a/b", "type": "bridge", "ipam": {}}"#,
        TRIED
    ),
    bad!(
        "a version that is none",
        r#"{"cniVersion": "x", "name": "net", "type": "bridge", "ipam": {}}"#,
        TRIED
    ),
    bad!(
        "a version to come",
        r#"{"cniVersion": "9.0.0", "name": "net", "type": "bridge", "ipam": {}}"#,
        TRIED
    ),
    bad!(
        "a field of another type",
        r#"{"cniVersion": "VERSION", "name": "net", "type": "bridge", "bridge": 7, "ipam": {}}"#,
        TRIED
    ),
    bad!(
        "addresses of nobody",
        r#"{"cniVersion": "VERSION", "name": "net", "type": "bridge", "ipam": {"type": "nosuch"}}"#,
        TRIED
    ),
    bad!(
        "a bridge's name that is too long",
        r#"{"cniVersion": "VERSION", "name": "net", "type": "bridge", "bridge": "a-name-of-twenty-one", "ipam": {}}"#,
        TRIED
    ),
    asked!("no command", &[with(&[("CNI_COMMAND", "")])]),
    asked!("an unknown command", &[with(&[("CNI_COMMAND", "MAKE")])]),
    asked!("no container", &[with(&[("CNI_CONTAINERID", "")])]),
    asked!("a container with odd letters", &[with(&[("CNI_CONTAINERID", "a/b")])]),
    asked!("no namespace", &[with(&[("CNI_NETNS", "")])]),
    asked!("a namespace that is not there", &[with(&[("CNI_NETNS", "/run/netns/nosuch")])]),
    asked!("a namespace that is a file", &[with(&[("CNI_NETNS", "/etc/passwd")])]),
    asked!("no link", &[with(&[("CNI_IFNAME", "")])]),
    asked!("a link's name that is too long", &[with(&[("CNI_IFNAME", "a-name-of-twenty-one")])]),
    asked!("a link's name with a slash", &[with(&[("CNI_IFNAME", "a/b")])]),
    asked!("a link's name with a colon", &[with(&[("CNI_IFNAME", "a:b")])]),
    asked!("a look at what is not there", &[step("CHECK", "eth0", false)]),
    asked!(
        "down without a namespace",
        &[
            step("ADD", "eth0", false),
            Step { command: "DEL", ..with(&[("CNI_NETNS", "")]) },
            step("DEL", "eth0", false),
        ]
    ),
    asked!(
        "down when the namespace is gone",
        &[Step { command: "DEL", ..with(&[("CNI_NETNS", "/run/netns/nosuch")]) }]
    ),
];
