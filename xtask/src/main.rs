//! The developer's commands: `cargo xtask <command>`.

mod arch;
mod descriptors;
mod packages;
mod skips;
mod test;

const COMMANDS: &str = "\
cargo xtask test [TEST]   all tests, as in CI; installs what they need on Debian
cargo xtask arch          the rules of ARCHITECTURE.md that a machine can check
cargo xtask descriptors F the table of types, from the release's published definitions";

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first().map(|(command, rest)| (command.as_str(), rest)) {
        Some(("test", rest)) => test::run(rest),
        Some(("descriptors", [definitions])) => descriptors::run(definitions),
        Some(("arch", _)) => arch::check(&test::workspace_root()?),
        _ => {
            println!("{COMMANDS}");
            Ok(())
        }
    }
}
