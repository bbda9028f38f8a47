//! Plugins that make the container's link, other than `bridge`.

use super::{AGAIN, ALL_VERSIONS, Case, LIFE, LISTS, NEWEST, Step, TRIED, step, with};

macro_rules! linked {
    ($plugin:literal, $name:literal, $versions:expr, $steps:expr, $own:expr) => {
        Case {
            name: concat!($plugin, ", ", $name),
            plugin: $plugin,
            config: concat!(
                r#"{"cniVersion": "VERSION", "name": "net", "type": ""#,
                $plugin,
                r#"", "#,
                $own,
                "}"
            ),
            versions: $versions,
            steps: $steps,
            below: None,
        }
    };
}

macro_rules! addressed {
    ($plugin:literal, $name:literal, $versions:expr, $steps:expr, $own:literal) => {
        linked!(
            $plugin,
            $name,
            $versions,
            $steps,
            concat!($own, r#""ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}"#)
        )
    };
}

/// Up and down, without CHECK.
const UP_DOWN: &[Step] = &[step("ADD", "eth0", false), step("DEL", "eth0", true), step("DEL", "eth0", false)];

pub const CASES: &[Case] = &[
    linked!(
        "ptp",
        "a default route",
        ALL_VERSIONS,
        LIFE,
        r#""ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}"#
    ),
    linked!(
        "ptp",
        "a small MTU",
        LISTS,
        LIFE,
        r#""mtu": 1400, "ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    linked!(
        "ptp",
        "both families",
        LISTS,
        LIFE,
        r#""ipam": {"type": "host-local", "dataDir": "DATA", "ranges": [[{"subnet": "10.77.0.0/24"}], [{"subnet": "fd00:77::/64"}]]}"#
    ),
    linked!(
        "ptp",
        "names of servers",
        NEWEST,
        LIFE,
        r#""dns": {"nameservers": ["10.1.1.1"]}, "ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    linked!(
        "ptp",
        "addresses of the configuration's",
        LISTS,
        LIFE,
        r#""ipam": {"type": "static", "addresses": [{"address": "10.77.0.9/24", "gateway": "10.77.0.1"}]}"#
    ),
    linked!(
        "ptp",
        "the same link twice",
        NEWEST,
        AGAIN,
        r#""ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    linked!("ptp", "addresses of nobody", NEWEST, TRIED, r#""ipam": {"type": "nosuch"}"#),
    linked!("macvlan", "without addresses", LISTS, LIFE, r#""master": "nic0""#),
    linked!(
        "macvlan",
        "with addresses",
        ALL_VERSIONS,
        LIFE,
        r#""master": "nic0", "ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}"#
    ),
    linked!("macvlan", "private", LISTS, LIFE, r#""master": "nic0", "mode": "private""#),
    linked!("macvlan", "vepa", NEWEST, LIFE, r#""master": "nic0", "mode": "vepa""#),
    linked!("macvlan", "passthru", NEWEST, LIFE, r#""master": "nic0", "mode": "passthru""#),
    linked!("macvlan", "a small MTU", LISTS, LIFE, r#""master": "nic0", "mtu": 1300"#),
    linked!("macvlan", "an MTU that is too large", NEWEST, TRIED, r#""master": "nic0", "mtu": 9000"#),
    linked!("macvlan", "a negative MTU", NEWEST, TRIED, r#""master": "nic0", "mtu": -1"#),
    linked!("macvlan", "a mode that is none", NEWEST, TRIED, r#""master": "nic0", "mode": "odd""#),
    linked!("macvlan", "above nothing", NEWEST, TRIED, r#""master": "nosuch""#),
    linked!("macvlan", "without a master and a default route", NEWEST, TRIED, r#""mode": "bridge""#),
    linked!(
        "macvlan",
        "a hardware address of the runtime's",
        LISTS,
        LIFE,
        r#""master": "nic0", "runtimeConfig": {"mac": "02:11:22:33:44:55"}"#
    ),
    linked!("macvlan", "the same link twice", NEWEST, AGAIN, r#""master": "nic0""#),
    linked!(
        "macvlan",
        "addresses of nobody",
        NEWEST,
        TRIED,
        r#""master": "nic0", "ipam": {"type": "nosuch"}"#
    ),
    linked!("host-device", "by its name", LISTS, UP_DOWN, r#""device": "nic0""#),
    linked!("host-device", "by its hardware address", LISTS, UP_DOWN, r#""hwaddr": "02:00:00:00:0c:01""#),
    linked!(
        "host-device",
        "with addresses",
        ALL_VERSIONS,
        UP_DOWN,
        r#""device": "nic0", "ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    linked!("host-device", "no device", NEWEST, TRIED, r#""device": """#),
    linked!("host-device", "a device that is not there", NEWEST, TRIED, r#""device": "nosuch""#),
    linked!("host-device", "a path outside of the devices", NEWEST, TRIED, r#""kernelpath": "/etc""#),
    linked!("tap", "without addresses", LISTS, UP_DOWN, r#""mac": "02:00:00:00:00:07""#),
    linked!(
        "tap",
        "an owner and queues",
        NEWEST,
        UP_DOWN,
        r#""owner": 1000, "group": 1000, "multiQueue": true"#
    ),
    linked!(
        "tap",
        "with addresses",
        LISTS,
        LIFE,
        r#""mtu": 1400, "ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    linked!("tap", "a bridge that is not there", NEWEST, TRIED, r#""bridge": "nosuch""#),
    linked!("vlan", "an id that is none", NEWEST, TRIED, r#""master": "nic0", "vlanId": 4095"#),
    linked!("vlan", "a negative id", NEWEST, TRIED, r#""master": "nic0", "vlanId": -1"#),
    linked!("vlan", "above nothing", NEWEST, TRIED, r#""master": "nosuch", "vlanId": 7"#),
    addressed!(
        "bridge",
        "isolated ports",
        LISTS,
        LIFE,
        r#""bridge": "br7", "isGateway": true, "portIsolation": true, "#
    ),
    addressed!(
        "bridge",
        "an IPv4 masquerade",
        LISTS,
        LIFE,
        r#""bridge": "br7", "isGateway": true, "ipMasq": true, "#
    ),
    addressed!(
        "bridge",
        "hardware addresses that are looked at",
        LISTS,
        LIFE,
        r#""bridge": "br7", "isGateway": true, "macspoofchk": true, "#
    ),
    addressed!(
        "bridge",
        "addresses that are looked for",
        NEWEST,
        LIFE,
        r#""bridge": "br7", "isGateway": true, "enabledad": true, "#
    ),
    addressed!(
        "bridge",
        "addresses for a link that stays down",
        NEWEST,
        TRIED,
        r#""bridge": "br7", "disableContainerInterface": true, "#
    ),
    linked!(
        "bridge",
        "a link that stays down",
        LISTS,
        UP_DOWN,
        r#""bridge": "br7", "disableContainerInterface": true"#
    ),
    addressed!("bridge", "a VLAN that is none", NEWEST, TRIED, r#""bridge": "br7", "vlan": 4095, "#),
    addressed!(
        "bridge",
        "a trunk that ends before it begins",
        NEWEST,
        TRIED,
        r#""bridge": "br7", "vlanTrunk": [{"minID": 9, "maxID": 7}], "#
    ),
    addressed!(
        "bridge",
        "a trunk without an end",
        NEWEST,
        TRIED,
        r#""bridge": "br7", "vlanTrunk": [{"minID": 9}], "#
    ),
    linked!(
        "bridge",
        "an address that is forced",
        NEWEST,
        LIFE,
        r#""bridge": "br7", "isGateway": true, "forceAddress": true, "ipam": {"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    linked!(
        "macvlan",
        "down when the namespace is gone",
        NEWEST,
        &[Step { command: "DEL", ..with(&[("CNI_NETNS", "/run/netns/nosuch")]) }],
        r#""master": "nic0""#
    ),
];
