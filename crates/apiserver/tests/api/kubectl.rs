//! The client that everybody uses.

use crate::server::*;
use std::process::{Command, Output};
use trine_kernel::testing::program;

pub struct Kubectl {
    config: std::path::PathBuf,
    home: std::path::PathBuf,
}

impl Kubectl {
    pub fn of(api: &Api) -> Self {
        let config = api.dir.path().join("kubeconfig");
        std::fs::write(&config, api.server.kubeconfig()).unwrap();
        Self { config, home: api.dir.path().to_owned() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .arg("60")
            .arg("kubectl")
            .arg("--kubeconfig")
            .arg(&self.config)
            .args(args)
            .env("HOME", &self.home);
        command
    }

    pub async fn run(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// What it says when it fails.
    pub async fn refused(&self, args: &[&str]) -> String {
        let done = self.run(args).await;
        assert!(!done.status.success(), "kubectl {args:?} did it");
        String::from_utf8_lossy(&done.stderr).into_owned()
    }

    pub async fn ok(&self, args: &[&str]) -> String {
        let done = self.run(args).await;
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "kubectl {args:?}: {stderr}");
        String::from_utf8(done.stdout).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_applies_gets_changes_and_deletes() {
    if !program("kubectl_applies_gets_changes_and_deletes", "kubectl") {
        return;
    }
    let api = Api::start().await;
    let kubectl = Kubectl::of(&api);
    let manifest = api.dir.path().join("web.yaml");
    let yaml = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: web}}\nspec:\n  containers:\n  - {name: main, image: \
                example/web:1}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  selector: {app: web}\n  ports: [{port: 80}]\n";
    std::fs::write(&manifest, yaml).unwrap();
    let file = manifest.to_str().unwrap();
    assert_eq!(kubectl.ok(&["apply", "-f", file]).await, "pod/web created\nservice/web created\n");
    assert_eq!(kubectl.ok(&["apply", "-f", file]).await, "pod/web unchanged\nservice/web unchanged\n");
    std::fs::write(&manifest, yaml.replace("web:1", "web:2")).unwrap();
    assert_eq!(kubectl.ok(&["apply", "-f", file]).await, "pod/web configured\nservice/web unchanged\n");
    let listed = kubectl.ok(&["get", "pods,svc", "-o", "wide"]).await;
    assert!(listed.contains("pod/web") && listed.contains("service/kubernetes"), "{listed}");
    assert!(kubectl.ok(&["get", "pod", "web", "-o", "yaml"]).await.contains("image: example/web:2"));
    assert!(kubectl.ok(&["describe", "pod", "web"]).await.contains("QoS Class"));
    kubectl.ok(&["label", "pod", "web", "tier=front"]).await;
    assert_eq!(kubectl.ok(&["get", "pods", "-l", "tier=front", "-o", "name"]).await, "pod/web\n");
    std::fs::write(&manifest, yaml.replace("containers", "container")).unwrap();
    let refused = kubectl.run(&["apply", "-f", file]).await;
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("unknown field"), "{stderr}");
    assert_eq!(kubectl.ok(&["delete", "pod/web", "service/web"]).await.lines().count(), 2);
    let missing = kubectl.run(&["get", "pod", "web"]).await;
    let stderr = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(stderr.contains("Error from server (NotFound): pods \"web\" not found"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_goes_over_to_server_side_apply_and_is_told_of_conflicts() {
    if !program("kubectl_goes_over_to_server_side_apply_and_is_told_of_conflicts", "kubectl") {
        return;
    }
    let api = Api::start().await;
    let kubectl = Kubectl::of(&api);
    let manifest = api.dir.path().join("map.yaml");
    let write = |x: &str| {
        let yaml = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{x: '{x}', other: '1'}}\n"
        );
        std::fs::write(&manifest, yaml).unwrap();
    };
    let file = manifest.to_str().unwrap();
    let owners = async || -> Vec<String> {
        let object = api.get(&format!("{CONFIG_MAPS}/a")).await;
        let entries = object["metadata"]["managedFields"].as_array().unwrap().clone();
        let one = |e: &serde_json::Value| format!("{} {}", text(&e["manager"]), text(&e["operation"]));
        entries.iter().map(one).collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    };
    write("1");
    kubectl.ok(&["apply", "-f", file]).await;
    assert_eq!(owners().await, ["kubectl-client-side-apply Update"]);
    write("2");
    let applied = "configmap/a serverside-applied\n";
    assert_eq!(kubectl.ok(&["apply", "--server-side", "-f", file]).await, applied);
    // It keeps its old annotation under a name of its own.
    let after = ["kubectl Apply", "kubectl-last-applied Apply"];
    assert_eq!(owners().await, after);
    let before = api.get(&format!("{CONFIG_MAPS}/a")).await;
    assert_eq!(kubectl.ok(&["apply", "--server-side", "-f", file]).await, applied);
    assert_eq!(api.get(&format!("{CONFIG_MAPS}/a")).await, before);
    kubectl.ok(&["patch", "configmap", "a", "--field-manager", "tuner", "-p", r#"{"data":{"x":"9"}}"#]).await;
    let refused = kubectl.run(&["apply", "--server-side", "-f", file]).await;
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    let wanted = "error: Apply failed with 1 conflict: conflict with \"tuner\" using v1: .data.x\n";
    assert!(!refused.status.success() && stderr.starts_with(wanted), "{stderr}");
    let changed = kubectl.run(&["diff", "--server-side", "--force-conflicts", "-f", file]).await;
    assert_eq!(changed.status.code(), Some(1), "{}", String::from_utf8_lossy(&changed.stderr));
    assert_eq!(kubectl.ok(&["apply", "--server-side", "--force-conflicts", "-f", file]).await, applied);
    assert_eq!(owners().await, after);
    assert_eq!(kubectl.ok(&["get", "configmap", "a", "-o", "jsonpath={.data.x}"]).await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_watches() {
    if !program("kubectl_watches", "kubectl") {
        return;
    }
    let api = Api::start().await;
    let kubectl = Kubectl::of(&api);
    api.make(PODS, pod("first")).await;
    let mut command = tokio::process::Command::from(kubectl.command(&["get", "pods", "-w", "--no-headers"]));
    let mut child = command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let out = tokio::io::BufReader::new(child.stdout.take().unwrap());
    let mut lines = tokio::io::AsyncBufReadExt::lines(out);
    let mut next =
        async || tokio::time::timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap().unwrap();
    assert!(next().await.starts_with("first "));
    api.make(PODS, pod("second")).await;
    assert!(next().await.starts_with("second "));
    child.kill().await.unwrap();
}
