//! One host of a registry during one pull: its address, its credentials, its answers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use futures::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use serde::Deserialize;
use tokio::sync::RwLock;

use super::auth::Auth;
use super::challenge::{self, Challenge};
use super::error::RegistryError;
use super::hosts::Host;
use crate::store::Registries;

/// The longest manifest or configuration that is read.
const DESCRIPTION: usize = 16 << 20;
/// How long a connection may take, unless a host's settings say otherwise.
const CONNECT: Duration = Duration::from_secs(30);

/// A host, and one repository of it.
pub(crate) struct Endpoint {
    pub host: Host,
    http: reqwest::Client,
    repository: String,
    /// What a mirror is told of whose images it is asked for; none for the registry itself.
    namespace: Option<String>,
    auth: Option<Auth>,
    /// The header that the host was last content with.
    authorization: RwLock<Option<HeaderValue>>,
    patience: Duration,
    /// No connection could be made: it is not asked again.
    away: AtomicBool,
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

    pub async fn all(mut self) -> Result<Vec<u8>, RegistryError> {
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

impl Endpoint {
    /// `registry` is the name that the image has it by.
    pub fn new(
        host: Host,
        registry: &str,
        repository: &str,
        auth: Option<Auth>,
        options: &Registries,
        patience: Duration,
    ) -> Result<Self, RegistryError> {
        Ok(Self {
            http: client(&host, options)?,
            repository: repository.to_owned(),
            namespace: (!host.origin).then(|| registry.to_owned()),
            // A mirror is somebody else: what opens the registry is not for its ears.
            auth: auth.filter(|_| host.origin),
            authorization: RwLock::new(None),
            patience,
            away: AtomicBool::new(false),
            host,
        })
    }

    /// Whether it failed to answer before.
    pub fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// `what` (`manifests`, `blobs`) of the repository by tag or digest.
    pub async fn fetch(
        &self,
        what: &str,
        reference: &str,
        accept: Option<&str>,
    ) -> Result<Body, RegistryError> {
        let mut url = format!("{}/{}/{what}/{reference}", self.host.base, self.repository);
        if let Some(namespace) = &self.namespace {
            url = format!("{url}?ns={namespace}");
        }
        let result = self.get(&url, accept).await;
        if matches!(&result, Err(RegistryError::Http { .. } | RegistryError::Stalled { .. })) {
            self.away.store(true, Ordering::Relaxed);
        }
        result
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
            url: self.host.base.clone(),
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
        if url.scheme() != "https" && !self.host.plain {
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

fn client(host: &Host, options: &Registries) -> Result<reqwest::Client, RegistryError> {
    // The library asks for a process-wide provider when it makes a client; another one that is there stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let connect = host.connect_timeout.unwrap_or(CONNECT);
    let mut builder = reqwest::Client::builder()
        .user_agent("trine")
        .connect_timeout(connect)
        .default_headers(headers(host)?);
    if host.plain || host.skip_verify {
        // No certificate is ever looked at, so a machine without any will do.
        builder = builder.tls_certs_only([]).tls_danger_accept_invalid_certs(host.skip_verify);
    } else {
        let mut roots = Vec::new();
        for file in &host.ca {
            let pem = read(file)?;
            let bundle = reqwest::Certificate::from_pem_bundle(&pem);
            roots.extend(bundle.map_err(|_| unusable(file, "it holds no certificates in PEM form"))?);
        }
        let extra =
            options.extra_roots.iter().filter_map(|pem| reqwest::Certificate::from_pem_bundle(pem).ok());
        builder = builder.tls_certs_merge(roots.into_iter().chain(extra.flatten()));
    }
    if host.plain {
        builder = builder.no_proxy();
    }
    if let Some((certificate, key)) = &host.client {
        let mut pem = read(certificate)?;
        if let Some(key) = key {
            pem.extend(read(key)?);
        }
        let identity = reqwest::Identity::from_pem(&pem);
        let identity = identity
            .map_err(|_| unusable(certificate, "it holds no certificate with its key in PEM form"))?;
        builder = builder.identity(identity);
    }
    builder.build().map_err(|source| RegistryError::Tls { source })
}

fn headers(host: &Host) -> Result<HeaderMap, RegistryError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &host.headers {
        let bad = || RegistryError::Protocol {
            url: host.base.clone(),
            why: format!("the header {name} that its settings name cannot be sent"),
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.append(HeaderName::try_from(name).map_err(|_| bad())?, value);
    }
    Ok(headers)
}

fn read(file: &Path) -> Result<Vec<u8>, RegistryError> {
    std::fs::read(file).map_err(|e| unusable(file, &e.to_string()))
}

fn unusable(file: &Path, why: &str) -> RegistryError {
    RegistryError::Hosts { path: file.to_owned(), why: why.to_owned() }
}
