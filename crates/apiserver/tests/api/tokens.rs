//! Tokens, questions about access, asking as somebody else, certificates.

use crate::server::*;
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::sync::Arc;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// A request over TLS without a certificate, with headers.
async fn over_tls(api: &Api, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut roots = rustls::RootCertStore::empty();
    let pem = api.server.ca_pem().to_owned();
    use rustls::pki_types::pem::PemObject;
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = tokio::net::TcpStream::connect(api.server.addr()).await.unwrap();
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().uri(path).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = send.send_request(request.body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

async fn token(api: &Api, spec: Value) -> String {
    let made = api.make(&format!("{ACCOUNTS}/default/token"), json!({"spec": spec})).await;
    text(&made["status"]["token"])
}

fn claims(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

async fn whose(api: &Api, token: &str, audiences: Value) -> Value {
    let review = json!({"spec": {"token": token, "audiences": audiences}});
    api.make(&format!("{AUTHENTICATION}/tokenreviews"), review).await["status"].clone()
}

#[tokio::test]
async fn a_bearer_is_the_account_and_may_what_its_roles_say() {
    let api = Api::start().await;
    let token = token(&api, json!({})).await;
    let bearer = format!("Bearer {token}");
    let bearer = [("authorization", bearer.as_str())];
    let (code, status) = over_tls(&api, PODS, &bearer).await;
    assert_eq!(code, 403);
    assert!(text(&status["message"]).contains("User \"system:serviceaccount:default:default\" cannot list"));
    let view = json!({"metadata": {"name": "reader"}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]});
    api.make(&format!("{RBAC}/namespaces/default/roles"), view).await;
    let bind = json!({"metadata": {"name": "reader"}, "roleRef": {"kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "default"}]});
    api.make(&format!("{RBAC}/namespaces/default/rolebindings"), bind).await;
    assert_eq!(over_tls(&api, PODS, &bearer).await.0, 200);
    for wrong in ["Bearer x", "Bearer ", "Basic YTpi", &format!("Bearer {token}x")] {
        assert_eq!(over_tls(&api, PODS, &[("authorization", wrong)]).await.0, 401, "{wrong}");
    }
    assert_eq!(over_tls(&api, "/version", &[("authorization", "Bearer x")]).await.0, 401);
    assert_eq!(over_tls(&api, "/api", &[]).await.0, 403, "who shows nothing may not discover");
    let api = api.restart().await;
    assert_eq!(over_tls(&api, PODS, &bearer).await.0, 200, "the key is kept");
    let other = Api::start().await;
    assert_eq!(over_tls(&other, PODS, &bearer).await.0, 401, "another cluster's");
    api.call("DELETE", &format!("{ACCOUNTS}/default"), Value::Null).await;
    assert_eq!(over_tls(&api, PODS, &bearer).await.0, 401, "its account is gone");
}

#[tokio::test]
async fn a_token_says_for_whom_how_long_and_bound_to_what() {
    let api = Api::start().await;
    let pod = api.make(PODS, pod("p")).await;
    let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid});
    let made =
        token(&api, json!({"boundObjectRef": bound, "audiences": ["vault"], "expirationSeconds": 600})).await;
    let said = claims(&made);
    assert_eq!((&said["aud"], &said["iss"]), (&json!(["vault"]), &ISSUER.into()));
    assert_eq!(said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap(), 600);
    assert_eq!(&said["kubernetes.io"]["pod"]["uid"], uid);
    assert_eq!(
        whose(&api, &made, json!([])).await["authenticated"],
        Value::Null,
        "not for the API server's ears"
    );
    let status = whose(&api, &made, json!(["vault", "other"])).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&true.into(), &json!(["vault"])));
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:default");
    assert_eq!(status["user"]["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    let long = token(&api, json!({"boundObjectRef": bound, "expirationSeconds": 3607})).await;
    let said = claims(&long);
    assert_eq!(said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap(), 365 * 86400);
    assert_eq!(said["kubernetes.io"]["warnafter"].as_i64().unwrap() - said["iat"].as_i64().unwrap(), 3607);
    api.call("DELETE", &format!("{PODS}/p"), Value::Null).await;
    let status = whose(&api, &long, json!([])).await;
    assert!(text(&status["error"]).contains("service account token has been invalidated"), "{status}");
    let path = format!("{ACCOUNTS}/default/token");
    let (code, refused) = api.call("POST", &path, json!({"spec": {"expirationSeconds": 60}})).await;
    assert_eq!(code, 422);
    assert!(text(&refused["message"]).contains("may not specify a duration less than 10 minutes"));
    let gone = json!({"spec": {"boundObjectRef": bound}});
    assert_eq!(api.call("POST", &path, gone).await.0, 404);
    assert_eq!(api.call("POST", &format!("{ACCOUNTS}/none/token"), json!({"spec": {}})).await.0, 404);
}

#[tokio::test]
async fn the_keys_of_tokens_are_published() {
    let api = Api::start().await;
    let made = token(&api, json!({})).await;
    let configuration = api.get("/.well-known/openid-configuration").await;
    assert_eq!(configuration["issuer"], ISSUER);
    assert!(text(&configuration["jwks_uri"]).ends_with("/openid/v1/jwks"));
    let key = api.get("/openid/v1/jwks").await["keys"][0].clone();
    let point = |part: &str| URL_SAFE_NO_PAD.decode(text(&key[part])).unwrap();
    let public = [vec![4], point("x"), point("y")].concat();
    let (signed, signature) = made.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, public)
        .verify(signed.as_bytes(), &signature)
        .unwrap();
    let account = ("system:serviceaccount:default:default", ["system:serviceaccounts"].as_slice());
    assert_eq!(api.call_as(account, "GET", "/openid/v1/jwks", Value::Null).await.0, 200, "for accounts too");
    assert_eq!(api.call_as(("alice", &[]), "GET", "/openid/v1/jwks", Value::Null).await.0, 403);
}

#[tokio::test]
async fn a_pod_gets_its_account_and_token() {
    let api = Api::start().await;
    let made = api.make(PODS, pod("p")).await;
    let volume = &made["spec"]["volumes"][0];
    assert!(text(&volume["name"]).starts_with("kube-api-access-"));
    assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
    let mount = &made["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!((&mount["name"], &mount["readOnly"]), (&volume["name"], &true.into()));
    api.make(ACCOUNTS, json!({"metadata": {"name": "quiet"}, "automountServiceAccountToken": false})).await;
    let mut quiet = pod("q");
    quiet["spec"]["serviceAccountName"] = "quiet".into();
    assert_eq!(api.make(PODS, quiet).await["spec"]["volumes"], Value::Null);
    let mut lost = pod("l");
    lost["spec"]["serviceAccountName"] = "none".into();
    let (code, status) = api.call("POST", PODS, lost).await;
    let wanted = "pods \"l\" is forbidden: error looking up service account default/none: serviceaccount \"none\" not found";
    assert_eq!((code, &status["message"]), (403, &wanted.into()));
}

#[tokio::test]
async fn a_secret_holds_a_token_as_long_as_it_is_there() {
    let api = Api::start().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token"});
    let made = api.make(secrets, secret).await;
    let data = |key: &str| String::from_utf8(STANDARD.decode(text(&made["data"][key])).unwrap()).unwrap();
    assert_eq!((data("namespace").as_str(), data("ca.crt").as_str()), ("default", api.server.ca_pem()));
    assert!(!text(&made["metadata"]["annotations"]["kubernetes.io/service-account.uid"]).is_empty());
    let bearer = format!("Bearer {}", data("token"));
    assert_eq!(over_tls(&api, "/api", &[("authorization", &bearer)]).await.0, 200);
    api.call("DELETE", &format!("{secrets}/t"), Value::Null).await;
    assert_eq!(over_tls(&api, "/api", &[("authorization", &bearer)]).await.0, 401);
}

#[tokio::test]
async fn a_node_joins_with_a_bootstrap_token() {
    let api = Api::start().await;
    let data = json!({"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:worker"});
    let secret = json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": data});
    api.make("/api/v1/namespaces/kube-system/secrets", secret).await;
    let bearer = [("authorization", "Bearer abcdef.0123456789abcdef")];
    let (code, status) = over_tls(&api, PODS, &bearer).await;
    assert_eq!(code, 403);
    assert!(text(&status["message"]).contains("User \"system:bootstrap:abcdef\""), "{status}");
    let review = whose(&api, "abcdef.0123456789abcdef", json!([])).await;
    assert_eq!(review["user"]["groups"][1], "system:bootstrappers:worker");
    assert_eq!(over_tls(&api, PODS, &[("authorization", "Bearer abcdef.0123456789abcdeg")]).await.0, 401);
}

#[tokio::test]
async fn questions_about_access_are_answered() {
    let api = Api::start().await;
    let ask = async |user: (&str, &[&str]), kind: &str, spec: Value| {
        let (code, answer) =
            api.call_as(user, "POST", &format!("{AUTHORIZATION}/{kind}"), json!({"spec": spec})).await;
        assert_eq!(code, 201, "{answer}");
        answer["status"].clone()
    };
    let list = json!({"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"}});
    let alice: (&str, &[&str]) = ("alice", &[]);
    assert_eq!(ask(alice, "selfsubjectaccessreviews", list.clone()).await, json!({"allowed": false}));
    let admin: (&str, &[&str]) = ("root", &["system:masters"]);
    assert_eq!(ask(admin, "selfsubjectaccessreviews", list.clone()).await["allowed"], true);
    let mut about = list;
    about["user"] = "system:kube-scheduler".into();
    let status = ask(admin, "subjectaccessreviews", about.clone()).await;
    assert_eq!(status["allowed"], true);
    let wanted = "RBAC: allowed by ClusterRoleBinding \"system:kube-scheduler\" of ClusterRole \"system:kube-scheduler\" to \
                  User \"system:kube-scheduler\"";
    assert_eq!(status["reason"], wanted);
    let local = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
    assert_eq!(api.make(&local, json!({"spec": about})).await["status"]["allowed"], true);
    about["resourceAttributes"]["namespace"] = "other".into();
    assert_eq!(api.call("POST", &local, json!({"spec": about})).await.0, 422);
    let (code, _) =
        api.call_as(alice, "POST", &format!("{AUTHORIZATION}/subjectaccessreviews"), json!({})).await;
    assert_eq!(code, 403, "about others only who may");
    let rules = ask(alice, "selfsubjectrulesreviews", json!({"namespace": "default"})).await;
    assert!(rules["resourceRules"].to_string().contains("selfsubjectaccessreviews"), "{rules}");
    let (_, who) =
        api.call_as(alice, "POST", &format!("{AUTHENTICATION}/selfsubjectreviews"), json!({})).await;
    assert_eq!(who["status"]["userInfo"], json!({"username": "alice", "groups": ["system:authenticated"]}));
    let (code, _) = api.call("POST", &format!("{AUTHENTICATION}/tokenreviews"), json!({"spec": {}})).await;
    assert_eq!(code, 422);
    assert_eq!(api.call("GET", &format!("{AUTHENTICATION}/tokenreviews"), Value::Null).await.0, 405);
}

#[tokio::test]
async fn who_may_asks_as_somebody_else() {
    let api = Api::start().await;
    let as_other = async |user: (&str, &[&str]), headers: &[(&str, &str)]| {
        use tower::ServiceExt;
        let mut request =
            Request::builder().method("POST").uri(format!("{AUTHENTICATION}/selfsubjectreviews"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let service = api.server.service(user.0, user.1);
        read(service.oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap()).await
    };
    let admin: (&str, &[&str]) = ("root", &["system:masters"]);
    let headers =
        [("impersonate-user", "bob"), ("impersonate-group", "dev"), ("impersonate-extra-scope", "x")];
    let (code, who) = as_other(admin, &headers).await;
    assert_eq!(code, 201, "{who}");
    let wanted =
        json!({"username": "bob", "groups": ["dev", "system:authenticated"], "extra": {"scope": ["x"]}});
    assert_eq!(who["status"]["userInfo"], wanted);
    let (code, status) = as_other(("alice", &[]), &headers).await;
    assert_eq!(code, 403);
    assert!(text(&status["message"]).contains("User \"alice\" cannot impersonate resource"), "{status}");
}

fn signing_request(name: &str, group: &str) -> String {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
    let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    STANDARD.encode(pem)
}

#[tokio::test]
async fn certificates_are_asked_for_approved_and_signed_by_those_who_may() {
    let api = Api::start().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = |name: &str, group: &str| {
        json!({"metadata": {"name": name}, "spec": {"request": signing_request("bob", group), "username": "forged",
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}})
    };
    let made = api.make(path, request("r", "dev")).await;
    assert_eq!(made["spec"]["username"], "admin", "who asked is noted by the server");
    let (code, status) = api.call("POST", path, request("m", "system:masters")).await;
    assert_eq!(code, 403, "{status}");
    let mut wrong = request("w", "dev");
    wrong["spec"]["signerName"] = "kubernetes.io/legacy-unknown".into();
    wrong["spec"]["request"] = STANDARD.encode("x").into();
    let (code, status) = api.call("POST", path, wrong).await;
    assert_eq!((code, status["details"]["causes"].as_array().unwrap().len()), (422, 2), "{status}");
    let alice: (&str, &[&str]) = ("alice", &[]);
    let writes = json!({"metadata": {"name": "w"}, "rules": [{"apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests/approval"], "verbs": ["update"]}]});
    api.make(&format!("{RBAC}/clusterroles"), writes).await;
    let bind = json!({"metadata": {"name": "w"}, "roleRef": {"kind": "ClusterRole", "name": "w"},
        "subjects": [{"kind": "User", "name": "alice"}]});
    api.make(&format!("{RBAC}/clusterrolebindings"), bind).await;
    let mut approved = made.clone();
    approved["status"] = json!({"certificate": "eA==", "conditions": [
        {"type": "Approved", "status": "True", "reason": "Tested"}]});
    let approval = format!("{path}/r/approval");
    let (code, status) = api.call_as(alice, "PUT", &approval, approved.clone()).await;
    assert_eq!(code, 403);
    assert!(
        text(&status["message"]).contains("user not permitted to approve requests with signerName"),
        "{status}"
    );
    let (code, done) = api.call("PUT", &approval, approved).await;
    assert_eq!(code, 200, "{done}");
    assert_eq!(done["status"]["certificate"], Value::Null, "approval does not sign");
    assert!(!text(&done["status"]["conditions"][0]["lastTransitionTime"]).is_empty());
    let changed = api.patch(&format!("{path}/r"), json!({"spec": {"usages": ["server auth"]}})).await;
    assert_eq!(changed.1["spec"]["usages"], json!(["client auth"]), "what was asked for stays");
}

#[tokio::test]
async fn a_node_writes_nothing_but_its_own() {
    let api = Api::start().await;
    let node: (&str, &[&str]) = ("system:node:n1", &["system:nodes"]);
    let nodes = "/api/v1/nodes";
    let (code, made) = api.call_as(node, "POST", nodes, json!({"metadata": {"name": "n1"}})).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(api.call_as(node, "POST", nodes, json!({"metadata": {"name": "n2"}})).await.0, 403);
    let mut tainted = made.clone();
    tainted["spec"]["taints"] = json!([{"key": "x", "effect": "NoSchedule"}]);
    let (code, status) = api.call_as(node, "PUT", &format!("{nodes}/n1"), tainted).await;
    assert_eq!(code, 403);
    assert!(text(&status["message"]).ends_with("is not allowed to modify taints"), "{status}");
    assert_eq!(api.call_as(node, "POST", PODS, pod("p")).await.0, 403, "only mirrors");
    let (mut ours, mut theirs) = (pod("ours"), pod("theirs"));
    ours["spec"]["nodeName"] = "n1".into();
    theirs["spec"]["nodeName"] = "n2".into();
    let (ours, _) = (api.make(PODS, ours).await, api.make(PODS, theirs).await);
    assert_eq!(api.call_as(node, "DELETE", &format!("{PODS}/theirs"), Value::Null).await.0, 403);
    let running = json!({"status": {"phase": "Running"}});
    let mut status = ours.clone();
    status["status"] = running["status"].clone();
    assert_eq!(api.call_as(node, "PUT", &format!("{PODS}/ours/status"), status).await.0, 200);
    let path = format!("{ACCOUNTS}/default/token");
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "ours", "uid": ours["metadata"]["uid"]});
    let ask = |spec: Value| json!({"spec": spec});
    assert_eq!(api.call_as(node, "POST", &path, ask(json!({"boundObjectRef": bound}))).await.0, 201);
    let (code, refused) = api.call_as(node, "POST", &path, ask(json!({}))).await;
    assert_eq!(code, 403, "{refused}");
    let vault = ask(json!({"boundObjectRef": bound, "audiences": ["vault"]}));
    assert_eq!(api.call_as(node, "POST", &path, vault).await.0, 403, "no Pod mounts such a token");
}
