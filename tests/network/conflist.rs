//! Line 5: a third party's conflist with the reference plugins works unchanged in place of the built-in network.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;

use trine_tests::{Cluster, until};

const PLUGINS: [&str; 4] = ["bridge", "host-local", "portmap", "loopback"];

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: foreign, labels: {app: foreign}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, nc, -ll, -p, "9000", -e, /bin/busybox, cat]
    ports: [{containerPort: 9000, hostPort: HOST_PORT}]
"#;

/// The bridge outlives its Pods, as it does under any runtime; the test removes it.
struct Bridge(String);

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "delete", &self.0]).output();
    }
}

#[test]
fn a_third_partys_network_takes_the_place_of_the_built_in_one() {
    const TEST: &str = "a_third_partys_network_takes_the_place_of_the_built_in_one";
    if !trine_kernel::testing::root(TEST) || !trine_kernel::testing::program(TEST, "busybox") {
        return;
    }
    if !std::path::Path::new("/usr/lib/cni/bridge").exists() {
        trine_kernel::testing::skip(TEST, "needs the reference plugins in /usr/lib/cni");
        return;
    }
    let bridge = Bridge(format!("trt{}", std::process::id() % 100_000));
    let cluster = Cluster::prepared();
    let (conf, bin) = (cluster.dir().join("cni/net.d"), cluster.dir().join("cni/bin"));
    std::fs::create_dir_all(&conf).unwrap();
    std::fs::create_dir_all(&bin).unwrap();
    for plugin in PLUGINS {
        std::os::unix::fs::symlink(format!("/usr/lib/cni/{plugin}"), bin.join(plugin)).unwrap();
    }
    let conflist = serde_json::json!({"cniVersion": "1.0.0", "name": "foreign", "plugins": [
        {"type": "bridge", "bridge": bridge.0, "isGateway": true, "ipMasq": false, "hairpinMode": true,
         "ipam": {"type": "host-local", "dataDir": cluster.dir().join("cni/foreign"),
                  "ranges": [[{"subnet": "10.199.77.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "portmap", "capabilities": {"portMappings": true}}]});
    std::fs::write(conf.join("10-foreign.conflist"), conflist.to_string()).unwrap();
    cluster.start();
    cluster.build_busybox();
    let host_port = 20_000 + std::process::id() % 10_000;
    let _ = cluster.apply(&POD.replace("HOST_PORT", &host_port.to_string())).expect_ok();
    let pod = cluster.wait_running("foreign");
    let ip = pod["status"]["podIP"].as_str().unwrap_or_default().to_owned();
    assert!(ip.starts_with("10.199.77."), "the address is the plugin's: {ip}");
    echo(&ip, 9000);
    let node = pod["status"]["hostIP"].as_str().unwrap_or_default().to_owned();
    echo(&node, u16::try_from(host_port).unwrap());

    let _ = cluster.trine(&["delete", "pod/foreign"]).expect_ok();
    until("the address is given back", || {
        let left: Vec<_> = std::fs::read_dir(cluster.dir().join("cni/foreign/foreign"))
            .into_iter()
            .flatten()
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with("10."))
            .collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

fn echo(ip: &str, port: u16) {
    let line = until(&format!("{ip}:{port} answers"), || {
        let mut stream = TcpStream::connect((ip, port)).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(std::time::Duration::from_secs(2))).map_err(|e| e.to_string())?;
        stream.write_all(b"hello\n").map_err(|e| e.to_string())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).map_err(|e| e.to_string())?;
        Ok(line)
    });
    assert_eq!(line, "hello\n");
}
