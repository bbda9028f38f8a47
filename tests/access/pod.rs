//! Line 12: a Pod talks to the API with its own token, through the `kubernetes` Service, and may what its RoleBinding says.

use trine_tests::{Cluster, kubectl, until};

const RIGHTS: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: reader}
"#;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  restartPolicy: Never
  serviceAccountName: reader
  containers:
  - name: main
    image: trine.local/kubectl:1
    command: [/bin/kubectl, --cache-dir=/cache, get, WHAT, -o, name]
"#;

/// Runs kubectl in a Pod, which finds server, token and authority as every client in a cluster does; its output.
fn asked(cluster: &Cluster, name: &str, what: &str, phase: &str) -> String {
    let _ = cluster.apply(&POD.replace("NAME", name).replace("WHAT", what)).expect_ok();
    until(&format!("Pod {name} is {phase}"), || {
        let pod = cluster.get(&format!("pod/{name}"));
        if pod["status"]["phase"] == phase {
            return Ok(());
        }
        Err(format!("{}\n{}\n{}", pod["status"], cluster.events(name), cluster.trine(&["logs", name]).out))
    });
    cluster.trine(&["logs", name]).expect_ok()
}

#[test]
fn a_pod_may_with_its_token_what_its_role_says() {
    const TEST: &str = "a_pod_may_with_its_token_what_its_role_says";
    if !trine_kernel::testing::root(TEST) {
        return;
    }
    let Some(program) = kubectl::build(TEST) else { return };
    let cluster = Cluster::up();
    let copy = format!("{}:/bin/kubectl", program.display());
    let words = ["image", "build", "--tag", "trine.local/kubectl:1", "--entrypoint", "/bin/kubectl", &copy];
    let _ = cluster.trine(&words).expect_ok();
    let _ = cluster.apply(RIGHTS).expect_ok();
    let listed = asked(&cluster, "lists", "pods", "Succeeded");
    assert!(listed.lines().any(|l| l == "pod/lists"), "{listed}");
    let refused = asked(&cluster, "pries", "secrets", "Failed");
    let wanted = "secrets is forbidden: User \"system:serviceaccount:default:reader\" cannot list resource \"secrets\" in \
                  API group \"\" in the namespace \"default\"";
    assert!(refused.contains(wanted), "{refused}");
}
