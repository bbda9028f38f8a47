//! Who is asked, and how.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trine_cni::call_built_in;
use trine_cni::spec::Env;

use crate::Outcome;

/// Whose plugins.
#[derive(Debug, Clone)]
pub struct Side {
    /// What the table calls it.
    pub name: &'static str,
    /// The folder of the programs; in this process if none.
    pub programs: Option<PathBuf>,
    /// Where it keeps addresses.
    pub data: PathBuf,
    /// The bridge.
    pub bridge: &'static str,
    /// The second byte of its addresses.
    pub range: u8,
}

/// An attachment that is there.
#[derive(Debug)]
pub struct Attached {
    env: Env,
    port: u16,
    previous: Value,
}

impl Side {
    fn plugin(&self, port: u16, kind: &str) -> Value {
        let mapping = json!([{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]);
        let subnet = format!("10.{}.0.0/16", self.range);
        match kind {
            "portmap" => json!({"cniVersion": "1.0.0", "name": self.bridge, "type": "portmap",
                "runtimeConfig": {"portMappings": mapping}}),
            _ => json!({"cniVersion": "1.0.0", "name": self.bridge, "type": "bridge", "bridge": self.bridge,
                "isDefaultGateway": true, "ipam": {"type": "host-local", "dataDir": self.data, "subnet": subnet}}),
        }
    }

    fn call(&self, kind: &str, env: &Env, config: &Value) -> Outcome<Value> {
        let Some(programs) = &self.programs else {
            return Ok(call_built_in(kind, env, config.clone())?.unwrap_or_default());
        };
        let mut command = Command::new(programs.join(kind));
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.envs(env.variables()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        child.stdin.take().ok_or("no input")?.write_all(config.to_string().as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("{} {kind}: {}", self.name, String::from_utf8_lossy(&output.stdout)).into());
        }
        Ok(if output.stdout.is_empty() { Value::Null } else { serde_json::from_slice(&output.stdout)? })
    }

    /// ADD, in the calling thread's namespace, and how long it took.
    pub fn add(&self, container: &str, pod: &Path, port: u16) -> Outcome<(Attached, Duration)> {
        let path = self.programs.as_ref().map(|dir| dir.display().to_string()).unwrap_or_default();
        let env = Env {
            command: "ADD".to_owned(),
            container_id: container.to_owned(),
            netns: pod.display().to_string(),
            ifname: "eth0".to_owned(),
            args: String::new(),
            path,
        };
        let begin = Instant::now();
        let previous = self.call("bridge", &env, &self.plugin(port, "bridge"))?;
        let mut chained = self.plugin(port, "portmap");
        chained["prevResult"] = previous;
        let previous = self.call("portmap", &env, &chained)?;
        Ok((Attached { env, port, previous }, begin.elapsed()))
    }

    /// DEL, and how long it took.
    pub fn del(&self, attached: Attached) -> Outcome<Duration> {
        let env = Env { command: "DEL".to_owned(), ..attached.env };
        let begin = Instant::now();
        for kind in ["portmap", "bridge"] {
            let mut config = self.plugin(attached.port, kind);
            config["prevResult"] = attached.previous.clone();
            self.call(kind, &env, &config)?;
        }
        Ok(begin.elapsed())
    }

    /// Fills the store as the reference would have.
    pub fn fill(&self, in_use: u32) -> Outcome<()> {
        let dir = self.data.join(self.bridge);
        std::fs::create_dir_all(&dir)?;
        let first = u32::from_be_bytes([10, self.range, 0, 2]);
        let addr = |n: u32| std::net::Ipv4Addr::from_bits(first + n).to_string();
        for n in 0..in_use {
            std::fs::write(dir.join(addr(n)), format!("there{n}\r\neth0"))?;
        }
        // It goes on in the middle of what is taken, as a store does that has gone round.
        std::fs::write(dir.join("last_reserved_ip.0"), addr(in_use / 2))?;
        Ok(())
    }
}
