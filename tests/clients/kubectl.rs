//! Line 2: kubectl does to Pods, claims and Services what it does upstream.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use trine_tests::{Cluster, kubectl, until};

const APP: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 32Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  # With a mounted token kubectl states the order of volumes at every apply, and calls that configured.
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, sh, -c]
    args: ["i=0; while true; do echo line $i; i=$((i+1)); /bin/busybox sleep 0.2; done"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"#;

#[test]
fn kubectl_applies_shows_follows_enters_and_deletes() {
    const TEST: &str = "kubectl_applies_shows_follows_enters_and_deletes";
    let Some(program) = kubectl::build(TEST) else { return };
    let Some(cluster) = Cluster::with_busybox(TEST) else { return };
    let run = |words: &[&str]| kubectl::run(&program, &cluster, words);
    let manifest = cluster.dir().join("app.yaml");
    std::fs::write(&manifest, APP).unwrap();
    let file = manifest.display().to_string();

    // A watch that is open before anything is made sees the Pod come.
    let mut watch = kubectl::command(&program, &cluster, &["get", "pods", "-w"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let watched = BufReader::new(watch.stdout.take().unwrap());

    let applied = run(&["apply", "-f", &file]).expect_ok();
    assert!(applied.contains("pod/web created"), "{applied}");
    let again = run(&["apply", "-f", &file]).expect_ok();
    assert!(again.contains("pod/web unchanged"), "{again}");
    let _ = run(&["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"]).expect_ok();

    let wide = run(&["get", "pods", "-o", "wide"]).expect_ok();
    assert!(wide.contains("NOMINATED NODE") && wide.contains("Running") && wide.contains("1/1"), "{wide}");
    let described = run(&["describe", "pod", "web"]).expect_ok();
    for part in ["Scheduled", "Pulled", "Created", "Started", "ClaimName:", "Node:"] {
        assert!(described.contains(part), "describe lacks {part:?}:\n{described}");
    }
    let claims = run(&["get", "pvc,pv,svc,sc,nodes"]).expect_ok();
    assert!(
        claims.contains("Bound") && claims.contains("trine-disk") && claims.contains("Ready"),
        "{claims}"
    );
    assert!(run(&["describe", "pvc", "data"]).expect_ok().contains("Used By:"));
    assert!(run(&["describe", "svc", "web"]).expect_ok().contains("Endpoints:"));

    let seen: Vec<String> =
        watched.lines().map_while(Result::ok).take_while(|l| !l.contains("Running")).collect();
    assert!(seen.iter().any(|l| l.contains("Pending") || l.contains("ContainerCreating")), "{seen:?}");
    let _ = watch.kill();
    let _ = watch.wait();

    let tail = run(&["logs", "web", "--tail=1"]).expect_ok();
    assert!(tail.starts_with("line "), "{tail}");
    follow(&program, &cluster);
    enter(&program, &cluster);

    let deleted = run(&["delete", "-f", &file, "--timeout=60s"]).expect_ok();
    assert!(deleted.contains("pod \"web\" deleted"), "{deleted}");
    until("the volume is gone", || {
        let volumes = run(&["get", "pv"]);
        if volumes.err.contains("No resources found") { Ok(()) } else { Err(volumes.out) }
    });
}

fn follow(program: &std::path::Path, cluster: &Cluster) {
    let mut child = kubectl::command(program, cluster, &["logs", "-f", "web", "--tail=1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<String> =
        BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).take(5).collect();
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(lines.len(), 5, "logs -f goes on: {lines:?}");
}

fn enter(program: &std::path::Path, cluster: &Cluster) {
    let plain =
        kubectl::run(program, cluster, &["exec", "web", "--", "/bin/busybox", "echo", "hello"]).expect_ok();
    assert_eq!(plain, "hello\n");
    let failed =
        kubectl::command(program, cluster, &["exec", "web", "--", "/bin/sh", "-c", "exit 7"]).status();
    assert_eq!(failed.unwrap().code(), Some(7));
    let mut child = kubectl::command(program, cluster, &["exec", "-i", "web", "--", "/bin/busybox", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "through\n", "stdin is closed at its end");
    // `-t` wants a terminal on its own side: `script` gives it one. Older clients do it over SPDY.
    let kubeconfig = cluster.dir().join("kubeconfig");
    for over in ["", "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false "] {
        let line = format!(
            "{over}{} --kubeconfig {} exec -it web -- /bin/busybox tty",
            program.display(),
            kubeconfig.display()
        );
        let output = std::process::Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("/dev/pts/"), "{over}{text}");
    }
    std::thread::sleep(Duration::from_millis(10));
}
