//! Groups that other servers serve: a real one behind a Service, over TLS, that lets nobody in but the front proxy.

use crate::custom::until;
use crate::kubectl::Kubectl;
use crate::server::*;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, StatusCode};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use trine_kernel::testing::program;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1alpha1.wardle.example.com";
const ROOT: &str = "/apis/wardle.example.com/v1alpha1";

/// What the server saw of a request: its path, who asks, of which groups, and who carries the word.
type Seen = (String, String, Vec<String>, String);

struct Extension {
    port: u16,
    bundle: String,
    seen: Mutex<Vec<Seen>>,
    /// Lets the next event of a watch out.
    next: Notify,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Extension {
    /// Lets in whom the ConfigMap in `kube-system` names, as extension servers do.
    async fn start(api: &Api) -> Arc<Self> {
        let map =
            api.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication").await;
        let data = &map["data"];
        assert_eq!(data["requestheader-allowed-names"], "[\"front-proxy-client\"]");
        assert_eq!(data["requestheader-username-headers"], "[\"X-Remote-User\"]");
        let mut roots = rustls::RootCertStore::empty();
        let proxies = text(&data["requestheader-client-ca-file"]);
        roots.add(CertificateDer::from_pem_slice(proxies.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&provider),
        );
        let authority_key = rcgen::KeyPair::generate().unwrap();
        let mut authority = rcgen::CertificateParams::default();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority_cert = authority.self_signed(&authority_key).unwrap();
        let issuer = rcgen::Issuer::new(authority, authority_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["sample-api.default.svc".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &issuer).unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                vec![cert.der().clone()],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let extension = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            bundle: STANDARD.encode(authority_cert.pem()),
            seen: Mutex::default(),
            next: Notify::new(),
            task: Mutex::default(),
        });
        let serving = Arc::clone(&extension);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, serving) = (acceptor.clone(), Arc::clone(&serving));
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
                    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                        let (serving, shown) = (Arc::clone(&serving), shown.clone());
                        async move { Ok::<_, Infallible>(serving.answer(request.map(Body::new), &shown)) }
                    });
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
                });
            }
        });
        *extension.task.lock().unwrap() = Some(task);
        extension
    }

    fn stop(&self) {
        if let Some(task) = self.task.lock().unwrap().take() {
            task.abort();
        }
    }

    fn answer(self: &Arc<Self>, mut request: Request<Body>, shown: &[u8]) -> Response {
        let header = |name: &str| -> Vec<String> {
            request.headers().get_all(name).iter().map(|v| v.to_str().unwrap().to_owned()).collect()
        };
        let carrier = trine_apiserver::user::User::from_certificate(shown).unwrap().name;
        let path = request.uri().path().to_owned();
        let (user, groups) = (header("x-remote-user").concat(), header("x-remote-group"));
        self.seen.lock().unwrap().push((path.clone(), user, groups, carrier));
        let json = |value: Value| axum::Json(value).into_response();
        let flunder = |name: &str| json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": {"name": name, "namespace": "default"}});
        match path.strip_prefix(ROOT).unwrap_or(&path) {
            "" => json(
                json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1alpha1",
                "resources": [{"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
                    "verbs": ["create", "get", "list", "watch"]}]}),
            ),
            "/namespaces/default/flunders" if request.uri().query() == Some("watch=true") => {
                let serving = Arc::clone(self);
                let events = futures::stream::unfold(0, move |n| {
                    let (serving, event) =
                        (Arc::clone(&serving), json!({"type": "ADDED", "object": flunder(&format!("f{n}"))}));
                    async move {
                        serving.next.notified().await;
                        Some((Ok::<_, Infallible>(format!("{event}\n")), n + 1))
                    }
                });
                ([("content-type", "application/json")], Body::from_stream(events)).into_response()
            }
            "/namespaces/default/flunders" => {
                json(json!({"kind": "FlunderList", "apiVersion": "wardle.example.com/v1alpha1",
                "metadata": {}, "items": [flunder("f0")]}))
            }
            "/namespaces/default/flunders/f0/echo" => {
                let upgrade = hyper::upgrade::on(&mut request);
                tokio::spawn(async move {
                    let mut stream = TokioIo::new(upgrade.await.unwrap());
                    let mut word = [0; 5];
                    stream.read_exact(&mut word).await.unwrap();
                    word.reverse();
                    stream.write_all(&word).await.unwrap();
                    stream.shutdown().await.unwrap();
                });
                (StatusCode::SWITCHING_PROTOCOLS, [("connection", "Upgrade"), ("upgrade", "echo")])
                    .into_response()
            }
            "/openapi/v3" => json(
                json!({"paths": {"apis/wardle.example.com/v1alpha1": {"serverRelativeURL": "/openapi/v3/wardle"}}}),
            ),
            "/openapi/v3/wardle" => {
                json(json!({"openapi": "3.0.0", "paths": {}, "components": {"schemas": {"Flunder": {}}}}))
            }
            "/openapi/v2" => json(
                json!({"swagger": "2.0", "paths": {"/apis/wardle.example.com/v1alpha1/flunders": {}, "/other": {}},
                "definitions": {"com.example.wardle.Flunder": {"type": "object"}}}),
            ),
            _ => StatusCode::NOT_FOUND.into_response(),
        }
    }

    fn service(&self) -> Value {
        json!({"metadata": {"name": "sample-api"}, "spec": {"type": "ExternalName", "externalName": "localhost"}})
    }

    fn api_service(&self) -> Value {
        json!({"metadata": {"name": NAME}, "spec": {"group": "wardle.example.com", "version": "v1alpha1", "caBundle": self.bundle,
            "groupPriorityMinimum": 2000, "versionPriority": 200,
            "service": {"namespace": "default", "name": "sample-api", "port": self.port}}})
    }
}

async fn verdict(api: &Api) -> (String, String) {
    let object = api.get(&format!("{SERVICES}/{NAME}")).await;
    let condition = &object["status"]["conditions"][0];
    (text(&condition["reason"]), text(&condition["message"]))
}

async fn reaches(api: &Api, reason: &str) {
    until(reason, async || verdict(api).await.0 == reason).await;
}

async fn registered(api: &Api) -> Arc<Extension> {
    let extension = Extension::start(api).await;
    api.make("/api/v1/namespaces/default/services", extension.service()).await;
    api.make(SERVICES, extension.api_service()).await;
    reaches(api, "Passed").await;
    extension
}

const FLUNDERS: &str = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders";

#[tokio::test]
async fn a_server_is_asked_once_its_service_leads_to_it() {
    let api = Api::start().await;
    let extension = Extension::start(&api).await;
    api.make(SERVICES, extension.api_service()).await;
    reaches(&api, "ServiceNotFound").await;
    assert_eq!(api.call("GET", FLUNDERS, Value::Null).await, (503, "service unavailable\n".into()));
    api.make("/api/v1/namespaces/default/services", extension.service()).await;
    reaches(&api, "Passed").await;
    assert_eq!(verdict(&api).await.1, "all checks passed");
    let list = api.get(FLUNDERS).await;
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&json!("FlunderList"), &json!("f0")));
    // One that is believed no more is asked no more.
    let other = json!({"spec": {"caBundle": STANDARD.encode(api.server.ca_pem())}});
    assert_eq!(api.patch(&format!("{SERVICES}/{NAME}"), other).await.0, 200);
    reaches(&api, "FailedDiscoveryCheck").await;
    let skipping = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    assert_eq!(api.patch(&format!("{SERVICES}/{NAME}"), skipping).await.0, 200);
    reaches(&api, "Passed").await;
    extension.stop();
    let touched = json!({"spec": {"versionPriority": 201}});
    assert_eq!(api.patch(&format!("{SERVICES}/{NAME}"), touched).await.0, 200);
    reaches(&api, "FailedDiscoveryCheck").await;
    assert!(verdict(&api).await.1.starts_with("failing or missing response from https://localhost:"));
}

#[tokio::test]
async fn the_server_learns_who_asks_and_from_nobody_else() {
    let api = Api::start().await;
    let extension = registered(&api).await;
    let jane: (&str, &[&str]) = ("jane", &["devs"]);
    let (code, said) = api.call_as(jane, "GET", FLUNDERS, Value::Null).await;
    assert_eq!((code, &said["reason"]), (403, &json!("Forbidden")));
    let rules = json!([{"apiGroups": ["wardle.example.com"], "resources": ["flunders"], "verbs": ["list"]}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    api.make(&format!("{rbac}/clusterroles"), json!({"metadata": {"name": "flunders"}, "rules": rules}))
        .await;
    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "flunders"});
    let binding = json!({"metadata": {"name": "flunders"}, "subjects": subjects, "roleRef": role});
    api.make(&format!("{rbac}/clusterrolebindings"), binding).await;
    extension.seen.lock().unwrap().clear();
    let request =
        Request::get(FLUNDERS).header("x-remote-user", "admin").header("x-remote-group", "system:masters");
    let service = api.server.service(jane.0, jane.1);
    let answer = service.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(read(answer).await.0, 200);
    let groups = vec!["devs".to_owned(), "system:authenticated".to_owned()];
    let wanted = (FLUNDERS.to_owned(), "jane".to_owned(), groups, "front-proxy-client".to_owned());
    let seen = extension.seen.lock().unwrap().clone();
    assert_eq!(seen.into_iter().filter(|s| s.0 == FLUNDERS).collect::<Vec<_>>(), [wanted]);
}

#[tokio::test]
async fn watches_are_streamed_and_connections_are_upgraded() {
    let api = Api::start().await;
    let extension = registered(&api).await;
    let mut watch = api.watch(&format!("{FLUNDERS}?watch=true")).await;
    for name in ["f0", "f1"] {
        assert!(watch.quiet().await);
        extension.next.notify_one();
        assert_eq!(watch.seen().await, ("ADDED".to_owned(), name.to_owned()));
    }
    // Over the network, where connections can be upgraded.
    let mut stream = crate::network::as_admin(&api).await;
    let head = format!(
        "GET {FLUNDERS}/f0/echo HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\nhello"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("\r\n\r\nolleh"), "{answer}");
}

#[tokio::test]
async fn what_others_serve_is_told_with_what_is_served_here() {
    let api = Api::start().await;
    let extension = registered(&api).await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let entry = async || {
        let (_, list) = read(api.send("GET", "/apis", &[("accept", accept)], "").await).await;
        let items = list["items"].as_array().unwrap().clone();
        assert_eq!(items[0]["metadata"]["name"], "apiregistration.k8s.io");
        items
            .into_iter()
            .find(|g| g["metadata"]["name"] == "wardle.example.com")
            .map(|g| g["versions"][0].clone())
    };
    until("learned", async || entry().await.is_some_and(|e| e["freshness"] == "Current")).await;
    assert_eq!(entry().await.unwrap()["resources"][0]["responseKind"]["kind"], "Flunder");
    let groups = api.get("/apis").await;
    let wardle =
        groups["groups"].as_array().unwrap().iter().find(|g| g["name"] == "wardle.example.com").cloned();
    assert_eq!(wardle.unwrap()["preferredVersion"]["groupVersion"], "wardle.example.com/v1alpha1");
    assert_eq!(api.get("/apis/wardle.example.com").await["kind"], "APIGroup");
    assert_eq!(api.get(ROOT).await["resources"][0]["name"], "flunders");
    let index = api.get("/openapi/v3").await;
    let url = text(&index["paths"]["apis/wardle.example.com/v1alpha1"]["serverRelativeURL"]);
    assert_eq!(api.get(&url).await["components"]["schemas"], json!({"Flunder": {}}));
    let older = api.get("/openapi/v2").await;
    assert!(
        older["definitions"]["com.example.wardle.Flunder"].is_object() && older["paths"]["/other"].is_null()
    );
    assert!(older["definitions"]["io.k8s.api.core.v1.Pod"].is_object());
    if program("what_others_serve_is_told_with_what_is_served_here", "kubectl") {
        let kubectl = Kubectl::of(&api);
        assert_eq!(kubectl.ok(&["get", "flunders", "-o", "name"]).await, "flunder.wardle.example.com/f0\n");
        let listed = kubectl.ok(&["get", "apiservice", NAME]).await;
        assert!(listed.contains("default/sample-api") && listed.contains("True"), "{listed}");
    }
    let (code, _) = api.call("DELETE", &format!("{SERVICES}/{NAME}"), Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(entry().await, None);
    assert_eq!(api.call("GET", FLUNDERS, Value::Null).await.0, 404);
    drop(extension);
}

#[tokio::test]
async fn every_group_and_version_has_its_api_service() {
    let api = Api::start().await;
    let names = async || -> Vec<String> {
        let list = api.get(SERVICES).await;
        list["items"].as_array().unwrap().iter().map(|i| text(&i["metadata"]["name"])).collect()
    };
    until("registered", async || names().await.contains(&"v1.".to_owned())).await;
    until("all", async || names().await.contains(&"v1.storage.k8s.io".to_owned())).await;
    let core = api.get(&format!("{SERVICES}/v1.")).await;
    let condition = &core["status"]["conditions"][0];
    assert_eq!(
        (text(&condition["status"]), text(&condition["reason"])),
        ("True".to_owned(), "Local".to_owned())
    );
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({"metadata": {"name": "as.x.io"}, "spec": {"group": "x.io", "scope": "Cluster", "versions": [version],
        "names": {"plural": "as", "singular": "a", "kind": "A"}}});
    api.make(crate::custom::DEFINITIONS, definition).await;
    until("made", async || names().await.contains(&"v1.x.io".to_owned())).await;
    let path = format!("{}/as.x.io", crate::custom::DEFINITIONS);
    assert_eq!(api.call("DELETE", &path, Value::Null).await.0, 200);
    until("gone", async || !names().await.contains(&"v1.x.io".to_owned())).await;
}
