//! What tests may count on in the guest, and may not on a developer's machine: shown to be there before they rely on it.

use std::fmt::Write as _;

/// Feature and a command that fails where it is not there. Each runs in a network namespace of its own.
const FEATURES: [(&str, &str); 18] = [
    ("apparmor", "grep -q Y /sys/module/apparmor/parameters/enabled"),
    ("capability_sys_resource", "ulimit -n 1000000 && ulimit -n | grep -q 1000000"),
    (
        "bridge_vlans",
        "ip link add x type bridge vlan_filtering 1 && ip -details link show x | grep -q \"vlan_filtering 1\"",
    ),
    (
        "cgroup_2_alone",
        "grep -qw cpuset /sys/fs/cgroup/cgroup.controllers && grep -qw memory /sys/fs/cgroup/cgroup.controllers",
    ),
    ("device_mapper", "modprobe dm_mod && test -c /dev/mapper/control"),
    ("dummy", "ip link add x type dummy"),
    ("geneve", "ip link add x type geneve id 1 remote 127.0.0.1"),
    ("ipvlan", "ip link add low0 type dummy && ip link add x link low0 type ipvlan"),
    ("ipvs", "modprobe ip_vs && test -e /proc/net/ip_vs"),
    ("macvlan", "ip link add low0 type dummy && ip link add x link low0 type macvlan"),
    ("nf_tables", "nft add table inet x && nft list table inet x"),
    ("nfs", "modprobe nfs && grep -qw nfs4 /proc/filesystems"),
    ("overlay", "grep -qw overlay /proc/filesystems"),
    ("sctp", "modprobe sctp && test -e /proc/net/sctp/eps"),
    ("veth", "ip link add x type veth peer name y"),
    ("vlan", "ip link add low0 type dummy && ip link add x link low0 type vlan id 7"),
    ("vrf", "ip link add x type vrf table 10"),
    ("vxlan", "ip link add x type vxlan id 1 dstport 4789"),
];

/// A script that says of each, in the words of Rust's tests, whether it is there.
#[must_use]
pub fn script() -> String {
    let mut script = String::from("failed=0\n");
    for (feature, command) in FEATURES {
        let _ = writeln!(
            script,
            "if unshare --net /bin/sh -c '{command}'; then outcome=ok; else outcome=FAILED failed=1; fi\n\
             echo \"test the_kernel_has_{feature} ... $outcome\""
        );
    }
    script.push_str("exit $failed\n");
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_is_asked_for_and_none_quotes_itself_out_of_its_shell() {
        assert_eq!(script().matches("the_kernel_has_").count(), FEATURES.len());
        assert!(FEATURES.iter().all(|(_, command)| !command.contains('\'')));
    }
}
