//! What every request passes: who is it, as whom does he ask, and may he.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, Request, header};
use serde_json::Value;
use tokio::time::Instant;
use tracing::Instrument;

use super::attributes::Attributes;
use super::audit::annotations::{self, Collected};
use super::audit::{Auditor, Noted};
use super::decision::Decision;
use super::token::accounts::Believed;
use super::token::{self, TokenError, Tokens, bootstrap};
use super::{Authorizer, admission, impersonate};
use crate::protection::{Protection, time};
use crate::registry::{Registry, now_unix};
use crate::request::{Query, decoded_path};
use crate::status::ApiError;
use crate::user::{self, User};

/// Where a browser's WebSocket, which can set no header, carries a token. Source: upstream's WebSocket protocol authenticator.
const SOCKET_TOKEN: &str = "base64url.bearer.authorization.k8s.io.";

/// Who asks, and as whom.
#[derive(Debug, Clone)]
struct Who {
    /// As whom it is done.
    user: Arc<User>,
    /// Who asked, if as somebody else.
    behind: Option<Arc<User>>,
}

/// The gate.
pub struct Gate {
    registry: Arc<Registry>,
    tokens: Arc<Tokens>,
    auditor: Option<Auditor>,
    protection: Protection,
}

impl Gate {
    /// Objects and decisions are the registry's.
    #[must_use]
    pub fn new(registry: Arc<Registry>, tokens: Arc<Tokens>, auditor: Option<Auditor>) -> Self {
        let protection = Protection::start(Arc::clone(&registry));
        Self { registry, tokens, auditor, protection }
    }

    /// What keeps the server from being asked for too much.
    #[must_use]
    pub fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Who decides.
    #[must_use]
    pub fn authorizer(&self) -> &Authorizer {
        self.registry.authorizer()
    }

    /// Tokens of ServiceAccounts.
    #[must_use]
    pub fn tokens(&self) -> &Arc<Tokens> {
        &self.tokens
    }

    /// Answers a request by `answer` if it may be, which is given the path as well and runs on behalf of the user. `shown` is
    /// who the connection already belongs to, by its certificate or within this process.
    pub async fn pass<F>(
        &self,
        mut request: Request<Body>,
        shown: Option<User>,
        answer: impl FnOnce(Request<Body>, String) -> F,
    ) -> Response
    where
        F: Future<Output = Response> + Send + 'static,
    {
        let path = decoded_path(request.uri().path());
        let query = request.uri().query().unwrap_or_default().to_owned();
        let wanted = Attributes::read(request.method(), &path, &query);
        let who = self.identify(&mut request, shown);
        let noted = match self.begin(&mut request, &wanted, who.as_ref().ok()).await {
            Ok(noted) => noted,
            Err(error) => return error.into_response(),
        };
        let added = noted.is_some().then(Collected::default);
        let (allowed, response) = match who {
            Err(error) => (Err(error.to_string()), error.into_response()),
            Ok(who) => {
                let kept = added.clone();
                let answer = || {
                    let answering = answer(request, path);
                    async move {
                        match kept {
                            Some(kept) => annotations::collecting(kept, answering).await,
                            None => answering.await,
                        }
                    }
                };
                self.answered(who.user, &wanted, &query, answer).await
            }
        };
        let added = added.map(|a| a.take()).unwrap_or_default();
        match (&self.auditor, noted) {
            (Some(auditor), Some(noted)) => {
                let allowed = allowed.as_deref().map_err(String::as_str);
                auditor.end(noted, allowed, added, response).await
            }
            _ => response,
        }
    }

    /// Answers a user's request when there is a seat for it, if it may be, in its time. Says also why it may be, or may not.
    async fn answered<F>(
        &self,
        user: Arc<User>,
        wanted: &Attributes,
        query: &str,
        answer: impl FnOnce() -> F,
    ) -> (Result<String, String>, Response)
    where
        F: Future<Output = Response> + Send + 'static,
    {
        let begun = Instant::now();
        let lasts = time::lasts(wanted);
        let working = (!lasts).then(|| self.protection.working());
        let pass = if lasts && !time::is_watch(wanted) {
            Ok(None)
        } else {
            self.protection.enter(&user, wanted, query).await
        };
        let (pass, decision) = match (pass, self.decide(&user, wanted)) {
            (Ok(pass), decision) => (pass.map(Arc::new), decision),
            (Err(refused), decision) => {
                return (decision.map_err(|refused| refused.1), refused.into_response());
            }
        };
        let (allowed, mut response) = match decision {
            Err(refused) => {
                let (refused, reason) = *refused;
                let response = refused.denied(&user, &reason).into_response();
                (Err(reason), response)
            }
            Ok(reason) => {
                let answer = user::on_behalf_of(user, answer());
                let response = match (lasts, wanted.is_read()) {
                    (true, _) => answer.await,
                    (false, true) => in_time(begun, query, answer).await,
                    // Whoever waits for it or not: what is kept for an object that is written must not be given away.
                    (false, false) => {
                        let held = (working, pass.clone());
                        let write = async move {
                            let _held = held;
                            answer.await
                        };
                        in_time(begun, query, to_its_end(write)).await
                    }
                };
                (Ok(reason), response)
            }
        };
        if let Some(pass) = &pass {
            pass.mark(response.headers_mut());
        }
        (allowed, response)
    }

    /// Why a request may be, or what is refused and perhaps why. Who opens a stream into a container by GET, as WebSockets must,
    /// does the same as by POST.
    fn decide(&self, user: &User, wanted: &Attributes) -> Result<String, Box<(Attributes, String)>> {
        let first = match self.authorizer().decide(user, wanted) {
            Decision::Allow(reason) => reason,
            Decision::NoOpinion(reason) => return Err(Box::new((wanted.clone(), reason))),
        };
        let Some(creation) = wanted.as_creation() else { return Ok(first) };
        match self.authorizer().decide(user, &creation) {
            Decision::Allow(reason) => Ok(reason),
            Decision::NoOpinion(reason) => Err(Box::new((creation, reason))),
        }
    }

    async fn begin(
        &self,
        request: &mut Request<Body>,
        wanted: &Attributes,
        who: Option<&Who>,
    ) -> Result<Option<Noted>, ApiError> {
        let Some(auditor) = &self.auditor else { return Ok(None) };
        let (user, behind) = (who.map(|w| &*w.user), who.and_then(|w| w.behind.as_deref()));
        auditor.begin(request, wanted, user, behind).await
    }

    /// Who asks, and as whom; takes from the request what only the gate may see.
    fn identify(&self, request: &mut Request<Body>, shown: Option<User>) -> Result<Who, ApiError> {
        let first = Arc::new(match shown {
            Some(user) => user,
            None => self.shown(request.headers_mut())?,
        });
        request.headers_mut().remove(header::AUTHORIZATION);
        let Some((other, needs)) = impersonate::asked(request.headers())? else {
            return Ok(Who { user: first, behind: None });
        };
        needs.iter().try_for_each(|need| self.require(&first, need))?;
        impersonate::forget(request.headers_mut());
        Ok(Who { user: Arc::new(other), behind: Some(first) })
    }

    /// Who shows the token that a request carries; nobody if it carries none.
    fn shown(&self, headers: &mut HeaderMap) -> Result<User, ApiError> {
        let carried = match headers.get(header::AUTHORIZATION) {
            Some(value) => {
                let (scheme, token) =
                    value.to_str().unwrap_or_default().trim().split_once(' ').unwrap_or_default();
                scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
            }
            None => socket_token(headers),
        };
        match carried {
            Some(token) => match self.bearer(&token, &[], now_unix()) {
                Ok(believed) => Ok(believed.user),
                Err(error) => {
                    tracing::debug!(%error, "a token is not believed");
                    Err(ApiError::Unauthorized)
                }
            },
            // Another scheme says who somebody is in a way that is not spoken here.
            None if headers.contains_key(header::AUTHORIZATION) => Err(ApiError::Unauthorized),
            None => Ok(User::anonymous()),
        }
    }

    /// Who shows this token.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn bearer(&self, token: &str, audiences: &[String], now: i64) -> Result<Believed, TokenError> {
        if bootstrap::parts(token).is_some() {
            let ours = self.tokens.audiences();
            let heard: Vec<String> = if audiences.is_empty() { ours } else { audiences }
                .iter()
                .filter(|a| ours.contains(a))
                .cloned()
                .collect();
            let user = bootstrap::user(&*self.registry, token, now).filter(|_| !heard.is_empty());
            return user.map(|user| Believed { user, audiences: heard }).ok_or(TokenError::Issuer);
        }
        self.tokens.believe(&*self.registry, token, audiences, now)
    }

    /// Answers a TokenRequest about the account `(namespace, name)`.
    ///
    /// # Errors
    /// [`ApiError::Denied`] for a node that asks for what its Pods do not mount, and others.
    pub fn request_token(&self, account: (&str, &str), request: Value, now: i64) -> Result<Value, ApiError> {
        if let Some(user) = user::caller()
            && let Some(node) = user.node()
            && let Some(why) = admission::node::refuse_token(&self.registry, node, account, &request)
        {
            let (resource, name) = ("serviceaccounts".to_owned(), account.1.to_owned());
            return Err(ApiError::Denied { resource, name, why });
        }
        token::request::answer(&*self.registry, &self.tokens, account, request, now)
    }

    /// Refuses what a user may not.
    fn require(&self, user: &User, wanted: &Attributes) -> Result<(), ApiError> {
        match self.authorizer().decide(user, wanted) {
            Decision::Allow(_) => Ok(()),
            Decision::NoOpinion(why) => Err(wanted.denied(user, &why)),
        }
    }
}

/// The answer, if it is there within the time that the request has.
async fn in_time(begun: Instant, query: &str, answer: impl Future<Output = Response>) -> Response {
    let allowed = match time::allowed(&Query::parse(query)) {
        Ok(allowed) => allowed,
        Err(error) => return error.into_response(),
    };
    let why = "request did not complete within the allotted timeout".to_owned();
    let in_time = tokio::time::timeout_at(begun + allowed, answer).await;
    in_time.unwrap_or_else(|_| ApiError::Timeout(why).into_response())
}

/// Does something to its end, also if nobody waits for it any more.
async fn to_its_end(work: impl Future<Output = Response> + Send + 'static) -> Response {
    let done = tokio::spawn(work.instrument(tracing::Span::current())).await;
    done.unwrap_or_else(|error| ApiError::Internal(error.to_string()).into_response())
}

/// Takes the token out of the protocols of a WebSocket; the others stay.
fn socket_token(headers: &mut HeaderMap) -> Option<String> {
    let offered = headers.get(header::SEC_WEBSOCKET_PROTOCOL)?.to_str().ok()?.to_owned();
    let (tokens, rest): (Vec<&str>, Vec<&str>) =
        offered.split(',').map(str::trim).partition(|p| p.starts_with(SOCKET_TOKEN));
    let encoded = tokens.first()?.strip_prefix(SOCKET_TOKEN)?;
    let token = String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?;
    let rest = HeaderValue::from_str(&rest.join(", ")).ok()?;
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, rest);
    Some(token)
}
