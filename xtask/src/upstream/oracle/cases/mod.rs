//! What the plugins are asked. Differences that are meant are in `apart.rs`.
//!
//! - `bridge`, `linked`, `host_local`, `static_addresses`, `chained`, `others` what works, mostly; `bad` what must not

mod bad;
mod bridge;
mod chained;
mod host_local;
mod linked;
mod others;
mod static_addresses;

/// A plugin, its configuration, and the calls on it.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What is tried.
    pub name: &'static str,
    /// The plugin.
    pub plugin: &'static str,
    /// Its configuration; `DATA` stands for a folder of the machine's own, `VERSION` for each of `versions`.
    pub config: &'static str,
    /// The contract's versions in which it is tried, each a case of its own.
    pub versions: &'static [&'static str],
    /// The calls, one after the other.
    pub steps: &'static [Step],
    /// Another plugin, with its configuration, that made the link before.
    pub below: Option<(&'static str, &'static str)>,
}

/// One call.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// `CNI_COMMAND`.
    pub command: &'static str,
    /// `CNI_IFNAME`.
    pub interface: &'static str,
    /// Whether the answer of the last ADD is passed as `prevResult`.
    pub previous: bool,
    /// Variables that are other than usual; `DATA` as in the configuration. An empty one is not set.
    pub env: &'static [(&'static str, &'static str)],
}

const fn step(command: &'static str, interface: &'static str, previous: bool) -> Step {
    Step { command, interface, previous, env: &[] }
}

const fn with(env: &'static [(&'static str, &'static str)]) -> Step {
    Step { command: "ADD", interface: "eth0", previous: false, env }
}

/// What the plugin below is told first.
pub const BELOW: Step = step("ADD", "eth0", false);

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
/// Only tried.
const TRIED: &[Step] = &[step("ADD", "eth0", false), step("DEL", "eth0", false)];

/// All versions.
const ALL_VERSIONS: &[&str] = &["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Those with more than one address of a family.
const LISTS: &[&str] = &["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Those with CHECK, of which some plugins know no older ones.
const WITH_CHECK: &[&str] = &["0.4.0", "1.0.0", "1.1.0"];
const NEWEST: &[&str] = &["1.0.0"];

/// All cases.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let all = [
        bridge::CASES,
        linked::CASES,
        host_local::CASES,
        static_addresses::CASES,
        chained::CASES,
        others::CASES,
        bad::CASES,
    ];
    all.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_configurations_are_json() {
        let mut names = std::collections::BTreeSet::new();
        let mut count = 0;
        for case in all() {
            assert!(names.insert(case.name), "{}", case.name);
            let _: serde_json::Value = serde_json::from_str(case.config).expect(case.name);
            count += case.versions.len();
        }
        assert!(count >= 250, "{count} configurations");
    }
}
