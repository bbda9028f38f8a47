//! A chart in the shape in which charts come: a subchart, values with a schema, hooks as Jobs with weights, a claim that is kept.

use serde_json::Value;
use trine_tests::helm::Helm;
use trine_tests::until;

use super::Stage;

/// What the hooks of a release have written, in their order.
fn journal(stage: &Stage) -> Vec<String> {
    stage.apply("chart-journal.yaml", &[]);
    stage.wait("pod/journal", "Ready");
    let text = stage.said(&[
        "exec",
        "journal",
        "--",
        "sh",
        "-c",
        "while read line; do echo $line; done < /journal/log",
    ]);
    let _ = stage.said(&["delete", "pod", "journal"]);
    text.lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "takes minutes; `cargo xtask manifests` runs it"]
fn a_chart_with_jobs_as_hooks_lives_its_life() {
    const TEST: &str = "a_chart_with_jobs_as_hooks_lives_its_life";
    let Some(program) = Helm::build(TEST) else { return };
    let Some(stage) = Stage::set(TEST) else { return };
    let helm = Helm::of(program, &stage.cluster);
    let chart = Stage::folder("chart").display().to_string();
    let password = || stage.said(&["get", "secret", "shop", "-o", "jsonpath={.data.password}"]);
    let log = |job: &str| stage.said(&["logs", &format!("job/{job}")]);

    let refused = helm.run(&["install", "shop", &chart, "--set", "replicaCount=none"]).expect_failure();
    assert!(refused.contains("replicaCount") && refused.contains("integer"), "{refused}");
    let words = ["--wait", "--wait-for-jobs", "--timeout=120s"];
    let installed = helm.json(&[&["install", "shop", &chart][..], &words].concat());
    assert_eq!(installed["info"]["status"], "deployed", "{installed}");
    let notes = installed["info"]["notes"].as_str().unwrap_or_default();
    assert!(notes.starts_with("shop greets with hello on Kubernetes v1.37."), "{notes}");
    assert_eq!(log("shop-announce"), "hello of revision 1\n");
    assert_eq!(
        stage.cluster.get("job/shop-prepare"),
        Value::Null,
        "one that succeeded is gone if it says so"
    );
    assert_eq!(stage.cluster.get("job/shop-migrate")["status"]["succeeded"], 1);
    let first = password();

    let change = ["--set", "greeting=welcome,replicaCount=3,ingress.enabled=true"];
    let upgraded = helm.json(&[&["upgrade", "shop", &chart][..], &change, &words].concat());
    assert_eq!((&upgraded["version"], &upgraded["info"]["status"]), (&2.into(), &"deployed".into()));
    assert_eq!(log("shop-announce"), "welcome of revision 2\n");
    assert_eq!(password(), first, "what was looked up is kept");
    let deployment = stage.cluster.get("deployment/shop");
    assert_eq!(
        (&deployment["spec"]["replicas"], &deployment["status"]["availableReplicas"]),
        (&3.into(), &3.into())
    );
    assert_eq!(stage.cluster.get("ingress/shop")["spec"]["rules"][0]["host"], "shop.local");

    // One whose migration fails is taken back by itself.
    let change = ["--set", "greeting=never,migration.fails=true", "--rollback-on-failure", "--timeout=120s"];
    let failed = helm.run(&[&["upgrade", "shop", &chart][..], &change].concat()).expect_failure();
    assert!(failed.contains("pre-upgrade hooks failed"), "{failed}");
    assert_eq!(helm.history("shop"), ["superseded", "superseded", "failed", "deployed"]);
    assert_eq!(log("shop-announce"), "welcome of revision 2\n", "the settings are those of then");

    let _ = helm.run(&[&["rollback", "shop", "1"][..], &words].concat()).expect_ok();
    assert_eq!(log("shop-announce"), "hello of revision 1\n");
    assert_eq!(stage.cluster.get("ingress/shop"), Value::Null);
    let tested = helm.run(&["test", "shop", "--timeout=60s"]).expect_ok();
    assert!(tested.contains("Succeeded"), "{tested}");

    let _ = helm.run(&["uninstall", "shop", "--wait", "--timeout=120s"]).expect_ok();
    until("its Pods are gone", || {
        let left = stage.said(&[
            "get",
            "deploy,sts,svc,pdb,sa,role,rolebinding",
            "-l",
            "app.kubernetes.io/instance=shop",
            "-o",
            "name",
        ]);
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    let written = [
        "prepare 1",
        "migrate 1",
        "announce 1",
        "prepare 2",
        "migrate 2",
        "announce 2",
        "prepare 3",
        "migrate 3",
        "announce 2",
        "announce 1",
        "farewell 1",
    ];
    assert_eq!(journal(&stage), written);
    let _ = stage.said(&["delete", "jobs,pvc", "--all"]);
}
