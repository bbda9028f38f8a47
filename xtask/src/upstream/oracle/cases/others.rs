//! `loopback`, and `portmap` behind a result that is given.

use super::{ALL_VERSIONS, Case, LISTS, NEWEST, Step, step};

const LOOPBACK: &[Step] =
    &[step("ADD", "lo", false), step("CHECK", "lo", true), step("DEL", "lo", true), step("DEL", "lo", false)];
/// Without CHECK: what the reference looks for are rules of iptables.
const MAPPED: &[Step] = &[step("ADD", "eth0", false), step("DEL", "eth0", false), step("DEL", "eth0", false)];

macro_rules! portmap {
    ($name:literal, $versions:expr, $own:literal) => {
        Case {
            name: concat!("portmap, ", $name),
            plugin: "portmap",
            config: concat!(
                r#"{"cniVersion": "VERSION", "name": "net", "type": "portmap", "capabilities": {"portMappings": true}, "#,
                $own,
                r#""prevResult": {"cniVersion": "VERSION", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/x"}],
                    "ips": [{"version": "4", "address": "10.77.0.5/24", "interface": 0}], "dns": {}}}"#
            ),
            versions: $versions,
            steps: MAPPED,
            below: None,
        }
    };
}

pub const CASES: &[Case] = &[
    Case {
        name: "loopback",
        plugin: "loopback",
        config: r#"{"cniVersion": "VERSION", "name": "lo", "type": "loopback"}"#,
        versions: ALL_VERSIONS,
        steps: LOOPBACK,
        below: None,
    },
    Case {
        name: "loopback, another name of the link",
        plugin: "loopback",
        config: r#"{"cniVersion": "VERSION", "name": "lo", "type": "loopback"}"#,
        versions: NEWEST,
        steps: &[step("ADD", "eth0", false), step("DEL", "eth0", false)],
        below: None,
    },
    portmap!("nothing to map", LISTS, ""),
    portmap!(
        "a port",
        LISTS,
        r#""runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}, "#
    ),
    portmap!(
        "ports of one address",
        NEWEST,
        r#""runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "udp", "hostIP": "127.0.0.1"}]}, "#
    ),
    portmap!(
        "a port that is none",
        NEWEST,
        r#""runtimeConfig": {"portMappings": [{"hostPort": 80800, "containerPort": 80, "protocol": "tcp"}]}, "#
    ),
    portmap!(
        "a port of the container that is none",
        NEWEST,
        r#""runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 0, "protocol": "tcp"}]}, "#
    ),
    Case {
        name: "portmap, not chained",
        plugin: "portmap",
        config: r#"{"cniVersion": "VERSION", "name": "net", "type": "portmap",
            "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}}"#,
        versions: NEWEST,
        steps: &[step("ADD", "eth0", false), step("DEL", "eth0", false)],
        below: None,
    },
];
