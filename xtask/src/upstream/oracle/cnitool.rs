//! `cnitool`, which calls a network's plugins as a runtime does, against Trine's: add, check, gc, status, del.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::machine::Namespaces;
use crate::upstream::junit::{Case, Outcome};

/// The network: a bridge with addresses and masquerade, a port of the host, and a limit.
fn network(data: &Path) -> String {
    json!({"cniVersion": "1.1.0", "name": "net", "plugins": [
        {"type": "bridge", "bridge": "br7", "isDefaultGateway": true, "ipMasq": true,
            "ipam": {"type": "host-local", "dataDir": data.join("networks"), "subnet": "10.77.0.0/24"}},
        {"type": "portmap", "capabilities": {"portMappings": true}},
        {"type": "bandwidth", "capabilities": {"bandwidth": true}},
        {"type": "tuning", "dataDir": data.join("tuning"), "mtu": 1400}]})
    .to_string()
}

const WISHES: &str = r#"{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
    "bandwidth": {"ingressRate": 8000000, "ingressBurst": 80000, "egressRate": 8000000, "egressBurst": 80000}}"#;

/// Runs it; a spec for each call.
///
/// # Errors
/// If it cannot be run at all.
pub fn run(cnitool: &Path, plugins: &Path) -> anyhow::Result<Vec<Case>> {
    let dir = super::tempdir("cnitool")?;
    let spaces = Namespaces::new("c")?;
    std::fs::create_dir_all(dir.join("net.d"))?;
    std::fs::write(dir.join("net.d/10-net.conflist"), network(&dir))?;
    let mut cases = Vec::new();
    // After DEL nothing may be left, so GC and STATUS come before it, too.
    for call in ["status", "add", "check", "gc", "del", "del", "gc", "status"] {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &spaces.host]).arg(cnitool).args([call, "net", &spaces.pod_path()]);
        command.env("CNI_PATH", plugins).env("NETCONFPATH", dir.join("net.d")).env("CAP_ARGS", WISHES);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned()
            + &String::from_utf8_lossy(&output.stdout);
        let outcome = if output.status.success() { Outcome::Passed } else { Outcome::Failed(said) };
        cases.push(Case { name: format!("cnitool: {}. {call}", cases.len() + 1), outcome });
    }
    let left = std::fs::read_dir(dir.join("networks/net"))?.filter_map(Result::ok);
    let left: Vec<_> = left.filter(|file| file.file_name().to_string_lossy().starts_with("10.77.")).collect();
    let outcome =
        if left.is_empty() { Outcome::Passed } else { Outcome::Failed(format!("{left:?} is left")) };
    cases.push(Case { name: "cnitool: no address is left".to_owned(), outcome });
    std::fs::remove_dir_all(&dir)?;
    Ok(cases)
}
