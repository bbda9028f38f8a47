//! `host-local` alone.

use super::{ALL_VERSIONS, Case, LISTS, NEWEST, Step, step, with};

macro_rules! local {
    ($name:literal, $versions:expr, $steps:expr, $top:literal, $ipam:literal) => {
        Case {
            name: concat!("host-local, ", $name),
            plugin: "host-local",
            config: concat!(
                r#"{"cniVersion": "VERSION", "name": "net", "type": "x", "#,
                $top,
                r#""ipam": {"type": "host-local", "dataDir": "DATA", "#,
                $ipam,
                "}}"
            ),
            versions: $versions,
            steps: $steps,
            below: None,
        }
    };
}

/// Two links of one Pod, each looked at and away.
const BOTH: &[Step] = &[
    step("ADD", "eth0", false),
    step("ADD", "eth1", false),
    step("CHECK", "eth0", false),
    step("DEL", "eth0", false),
    step("DEL", "eth1", false),
    step("DEL", "eth1", false),
];
/// As many as a small range has, and one more; then the first one's address again.
const MANY: &[Step] = &[
    step("ADD", "eth0", false),
    step("ADD", "eth1", false),
    step("ADD", "eth2", false),
    step("DEL", "eth0", false),
    step("ADD", "eth3", false),
    step("ADD", "eth4", false),
];
/// An address that is asked for, twice.
const ASKED: &[Step] = &[
    with(&[("CNI_ARGS", "IP=10.77.0.42")]),
    Step { interface: "eth1", ..with(&[("CNI_ARGS", "IP=10.77.0.42")]) },
    step("DEL", "eth0", false),
    Step { interface: "eth1", ..with(&[("CNI_ARGS", "IP=10.77.0.42")]) },
];

pub const CASES: &[Case] = &[
    local!(
        "one range with a route",
        ALL_VERSIONS,
        BOTH,
        "",
        r#""subnet": "10.77.0.0/24", "routes": [{"dst": "10.9.0.0/16", "gw": "10.77.0.3"}]"#
    ),
    local!("IPv6", ALL_VERSIONS, BOTH, "", r#""subnet": "fd00:77::/64", "routes": [{"dst": "::/0"}]"#),
    local!(
        "both families",
        LISTS,
        BOTH,
        "",
        r#""ranges": [[{"subnet": "10.77.0.0/24"}], [{"subnet": "fd00:77::/64"}]]"#
    ),
    local!(
        "a set of two ranges",
        LISTS,
        MANY,
        "",
        r#""ranges": [[{"subnet": "10.77.0.0/30"}, {"subnet": "10.78.0.0/30"}]]"#
    ),
    local!("an address that is asked for", LISTS, ASKED, "", r#""subnet": "10.77.0.0/24""#),
    local!(
        "a beginning and an end",
        LISTS,
        MANY,
        "",
        r#""subnet": "10.77.0.0/24", "rangeStart": "10.77.0.10", "rangeEnd": "10.77.0.11", "gateway": "10.77.0.9""#
    ),
    local!(
        "the gateway within the range",
        NEWEST,
        MANY,
        "",
        r#""subnet": "10.77.0.0/29", "gateway": "10.77.0.2""#
    ),
    local!(
        "ranges of the runtime's",
        LISTS,
        BOTH,
        r#""runtimeConfig": {"ipRanges": [[{"subnet": "10.79.0.0/24"}]]}, "#,
        r#""subnet": "10.77.0.0/24""#
    ),
    local!(
        "addresses of the runtime's",
        LISTS,
        BOTH,
        r#""runtimeConfig": {"ips": ["10.77.0.50"]}, "#,
        r#""subnet": "10.77.0.0/24""#
    ),
    local!(
        "addresses of the configuration's",
        LISTS,
        BOTH,
        r#""args": {"cni": {"ips": ["10.77.0.51"]}}, "#,
        r#""subnet": "10.77.0.0/24""#
    ),
    local!(
        "an address that is asked for with its length",
        NEWEST,
        &[with(&[("CNI_ARGS", "IP=10.77.0.42/24")])],
        "",
        r#""subnet": "10.77.0.0/24""#
    ),
    local!(
        "an address that is asked for and none of the range",
        NEWEST,
        &[with(&[("CNI_ARGS", "IP=10.99.0.42")])],
        "",
        r#""subnet": "10.77.0.0/24""#
    ),
    local!(
        "what is asked for is no address",
        NEWEST,
        &[with(&[("CNI_ARGS", "IP=here")])],
        "",
        r#""subnet": "10.77.0.0/24""#
    ),
    local!(
        "more in the arguments than is known",
        NEWEST,
        &[with(&[("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=p")])],
        "",
        r#""subnet": "10.77.0.0/24""#
    ),
    local!(
        "several routes",
        NEWEST,
        BOTH,
        "",
        r#""subnet": "10.77.0.0/24", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16"}]"#
    ),
    local!("no ranges", NEWEST, BOTH, "", r#""ranges": []"#),
    local!("a range without room", NEWEST, BOTH, "", r#""subnet": "10.77.0.0/31""#),
    local!("a range that is one address", NEWEST, BOTH, "", r#""subnet": "10.77.0.1/32""#),
    local!("a range with host bits", NEWEST, BOTH, "", r#""subnet": "10.77.0.5/24""#),
    local!("a range that is none", NEWEST, BOTH, "", r#""subnet": "here""#),
    local!(
        "a beginning outside of the range",
        NEWEST,
        BOTH,
        "",
        r#""subnet": "10.77.0.0/24", "rangeStart": "10.78.0.1""#
    ),
    local!(
        "an end outside of the range",
        NEWEST,
        BOTH,
        "",
        r#""subnet": "10.77.0.0/24", "rangeEnd": "10.78.0.1""#
    ),
    local!(
        "an end before the beginning",
        NEWEST,
        BOTH,
        "",
        r#""subnet": "10.77.0.0/24", "rangeStart": "10.77.0.20", "rangeEnd": "10.77.0.10""#
    ),
    local!(
        "a gateway outside of the range",
        NEWEST,
        BOTH,
        "",
        r#""subnet": "10.77.0.0/24", "gateway": "10.78.0.1""#
    ),
    local!(
        "ranges that overlap in a set",
        NEWEST,
        BOTH,
        "",
        r#""ranges": [[{"subnet": "10.77.0.0/24"}, {"subnet": "10.77.0.0/16"}]]"#
    ),
    local!(
        "ranges that overlap between sets",
        NEWEST,
        BOTH,
        "",
        r#""ranges": [[{"subnet": "10.77.0.0/24"}], [{"subnet": "10.77.0.0/24"}]]"#
    ),
    local!(
        "both families in a set",
        NEWEST,
        BOTH,
        "",
        r#""ranges": [[{"subnet": "10.77.0.0/24"}, {"subnet": "fd00:77::/64"}]]"#
    ),
    local!("an empty set", NEWEST, BOTH, "", r#""ranges": [[]]"#),
];
