//! Which verb a request is, and its answer.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::answer::{json_bytes, warned, written};
use super::document::{applied, document};
use super::form::Form;
use super::reply::Wish;
use super::request_log::Noted;
use super::{connect, described, discovery, health, snapshot, stream};
use crate::access::gate::Gate;
use crate::access::review;
use crate::access::token::discovery as oidc;
use crate::aggregation::Aggregation;
use crate::asked::{Asked, doing};
use crate::catalog::Resources;
use crate::metrics::{Metrics, Page};
use crate::openapi::OpenApi;
use crate::registry::{Registry, now_unix};
use crate::request::{Query, Target, check, target};
use crate::status::{ApiError, json_response};
use crate::user::{self, User};
use crate::verbs::options::{WriteOptions, WriteVerb};
use crate::verbs::update::PatchKind;
use crate::verbs::{apply, create, delete, evict, list, part, update, watch};

/// Largest body of a request, bytes. Upstream: 3 MiB.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// What answers requests.
pub struct Server {
    /// The objects.
    pub registry: Arc<Registry>,
    /// The description of what is served.
    pub openapi: OpenApi,
    /// How the kubelets are spoken to.
    pub kubelets: stream::Kubelets,
    /// Who is let in.
    pub gate: Gate,
    /// `host:port` where clients reach it.
    pub address: String,
    /// Other servers, which serve groups of their own.
    pub aggregation: Arc<Aggregation>,
    /// What is counted.
    pub metrics: Metrics,
    /// Ends watches.
    pub stop: CancellationToken,
}

impl Server {
    /// Answers one request of `user` (`None`: nobody known yet), in the form that the client takes.
    pub async fn answer(self: Arc<Self>, request: Request<Body>, user: Option<User>) -> Response {
        let (wish, noted) = (Wish::of(&request), Noted::begin(&request));
        let server = Arc::clone(&self);
        // What is done for a request is large and passed through many hands: a pointer to it is.
        let response =
            self.gate.pass(request, user, |request, path| Box::pin(server.route(request, path))).await;
        let response = wish.dress(response).await;
        if let Some(noted) = noted {
            noted.end(response.status());
        }
        response
    }

    async fn route(self: Arc<Self>, request: Request<Body>, path: String) -> Response {
        let method = request.method().clone();
        let mut pending = None;
        let query = request.uri().query().unwrap_or_default().to_owned();
        let reading = method == Method::GET || method == Method::HEAD;
        if let Some(remote) = self.aggregation.of_path(&path) {
            return self.aggregation.pass(&remote, request).await;
        }
        let resources = self.registry.catalog().now();
        let answered = match target(&path, &resources) {
            Some(target) => {
                pending = Some(self.metrics.request(&target, &method, &Query::parse(&query)));
                // What a kubelet or a Pod answers is in no form of ours.
                let passed_on = connects(&target) || target.subresource.as_deref() == Some("proxy");
                let taken = if passed_on { Ok(()) } else { Wish::of(&request).check() };
                match taken {
                    Ok(()) => Box::pin(Arc::clone(&self).objects(target, request)).await,
                    Err(error) => Err(error),
                }
            }
            None => match self.itself(&path, &query, reading).await {
                Some(response) => Ok(response),
                None => self.others(&resources, &path, &request),
            },
        };
        let response = answered.unwrap_or_else(|error| {
            tracing::debug!(%method, path, %error, "refused");
            error.into_response()
        });
        if let Some(pending) = pending {
            pending.answered(response.status());
        }
        response
    }

    fn others(
        &self,
        resources: &Resources,
        path: &str,
        request: &Request<Body>,
    ) -> Result<Response, ApiError> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return Err(ApiError::NoResource);
        }
        let accept = header_text(request.headers(), &header::ACCEPT);
        let ok = |value: &Value| Ok(json_response(StatusCode::OK, value));
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let others = || self.aggregation.all();
        let groups = || discovery::groups(resources, &others());
        match parts.as_slice() {
            ["api" | "apis"] => match discovery::aggregated_type(accept) {
                Some(media) => {
                    let document = discovery::aggregated(resources, &others(), parts == ["api"], media);
                    let mut response = json_response(StatusCode::OK, &document);
                    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
                    Ok(response)
                }
                None if parts == ["api"] => ok(&discovery::core_versions(&self.address)),
                None => ok(&discovery::group_list(&groups())),
            },
            ["api", version] => {
                discovery::resource_list(resources, "", version).map_or(Err(ApiError::NoResource), |d| ok(&d))
            }
            ["apis", group] => {
                discovery::group_document(&groups(), group).map_or(Err(ApiError::NoResource), |d| ok(&d))
            }
            ["apis", group, version] => discovery::resource_list(resources, group, version)
                .map_or(Err(ApiError::NoResource), |d| ok(&d)),
            ["version"] => ok(&discovery::version()),
            [".well-known", "openid-configuration"] => {
                ok(&oidc::configuration(self.gate.tokens(), &self.address))
            }
            ["openid", "v1", "jwks"] => {
                let mut response = json_response(StatusCode::OK, &oidc::keys(self.gate.tokens()));
                let media = HeaderValue::from_static("application/jwk-set+json");
                response.headers_mut().insert(header::CONTENT_TYPE, media);
                Ok(response)
            }
            ["openapi", rest @ ..] => {
                described::answer(&self.openapi, resources, &self.aggregation.published(), rest, request)
            }
            [""] => ok(
                &json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz",
                    "/version"]}),
            ),
            _ => Err(ApiError::NoResource),
        }
    }

    /// What the server says of itself: its health and its counts.
    async fn itself(&self, path: &str, query: &str, reading: bool) -> Option<Response> {
        if !reading {
            return None;
        }
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match parts.as_slice() {
            ["metrics"] => {
                let more = |page: &mut Page| {
                    self.gate.protection().show(page);
                    self.aggregation.show(page);
                };
                let mut response = self.metrics.page(&self.registry, more).await.into_response();
                let media = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                response.headers_mut().insert(header::CONTENT_TYPE, media);
                Some(response)
            }
            // Secrets are in it.
            ["trine", "snapshot"] if !user::caller().is_some_and(|u| u.is_in(user::MASTERS)) => {
                let why = "only system:masters may take a snapshot of the store".to_owned();
                Some(ApiError::Forbidden(why).into_response())
            }
            ["trine", "snapshot"] => Some(snapshot::answer(&self.registry).await),
            [endpoint @ ("livez" | "readyz" | "healthz"), rest @ ..] if rest.len() < 2 => {
                let excluded: Vec<&str> =
                    query.split('&').filter_map(|pair| pair.strip_prefix("exclude=")).collect();
                let verbose = query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="));
                let checks = health::checks(&self.registry, endpoint, self.stop.is_cancelled()).await;
                let (code, text) =
                    health::report(endpoint, &checks, rest.first().copied(), &excluded, verbose)?;
                Some((code, text).into_response())
            }
            _ => None,
        }
    }

    async fn objects(self: Arc<Self>, target: Target, request: Request<Body>) -> Result<Response, ApiError> {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        match (target.name.is_some(), target.subresource.as_deref()) {
            (true, Some(_)) if connects(&target) => {
                let warnings = connect::admit(&self.registry, &target, request.uri()).await?;
                let passed_on = self.kubelets.pass_on(&self.registry, &target, request).await?;
                Ok(warned(passed_on, warnings))
            }
            (true, Some(part @ ("status" | "approval" | "ephemeralcontainers" | "resize")))
                if target.resource.subresource(part).is_some() =>
            {
                self.one(target, query, request).await
            }
            (true, Some("proxy")) if target.resource.subresource("proxy").is_some() => {
                let warnings = connect::admit(&self.registry, &target, request.uri()).await?;
                Ok(warned(self.proxy(target, request).await?, warnings))
            }
            (true, Some("scale")) if target.resource.subresource("scale").is_some() => {
                self.scale(target, query, request).await
            }
            (true, Some("binding" | "eviction" | "finalize" | "token")) => {
                self.part(target, query, request).await
            }
            (true, Some(_)) => Err(ApiError::NoResource),
            (true, None) => self.one(target, query, request).await,
            (false, _) => self.many(target, query, request).await,
        }
    }

    async fn many(
        self: Arc<Self>,
        target: Target,
        query: Query,
        request: Request<Body>,
    ) -> Result<Response, ApiError> {
        let form = form(&target, &query, &request);
        let method = request.method().clone();
        served(&target, &method, &query)?;
        match method {
            Method::GET | Method::HEAD if query.flag("watch") => self.watch(&target, &query, form).await,
            Method::GET | Method::HEAD => {
                let mut page = list::list(&self.registry, &target, &query).await?;
                page.objects = target.resource.show_all(&self.registry, page.objects).await?;
                Ok(json_bytes(form.page(&target.resource, page)))
            }
            Method::POST => {
                if target.resource.namespaced && target.namespace.is_empty() {
                    return Err(ApiError::MethodNotAllowed);
                }
                if review::is_question(&target.resource) {
                    return self.question(&target, request).await;
                }
                if target.resource.plural == "bindings" {
                    return self.bind(&target, request).await;
                }
                let options = options(&query, &request, WriteVerb::Create)?;
                let content_type = header_text(request.headers(), &header::CONTENT_TYPE).to_owned();
                let body = read(request).await?;
                let (mut object, duplicates) = document(&content_type, &body)?;
                let warnings = check(&target.resource, &mut object, duplicates, options.validation)?;
                to_stored(&self.registry, &target, &mut object).await?;
                let (resource, namespace) = (target.resource.stored(), target.namespace.as_str());
                let making = create::create(&self.registry, &resource, namespace, object, &options);
                let mut done = doing(Asked::of(&target, &query), making).await.0?;
                done.warnings.splice(0..0, warnings);
                target.resource.show_written(&self.registry, &mut done.object).await?;
                Ok(written(StatusCode::CREATED, &form, done))
            }
            Method::DELETE => {
                let body = body_value(request).await?;
                let options = delete::Options::parse(&query, &body)?;
                let mut page = list::list(&self.registry, &target, &query).await?;
                let mut warnings = Vec::new();
                for object in &page.objects {
                    let object = update::parse(object.json())?;
                    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
                    let one = Target {
                        namespace: text(&object["metadata"]["namespace"]),
                        name: Some(text(&object["metadata"]["name"])),
                        ..target.clone()
                    };
                    let deleting = delete::delete(&self.registry, &one, &options);
                    let (deleted, more) = doing(Asked::new(&target.resource, &query, &body), deleting).await;
                    warnings.extend(more);
                    match deleted {
                        Ok(_) | Err(ApiError::NotFound { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                page.objects = target.resource.show_all(&self.registry, page.objects).await?;
                Ok(warned(json_bytes(form.page(&target.resource, page)), warnings))
            }
            _ => Err(ApiError::MethodNotAllowed),
        }
    }

    /// A question about access.
    async fn question(&self, target: &Target, request: Request<Body>) -> Result<Response, ApiError> {
        let user = user::caller().ok_or(ApiError::Unauthorized)?;
        // An answer is no object: there is no table of it.
        Wish::of(&request).check_whole()?;
        let question = body_value(request).await?;
        let answer =
            review::answer(&self.gate, &user, &target.resource, &target.namespace, question, now_unix())?;
        Ok(json_response(StatusCode::CREATED, &answer))
    }

    /// `POST bindings`: the older way to say `POST pods/NAME/binding`.
    async fn bind(&self, target: &Target, request: Request<Body>) -> Result<Response, ApiError> {
        let mut binding = body_value(request).await?;
        let admitting = part::admit(&self.registry, target, &mut binding, false);
        doing(Asked::of(target, &Query::default()), admitting).await.0?;
        let pods = self.registry.resource("", "v1", "pods")?;
        let name = binding["metadata"]["name"].as_str().map(str::to_owned);
        let pod = Target { resource: pods, name, ..target.clone() };
        let answer = part::bind(&self.registry, &pod, &binding).await?;
        Ok(json_response(StatusCode::CREATED, &answer))
    }

    async fn watch(&self, target: &Target, query: &Query, form: Form) -> Result<Response, ApiError> {
        let body = watch::watch(&self.registry, target, query, form, self.stop.clone()).await?;
        let mut response = Response::new(body);
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        Ok(response)
    }

    async fn one(
        self: Arc<Self>,
        target: Target,
        query: Query,
        request: Request<Body>,
    ) -> Result<Response, ApiError> {
        let form = form(&target, &query, &request);
        let name = target.name.clone().unwrap_or_default();
        let method = request.method().clone();
        served(&target, &method, &query)?;
        match method {
            Method::GET | Method::HEAD if query.flag("watch") => self.watch(&target, &query, form).await,
            Method::GET | Method::HEAD => {
                if query.get("resourceVersion").is_none() {
                    self.registry.consistent().await?;
                }
                let object = self.registry.get(&target.resource, &target.namespace, &name)?;
                let object = target.resource.show_one(&self.registry, object).await?;
                let mut form = form;
                let mut bytes = Vec::new();
                form.one(&mut bytes, &object, object.revision);
                Ok(json_bytes(bytes))
            }
            Method::PUT => {
                let options = options(&query, &request, WriteVerb::Update)?;
                let content_type = header_text(request.headers(), &header::CONTENT_TYPE).to_owned();
                let body = read(request).await?;
                let (mut object, duplicates) = document(&content_type, &body)?;
                let warnings = check(&target.resource, &mut object, duplicates, options.validation)?;
                to_stored(&self.registry, &target, &mut object).await?;
                let stored = target.stored();
                let replacing = update::replace(&self.registry, &stored, object, &options);
                let mut done = doing(Asked::of(&target, &query), replacing).await.0?;
                done.warnings.splice(0..0, warnings);
                target.resource.show_written(&self.registry, &mut done.object).await?;
                Ok(written(StatusCode::OK, &form, done))
            }
            Method::PATCH => {
                let kind = PatchKind::parse(header_text(request.headers(), &header::CONTENT_TYPE))?;
                if kind == PatchKind::Apply {
                    let options = options(&query, &request, WriteVerb::Apply)?;
                    let config = applied(&read(request).await?)?;
                    let applying = apply::apply(&self.registry, &target, config, &options);
                    let (new, mut done) = doing(Asked::of(&target, &query).by_patch(), applying).await.0?;
                    target.resource.show_written(&self.registry, &mut done.object).await?;
                    let code = if new { StatusCode::CREATED } else { StatusCode::OK };
                    return Ok(written(code, &form, done));
                }
                let options = options(&query, &request, WriteVerb::Patch)?;
                let body = read(request).await?;
                let change = document("application/json", &body)?;
                let patching = update::patch(&self.registry, &target, kind, &change, &options);
                let mut done = doing(Asked::of(&target, &query).by_patch(), patching).await.0?;
                target.resource.show_written(&self.registry, &mut done.object).await?;
                Ok(written(StatusCode::OK, &form, done))
            }
            Method::DELETE if target.subresource.is_none() => {
                let body = body_value(request).await?;
                let options = delete::Options::parse(&query, &body)?;
                let deleting = delete::delete(&self.registry, &target, &options);
                let (answer, warnings) = doing(Asked::new(&target.resource, &query, &body), deleting).await;
                let mut answer = answer?;
                if target.resource.custom().is_some() && answer["kind"] == *target.resource.kind {
                    target.resource.show(&self.registry, &mut answer).await?;
                }
                Ok(warned(json_response(StatusCode::OK, &answer), warnings))
            }
            _ => Err(ApiError::MethodNotAllowed),
        }
    }

    async fn part(
        self: Arc<Self>,
        target: Target,
        query: Query,
        request: Request<Body>,
    ) -> Result<Response, ApiError> {
        let method = request.method().clone();
        let verb = if method == Method::POST { WriteVerb::Create } else { WriteVerb::Update };
        let options = options(&query, &request, verb)?;
        let mut body = body_value(request).await?;
        let admitting = part::admit(&self.registry, &target, &mut body, options.dry_run);
        let (admitted, warnings) = doing(Asked::of(&target, &query), admitting).await;
        admitted?;
        let pods = target.resource.plural == "pods";
        let answer = match (target.subresource.as_deref(), method) {
            (Some("binding"), Method::POST) if pods => part::bind(&self.registry, &target, &body).await?,
            (Some("eviction"), Method::POST) if pods => {
                evict::evict(&self.registry, &target, &body, &query).await?;
                part::done(201)
            }
            (Some("token"), Method::POST) if target.resource.plural == "serviceaccounts" => {
                let account = (target.namespace.as_str(), target.name.as_deref().unwrap_or_default());
                let made = self.gate.request_token(account, body, now_unix())?;
                return Ok(warned(json_response(StatusCode::CREATED, &made), warnings));
            }
            (Some("finalize"), Method::PUT) if target.resource.plural == "namespaces" => {
                part::finalize(&self.registry, &target, &body, &options).await?
            }
            _ => return Err(ApiError::MethodNotAllowed),
        };
        let code = if answer["code"] == 201 { StatusCode::CREATED } else { StatusCode::OK };
        Ok(warned(json_response(code, &answer), warnings))
    }
}

/// Whether a request goes on to a kubelet, which does not speak of objects.
fn connects(target: &Target) -> bool {
    let below = target.subresource.as_deref();
    target.name.is_some() && matches!(below, Some("log" | "exec" | "attach" | "portforward"))
}

/// Refuses a verb that the resource does not have.
fn served(target: &Target, method: &Method, query: &Query) -> Result<(), ApiError> {
    let one = target.name.is_some();
    let verb = match *method {
        Method::GET | Method::HEAD if query.flag("watch") => "watch",
        Method::GET | Method::HEAD if one => "get",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if one => "delete",
        Method::DELETE => "deletecollection",
        _ => return Err(ApiError::MethodNotAllowed),
    };
    if target.resource.serves(verb) { Ok(()) } else { Err(ApiError::MethodNotAllowed) }
}

pub(super) fn options(
    query: &Query,
    request: &Request<Body>,
    verb: WriteVerb,
) -> Result<WriteOptions, ApiError> {
    WriteOptions::parse(query, header_text(request.headers(), &header::USER_AGENT), verb)
}

fn form(target: &Target, query: &Query, request: &Request<Body>) -> Form {
    let accept = header_text(request.headers(), &header::ACCEPT);
    Form::parse(accept, &target.resource, query.get("includeObject"))
}

/// Objects that are served under two groups, or in several versions, are stored in one of them.
async fn to_stored(registry: &Registry, target: &Target, object: &mut Value) -> Result<(), ApiError> {
    let given = object["apiVersion"].as_str().unwrap_or_default();
    let fits = given.is_empty() || given == target.resource.api_version();
    if !fits {
        return Ok(());
    }
    if given.is_empty() && object.is_object() {
        object["apiVersion"] = target.resource.api_version().into();
        object["kind"] =
            object["kind"].as_str().filter(|k| !k.is_empty()).unwrap_or(&target.resource.kind).into();
    }
    target.resource.store(registry, object).await
}

pub(super) fn header_text<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> &'a str {
    headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

pub(super) async fn read(request: Request<Body>) -> Result<Bytes, ApiError> {
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
    body.map(|b| b.to_bytes()).map_err(|e| match e.downcast_ref::<LengthLimitError>() {
        Some(_) => ApiError::TooLarge(MAX_BODY),
        None => ApiError::BadRequest(format!("the body cannot be read: {e}")),
    })
}

async fn body_value(request: Request<Body>) -> Result<Value, ApiError> {
    let content_type = header_text(request.headers(), &header::CONTENT_TYPE).to_owned();
    let body = read(request).await?;
    if body.is_empty() {
        return Ok(Value::Null);
    }
    document(&content_type, &body).map(|(value, _)| value)
}
