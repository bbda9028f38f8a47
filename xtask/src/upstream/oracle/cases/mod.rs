//! What the plugins are asked.

/// A plugin, its configuration, and the calls on it.
#[derive(Debug)]
pub struct Case {
    /// What is tried.
    pub name: &'static str,
    /// The plugin.
    pub plugin: &'static str,
    /// Its configuration; `DATA` stands for a folder of the machine's own.
    pub config: &'static str,
    /// The calls, one after the other.
    pub steps: &'static [Step],
}

/// One call.
#[derive(Debug)]
pub struct Step {
    /// `CNI_COMMAND`.
    pub command: &'static str,
    /// `CNI_IFNAME`.
    pub interface: &'static str,
    /// `CNI_ARGS`.
    pub args: &'static str,
    /// Whether the answer of the last ADD is passed as `prevResult`.
    pub previous: bool,
}

const fn step(command: &'static str, interface: &'static str, previous: bool) -> Step {
    Step { command, interface, args: "", previous }
}

/// Up, looked at, down, and down once more.
const LIFE: &[Step] = &[
    step("ADD", "eth0", false),
    step("CHECK", "eth0", true),
    step("DEL", "eth0", true),
    step("DEL", "eth0", false),
];
/// Two links of one Pod, the second away first.
const TWO: &[Step] = &[
    step("ADD", "eth0", false),
    step("ADD", "eth1", false),
    step("DEL", "eth1", false),
    step("DEL", "eth0", false),
];
/// The same link twice.
const AGAIN: &[Step] = &[step("ADD", "eth0", false), step("ADD", "eth0", false), step("DEL", "eth0", false)];

/// All cases.
pub const ALL: &[Case] = &[
    Case {
        name: "loopback",
        plugin: "loopback",
        config: r#"{"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}"#,
        steps: &[step("ADD", "lo", false), step("CHECK", "lo", true), step("DEL", "lo", true)],
    },
    Case {
        name: "bridge with a gateway and a default route",
        plugin: "bridge",
        config: r#"{"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br7", "isGateway": true,
            "ipam": {"type": "host-local", "subnet": "10.77.0.0/24", "dataDir": "DATA",
                "routes": [{"dst": "0.0.0.0/0"}]}}"#,
        steps: LIFE,
    },
    Case {
        name: "bridge that is the default gateway",
        plugin: "bridge",
        config: r#"{"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br7", "isDefaultGateway": true,
            "hairpinMode": true, "mtu": 1400,
            "ipam": {"type": "host-local", "subnet": "10.77.0.0/24", "rangeStart": "10.77.0.9", "dataDir": "DATA"}}"#,
        steps: LIFE,
    },
    Case {
        name: "bridge without addresses",
        plugin: "bridge",
        config: r#"{"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br7", "ipam": {}}"#,
        steps: LIFE,
    },
    Case {
        name: "bridge with two ranges",
        plugin: "bridge",
        config: r#"{"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br7", "isGateway": true,
            "ipam": {"type": "host-local", "dataDir": "DATA", "ranges": [[{"subnet": "10.77.0.0/24"}],
                [{"subnet": "10.78.0.0/28", "gateway": "10.78.0.14"}]]}}"#,
        steps: LIFE,
    },
    Case {
        name: "bridge, two links of one Pod",
        plugin: "bridge",
        config: r#"{"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br7", "isGateway": true,
            "ipam": {"type": "host-local", "subnet": "10.77.0.0/24", "dataDir": "DATA"}}"#,
        steps: TWO,
    },
    Case {
        name: "bridge, the same link twice",
        plugin: "bridge",
        config: r#"{"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br7", "isGateway": true,
            "ipam": {"type": "host-local", "subnet": "10.77.0.0/24", "dataDir": "DATA"}}"#,
        steps: AGAIN,
    },
    Case {
        name: "bridge, answers of version 0.4.0",
        plugin: "bridge",
        config: r#"{"cniVersion": "0.4.0", "name": "net", "type": "bridge", "bridge": "br7", "isGateway": true,
            "ipam": {"type": "host-local", "subnet": "10.77.0.0/24", "dataDir": "DATA"}}"#,
        steps: LIFE,
    },
    Case {
        name: "bridge, a range that is used up",
        plugin: "bridge",
        config: r#"{"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br7",
            "ipam": {"type": "host-local", "subnet": "10.77.0.0/30", "dataDir": "DATA"}}"#,
        steps: TWO,
    },
    Case {
        name: "host-local alone",
        plugin: "host-local",
        config: r#"{"cniVersion": "1.0.0", "name": "net", "type": "x",
            "ipam": {"type": "host-local", "subnet": "10.77.0.0/24", "dataDir": "DATA",
                "routes": [{"dst": "10.9.0.0/16", "gw": "10.77.0.3"}]}}"#,
        steps: &[
            step("ADD", "eth0", false),
            step("ADD", "eth1", false),
            step("CHECK", "eth0", false),
            step("DEL", "eth0", false),
            step("DEL", "eth1", false),
        ],
    },
    Case {
        name: "host-local, an address that is asked for",
        plugin: "host-local",
        config: r#"{"cniVersion": "1.0.0", "name": "net", "type": "x",
            "ipam": {"type": "host-local", "subnet": "10.77.0.0/24", "dataDir": "DATA"}}"#,
        steps: &[
            Step { command: "ADD", interface: "eth0", args: "IP=10.77.0.42", previous: false },
            Step { command: "ADD", interface: "eth1", args: "IP=10.77.0.42", previous: false },
            step("DEL", "eth0", false),
        ],
    },
];
