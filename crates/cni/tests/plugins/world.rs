//! A machine and a container, each a network namespace, gone at the end.

use std::path::PathBuf;
use std::sync::Mutex;

use serde_json::{Value, json};
use trine_cni::spec::Env;
use trine_cni::{CniError, call_built_in};
use trine_kernel::netlink::{Link, LinkChange, NewKind, NewLink, Route, RouteEntry};
use trine_kernel::netns::{self, Netns};
use trine_kernel::testing;

pub struct World {
    pub dir: tempfile::TempDir,
    pub host: Netns,
    pub pods: Vec<Netns>,
    last: Mutex<Value>,
}

impl World {
    /// None where the test cannot run.
    pub fn new(test: &str) -> Option<Self> {
        Self::with_pods(test, 1)
    }

    pub fn with_pods(test: &str, pods: usize) -> Option<Self> {
        if !testing::root(test) {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let host = Netns::create(&dir.path().join("ns/host")).unwrap();
        let pods =
            (0..pods).map(|n| Netns::create(&dir.path().join(format!("ns/pod{n}"))).unwrap()).collect();
        let world = Self { dir, host, pods, last: Mutex::new(Value::Null) };
        for netns in std::iter::once(&world.host).chain(&world.pods) {
            Route::open_in(netns).unwrap().set_link("lo", &up()).unwrap();
        }
        Some(world)
    }

    pub fn pod_path(&self, pod: usize) -> String {
        self.pods[pod].path().display().to_string()
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn env(&self, command: &str, pod: usize) -> Env {
        Env {
            command: command.to_owned(),
            container_id: format!("c{pod}"),
            netns: self.pod_path(pod),
            ifname: "eth0".to_owned(),
            ..Env::default()
        }
    }

    /// Calls a plugin about pod 0, with the answer to the last ADD as the previous result unless it is an ADD.
    pub fn call(&self, command: &str, config: &Value) -> Result<Value, CniError> {
        self.call_for(command, 0, config)
    }

    pub fn call_for(&self, command: &str, pod: usize, config: &Value) -> Result<Value, CniError> {
        self.call_as(&self.env(command, pod), config)
    }

    pub fn call_as(&self, env: &Env, config: &Value) -> Result<Value, CniError> {
        let mut config = config.clone();
        for (key, value) in [("cniVersion", "1.1.0"), ("name", "net")] {
            if config[key].is_null() {
                config[key] = json!(value);
            }
        }
        let last = self.last.lock().unwrap().clone();
        if env.command != "ADD" && config["prevResult"].is_null() && !last.is_null() {
            config["prevResult"] = last;
        }
        let kind = config["type"].as_str().unwrap().to_owned();
        let answer = self.host.run(|| call_built_in(&kind, env, config)).unwrap()?;
        let answer = answer.unwrap_or_default();
        if env.command == "ADD" {
            *self.last.lock().unwrap() = answer.clone();
        }
        Ok(answer)
    }

    /// GC by which only the containers `kept` stay.
    pub fn gc(&self, config: &Value, kept: &[usize]) {
        let mut config = config.clone();
        config["cni.dev/valid-attachments"] =
            kept.iter().map(|pod| json!({"containerID": format!("c{pod}"), "ifname": "eth0"})).collect();
        self.call("GC", &config).unwrap();
    }

    /// An answer as the next plugin's previous result.
    pub fn chained(config: &Value, previous: &Value) -> Value {
        let mut config = config.clone();
        config["prevResult"] = previous.clone();
        config
    }

    pub fn route(&self) -> Route {
        Route::open_in(&self.host).unwrap()
    }

    pub fn pod(&self, pod: usize) -> Route {
        Route::open_in(&self.pods[pod]).unwrap()
    }

    pub fn eth0(&self) -> Link {
        self.pod(0).link("eth0").unwrap()
    }

    /// The addresses of a link of pod 0 that are not the kernel's own.
    pub fn addresses(&self, link: &str) -> Vec<String> {
        let mut pod = self.pod(0);
        let index = pod.link(link).unwrap().index;
        let all = pod.addresses(Some(index)).unwrap();
        all.iter().filter(|a| !a.link_scope).map(|a| a.addr.to_string()).collect()
    }

    /// The routes of pod 0 by a link, in the main table.
    pub fn routes(&self, link: &str) -> Vec<String> {
        let mut pod = self.pod(0);
        let index = pod.link(link).unwrap().index;
        let by = |r: &&RouteEntry| r.device == Some(index) && r.table == 254;
        let text = |r: &RouteEntry| match r.gateway {
            Some(gateway) => format!("{} via {gateway}", r.dst),
            None => r.dst.to_string(),
        };
        pod.routes(false).unwrap().iter().filter(by).map(text).collect()
    }

    /// What `nft` says of the machine's tables.
    pub fn tables(&self) -> String {
        self.run("nft", &["list", "ruleset"])
    }

    /// What a program says in the machine.
    pub fn run(&self, program: &str, words: &[&str]) -> String {
        Self::run_in(&self.host, program, words)
    }

    pub fn run_in(netns: &Netns, program: &str, words: &[&str]) -> String {
        let output = netns.run(|| std::process::Command::new(program).args(words).output()).unwrap();
        output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default()
    }

    /// Whether a container reaches an address: somebody answers there, if only that nobody listens.
    pub fn reaches(&self, pod: usize, to: &str) -> bool {
        let to = format!("{to}:9").parse().unwrap();
        let connect = || std::net::TcpStream::connect_timeout(&to, std::time::Duration::from_secs(1));
        match self.pods[pod].run(connect).unwrap() {
            Ok(_) => true,
            Err(e) => e.kind() == std::io::ErrorKind::ConnectionRefused,
        }
    }

    /// A link that stands for one of hardware: an ifb, which this kernel has.
    pub fn add_device(&self, name: &str) -> Link {
        let mut route = self.route();
        let link =
            NewLink { name, kind: NewKind::Ifb, parent: None, netns: None, mac: None, mtu: None, up: true };
        route.run(&[link.request()]).unwrap();
        route.link(name).unwrap()
    }

    /// The names of the machine's links but the loopback.
    pub fn links(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.route().links().unwrap().into_iter().map(|link| link.name).collect();
        names.retain(|name| name != "lo");
        names
    }

    pub fn reservations(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.data().join("net")).into_iter().flatten();
        let names = files.filter_map(|e| e.unwrap().file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|n| n.parse::<std::net::IpAddr>().is_ok()).collect();
        names.sort();
        names
    }

    pub fn host_local(&self) -> Value {
        json!({"type": "host-local", "dataDir": self.data(), "subnet": "10.77.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]})
    }
}

pub fn up() -> LinkChange<'static> {
    LinkChange { up: Some(true), ..LinkChange::default() }
}

impl Drop for World {
    fn drop(&mut self) {
        for netns in self.pods.iter().chain([&self.host]) {
            let _ = netns::delete(netns.path());
        }
    }
}
