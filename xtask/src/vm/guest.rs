//! What the guest does once it sees this machine's files: one script, run as its first process.
//!
//! It arranges version 2 cgroups as systemd does: itself in `init.scope`, services in `system.slice` with all controllers handed
//! down, a person's shell in a scope of a `user.slice`. Nothing else is arranged: modules load when the kernel asks for them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::kernel::Kernel;

/// What a line for the developer's machine begins with, among the output of tests.
pub const MARK: &str = "@@ ";

/// Where a job's processes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A group of its own that nobody else is in, as a service has that may divide it.
    Service,
    /// A group that a shell is in too, as when a person types the command.
    Session,
}

/// One program to run.
#[derive(Debug)]
pub struct Job {
    /// Its name in the results.
    pub name: String,
    /// Where it runs.
    pub folder: PathBuf,
    /// The program and its words.
    pub words: Vec<String>,
    /// Its cgroup.
    pub place: Place,
    /// When it is killed.
    pub deadline: Duration,
}

/// The script.
#[must_use]
pub fn script(root: &Path, kernel: &Kernel, jobs: &[Job]) -> String {
    let mut script = format!(
        "release={}\nmodules={}\nworkspace={}\nmark={}\n{PREPARE}",
        quoted(&kernel.release),
        quoted(&kernel.modules.to_string_lossy()),
        quoted(&root.to_string_lossy()),
        quoted(MARK),
    );
    for job in jobs {
        let place = match job.place {
            Place::Service => "service",
            Place::Session => "session",
        };
        let name = quoted(&job.name);
        let folder = quoted(&job.folder.to_string_lossy());
        let words: Vec<String> = job.words.iter().map(|word| quoted(word)).collect();
        let seconds = job.deadline.as_secs();
        let _ = writeln!(script, "job {place} {name} {folder} {seconds} {}", words.join(" "));
    }
    script.push_str(END);
    script
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

const PREPARE: &str = r#"
exec </dev/null >/dev/ttyS0 2>&1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TRINE_EMULATED=1
set -o pipefail
stty -F /dev/ttyS1 raw
control=/dev/ttyS1
say() { echo "$mark$*" >$control; }

# This shell prefers its own tools to those of the same name; jobs are run by others.

# The base.
mount --make-rshared /
mkdir -p /dev/pts /dev/shm /dev/mqueue /lib/modules/$release /run
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin; ln -s fd/1 /dev/stdout; ln -s fd/2 /dev/stderr
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t tmpfs -o mode=755 run /run
mount -t securityfs securityfs /sys/kernel/security
mount -t bpf bpf /sys/fs/bpf
mount --bind $modules /lib/modules/$release
hostname trine-vm

# A disk for what needs a real file system. The workspace stays in sight if it is in /tmp.
/usr/sbin/modprobe -a virtio_blk ext4 || say lost
mkdir -p /run/scratch /run/workspace
mount --make-private /run
mount /dev/vda /run/scratch || say lost
mount --bind $workspace /run/workspace
mkdir -p /run/scratch/tmp /run/scratch/lib
chmod 1777 /run/scratch/tmp
mount --bind /run/scratch/tmp /tmp
mount --bind /run/scratch/lib /var/lib
case $workspace in /tmp/*) mkdir -p $workspace; mount --bind /run/workspace $workspace;; esac
# Each is seen once, and what is mounted in it too.
umount /run/scratch /run/workspace
mount --make-rshared /
unset TMPDIR

# An address that is not loopback, and a way out that leads nowhere.
/usr/bin/ip link set lo up
/usr/bin/ip link add eth0 type dummy
/usr/bin/ip address add 10.0.2.15/24 dev eth0
/usr/bin/ip link set eth0 up
/usr/bin/ip route add default via 10.0.2.2

# Groups as systemd makes them.
groups=/sys/fs/cgroup
mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 $groups
hand_down() { for c in $(cat $1/cgroup.controllers); do echo +$c >$1/cgroup.subtree_control; done; }
mkdir $groups/init.scope
echo 0 >$groups/init.scope/cgroup.procs
hand_down $groups
mkdir -p $groups/system.slice $groups/user.slice
hand_down $groups/system.slice
hand_down $groups/user.slice

job() {
    place=$1 name=$2 folder=$3 seconds=$4
    shift 4
    export TRINE_SKIPPED_TESTS=/run/skipped.$name
    case $place in
        service) group=$groups/system.slice/$name.service;;
        session) group=$groups/user.slice/$name.scope;;
    esac
    mkdir $group
    echo "== $name"
    say begin $name
    since=$(cut -d. -f1 /proc/uptime)
    case $place in
        # The watcher of the deadline stays outside: it would be a second process in the group.
        service) timeout -s KILL $seconds sh -c 'echo 0 >$0/cgroup.procs; cd $1; shift; exec "$@"' $group $folder "$@" 2>&1 | tee $control;;
        session) timeout -s KILL $seconds sh -c 'echo 0 >$0/cgroup.procs; cd $1; shift; "$@"; exit $?' $group $folder "$@" 2>&1 | tee $control;;
    esac
    code=$?
    took=$(($(cut -d. -f1 /proc/uptime) - since))
    [ -f $TRINE_SKIPPED_TESTS ] && while read -r line; do say skip "$line"; done <$TRINE_SKIPPED_TESTS
    # Tests of a part alone stay in the leaf that a whole Trine goes away from.
    for below in $(find $group -mindepth 1 -type d ! -path "*.service/trine"); do say left "cgroup ${below#$groups}"; done
    for process in $(cat $group/cgroup.procs); do say left "process $process $(tr '\0' ' ' </proc/$process/cmdline)"; done
    echo 1 >$group/cgroup.kill
    say end $code $took
    echo "== $name: exit code $code after $took s"
    [ $code = 0 ] || dmesg | tail -15
}
"#;

const END: &str = r"
say done
sleep 0.2
echo o >/proc/sysrq-trigger
while :; do :; done
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_program_as_they_are() {
        let kernel = Kernel { release: "6".into(), image: "/k".into(), modules: "/m".into() };
        let job = Job {
            name: "a".into(),
            folder: "/w it".into(),
            words: vec!["/p".into(), "it's".into()],
            place: Place::Service,
            deadline: Duration::from_secs(7),
        };
        let script = script(Path::new("/w"), &kernel, &[job]);
        assert!(script.contains("\njob service 'a' '/w it' 7 '/p' 'it'\\''s'\n"), "{script}");
    }
}
