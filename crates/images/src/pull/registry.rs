//! One registry during one pull: its address, its credentials, its answers.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use futures::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use serde::Deserialize;
use tokio::sync::RwLock;

use super::challenge::{self, Challenge};
use super::error::RegistryError;
use crate::name::ImageName;
use crate::store::Registries;

/// The longest manifest or configuration that is read.
const DESCRIPTION: usize = 16 << 20;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(30);

/// Credentials for a registry.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Auth {
    /// Name and password.
    Basic {
        /// The name.
        username: String,
        /// The password, or a token that stands for one.
        password: String,
    },
    /// A token that the registry itself takes.
    Token(String),
}

impl Auth {
    /// From base64 of `name:password`, as configuration files of docker hold it.
    #[must_use]
    pub fn from_base64(text: &str) -> Option<Self> {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim()).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (username, password) = text.split_once(':')?;
        Some(Self::Basic { username: username.into(), password: password.trim_end_matches('\0').into() })
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic { username, .. } => write!(f, "Basic({username}, …)"),
            Self::Token(_) => f.write_str("Token(…)"),
        }
    }
}

/// A registry, and one repository of it.
pub(crate) struct Registry {
    http: reqwest::Client,
    base: String,
    plain: bool,
    repository: String,
    auth: Option<Auth>,
    /// The header that the registry was last content with.
    authorization: RwLock<Option<HeaderValue>>,
    patience: Duration,
}

/// An answer's body, piece by piece.
pub(crate) struct Body {
    url: String,
    stream: futures::stream::BoxStream<'static, Result<Bytes, reqwest::Error>>,
    patience: Duration,
}

impl Body {
    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        match tokio::time::timeout(self.patience, self.stream.next()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
            Ok(Some(Err(source))) => {
                Err(RegistryError::Http { call: "read", url: self.url.clone(), source: source.without_url() })
            }
            Err(_) => Err(RegistryError::Stalled { url: self.url.clone(), seconds: self.patience.as_secs() }),
        }
    }

    async fn all(mut self) -> Result<Vec<u8>, RegistryError> {
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await? {
            if all.len() + bytes.len() > DESCRIPTION {
                let why = "the answer is larger than 16 MiB".to_owned();
                return Err(RegistryError::Protocol { url: self.url, why });
            }
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }
}

impl Registry {
    pub fn new(
        name: &ImageName,
        auth: Option<Auth>,
        options: &Registries,
        patience: Duration,
    ) -> Result<Self, RegistryError> {
        let host = match name.registry() {
            "docker.io" | "index.docker.io" => "registry-1.docker.io",
            host => host,
        };
        let plain = is_loopback(host) || options.insecure.iter().any(|insecure| insecure == name.registry());
        let http = client(plain, options)?;
        let scheme = if plain { "http" } else { "https" };
        Ok(Self {
            http,
            base: format!("{scheme}://{host}"),
            plain,
            repository: name.repository().to_owned(),
            auth,
            authorization: RwLock::new(None),
            patience,
        })
    }

    /// A manifest by tag or digest, and the digest that the registry says it has.
    pub async fn manifest(&self, reference: &str, accept: &str) -> Result<Vec<u8>, RegistryError> {
        let url = format!("{}/v2/{}/manifests/{reference}", self.base, self.repository);
        self.get(&url, Some(accept)).await?.all().await
    }

    /// The whole of a small blob.
    pub async fn small_blob(&self, digest: &str) -> Result<Vec<u8>, RegistryError> {
        self.blob(digest).await?.all().await
    }

    /// A blob.
    pub async fn blob(&self, digest: &str) -> Result<Body, RegistryError> {
        let url = format!("{}/v2/{}/blobs/{digest}", self.base, self.repository);
        self.get(&url, None).await
    }

    async fn get(&self, url: &str, accept: Option<&str>) -> Result<Body, RegistryError> {
        let known = self.authorization.read().await.clone();
        let answer = self.send(url, accept, known.as_ref()).await?;
        if answer.status() != reqwest::StatusCode::UNAUTHORIZED {
            return self.body(url, answer).await;
        }
        let challenges = answer.headers().get_all(WWW_AUTHENTICATE);
        let challenge = challenges.iter().filter_map(|value| challenge::parse(value.to_str().ok()?)).next();
        let convinced = match challenge {
            Some(challenge) => self.convince(&challenge, known).await?,
            None => None,
        };
        let Some(header) = convinced else { return self.body(url, answer).await };
        let answer = self.send(url, accept, Some(&header)).await?;
        self.body(url, answer).await
    }

    async fn send(
        &self,
        url: &str,
        accept: Option<&str>,
        authorization: Option<&HeaderValue>,
    ) -> Result<reqwest::Response, RegistryError> {
        let mut request = self.http.get(url);
        if let Some(accept) = accept {
            request = request.header(ACCEPT, accept);
        }
        if let Some(header) = authorization {
            request = request.header(AUTHORIZATION, header);
        }
        self.patient(url, request.send()).await
    }

    async fn patient(
        &self,
        url: &str,
        answer: impl Future<Output = Result<reqwest::Response, reqwest::Error>>,
    ) -> Result<reqwest::Response, RegistryError> {
        match tokio::time::timeout(self.patience, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => {
                Err(RegistryError::Http { call: "GET", url: url.to_owned(), source: source.without_url() })
            }
            Err(_) => Err(RegistryError::Stalled { url: url.to_owned(), seconds: self.patience.as_secs() }),
        }
    }

    async fn body(&self, url: &str, answer: reqwest::Response) -> Result<Body, RegistryError> {
        let status = answer.status();
        let stream = answer.bytes_stream().boxed();
        let body = Body { url: url.to_owned(), stream, patience: self.patience };
        if status.is_success() {
            return Ok(body);
        }
        let text = body.all().await.unwrap_or_default();
        Err(RegistryError::of_status(url, status.as_u16(), &text))
    }

    /// Gets the header that answers a challenge. Layers that are fetched at once ask for one token only: who finds
    /// that the one it was refused with has been replaced takes the new one.
    async fn convince(
        &self,
        challenge: &Challenge,
        refused: Option<HeaderValue>,
    ) -> Result<Option<HeaderValue>, RegistryError> {
        let mut held = self.authorization.write().await;
        if *held != refused {
            return Ok(held.clone());
        }
        let header = match (challenge, &self.auth) {
            (_, Some(Auth::Token(token))) => Some(format!("Bearer {token}")),
            (Challenge::Basic, Some(Auth::Basic { username, password })) => Some(basic(username, password)),
            (Challenge::Basic, None) => None,
            (Challenge::Bearer { realm, service, scope }, auth) => Some(format!(
                "Bearer {}",
                self.token(realm, service.as_deref(), scope.as_deref(), auth.as_ref()).await?
            )),
        };
        let Some(header) = header else { return Ok(None) };
        let header = HeaderValue::try_from(header).map(|mut value| {
            value.set_sensitive(true);
            value
        });
        let header = header.map_err(|_| RegistryError::Protocol {
            url: self.base.clone(),
            why: "its token cannot be sent in a header".into(),
        })?;
        if refused.as_ref() == Some(&header) {
            return Ok(None);
        }
        *held = Some(header.clone());
        Ok(Some(header))
    }

    /// Asks the token service.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
        auth: Option<&Auth>,
    ) -> Result<String, RegistryError> {
        let protocol = |why: &str| RegistryError::Protocol { url: realm.to_owned(), why: why.to_owned() };
        let mut url = reqwest::Url::parse(realm)
            .map_err(|_| protocol("the registry names a token service that is no URL"))?;
        if url.scheme() != "https" && !self.plain {
            return Err(protocol("the registry names a token service without TLS"));
        }
        let whole = format!("repository:{}:pull", self.repository);
        url.query_pairs_mut()
            .extend_pairs(service.map(|service| ("service", service)))
            .append_pair("scope", scope.unwrap_or(&whole));
        let mut request = self.http.get(url);
        if let Some(Auth::Basic { username, password }) = auth {
            request = request.basic_auth(username, Some(password));
        }
        let answer = self.patient(realm, request.send()).await?;
        let status = answer.status();
        let text =
            Body { url: realm.to_owned(), stream: answer.bytes_stream().boxed(), patience: self.patience };
        let text = text.all().await?;
        if !status.is_success() {
            return Err(RegistryError::of_status(realm, status.as_u16(), &text));
        }
        let answer: TokenAnswer =
            serde_json::from_slice(&text).map_err(|_| protocol("its answer is no token"))?;
        let token = answer.token.or(answer.access_token).filter(|token| !token.is_empty());
        token.ok_or_else(|| protocol("its answer holds no token"))
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

fn basic(username: &str, password: &str) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
    format!("Basic {text}")
}

fn client(plain: bool, options: &Registries) -> Result<reqwest::Client, RegistryError> {
    // The library asks for a process-wide provider when it makes a client; another one that is there stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().user_agent("trine").connect_timeout(CONNECT);
    let builder = if plain {
        // No certificate is ever looked at, so a machine without any will do.
        builder.no_proxy().tls_certs_only([])
    } else {
        let roots =
            options.extra_roots.iter().filter_map(|pem| reqwest::Certificate::from_pem_bundle(pem).ok());
        builder.tls_certs_merge(roots.flatten())
    };
    builder.build().map_err(|source| RegistryError::Tls { source })
}

/// True for `localhost`, 127.0.0.0/8 and `[::1]`, with or without a port.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_loopback_speaks_plainly_by_itself() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["docker.io", "10.0.0.1:5000", "localhost.example.com", "127.0.0.1.nip.io:80"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn credentials_are_read_from_base64_and_never_shown() {
        let auth = Auth::from_base64("bWU6czpl").unwrap();
        assert_eq!(auth, Auth::Basic { username: "me".into(), password: "s:e".into() });
        assert!(!format!("{auth:?}").contains("s:e"));
        assert!(Auth::from_base64("!").is_none());
    }
}
