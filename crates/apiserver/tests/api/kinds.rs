//! All kinds are served: workloads and their scale, budgets and evictions, limits and quotas, levels of Pods, both versions of
//! autoscalers, and what becomes of what is owned.

use crate::server::*;
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": {
        "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "example/web:1"}]}}}})
}

#[tokio::test]
async fn every_listed_resource_answers_a_list() {
    let api = Api::start().await;
    for resource in trine_objects::resources::resources().iter().filter(|r| r.serves("list")) {
        let root = if resource.group.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{}", resource.api_version())
        };
        let list = api.get(&format!("{root}/{}", resource.plural)).await;
        assert_eq!(list["kind"], format!("{}List", resource.kind), "{root}");
        assert_eq!(list["apiVersion"], resource.api_version(), "{root}");
    }
}

#[tokio::test]
async fn a_deployment_is_scaled_and_its_status_written_apart() {
    let api = Api::start().await;
    let made = api.make(DEPLOYMENTS, deployment("web")).await;
    assert_eq!(
        (&made["metadata"]["generation"], &made["spec"]["strategy"]["type"]),
        (&json!(1), &json!("RollingUpdate"))
    );
    let path = format!("{DEPLOYMENTS}/web");
    let scale = api.get(&format!("{path}/scale")).await;
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(2), &json!("app=web")));
    let (code, scaled) = api.patch(&format!("{path}/scale"), json!({"spec": {"replicas": 5}})).await;
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(5)), "{scaled}");
    let mut scale = scaled;
    scale["spec"]["replicas"] = 3.into();
    assert_eq!(api.call("PUT", &format!("{path}/scale"), scale.clone()).await.0, 200);
    assert_eq!(api.call("PUT", &format!("{path}/scale"), scale).await.0, 409, "its revision is old");
    let now = api.get(&path).await;
    assert_eq!((&now["spec"]["replicas"], &now["metadata"]["generation"]), (&json!(3), &json!(3)));
    let config = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 4}});
    let media = "application/apply-patch+yaml";
    let apply = |query: &str| format!("{path}/scale?fieldManager=me{query}");
    let (code, refused) = api.typed("PATCH", &apply(""), media, config.clone()).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")), "others set it: {refused}");
    let (code, applied) = api.typed("PATCH", &apply("&force=true"), media, config).await;
    assert_eq!((code, &applied["spec"]["replicas"]), (200, &json!(4)), "{applied}");
    api.patch(&path, json!({"spec": {"replicas": 3}})).await;
    let change = json!({"metadata": {"annotations": {"seen": "yes"}}, "spec": {"replicas": 9}, "status": {"replicas": 1}});
    let (code, done) = api.patch(&format!("{path}/status"), change).await;
    assert_eq!((code, &done["status"]["replicas"]), (200, &json!(1)), "{done}");
    assert_eq!(
        (&done["spec"]["replicas"], &done["metadata"]["annotations"]["seen"]),
        (&json!(3), &json!("yes"))
    );
    assert_eq!(done["metadata"]["generation"], 5);
    let (code, refused) =
        api.patch(&path, json!({"spec": {"selector": {"matchLabels": {"app": "x"}}}})).await;
    assert_eq!(code, 422);
    assert!(text(&refused["message"]).contains("field is immutable"), "{refused}");
}

#[tokio::test]
async fn an_autoscaler_is_one_object_in_two_versions() {
    let api = Api::start().await;
    let older = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    let v1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let v2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let made = api.make(v1, older).await;
    assert_eq!((&made["apiVersion"], &made["spec"]["minReplicas"]), (&json!("autoscaling/v1"), &json!(1)));
    let newer = api.get(&format!("{v2}/h")).await;
    assert_eq!(newer["apiVersion"], "autoscaling/v2");
    assert_eq!(newer["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
    let (code, patched) =
        api.patch(&format!("{v1}/h"), json!({"spec": {"targetCPUUtilizationPercentage": 70}})).await;
    assert_eq!((code, &patched["spec"]["targetCPUUtilizationPercentage"]), (200, &json!(70)), "{patched}");
    let newer = api.get(&format!("{v2}/h")).await;
    assert_eq!(newer["spec"]["metrics"].as_array().unwrap().len(), 1, "{newer}");
    assert_eq!(newer["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
    let group = api.get("/apis/autoscaling").await;
    assert_eq!(
        (&group["preferredVersion"]["version"], group["versions"].as_array().unwrap().len()),
        (&json!("v2"), 2)
    );
}

#[tokio::test]
async fn a_budget_stops_evictions_until_it_allows_them() {
    let api = Api::start().await;
    let mut running = pod("p");
    running["metadata"]["labels"] = json!({"app": "p"});
    api.make(PODS, running).await;
    api.call("POST", &format!("{PODS}/p/binding"), json!({"target": {"kind": "Node", "name": "n"}})).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(api.patch(&format!("{PODS}/p/status"), ready).await.0, 200);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    api.make(budgets, json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}})).await;
    let evict = || {
        api.call(
            "POST",
            "/api/v1/namespaces/default/pods/p/eviction",
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}),
        )
    };
    let (code, refused) = evict().await;
    assert_eq!((code, &refused["reason"]), (429, &json!("TooManyRequests")), "{refused}");
    assert_eq!(refused["details"]["retryAfterSeconds"], 10, "nobody has counted yet");
    let counted = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    assert_eq!(api.patch(&format!("{budgets}/b/status"), counted).await.0, 200);
    let (code, refused) = evict().await;
    let cause = &refused["details"]["causes"][0];
    assert_eq!((code, &cause["reason"]), (429, &json!("DisruptionBudget")));
    assert_eq!(cause["message"], "The disruption budget b needs 1 healthy pods and has 1 currently");
    api.patch(&format!("{budgets}/b/status"), json!({"status": {"disruptionsAllowed": 1}})).await;
    let dry = json!({"deleteOptions": {"dryRun": ["All"]}});
    assert_eq!(api.call("POST", &format!("{PODS}/p/eviction"), dry).await.0, 201);
    assert_eq!(api.get(&format!("{budgets}/b")).await["status"]["disruptionsAllowed"], 1);
    let (code, done) = evict().await;
    assert_eq!((code, &done["status"]), (201, &json!("Success")), "{done}");
    let budget = api.get(&format!("{budgets}/b")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["p"].is_string());
    let going = api.get(&format!("{PODS}/p")).await;
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    let conditions = going["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions.iter().any(|c| c["type"] == "DisruptionTarget" && c["reason"] == "EvictionByEvictionAPI")
    );
}

#[tokio::test]
async fn limits_fill_and_bound_and_quotas_count() {
    let api = Api::start().await;
    let limits = "/api/v1/namespaces/default/limitranges";
    api.make(limits, json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "500m"},
        "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}}]}})).await;
    let filled = api.make(PODS, pod("a")).await;
    assert_eq!(
        filled["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}})
    );
    assert_eq!(filled["status"]["qosClass"], "Burstable");
    let mut large = pod("large");
    large["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "2"}});
    let (code, refused) = api.call("POST", PODS, large).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "pods \"large\" is forbidden: maximum cpu usage per Container is 1, but limit is 2"
    );
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    api.make(
        quotas,
        json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2", "requests.cpu": "1"}}}),
    )
    .await;
    let counted = json!({"status": {"hard": {"pods": "2", "requests.cpu": "1"}, "used": {"pods": "1", "requests.cpu": "100m"}}});
    api.patch(&format!("{quotas}/q/status"), counted).await;
    let (code, _) = api.call("POST", &format!("{PODS}?dryRun=All"), pod("b")).await;
    assert_eq!(code, 201);
    api.make(PODS, pod("b")).await;
    let used = api.get(&format!("{quotas}/q")).await["status"]["used"].clone();
    assert_eq!(used, json!({"pods": "2", "requests.cpu": "200m"}));
    let (code, refused) = api.call("POST", PODS, pod("c")).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "pods \"c\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
    );
}

#[tokio::test]
async fn a_quota_holds_against_many_at_once() {
    let api = Api::start().await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    api.make(quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}})).await;
    api.patch(
        &format!("{quotas}/q/status"),
        json!({"status": {"hard": {"pods": "5"}, "used": {"pods": "0"}}}),
    )
    .await;
    let names: Vec<String> = (0..12).map(|i| format!("p{i}")).collect();
    let made = futures::future::join_all(names.iter().map(|name| api.call("POST", PODS, pod(name)))).await;
    let codes: Vec<u16> = made.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes.iter().filter(|c| **c == 201).count(), 5, "{codes:?}");
    assert_eq!(api.get(PODS).await["items"].as_array().unwrap().len(), 5);
    assert_eq!(api.get(&format!("{quotas}/q")).await["status"]["used"]["pods"], "5");
}

#[tokio::test]
async fn a_namespace_takes_pods_of_its_level_only() {
    let api = Api::start().await;
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"});
    api.make("/api/v1/namespaces", json!({"metadata": {"name": "n", "labels": labels}})).await;
    api.make("/api/v1/namespaces/n/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
    let mut root = pod("root");
    root["spec"]["hostPID"] = true.into();
    let (code, refused) = api.call("POST", "/api/v1/namespaces/n/pods", root).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "pods \"root\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"
    );
    let body = deployment("web").to_string();
    let headers = [("content-type", "application/json")];
    let response = api.send("POST", "/apis/apps/v1/namespaces/n/deployments", &headers, body).await;
    assert_eq!(response.status(), 201);
    let warning = response.headers()["warning"].to_str().unwrap();
    assert!(warning.contains("would violate PodSecurity"), "{warning}");
}

#[tokio::test]
async fn a_deletion_says_what_becomes_of_what_is_owned() {
    let api = Api::start().await;
    let path = format!("{DEPLOYMENTS}/web");
    api.make(DEPLOYMENTS, deployment("web")).await;
    let (code, held) = api.call("DELETE", &path, json!({"propagationPolicy": "Foreground"})).await;
    assert_eq!((code, &held["metadata"]["finalizers"]), (200, &json!(["foregroundDeletion"])));
    let (code, refused) = api.call("DELETE", &format!("{path}?propagationPolicy=Never"), Value::Null).await;
    assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")));
    assert_eq!(api.call("DELETE", &format!("{path}?propagationPolicy=Background"), Value::Null).await.0, 200);
    assert_eq!(api.call("GET", &path, Value::Null).await.0, 404);
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    api.make(jobs, json!({"metadata": {"name": "j"}, "spec": {"template": template}})).await;
    let (_, held) = api.call("DELETE", &format!("{jobs}/j"), Value::Null).await;
    assert_eq!(held["metadata"]["finalizers"], json!(["orphan"]), "as it was before Jobs had a choice");
}

#[tokio::test]
async fn a_claim_grows_only_where_its_class_lets_it_and_else_it_is_forbidden() {
    let api = Api::start().await;
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    api.make(classes, json!({"metadata": {"name": "c"}, "provisioner": "d"})).await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let mut claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "c", "volumeName": "v"}});
    claim["spec"]["resources"] = size("1Gi")["spec"]["resources"].clone();
    api.make(claims, claim).await;
    let (path, media) = (format!("{claims}/data"), "application/merge-patch+json");
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    assert_eq!(api.typed("PATCH", &format!("{path}/status"), media, bound).await.0, 200);
    let (code, refused) = api.typed("PATCH", &path, media, size("2Gi")).await;
    assert_eq!((code, &refused["reason"]), (403, &json!("Forbidden")), "{refused}");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("storageclass that provisions the pvc must support resize")
    );
    let allowed = json!({"allowVolumeExpansion": true});
    assert_eq!(api.typed("PATCH", &format!("{classes}/c"), media, allowed).await.0, 200);
    let (code, grown) = api.typed("PATCH", &path, media, size("2Gi")).await;
    assert_eq!((code, &grown["spec"]["resources"]["requests"]["storage"]), (200, &json!("2Gi")), "{grown}");
}

#[tokio::test]
async fn a_pod_is_resized_and_debugged_through_its_parts_alone() {
    let api = Api::start().await;
    let mut sized = pod("p");
    sized["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    api.make(PODS, sized).await;
    let resources = |cpu: &str| json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}});
    let media = "application/strategic-merge-patch+json";
    let path = format!("{PODS}/p");
    let (code, refused) = api.typed("PATCH", &path, media, resources("200m")).await;
    assert_eq!(code, 422, "{refused}");
    let (code, resized) = api.typed("PATCH", &format!("{path}/resize"), media, resources("200m")).await;
    assert_eq!(code, 200, "{resized}");
    assert_eq!(resized["spec"]["containers"][0]["resources"]["requests"]["cpu"], "200m");
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "busybox"}]}});
    assert_eq!(api.typed("PATCH", &path, media, debug.clone()).await.0, 422);
    let (code, debugged) = api.typed("PATCH", &format!("{path}/ephemeralcontainers"), media, debug).await;
    assert_eq!(code, 200, "{debugged}");
    assert_eq!(debugged["spec"]["ephemeralContainers"][0]["terminationMessagePolicy"], "File");
}

#[tokio::test]
async fn what_every_cluster_needs_is_there_and_stays() {
    let api = Api::start().await;
    let levels = api.get("/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations").await;
    assert_eq!(levels["items"].as_array().unwrap().len(), 8);
    let schemas = api.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas").await;
    assert_eq!(schemas["items"].as_array().unwrap().len(), 11);
    let critical = api.get("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical").await;
    assert_eq!(critical["value"], 2_000_001_000_i64);
    let (code, refused) = api.call("DELETE", "/api/v1/namespaces/kube-system", Value::Null).await;
    assert_eq!(
        (code, &refused["message"]),
        (403, &json!("namespaces \"kube-system\" is forbidden: this namespace may not be deleted"))
    );
}
