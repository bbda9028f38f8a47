//! Whether a caller may. Administrators may; of others the API server is asked, as upstream asks it.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode};
use trine_typed::k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use trine_typed::k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use trine_typed::kube::Api;
use trine_typed::kube::api::PostParams;

use super::server::Server;
use super::tls::Identity;
use crate::error::api;

/// Groups that may do everything on a node.
const ADMINISTRATORS: [&str; 2] = ["system:masters", "kubeadm:cluster-admins"];

/// Which subresource of `nodes` a path is.
#[must_use]
pub fn subresource(path: &str) -> &'static str {
    match path.split('/').nth(1) {
        Some("stats") => "stats",
        Some("metrics") => "metrics",
        Some("logs") => "log",
        Some("pods" | "runningpods") => "pods",
        Some("healthz") => "healthz",
        _ => "proxy",
    }
}

/// Verb of a method, as upstream maps them.
#[must_use]
pub fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "create",
    }
}

/// Lets a request through, or answers 401 or 403.
pub async fn check(State(server): State<Server>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    if path == "/healthz" {
        return next.run(request).await;
    }
    let shown = request.extensions().get::<Identity>().cloned();
    let identity = match (shown, bearer(&request)) {
        (Some(identity), _) => Some(identity),
        (None, Some(token)) => whose(&server, token).await,
        (None, None) => None,
    };
    let Some(identity) = identity else {
        return (StatusCode::UNAUTHORIZED, "Unauthorized").into_response();
    };
    if identity.groups.iter().any(|g| ADMINISTRATORS.contains(&g.as_str())) {
        return next.run(request).await;
    }
    let (verb, subresource) = (verb(request.method()), subresource(&path));
    if allowed(&server, &identity, verb, subresource).await {
        return next.run(request).await;
    }
    let text =
        format!("Forbidden (user={}, verb={verb}, resource=nodes, subresource={subresource})", identity.user);
    (StatusCode::FORBIDDEN, text).into_response()
}

/// The token that a request carries.
fn bearer(request: &Request) -> Option<String> {
    let value = request.headers().get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

/// Asks the API server whose token it is; no answer is nobody.
async fn whose(server: &Server, token: String) -> Option<Identity> {
    let reviews: Api<TokenReview> = Api::all(server.client.clone());
    let spec = TokenReviewSpec { token, ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    match api("create TokenReview", "a caller", reviews.create(&PostParams::default(), &review)).await {
        Ok(review) => {
            let status = review.status.filter(|s| s.authenticated == Some(true))?;
            let user = status.user?;
            Some(Identity { user: user.username?, groups: user.groups.unwrap_or_default() })
        }
        Err(error) => {
            tracing::warn!(error = error.chain(), "a token cannot be checked");
            None
        }
    }
}

/// Asks the API server; no answer is no.
async fn allowed(server: &Server, identity: &Identity, verb: &str, subresource: &str) -> bool {
    let reviews: Api<SubjectAccessReview> = Api::all(server.client.clone());
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(identity.user.clone()),
            groups: Some(identity.groups.clone()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some(subresource.to_owned()),
                name: Some(server.config.node_name.clone()),
                ..Default::default()
            }),
            ..Default::default()
        },
        ..Default::default()
    };
    let (params, who) = (PostParams::default(), identity.user.as_str());
    match api("create SubjectAccessReview", who, reviews.create(&params, &review)).await {
        Ok(review) => review.status.is_some_and(|s| s.allowed),
        Err(error) => {
            tracing::warn!(user = who, error = error.chain(), "authorization cannot be checked");
            false
        }
    }
}
