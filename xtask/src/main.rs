//! The developer's commands: `cargo xtask COMMAND`.

mod arch;
mod bench;
mod churn;
mod descriptors;
mod fuzz;
mod manifests;
mod model;
mod packages;
mod rows;
mod skips;
mod swap;
mod test;
mod upstream;
mod vm;

const COMMANDS: &str = "\
cargo xtask test [TEST]        all tests, as in CI; installs what they need on Debian
cargo xtask vm [TEST]          the demo and the kernel-facing tests under Debian's stock kernel, emulated; TEST: those with it
                               in their name, `demo` the demo alone
cargo xtask bench pod          how long a user waits for a node, a Pod, and its end
cargo xtask bench api          how fast the store and the API server are, beside etcd
cargo xtask bench sched [--nodes N] [--pods M] [--debug]  how fast Pods get their nodes: 1,000 hollow nodes and 30,000 Pods;
                               benches/SCHED.md, unless it is smaller
cargo xtask bench cri [--rounds N] [--alone] [--reference]  the calls of a Pod's life on Trine's runtime, beside containerd with
                               runc and with crun; benches/CRI.md; --reference: on the reference network plugins' bridge
cargo xtask bench csi [--rounds N]  each call of the CSI driver, and what a volume gives, as files and on a disk of their own;
                               benches/CSI.md
cargo xtask fuzz TARGET [SECONDS]  bytes that nobody meant, ten minutes unless told otherwise
cargo xtask model [STEPS [SEED]]  the controllers while everything goes wrong, 100,000 steps unless told otherwise
cargo xtask churn              2,000 Pods in one runtime, and its death at every step of every call, and the daemon's at every step
                               of a volume's life, minutes in all
cargo xtask manifests [PART]   manifests and charts as people bring them, by kubectl and helm: a database, an agent, a server under
                               load, a CSI driver with its sidecars; minutes in all; tests/manifests/RESULTS.md
cargo xtask arch               the rules of ARCHITECTURE.md that a machine can check
cargo xtask descriptors FILE   the tables of crates/objects from the published definitions";

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test", rest @ ..] => test::run(rest),
        ["vm"] => vm::run(None),
        ["vm", name] => vm::run(Some(name)),
        ["bench", name, rest @ ..] => bench::run(name, rest),
        ["fuzz", target] => fuzz::run(target, None),
        ["fuzz", target, seconds] => fuzz::run(target, Some(seconds)),
        ["model", rest @ ..] => model::run(rest),
        ["churn"] => churn::run(),
        ["manifests"] => manifests::run(None),
        ["manifests", part] => manifests::run(Some(part)),
        ["arch"] => arch::check(&test::workspace_root()?),
        ["descriptors", definitions] => descriptors::run(definitions),
        ["upstream", rest @ ..] => upstream::run(rest),
        ["swap", rest @ ..] => swap::run(rest),
        _ => {
            println!("{COMMANDS}\n{}\n{}", upstream::USAGE, swap::USAGE);
            Ok(())
        }
    }
}
