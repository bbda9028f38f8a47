//! Names lead to Services, to their Pods and to other names, from within Pods with any libc's resolver.

use trine_tests::{Cluster, until};

const APPS: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: peers}
spec:
  clusterIP: None
  selector: {app: web}
  ports: [{name: http, port: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {type: ExternalName, externalName: web.default.svc.cluster.local}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  hostname: first
  subdomain: peers
  containers:
  - name: web
    image: trine.local/busybox:1
    command: [/bin/busybox, httpd, -f, -p, "8080", -h, /etc]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  containers:
  - name: client
    image: trine.local/busybox:1
    command: [/bin/busybox, sleep, "600"]
"#;

#[test]
fn names_lead_from_pods_to_services_and_their_pods() {
    let Some(cluster) = Cluster::with_busybox("names_lead_from_pods_to_services_and_their_pods") else {
        return;
    };
    let _ = cluster.apply(APPS).expect_ok();
    let web = cluster.wait_running("web");
    let _ = cluster.wait_running("client");
    let address = web["status"]["podIP"].as_str().unwrap().to_owned();
    let service = cluster.get("service/web")["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let resolver =
        cluster.trine(&["exec", "client", "--", "/bin/busybox", "cat", "/etc/resolv.conf"]).expect_ok();
    let server = cluster.trine(&["get", "service/kube-dns", "-n", "kube-system", "-o", "json"]).expect_ok();
    let server: serde_json::Value = serde_json::from_str(&server).unwrap();
    let server = server["spec"]["clusterIP"].as_str().unwrap();
    assert!(resolver.contains(&format!("nameserver {server}\n")), "{resolver}");
    assert!(
        resolver.contains("search default.svc.cluster.local svc.cluster.local cluster.local"),
        "{resolver}"
    );
    for (name, wanted) in [
        ("web.default.svc.cluster.local", service.as_str()),
        ("web", &service),
        ("other.default.svc.cluster.local", &service),
        ("peers.default.svc.cluster.local", &address),
        ("first.peers.default.svc.cluster.local", &address),
        (&service, "web.default.svc.cluster.local"),
    ] {
        until(&format!("{name} is {wanted}"), || {
            let asked = cluster.trine(&["exec", "client", "--", "/bin/busybox", "nslookup", name]);
            if asked.out.contains(wanted) { Ok(()) } else { Err(format!("{asked:?}")) }
        });
    }
    let missing = cluster.trine(&[
        "exec",
        "client",
        "--",
        "/bin/busybox",
        "nslookup",
        "none.default.svc.cluster.local",
    ]);
    assert!(format!("{missing:?}").contains("NXDOMAIN"), "{missing:?}");
    for host in ["web", "web.default", "first.peers:8080"] {
        let url = format!("http://{host}/hostname");
        let page = ["exec", "client", "--", "/bin/busybox", "wget", "-q", "-O-", &url];
        assert_eq!(cluster.trine(&page).expect_ok().trim(), "first", "{url}");
    }
}
