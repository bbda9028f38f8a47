//! Where a webhook is.

use std::str::FromStr;

use http::Uri;
use serde_json::Value;

use crate::http::proxy;
use crate::registry::{Registry, text};
use crate::status::ApiError;

/// The port where none is named.
const HTTPS: u16 = 443;

/// Where a webhook is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Whose certificate it shows: `name.namespace.svc`, or the URL's host.
    pub host: String,
    /// The Service's port, or the URL's.
    pub port: u16,
    /// `host[:port]`, as it is written.
    pub authority: String,
    pub path: String,
    /// Namespace and name, if it is a Service.
    pub service: Option<(String, String)>,
}

impl Place {
    /// Reads a `clientConfig`.
    pub fn read(config: &Value) -> Result<Self, String> {
        let service = &config["service"];
        if service.is_object() {
            let (namespace, name) = (text(&service["namespace"]), text(&service["name"]));
            let port = service["port"].as_u64().and_then(|p| u16::try_from(p).ok()).unwrap_or(HTTPS);
            let host = format!("{name}.{namespace}.svc");
            return Ok(Self {
                authority: format!("{host}:{port}"),
                host,
                port,
                path: rooted(text(&service["path"])),
                service: Some((namespace.to_owned(), name.to_owned())),
            });
        }
        let url = text(&config["url"]);
        if url.is_empty() {
            return Err("webhook configuration must have either service or URL".to_owned());
        }
        let uri = Uri::from_str(url).map_err(|e| format!("Unparsable URL: {e}"))?;
        let authority = uri.authority().ok_or("Unparsable URL: it names no host")?;
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(HTTPS),
            authority: authority.to_string(),
            path: rooted(uri.path()),
            service: None,
        })
    }

    /// The address to connect to. A Service's is that of one of its endpoints: nothing else has to work for it.
    pub fn address(&self, registry: &Registry) -> Result<(String, u16), String> {
        match &self.service {
            None => Ok((self.host.clone(), self.port)),
            Some((namespace, name)) => {
                let places = proxy::places(registry, namespace, name, self.port).map_err(|e| match e {
                    ApiError::NotFound { .. } => format!("service {name:?} not found"),
                    other => other.to_string(),
                });
                let chosen = proxy::choose(places?, name)?;
                Ok((chosen.host, chosen.port))
            }
        }
    }
}

fn rooted(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_and_urls_are_read() {
        let service = json!({"service": {"namespace": "n", "name": "s", "path": "x/y"}});
        let place = Place::read(&service).unwrap();
        assert_eq!((&*place.host, place.port, &*place.path), ("s.n.svc", 443, "/x/y"));
        assert_eq!(place.authority, "s.n.svc:443");
        let place = Place::read(&json!({"url": "https://[::1]:8443/a"})).unwrap();
        assert_eq!((&*place.host, place.port, &*place.authority), ("::1", 8443, "[::1]:8443"));
        assert_eq!(Place::read(&json!({"url": "https://example.org"})).unwrap().port, 443);
        assert!(Place::read(&json!({})).is_err());
    }
}
