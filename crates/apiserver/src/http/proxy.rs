//! `proxy`: a request is passed on to a Pod, to one of a Service's Pods, or to a node's kubelet, and its answer back. Upgraded
//! connections are joined as bytes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use trine_store::cache::Part;

use super::links;
use super::route::Server;
use super::stream::join;
use crate::registry::{Registry, scope, text};
use crate::request::{Target, group_path};
use crate::status::ApiError;
use crate::verbs::update::parse;
use crate::webhook::{Verifier, believing};

/// How long connecting may take. Upstream: 30 s.
const CONNECT_DEADLINE: Duration = Duration::from_secs(30);
/// Headers that are between two neighbours only.
const OF_ONE_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];
/// What would let the far end act as the client.
const CREDENTIALS: [&str; 1] = ["authorization"];

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// A name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
    way: Way,
}

/// How somebody is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// HTTP.
    Plain,
    /// HTTPS, whoever answers: a Pod's certificate is signed by nobody that is known here. As upstream.
    Tls,
    /// A node's kubelet, under the API server's name.
    Kubelet,
}

impl Way {
    /// By the scheme that stands before a name.
    fn of(scheme: &str) -> Result<Self, ApiError> {
        match scheme {
            "" | "http" => Ok(Self::Plain),
            "https" => Ok(Self::Tls),
            other => Err(ApiError::BadRequest(format!("invalid scheme {other:?}: http or https"))),
        }
    }
}

impl Place {
    /// `host:port`, as URLs have it.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// `[scheme:]name[:port]`.
fn split(name: &str) -> (&str, &str, &str) {
    let parts: Vec<&str> = name.split(':').collect();
    match parts.as_slice() {
        [scheme, name, port] => (scheme, name, port),
        [name, port] => ("", name, port),
        _ => ("", name, ""),
    }
}

impl Server {
    /// Passes a request on.
    pub(super) async fn proxy(
        self: Arc<Self>,
        target: Target,
        request: Request<Body>,
    ) -> Result<Response, ApiError> {
        let base = base(&target);
        let path = request.uri().path();
        let rest = path.strip_prefix(&base).unwrap_or_default().to_owned();
        if rest.is_empty() && matches!(*request.method(), Method::GET | Method::HEAD) {
            return moved(request.uri());
        }
        let (scheme, name, port) = split(target.name.as_deref().unwrap_or_default());
        let mut place = match &*target.resource.plural {
            "pods" => pod(&self.registry, &target, name, port)?,
            "services" => service(&self.registry, &target, name, port)?,
            "nodes" => node(&self.registry, &target, name, port)?,
            _ => return Err(ApiError::NoResource),
        };
        if place.way == Way::Plain {
            place.way = Way::of(scheme)?;
        }
        let unreachable = |e: &dyn std::fmt::Display| {
            ApiError::Unavailable(format!(
                "error trying to reach service: {}:{}: {e}",
                place.host, place.port
            ))
        };
        if place.way == Way::Kubelet {
            let stream = self.kubelets.connect(&place.host, place.port).await.map_err(|e| unreachable(&e))?;
            return pass(stream, request, &base, &rest, &place).await;
        }
        let connect = TcpStream::connect((place.host.as_str(), place.port));
        let stream = tokio::time::timeout(CONNECT_DEADLINE, connect)
            .await
            .map_err(|e| unreachable(&e))?
            .map_err(|e| unreachable(&e))?;
        if place.way == Way::Tls {
            let name = ServerName::try_from(place.host.clone()).map_err(|e| unreachable(&e))?;
            let connector = TlsConnector::from(anybody().map_err(|e| unreachable(&e))?);
            let stream = connector.connect(name, stream).await.map_err(|e| unreachable(&e))?;
            return pass(stream, request, &base, &rest, &place).await;
        }
        pass(stream, request, &base, &rest, &place).await
    }
}

/// The path of the proxy itself; what follows it is the far end's.
fn base(target: &Target) -> String {
    let r = &target.resource;
    let root = group_path(&r.group, &r.version);
    let within =
        if target.namespace.is_empty() { String::new() } else { format!("/namespaces/{}", target.namespace) };
    format!("/{root}{within}/{}/{}/proxy", r.plural, target.name.as_deref().unwrap_or_default())
}

/// The root has a slash, so that relative links lead where they should.
fn moved(uri: &Uri) -> Result<Response, ApiError> {
    let query = uri.query().map(|q| format!("?{q}")).unwrap_or_default();
    let location = format!("{}/{query}", uri.path());
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let location = HeaderValue::from_str(&location).map_err(|e| ApiError::BadRequest(e.to_string()))?;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

fn number(port: &str) -> Option<u16> {
    port.parse().ok().filter(|p| *p != 0)
}

fn pod(registry: &Registry, target: &Target, name: &str, port: &str) -> Result<Place, ApiError> {
    let pod = parse(registry.get(&target.resource, &target.namespace, name)?.json())?;
    let host = text(&pod["status"]["podIP"]).to_owned();
    if host.is_empty() {
        return Err(ApiError::Unavailable("address not allowed: the pod has no address".to_owned()));
    }
    let first = &pod["spec"]["containers"][0]["ports"][0]["containerPort"];
    let first = first.as_u64().and_then(|p| u16::try_from(p).ok());
    let port = if port.is_empty() { first.or(Some(80)) } else { number(port) };
    let port = port.ok_or_else(|| ApiError::BadRequest(format!("invalid pod request {name:?}")))?;
    Ok(Place { host, port, way: Way::Plain })
}

fn node(registry: &Registry, target: &Target, name: &str, port: &str) -> Result<Place, ApiError> {
    let node = parse(registry.get(&target.resource, "", name)?.json())?;
    let addresses = node["status"]["addresses"].as_array();
    let internal = addresses.into_iter().flatten().find(|a| a["type"] == "InternalIP");
    let own = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    let own = own.and_then(|p| u16::try_from(p).ok());
    let wanted = if port.is_empty() { own } else { number(port) };
    match (internal, wanted) {
        (Some(address), Some(port)) => {
            let host = text(&address["address"]).to_owned();
            let way = if Some(port) == own { Way::Kubelet } else { Way::Plain };
            Ok(Place { host, port, way })
        }
        _ => Err(ApiError::Unavailable(format!("node {name} does not say where its kubelet listens"))),
    }
}

fn service(registry: &Registry, target: &Target, name: &str, port: &str) -> Result<Place, ApiError> {
    let service = parse(registry.get(&target.resource, &target.namespace, name)?.json())?;
    let places = ready(&service["spec"], &slices(registry, &target.namespace, name), port);
    choose(places, name).map_err(ApiError::Unavailable)
}

/// One of the places to which a Service leads.
///
/// # Errors
/// What is said if there is none.
pub(crate) fn choose(mut places: Vec<Place>, service: &str) -> Result<Place, String> {
    if places.is_empty() {
        return Err(format!("no endpoints available for service {service:?}"));
    }
    let seed = usize::from(uuid::Uuid::new_v4().as_bytes()[0]);
    Ok(places.swap_remove(seed % places.len()))
}

/// The EndpointSlices of a Service.
pub(crate) fn slices(registry: &Registry, namespace: &str, service: &str) -> Vec<Value> {
    let Ok(resource) = registry.resource("discovery.k8s.io", "v1", "endpointslices") else {
        return Vec::new();
    };
    let scope = scope(&resource, namespace);
    let own = |object: &trine_store::Object| object.label("kubernetes.io/service-name") == Some(service);
    let listed = registry.prefix(&resource).list(&Part { wanted: &own, ..Part::all(&scope) });
    listed.objects.iter().filter_map(|o| parse(o.json()).ok()).collect()
}

/// Where a port of a Service leads at this moment.
///
/// # Errors
/// [`ApiError::NotFound`] if there is no such Service.
pub(crate) fn places(
    registry: &Registry,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<Vec<Place>, ApiError> {
    let services = registry.resource("", "v1", "services")?;
    let service = parse(registry.get(&services, namespace, name)?.json())?;
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        return Ok(vec![Place { host: text(&spec["externalName"]).to_owned(), port, way: Way::Plain }]);
    }
    Ok(ready(spec, &slices(registry, namespace, name), &port.to_string()))
}

/// The ready endpoints, by the port's name or number; without either of the only port.
fn ready(spec: &Value, slices: &[Value], port: &str) -> Vec<Place> {
    let Some(wanted) = port_name(spec, port) else { return Vec::new() };
    let mut places = Vec::new();
    for slice in slices {
        let port = slice["ports"].as_array().into_iter().flatten().find(|p| text(&p["name"]) == wanted);
        let Some(port) = port.and_then(|p| p["port"].as_u64()).and_then(|p| u16::try_from(p).ok()) else {
            continue;
        };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            if endpoint["conditions"]["ready"] != false {
                let host = text(&endpoint["addresses"][0]).to_owned();
                places.push(Place { host, port, way: Way::Plain });
            }
        }
    }
    places
}

fn port_name<'a>(spec: &'a Value, port: &'a str) -> Option<&'a str> {
    let ports = spec["ports"].as_array()?;
    Some(match port {
        "" if ports.len() == 1 => text(&ports[0]["name"]),
        port => match number(port) {
            Some(n) => text(&ports.iter().find(|p| p["port"].as_u64() == Some(n.into()))?["name"]),
            None => port,
        },
    })
}

/// Sends the request on over a connection, and gives the answer.
async fn pass<S>(
    stream: S,
    mut request: Request<Body>,
    base: &str,
    rest: &str,
    place: &Place,
) -> Result<Response, ApiError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed =
        |e: &dyn std::fmt::Display| ApiError::Unavailable(format!("error trying to reach service: {e}"));
    let on_client = hyper::upgrade::on(&mut request);
    let upgrade = request.headers().get(header::UPGRADE).cloned();
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().map(|q| format!("?{q}")).unwrap_or_default();
    let rest = if rest.is_empty() { "/" } else { rest };
    let head = parts.method == Method::HEAD;
    let mut asked = Request::builder().method(parts.method).uri(format!("{rest}{query}"));
    if let Some(headers) = asked.headers_mut() {
        copy(&parts.headers, headers);
        let host = HeaderValue::from_str(&place.authority()).map_err(|e| failed(&e))?;
        headers.insert(header::HOST, host);
        if let Some(upgrade) = &upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(header::UPGRADE, upgrade.clone());
        }
        if let Ok(uri) = HeaderValue::from_str(&format!("{base}{rest}")) {
            headers.insert(HeaderName::from_static("x-forwarded-uri"), uri);
        }
    }
    let asked = asked.body(body).map_err(|e| ApiError::BadRequest(e.to_string()))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(&e))?;
    tokio::spawn(connection.with_upgrades());
    let answer = sender.send_request(asked).await.map_err(|e| failed(&e))?;
    if upgrade.is_some() && answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(join(on_client, answer));
    }
    let (mut parts, body) = answer.into_parts();
    let mut headers = HeaderMap::new();
    copy(&parts.headers, &mut headers);
    if let Some(location) = headers.get(header::LOCATION).and_then(|l| l.to_str().ok())
        && let Ok(location) = HeaderValue::from_str(&relocated(location, base, place))
    {
        headers.insert(header::LOCATION, location);
    }
    parts.version = http::Version::HTTP_11;
    if !head && links::is_page(&headers) {
        let page = body.collect().await.map_err(|e| failed(&e))?.to_bytes();
        let page = links::rewritten(&mut headers, &page, |link| relocated(link, base, place));
        parts.headers = headers;
        return Ok(Response::from_parts(parts, page.into()));
    }
    parts.headers = headers;
    // As a stream of unknown length, it is left in the form in which it came.
    Ok(Response::from_parts(parts, Body::from_stream(body.into_data_stream())))
}

/// Where the far end sends the client, as the client reaches it. What leads through the proxy already stays.
fn relocated(location: &str, base: &str, place: &Place) -> String {
    let scheme = if place.way == Way::Plain { "http" } else { "https" };
    let own = [format!("{scheme}://{}", place.authority()), format!("{scheme}://{}", place.host)];
    let path = own.iter().find_map(|o| location.strip_prefix(o.as_str())).unwrap_or(location);
    if path.starts_with('/') && !path.starts_with("//") && !path.starts_with(base) {
        format!("{base}{path}")
    } else {
        location.to_owned()
    }
}

/// Believes any server.
fn anybody() -> Result<Arc<ClientConfig>, rustls::Error> {
    believing(Verifier::of_anybody(&Arc::new(rustls::crypto::ring::default_provider())))
}

/// Copies what is not between two neighbours only, nor the client's own.
pub(crate) fn copy(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from {
        if !OF_ONE_HOP.contains(&name.as_str()) && !CREDENTIALS.contains(&name.as_str()) {
            to.append(name.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_may_have_a_scheme_and_a_port() {
        assert_eq!(split("web"), ("", "web", ""));
        assert_eq!(split("web:http"), ("", "web", "http"));
        assert_eq!(split("https:web:443"), ("https", "web", "443"));
        assert_eq!(Way::of("").unwrap(), Way::Plain);
        assert_eq!(Way::of("https").unwrap(), Way::Tls);
        assert!(Way::of("ftp").is_err());
    }

    #[test]
    fn a_port_leads_to_its_ready_endpoints() {
        let spec = json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]});
        let slice = json!({"ports": [{"name": "b", "port": 8081}], "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": false}}, {"addresses": ["10.0.0.2"]}]});
        let places = |port: &str| ready(&spec, std::slice::from_ref(&slice), port);
        let wanted = Place { host: "10.0.0.2".to_owned(), port: 8081, way: Way::Plain };
        assert_eq!(places("b"), [wanted]);
        assert_eq!(places("81"), places("b"));
        assert_eq!(places("a"), []);
        assert_eq!(places(""), [], "which port is not clear");
    }

    #[test]
    fn redirects_lead_back_through_the_proxy() {
        let place = Place { host: "10.0.0.2".to_owned(), port: 80, way: Way::Plain };
        for (given, wanted) in [
            ("/x", "/base/x"),
            ("http://10.0.0.2:80/x", "/base/x"),
            ("http://example.com/x", "http://example.com/x"),
            ("/base/x", "/base/x"),
            ("x", "x"),
        ] {
            assert_eq!(relocated(given, "/base", &place), wanted);
        }
    }
}
