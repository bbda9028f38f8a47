//! `bridge` with addresses of `host-local`.

use super::{AGAIN, ALL_VERSIONS, Case, LIFE, LISTS, NEWEST, TRIED, TWO};

macro_rules! bridge {
    ($name:literal, $versions:expr, $steps:expr, $own:literal, $ipam:literal) => {
        Case {
            name: concat!("bridge, ", $name),
            plugin: "bridge",
            config: concat!(
                r#"{"cniVersion": "VERSION", "name": "net", "type": "bridge", "bridge": "br7", "#,
                $own,
                r#""ipam": "#,
                $ipam,
                "}"
            ),
            versions: $versions,
            steps: $steps,
            below: None,
        }
    };
}

macro_rules! local {
    ($rest:literal) => {
        concat!(r#"{"type": "host-local", "dataDir": "DATA", "#, $rest, "}")
    };
}

pub const CASES: &[Case] = &[
    bridge!(
        "a gateway and a default route",
        ALL_VERSIONS,
        LIFE,
        r#""isGateway": true, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}"#
    ),
    bridge!(
        "the default gateway",
        ALL_VERSIONS,
        LIFE,
        r#""isDefaultGateway": true, "hairpinMode": true, "mtu": 1400, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24", "rangeStart": "10.77.0.9"}"#
    ),
    bridge!(
        "no gateway",
        ALL_VERSIONS,
        LIFE,
        "",
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    bridge!("without addresses", LISTS, LIFE, "", "{}"),
    bridge!(
        "two ranges",
        LISTS,
        LIFE,
        r#""isGateway": true, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "ranges": [[{"subnet": "10.77.0.0/24"}],
            [{"subnet": "10.78.0.0/28", "gateway": "10.78.0.14"}]]}"#
    ),
    bridge!(
        "IPv6",
        LISTS,
        LIFE,
        r#""isGateway": true, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "fd00:77::/64", "routes": [{"dst": "::/0"}]}"#
    ),
    bridge!(
        "both families",
        ALL_VERSIONS,
        LIFE,
        r#""isDefaultGateway": true, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "ranges": [[{"subnet": "10.77.0.0/24"}], [{"subnet": "fd00:77::/64"}]]}"#
    ),
    bridge!(
        "two links of one Pod",
        LISTS,
        TWO,
        r#""isGateway": true, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    bridge!(
        "the same link twice",
        LISTS,
        AGAIN,
        r#""isGateway": true, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    bridge!(
        "a range that is used up",
        NEWEST,
        TWO,
        "",
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/30"}"#
    ),
    bridge!(
        "promiscuous",
        LISTS,
        LIFE,
        r#""isGateway": true, "promiscMode": true, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    bridge!(
        "a hardware address of the runtime's",
        LISTS,
        LIFE,
        r#""isGateway": true, "runtimeConfig": {"mac": "02:11:22:33:44:55"}, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    bridge!(
        "a hardware address of the configuration's",
        NEWEST,
        LIFE,
        r#""isGateway": true, "args": {"cni": {"mac": "02:11:22:33:44:55"}}, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    bridge!(
        "names of servers",
        LISTS,
        LIFE,
        r#""dns": {"nameservers": ["10.1.1.1"], "domain": "d.test", "search": ["s.test"], "options": ["ndots:2"]}, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    bridge!(
        "routes by the gateway and by another one",
        LISTS,
        LIFE,
        r#""isGateway": true, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24",
            "routes": [{"dst": "10.9.0.0/16"}, {"dst": "10.8.0.0/16", "gw": "10.77.0.3"}]}"#
    ),
    bridge!(
        "a small MTU",
        NEWEST,
        LIFE,
        r#""mtu": 1280, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    bridge!(
        "hairpin and promiscuous at once",
        NEWEST,
        TRIED,
        r#""hairpinMode": true, "promiscMode": true, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24"}"#
    ),
    bridge!(
        "a gateway of its own",
        NEWEST,
        LIFE,
        r#""isDefaultGateway": true, "#,
        r#"{"type": "host-local", "dataDir": "DATA", "subnet": "10.77.0.0/24", "gateway": "10.77.0.254"}"#
    ),
    Case {
        name: "bridge, its usual name",
        plugin: "bridge",
        config: concat!(
            r#"{"cniVersion": "VERSION", "name": "net", "type": "bridge", "isGateway": true, "ipam": "#,
            local!(r#""subnet": "10.77.0.0/24""#),
            "}"
        ),
        versions: NEWEST,
        steps: LIFE,
        below: None,
    },
];
