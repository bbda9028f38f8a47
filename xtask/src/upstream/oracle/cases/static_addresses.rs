//! `static` alone.

use super::{ALL_VERSIONS, Case, LISTS, NEWEST, Step, step, with};

macro_rules! fixed {
    ($name:literal, $versions:expr, $steps:expr, $top:literal, $ipam:literal) => {
        Case {
            name: concat!("static, ", $name),
            plugin: "static",
            config: concat!(
                r#"{"cniVersion": "VERSION", "name": "net", "type": "x", "#,
                $top,
                r#""ipam": {"type": "static", "#,
                $ipam,
                "}}"
            ),
            versions: $versions,
            steps: $steps,
            below: None,
        }
    };
}

const LIFE: &[Step] = &[step("ADD", "eth0", false), step("CHECK", "eth0", true), step("DEL", "eth0", true)];

pub const CASES: &[Case] = &[
    fixed!(
        "an address",
        ALL_VERSIONS,
        LIFE,
        "",
        r#""addresses": [{"address": "10.77.0.5/24", "gateway": "10.77.0.1"}]"#
    ),
    fixed!(
        "both families with routes and names of servers",
        ALL_VERSIONS,
        LIFE,
        "",
        r#""addresses": [{"address": "10.77.0.5/24", "gateway": "10.77.0.1"}, {"address": "fd00:77::5/64"}],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.77.0.9"}, {"dst": "::/0", "gw": "fd00:77::1"}],
            "dns": {"nameservers": ["10.1.1.1"], "domain": "d.test", "search": ["s.test"], "options": ["ndots:2"]}"#
    ),
    fixed!(
        "two addresses of a family",
        ALL_VERSIONS,
        LIFE,
        "",
        r#""addresses": [{"address": "10.77.0.5/24"}, {"address": "10.78.0.5/24"}]"#
    ),
    fixed!("no addresses", LISTS, LIFE, "", r#""addresses": []"#),
    fixed!("an address without a length", NEWEST, LIFE, "", r#""addresses": [{"address": "10.77.0.5"}]"#),
    fixed!("what is no address", NEWEST, LIFE, "", r#""addresses": [{"address": "here"}]"#),
    fixed!(
        "addresses of the runtime's",
        LISTS,
        LIFE,
        r#""runtimeConfig": {"ips": ["10.79.0.5/24"]}, "#,
        r#""addresses": [{"address": "10.77.0.5/24"}]"#
    ),
    fixed!(
        "addresses of the arguments'",
        LISTS,
        LIFE,
        r#""args": {"cni": {"ips": ["10.79.0.6/24"]}}, "#,
        r#""addresses": [{"address": "10.77.0.5/24"}]"#
    ),
    fixed!(
        "addresses of the environment's",
        NEWEST,
        &[with(&[("CNI_ARGS", "IP=10.80.0.5/24,fd00:80::5/64;GATEWAY=10.80.0.1")])],
        "",
        r#""addresses": []"#
    ),
    fixed!(
        "an address of the environment's without a length",
        NEWEST,
        &[with(&[("CNI_ARGS", "IP=10.80.0.5")])],
        "",
        r#""addresses": []"#
    ),
    fixed!(
        "a gateway of the environment's that is none",
        NEWEST,
        &[with(&[("CNI_ARGS", "GATEWAY=here")])],
        "",
        r#""addresses": []"#
    ),
];
