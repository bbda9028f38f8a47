//! `scale` of any kind that has replicas.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{Method, Request, StatusCode, header};
use serde_json::Value;

use super::answer::written;
use super::document::{applied, document};
use super::form::Form;
use super::route::{Server, header_text, options, read};
use crate::asked::{Asked, doing};
use crate::request::{Query, Target};
use crate::status::{ApiError, json_response};
use crate::verbs::options::WriteVerb;
use crate::verbs::scale::{self, Change};
use crate::verbs::update::{PatchKind, parse};

impl Server {
    /// Answers a request for the `scale` of an object.
    pub(super) async fn scale(
        self: Arc<Self>,
        target: Target,
        query: Query,
        request: Request<Body>,
    ) -> Result<Response, ApiError> {
        let paths = target.resource.scale_paths();
        let method = request.method().clone();
        let content_type = header_text(request.headers(), &header::CONTENT_TYPE).to_owned();
        let (options, change) = match method {
            Method::GET | Method::HEAD => {
                let name = target.name.as_deref().unwrap_or_default();
                let mut object = parse(self.registry.get(&target.resource, &target.namespace, name)?.json())?;
                target.resource.show(&self.registry, &mut object).await?;
                return Ok(json_response(StatusCode::OK, &scale::view(&object, &paths)));
            }
            Method::PUT => {
                let options = options(&query, &request, WriteVerb::Update)?;
                let (given, _): (Value, _) = document(&content_type, &read(request).await?)?;
                (options, Change::Replace(given))
            }
            Method::PATCH => {
                let kind = PatchKind::parse(&content_type)?;
                if kind == PatchKind::Apply {
                    let options = options(&query, &request, WriteVerb::Apply)?;
                    let (config, _) = applied(&read(request).await?)?;
                    let applying =
                        scale::write(&self.registry, &target, Change::Apply(config), &paths, &options);
                    let done = doing(Asked::of(&target, &query), applying).await.0?;
                    return Ok(written(StatusCode::OK, &Form::Plain(target.resource), done));
                }
                let options = options(&query, &request, WriteVerb::Patch)?;
                let (change, _) = document("application/json", &read(request).await?)?;
                (options, Change::Patch(kind, change))
            }
            _ => return Err(ApiError::MethodNotAllowed),
        };
        let writing = scale::write(&self.registry, &target, change, &paths, &options);
        let done = doing(Asked::of(&target, &query), writing).await.0?;
        Ok(written(StatusCode::OK, &Form::Plain(target.resource), done))
    }
}
