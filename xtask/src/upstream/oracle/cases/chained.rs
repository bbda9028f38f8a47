//! Plugins behind a `bridge`.

use super::{Case, LISTS, NEWEST, Step, WITH_CHECK, step};

macro_rules! chained {
    ($plugin:literal, $name:literal, $versions:expr, $steps:expr, $own:literal) => {
        Case {
            name: concat!($plugin, ", ", $name),
            plugin: $plugin,
            config: concat!(r#"{"cniVersion": "VERSION", "name": "net", "type": ""#, $plugin, r#"""#, $own, "}"),
            versions: $versions,
            steps: $steps,
            below: Some((
                "bridge",
                r#"{"cniVersion": "VERSION", "name": "net", "type": "bridge", "bridge": "br7", "isGateway": true,
                    "ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}"#,
            )),
        }
    };
}

/// Behind a result.
const BEHIND: &[Step] = &[
    step("ADD", "eth0", true),
    step("CHECK", "eth0", true),
    step("DEL", "eth0", true),
    step("DEL", "eth0", true),
];
/// Behind nothing.
const ALONE: &[Step] = &[step("ADD", "eth0", false), step("DEL", "eth0", false)];
/// Only tried.
const TRIED: &[Step] = &[step("ADD", "eth0", true), step("DEL", "eth0", true)];

pub const CASES: &[Case] = &[
    chained!("tuning", "nothing", LISTS, BEHIND, ""),
    chained!("tuning", "an MTU", LISTS, BEHIND, r#", "dataDir": "DATA/tuning", "mtu": 1300"#),
    chained!(
        "tuning",
        "a hardware address",
        LISTS,
        BEHIND,
        r#", "dataDir": "DATA/tuning", "mac": "02:00:00:00:00:42""#
    ),
    chained!(
        "tuning",
        "promiscuous, all multicasts, a queue",
        LISTS,
        BEHIND,
        r#", "dataDir": "DATA/tuning", "promisc": true, "allmulti": true, "txQLen": 77"#
    ),
    chained!(
        "tuning",
        "sysctls",
        LISTS,
        BEHIND,
        r#", "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "500"}"#
    ),
    chained!("tuning", "a sysctl of another tree", NEWEST, TRIED, r#", "sysctl": {"kernel.hostname": "x"}"#),
    chained!(
        "tuning",
        "a sysctl that is not there",
        NEWEST,
        TRIED,
        r#", "sysctl": {"net.ipv4.nosuch": "1"}"#
    ),
    chained!(
        "tuning",
        "a hardware address that is none",
        NEWEST,
        TRIED,
        r#", "dataDir": "DATA/tuning", "mac": "odd""#
    ),
    chained!(
        "tuning",
        "arguments",
        NEWEST,
        BEHIND,
        r#", "dataDir": "DATA/tuning", "mtu": 1400, "args": {"cni": {"mtu": 1280}}"#
    ),
    chained!("tuning", "alone", NEWEST, ALONE, r#", "mtu": 1300"#),
    chained!("sbr", "a table of its own", LISTS, BEHIND, ""),
    chained!("sbr", "a table that is named", LISTS, BEHIND, r#", "table": 4242"#),
    chained!("sbr", "alone", NEWEST, ALONE, ""),
    chained!("bandwidth", "nothing", LISTS, BEHIND, ""),
    chained!(
        "bandwidth",
        "to the container",
        LISTS,
        BEHIND,
        r#", "ingressRate": 8000000, "ingressBurst": 80000"#
    ),
    chained!(
        "bandwidth",
        "from the container",
        LISTS,
        BEHIND,
        r#", "egressRate": 8000000, "egressBurst": 80000"#
    ),
    chained!(
        "bandwidth",
        "both ways, the runtime's",
        LISTS,
        BEHIND,
        r#", "runtimeConfig": {"bandwidth": {"ingressRate": 8000000, "ingressBurst": 80000, "egressRate": 16000000, "egressBurst": 160000}}"#
    ),
    chained!("bandwidth", "a rate without a burst", NEWEST, TRIED, r#", "ingressRate": 8000000"#),
    chained!("bandwidth", "a burst without a rate", NEWEST, TRIED, r#", "egressBurst": 8000000"#),
    chained!(
        "bandwidth",
        "a burst that is too large",
        NEWEST,
        TRIED,
        r#", "ingressRate": 8000000, "ingressBurst": 34359738368"#
    ),
    chained!("bandwidth", "alone", NEWEST, ALONE, r#", "ingressRate": 8000000, "ingressBurst": 80000"#),
    chained!("firewall", "open", WITH_CHECK, BEHIND, r#", "backend": "iptables""#),
    chained!(
        "firewall",
        "the same bridge",
        WITH_CHECK,
        BEHIND,
        r#", "backend": "iptables", "ingressPolicy": "same-bridge""#
    ),
    chained!(
        "firewall",
        "isolated",
        WITH_CHECK,
        BEHIND,
        r#", "backend": "iptables", "ingressPolicy": "isolated""#
    ),
    chained!(
        "firewall",
        "a policy that is none",
        NEWEST,
        TRIED,
        r#", "backend": "iptables", "ingressPolicy": "odd""#
    ),
    chained!("firewall", "alone", NEWEST, ALONE, r#", "backend": "iptables""#),
    chained!("vrf", "no name", NEWEST, TRIED, ""),
    chained!("vrf", "alone", NEWEST, ALONE, r#", "vrfname": "blue""#),
];
