//! Policies that decide about writes by expressions.

use crate::server::*;
use serde_json::{Value, json};
use trine_apiserver::AuditConfig;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(name: &str, replicas: u64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

/// A rule for deployments and config maps.
fn constraints() -> Value {
    json!({"resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["", "apps"], "apiVersions": ["v1"],
        "resources": ["deployments", "configmaps", "configmaps/*"]}]})
}

/// A policy with a binding; `spec` and `binding` are set in them.
async fn in_force(api: &Api, kind: &str, name: &str, spec: &Value, binding: &Value) {
    let lower = kind.to_lowercase();
    let mut policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}AdmissionPolicy"),
        "metadata": {"name": name}, "spec": {"matchConstraints": constraints()}});
    spec.as_object().unwrap().iter().for_each(|(k, v)| policy["spec"][k] = v.clone());
    api.make(&format!("{GROUP}/{lower}admissionpolicies"), policy).await;
    let mut bound = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}AdmissionPolicyBinding"),
        "metadata": {"name": format!("{name}-binding")}, "spec": {"policyName": name}});
    if kind == "Validating" {
        bound["spec"]["validationActions"] = json!(["Deny"]);
    }
    binding.as_object().unwrap().iter().for_each(|(k, v)| bound["spec"][k] = v.clone());
    api.make(&format!("{GROUP}/{lower}admissionpolicybindings"), bound).await;
}

async fn validating(api: &Api, name: &str, spec: Value, binding: Value) {
    in_force(api, "Validating", name, &spec, &binding).await;
}

fn message(answer: &Value) -> String {
    text(&answer["message"])
}

#[tokio::test]
async fn a_policy_refuses_what_its_expressions_do_not_hold_for() {
    let api = Api::start().await;
    let spec = json!({
        "matchConditions": [{"name": "no-maps", "expression": "request.resource.resource == 'deployments'"}],
        "variables": [{"name": "replicas", "expression": "object.spec.replicas"},
            {"name": "odd", "expression": "variables.replicas % 2 == 1"}],
        "validations": [
            {"expression": "variables.replicas > 1", "messageExpression": "'wants replicas > 1, got ' + string(variables.replicas)"},
            {"expression": "variables.odd", "reason": "Forbidden"},
            {"expression": "namespaceObject.metadata.name == 'default'", "message": "not here"}]});
    validating(&api, "p", spec, json!({})).await;
    let (code, refused) = api.call("POST", DEPLOYMENTS, deployment("one", 1)).await;
    assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")));
    let denied = "ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: ";
    assert_eq!(
        message(&refused),
        format!("deployments.apps \"one\" is forbidden: {denied}wants replicas > 1, got 1")
    );
    assert_eq!(refused["details"]["causes"][0]["message"], format!("{denied}wants replicas > 1, got 1"));
    let (code, refused) = api.call("POST", DEPLOYMENTS, deployment("two", 2)).await;
    assert_eq!((code, &refused["reason"]), (403, &json!("Forbidden")));
    assert!(message(&refused).ends_with("denied request: failed expression: variables.odd"), "{refused}");
    let (_, page) = read(api.send("GET", "/metrics", &[], "").await).await;
    let counted = "apiserver_validating_admission_policy_check_total{enforcement_action=\"deny\",error_type=\"no_error\",\
                   policy=\"p\",policy_binding=\"p-binding\"} ";
    assert!(text(&page).contains(counted), "{page}");
    api.make(DEPLOYMENTS, deployment("three", 3)).await;
    api.make(CONFIG_MAPS, config_map("x", "")).await;
    let (code, _) = api.patch(&format!("{DEPLOYMENTS}/three"), json!({"spec": {"replicas": 1}})).await;
    assert_eq!(code, 422, "a change is looked at, too");
    api.call("DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/p-binding"), Value::Null).await;
    api.make(DEPLOYMENTS, deployment("one", 1)).await;
}

#[tokio::test]
async fn parameters_are_found_by_name_and_by_selector() {
    let api = Api::start().await;
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
            "resources": ["deployments"]}]},
        "validations": [{"expression": "params == null || object.spec.replicas <= int(params.data.key)",
            "messageExpression": "'at most ' + params.data.key"}]});
    let named =
        json!({"paramRef": {"name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    validating(&api, "p", spec.clone(), named).await;
    let (code, refused) = api.call("POST", DEPLOYMENTS, deployment("a", 1)).await;
    assert_eq!(code, 422);
    assert!(
        message(&refused).ends_with(
            "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
        ),
        "{refused}"
    );
    api.make(CONFIG_MAPS, config_map("limit", "3")).await;
    api.make(DEPLOYMENTS, deployment("a", 3)).await;
    let (code, refused) = api.call("POST", DEPLOYMENTS, deployment("b", 4)).await;
    assert_eq!(code, 422);
    assert!(message(&refused).ends_with("at most 3"), "{refused}");
    api.call("DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/p-binding"), Value::Null).await;
    let selected = json!({"paramRef": {"selector": {"matchLabels": {"app": "limits"}}, "parameterNotFoundAction": "Allow"}});
    validating(&api, "q", spec, selected).await;
    api.make(DEPLOYMENTS, deployment("b", 4)).await;
    for (name, value) in [("l1", "9"), ("l2", "5")] {
        let mut limit = labelled(name, "limits");
        limit["data"]["key"] = value.into();
        api.make(CONFIG_MAPS, limit).await;
    }
    assert_eq!(api.call("POST", DEPLOYMENTS, deployment("c", 6)).await.0, 422, "each of them counts");
    api.make(DEPLOYMENTS, deployment("c", 5)).await;
}

#[tokio::test]
async fn what_cannot_be_said_is_a_matter_of_the_policys_failure_policy() {
    let api = Api::start().await;
    for (policy, code) in [("Fail", 422), ("Ignore", 201)] {
        let spec =
            json!({"failurePolicy": policy, "validations": [{"expression": "object.data.nothing == 'x'"}]});
        let name = policy.to_lowercase();
        validating(&api, &name, spec, json!({})).await;
        let (got, answer) = api.call("POST", &format!("{CONFIG_MAPS}?dryRun=All"), config_map("x", "")).await;
        assert_eq!(got, code, "{answer}");
        if code == 422 {
            let wanted = "expression 'object.data.nothing == 'x'' resulted in error: no such key: nothing";
            assert!(message(&answer).ends_with(wanted), "{answer}");
        }
        api.call("DELETE", &format!("{GROUP}/validatingadmissionpolicies/{name}"), Value::Null).await;
    }
}

#[tokio::test]
async fn actions_warn_and_note_where_they_do_not_deny() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let server = start_with(dir.path(), AuditConfig { log: Some(log.clone()), policy: None }).await;
    let api = Api { server, dir };
    let spec = json!({"validations": [{"expression": "false", "message": "never"}],
        "auditAnnotations": [{"key": "size", "valueExpression": "string(size(object.data))"},
            {"key": "none", "valueExpression": "null"}]});
    validating(&api, "p", spec, json!({"validationActions": ["Warn", "Audit"]})).await;
    let body = config_map("x", "").to_string();
    let response = api.send("POST", CONFIG_MAPS, &[("content-type", "application/json")], body).await;
    assert_eq!(response.status(), 201);
    assert_eq!(
        response.headers()["warning"],
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-binding': never\""
    );
    api.server.stop().await;
    let annotations = annotations(&log, "configmaps");
    assert_eq!(annotations["p/size"], "1");
    assert_eq!(annotations["p/none"], Value::Null);
    let failure: Value = serde_json::from_str(
        annotations["validation.policy.admission.k8s.io/validation_failure"].as_str().unwrap(),
    )
    .unwrap();
    assert_eq!(
        failure[0],
        json!({"message": "never", "policy": "p", "binding": "p-binding", "expressionIndex": 0,
        "validationActions": ["Warn", "Audit"]})
    );
}

#[tokio::test]
async fn expressions_ask_who_may_do_what() {
    let api = Api::start().await;
    let spec = json!({"validations": [{"expression":
        "authorizer.group('').resource('secrets').namespace(object.metadata.namespace).check('get').allowed()",
        "message": "only who reads secrets"}]});
    validating(&api, "p", spec, json!({})).await;
    let rule = json!({"metadata": {"name": "maps", "namespace": "default"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    api.make(&format!("{rbac}/roles"), rule).await;
    let binding = json!({"metadata": {"name": "maps"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
        "name": "maps"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    api.make(&format!("{rbac}/rolebindings"), binding).await;
    let (code, refused) = api.call_as(("alice", &[]), "POST", CONFIG_MAPS, config_map("a", "")).await;
    assert_eq!(code, 422, "{refused}");
    api.make(CONFIG_MAPS, config_map("b", "")).await;
}

#[tokio::test]
async fn a_policys_parameters_must_be_open_to_who_writes_it() {
    let api = Api::start().await;
    let rule = json!({"metadata": {"name": "policies"}, "rules": [
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    api.make(&format!("{rbac}/clusterroles"), rule).await;
    let binding = json!({"metadata": {"name": "policies"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole", "name": "policies"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    api.make(&format!("{rbac}/clusterrolebindings"), binding).await;
    let policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints(),
        "paramKind": {"apiVersion": "v1", "kind": "Secret"}, "validations": [{"expression": "params != null"}]}});
    let path = format!("{GROUP}/validatingadmissionpolicies");
    let (code, refused) = api.call_as(("alice", &[]), "POST", &path, policy.clone()).await;
    assert_eq!(code, 422, "{refused}");
    assert!(
        message(&refused).contains("must have \"get\" permission on all objects of the referenced paramKind"),
        "{refused}"
    );
    api.make(&path, policy).await;
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"],
        "paramRef": {"name": "s", "namespace": "default", "parameterNotFoundAction": "Deny"}}});
    let path = format!("{GROUP}/validatingadmissionpolicybindings");
    let (code, refused) = api.call_as(("alice", &[]), "POST", &path, binding.clone()).await;
    assert_eq!(code, 422, "{refused}");
    assert!(
        message(&refused).contains("does not have \"get\" permission on the object referenced by paramRef"),
        "{refused}"
    );
    api.make(&path, binding).await;
}

#[tokio::test]
async fn a_mutating_policy_merges_and_patches() {
    let api = Api::start().await;
    let spec = json!({"reinvocationPolicy": "Never", "mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
            "Object{metadata: Object.metadata{annotations: {'mutated-by': 'admission-policy'}}}"}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression":
            "[JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('example.org/n'), \
             value: string(size(object.metadata.annotations))}]"}}]});
    in_force(&api, "Mutating", "m", &spec, &json!({})).await;
    let made = api.make(DEPLOYMENTS, deployment("d", 1)).await;
    assert_eq!(
        made["metadata"]["annotations"],
        json!({"mutated-by": "admission-policy", "example.org/n": "1"})
    );
    assert_eq!(
        api.get(&format!("{DEPLOYMENTS}/d")).await["metadata"]["annotations"]["mutated-by"],
        "admission-policy"
    );
    let whole = json!({"reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration":
        {"expression": "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{nodeSelector: {'a': 'b'}}}}}"}}]});
    in_force(&api, "Mutating", "w", &whole, &json!({})).await;
    let (code, refused) = api.call("POST", DEPLOYMENTS, deployment("e", 1)).await;
    assert_eq!((code, &refused["reason"]), (403, &json!("Invalid")));
    assert!(
        message(&refused).starts_with(
            "policy 'w' with binding 'w-binding' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic"
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn a_mutating_policy_that_minds_sees_what_came_after_it() {
    let api = Api::start().await;
    let patch = |key: &str, expression: &str| {
        json!({"patchType": "JSONPatch", "jsonPatch": {"expression":
            format!("[JSONPatch{{op: 'add', path: '/data/{key}', value: {expression}}}]")}})
    };
    let early =
        json!({"reinvocationPolicy": "IfNeeded", "mutations": [patch("seen", "string(size(object.data))")]});
    let late = json!({"reinvocationPolicy": "Never", "mutations": [patch("late", "'1'")]});
    in_force(&api, "Mutating", "a-early", &early, &json!({})).await;
    in_force(&api, "Mutating", "b-late", &late, &json!({})).await;
    let made = api.make(CONFIG_MAPS, config_map("x", "v")).await;
    assert_eq!(made["data"], json!({"key": "v", "seen": "3", "late": "1"}));
}

#[tokio::test]
async fn a_policys_author_is_told_what_cannot_be() {
    let api = Api::start().await;
    let rules = json!({"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
        "resources": ["deployments"]}]});
    let spec =
        |expression: &str| json!({"matchConstraints": rules, "validations": [{"expression": expression}]});
    validating(&api, "good", spec("object.spec.replicas > 1"), json!({})).await;
    validating(&api, "bad", spec("object.spec.replicas > '1'"), json!({})).await;
    let told = async |name: &str| {
        for _ in 0..200 {
            let status =
                api.get(&format!("{GROUP}/validatingadmissionpolicies/{name}")).await["status"].clone();
            if status["observedGeneration"] == 1 {
                return status["typeChecking"].clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("nobody looked at {name}");
    };
    assert_eq!(told("good").await, json!({}));
    let warning = told("bad").await["expressionWarnings"][0].clone();
    assert_eq!(warning["fieldRef"], "spec.validations[0].expression");
    assert!(
        text(&warning["warning"]).contains("found no matching overload for '_>_' applied to '(int, string)'"),
        "{warning}"
    );
}

#[tokio::test]
async fn policies_are_shown_with_what_they_are_about() {
    let api = Api::start().await;
    validating(&api, "p", json!({"validations": [{"expression": "true"}]}), json!({})).await;
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let cells = async |path: &str| {
        let (_, table) = read(api.send("GET", &format!("{GROUP}/{path}"), &headers, "").await).await;
        table["rows"][0]["cells"].as_array().unwrap()[..3].to_vec()
    };
    assert_eq!(cells("validatingadmissionpolicies").await, [json!("p"), json!(1), json!("<unset>")]);
    assert_eq!(
        cells("validatingadmissionpolicybindings").await,
        [json!("p-binding"), json!("p"), json!("<unset>")]
    );
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    assert_eq!(api.get(&path).await["metadata"]["generation"], 1);
    let (code, changed) = api.patch(&path, json!({"spec": {"failurePolicy": "Ignore"}})).await;
    assert_eq!((code, &changed["metadata"]["generation"]), (200, &json!(2)));
    let status = json!({"status": {"conditions": [{"type": "T", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let (code, changed) = api.patch(&format!("{path}/status"), status).await;
    assert_eq!((code, &changed["status"]["conditions"][0]["type"]), (200, &json!("T")));
}
